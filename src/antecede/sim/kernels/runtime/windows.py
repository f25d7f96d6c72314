"""Many windows in arrays: the twin of `order.Window`.

Each is a counter, the largest number in it, and a ring of bits for the numbers between. The bits of a window
that never had a gap are never touched, so they cost no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.events import FULL

_ONE = np.uint64(1)
_ODD, _PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_MAX_WORDS = 1 << 27
"""In the rings of all windows of one sort: 1 GB."""


class Windows(NamedTuple):
    base: np.ndarray
    last: np.ndarray
    bits: np.ndarray
    """A row of words for each; number i is bit i, modulo their length. One word is to spare, so that no
    word has numbers of both ends; bits of numbers up to the counter, or above the largest, are 0."""


def windows(count: int, span: int) -> Windows:
    """So many empty ones, for gaps of up to `span` numbers if there is room for that."""
    words = 2
    while words * 64 < span + 64 and 2 * words * max(1, count) <= _MAX_WORDS:
        words *= 2
    return Windows(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, words), np.uint64))


@njit_inline
def put(at: Any, those: Any, which: Any, number: Any) -> Any:
    """Put `number` in; False if it was there already."""
    base, last = those.base[which], those.last[which]
    if number <= base:
        return False
    if base == last and number == base + 1:
        those.base[which] = those.last[which] = number
        return True
    words = those.bits.shape[1]
    if number - base > words - 1 << 6:
        at[FULL] = 1
        return False
    word, bit = number >> 6 & words - 1, _ONE << np.uint64(number & 63)
    if those.bits[which, word] & bit:
        return False
    those.bits[which, word] |= bit
    those.last[which] = max(last, number)
    close(those, which)
    return True


@njit_inline
def close(those: Any, which: Any) -> Any:
    """The counter goes as far as there are no gaps."""
    while those.base[which] < those.last[which] and has_bit(those, which, those.base[which] + 1):
        take_next(those, which)


@njit_inline
def take_next(those: Any, which: Any) -> Any:
    """The counter goes over the next number, whether it was in or not."""
    those.base[which] += 1
    base = those.base[which]
    those.bits[which, base >> 6 & those.bits.shape[1] - 1] &= ~(_ONE << np.uint64(base & 63))


@njit_inline
def put_all_to(those: Any, which: Any, number: Any) -> Any:
    """Put in all up to `number`."""
    while those.base[which] < min(number, those.last[which]):
        take_next(those, which)
    those.base[which] = max(those.base[which], number)
    those.last[which] = max(those.last[which], number)
    close(those, which)


@njit_inline
def has_bit(those: Any, which: Any, number: Any) -> Any:
    """Whether a number above the counter, and not above the largest, is in."""
    word = those.bits[which, number >> 6 & those.bits.shape[1] - 1]
    return (word >> np.uint64(number & 63) & _ONE) != 0


@njit_inline
def beyond(those: Any, which: Any, word: Any) -> Any:
    """Which of the 64 numbers from 64 × `word` on are in, and above the counter."""
    if word > those.last[which] >> 6 or word < those.base[which] >> 6:
        return np.uint64(0)
    return those.bits[which, word & those.bits.shape[1] - 1]


@njit_inline
def lacking(those: Any, which: Any, word: Any, wanted: Any) -> Any:
    """The bits of `wanted`, numbers from 64 × `word` on, that are not in."""
    missing = wanted & ~beyond(those, which, word)
    above = those.base[which] + 1 - (word << 6)
    if above >= 64:
        return np.uint64(0)
    return missing >> np.uint64(above) << np.uint64(above) if above > 0 else missing


@njit_inline
def ones(word: Any) -> Any:
    """How many bits are set."""
    word = word - (word >> _ONE & _ODD)
    word = (word & _PAIRS) + (word >> np.uint64(2) & _PAIRS)
    word = word + (word >> np.uint64(4)) & _NIBBLES
    return np.int64(word * _BYTES >> np.uint64(56))


@njit_inline
def highest(word: Any) -> Any:
    """The place of the highest bit that is set."""
    place = 0
    for size in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(size):
            word = word >> np.uint64(size)
            place += size
    return place
