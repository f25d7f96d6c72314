"""The twin of `protocols/flooding.py`, for any number of peers and few senders, or the other way round.

Memory is peers × (senders and neighbours): for each link 12 bytes, for each sender 4 where links keep order,
as they should; else a ring of bits besides, and a run that finds it too short begins again with a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from antecede.sim.kernels import events
from antecede.sim.kernels.bitsets import window_add, window_has
from antecede.sim.kernels.cubes import hypercube_links
from antecede.sim.kernels.events import (
    ARRIVAL,
    FULL,
    NOTHING,
    NOW,
    SEND,
    STOPPED,
    Full,
    arrived,
    delivered,
    following,
    may_send,
    plan_next,
    sent,
    transmit,
)
from antecede.sim.kernels.jit import loop, step
from antecede.sim.kernels.schedule import who_sends
from antecede.sim.kernels.sizes import int_bytes, payload_head
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.sim.world import Observer

_MOST_MESSAGES = 1 << 24
_MOST_PAIRS = 1 << 28
"""Peers × senders, with bits."""
_MOST_WORDS = 1 << 10


class State(NamedTuple):
    first: np.ndarray
    neighbours: np.ndarray
    """Of each peer in turn; `first` says where they begin."""
    column: np.ndarray
    """Of each peer among those that may send; -1 if it may not."""
    solid: np.ndarray
    top: np.ndarray
    beyond: np.ndarray
    """What each peer has of each sender: a window, as in `bitsets`; without bits if all comes in order."""
    origin: np.ndarray
    seq: np.ndarray
    sent_at: np.ndarray
    """Of each message."""
    total: np.ndarray
    """How many messages there are."""


def unfit(given: Scenario) -> str:
    """Why a run cannot be done so; nothing if it can."""
    if given.network is not None:
        return "delays depend on what else is sent"
    if given.probes:
        return f"probe {given.probes[0]} is not compiled for {given.protocol}"
    if given.peers * len(who_sends(given)) > _MOST_PAIRS:
        return "too many peers have to remember too many senders"
    return ""


def run(given: Scenario, observers: Sequence[Observer], progress: Callable[[float], None] | None) -> Metrics:
    words = 0 if given.fifo is not False and not given.faults else 2
    while True:
        try:
            if observers and words:  # what they were shown cannot be taken back
                _attempt(given, (), None, words)
            return _attempt(given, observers, progress, words)
        except Full:
            if words == 0 or words >= _MOST_WORDS:
                raise
            words *= 8


def _attempt(
    given: Scenario, observers: Sequence[Observer], progress: Callable[[float], None] | None, words: int
) -> Metrics:
    first, neighbours = hypercube_links(given.peers)
    senders = who_sends(given)
    column = np.full(given.peers, -1, np.int32)
    column[senders] = np.arange(len(senders))
    made, rules = events.fresh(given, len(neighbours), len(neighbours), bool(observers))
    bits = (given.peers, len(senders)) if words else (1, 1)
    state = State(
        first, neighbours, column,
        np.zeros((given.peers, len(senders)), np.int32), np.zeros(bits, np.int32),
        np.zeros((*bits, words), np.uint64),
        np.empty(_MOST_MESSAGES, np.int32), np.empty(_MOST_MESSAGES, np.int32),
        np.empty(_MOST_MESSAGES, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip
    head = payload_head(given.payload)
    events.drive(made, rules, lambda count: advance(made, rules, state, head, count), observers, progress)
    return events.metrics(made, 0, {})


@loop
def advance(run: Any, rules: Any, state: Any, head: Any, budget: Any) -> Any:
    """So many events; False if there are no more."""
    for _ in range(budget):
        kind, peer, source, message = following(run, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(run, rules, state, head, peer)
            plan_next(run, rules, peer)
        elif kind == ARRIVAL:
            receive(run, rules, state, head, peer, source, message)
    return True


@step
def broadcast(run: Any, rules: Any, state: Any, head: Any, me: Any) -> Any:
    """The twin of `Flooding.broadcast`."""
    if not may_send(run, me):
        return
    message, seq = state.total[0], run.messages[me]
    if message == len(state.origin):
        run.at[FULL] = 1
        return
    state.total[0] += 1
    state.origin[message], state.seq[message], state.sent_at[message] = me, seq, run.at[NOW]
    alone = state.first[me] == state.first[me + 1]
    control = 0 if alone else control_bytes(head, me, seq)
    sent(run, me, control, 0 if alone else 4)
    flood(run, rules, state, me, -1, message, control)


@step
def control_bytes(head: Any, origin: Any, seq: Any) -> Any:
    return 2 + head + int_bytes(origin) + int_bytes(seq)


@step
def flood(run: Any, rules: Any, state: Any, me: Any, link: Any, message: Any, control: Any) -> Any:
    for place in range(state.first[me], state.first[me + 1]):
        other = state.neighbours[place]
        if other != link:
            transmit(run, rules, place, me, other, message, control)


@step
def receive(run: Any, rules: Any, state: Any, head: Any, me: Any, link: Any, message: Any) -> Any:
    """The twin of `Flooding.receive`, and of the delivery that follows the first."""
    origin, seq = state.origin[message], state.seq[message]
    arrived(run, me, link, origin, seq)
    if origin == me:
        return
    column = state.column[origin]
    solid = state.solid[me, column]
    if seq <= solid:
        return
    if state.beyond.shape[2] == 0:
        if seq > solid + 1:
            run.at[FULL] = 1
        state.solid[me, column] = seq
    else:
        ring = state.beyond[me, column]
        if window_has(ring, solid, state.top[me, column], seq):
            return
        if not window_add(ring, state.solid[me], state.top[me], column, seq):
            run.at[FULL] = 1
            return
    flood(run, rules, state, me, link, message, control_bytes(head, origin, seq))
    now = run.at[NOW]
    if delivered(run, rules, me, origin, seq, state.sent_at[message], now):
        broadcast(run, rules, state, head, me)
