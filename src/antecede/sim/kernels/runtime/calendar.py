"""A calendar for networks with very many packets under way at once.

As that in `events`, but an arrival is one word: its time within its bucket, where it goes, where it is from
and its number. So the order of words is the order of arrivals, and the heap of a bucket is the words
themselves. A bucket is a chain of cache lines, each with seven words and the place of the line before: a
quarter of the memory is touched for an arrival, and most of that in a row. It is for packets that are known
by their source and number, with delays that are known when they are sent. Alarms, and whatever else happens,
stay in `events`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.events import ALARMS, FULL, NOW

_LINE = 7
"""Words in a line; its eighth leads to the line before."""
_IN_A_BUCKET = 16
_MAX_BUCKETS = 1 << 20
_LEAST_NUMBERS = 24
"""Bits that numbers have, unless delays are so long that buckets need them."""
_MAX_LINES = 1 << 24
_NEVER = 1 << 62
_BUCKET, _UNDER_WAY, _HEAPED, _MADE, _VACANT, _SCALARS = range(6)
_1, _2, _3, _7 = (np.uint64(value) for value in (1, 2, 3, _LINE))


class Dense(NamedTuple):
    at: np.ndarray
    """Single numbers, by the names above."""
    lines: np.ndarray
    """Seven arrivals each; line 0 is none."""
    ends: np.ndarray
    """Of each bucket: where its next arrival is to be written; 0 if it is empty."""
    heap: np.ndarray
    """The arrivals of the bucket that has come."""


class Packing(NamedTuple):
    """How an arrival is written: bits for a time within a bucket, twice for a peer, and for a number."""

    width: int
    peer: int
    number: int


def fresh(peers: int, rate: float, longest: int) -> tuple[Dense, Packing]:
    """Nothing is under way. `rate` is about how many packets are sent in a nanosecond, `longest` the longest
    delay."""
    peer = max(1, (peers - 1).bit_length())
    most = 63 - 2 * peer - _LEAST_NUMBERS
    width = 0
    while (width < most and 1 << width + 1 < _IN_A_BUCKET / rate) or longest >> width > _MAX_BUCKETS:
        width += 1
    buckets = 1
    while buckets < (longest >> width) + 3:
        buckets *= 2
    dense = Dense(
        np.zeros(_SCALARS, np.int64), np.empty((_MAX_LINES, _LINE + 1), np.int64),
        np.zeros(buckets, np.int32), np.empty(_MAX_LINES, np.int64),
    )  # fmt: skip
    dense.at[_MADE] = 1
    return dense, Packing(width, peer, 63 - 2 * peer - width)


@njit_inline
def expect(run: Any, dense: Any, packing: Any, time: Any, to: Any, source: Any, number: Any) -> Any:
    """Plan an arrival."""
    at, ends = dense.at, dense.ends
    bucket = time >> packing.width
    within = time - (bucket << packing.width)
    word = ((within << packing.peer | to) << packing.peer | source) << packing.number | number
    at[_UNDER_WAY] += 1
    if bucket == at[_BUCKET]:
        push(run, dense, word)
        return
    place = bucket & len(ends) - 1
    end = np.uint64(ends[place])
    if end == 0 or end & _7 == _7:
        end = new_line(run, dense, end)
    dense.lines[end >> _3, end & _7] = word
    ends[place] = end + _1


@njit_inline
def new_line(run: Any, dense: Any, before: Any) -> Any:
    """Where the first word of another line is, the line before it having ended at `before`."""
    at, lines = dense.at, dense.lines
    line = at[_VACANT]
    if line:
        at[_VACANT] = lines[line, _LINE]
    else:
        line = at[_MADE]
        if line + 1 == len(lines):
            run.at[FULL] = 1
        else:
            at[_MADE] += 1
    lines[line, _LINE] = np.int64(before >> _3)
    return np.uint64(line) << _3


@njit_inline
def push(run: Any, dense: Any, word: Any) -> Any:
    at, heap = dense.at, dense.heap
    if at[_HEAPED] == len(heap):
        run.at[FULL] = 1
        return
    place = np.uint64(at[_HEAPED])
    at[_HEAPED] += 1
    while place:
        above = place - _1 >> _1
        if heap[above] <= word:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = word


@njit_inline
def pop(dense: Any) -> Any:
    """Take the first word off the heap."""
    at, heap = dense.at, dense.heap
    at[_HEAPED] -= 1
    size = np.uint64(at[_HEAPED])
    word = heap[size]
    place, below = np.uint64(0), _1
    while below < size:
        other = below + _1
        if other < size and heap[other] < heap[below]:
            below = other
        if word <= heap[below]:
            break
        heap[place] = heap[below]
        place = below
        below = _2 * place + _1
    heap[place] = word


@njit_inline
def take(run: Any, dense: Any, packing: Any) -> Any:
    """The next arrival if no alarm comes before it: where it is, where it is from and its number. Else -1.

    The bucket never gets ahead of the next alarm, so nothing sent then belongs into one that was left.
    """
    at = dense.at
    alarm = run.alarms[0, 0] if run.at[ALARMS] else np.int64(_NEVER)
    limit = alarm >> packing.width
    if at[_UNDER_WAY] == 0:
        at[_BUCKET] = limit
        return np.int64(-1), np.int64(0), np.int64(0)
    while at[_HEAPED] == 0 and at[_BUCKET] < limit:
        at[_BUCKET] += 1
        open_bucket(run, dense, at[_BUCKET] & len(dense.ends) - 1)
    if at[_HEAPED] == 0:
        return np.int64(-1), np.int64(0), np.int64(0)
    word = dense.heap[0]
    ends = word >> packing.number
    time = (at[_BUCKET] << packing.width) + (ends >> 2 * packing.peer)
    if time > alarm:
        return np.int64(-1), np.int64(0), np.int64(0)
    pop(dense)
    at[_UNDER_WAY] -= 1
    run.at[NOW] = time
    peers, numbers = (np.int64(1) << packing.peer) - 1, (np.int64(1) << packing.number) - 1
    return ends >> packing.peer & peers, ends & peers, word & numbers


@njit_inline
def open_bucket(run: Any, dense: Any, bucket: Any) -> Any:
    """Put all of a bucket onto the heap."""
    at, lines = dense.at, dense.lines
    end = np.int64(dense.ends[bucket])
    dense.ends[bucket] = 0
    line, count = end >> 3, end & np.int64(_LINE)
    while line:
        for place in range(count):
            push(run, dense, lines[line, place])
        before = lines[line, _LINE]
        lines[line, _LINE] = at[_VACANT]
        at[_VACANT] = line
        line, count = before, np.int64(_LINE)
