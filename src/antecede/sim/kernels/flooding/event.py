"""The event kernel of `flooding`, for any number of peers and few senders, or the other way round.

Memory is 12 bytes for each link, and for each pair of a peer and a sender 4 bytes where links are FIFO, as
they should be; else also a ring of bits. A run that finds the rings too short starts over with longer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.sim.kernels.contract import CapacityExceeded, ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.runtime import probe_queues, routed
from antecede.sim.kernels.runtime import world as runtime
from antecede.sim.kernels.runtime.agenda import plan_next_send
from antecede.sim.kernels.runtime.bit_window import add, contains
from antecede.sim.kernels.runtime.counting import (
    begin_broadcast,
    record_delivery,
    record_receive,
    record_send,
)
from antecede.sim.kernels.runtime.links import transmit
from antecede.sim.kernels.runtime.msgpack_sizes import int_bytes, payload_head
from antecede.sim.kernels.runtime.overlays import hypercube_links, overlay_links
from antecede.sim.kernels.runtime.routed import Audience, next_event, send
from antecede.sim.kernels.runtime.send_schedule import who_sends
from antecede.sim.kernels.runtime.world_state import ARRIVAL, FULL, NOTHING, NOW, SEND, STOPPED
from antecede.sim.metrics import Metrics
from antecede.sim.network import RoutedModel
from antecede.sim.scenario import Scenario

_MAX_MESSAGES = 1 << 24
_MAX_PAIRS = 1 << 28
"""The most pairs of a peer and a sender."""
_MAX_WORDS = 1 << 10
_NUMBER = 4
"""The control bytes of a message as the paper counts."""


class FloodingParams(NamedTuple):
    """What does not change in a run."""

    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network counts bytes as the paper does."""


TAG = 34
"""The lowest bit of a link's tag in the 64 bits of a packet; the bits below are what the packet is."""


class FloodingState(NamedTuple):
    first: np.ndarray
    last: np.ndarray
    neighbours: np.ndarray
    """Peer by peer; a peer floods those from `first` to before `last`. From bit `TAG` on each has the tag
    that packets over that link carry, which tells whether the link has closed since."""
    column: np.ndarray
    """The index of each peer among those that may send; -1 if it may not."""
    delivered: np.ndarray
    last_number: np.ndarray
    bits: np.ndarray
    """What each peer has delivered of each sender: a window, as in `bit_window`; without bits if links are
    FIFO."""
    origin: np.ndarray
    seq: np.ndarray
    sent_at: np.ndarray
    """Data of each message."""
    total: np.ndarray
    """The number of messages."""


def supports(scenario: Scenario, measured: Sequence[str] = ("queues",)) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can. `measured` are the probes that it has."""
    if not isinstance(scenario.network, RoutedModel | None):
        return Unsupported("delays depend on what else is sent")
    others = set(scenario.probes) - set(measured)
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {scenario.protocol}")
    if "queues" in scenario.probes and not _in_order(scenario):
        return Unsupported(
            "probe queues needs FIFO links: the kernel has no queue of messages that arrive out of order"
        )
    if scenario.peers * len(who_sends(scenario)) > _MAX_PAIRS:
        return Unsupported("too many peers have to remember too many senders")
    return routed.supports(scenario)


def _in_order(scenario: Scenario) -> bool:
    """Whether links are FIFO; routed ones always are, and have no faults."""
    return scenario.network is not None or (scenario.fifo is not False and not scenario.faults)


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return run_with_growing_windows(scenario, observers, progress, _attempt)


def run_with_growing_windows(
    scenario: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    attempt: Callable[[Scenario, ObserverFeed, Progress | None, int], Metrics],
) -> Metrics:
    """Run in as many attempts as it takes to find how many words of bits the windows need."""
    words = 0 if _in_order(scenario) else 2
    while True:
        try:
            return attempt(scenario, observers, progress, words)
        except CapacityExceeded:
            if words == 0 or words >= _MAX_WORDS:
                raise
            words *= 8


def _attempt(scenario: Scenario, observers: ObserverFeed, progress: Progress | None, words: int) -> Metrics:
    overlay = scenario.neighbours()
    first, neighbours = hypercube_links(scenario.peers) if overlay is None else overlay_links(overlay)
    state = create_state(scenario, first, first[1:], neighbours, words)
    network, twin = routed.create_state(scenario, lambda: _audiences(first, neighbours))
    pace = routed.pace(scenario, network, _NUMBER)
    world, rules = runtime.create_world(
        scenario, len(neighbours), len(neighbours), bool(observers), pace=pace
    )
    params = FloodingParams(scenario.payload, payload_head(scenario.payload), scenario.count == "paper")
    runtime.drive(
        world, rules, lambda count: advance(world, rules, network, state, params, count), observers, progress
    )
    measured = routed.measured(network, twin, int(world.scalars[NOW]))
    measured |= probe_queues.measured(probe_queues.create_probe(scenario))  # Flooding never holds a message.
    return runtime.metrics(world, 0, measured)


def create_state(
    scenario: Scenario, first: np.ndarray, last: np.ndarray, neighbours: np.ndarray, words: int
) -> FloodingState:
    """Before anything happens. Each peer floods its `neighbours` from `first` to before `last`."""
    senders = who_sends(scenario)
    column = np.full(scenario.peers, -1, np.int32)
    column[senders] = np.arange(len(senders))
    bits = (scenario.peers, len(senders)) if words else (1, 1)
    return FloodingState(
        first, last, neighbours, column,
        np.zeros((scenario.peers, len(senders)), np.int32), np.zeros(bits, np.int32),
        np.zeros((*bits, words), np.uint64),
        np.empty(_MAX_MESSAGES, np.int32), np.empty(_MAX_MESSAGES, np.int32),
        np.empty(_MAX_MESSAGES, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


def _audiences(first: np.ndarray, neighbours: np.ndarray) -> Iterator[Audience]:
    """The destinations of each peer: all its neighbours, or all but one; in the order of `audience`."""
    for peer, (begin, end) in enumerate(pairwise(first)):
        links = tuple(neighbours[begin:end].tolist())
        yield peer, links
        for link in links:
            yield peer, tuple(other for other in links if other != link)


@njit_hot
def advance(world: Any, rules: Any, routes: Any, state: Any, params: Any, budget: Any) -> Any:
    """Process up to `budget` events; return False when none are left."""
    for _ in range(budget):
        kind, peer, source, message = next_event(world, rules, routes)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(world, rules, routes, state, params, peer)
            plan_next_send(world, rules, peer)
        elif kind == ARRIVAL:
            receive(world, rules, routes, state, params, peer, source, message)
    return True


@njit_inline
def broadcast(world: Any, rules: Any, routes: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `Flooding.broadcast`."""
    message = new_message(world, state, params.head, me)
    if message >= 0:
        forward(world, rules, routes, state, params, me, -1, message)


@njit_inline
def new_message(world: Any, state: Any, head: Any, me: Any) -> Any:
    """The next message of `me`, recorded as sent; -1 if there is none."""
    if not begin_broadcast(world, me):
        return -1
    message = state.total[0]
    if message == len(state.origin):
        world.scalars[FULL] = 1
        return -1
    state.total[0] += 1
    state.origin[message], state.seq[message], state.sent_at[message] = (
        me,
        world.messages[me],
        world.scalars[NOW],
    )
    alone = state.first[me] == state.last[me]
    record_send(world, me, 0 if alone else control_bytes(state, head, message), 0 if alone else _NUMBER)
    return message


@njit_inline
def control_bytes(state: Any, head: Any, message: Any) -> Any:
    return 2 + head + int_bytes(state.origin[message]) + int_bytes(state.seq[message])


@njit_inline
def flood(world: Any, rules: Any, state: Any, me: Any, link: Any, packet: Any, control: Any) -> Any:
    """Send a packet to all neighbours but one; True if there are any."""
    others = 0
    for place in range(state.first[me], state.last[me]):
        tagged = state.neighbours[place]
        other = tagged & (1 << TAG) - 1
        if other != link:
            transmit(world, rules, place, me, other, packet | tagged ^ other, control)
            others += 1
    return others > 0


@njit_inline
def forward(
    world: Any, rules: Any, routes: Any, state: Any, params: Any, me: Any, link: Any, message: Any
) -> Any:
    """Send a message to all neighbours but the one that it came from, over links or routes."""
    control = control_bytes(state, params.head, message)
    if routes is None:
        flood(world, rules, state, me, link, message, control)
        return
    first, end = state.first[me], state.last[me]
    weight = params.payload + (_NUMBER if params.as_paper else control)
    if routes.multicast:
        if end - first > (link >= 0):
            send(world, rules, routes, me, audience(state, me, link), message, control, weight)
        return
    for place in range(first, end):
        other = np.int64(state.neighbours[place])
        if other != link:
            send(world, rules, routes, me, other, message, control, weight)


@njit_inline
def audience(state: Any, me: Any, link: Any) -> Any:
    """The audience of all neighbours but the one that a message came from, if any."""
    first = state.first[me]
    if link < 0:
        return first + me
    place = first
    while state.neighbours[place] != link:
        place += 1
    return place + me + 1


@njit_inline
def receive(
    world: Any, rules: Any, routes: Any, state: Any, params: Any, me: Any, link: Any, message: Any
) -> Any:
    """The twin of `Flooding.receive`, and of the delivery of a first copy."""
    if not is_first_copy(world, state, me, link, message):
        return
    forward(world, rules, routes, state, params, me, link, message)
    if deliver(world, rules, state, me, message):
        broadcast(world, rules, routes, state, params, me)


@njit_inline
def is_first_copy(world: Any, state: Any, me: Any, link: Any, message: Any) -> Any:
    """A message has arrived: whether it comes from another peer, and for the first time."""
    origin, seq = state.origin[message], state.seq[message]
    record_receive(world, me, link, origin, seq)
    if origin == me:
        return False
    column = state.column[origin]
    delivered = state.delivered[me, column]
    if seq <= delivered:
        return False
    if state.bits.shape[2] == 0:
        if seq > delivered + 1:
            world.scalars[FULL] = 1
        state.delivered[me, column] = seq
        return True
    ring = state.bits[me, column]
    if contains(ring, delivered, state.last_number[me, column], seq):
        return False
    if not add(ring, state.delivered[me], state.last_number[me], column, seq):
        world.scalars[FULL] = 1
        return False
    return True


@njit_inline
def deliver(world: Any, rules: Any, state: Any, me: Any, message: Any) -> Any:
    """Deliver a message that has just arrived; True if the peer replies at once."""
    origin, seq, sent_at = state.origin[message], state.seq[message], state.sent_at[message]
    return record_delivery(world, rules, me, origin, seq, sent_at, world.scalars[NOW])
