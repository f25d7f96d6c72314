"""What the event kernel of flat protocols keeps: messages under way, what is held, and what probes count."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.protocols.flat import DependencyPacket
from antecede.sim.kernels.flat import recurrence
from antecede.sim.kernels.flat.delivery_times import MBCP, TIMESTAMP_DIFF
from antecede.sim.kernels.runtime import pool, probe_queues
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.kernels.runtime.pool import ItemPool
from antecede.sim.kernels.runtime.probe_queues import QueueProbe
from antecede.sim.kernels.runtime.world_state import FULL, NOW
from antecede.sim.network.faults import Duplicate, parse_fault
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

LANES = 64
"""Counts that are compared at once: fewer would not be compiled into vectors, but one by one."""
_MAX_COUNTS = 1 << 28
_MAX_MESSAGES = 1 << 20
_MAX_RECENT = 1 << 27
_RECENT = 16
_CHAINS = 64
_MADE, _VACANT, HELD, RING, _SCALARS = range(5)

# Places in `State.sums`: of packets, samples and messages, as probes count them.
_PACKETS, _PAPER, _WIRE, _SAMPLES, _SAMPLED = range(5)
_MESSAGES, _IMMEDIATE, _MOST, _NAMED, _WORST, _ALL, _SUMS = range(5, 12)

_MESSAGE = [
    ("sent_at", np.int64),
    ("origin", np.int32),
    ("seq", np.int32),
    ("left", np.int32),
    ("after", np.int32),
]
"""`left` copies have yet to come or to be delivered; then `after` is the next that is no message."""
_ITEM: list[tuple[str, type[np.generic]]] = [
    ("after", np.int32),
    ("origin", np.int32),
    ("number", np.int32),
    ("message", np.int32),
    ("place", np.int32),
    ("since", np.int64),
]
"""A message that waits: the next in its chain, what it waits for, which it is, from which peer on it lacks
nothing, and when it came."""


class FlatParams(NamedTuple):
    """What does not change in a run."""

    peers: int
    protocol: int
    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network weighs packets as the paper does."""
    chains: int
    """How many each peer has, a power of two."""
    dense: bool
    """Whether packets are numbers of their senders' messages, not messages."""
    dependent: bool
    """Whether messages are `DependencyPacket`."""
    since: int
    costs: bool
    immediate: bool
    """What probes measure, and from when on."""


class FlatState(NamedTuple):
    scalars: np.ndarray
    """Single numbers, by the names above."""
    messages: np.ndarray
    """Those under way, from 1 on."""
    needs: np.ndarray
    """Of each of them what it waits for, beyond the last peer too: to whole vectors."""
    have: np.ndarray
    """What each peer has delivered of each."""
    noted: np.ndarray
    """What it will name next (`mbcp`), or had delivered when it last sent (`timestamp-diff`); or empty."""
    clocks: np.ndarray
    """The clock of each message where that is not what it waits for and a probe wants to know; or empty."""
    seen: np.ndarray
    """Of each message, to whom it has come, if packets may come twice; else it is empty."""
    recent: np.ndarray
    """The message that is the i-th of its sender, i modulo a ring; 0 if it is no longer under way."""
    chains: np.ndarray
    """Of what each peer holds: marks of what is waited for, and the first item."""
    held: ItemPool
    ranks: np.ndarray
    chosen: np.ndarray
    """All peers, and those that a message names."""
    covered: np.ndarray
    """Whether a peer's last message is before another that it has delivered."""
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
    again = any(isinstance(parse_fault(fault), Duplicate) for fault in scenario.faults)
    state = FlatState(
        scalars=np.zeros(_SCALARS, np.int64),
        messages=np.empty(rows, np.dtype(_MESSAGE, align=True)),
        needs=np.empty((rows, width), np.int32),
        have=np.zeros((peers, width), np.int32),
        noted=np.zeros((noted, width), np.int32),
        clocks=np.empty((clocks, width), np.int32),
        seen=np.empty((rows if again else 0, peers + 63 >> 6), np.uint64),
        recent=np.zeros(_MAX_RECENT, np.int32),
        chains=np.zeros(peers * params.chains, np.uint32),
        held=pool.create_items(_ITEM),
        ranks=np.arange(peers),
        chosen=np.empty(peers, np.int64),
        covered=np.zeros(peers, np.bool_),
        sums=np.zeros(_SUMS, np.int64),
        queues=probe_queues.create_probe(scenario),
    )
    state.scalars[_MADE], state.scalars[RING] = 1, _RECENT
    return state


def measured(scenario: Scenario, params: FlatParams, state: FlatState) -> dict[str, float]:
    """What probes have found."""
    sums = [int(value) for value in state.sums]
    found = recurrence.cost_metrics(scenario, *sums[_PACKETS:_MESSAGES]) if params.costs else {}
    return found | recurrence.immediate_metrics(*sums[_MESSAGES:]) if params.immediate else found


@njit_inline
def new_message(world: Any, state: Any, params: Any, me: Any) -> Any:
    """Room for the next message of `me`."""
    scalars = state.scalars
    message = scalars[_VACANT]
    if message:
        scalars[_VACANT] = state.messages[message].after
    elif scalars[_MADE] == len(state.messages):
        world.scalars[FULL] = 1
        return message
    else:
        message = scalars[_MADE]
        scalars[_MADE] += 1
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
    """Make rings of recent messages twice as long."""
    further = state.scalars[RING] * params.peers
    for place in range(further):
        message = state.recent[place]
        if message and state.messages[message].seq - 1 & state.scalars[RING]:
            state.recent[place + further] = message
            state.recent[place] = 0
    state.scalars[RING] *= 2


@njit_inline
def free_message(state: Any, params: Any, message: Any) -> Any:
    """Nobody will look at a message any more."""
    row = state.messages[message]
    if params.dense:
        state.recent[ring_place(state, params, row.origin, row.seq)] = 0
    row.after = state.scalars[_VACANT]
    state.scalars[_VACANT] = message


@njit_inline
def drop_copy(state: Any, params: Any, message: Any) -> Any:
    """One copy less of a message has to come, or to be delivered."""
    row = state.messages[message]
    row.left -= 1
    if row.left == 0:
        free_message(state, params, message)


@njit_inline
def probe_transmit(world: Any, state: Any, params: Any, me: Any, seq: Any, wire: Any, paper: Any) -> Any:
    """The twins of `Costs.transmit` and `Immediate.transmit`."""
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
    """The twin of `Costs.sample`."""
    state.sums[_SAMPLES] += 1
    if params.protocol == MBCP:
        for me in range(params.peers):
            for peer in range(params.peers):
                state.sums[_SAMPLED] += state.noted[me, peer] > 0
