"""What the kernels of `vcube` and `vcube-agg` share: the twin of `protocols/flat.py` with clocks that only
name what changed, and of the trees that messages go down.

What a peer knows is a row with a column for each peer that may send, so a million peers and few senders do.
A message's clock is kept once for all, in words of (column, count), until everybody has delivered it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.sim.kernels.bundles import watch_deliver, watch_send, watch_take, watch_transmit
from antecede.sim.kernels.cubes import first_in_cluster
from antecede.sim.kernels.events import FULL, NOW, delivered, may_send, sent
from antecede.sim.kernels.jit import loop, step
from antecede.sim.kernels.nodes import send
from antecede.sim.kernels.pools import chain, first, free_block, free_item, new_block, new_item, unchain
from antecede.sim.kernels.sizes import head_bytes, int_bytes

_MOST_MESSAGES = 1 << 24
_MOST_AT_ONCE = 1 << 24
"""Messages that one event makes ready, or moves on."""
MADE, HELD, FAR, READY, READY_END, AWAKE, MOVED, _SCALARS = range(8)
_COUNT = (1 << 32) - 1
_ONE, _WINDOW = np.uint64(1), np.uint64(64)


class Terms(NamedTuple):
    """What does not change in a run."""

    peers: int
    height: int
    """How many clusters there are."""
    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network weighs packets as the paper does."""
    together: bool
    """Whether messages wait for each other to go in one packet, and all packets are lists of messages."""
    full: int
    """Bytes that are put together in a packet."""
    full_as_paper: bool
    """Whether those are bytes on paper."""


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
    far: np.ndarray
    """Chains of what came from further ahead: hardly ever any, so memory that is not touched."""
    waiting: np.ndarray
    """Chains of messages that are held, by what they wait for."""
    early: np.ndarray
    blocked: np.ndarray
    """Chains of messages to pass on: those that came before their predecessor, and those held up."""
    changed: np.ndarray
    changes: np.ndarray
    listed: np.ndarray
    """For each sender: whose messages it has delivered since its own last, in order; and whether it has."""
    origin: np.ndarray
    seq: np.ndarray
    sent_at: np.ndarray
    control: np.ndarray
    named: np.ndarray
    clock: np.ndarray
    length: np.ndarray
    left: np.ndarray
    """Of each message: its control bytes, how many causes it names, its clock (those it names first), and how
    many have still to deliver it."""
    ready: np.ndarray
    ready_since: np.ndarray
    ready_late: np.ndarray
    """Messages to be delivered in this event: when they came, and what a probe remembers."""
    came: np.ndarray
    awake: np.ndarray
    """Columns of the messages that an event brings, and items to look at again."""
    moved: np.ndarray
    moved_from: np.ndarray
    moved_to: np.ndarray
    moved_late: np.ndarray
    """Messages to be passed on: to the clusters from one to before another."""
    missing: np.ndarray


def fresh(peers: int, senders: list[int], together: bool) -> State:
    columns = len(senders)
    column = np.full(peers, -1, np.int32)
    column[senders] = np.arange(columns)
    known, mine = (peers, columns), (columns, columns)
    passing = known if together else (0, 0)
    moved = _MOST_AT_ONCE if together else 0
    return State(
        np.zeros(_SCALARS, np.int64), np.array(senders, np.int32), column,
        np.zeros(known, np.int32), np.zeros(known, np.int32), np.zeros(known, np.uint64),
        np.zeros(known, np.int32), np.zeros(known, np.int32), np.zeros(passing, np.int32),
        np.zeros(passing, np.int32),
        np.empty(mine, np.int32), np.zeros(columns, np.int32), np.zeros(mine, np.bool_),
        np.empty(_MOST_MESSAGES, np.int32), np.empty(_MOST_MESSAGES, np.int32),
        np.empty(_MOST_MESSAGES, np.int64), np.empty(_MOST_MESSAGES, np.int32),
        np.empty(_MOST_MESSAGES, np.int32), np.empty(_MOST_MESSAGES, np.int32),
        np.empty(_MOST_MESSAGES, np.int32), np.empty(_MOST_MESSAGES, np.int32),
        np.empty(_MOST_AT_ONCE, np.int32), np.empty(_MOST_AT_ONCE, np.int64),
        np.empty(_MOST_AT_ONCE, np.int64), np.empty(moved, np.int32), np.empty(moved, np.int32),
        np.empty(moved, np.int32), np.empty(moved, np.int8), np.empty(moved, np.int8),
        np.empty(moved, np.int64), np.empty(columns, np.int64),
    )  # fmt: skip


@loop
def broadcast(
    run: Any, rules: Any, nodes: Any, watch: Any, pools: Any, state: Any, terms: Any, me: Any
) -> Any:
    """The twin of `TimestampDiff.broadcast`, and of what `Vcube` and `VcubeAgg` make of it."""
    if not may_send(run, me):
        return
    message, seq = state.at[MADE], run.messages[me]
    if message == len(state.origin):
        run.at[FULL] = 1
        return
    state.at[MADE] += 1
    mine = state.column[me]
    state.delivered[me, mine] = seq
    state.origin[message], state.seq[message], state.sent_at[message] = me, seq, run.at[NOW]
    stamp(run, pools, state, terms, me, mine, message)
    alone = terms.peers == 1
    named = state.named[message]
    control = 0 if alone else packet_control(state, terms, message)
    sent(run, me, control, 0 if alone else 4 + 4 * named)
    watch_send(run, watch, named)
    serve(run, rules, nodes, watch, state, terms, me, terms.height, message)


@step
def stamp(run: Any, pools: Any, state: Any, terms: Any, me: Any, mine: Any, message: Any) -> Any:
    """The causes that a message names, in order; and where messages go together the rest of its clock."""
    known, words = state.delivered, pools.words
    named = length = state.changes[mine]
    if terms.together:
        length = -1
        for column in range(len(state.rank)):
            length += known[me, column] > 0
    clock = new_block(run, pools, length)
    control = 2 + terms.head + int_bytes(me) + int_bytes(state.seq[message]) + head_bytes(named)
    for place in range(named):
        column = state.changed[mine, place]
        count = known[me, column]
        words[clock + place] = np.int64(column) << 32 | count
        control += int_bytes(state.rank[column]) + int_bytes(count)
    place = named
    if terms.together:
        for column in range(len(state.rank)):
            if known[me, column] > 0 and column != mine and not state.listed[mine, column]:
                words[clock + place] = np.int64(column) << 32 | known[me, column]
                place += 1
    for other in range(named):
        state.listed[mine, state.changed[mine, other]] = False
    state.changes[mine] = 0
    state.control[message], state.named[message] = control, named
    state.clock[message], state.length[message] = clock, length
    state.left[message] = terms.peers - 1


@step
def packet_control(state: Any, terms: Any, message: Any) -> Any:
    """Of a packet with one message."""
    return state.control[message] + (3 if terms.together else 0)


@step
def serve(
    run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any, below: Any, message: Any
) -> Any:
    """A message alone, to one's children of the clusters below `below`."""
    control, paper = packet_control(state, terms, message), 4 + 4 * state.named[message]
    weight = terms.payload + (paper if terms.as_paper else control)
    copies, last = 0, 0
    for bit in range(below):
        child = first_in_cluster(me, bit, terms.peers)
        if child >= 0:
            send(run, rules, nodes, me * terms.height + bit, me, child, message, control, weight)
            copies, last = copies + 1, child
    if copies:
        # Lists of children are one list, cut off somewhere, so their lengths tell them apart.
        to = last if copies == 1 else -copies
        watch_transmit(run, watch, me, to, copies, 1, terms.payload + paper)


@step
def take(run: Any, watch: Any, pools: Any, state: Any, me: Any, message: Any, late: Any) -> Any:
    """The twin of `Flat._take`."""
    if not note(run, pools, state, me, state.column[state.origin[message]], state.seq[message]):
        return False
    watch_take(run, watch, me, state.sent_at[message])
    file(run, pools, state, me, message, state.named[message], run.at[NOW], late)
    return True


@step
def note(run: Any, pools: Any, state: Any, me: Any, column: Any, seq: Any) -> Any:
    """The twin of `Window.add`."""
    solid, beyond = state.solid[me, column], state.beyond[me, column]
    if seq <= solid:
        return False
    place = np.uint64(seq - solid - 1)
    if place >= _WINDOW:
        return note_far(run, pools, state, me, column, seq)
    if beyond >> place & _ONE:
        return False
    beyond |= _ONE << place
    while beyond & _ONE:
        beyond >>= _ONE
        solid += 1
        if state.at[FAR] and first(pools, state.far, me, column, solid + 64):
            free_item(pools, unchain(pools, state.far, me, column))
            state.at[FAR] -= 1
            beyond |= _ONE << _WINDOW - _ONE
    state.solid[me, column], state.beyond[me, column] = solid, beyond
    return True


@step
def note_far(run: Any, pools: Any, state: Any, me: Any, column: Any, seq: Any) -> Any:
    """The same for a number that is more than 64 ahead."""
    last = item = state.far[me, column]
    while item:
        if pools.number[item] == seq:
            return False
        item = pools.after[item]
        if item == last:
            break
    chain(pools, state.far, me, column, new_item(run, pools), seq)
    state.at[FAR] += 1
    return True


@step
def file(run: Any, pools: Any, state: Any, me: Any, message: Any, place: Any, since: Any, late: Any) -> Any:
    """The twin of `Holdback.file`: look at causes from `place` down. The last is the message before."""
    named, clock, words = state.named[message], state.clock[message], pools.words
    column, count = state.column[state.origin[message]], np.int64(state.seq[message]) - 1
    while place >= 0:
        if place < named:
            word = words[clock + place]
            column, count = word >> 32, word & _COUNT
        if state.delivered[me, column] < count:
            item = new_item(run, pools)
            pools.message[item], pools.place[item] = message, place
            pools.since[item], pools.late[item] = since, late
            chain(pools, state.waiting, me, column, item, count)
            state.at[HELD] += 1
            return
        place -= 1
    end = state.at[READY_END]
    if end == len(state.ready):
        run.at[FULL] = 1
        return
    state.ready[end], state.ready_since[end], state.ready_late[end] = message, since, late
    state.at[READY_END] = end + 1


@step
def take_deliveries(
    run: Any, rules: Any, nodes: Any, watch: Any, pools: Any, state: Any, terms: Any, me: Any
) -> Any:
    """The twin of `World._take_deliveries` and `Flat.deliver`."""
    at = state.at
    while at[READY] < at[READY_END]:
        message, since = state.ready[at[READY]], state.ready_since[at[READY]]
        late = state.ready_late[at[READY]]
        at[READY] += 1
        origin, seq, sent_at = state.origin[message], state.seq[message], state.sent_at[message]
        column, mine = state.column[origin], state.column[me]
        state.delivered[me, column] = seq
        if mine >= 0 and not state.listed[mine, column]:
            state.listed[mine, column] = True
            state.changed[mine, state.changes[mine]] = column
            state.changes[mine] += 1
        wake(run, pools, state, me, column, seq)
        state.left[message] -= 1
        if state.left[message] == 0:
            free_block(pools, state.clock[message], state.length[message])
        answers = delivered(run, rules, me, origin, seq, sent_at, since)
        watch_deliver(run, watch, me, sent_at, since, late)
        if answers:
            broadcast(run, rules, nodes, watch, pools, state, terms, me)
    at[READY] = at[READY_END] = 0


@step
def wake(run: Any, pools: Any, state: Any, me: Any, column: Any, seq: Any) -> Any:
    """The twin of `Holdback.wake`. What is looked at again cannot come back to the same chain."""
    item = first(pools, state.waiting, me, column, seq)
    while item:
        unchain(pools, state.waiting, me, column)
        state.at[HELD] -= 1
        message, place = pools.message[item], pools.place[item]
        since, late = pools.since[item], pools.late[item]
        free_item(pools, item)
        file(run, pools, state, me, message, place - 1, since, late)
        item = first(pools, state.waiting, me, column, seq)
