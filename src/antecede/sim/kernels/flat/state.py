"""The state of the event kernel of flat protocols: messages in flight, what is held, and what probes
count."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.protocols.flat import DependencyPacket
from antecede.sim.kernels.flat import recurrence
from antecede.sim.kernels.flat.stamps import MBCP, TIMESTAMP_DIFF
from antecede.sim.kernels.runtime import pool, probe_queues
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.kernels.runtime.pool import ItemPool, free_item, new_item
from antecede.sim.kernels.runtime.probe_queues import QueueProbe
from antecede.sim.kernels.runtime.world_state import FULL, NOW
from antecede.sim.network.faults import Duplicate, parse_fault
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

LANES = 64
"""The number of counts compared at once; with fewer, the compiler does not vectorise."""
_MAX_COUNTS = 1 << 28
_MAX_MESSAGES = 1 << 20
_MAX_RECENT = 1 << 27
_RECENT = 16
_CHAINS = 64
HELD, RING, _SCALARS = range(3)

# Places in `FlatState.sums`: of packets, samples and messages, as probes count them.
_PACKETS, _PAPER, _WIRE, _SAMPLES, _SAMPLED = range(5)
_MESSAGES, _IMMEDIATE, _MOST, _NAMED, _WORST, _ALL, _SUMS = range(5, 12)

_MESSAGE: list[tuple[str, type[np.generic]]] = [
    ("sent_at", np.int64),
    ("origin", np.int32),
    ("seq", np.int32),
    ("copies", np.int32),
    ("after", np.int32),
]
"""`copies` have yet to arrive or to be delivered. `after`: of a free message, the next free one."""
_ITEM: list[tuple[str, type[np.generic]]] = [
    ("after", np.int32),
    ("origin", np.int32),
    ("number", np.int32),
    ("message", np.int32),
    ("place", np.int32),
    ("since", np.int64),
]
"""A held message: the next in its chain, the message it waits for, which it is, from which peer on no
dependency is missing, and when it arrived."""


class FlatParams(NamedTuple):
    """What does not change in a run."""

    peers: int
    protocol: int
    payload: int
    head: int
    """The bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network counts bytes as the paper does."""
    chains: int
    """The number of chains of held messages of each peer, a power of two."""
    dense: bool
    """Whether a packet is its message's sequence number, not the index of the message."""
    dependent: bool
    """Whether messages are of type `DependencyPacket`."""
    since: int
    costs: bool
    immediate: bool
    """What probes measure, and from when on."""


class FlatState(NamedTuple):
    scalars: np.ndarray
    """Single numbers, at the places above."""
    messages: ItemPool
    """Messages in flight."""
    dependencies: np.ndarray
    """For each message, its dependencies: a count for each peer, padded to a multiple of `LANES`."""
    delivered: np.ndarray
    """For each peer, how many messages of each other peer it has delivered."""
    noted: np.ndarray
    """For each peer, what its next message will name (`mbcp`), or what it had delivered when it last sent
    (`timestamp-diff`); otherwise empty."""
    clocks: np.ndarray
    """The vector clock of each message, where it differs from `dependencies` and a probe needs it; otherwise
    empty."""
    arrived: np.ndarray
    """For each message, the peers at which it has arrived, if packets may arrive twice; otherwise empty."""
    recent: np.ndarray
    """A ring for each sender: the index of its i-th message, 0 if that is no longer in flight."""
    chains: np.ndarray
    """Chains of each peer's held messages: the first item, and above it marks of what its items wait for."""
    held: ItemPool
    ranks: np.ndarray
    named_peers: np.ndarray
    """All peers; and those that a message names."""
    covered: np.ndarray
    """Whether a peer's last message precedes another that it has delivered."""
    sums: np.ndarray
    queues: QueueProbe | None


def create_params(scenario: Scenario, dense: bool) -> FlatParams:
    chains = _CHAINS
    while chains < scenario.peers // 4:
        chains *= 2
    return FlatParams(
        peers=scenario.peers,
        protocol=recurrence.PROTOCOLS[scenario.protocol],
        payload=scenario.payload,
        head=payload_head(scenario.payload),
        as_paper=scenario.count == "paper",
        chains=chains,
        dense=dense,
        dependent=recurrence.message_packet(scenario) is DependencyPacket,
        since=round(scenario.warmup * SECOND),
        costs="costs" in scenario.probes,
        immediate="immediate" in scenario.probes,
    )


def create_state(scenario: Scenario, params: FlatParams) -> FlatState:
    peers = params.peers
    width = -(-peers // LANES) * LANES
    rows = min(_MAX_MESSAGES, _MAX_COUNTS // width)
    noted = peers if params.protocol in (MBCP, TIMESTAMP_DIFF) else 0
    clocks = rows if params.protocol == MBCP and params.immediate else 0
    repeats = any(isinstance(parse_fault(fault), Duplicate) for fault in scenario.faults)
    state = FlatState(
        scalars=np.zeros(_SCALARS, np.int64),
        messages=pool.create_items(_MESSAGE, rows),
        dependencies=np.empty((rows, width), np.int32),
        delivered=np.zeros((peers, width), np.int32),
        noted=np.zeros((noted, width), np.int32),
        clocks=np.empty((clocks, width), np.int32),
        arrived=np.empty((rows if repeats else 0, peers + 63 >> 6), np.uint64),
        recent=np.zeros(_MAX_RECENT, np.int32),
        chains=np.zeros(peers * params.chains, np.uint32),
        held=pool.create_items(_ITEM),
        ranks=np.arange(peers),
        named_peers=np.empty(peers, np.int64),
        covered=np.zeros(peers, np.bool_),
        sums=np.zeros(_SUMS, np.int64),
        queues=probe_queues.create_probe(scenario),
    )
    state.scalars[RING] = _RECENT
    return state


def measured(scenario: Scenario, params: FlatParams, state: FlatState) -> dict[str, float]:
    """The metrics of probes."""
    sums = [int(value) for value in state.sums]
    found = recurrence.cost_metrics(scenario, *sums[_PACKETS:_MESSAGES]) if params.costs else {}
    return found | recurrence.immediate_metrics(*sums[_MESSAGES:]) if params.immediate else found


@njit_inline
def new_message(world: Any, state: Any, params: Any, me: Any) -> Any:
    """The index of the next message of `me`."""
    scalars, message = state.scalars, new_item(world, state.messages)
    if world.scalars[FULL]:
        return message
    if params.dense:
        while state.recent[ring_place(state, params, me, world.messages[me])]:
            if 2 * scalars[RING] * params.peers > len(state.recent):
                world.scalars[FULL] = 1
                return message
            grow_rings(state, params)
        state.recent[ring_place(state, params, me, world.messages[me])] = message
    return message


@njit_inline
def ring_place(state: Any, params: Any, origin: Any, seq: Any) -> Any:
    return (seq - 1 & state.scalars[RING] - 1) * params.peers + origin


@njit_inline
def grow_rings(state: Any, params: Any) -> Any:
    """Double the rings of recent messages."""
    further = state.scalars[RING] * params.peers
    for place in range(further):
        message = state.recent[place]
        if message and state.messages.rows[message].seq - 1 & state.scalars[RING]:
            state.recent[place + further] = message
            state.recent[place] = 0
    state.scalars[RING] *= 2


@njit_inline
def free_message(state: Any, params: Any, message: Any) -> Any:
    """A message has been delivered everywhere."""
    row = state.messages.rows[message]
    if params.dense:
        state.recent[ring_place(state, params, row.origin, row.seq)] = 0
    free_item(state.messages, message)


@njit_inline
def drop_copy(state: Any, params: Any, message: Any) -> Any:
    """One copy fewer of a message has to arrive or to be delivered."""
    row = state.messages.rows[message]
    row.copies -= 1
    if row.copies == 0:
        free_message(state, params, message)


@njit_inline
def probe_transmit(world: Any, state: Any, params: Any, me: Any, seq: Any, wire: Any, paper: Any) -> Any:
    """Count a packet for the probes `costs` and `immediate`."""
    sums = state.sums
    if params.costs and world.scalars[NOW] >= params.since:
        sums[_PACKETS] += 1
        sums[_PAPER] += paper
        sums[_WIRE] += wire
    if params.immediate and params.dependent:
        if world.scalars[NOW] >= params.since:
            named = paper // 8 if params.protocol == MBCP else paper // 4 - 1
            immediate = named + (seq > 1 and not state.covered[me])
            sums[_MESSAGES] += 1
            sums[_NAMED] += named
            sums[_IMMEDIATE] += immediate
            sums[_MOST] = max(sums[_MOST], immediate)
            sums[_WORST] += immediate == params.peers
            sums[_ALL] += named == params.peers - 1
        state.covered[me] = False


@njit_inline
def probe_sample(state: Any, params: Any) -> Any:
    """Count all members for the probe `costs`."""
    state.sums[_SAMPLES] += 1
    if params.protocol == MBCP:
        for me in range(params.peers):
            for peer in range(params.peers):
                state.sums[_SAMPLED] += state.noted[me, peer] > 0
