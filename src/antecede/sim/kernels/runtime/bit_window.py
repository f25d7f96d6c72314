"""Windows of numbers: the compiled counterpart of `causality.BitWindow`.

A window holds every number up to its `base`, and a ring of bits for the numbers above, up to the largest
(`last`). Number i is bit i modulo the length of the ring. Bits of numbers up to the base, or above the
largest, are 0. A ring holds numbers that are less than its length apart, with one word to spare so that no
word has numbers of both ends; adding a number further away fails. Bits of a window that never
had a gap are never touched, so they cost no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.bit_set import has, put, take_out, up_to
from antecede.sim.kernels.runtime.world_state import FULL

_0 = np.uint64(0)
_MAX_WORDS = 1 << 27
"""Words in the rings of all windows of one table: 1 GB."""


class BitWindows(NamedTuple):
    """A table of windows."""

    base: np.ndarray
    last: np.ndarray
    bits: np.ndarray
    """A ring of words for each."""


def create_windows(count: int, span: int) -> BitWindows:
    """So many empty windows, for gaps of up to `span` numbers if memory allows."""
    words = 2
    while words * 64 < span + 64 and 2 * words * max(1, count) <= _MAX_WORDS:
        words *= 2
    return BitWindows(
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, words), np.uint64)
    )


@njit_inline
def contains(ring: Any, base: Any, last: Any, number: Any) -> Any:
    return number <= base or (number <= last and has(ring, number))


@njit_inline
def add(ring: Any, bases: Any, lasts: Any, place: Any, number: Any) -> Any:
    """Add a number to the window at `place`; False if its ring is too short."""
    base, last = bases[place], lasts[place]
    if number <= base:
        return True
    if number - base >= (len(ring) - 1) << 6:
        return False
    put(ring, number)
    last = max(last, number)
    bases[place], lasts[place] = close_gap(ring, base, last), last
    return True


@njit_inline
def close_gap(ring: Any, base: Any, last: Any) -> Any:
    """The base moved up as far as no number is missing."""
    while base < last and has(ring, base + 1):
        base += 1
        take_out(ring, base)
    return base


@njit_inline
def add_row(ring: Any, bases: Any, lasts: Any, place: Any, first: Any, final: Any, row: Any) -> Any:
    """Add all numbers of a row (see `bit_set`); False if the ring is too short."""
    base, last, mask, start = bases[place], lasts[place], len(ring) - 1, first >> 6
    if final < first or final <= base:
        return True
    if final - base >= mask << 6:
        return False
    for word in range(max(start, base >> 6), (final >> 6) + 1):
        bits = row[word - start]
        if word == base >> 6:
            bits &= ~up_to(base)
        ring[word & mask] |= bits
    last = max(last, final)
    bases[place], lasts[place] = close_gap(ring, base, last), last
    return True


@njit_inline
def add_if_new(scalars: Any, windows: Any, which: Any, number: Any) -> Any:
    """Add a number to a window of a table; False if it was there already. `FULL` if the ring is too short."""
    base, last = windows.base[which], windows.last[which]
    if number <= base:
        return False
    if base == last and number == base + 1:
        windows.base[which] = windows.last[which] = number
        return True
    ring = windows.bits[which]
    if number <= last and has(ring, number):
        return False
    if not add(ring, windows.base, windows.last, which, number):
        scalars[FULL] = 1
        return False
    return True


@njit_inline
def fill_up_to(windows: Any, which: Any, number: Any) -> Any:
    """Add all numbers up to `number`."""
    ring, base, last = windows.bits[which], windows.base[which], windows.last[which]
    while base < min(number, last):
        base += 1
        take_out(ring, base)
    base, last = max(base, number), max(last, number)
    windows.base[which], windows.last[which] = close_gap(ring, base, last), last


@njit_inline
def bits_above_base(windows: Any, which: Any, word: Any) -> Any:
    """Which of the 64 numbers from 64 × `word` on are in a window, and above its base."""
    if word > windows.last[which] >> 6 or word < windows.base[which] >> 6:
        return _0
    return windows.bits[which, word & windows.bits.shape[1] - 1]


@njit_inline
def missing_bits(windows: Any, which: Any, word: Any, wanted: Any) -> Any:
    """The bits of `wanted`, numbers from 64 × `word` on, that are not in a window."""
    missing = wanted & ~bits_above_base(windows, which, word)
    above = windows.base[which] + 1 - (word << 6)
    if above >= 64:
        return _0
    return missing >> np.uint64(above) << np.uint64(above) if above > 0 else missing
