"""What the compiled twin of `freescale` has in memory.

What is a set in the protocol is bits in a ring here, and what is a dictionary by peer is a row of numbers.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from antecede.protocols.freescale import FreescaleLayout
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

UP, DOWN, ECHO, ACROSS, ACK = range(5)
KINDS = ("up", "down", "echo", "across", "ack")
MEMBERS = ("internal", "external", "super")
MAX_PEERS = 4_000
MAX_SUPERS = 64
_MAX_PACKETS = 1 << 20
_MEMORY = 4 << 30
"""What packets may take, if as many as that are under way."""
_HELD = 1 << 22
CHAINS = 256
EARLY = 1024
MAX_BITS = 1 << 20

# What is where in the arrays of `State`.
KIND, ORIGIN, SEQ, NUMBER, LAST, OTHER, AFTER, SENT_AT, COPIES, CONTROL, PAPER = range(11)
"""In `packets`. OTHER is `previous` of an Across, `solid` of an Up or Ack."""
FIRST, FINAL = range(2)
PACKET, KEY, NEXT, SINCE = range(4)
HEAD, END = range(2)
BASE, TOP, LOW, HIGH, UNSAID, SOLID, WORD_LOW, WORD_HIGH, HEARD_SEQ, HEARD_NUMBER = range(10)
HAVE, CAUSES, WORD = range(3)
COUNTS, NAMED = range(2)
SEEN_BASE, SEEN_TOP, NAMED_LOW, NAMED_HIGH = range(4)
SEEN, NAMED_BITS = range(2)
NUMBERS, PREVIOUS, HEARD, TABLE_SIZE, UNTOLD_LOW, UNTOLD_HIGH, STEPS, FLOOR, SPARES = range(9)
PEER, THEIRS = range(2)
SLOTS, FREE, HOLDS, FREE_HOLDS, HEAD_OUT, TAIL_OUT, HEAD_IN, TAIL_IN, STUCK, PLACES = range(10)


class FreescaleParams(NamedTuple):
    """How members are arranged, and what does not change."""

    homes: np.ndarray
    first: np.ndarray
    """The rank of each super peer's first internal peer, and after them that of the first external peer."""
    supers: int
    behind: int
    peers: int
    paper: bool
    ack_every: int
    head: int
    since: int
    probed: bool


class FreescaleState(NamedTuple):
    """What members have, what packets say and what is held. Few arrays, because each one more makes every
    function take longer to compile; the names above say what is where in them."""

    scalars: np.ndarray
    costs: np.ndarray
    kept: np.ndarray
    """The probe's: packets and bytes by kind of packet, looks and bytes by kind of member."""
    free: np.ndarray
    packets: np.ndarray
    pairs: np.ndarray
    """What a packet names of each external peer."""
    bounds: np.ndarray
    rows: np.ndarray
    """Its bits: in row 0, or one for each super peer and one for what was translated."""
    held: np.ndarray
    held_free: np.ndarray
    ready: np.ndarray
    """What is ready outside (0) and inside (1), and since when it is here; empty between two events."""
    inside: np.ndarray
    inside_bits: np.ndarray
    inside_chains: np.ndarray
    """`Internal`, of every peer that has one; and what its super peer knows of it."""
    known: np.ndarray
    peer_chains: np.ndarray
    outside: np.ndarray
    outside_bits: np.ndarray
    super_chains: np.ndarray
    """`Outside` and `External`, of every member of the external group: of external peers, of super peers."""
    supers: np.ndarray
    early: np.ndarray
    table: np.ndarray
    numbered: np.ndarray
    numbered_super: np.ndarray
    untold: np.ndarray
    spared: np.ndarray
    scratch: np.ndarray
    """`Super`."""


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
        since=round(scenario.warmup * SECOND),
        probed="costs" in scenario.probes,
    )


def create_state(params: FreescaleParams, bits: int, words: int) -> FreescaleState:
    """Rings of so many bits, and rows of so many words in packets. Memory that stays 0 costs nothing."""
    peers, supers = params.peers, params.supers
    external = peers - supers - params.behind
    group, ring, some = supers + external, bits // 64, max(1, supers)
    packets = min(_MAX_PACKETS, _MEMORY // (8 * (supers + 1) * (words + 2) + 4 * external + 100))
    state = FreescaleState(
        scalars=_zeros(PLACES),
        costs=_zeros(5, 3),
        kept=_zeros(3, 2),
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
        known=np.zeros((2, group, external), np.int32),
        peer_chains=np.zeros((2, group, external), np.int32),
        outside=_zeros(4, group, some),
        outside_bits=np.zeros((2, group, some, ring), np.uint64),
        super_chains=np.zeros((2, group, some, CHAINS), np.int32),
        supers=_zeros(9, some),
        early=np.zeros((peers, EARLY), np.int32),
        table=_zeros(2, some, bits),
        numbered=_zeros(some, external, bits),
        numbered_super=_zeros(some, some, bits),
        untold=np.zeros((some, ring), np.uint64),
        spared=_zeros(some, bits),
        scratch=_zeros(bits + external + 64),
    )
    state.scalars[FREE], state.scalars[FREE_HOLDS] = packets, _HELD
    for lows in (
        state.inside[LOW],
        state.inside[WORD_LOW],
        state.outside[NAMED_LOW],
        state.supers[UNTOLD_LOW],
    ):
        lows[:] = 1
    return state


def _zeros(*params: int) -> np.ndarray:
    return np.zeros(params, np.int64)
