"""Sets of numbers as bits in a ring of words, for event kernels.

Three kinds, after `order/bits.py`: a *window* has everything up to `base`, and bits for what is above it, up
to `top`; a *set* has bits from `low` to `high` (high < low: it is empty); a *row* is a set as a packet has
it: its words from that of the first number on (final < first: it is empty). A ring holds numbers that are
less than its bits apart; whoever adds one that is further away is told so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline

_0, _1, _6, _63 = (np.uint64(value) for value in (0, 1, 6, 63))


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
def highest(word: Any) -> Any:
    """The place of the highest bit of a word that is not 0."""
    place = 0
    for half in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(half):
            word >>= np.uint64(half)
            place += half
    return place


@njit_inline
def lowest(word: Any) -> Any:
    """The place of the lowest bit of a word that is not 0."""
    return highest(word & (~word + _1))


@njit_inline
def up_to(number: Any) -> Any:
    """The bits of a number, and of those before it in its word."""
    return (_1 << np.uint64(number & 63)) * np.uint64(2) - _1


@njit_inline
def window_has(ring: Any, base: Any, top: Any, number: Any) -> Any:
    return number <= base or (number <= top and has(ring, number))


@njit_inline
def window_add(ring: Any, bases: Any, tops: Any, place: Any, number: Any) -> Any:
    """False if there is no room."""
    base, top = bases[place], tops[place]
    if number <= base:
        return True
    if number - base >= (len(ring) - 1) << 6:
        return False
    put(ring, number)
    top = max(top, number)
    while base < top and has(ring, base + 1):
        base += 1
        take_out(ring, base)
    bases[place], tops[place] = base, top
    return True


@njit_inline
def window_union(ring: Any, bases: Any, tops: Any, place: Any, first: Any, final: Any, row: Any) -> Any:
    """Add all numbers of a row. False if there is no room."""
    base, top, mask, start = bases[place], tops[place], len(ring) - 1, first >> 6
    if final < first or final <= base:
        return True
    if final - base >= mask << 6:
        return False
    for word in range(max(start, base >> 6), (final >> 6) + 1):
        fresh = row[word - start]
        if word == base >> 6:
            fresh &= ~up_to(base)
        ring[word & mask] |= fresh
    top = max(top, final)
    while base < top and has(ring, base + 1):
        base += 1
        take_out(ring, base)
    bases[place], tops[place] = base, top
    return True


@njit_inline
def set_add(ring: Any, lows: Any, highs: Any, place: Any, number: Any) -> Any:
    """False if there is no room."""
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
    """So that `low` and `high` are in the set."""
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
    lows[place] = (first << 6) + lowest(ring[first & mask])
    highs[place] = (last << 6) + highest(ring[last & mask])


@njit_inline
def set_subtract(ring: Any, low: Any, high: Any, first: Any, final: Any, row: Any) -> Any:
    """Take all numbers of a row out of a set."""
    mask, start = len(ring) - 1, first >> 6
    if final < first or high < low:
        return
    for word in range(max(start, low >> 6), min(final >> 6, high >> 6) + 1):
        ring[word & mask] &= ~row[word - start]


@njit_inline
def row_fits(first: Any, final: Any, row: Any) -> Any:
    return final < first or (final >> 6) - (first >> 6) < len(row)


@njit_inline
def row_of_set(ring: Any, low: Any, high: Any, row: Any) -> Any:
    """Write a tight set into a row that it fits."""
    mask = len(ring) - 1
    if low <= high:
        for word in range(low >> 6, (high >> 6) + 1):
            row[word - (low >> 6)] = ring[word & mask]


@njit_inline
def row_lacking(ring: Any, base: Any, top: Any, first: Any, final: Any, row: Any) -> Any:
    """The highest number of a row that is not in a window; 0 if all are."""
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
            return (word << 6) + highest(missing)
        word -= 1
    return np.int64(0)


@njit_inline
def next_of_row(first: Any, final: Any, row: Any, after: Any) -> Any:
    """The smallest number of a row that is greater than `after`; 0 if there is none."""
    if final < first:
        return np.int64(0)
    number = max(after + 1, first)
    start = first >> 6
    while number <= final:
        rest = row[(number >> 6) - start] >> np.uint64(number & 63)
        if rest:
            return number + lowest(rest)
        number = ((number >> 6) + 1) << 6
    return np.int64(0)
