"""The state of the `freescale` kernel.

What is a set in the protocol is a ring of bits here, and what is a dictionary by peer is a row of numbers.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from antecede.protocols.freescale import FreescaleLayout
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

UPLINK, DOWNLINK, ASSIGNMENT, EXTERNAL, ACK = range(5)
KINDS = ("up", "down", "echo", "across", "ack")
MEMBERS = ("internal", "external", "super")
MAX_PEERS = 4_000
MAX_SUPERS = 64
_MAX_PACKETS = 1 << 20
_MEMORY = 4 << 30
"""Bytes of memory for packets in flight."""
_HELD = 1 << 22
CHAINS = 256
MAX_EARLY = 1024
MAX_BITS = 1 << 20

# Places in the arrays of `FreescaleState`.
KIND, ORIGIN, SEQ, NUMBER, LAST, OTHER, AFTER, SENT_AT, COPIES, CONTROL, PAPER = range(11)
"""Columns of `packets`. OTHER is `previous` of an `ExternalPacket`, `delivered_up_to` of an `UplinkPacket` or
`InternalAck`."""
FIRST, FINAL = range(2)
PACKET, KEY, NEXT, ARRIVED = range(4)
HEAD, END = range(2)
BASE, TOP, LOW, HIGH, UNREPORTED, DELIVERED_UP_TO, REPORTED_LOW, REPORTED_HIGH, LAST_SEQ, LAST_NUMBER = range(
    10
)
DELIVERED, CAUSES, REPORTED = range(3)
COUNTS, TO_NAME = range(2)
SEEN_BASE, SEEN_TOP, NAMED_LOW, NAMED_HIGH = range(4)
SEEN, NAMED_BITS = range(2)
(
    LAST_ASSIGNED,
    PREVIOUS,
    SENDERS,
    TABLE_SIZE,
    UNANNOUNCED_LOW,
    UNANNOUNCED_HIGH,
    SINCE_CLEAN_UP,
    FLOOR,
    IN_USE_COUNT,
) = range(9)
SENDER, SENDER_NUMBER = range(2)
(
    PACKETS_USED,
    PACKETS_FREE,
    HELD_USED,
    HELD_FREE,
    OUTSIDE_HEAD,
    OUTSIDE_TAIL,
    INSIDE_HEAD,
    INSIDE_TAIL,
    HELD,
    SCALARS,
) = range(10)


class FreescaleParams(NamedTuple):
    """The layout, and everything else that does not change in a run."""

    homes: np.ndarray
    first: np.ndarray
    """The rank of each super peer's first internal peer, and after them that of the first external peer."""
    supers: int
    behind: int
    peers: int
    paper: bool
    ack_every: int
    head: int
    measured_from: int
    probed: bool


class FreescaleState(NamedTuple):
    """The state of all members, packets and held messages. There are few arrays, because every array makes
    every function take longer to compile; the constants above are indices in them."""

    scalars: np.ndarray
    costs: np.ndarray
    storage: np.ndarray
    """State of the probe `costs`: packets and bytes by kind of packet, samples and bytes by kind of
    member."""
    last_down: np.ndarray
    """State of the same probe: the number that each super peer gave to each sender's last message."""
    free: np.ndarray
    packets: np.ndarray
    pairs: np.ndarray
    """For each packet, what it names of each external peer."""
    bounds: np.ndarray
    rows: np.ndarray
    """Rows of bits of a packet: row 0, or one for each super peer and one for what was translated."""
    held: np.ndarray
    held_free: np.ndarray
    ready: np.ndarray
    """Packets that are ready outside (0) and inside (1), and when they arrived; empty between two events."""
    inside: np.ndarray
    inside_bits: np.ndarray
    inside_chains: np.ndarray
    """State of `InternalPeer`, for every peer that has one; and its super peer's knowledge of it."""
    external_counts: np.ndarray
    peer_chains: np.ndarray
    outside: np.ndarray
    outside_bits: np.ndarray
    super_chains: np.ndarray
    """State of `ExternalInbox` and `ExternalPeer`, for every member of the external group."""
    supers: np.ndarray
    early: np.ndarray
    table: np.ndarray
    numbered: np.ndarray
    numbered_super: np.ndarray
    unannounced: np.ndarray
    in_use: np.ndarray
    scratch: np.ndarray
    """State of `SuperPeer`."""


def create_params(scenario: Scenario) -> FreescaleParams:
    arranged = cast(FreescaleLayout, scenario.resolved_layout())
    supers, behind = len(arranged.inside), sum(arranged.inside)
    return FreescaleParams(
        homes=np.array(arranged.representatives(scenario.peers), np.int64),
        first=supers + np.cumsum([0, *arranged.inside]),
        supers=supers,
        behind=behind,
        peers=scenario.peers,
        paper=arranged.form == "paper",
        ack_every=arranged.ack_every,
        head=int(payload_head(scenario.payload)),
        measured_from=round(scenario.warmup * SECOND),
        probed="costs" in scenario.probes,
    )


def create_state(params: FreescaleParams, bits: int, words: int) -> FreescaleState:
    """The state before the first event. Rings have this many bits, and rows of packets this many words.
    Memory that stays 0 costs nothing."""
    peers, supers = params.peers, params.supers
    external = peers - supers - params.behind
    group, ring, some = supers + external, bits // 64, max(1, supers)
    packets = min(_MAX_PACKETS, _MEMORY // (8 * (supers + 1) * (words + 2) + 4 * external + 100))
    state = FreescaleState(
        scalars=_zeros(SCALARS),
        costs=_zeros(5, 4),
        storage=_zeros(3, 2),
        last_down=_zeros(some, peers),
        free=np.empty(packets, np.int32),
        packets=np.empty((packets, 11), np.int64),
        pairs=np.empty((packets, external), np.int32),
        bounds=np.empty((2, packets, supers + 1), np.int64),
        rows=np.empty((packets, supers + 1, words), np.uint64),
        held=np.empty((_HELD, 4), np.int64),
        held_free=np.empty(_HELD, np.int32),
        ready=np.empty((2, _HELD, 2), np.int64),
        inside=_zeros(10, peers),
        inside_bits=np.zeros((3, peers, ring), np.uint64),
        inside_chains=np.zeros((2, peers, CHAINS), np.int32),
        external_counts=np.zeros((2, group, external), np.int32),
        peer_chains=np.zeros((2, group, external), np.int32),
        outside=_zeros(4, group, some),
        outside_bits=np.zeros((2, group, some, ring), np.uint64),
        super_chains=np.zeros((2, group, some, CHAINS), np.int32),
        supers=_zeros(9, some),
        early=np.zeros((peers, MAX_EARLY), np.int32),
        table=_zeros(2, some, bits),
        numbered=_zeros(some, external, bits),
        numbered_super=_zeros(some, some, bits),
        unannounced=np.zeros((some, ring), np.uint64),
        in_use=_zeros(some, bits),
        scratch=_zeros(bits + external + 64),
    )
    state.scalars[PACKETS_FREE], state.scalars[HELD_FREE] = packets, _HELD
    for lows in (
        state.inside[LOW],
        state.inside[REPORTED_LOW],
        state.outside[NAMED_LOW],
        state.supers[UNANNOUNCED_LOW],
    ):
        lows[:] = 1
    return state


def _zeros(*params: int) -> np.ndarray:
    return np.zeros(params, np.int64)
