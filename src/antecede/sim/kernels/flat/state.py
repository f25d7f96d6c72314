"""What the event kernel of flat protocols keeps: messages under way, what is held, and what probes count."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.protocols.flat import DependencyPacket
from antecede.sim.kernels.flat import recurrence
from antecede.sim.kernels.flat.delivery_times import MBCP, TIMESTAMP_DIFF
from antecede.sim.kernels.runtime import pools, queues
from antecede.sim.kernels.runtime.events import FULL, NOW
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.kernels.runtime.pools import Items
from antecede.sim.kernels.runtime.queues import Watch
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


class Terms(NamedTuple):
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


class State(NamedTuple):
    at: np.ndarray
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
    held: Items
    ranks: np.ndarray
    chosen: np.ndarray
    """All peers, and those that a message names."""
    covered: np.ndarray
    """Whether a peer's last message is before another that it has delivered."""
    sums: np.ndarray
    queues: Watch | None


def terms_of(given: Scenario, dense: bool) -> Terms:
    chains = _CHAINS
    while chains < given.peers // 4:
        chains *= 2
    return Terms(
        given.peers, recurrence.PROTOCOLS[given.protocol], given.payload, payload_head(given.payload),
        given.count == "paper", chains, dense, recurrence.stamps(given) is DependencyPacket,
        round(given.warmup * SECOND), "costs" in given.probes, "immediate" in given.probes,
    )  # fmt: skip


def fresh(given: Scenario, terms: Terms) -> State:
    peers = terms.peers
    width = -(-peers // LANES) * LANES
    rows = min(_MAX_MESSAGES, _MAX_COUNTS // width)
    noted = peers if terms.protocol in (MBCP, TIMESTAMP_DIFF) else 0
    clocks = rows if terms.protocol == MBCP and terms.immediate else 0
    again = any(isinstance(parse_fault(fault), Duplicate) for fault in given.faults)
    state = State(
        np.zeros(_SCALARS, np.int64), np.empty(rows, np.dtype(_MESSAGE, align=True)),
        np.empty((rows, width), np.int32), np.zeros((peers, width), np.int32),
        np.zeros((noted, width), np.int32), np.empty((clocks, width), np.int32),
        np.empty((rows if again else 0, peers + 63 >> 6), np.uint64), np.zeros(_MAX_RECENT, np.int32),
        np.zeros(peers * terms.chains, np.uint32), pools.items(_ITEM), np.arange(peers),
        np.empty(peers, np.int64), np.zeros(peers, np.bool_), np.zeros(_SUMS, np.int64),
        queues.fresh(given),
    )  # fmt: skip
    state.at[_MADE], state.at[RING] = 1, _RECENT
    return state


def figures(given: Scenario, terms: Terms, state: State) -> dict[str, float]:
    """What probes have found."""
    sums = [int(value) for value in state.sums]
    found = recurrence.costs(given, *sums[_PACKETS:_MESSAGES]) if terms.costs else {}
    return found | recurrence.immediate(*sums[_MESSAGES:]) if terms.immediate else found


@njit_inline
def new_message(run: Any, state: Any, terms: Any, me: Any) -> Any:
    """Room for the next message of `me`."""
    at = state.at
    message = at[_VACANT]
    if message:
        at[_VACANT] = state.messages[message].after
    elif at[_MADE] == len(state.messages):
        run.at[FULL] = 1
        return message
    else:
        message = at[_MADE]
        at[_MADE] += 1
    if terms.dense:
        while state.recent[recent_place(state, terms, me, run.messages[me])]:
            if 2 * at[RING] * terms.peers > len(state.recent):
                run.at[FULL] = 1
                return message
            widen(state, terms)
        state.recent[recent_place(state, terms, me, run.messages[me])] = message
    return message


@njit_inline
def recent_place(state: Any, terms: Any, origin: Any, seq: Any) -> Any:
    return (seq - 1 & state.at[RING] - 1) * terms.peers + origin


@njit_inline
def widen(state: Any, terms: Any) -> Any:
    """Make rings of recent messages twice as long."""
    further = state.at[RING] * terms.peers
    for place in range(further):
        message = state.recent[place]
        if message and state.messages[message].seq - 1 & state.at[RING]:
            state.recent[place + further] = message
            state.recent[place] = 0
    state.at[RING] *= 2


@njit_inline
def free(state: Any, terms: Any, message: Any) -> Any:
    """Nobody will look at a message any more."""
    row = state.messages[message]
    if terms.dense:
        state.recent[recent_place(state, terms, row.origin, row.seq)] = 0
    row.after = state.at[_VACANT]
    state.at[_VACANT] = message


@njit_inline
def done(state: Any, terms: Any, message: Any) -> Any:
    """One copy less of a message has to come, or to be delivered."""
    row = state.messages[message]
    row.left -= 1
    if row.left == 0:
        free(state, terms, message)


@njit_inline
def watch_transmit(run: Any, state: Any, terms: Any, me: Any, seq: Any, wire: Any, paper: Any) -> Any:
    """The twins of `Costs.transmit` and `Immediate.transmit`."""
    sums = state.sums
    if terms.costs and run.at[NOW] >= terms.since:
        sums[_PACKETS] += 1
        sums[_PAPER] += paper
        sums[_WIRE] += wire
    if terms.immediate and terms.dependent:
        if run.at[NOW] >= terms.since:
            named = paper // 8 if terms.protocol == MBCP else paper // 4 - 1
            immediate = named + (seq > 1 and not state.covered[me])
            sums[_MESSAGES] += 1
            sums[_NAMED] += named
            sums[_IMMEDIATE] += immediate
            sums[_MOST] = max(sums[_MOST], immediate)
            sums[_WORST] += immediate == terms.peers
            sums[_ALL] += named == terms.peers - 1
        state.covered[me] = False


@njit_inline
def sample(state: Any, terms: Any) -> Any:
    """The twin of `Costs.sample`."""
    state.sums[_SAMPLES] += 1
    if terms.protocol == MBCP:
        for me in range(terms.peers):
            for peer in range(terms.peers):
                state.sums[_SAMPLED] += state.noted[me, peer] > 0
