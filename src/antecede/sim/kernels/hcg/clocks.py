"""The twin of `protocols/hcg_clocks.py`: the clocks of a subgroup, and what a gateway remembers by them.

Tables have a row for each member of a subgroup with a column for each other, so they are as large as the
subgroups' squares together. Packets, held packets and lists are cells of three stores, used again when they
are done with; a list's cells are joined by numbers, and what is taken up and given out within one event has
one list for all members, because it is empty between events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.protocols.limits import MAX_REMEMBERED
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime.agenda import wake_by_calendar
from antecede.sim.kernels.runtime.bit_window import BitWindows, add_if_new
from antecede.sim.kernels.runtime.world_state import FULL, NOW

REAL, LINEAR, VECTORS = range(3)
"""Clocks, in the order of `protocols.hcg.CLOCKS`."""

TIMED, COUNTED, ACK, GLOBAL = range(4)
"""Packets: a `Local` with a time, a `Local` with a vector, an `Ack`, a `Global`."""

# Columns of `State.packets`.
USES, SORT, ORIGIN, SEQ, NUMBER, STAMP, SENT_AT, TURN, PACKET_COLUMNS = range(9)
"""`USES`: copies under way and members that hold it. `SORT`: which of the four, and four times its sender's
place. `NUMBER`, `STAMP`: an acknowledgement's two as well; the stamp of vectors is where their row begins.
`TURN`: a forwarded message's number from its own gateway; what a `Global` names beyond its counts, a list of
words: the subgroup, which of its words, the bits."""

# Columns of `State.cells`.
PACKET, CAME, NEXT, KEY, PLACE, CELL_COLUMNS = range(6)
"""Of a held packet: which, since when, the next in its list, what it is filed under and how far it was looked
at. Other lists have values of their own and `NEXT`."""

# Places in `State.tops`: the ends of lists, what is unused, and how many messages wait for others.
(
    OUT, OUT_END, READY, READY_END, TAKEN, TAKEN_END, FREE_PACKETS, PACKETS_USED, FREE_CELLS, CELLS_USED,
    FREE_ROWS, ROWS_USED, WAITING, SAMPLED, TOPS,
) = range(15)  # fmt: skip

HERE_BITS, BETWEEN_BITS = 6, 10
"""Of the buckets in which a member finds what waits for a member's message, and a gateway what waits for
another's: few for the many, so that they stay near."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_NUMBER_BITS = 40
"""Of a packet's number, below its sender, in what orders packets of one time."""
_NONE = -1


class HcgState(NamedTuple):
    """All members at once."""

    tops: np.ndarray
    packets: np.ndarray
    cells: np.ndarray
    rows: np.ndarray
    """Vectors, and the counts between gateways."""
    site: np.ndarray
    place: np.ndarray
    """Of each member: its subgroup, and its place there."""
    pairs: np.ndarray
    """Of each member: where its row is in tables of pairs."""
    first: np.ndarray
    members: np.ndarray
    clocks: np.ndarray
    """Of each subgroup: its gateway, its size, its clock."""
    sent: np.ndarray
    alarm: np.ndarray
    heaped: np.ndarray
    heap: np.ndarray
    """Of each member: its queue by times, which is a row of a table."""
    known: np.ndarray
    """Of each pair: what was promised (linear), how many were delivered (vectors)."""
    promised: np.ndarray
    low: np.ndarray
    at_low: np.ndarray
    """Of each member: a time that all have promised, and from how many there is no more than that."""
    later: np.ndarray
    """Of each pair: promises that do not hold yet, by count."""
    here: np.ndarray
    between: np.ndarray
    """Buckets of what waits."""
    arrived: BitWindows
    """Of each pair; none where nothing comes twice and nobody counts."""
    far: BitWindows
    """Of each pair of gateways what has arrived, then what is taken; then what may precede a message."""
    before: np.ndarray
    """Of each subgroup: where its gateway's last sort of those is."""
    last: np.ndarray
    entries: np.ndarray
    entries_end: np.ndarray
    walked: np.ndarray
    log: np.ndarray
    logged: np.ndarray
    """Of each sender, as its gateway remembers it: its last packets, and how many there were at all."""
    dropped: np.ndarray
    named: np.ndarray
    """For the probe: each peer's last message and when it was sent; the last that was passed on, its number
    from its gateway, and how many were."""
    after: np.ndarray
    """For the probe, of each two peers: pairs looked at, those named, and the least time between them."""
    costs: np.ndarray
    """For the probe: of each sort of packet how many, and their bytes on paper and on the wire."""


class HcgParams(NamedTuple):
    """What does not change in a run."""

    subgroups: int
    width: int
    """Of a row."""
    queue_capacity: int
    """Of a member's queue by time."""
    patience: int
    head: int
    """Bytes before a payload."""
    basic: bool
    repeats: bool
    """Whether packets may come twice."""
    named: bool
    costs: bool
    since: int


@njit_inline
def new_packet(world: Any, state: Any) -> Any:
    """A packet with one use; the last of all, which is never used otherwise, if there is no room."""
    tops, packets = state.tops, state.packets
    found = tops[FREE_PACKETS]
    if found >= 0:
        tops[FREE_PACKETS] = packets[found, SORT]
    else:
        found = tops[PACKETS_USED]
        if found == len(packets) - 1:
            world.scalars[FULL] = 1
        else:
            tops[PACKETS_USED] += 1
    packets[found, USES] = 1
    return found


@njit_inline
def new_cell(world: Any, state: Any) -> Any:
    tops, cells = state.tops, state.cells
    found = tops[FREE_CELLS]
    if found >= 0:
        tops[FREE_CELLS] = cells[found, NEXT]
    else:
        found = tops[CELLS_USED]
        if found == len(cells) - 1:
            world.scalars[FULL] = 1
        else:
            tops[CELLS_USED] += 1
    cells[found, NEXT] = _NONE
    return found


@njit_inline
def free_cell(state: Any, cell: Any) -> Any:
    state.cells[cell, NEXT] = state.tops[FREE_CELLS]
    state.tops[FREE_CELLS] = cell


@njit_inline
def new_row(world: Any, state: Any, params: Any) -> Any:
    """Where a row begins."""
    tops = state.tops
    found = tops[FREE_ROWS]
    if found >= 0:
        tops[FREE_ROWS] = state.rows[found] * params.width
    else:
        found = tops[ROWS_USED]
        if found + 2 * params.width > len(state.rows):
            world.scalars[FULL] = 1
        else:
            tops[ROWS_USED] += params.width
    return found


@njit_inline
def release(state: Any, params: Any, packet: Any) -> Any:
    """One use less."""
    packets, tops = state.packets, state.tops
    packets[packet, USES] -= 1
    if packets[packet, USES]:
        return
    sort = packets[packet, SORT] & 3
    if sort in (COUNTED, GLOBAL):
        row = packets[packet, STAMP]
        state.rows[row] = tops[FREE_ROWS] // params.width if tops[FREE_ROWS] >= 0 else _NONE
        tops[FREE_ROWS] = row
    if sort == GLOBAL:
        cell = packets[packet, TURN]
        while cell >= 0:
            following = state.cells[cell, NEXT]
            free_cell(state, cell)
            cell = following
    packets[packet, SORT] = tops[FREE_PACKETS]
    tops[FREE_PACKETS] = packet


@njit_inline
def append(state: Any, ends: Any, cell: Any) -> Any:
    """To the list whose two ends are at `ends`."""
    tops, cells = state.tops, state.cells
    cells[cell, NEXT] = _NONE
    if tops[ends] < 0:
        tops[ends] = cell
    else:
        cells[tops[ends + 1], NEXT] = cell
    tops[ends + 1] = cell


@njit_inline
def take_first(state: Any, ends: Any) -> Any:
    """Of a list; -1 if it is empty."""
    cell = state.tops[ends]
    if cell >= 0:
        state.tops[ends] = state.cells[cell, NEXT]
    return cell


@njit_inline
def push_by_time(world: Any, state: Any, params: Any, me: Any, cell: Any) -> Any:
    """Into a member's queue, by time, sender and number."""
    packet = state.cells[cell, PACKET]
    if state.heaped[me] == params.queue_capacity:
        world.scalars[FULL] = 1
        return
    time = state.packets[packet, STAMP]
    order = state.packets[packet, SORT] >> 2 << _NUMBER_BITS | state.packets[packet, NUMBER]
    heap.push(state.heap, me * params.queue_capacity, state.heaped[me], time, order, cell)
    state.heaped[me] += 1


@njit_inline
def pop_by_time(state: Any, params: Any, me: Any) -> Any:
    """The first cell of a member's queue, which is taken off it."""
    start = me * params.queue_capacity
    cell = state.heap[start, heap.ITEM]
    heap.pop(state.heap, start, state.heaped[me])
    state.heaped[me] -= 1
    return cell


@njit_inline
def pass_time(world: Any, rules: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `RealTime.pass_time`; the member's clock has never gone back, so it need not be kept."""
    start, clock = me * params.queue_capacity, world.scalars[NOW] + world.ahead[me]
    while state.heaped[me] and state.heap[start, heap.TIME] + params.patience <= clock:
        append(state, OUT, pop_by_time(state, params, me))
    if state.heaped[me] == 0:
        return
    turn = state.heap[start, heap.TIME] + params.patience
    if not clock < state.alarm[me] <= turn:
        state.alarm[me] = turn
        wake_by_calendar(world, rules, me, turn)


@njit_inline
def raise_promise(state: Any, me: Any, pair: Any, time: Any) -> Any:
    """What `me` knows to be promised in a pair is at least `time`."""
    old = state.known[pair]
    if time > old:
        state.known[pair] = time
        if old == state.low[me]:
            state.at_low[me] -= 1


@njit_inline
def promise(world: Any, state: Any, me: Any, sender: Any, count: Any, time: Any) -> Any:
    """The twin of `Linear._promise`. Later promises of a sender are of more packets and of later times, so
    those of one count are one."""
    cells, pair = state.cells, state.pairs[me] + sender
    base = state.arrived.base[pair]
    if count <= base:
        raise_promise(state, me, pair, time)
    else:
        previous, cell = np.int64(_NONE), np.int64(state.later[pair])
        while cell >= 0 and cells[cell, PACKET] < count:
            previous, cell = cell, cells[cell, NEXT]
        if cell >= 0 and cells[cell, PACKET] == count:
            cells[cell, CAME] = max(cells[cell, CAME], time)
        else:
            made = new_cell(world, state)
            cells[made, PACKET], cells[made, CAME], cells[made, NEXT] = count, time, cell
            if previous >= 0:
                cells[previous, NEXT] = made
            else:
                state.later[pair] = made
    cell = np.int64(state.later[pair])
    while cell >= 0 and cells[cell, PACKET] <= base:
        raise_promise(state, me, pair, cells[cell, CAME])
        following = cells[cell, NEXT]
        free_cell(state, cell)
        cell = following
    state.later[pair] = cell


@njit_inline
def lowest_promise(state: Any, me: Any) -> Any:
    """The smallest promise that `me` knows."""
    if state.at_low[me]:
        return state.low[me]
    start = state.pairs[me]
    members = state.members[state.site[me]]
    low = state.known[start]
    for other in range(start + 1, start + members):
        low = min(low, state.known[other])
    count = 0
    for other in range(start, start + members):
        count += state.known[other] == low
    state.low[me], state.at_low[me] = low, count
    return low


@njit_inline
def file_packet(world: Any, state: Any, params: Any, me: Any, clock: Any, cell: Any) -> Any:
    """The twins of `Clock.file`."""
    packet = state.cells[cell, PACKET]
    stamp, sender = state.packets[packet, STAMP], state.packets[packet, SORT] >> 2
    if clock == REAL:
        push_by_time(world, state, params, me, cell)
    elif clock == LINEAR:
        push_by_time(world, state, params, me, cell)
        mine = state.place[me]
        raise_promise(state, me, state.pairs[me] + mine, stamp)
        if sender != mine:
            promise(world, state, me, sender, state.packets[packet, NUMBER], stamp)
    elif all_reached(state, me, stamp, sender, state.packets[packet, NUMBER]):
        append(state, OUT, cell)
    else:
        state.cells[cell, PLACE] = state.members[state.site[me]] - 1
        hold(state, me, cell)


@njit_inline
def all_reached(state: Any, me: Any, row: Any, sender: Any, number: Any) -> Any:
    """Whether a packet can go at once, as most can: it is its sender's next and lacks nothing else. A loop
    without a way out is one that the compiler does eight counts at a time."""
    start, members = state.pairs[me], state.members[state.site[me]]
    known, counts = state.known[start : start + members], state.rows[row : row + members]
    lacking = 0
    for place in range(members):
        lacking += known[place] < counts[place]
    return lacking == 0 or (lacking == 1 and known[sender] == number - 1)


@njit_inline
def hold(state: Any, me: Any, cell: Any) -> Any:
    """The twin of `Holdback.file` for vectors: under the last count that is not reached."""
    cells, start = state.cells, state.pairs[me]
    packet = cells[cell, PACKET]
    row, sender = state.packets[packet, STAMP], state.packets[packet, SORT] >> 2
    place = cells[cell, PLACE]
    while place >= 0:
        count = np.int64(state.rows[row + place]) - (place == sender)
        if state.known[start + place] < count:
            cells[cell, PLACE] = place
            cells[cell, KEY] = place << 32 | count
            hold_in_bucket(state, state.here, bucket(me, cells[cell, KEY], HERE_BITS), cell)
            return
        place -= 1
    append(state, OUT, cell)


@njit_inline
def bucket(whose: Any, key: Any, bits: Any) -> Any:
    return whose << bits | np.int64(np.uint64(key) * _SPREAD >> np.uint64(64 - bits))


@njit_inline
def hold_in_bucket(state: Any, buckets: Any, here: Any, cell: Any) -> Any:
    """At the end of a bucket, so that what waits for the same goes on in the order in which it came."""
    cells = state.cells
    state.tops[WAITING] += 1
    cells[cell, NEXT] = _NONE
    other = np.int64(buckets[here])
    if other < 0:
        buckets[here] = cell
        return
    while cells[other, NEXT] >= 0:
        other = cells[other, NEXT]
    cells[other, NEXT] = cell


@njit_inline
def take_waiting(state: Any, buckets: Any, here: Any, key: Any) -> Any:
    """A list of what was filed under `key`, which is there no more."""
    cells = state.cells
    first, end, previous = np.int64(_NONE), np.int64(_NONE), np.int64(_NONE)
    cell = np.int64(buckets[here])
    while cell >= 0:
        following = cells[cell, NEXT]
        if cells[cell, KEY] == key:
            state.tops[WAITING] -= 1
            if previous < 0:
                buckets[here] = following
            else:
                cells[previous, NEXT] = following
            if first < 0:
                first = cell
            else:
                cells[end, NEXT] = cell
            end = cell
            cells[cell, NEXT] = _NONE
        else:
            previous = cell
        cell = following
    return first


@njit_inline
def next_ready(state: Any, params: Any, me: Any, clock: Any) -> Any:
    """The twins of `Clock.next`: a cell; -1 if nobody's turn has come."""
    if clock == LINEAR:
        if state.heaped[me] == 0:
            return np.int64(_NONE)
        time = state.heap[me * params.queue_capacity, heap.TIME]
        if time > state.low[me] and time > lowest_promise(state, me):
            return np.int64(_NONE)
        return np.int64(pop_by_time(state, params, me))
    cell = take_first(state, OUT)
    if clock == VECTORS and cell >= 0:
        packet = state.cells[cell, PACKET]
        sender, number = state.packets[packet, SORT] >> 2, state.packets[packet, NUMBER]
        if sender != state.place[me]:
            state.known[state.pairs[me] + sender] = number
            key = sender << 32 | number
            waiting = take_waiting(state, state.here, bucket(me, key, HERE_BITS), key)
            while waiting >= 0:
                following = state.cells[waiting, NEXT]
                hold(state, me, waiting)
                waiting = following
    return cell


@njit_inline
def preceding(world: Any, state: Any, params: Any, subgroup: Any, packet: Any) -> Any:
    """The twins of `Recent.reach` and `Covered.reach`: the first of the windows of what may precede."""
    before, packets = state.before[subgroup], state.packets
    if state.clocks[subgroup] == VECTORS:
        sender, row = packets[packet, SORT] >> 2, packets[packet, STAMP]
        for place in range(state.members[subgroup]):
            extend_preceding(world, state, params, subgroup, sender, place, state.rows[row + place])
        return before + sender * params.subgroups
    gap = params.patience if state.clocks[subgroup] == REAL else 1
    entry = np.int64(state.entries[subgroup])
    while entry >= 0 and state.cells[entry, PACKET] + gap <= packets[packet, STAMP]:
        add_if_new(world.scalars, state.far, before + state.cells[entry, PLACE], state.cells[entry, CAME])
        following = state.cells[entry, NEXT]
        free_cell(state, entry)
        entry = following
    state.entries[subgroup] = entry
    return before


@njit_inline
def extend_preceding(
    world: Any, state: Any, params: Any, subgroup: Any, member: Any, place: Any, count: Any
) -> Any:
    """The twin of `Covered._walk`."""
    first = state.first[subgroup]
    pair, peer = state.pairs[first + member] + place, first + place
    known = min(np.int64(count), state.logged[peer])
    walked = np.int64(state.walked[pair])
    if walked >= known:
        return
    before = state.before[subgroup] + member * params.subgroups
    for scalars in range(walked, known):
        entry = state.log[peer * MAX_REMEMBERED + scalars % MAX_REMEMBERED]
        add_if_new(world.scalars, state.far, before + (entry >> 40), entry & (1 << 40) - 1)
    state.walked[pair] = known


@njit_inline
def remember(
    world: Any, state: Any, params: Any, subgroup: Any, packet: Any, origins: Any, number: Any
) -> Any:
    """The twins of `Recent.remember` and `Covered.remember`."""
    if state.clocks[subgroup] != VECTORS:
        entry = new_cell(world, state)
        cells = state.cells
        cells[entry, PACKET], cells[entry, CAME] = state.packets[packet, STAMP], number
        cells[entry, PLACE] = origins
        if state.entries[subgroup] < 0:
            state.entries[subgroup] = entry
        else:
            cells[state.entries_end[subgroup], NEXT] = entry
        state.entries_end[subgroup] = entry
        return
    sender = state.packets[packet, SORT] >> 2
    peer = state.first[subgroup] + sender
    state.log[peer * MAX_REMEMBERED + state.logged[peer] % MAX_REMEMBERED] = origins << 40 | number
    state.logged[peer] += 1
    if state.logged[peer] - state.dropped[peer] == MAX_REMEMBERED:
        half = state.dropped[peer] + MAX_REMEMBERED // 2
        for member in range(state.members[subgroup]):
            extend_preceding(world, state, params, subgroup, member, sender, half)
        state.dropped[peer] = half
