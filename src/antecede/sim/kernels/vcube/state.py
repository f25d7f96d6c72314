"""The state of the `vcube` kernel.

What a peer knows is a row with a column for each peer that may send, so a million peers with few senders
fit. A message's clock is stored once for all, as words of (column, count), until every peer has delivered
the message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from antecede.sim.kernels.runtime import pool
from antecede.sim.kernels.runtime.pool import ITEM, ItemPool, WordPool

_MAX_MESSAGES = 1 << 24
_MAX_AT_ONCE = 1 << 24
"""Messages that one event makes deliverable, or forwards."""

USED, HELD, FAR_AHEAD, READY, READY_END, AWAKE, FORWARDS, _SCALARS = range(8)
"""Places in `VcubeState.scalars`: messages used; held; far ahead; first and end of `ready`; lengths of
`awake` and `forwards`."""
WAITING, EARLY, BLOCKED = range(3)
"""Chains that a peer has for each sender: what is held until a message is delivered; and of what is to be
forwarded, what came before its predecessor, and what waits for a cause."""
DUPLICATE = -2
"""Instead of the place of a missing cause: the message has arrived before."""
COUNT_MASK = (1 << 32) - 1

_MESSAGE = [
    ("sent_at", np.int64),
    ("origin", np.int32),
    ("column", np.int32),
    ("seq", np.int32),
    ("control", np.int32),
    ("named", np.int32),
    ("clock", np.int32),
    ("length", np.int32),
    ("undelivered", np.int32),
]
"""`named`: how many causes its packet names; its clock, of `length` words at `clock`, begins with them.
`undelivered`: how many peers have yet to deliver it."""


class VcubeParams(NamedTuple):
    """What does not change in a run."""

    peers: int
    columns: int
    height: int
    """How many clusters a peer has."""
    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network counts bytes as the paper does."""
    aggregates: bool
    """`vcube-agg`: messages wait for each other to travel in one packet."""
    chains: int
    """Chains for each peer and sender: all three, or `WAITING` alone."""
    mtu: int
    """Bytes that are aggregated in a packet."""
    paper_sizes: bool
    """`VcubeAggPaperSizes`: whether those are bytes as the paper counts them."""
    single_tree: bool
    """`VcubeAggSingleTree`: every message goes to peer 0 first, and from there down the tree of peer 0."""


class VcubeState(NamedTuple):
    scalars: np.ndarray
    """Single numbers, at the places above."""
    rank: np.ndarray
    column: np.ndarray
    """The peer of each column; the column of each peer, -1 if it may not send."""
    delivered: np.ndarray
    received: np.ndarray
    window: np.ndarray
    """What each peer has of each sender: how many delivered, how many received without a gap, and which of
    the 64 numbers after that."""
    gaps: np.ndarray
    """Of how many senders a peer has received something after a gap. Mostly none; then no window is looked
    at."""
    far: np.ndarray
    """Chains of numbers more than 64 ahead: hardly ever any, so memory that is not touched."""
    chains: np.ndarray
    changed_count: np.ndarray
    changed: np.ndarray
    """For each sender: of how many others it has delivered something since its own last message, and a bit
    for each."""
    blocks: WordPool
    held: ItemPool
    forwarding: ItemPool
    messages: np.ndarray
    ready: np.ndarray
    """Items to be delivered in this event."""
    arrived: np.ndarray
    awake: np.ndarray
    """Columns of the messages that arrive in this event, and items to be forwarded as far as possible."""
    forwards: np.ndarray
    forward_from: np.ndarray
    forward_to: np.ndarray
    forward_late: np.ndarray
    """Messages to forward in this event, the clusters to forward them to, and what a probe remembers of
    them."""
    missing: np.ndarray


def create_state(params: VcubeParams, senders: list[int]) -> VcubeState:
    """Before anything happens."""
    columns, pairs = params.columns, params.peers * params.columns
    column = np.full(params.peers, -1, np.int32)
    column[senders] = np.arange(columns)
    at_once = _MAX_AT_ONCE if params.aggregates else 0
    return VcubeState(
        scalars=np.zeros(_SCALARS, np.int64),
        rank=np.array(senders, np.int32),
        column=column,
        delivered=np.zeros(pairs, np.int32),
        received=np.zeros(pairs, np.int32),
        window=np.zeros(pairs, np.uint64),
        gaps=np.zeros(params.peers, np.int32),
        far=np.zeros(pairs, np.int32),
        chains=np.zeros(pairs * params.chains, np.int32),
        changed_count=np.zeros(columns, np.int32),
        changed=np.zeros((columns, columns + 63 >> 6), np.uint64),
        blocks=pool.create_words(),
        held=pool.create_items(ITEM),
        forwarding=pool.create_items([*ITEM, ("block", np.int32), ("missing", np.int32)]),
        messages=np.empty(_MAX_MESSAGES, np.dtype(_MESSAGE, align=True)),
        ready=np.empty(_MAX_AT_ONCE, np.int32),
        arrived=np.empty(at_once, np.int32),
        awake=np.empty(at_once, np.int32),
        forwards=np.empty(at_once, np.int32),
        forward_from=np.empty(at_once, np.int8),
        forward_to=np.empty(at_once, np.int8),
        forward_late=np.empty(at_once, np.int64),
        missing=np.empty(columns, np.int64),
    )
