"""The twin of `protocols/hcg/clocks.py` and `precedence.py`: clocks of a subgroup, and what a gateway
remembers.

Tables have a row for each member of a subgroup with a column for each other, so their size is the sum of the
subgroups' squares. Packets, cells and rows are in three pools with free lists. Cells form linked lists; lists
that are empty between events (`IN_ORDER`, `READY`, `ACCEPTED`) exist once for all members.
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
"""Clocks of a subgroup, in the order of `protocols.hcg.CLOCKS`."""

SUBGROUP_TIMED, SUBGROUP_VECTOR, LINEAR_ACK, GATEWAY = range(4)
"""Kinds of packets: a `SubgroupPacket` with a time or with a vector, a `LinearAck`, a `GatewayPacket`."""

# Columns of `HcgState.packets`.
USES, KIND, ORIGIN, SEQ, NUMBER, STAMP, SENT_AT, FORWARDED, PACKET_COLUMNS = range(9)
"""`USES`: copies in flight and members that hold it. `KIND`: one of the four, plus four times its sender's
place. `STAMP`: its time, or where the row of its vector begins. `FORWARDED`: the number that its own gateway
gave a forwarded message; of a `GATEWAY` packet the list of what it names beyond its counts: subgroup, word,
bits."""

# Columns of `HcgState.cells`.
PACKET, ARRIVED, NEXT, KEY, PLACE, CELL_COLUMNS = range(6)
"""Columns of a held packet: which packet, when it arrived, the next in its list, what it waits for and how
far it was checked. Other lists use the columns for values of their own, and `NEXT`."""

# Places in `HcgState.tops`: ends of lists, free and used entries of pools, and how many messages are held.
(
    IN_ORDER, IN_ORDER_END, READY, READY_END, ACCEPTED, ACCEPTED_END, FREE_PACKETS, PACKETS_USED, FREE_CELLS,
    CELLS_USED, FREE_ROWS, ROWS_USED, WAITING, SAMPLED, TOPS,
) = range(15)  # fmt: skip

HERE_BITS, BETWEEN_BITS = 6, 10
"""Bits of the hash tables of held packets of a member and of a gateway: few bits for the many members, so
that the tables stay in caches."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_NUMBER_BITS = 40
"""Bits of a packet's number, below its sender, in the key that orders packets of one time."""
_NONE = -1


class HcgState(NamedTuple):
    """The state of all members together."""

    tops: np.ndarray
    packets: np.ndarray
    cells: np.ndarray
    rows: np.ndarray
    """Vectors of subgroup packets, and counts of gateway packets."""
    site: np.ndarray
    place: np.ndarray
    """For each member: its subgroup, and its local rank."""
    pairs: np.ndarray
    """For each member: where its row begins in tables of pairs."""
    first: np.ndarray
    members: np.ndarray
    clocks: np.ndarray
    """For each subgroup: its gateway, its size and its clock."""
    sent: np.ndarray
    alarm: np.ndarray
    queued: np.ndarray
    heap: np.ndarray
    """For each member: packets sent; when it is woken; length of its queue by time; and the queues, which are
    heaps."""
    counts: np.ndarray
    """For each pair: the promised time (linear), the number of delivered packets (vector)."""
    promised: np.ndarray
    lowest: np.ndarray
    at_lowest: np.ndarray
    """For each member: the time it has promised; the lowest promise it knows, and how many have promised no
    more than that."""
    promises: np.ndarray
    """For each pair: promises that do not hold yet, by the count of packets that they presuppose."""
    held_local: np.ndarray
    held_between: np.ndarray
    """Hash tables of held packets: of members, and between gateways."""
    arrived: BitWindows
    """For each pair, the packets that have arrived; empty where no packet arrives twice and no probe counts
    them."""
    windows: BitWindows
    """For each pair of gateways, the numbers that have arrived, then those accepted, then those that may
    precede a message."""
    preceding: np.ndarray
    """For each subgroup: the first window of the messages that may precede its own."""
    last: np.ndarray
    recent: np.ndarray
    recent_end: np.ndarray
    merged: np.ndarray
    log: np.ndarray
    logged: np.ndarray
    """State of gateways: `last` is the last accepted message of each peer; `PrecedenceByTime` is a list;
    `PrecedenceByVector` is a log of each sender's last packets, with the numbers merged, logged and
    dropped."""
    dropped: np.ndarray
    named: np.ndarray
    """State of the probe `named`, by peer: its last message and when it was sent; the last forwarded one, its
    number from its gateway, and how many were forwarded."""
    after: np.ndarray
    """State of the probe `named`, for each pair of peers: pairs compared, pairs named, and the least time
    between them."""
    costs: np.ndarray
    """State of the probe `costs`, for each kind of packet: how many, and their bytes as the paper counts and
    on the wire."""


class HcgParams(NamedTuple):
    """What does not change in a run."""

    subgroups: int
    width: int
    """Counts in a row."""
    queue_capacity: int
    """The capacity of a member's queue by time."""
    patience: int
    head: int
    """Bytes of the payload's length on the wire."""
    basic: bool
    repeats: bool
    """Whether packets may arrive twice."""
    named: bool
    costs: bool
    since: int


@njit_inline
def new_packet(world: Any, state: Any) -> Any:
    """A packet with one use; if there are too many, the last of the pool, which has no other use."""
    tops, packets = state.tops, state.packets
    found = tops[FREE_PACKETS]
    if found >= 0:
        tops[FREE_PACKETS] = packets[found, KIND]
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
    """The place where a new row begins."""
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
    """One use fewer; a packet without uses is freed."""
    packets, tops = state.packets, state.tops
    packets[packet, USES] -= 1
    if packets[packet, USES]:
        return
    kind = packets[packet, KIND] & 3
    if kind in (SUBGROUP_VECTOR, GATEWAY):
        row = packets[packet, STAMP]
        state.rows[row] = tops[FREE_ROWS] // params.width if tops[FREE_ROWS] >= 0 else _NONE
        tops[FREE_ROWS] = row
    if kind == GATEWAY:
        cell = packets[packet, FORWARDED]
        while cell >= 0:
            following = state.cells[cell, NEXT]
            free_cell(state, cell)
            cell = following
    packets[packet, KIND] = tops[FREE_PACKETS]
    tops[FREE_PACKETS] = packet


@njit_inline
def append(state: Any, ends: Any, cell: Any) -> Any:
    """Append a cell to the list whose two ends are at `ends`."""
    tops, cells = state.tops, state.cells
    cells[cell, NEXT] = _NONE
    if tops[ends] < 0:
        tops[ends] = cell
    else:
        cells[tops[ends + 1], NEXT] = cell
    tops[ends + 1] = cell


@njit_inline
def take_first(state: Any, ends: Any) -> Any:
    """Take the first cell off a list; -1 if it is empty."""
    cell = state.tops[ends]
    if cell >= 0:
        state.tops[ends] = state.cells[cell, NEXT]
    return cell


@njit_inline
def push_by_time(world: Any, state: Any, params: Any, me: Any, cell: Any) -> Any:
    """Push onto a member's queue, by time, sender and number."""
    packet = state.cells[cell, PACKET]
    if state.queued[me] == params.queue_capacity:
        world.scalars[FULL] = 1
        return
    time = state.packets[packet, STAMP]
    order = state.packets[packet, KIND] >> 2 << _NUMBER_BITS | state.packets[packet, NUMBER]
    heap.push(state.heap, me * params.queue_capacity, state.queued[me], time, order, cell)
    state.queued[me] += 1


@njit_inline
def pop_by_time(state: Any, params: Any, me: Any) -> Any:
    """Pop the first cell of a member's queue."""
    start = me * params.queue_capacity
    cell = state.heap[start, heap.ITEM]
    heap.pop(state.heap, start, state.queued[me])
    state.queued[me] -= 1
    return cell


@njit_inline
def advance_time(world: Any, rules: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `RealTimeClock.advance_time`. A member's clock never goes back here, so it need not be
    stored."""
    start, clock = me * params.queue_capacity, world.scalars[NOW] + world.ahead[me]
    while state.queued[me] and state.heap[start, heap.TIME] + params.patience <= clock:
        append(state, IN_ORDER, pop_by_time(state, params, me))
    if state.queued[me] == 0:
        return
    forwarded = state.heap[start, heap.TIME] + params.patience
    if not clock < state.alarm[me] <= forwarded:
        state.alarm[me] = forwarded
        wake_by_calendar(world, rules, me, forwarded)


@njit_inline
def raise_promise(state: Any, me: Any, pair: Any, time: Any) -> Any:
    """The promise of a pair is at least `time`."""
    old = state.counts[pair]
    if time > old:
        state.counts[pair] = time
        if old == state.lowest[me]:
            state.at_lowest[me] -= 1


@njit_inline
def add_promise(world: Any, state: Any, me: Any, sender: Any, count: Any, time: Any) -> Any:
    """The twin of `LinearClock._add_promise`. Later promises of a sender presuppose no fewer packets, so
    those of one count are merged."""
    cells, pair = state.cells, state.pairs[me] + sender
    base = state.arrived.base[pair]
    if count <= base:
        raise_promise(state, me, pair, time)
    else:
        previous, cell = np.int64(_NONE), np.int64(state.promises[pair])
        while cell >= 0 and cells[cell, PACKET] < count:
            previous, cell = cell, cells[cell, NEXT]
        if cell >= 0 and cells[cell, PACKET] == count:
            cells[cell, ARRIVED] = max(cells[cell, ARRIVED], time)
        else:
            made = new_cell(world, state)
            cells[made, PACKET], cells[made, ARRIVED], cells[made, NEXT] = count, time, cell
            if previous >= 0:
                cells[previous, NEXT] = made
            else:
                state.promises[pair] = made
    cell = np.int64(state.promises[pair])
    while cell >= 0 and cells[cell, PACKET] <= base:
        raise_promise(state, me, pair, cells[cell, ARRIVED])
        following = cells[cell, NEXT]
        free_cell(state, cell)
        cell = following
    state.promises[pair] = cell


@njit_inline
def lowest_promise(state: Any, me: Any) -> Any:
    """The lowest promise that `me` knows."""
    if state.at_lowest[me]:
        return state.lowest[me]
    start = state.pairs[me]
    members = state.members[state.site[me]]
    low = state.counts[start]
    for other in range(start + 1, start + members):
        low = min(low, state.counts[other])
    count = 0
    for other in range(start, start + members):
        count += state.counts[other] == low
    state.lowest[me], state.at_lowest[me] = low, count
    return low


@njit_inline
def enqueue(world: Any, state: Any, params: Any, me: Any, clock: Any, cell: Any) -> Any:
    """The twin of `SubgroupClock.enqueue` of each clock."""
    packet = state.cells[cell, PACKET]
    stamp, sender = state.packets[packet, STAMP], state.packets[packet, KIND] >> 2
    if clock == REAL:
        push_by_time(world, state, params, me, cell)
    elif clock == LINEAR:
        push_by_time(world, state, params, me, cell)
        mine = state.place[me]
        raise_promise(state, me, state.pairs[me] + mine, stamp)
        if sender != mine:
            add_promise(world, state, me, sender, state.packets[packet, NUMBER], stamp)
    elif all_reached(state, me, stamp, sender, state.packets[packet, NUMBER]):
        append(state, IN_ORDER, cell)
    else:
        state.cells[cell, PLACE] = state.members[state.site[me]] - 1
        hold_vector(state, me, cell)


@njit_inline
def all_reached(state: Any, me: Any, row: Any, sender: Any, number: Any) -> Any:
    """Whether a packet can be delivered at once, as most can: it is its sender's next and depends on nothing
    else that is missing. A loop without an exit is vectorised."""
    start, members = state.pairs[me], state.members[state.site[me]]
    known, counts = state.counts[start : start + members], state.rows[row : row + members]
    lacking = 0
    for place in range(members):
        lacking += known[place] < counts[place]
    return lacking == 0 or (lacking == 1 and known[sender] == number - 1)


@njit_inline
def hold_vector(state: Any, me: Any, cell: Any) -> Any:
    """The twin of `HoldBackQueue.hold` for vectors: under the last count that is not reached."""
    cells, start = state.cells, state.pairs[me]
    packet = cells[cell, PACKET]
    row, sender = state.packets[packet, STAMP], state.packets[packet, KIND] >> 2
    place = cells[cell, PLACE]
    while place >= 0:
        count = np.int64(state.rows[row + place]) - (place == sender)
        if state.counts[start + place] < count:
            cells[cell, PLACE] = place
            cells[cell, KEY] = place << 32 | count
            hold_unmet(state, state.held_local, bucket(me, cells[cell, KEY], HERE_BITS), cell)
            return
        place -= 1
    append(state, IN_ORDER, cell)


@njit_inline
def bucket(whose: Any, key: Any, bits: Any) -> Any:
    return whose << bits | np.int64(np.uint64(key) * _SPREAD >> np.uint64(64 - bits))


@njit_inline
def hold_unmet(state: Any, buckets: Any, here: Any, cell: Any) -> Any:
    """The twin of `HoldBackQueue.hold_unmet`: append a cell to a bucket, so that packets that wait for the
    same are released in the order of arrival."""
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
    """Take all cells that wait for `key` out of a bucket: the first of a list."""
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
def next_in_order(state: Any, params: Any, me: Any, clock: Any) -> Any:
    """The twin of `SubgroupClock.next_in_order`: a cell; -1 if there is none."""
    if clock == LINEAR:
        if state.queued[me] == 0:
            return np.int64(_NONE)
        time = state.heap[me * params.queue_capacity, heap.TIME]
        if time > state.lowest[me] and time > lowest_promise(state, me):
            return np.int64(_NONE)
        return np.int64(pop_by_time(state, params, me))
    cell = take_first(state, IN_ORDER)
    if clock == VECTORS and cell >= 0:
        packet = state.cells[cell, PACKET]
        sender, number = state.packets[packet, KIND] >> 2, state.packets[packet, NUMBER]
        if sender != state.place[me]:
            state.counts[state.pairs[me] + sender] = number
            key = sender << 32 | number
            waiting = take_waiting(state, state.held_local, bucket(me, key, HERE_BITS), key)
            while waiting >= 0:
                following = state.cells[waiting, NEXT]
                hold_vector(state, me, waiting)
                waiting = following
    return cell


@njit_inline
def find_preceding(world: Any, state: Any, params: Any, subgroup: Any, packet: Any) -> Any:
    """The twin of `find_preceding` of both kinds: the first window of what may precede a packet."""
    before, packets = state.preceding[subgroup], state.packets
    if state.clocks[subgroup] == VECTORS:
        sender, row = packets[packet, KIND] >> 2, packets[packet, STAMP]
        for place in range(state.members[subgroup]):
            merge(world, state, params, subgroup, sender, place, state.rows[row + place])
        return before + sender * params.subgroups
    gap = params.patience if state.clocks[subgroup] == REAL else 1
    entry = np.int64(state.recent[subgroup])
    while entry >= 0 and state.cells[entry, PACKET] + gap <= packets[packet, STAMP]:
        window, number = before + state.cells[entry, PLACE], state.cells[entry, ARRIVED]
        add_if_new(world.scalars, state.windows, window, number)
        following = state.cells[entry, NEXT]
        free_cell(state, entry)
        entry = following
    state.recent[subgroup] = entry
    return before


@njit_inline
def merge(world: Any, state: Any, params: Any, subgroup: Any, member: Any, place: Any, count: Any) -> Any:
    """The twin of `PrecedenceByVector._merge`."""
    first = state.first[subgroup]
    pair, peer = state.pairs[first + member] + place, first + place
    known = min(np.int64(count), state.logged[peer])
    walked = np.int64(state.merged[pair])
    if walked >= known:
        return
    before = state.preceding[subgroup] + member * params.subgroups
    for scalars in range(walked, known):
        entry = state.log[peer * MAX_REMEMBERED + scalars % MAX_REMEMBERED]
        add_if_new(world.scalars, state.windows, before + (entry >> 40), entry & (1 << 40) - 1)
    state.merged[pair] = known


@njit_inline
def record_precedence(
    world: Any, state: Any, params: Any, subgroup: Any, packet: Any, origins: Any, number: Any
) -> Any:
    """The twin of `record` of both kinds."""
    if state.clocks[subgroup] != VECTORS:
        entry = new_cell(world, state)
        cells = state.cells
        cells[entry, PACKET], cells[entry, ARRIVED] = state.packets[packet, STAMP], number
        cells[entry, PLACE] = origins
        if state.recent[subgroup] < 0:
            state.recent[subgroup] = entry
        else:
            cells[state.recent_end[subgroup], NEXT] = entry
        state.recent_end[subgroup] = entry
        return
    sender = state.packets[packet, KIND] >> 2
    peer = state.first[subgroup] + sender
    state.log[peer * MAX_REMEMBERED + state.logged[peer] % MAX_REMEMBERED] = origins << 40 | number
    state.logged[peer] += 1
    if state.logged[peer] - state.dropped[peer] == MAX_REMEMBERED:
        half = state.dropped[peer] + MAX_REMEMBERED // 2
        for member in range(state.members[subgroup]):
            merge(world, state, params, subgroup, member, sender, half)
        state.dropped[peer] = half
