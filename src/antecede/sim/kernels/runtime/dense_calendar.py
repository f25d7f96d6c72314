"""A calendar queue for networks with very many packets in flight.

As `calendar`, but an arrival is one word: its time within its bucket, its destination, its source and its
number. So the order of words is the order of arrivals, and the heap of a bucket holds the words themselves.
A bucket is a list of cache lines, each with seven words and the place of the line before it: a quarter of
the memory is touched for an arrival, most of it in sequence. It is for packets that are identified by
source and number, with delays that are known when they are sent. Alarms, and whatever else happens, stay in
`agenda`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.compiled.word_heap import pop_word, push_word
from antecede.jit import njit_inline
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime.world_state import ALARMS, FULL, NOW

_LINE = 7
"""Words in a line; its eighth is the place of the line before."""
_ARRIVALS_PER_BUCKET = 16
_MAX_BUCKETS = 1 << 20
_MIN_NUMBER_BITS = 24
"""Bits that numbers have, unless delays are so long that buckets need them."""
_MAX_LINES = 1 << 24
_FOREVER = 1 << 62
_BUCKET, _IN_FLIGHT, _DUE, _LINES_USED, _FREE_LINE, _SCALARS = range(6)
_1, _3, _7 = (np.uint64(value) for value in (1, 3, _LINE))


class DenseCalendar(NamedTuple):
    scalars: np.ndarray
    """Single numbers, at the places above."""
    lines: np.ndarray
    """Seven arrivals each; line 0 is never used."""
    ends: np.ndarray
    """Of each bucket, where its next arrival is to be written; 0 if the bucket is empty."""
    due: np.ndarray
    """The heap of arrivals whose bucket has come."""


class ArrivalPacking(NamedTuple):
    """How an arrival is packed: bits for the time within a bucket, twice for a peer, and for a number."""

    width: int
    peer: int
    number: int


def create_calendar(peers: int, rate: float, longest: int) -> tuple[DenseCalendar, ArrivalPacking]:
    """An empty calendar. `rate` is about how many packets are sent in a nanosecond, `longest` the longest
    delay."""
    peer = max(1, (peers - 1).bit_length())
    most = 63 - 2 * peer - _MIN_NUMBER_BITS
    width = 0
    while (width < most and 1 << width + 1 < _ARRIVALS_PER_BUCKET / rate) or longest >> width > _MAX_BUCKETS:
        width += 1
    buckets = 1
    while buckets < (longest >> width) + 3:
        buckets *= 2
    calendar = DenseCalendar(
        scalars=np.zeros(_SCALARS, np.int64),
        lines=np.empty((_MAX_LINES, _LINE + 1), np.int64),
        ends=np.zeros(buckets, np.int32),
        due=np.empty(_MAX_LINES, np.int64),
    )
    calendar.scalars[_LINES_USED] = 1
    return calendar, ArrivalPacking(width, peer, 63 - 2 * peer - width)


@njit_inline
def plan(world: Any, calendar: Any, packing: Any, time: Any, to: Any, source: Any, number: Any) -> Any:
    """Plan an arrival."""
    scalars, ends = calendar.scalars, calendar.ends
    bucket = time >> packing.width
    within = time - (bucket << packing.width)
    word = ((within << packing.peer | to) << packing.peer | source) << packing.number | number
    scalars[_IN_FLIGHT] += 1
    if bucket == scalars[_BUCKET]:
        make_due(world, calendar, word)
        return
    slot = bucket & len(ends) - 1
    end = np.uint64(ends[slot])
    if end == 0 or end & _7 == _7:
        end = new_line(world, calendar, end)
    calendar.lines[end >> _3, end & _7] = word
    ends[slot] = end + _1


@njit_inline
def new_line(world: Any, calendar: Any, before: Any) -> Any:
    """Where the first word of another line goes; the line before it ended at `before`."""
    scalars, lines = calendar.scalars, calendar.lines
    line = scalars[_FREE_LINE]
    if line:
        scalars[_FREE_LINE] = lines[line, _LINE]
    else:
        line = scalars[_LINES_USED]
        if line + 1 == len(lines):
            world.scalars[FULL] = 1
        else:
            scalars[_LINES_USED] += 1
    lines[line, _LINE] = np.int64(before >> _3)
    return np.uint64(line) << _3


@njit_inline
def make_due(world: Any, calendar: Any, word: Any) -> Any:
    """Put an arrival whose bucket has come onto the heap."""
    scalars = calendar.scalars
    if scalars[_DUE] == len(calendar.due):
        world.scalars[FULL] = 1
        return
    push_word(calendar.due, scalars[_DUE], word)
    scalars[_DUE] += 1


@njit_inline
def take_arrival(world: Any, calendar: Any, packing: Any) -> Any:
    """Take the next arrival if no alarm comes before it: destination, source and number. Else -1.

    The calendar never gets ahead of the next alarm, so what is sent then never belongs into a bucket that
    was left.
    """
    scalars = calendar.scalars
    alarm = world.alarms[0, heap.TIME] if world.scalars[ALARMS] else np.int64(_FOREVER)
    limit = alarm >> packing.width
    if scalars[_IN_FLIGHT] == 0:
        scalars[_BUCKET] = limit
        return np.int64(-1), np.int64(0), np.int64(0)
    while scalars[_DUE] == 0 and scalars[_BUCKET] < limit:
        scalars[_BUCKET] += 1
        open_bucket(world, calendar, scalars[_BUCKET] & len(calendar.ends) - 1)
    if scalars[_DUE] == 0:
        return np.int64(-1), np.int64(0), np.int64(0)
    word = calendar.due[0]
    ends = word >> packing.number
    time = (scalars[_BUCKET] << packing.width) + (ends >> 2 * packing.peer)
    if time > alarm:
        return np.int64(-1), np.int64(0), np.int64(0)
    pop_word(calendar.due, scalars[_DUE])
    scalars[_DUE] -= 1
    scalars[_IN_FLIGHT] -= 1
    world.scalars[NOW] = time
    peers, numbers = (np.int64(1) << packing.peer) - 1, (np.int64(1) << packing.number) - 1
    return ends >> packing.peer & peers, ends & peers, word & numbers


@njit_inline
def open_bucket(world: Any, calendar: Any, bucket: Any) -> Any:
    """Put all arrivals of a bucket onto the heap."""
    scalars, lines = calendar.scalars, calendar.lines
    end = np.int64(calendar.ends[bucket])
    calendar.ends[bucket] = 0
    line, count = end >> 3, end & np.int64(_LINE)
    while line:
        for place in range(count):
            make_due(world, calendar, lines[line, place])
        before = lines[line, _LINE]
        lines[line, _LINE] = scalars[_FREE_LINE]
        scalars[_FREE_LINE] = line
        line, count = before, np.int64(_LINE)
