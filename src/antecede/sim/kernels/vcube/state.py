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
"""The most messages that one event makes deliverable, or forwards."""

USED, HELD, FAR_AHEAD, READY, READY_END, AWAKE, FORWARDS, _SCALARS = range(8)
"""Places in `VcubeState.scalars`: messages used; held; far ahead; first and end of `ready`; lengths of
`awake` and `forwards`."""
WAITING, EARLY, BLOCKED = range(3)
"""Chains of a peer for each sender: messages held until another is delivered; and among messages to forward,
those that arrived before their predecessor, and those that wait for a cause."""
DUPLICATE = -2
"""Returned instead of the index of a missing cause: the message has arrived before."""
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
    """The number of clusters of a peer."""
    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network counts bytes as the paper does."""
    aggregates: bool
    """Whether messages wait for each other to travel in one packet (`vcube-agg`)."""
    chains: int
    """Chains for each peer and sender: all three, or `WAITING` alone."""
    mtu: int
    """The most bytes aggregated in a packet."""
    paper_sizes: bool
    """Whether these are bytes as the paper counts them (`VcubeAggPaperSizes`)."""
    single_tree: bool
    """Whether every message goes to peer 0 first, and from there down the tree of peer 0
    (`VcubeAggSingleTree`)."""


class VcubeState(NamedTuple):
    scalars: np.ndarray
    """Single numbers, at the places above."""
    rank: np.ndarray
    column: np.ndarray
    """The peer of each column; the column of each peer, -1 if it may not send."""
    delivered: np.ndarray
    received: np.ndarray
    window: np.ndarray
    """For each peer and sender: the number delivered, the number received without a gap, and which of the
    next 64 were received."""
    gaps: np.ndarray
    """For each peer, the number of senders with received messages after a gap. Mostly 0; then no window is
    examined."""
    far: np.ndarray
    """Chains of numbers more than 64 ahead: nearly always empty, so their memory is not touched."""
    chains: np.ndarray
    changed_count: np.ndarray
    changed: np.ndarray
    """For each sender: the number of others of which it has delivered a message since its own last message,
    and a bit for each."""
    blocks: WordPool
    held: ItemPool
    forwarding: ItemPool
    messages: np.ndarray
    ready: np.ndarray
    """Items to deliver in this event."""
    arrived: np.ndarray
    awake: np.ndarray
    """Columns of the messages that arrive in this event, and items to forward as far as possible."""
    forwards: np.ndarray
    forward_from: np.ndarray
    forward_to: np.ndarray
    forward_late: np.ndarray
    """Messages to forward in this event, the clusters to forward them to, and a probe's data about them."""
    missing: np.ndarray


def create_state(params: VcubeParams, senders: list[int]) -> VcubeState:
    """The state before the first event."""
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
