"""The twin of `protocols/flooding.py`, for any number of peers and few senders, or the other way round.

Memory is peers × (senders and neighbours): for each link 12 bytes, for each sender 4 where links keep order,
as they should; else a ring of bits besides, and a run that finds it too short begins again with a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.sim.kernels.contract import CapacityExceeded, ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.runtime import events, queues, routed
from antecede.sim.kernels.runtime.bitsets import window_add, window_has
from antecede.sim.kernels.runtime.events import (
    ARRIVAL,
    FULL,
    NOTHING,
    NOW,
    SEND,
    STOPPED,
    arrived,
    delivered,
    may_send,
    plan_next,
    sent,
    transmit,
)
from antecede.sim.kernels.runtime.msgpack_sizes import int_bytes, payload_head
from antecede.sim.kernels.runtime.overlays import hypercube_links
from antecede.sim.kernels.runtime.routed import Audience, coming, post
from antecede.sim.kernels.runtime.send_schedule import who_sends
from antecede.sim.metrics import Metrics
from antecede.sim.network import RoutedModel
from antecede.sim.scenario import Scenario

_MAX_MESSAGES = 1 << 24
_MAX_PAIRS = 1 << 28
"""Peers × senders, with bits."""
_MAX_WORDS = 1 << 10
_NUMBER = 4
"""Bytes that a message carries on paper."""


class Terms(NamedTuple):
    """What does not change in a run."""

    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network weighs packets as the paper does."""


TAG = 34
"""Where in a packet's 64 bits the tag of its link begins; below is what the packet is."""


class State(NamedTuple):
    first: np.ndarray
    last: np.ndarray
    neighbours: np.ndarray
    """Of each peer in turn; it floods those from `first` to before `last`. From bit `TAG` on each has what
    packets over that link bear, so that one can be told whose link has closed."""
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


def supports(given: Scenario, measured: Sequence[str] = ("queues",)) -> Unsupported | None:
    """Why a run cannot be done so; None if it can. Of probes there are those `measured`."""
    if not isinstance(given.network, RoutedModel | None):
        return Unsupported("delays depend on what else is sent")
    others = set(given.probes) - set(measured)
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {given.protocol}")
    if "queues" in given.probes and not _in_order(given):
        return Unsupported("what comes out of order is in no queue, but probe queues counts it")
    if given.peers * len(who_sends(given)) > _MAX_PAIRS:
        return Unsupported("too many peers have to remember too many senders")
    return routed.supports(given)


def _in_order(given: Scenario) -> bool:
    """Whether links are FIFO; routes always are, and have no faults."""
    return given.network is not None or (given.fifo is not False and not given.faults)


def run(given: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return with_room(given, observers, progress, _attempt)


def with_room(
    given: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    attempt: Callable[[Scenario, ObserverFeed, Progress | None, int], Metrics],
) -> Metrics:
    """A run in as many attempts as it takes to find how many words of bits the windows need."""
    words = 0 if _in_order(given) else 2
    while True:
        try:
            return attempt(given, observers, progress, words)
        except CapacityExceeded:
            if words == 0 or words >= _MAX_WORDS:
                raise
            words *= 8


def _attempt(given: Scenario, observers: ObserverFeed, progress: Progress | None, words: int) -> Metrics:
    first, neighbours = hypercube_links(given.peers)
    state = fresh(given, first, first[1:], neighbours, words)
    network, twin = routed.fresh(given, lambda: _audiences(first, neighbours))
    pace = routed.pace(given, network, _NUMBER)
    made, rules = events.fresh(given, len(neighbours), len(neighbours), bool(observers), pace=pace)
    terms = Terms(given.payload, payload_head(given.payload), given.count == "paper")
    events.drive(
        made, rules, lambda count: advance(made, rules, network, state, terms, count), observers, progress
    )
    measured = routed.figures(network, twin, int(made.at[NOW]))
    measured |= queues.figures(queues.fresh(given))  # nothing is ever held
    return events.metrics(made, 0, measured)


def fresh(given: Scenario, first: np.ndarray, last: np.ndarray, neighbours: np.ndarray, words: int) -> State:
    """Before anything happens: each peer's neighbours, where they begin and end."""
    senders = who_sends(given)
    column = np.full(given.peers, -1, np.int32)
    column[senders] = np.arange(len(senders))
    bits = (given.peers, len(senders)) if words else (1, 1)
    return State(
        first, last, neighbours, column,
        np.zeros((given.peers, len(senders)), np.int32), np.zeros(bits, np.int32),
        np.zeros((*bits, words), np.uint64),
        np.empty(_MAX_MESSAGES, np.int32), np.empty(_MAX_MESSAGES, np.int32),
        np.empty(_MAX_MESSAGES, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


def _audiences(first: np.ndarray, neighbours: np.ndarray) -> Iterator[Audience]:
    """Whom each peer sends to: all its neighbours, or all but one; in the order of `audience`."""
    for peer, (begin, end) in enumerate(pairwise(first)):
        those = tuple(neighbours[begin:end].tolist())
        yield peer, those
        for link in those:
            yield peer, tuple(other for other in those if other != link)


@njit_hot
def advance(run: Any, rules: Any, net: Any, state: Any, terms: Any, budget: Any) -> Any:
    """So many events; False if there are no more."""
    for _ in range(budget):
        kind, peer, source, message = coming(run, rules, net)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(run, rules, net, state, terms, peer)
            plan_next(run, rules, peer)
        elif kind == ARRIVAL:
            receive(run, rules, net, state, terms, peer, source, message)
    return True


@njit_inline
def broadcast(run: Any, rules: Any, net: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `Flooding.broadcast`."""
    message = new_message(run, state, terms.head, me)
    if message >= 0:
        spread(run, rules, net, state, terms, me, -1, message)


@njit_inline
def new_message(run: Any, state: Any, head: Any, me: Any) -> Any:
    """What `me` says now, on its way to its neighbours if it has any; -1 if it says nothing."""
    if not may_send(run, me):
        return -1
    message = state.total[0]
    if message == len(state.origin):
        run.at[FULL] = 1
        return -1
    state.total[0] += 1
    state.origin[message], state.seq[message], state.sent_at[message] = me, run.messages[me], run.at[NOW]
    alone = state.first[me] == state.last[me]
    sent(run, me, 0 if alone else control_bytes(state, head, message), 0 if alone else _NUMBER)
    return message


@njit_inline
def control_bytes(state: Any, head: Any, message: Any) -> Any:
    return 2 + head + int_bytes(state.origin[message]) + int_bytes(state.seq[message])


@njit_inline
def flood(run: Any, rules: Any, state: Any, me: Any, link: Any, packet: Any, control: Any) -> Any:
    """To all neighbours but one; True if there are any."""
    others = 0
    for place in range(state.first[me], state.last[me]):
        tagged = state.neighbours[place]
        other = tagged & (1 << TAG) - 1
        if other != link:
            transmit(run, rules, place, me, other, packet | tagged ^ other, control)
            others += 1
    return others > 0


@njit_inline
def spread(run: Any, rules: Any, net: Any, state: Any, terms: Any, me: Any, link: Any, message: Any) -> Any:
    """The same, over links or over routes."""
    control = control_bytes(state, terms.head, message)
    if net is None:
        flood(run, rules, state, me, link, message, control)
        return
    first, end = state.first[me], state.last[me]
    weight = terms.payload + (_NUMBER if terms.as_paper else control)
    if net.multicast:
        if end - first > (link >= 0):
            post(run, rules, net, me, audience(state, me, link), message, control, weight)
        return
    for place in range(first, end):
        other = np.int64(state.neighbours[place])
        if other != link:
            post(run, rules, net, me, other, message, control, weight)


@njit_inline
def audience(state: Any, me: Any, link: Any) -> Any:
    """All neighbours but the one that it came from, if any."""
    first = state.first[me]
    if link < 0:
        return first + me
    place = first
    while state.neighbours[place] != link:
        place += 1
    return place + me + 1


@njit_inline
def receive(run: Any, rules: Any, net: Any, state: Any, terms: Any, me: Any, link: Any, message: Any) -> Any:
    """The twin of `Flooding.receive`, and of the delivery that follows the first."""
    if not is_new(run, state, me, link, message):
        return
    spread(run, rules, net, state, terms, me, link, message)
    if take(run, rules, state, me, message):
        broadcast(run, rules, net, state, terms, me)


@njit_inline
def is_new(run: Any, state: Any, me: Any, link: Any, message: Any) -> Any:
    """A message has come: whether it is another's, and for the first time."""
    origin, seq = state.origin[message], state.seq[message]
    arrived(run, me, link, origin, seq)
    if origin == me:
        return False
    column = state.column[origin]
    solid = state.solid[me, column]
    if seq <= solid:
        return False
    if state.beyond.shape[2] == 0:
        if seq > solid + 1:
            run.at[FULL] = 1
        state.solid[me, column] = seq
        return True
    ring = state.beyond[me, column]
    if window_has(ring, solid, state.top[me, column], seq):
        return False
    if not window_add(ring, state.solid[me], state.top[me], column, seq):
        run.at[FULL] = 1
        return False
    return True


@njit_inline
def take(run: Any, rules: Any, state: Any, me: Any, message: Any) -> Any:
    """Deliver a message that has just come; True if it is to be answered at once."""
    origin, seq, sent_at = state.origin[message], state.seq[message], state.sent_at[message]
    return delivered(run, rules, me, origin, seq, sent_at, run.at[NOW])
