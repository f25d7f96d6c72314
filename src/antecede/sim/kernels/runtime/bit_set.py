"""Sets of numbers as bits, for event kernels.

A *set* is a ring of words with bits from `low` to `high` (high < low: the set is empty). It holds numbers
that are less than its length apart; adding a number further away fails. A *row* is a set as a
packet carries it: its words from that of the first number on (final < first: the row is empty). Windows,
which hold all numbers up to a base, are in `bit_window`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline

_0, _1 = np.uint64(0), np.uint64(1)
_ODD, _PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@njit_inline
def has(ring: Any, number: Any) -> Any:
    return ring[number >> 6 & len(ring) - 1] >> np.uint64(number & 63) & _1 != _0


@njit_inline
def put(ring: Any, number: Any) -> Any:
    ring[number >> 6 & len(ring) - 1] |= _1 << np.uint64(number & 63)


@njit_inline
def take_out(ring: Any, number: Any) -> Any:
    ring[number >> 6 & len(ring) - 1] &= ~(_1 << np.uint64(number & 63))


@njit_inline
def highest_bit(word: Any) -> Any:
    """The place of the highest bit set in a word that is not 0."""
    place = 0
    for half in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(half):
            word >>= np.uint64(half)
            place += half
    return place


@njit_inline
def lowest_bit(word: Any) -> Any:
    """The place of the lowest bit set in a word that is not 0."""
    return highest_bit(word & (~word + _1))


@njit_inline
def count_ones(word: Any) -> Any:
    """How many bits of a word are set."""
    word = word - (word >> _1 & _ODD)
    word = (word & _PAIRS) + (word >> np.uint64(2) & _PAIRS)
    word = word + (word >> np.uint64(4)) & _NIBBLES
    return np.int64(word * _BYTES >> np.uint64(56))


@njit_inline
def up_to(number: Any) -> Any:
    """The bits of a number and of all before it in its word."""
    return (_1 << np.uint64(number & 63)) * np.uint64(2) - _1


@njit_inline
def set_add(ring: Any, lows: Any, highs: Any, place: Any, number: Any) -> Any:
    """Add a number to the set at `place`; False if its ring is too short."""
    low, high = lows[place], highs[place]
    if high < low:
        low = high = number
    else:
        low, high = min(low, number), max(high, number)
    if high - low >= (len(ring) - 1) << 6:
        return False
    lows[place], highs[place] = low, high
    put(ring, number)
    return True


@njit_inline
def set_remove(ring: Any, lows: Any, highs: Any, place: Any, number: Any) -> Any:
    if lows[place] <= number <= highs[place]:
        take_out(ring, number)


@njit_inline
def set_clear(ring: Any, lows: Any, highs: Any, place: Any) -> Any:
    mask = len(ring) - 1
    if lows[place] <= highs[place]:
        for word in range(lows[place] >> 6, (highs[place] >> 6) + 1):
            ring[word & mask] = _0
    lows[place], highs[place] = 1, 0


@njit_inline
def set_tighten(ring: Any, lows: Any, highs: Any, place: Any) -> Any:
    """Set `low` and `high` to the smallest and largest number of a set."""
    mask = len(ring) - 1
    low, high = lows[place], highs[place]
    if high < low:
        return
    first, last = low >> 6, high >> 6
    while first <= last and ring[first & mask] == _0:
        first += 1
    if first > last:
        lows[place], highs[place] = 1, 0
        return
    while ring[last & mask] == _0:
        last -= 1
    lows[place] = (first << 6) + lowest_bit(ring[first & mask])
    highs[place] = (last << 6) + highest_bit(ring[last & mask])


@njit_inline
def set_subtract(ring: Any, low: Any, high: Any, first: Any, final: Any, row: Any) -> Any:
    """Remove all numbers of a row from a set."""
    mask, start = len(ring) - 1, first >> 6
    if final < first or high < low:
        return
    for word in range(max(start, low >> 6), min(final >> 6, high >> 6) + 1):
        ring[word & mask] &= ~row[word - start]


@njit_inline
def row_fits(first: Any, final: Any, row: Any) -> Any:
    """Whether a row is long enough for the numbers from `first` to `final`."""
    return final < first or (final >> 6) - (first >> 6) < len(row)


@njit_inline
def write_row(ring: Any, low: Any, high: Any, row: Any) -> Any:
    """Write a tight set into a row that is long enough."""
    mask = len(ring) - 1
    if low <= high:
        for word in range(low >> 6, (high >> 6) + 1):
            row[word - (low >> 6)] = ring[word & mask]


@njit_inline
def row_missing(ring: Any, base: Any, top: Any, first: Any, final: Any, row: Any) -> Any:
    """The highest number of a row that is missing in a window; 0 if none is."""
    mask, start = len(ring) - 1, first >> 6
    if final < first:
        return np.int64(0)
    word = final >> 6
    while word >= start and word >= base >> 6:
        present = ring[word & mask] if word <= top >> 6 else _0
        if word == base >> 6:
            present |= up_to(base)
        missing = row[word - start] & ~present
        if missing:
            return (word << 6) + highest_bit(missing)
        word -= 1
    return np.int64(0)


@njit_inline
def next_in_row(first: Any, final: Any, row: Any, after: Any) -> Any:
    """The smallest number of a row that is greater than `after`; 0 if there is none."""
    if final < first:
        return np.int64(0)
    number = max(after + 1, first)
    start = first >> 6
    while number <= final:
        rest = row[(number >> 6) - start] >> np.uint64(number & 63)
        if rest:
            return number + lowest_bit(rest)
        number = ((number >> 6) + 1) << 6
    return np.int64(0)
