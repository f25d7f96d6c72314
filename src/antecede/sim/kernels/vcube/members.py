"""What the kernels of `vcube` and `vcube-agg` share: the twin of `protocols/flat.py` with clocks that only
name what changed, and of the trees that messages go down.

What a peer knows is a row with a column for each peer that may send, so a million peers and few senders do.
A message's clock is kept once for all, in words of (column, count), until everybody has delivered it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.protocols.vcube_variants import ROOT
from antecede.sim.kernels.runtime import pool
from antecede.sim.kernels.runtime.counting import begin_broadcast, record_delivery, record_send
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes
from antecede.sim.kernels.runtime.overlays import cluster, first_in_cluster
from antecede.sim.kernels.runtime.pool import (
    ITEM,
    ItemPool,
    WordPool,
    chain_item,
    first_waiting,
    free_block,
    free_item,
    new_block,
    new_item,
    unchain_lowest,
)
from antecede.sim.kernels.runtime.probe_bundles import probe_deliver, probe_hold, probe_send, probe_transmit
from antecede.sim.kernels.runtime.queued_nodes import send
from antecede.sim.kernels.runtime.world_state import FULL, NOW

_MAX_MESSAGES = 1 << 24
_MAX_AT_ONCE = 1 << 24
"""Messages that one event makes ready, or moves on."""
MADE, HELD, FAR, READY, READY_END, AWAKE, MOVED, _SCALARS = range(8)
WAITING, EARLY, BLOCKED = range(3)
AGAIN, AT_ONCE = -2, -1
COUNT = (1 << 32) - 1
_ONE, _WINDOW = np.uint64(1), np.uint64(64)
_COUNT, _32, _63 = (np.uint64(value) for value in (COUNT, 32, 63))

_MESSAGE = [
    ("sent_at", np.int64),
    ("origin", np.int32),
    ("column", np.int32),
    ("seq", np.int32),
    ("control", np.int32),
    ("named", np.int32),
    ("clock", np.int32),
    ("length", np.int32),
    ("left", np.int32),
]
"""`named` is how many causes its packet names; its clock begins with them. `left` have yet to deliver it."""


class VcubeParams(NamedTuple):
    """What does not change in a run."""

    peers: int
    columns: int
    height: int
    """How many clusters there are."""
    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network weighs packets as the paper does."""
    aggregates: bool
    """Whether messages wait for each other to go in one packet, and all packets are lists of messages."""
    chains: int
    """How many a peer has for each sender: `WAITING` for what is held until a message is delivered; `EARLY`
    and `BLOCKED` for what is to be passed on: what came before its predecessor, and what is held up."""
    mtu: int
    """Bytes that are put together in a packet."""
    paper_sizes: bool
    """Whether those are bytes on paper."""
    single_tree: bool
    """Whether every message goes to peer 0 first, and from there down its tree."""


class VcubeState(NamedTuple):
    scalars: np.ndarray
    """Single numbers: messages made, held, and far ahead; what is ready, awake and moved in this event."""
    rank: np.ndarray
    column: np.ndarray
    """Of each that may send; of each peer, -1 if it may not."""
    delivered: np.ndarray
    solid: np.ndarray
    beyond: np.ndarray
    """What each peer has of each sender: delivered, received without a gap, which of the 64 after that."""
    gaps: np.ndarray
    """Of how many senders a peer has something after a gap: mostly none, and the window is not looked at."""
    far: np.ndarray
    """Chains of what came from further ahead: hardly ever any, so memory that is not touched."""
    chains: np.ndarray
    changes: np.ndarray
    listed: np.ndarray
    """For each sender: of how many it has delivered something since its own last, and a bit for each."""
    blocks: WordPool
    held: ItemPool
    passing: ItemPool
    messages: np.ndarray
    ready: np.ndarray
    """Items of what is to be delivered in this event."""
    came: np.ndarray
    awake: np.ndarray
    """Columns of the messages that an event brings, and items to look at again."""
    moved: np.ndarray
    moved_from: np.ndarray
    moved_to: np.ndarray
    moved_late: np.ndarray
    """Messages to be passed on: to the clusters from one to before another."""
    missing: np.ndarray


def create_state(params: VcubeParams, senders: list[int]) -> VcubeState:
    columns, pairs = params.columns, params.peers * params.columns
    column = np.full(params.peers, -1, np.int32)
    column[senders] = np.arange(columns)
    moved = _MAX_AT_ONCE if params.aggregates else 0
    return VcubeState(
        scalars=np.zeros(_SCALARS, np.int64),
        rank=np.array(senders, np.int32),
        column=column,
        delivered=np.zeros(pairs, np.int32),
        solid=np.zeros(pairs, np.int32),
        beyond=np.zeros(pairs, np.uint64),
        gaps=np.zeros(params.peers, np.int32),
        far=np.zeros(pairs, np.int32),
        chains=np.zeros(pairs * params.chains, np.int32),
        changes=np.zeros(columns, np.int32),
        listed=np.zeros((columns, columns + 63 >> 6), np.uint64),
        blocks=pool.create_words(),
        held=pool.create_items(ITEM),
        passing=pool.create_items([*ITEM, ("block", np.int32), ("missing", np.int32)]),
        messages=np.empty(_MAX_MESSAGES, np.dtype(_MESSAGE, align=True)),
        ready=np.empty(_MAX_AT_ONCE, np.int32),
        came=np.empty(moved, np.int32),
        awake=np.empty(moved, np.int32),
        moved=np.empty(moved, np.int32),
        moved_from=np.empty(moved, np.int8),
        moved_to=np.empty(moved, np.int8),
        moved_late=np.empty(moved, np.int64),
        missing=np.empty(columns, np.int64),
    )


@njit_hot
def broadcast(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `TimestampDiff.broadcast`, and of what `Vcube` and `VcubeAgg` make of it."""
    if not begin_broadcast(world, me):
        return
    message, seq = state.scalars[MADE], world.messages[me]
    if message == len(state.messages):
        world.scalars[FULL] = 1
        return
    state.scalars[MADE] += 1
    mine = state.column[me]
    state.delivered[me * params.columns + mine] = seq
    row = state.messages[message]
    row.origin, row.column, row.seq, row.sent_at = me, mine, seq, world.scalars[NOW]
    row.left = params.peers - 1
    stamp(world, state, params, me, mine, row)
    alone = params.peers == 1
    control = 0 if alone else packet_control(params, row)
    record_send(world, me, control, 0 if alone else 4 + 4 * row.named)
    probe_send(world, probe, row.named)
    if params.single_tree and me != ROOT:
        paper = 4 + 4 * row.named
        weight = params.payload + (paper if params.as_paper else control)
        link = me * params.height + cluster(me, ROOT)  # no way down, which is for lower clusters
        send(world, rules, nodes, link, me, ROOT, message, control, weight)
        probe_transmit(world, probe, me, ROOT, 1, 1, params.payload + paper)
    else:
        forward(world, rules, nodes, probe, state, params, me, params.height, message, False)


@njit_inline
def stamp(world: Any, state: Any, params: Any, me: Any, mine: Any, row: Any) -> Any:
    """The causes that a message names, in order; and where messages go together the rest of its clock."""
    known, first, words = state.delivered, me * params.columns, state.blocks.words
    named = length = state.changes[mine]
    if params.aggregates:
        length = -1
        for column in range(params.columns):
            length += known[first + column] > 0
    clock = new_block(world, state.blocks, length)
    control = 2 + params.head + int_bytes(me) + int_bytes(row.seq) + head_bytes(named)
    place = clock
    for column in range(params.columns):
        if is_listed(state, mine, column):
            count = known[first + column]
            words[place] = np.int64(column) << 32 | count
            place += 1
            control += int_bytes(state.rank[column]) + int_bytes(count)
    if params.aggregates:
        for column in range(params.columns):
            count = known[first + column]
            if count > 0 and column != mine and not is_listed(state, mine, column):
                words[place] = np.int64(column) << 32 | count
                place += 1
    for part in range(state.listed.shape[1]):
        state.listed[mine, part] = 0
    state.changes[mine] = 0
    row.control, row.named, row.clock, row.length = control, named, clock, length


@njit_inline
def is_listed(state: Any, mine: Any, column: Any) -> Any:
    return state.listed[mine, column >> 6] >> (np.uint64(column) & _63) & _ONE


@njit_inline
def packet_control(params: Any, row: Any) -> Any:
    """Of a packet with one message."""
    return row.control + (3 if params.aggregates else 0)


@njit_inline
def forward(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, below: Any,
    message: Any, apart: Any,
) -> Any:  # fmt: skip
    """A message alone, to one's children of the clusters below `below`; `apart` if in a packet for each."""
    row = state.messages[message]
    control, paper = packet_control(params, row), 4 + 4 * row.named
    weight = params.payload + (paper if params.as_paper else control)
    copies, last = 0, 0
    for bit in range(below):
        child = first_in_cluster(me, bit, params.peers)
        if child >= 0:
            send(world, rules, nodes, me * params.height + bit, me, child, message, control, weight)
            copies, last = copies + 1, child
            if apart:
                probe_transmit(world, probe, me, child, 1, 1, params.payload + paper)
    if copies and not apart:
        # Lists of children are one list, cut off somewhere, so their lengths tell them apart.
        to = last if copies == 1 else -copies
        probe_transmit(world, probe, me, to, copies, 1, params.payload + paper)


@njit_inline
def hold(world: Any, probe: Any, state: Any, params: Any, me: Any, message: Any, late: Any) -> Any:
    """The twin of `Flat._take`: `AGAIN` if the message is here already, `AT_ONCE` if it can be delivered, or
    the place of the cause that it waits for."""
    row = state.messages[message]
    if not is_first_copy(world, state, me, me * params.columns + row.column, row.seq):
        return AGAIN
    probe_hold(world, probe, me, row.sent_at)
    item = new_item(world, state.held)
    held = state.held.rows[item]
    held.message, held.since, held.late = message, world.scalars[NOW], late
    return file_under_missing_cause(world, state, params, me, row, item, row.named)


@njit_inline
def is_first_copy(world: Any, state: Any, me: Any, pair: Any, seq: Any) -> Any:
    """The twin of `Window.add`."""
    solid = state.solid[pair]
    if seq <= solid:
        return False
    if seq == solid + 1 and state.gaps[me] == 0 and state.scalars[FAR] == 0:
        state.solid[pair] = seq
        return True
    place, beyond = np.uint64(seq - solid - 1), state.beyond[pair]
    if place >= _WINDOW:
        return is_first_copy_far_ahead(world, state, pair, seq)
    if beyond >> place & _ONE:
        return False
    state.gaps[me] -= beyond != 0
    beyond |= _ONE << place
    while beyond & _ONE:
        beyond >>= _ONE
        solid += 1
        if state.scalars[FAR] and first_waiting(state.held, state.far, pair, solid + 64):
            free_item(state.held, unchain_lowest(state.held, state.far, pair))
            state.scalars[FAR] -= 1
            beyond |= _ONE << _63
    state.gaps[me] += beyond != 0
    state.solid[pair], state.beyond[pair] = solid, beyond
    return True


@njit_inline
def is_first_copy_far_ahead(world: Any, state: Any, pair: Any, seq: Any) -> Any:
    """The same for a number that is more than 64 ahead."""
    last = item = state.far[pair]
    while item:
        if state.held.rows[item].number == seq:
            return False
        item = state.held.rows[item].higher
        if item == last:
            break
    chain_item(state.held, state.far, pair, new_item(world, state.held), seq)
    state.scalars[FAR] += 1
    return True


@njit_inline
def file_under_missing_cause(
    world: Any, state: Any, params: Any, me: Any, row: Any, item: Any, place: Any
) -> Any:
    """The twin of `Holdback.file`: look at causes from `place` down. The last is the message before."""
    known, words, first = state.delivered, state.blocks.words, me * params.columns
    column, count = np.int64(row.column), np.int64(row.seq) - 1
    if place == row.named and known[first + column] >= count:
        place -= 1
    if place < row.named:
        # Unsigned, or each index would be looked at for being negative.
        scalars, row_at = np.uint64(row.clock + place), np.uint64(first)
        while place >= 0:
            word = np.uint64(words[scalars])
            count = np.int64(word & _COUNT)
            if known[row_at + (word >> _32)] < count:
                column = np.int64(word >> _32)
                break
            scalars -= _ONE
            place -= 1
    if place >= 0:
        state.held.rows[item].place = place
        chain_item(state.held, state.chains, (first + column) * params.chains + WAITING, item, count)
        state.scalars[HELD] += 1
        return place
    end = state.scalars[READY_END]
    if end == len(state.ready):
        world.scalars[FULL] = 1
        return place
    state.ready[end] = item
    state.scalars[READY_END] = end + 1
    return place


@njit_inline
def deliver(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `World._take_deliveries` and `Flat.deliver`."""
    scalars, mine = state.scalars, state.column[me]
    while scalars[READY] < scalars[READY_END]:
        item = state.ready[scalars[READY]]
        scalars[READY] += 1
        held = state.held.rows[item]
        message, since, late = held.message, held.since, held.late
        free_item(state.held, item)
        row = state.messages[message]
        pair = me * params.columns + row.column
        state.delivered[pair] = row.seq
        if mine >= 0 and not is_listed(state, mine, row.column):
            state.listed[mine, row.column >> 6] |= _ONE << (np.uint64(row.column) & _63)
            state.changes[mine] += 1
        wake_waiting(world, state, params, me, pair, row.seq)
        row.left -= 1
        if row.left == 0:
            free_block(state.blocks, row.clock, row.length)
        answers = record_delivery(world, rules, me, row.origin, row.seq, row.sent_at, since)
        probe_deliver(world, probe, me, row.sent_at, since, late)
        if answers:
            broadcast(world, rules, nodes, probe, state, params, me)
    scalars[READY] = scalars[READY_END] = 0


@njit_inline
def wake_waiting(world: Any, state: Any, params: Any, me: Any, pair: Any, seq: Any) -> Any:
    """The twin of `Holdback.wake`."""
    place = pair * params.chains + WAITING
    if first_waiting(state.held, state.chains, place, seq):
        item = unchain_lowest(state.held, state.chains, place)
        while item:
            held = state.held.rows[item]
            after = held.after
            state.scalars[HELD] -= 1
            file_under_missing_cause(
                world, state, params, me, state.messages[held.message], item, held.place - 1
            )
            item = after
