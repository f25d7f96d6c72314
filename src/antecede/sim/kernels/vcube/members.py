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
from antecede.sim.kernels.runtime import pools
from antecede.sim.kernels.runtime.bundles import watch_deliver, watch_send, watch_take, watch_transmit
from antecede.sim.kernels.runtime.events import FULL, NOW, delivered, may_send, sent
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes
from antecede.sim.kernels.runtime.nodes import send
from antecede.sim.kernels.runtime.overlays import cluster, first_in_cluster
from antecede.sim.kernels.runtime.pools import (
    ITEM,
    Blocks,
    Items,
    chain,
    first,
    free_block,
    free_item,
    new_block,
    new_item,
    unchain,
)

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


class Terms(NamedTuple):
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
    together: bool
    """Whether messages wait for each other to go in one packet, and all packets are lists of messages."""
    chains: int
    """How many a peer has for each sender: `WAITING` for what is held until a message is delivered; `EARLY`
    and `BLOCKED` for what is to be passed on: what came before its predecessor, and what is held up."""
    full: int
    """Bytes that are put together in a packet."""
    full_as_paper: bool
    """Whether those are bytes on paper."""
    one_tree: bool
    """Whether every message goes to peer 0 first, and from there down its tree."""


class State(NamedTuple):
    at: np.ndarray
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
    blocks: Blocks
    held: Items
    passing: Items
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


def fresh(terms: Terms, senders: list[int]) -> State:
    columns, pairs = terms.columns, terms.peers * terms.columns
    column = np.full(terms.peers, -1, np.int32)
    column[senders] = np.arange(columns)
    moved = _MAX_AT_ONCE if terms.together else 0
    return State(
        np.zeros(_SCALARS, np.int64), np.array(senders, np.int32), column,
        np.zeros(pairs, np.int32), np.zeros(pairs, np.int32), np.zeros(pairs, np.uint64),
        np.zeros(terms.peers, np.int32), np.zeros(pairs, np.int32), np.zeros(pairs * terms.chains, np.int32),
        np.zeros(columns, np.int32), np.zeros((columns, columns + 63 >> 6), np.uint64),
        pools.blocks(), pools.items(ITEM), pools.items([*ITEM, ("block", np.int32), ("kept", np.int32)]),
        np.empty(_MAX_MESSAGES, np.dtype(_MESSAGE, align=True)), np.empty(_MAX_AT_ONCE, np.int32),
        np.empty(moved, np.int32), np.empty(moved, np.int32), np.empty(moved, np.int32),
        np.empty(moved, np.int8), np.empty(moved, np.int8), np.empty(moved, np.int64),
        np.empty(columns, np.int64),
    )  # fmt: skip


@njit_hot
def broadcast(run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `TimestampDiff.broadcast`, and of what `Vcube` and `VcubeAgg` make of it."""
    if not may_send(run, me):
        return
    message, seq = state.at[MADE], run.messages[me]
    if message == len(state.messages):
        run.at[FULL] = 1
        return
    state.at[MADE] += 1
    mine = state.column[me]
    state.delivered[me * terms.columns + mine] = seq
    row = state.messages[message]
    row.origin, row.column, row.seq, row.sent_at = me, mine, seq, run.at[NOW]
    row.left = terms.peers - 1
    stamp(run, state, terms, me, mine, row)
    alone = terms.peers == 1
    control = 0 if alone else packet_control(terms, row)
    sent(run, me, control, 0 if alone else 4 + 4 * row.named)
    watch_send(run, watch, row.named)
    if terms.one_tree and me != ROOT:
        paper = 4 + 4 * row.named
        weight = terms.payload + (paper if terms.as_paper else control)
        link = me * terms.height + cluster(me, ROOT)  # no way down, which is for lower clusters
        send(run, rules, nodes, link, me, ROOT, message, control, weight)
        watch_transmit(run, watch, me, ROOT, 1, 1, terms.payload + paper)
    else:
        serve(run, rules, nodes, watch, state, terms, me, terms.height, message, False)


@njit_inline
def stamp(run: Any, state: Any, terms: Any, me: Any, mine: Any, row: Any) -> Any:
    """The causes that a message names, in order; and where messages go together the rest of its clock."""
    known, first, words = state.delivered, me * terms.columns, state.blocks.words
    named = length = state.changes[mine]
    if terms.together:
        length = -1
        for column in range(terms.columns):
            length += known[first + column] > 0
    clock = new_block(run, state.blocks, length)
    control = 2 + terms.head + int_bytes(me) + int_bytes(row.seq) + head_bytes(named)
    place = clock
    for column in range(terms.columns):
        if is_listed(state, mine, column):
            count = known[first + column]
            words[place] = np.int64(column) << 32 | count
            place += 1
            control += int_bytes(state.rank[column]) + int_bytes(count)
    if terms.together:
        for column in range(terms.columns):
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
def packet_control(terms: Any, row: Any) -> Any:
    """Of a packet with one message."""
    return row.control + (3 if terms.together else 0)


@njit_inline
def serve(
    run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any, below: Any, message: Any,
    apart: Any,
) -> Any:  # fmt: skip
    """A message alone, to one's children of the clusters below `below`; `apart` if in a packet for each."""
    row = state.messages[message]
    control, paper = packet_control(terms, row), 4 + 4 * row.named
    weight = terms.payload + (paper if terms.as_paper else control)
    copies, last = 0, 0
    for bit in range(below):
        child = first_in_cluster(me, bit, terms.peers)
        if child >= 0:
            send(run, rules, nodes, me * terms.height + bit, me, child, message, control, weight)
            copies, last = copies + 1, child
            if apart:
                watch_transmit(run, watch, me, child, 1, 1, terms.payload + paper)
    if copies and not apart:
        # Lists of children are one list, cut off somewhere, so their lengths tell them apart.
        to = last if copies == 1 else -copies
        watch_transmit(run, watch, me, to, copies, 1, terms.payload + paper)


@njit_inline
def take(run: Any, watch: Any, state: Any, terms: Any, me: Any, message: Any, late: Any) -> Any:
    """The twin of `Flat._take`: `AGAIN` if the message is here already, `AT_ONCE` if it can be delivered, or
    the place of the cause that it waits for."""
    row = state.messages[message]
    if not note(run, state, me, me * terms.columns + row.column, row.seq):
        return AGAIN
    watch_take(run, watch, me, row.sent_at)
    item = new_item(run, state.held)
    held = state.held.rows[item]
    held.message, held.since, held.late = message, run.at[NOW], late
    return file(run, state, terms, me, row, item, row.named)


@njit_inline
def note(run: Any, state: Any, me: Any, pair: Any, seq: Any) -> Any:
    """The twin of `Window.add`."""
    solid = state.solid[pair]
    if seq <= solid:
        return False
    if seq == solid + 1 and state.gaps[me] == 0 and state.at[FAR] == 0:
        state.solid[pair] = seq
        return True
    place, beyond = np.uint64(seq - solid - 1), state.beyond[pair]
    if place >= _WINDOW:
        return note_far(run, state, pair, seq)
    if beyond >> place & _ONE:
        return False
    state.gaps[me] -= beyond != 0
    beyond |= _ONE << place
    while beyond & _ONE:
        beyond >>= _ONE
        solid += 1
        if state.at[FAR] and first(state.held, state.far, pair, solid + 64):
            free_item(state.held, unchain(state.held, state.far, pair))
            state.at[FAR] -= 1
            beyond |= _ONE << _63
    state.gaps[me] += beyond != 0
    state.solid[pair], state.beyond[pair] = solid, beyond
    return True


@njit_inline
def note_far(run: Any, state: Any, pair: Any, seq: Any) -> Any:
    """The same for a number that is more than 64 ahead."""
    last = item = state.far[pair]
    while item:
        if state.held.rows[item].number == seq:
            return False
        item = state.held.rows[item].higher
        if item == last:
            break
    chain(state.held, state.far, pair, new_item(run, state.held), seq)
    state.at[FAR] += 1
    return True


@njit_inline
def file(run: Any, state: Any, terms: Any, me: Any, row: Any, item: Any, place: Any) -> Any:
    """The twin of `Holdback.file`: look at causes from `place` down. The last is the message before."""
    known, words, first = state.delivered, state.blocks.words, me * terms.columns
    column, count = np.int64(row.column), np.int64(row.seq) - 1
    if place == row.named and known[first + column] >= count:
        place -= 1
    if place < row.named:
        # Unsigned, or each index would be looked at for being negative.
        at, row_at = np.uint64(row.clock + place), np.uint64(first)
        while place >= 0:
            word = np.uint64(words[at])
            count = np.int64(word & _COUNT)
            if known[row_at + (word >> _32)] < count:
                column = np.int64(word >> _32)
                break
            at -= _ONE
            place -= 1
    if place >= 0:
        state.held.rows[item].place = place
        chain(state.held, state.chains, (first + column) * terms.chains + WAITING, item, count)
        state.at[HELD] += 1
        return place
    end = state.at[READY_END]
    if end == len(state.ready):
        run.at[FULL] = 1
        return place
    state.ready[end] = item
    state.at[READY_END] = end + 1
    return place


@njit_inline
def take_deliveries(run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `World._take_deliveries` and `Flat.deliver`."""
    at, mine = state.at, state.column[me]
    while at[READY] < at[READY_END]:
        item = state.ready[at[READY]]
        at[READY] += 1
        held = state.held.rows[item]
        message, since, late = held.message, held.since, held.late
        free_item(state.held, item)
        row = state.messages[message]
        pair = me * terms.columns + row.column
        state.delivered[pair] = row.seq
        if mine >= 0 and not is_listed(state, mine, row.column):
            state.listed[mine, row.column >> 6] |= _ONE << (np.uint64(row.column) & _63)
            state.changes[mine] += 1
        wake(run, state, terms, me, pair, row.seq)
        row.left -= 1
        if row.left == 0:
            free_block(state.blocks, row.clock, row.length)
        answers = delivered(run, rules, me, row.origin, row.seq, row.sent_at, since)
        watch_deliver(run, watch, me, row.sent_at, since, late)
        if answers:
            broadcast(run, rules, nodes, watch, state, terms, me)
    at[READY] = at[READY_END] = 0


@njit_inline
def wake(run: Any, state: Any, terms: Any, me: Any, pair: Any, seq: Any) -> Any:
    """The twin of `Holdback.wake`."""
    place = pair * terms.chains + WAITING
    if first(state.held, state.chains, place, seq):
        item = unchain(state.held, state.chains, place)
        while item:
            held = state.held.rows[item]
            after = held.after
            state.at[HELD] -= 1
            file(run, state, terms, me, state.messages[held.message], item, held.place - 1)
            item = after
