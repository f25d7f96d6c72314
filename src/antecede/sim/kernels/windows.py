"""Many windows in arrays: the twin of `order.Window`.

Each is a counter, the largest number in it, and a ring of bits for the numbers between. The bits of a window
that never had a gap are never touched, so they cost no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.sim.kernels.events import FULL
from antecede.sim.kernels.jit import step

_ONE = np.uint64(1)
_MOST_WORDS = 1 << 27
"""In the rings of all windows of one sort: 1 GB."""


class Windows(NamedTuple):
    base: np.ndarray
    last: np.ndarray
    bits: np.ndarray
    """A row of words for each; number i is bit i, modulo their length."""


def windows(count: int, span: int) -> Windows:
    """So many empty ones, for gaps of up to `span` numbers if there is room for that."""
    words = 1
    while words * 64 < span and 2 * words * max(1, count) <= _MOST_WORDS:
        words *= 2
    return Windows(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, words), np.uint64))


@step
def put(at: Any, those: Any, which: Any, number: Any) -> Any:
    """Put `number` in; False if it was there already."""
    base, last = those.base[which], those.last[which]
    if number <= base:
        return False
    if base == last and number == base + 1:
        those.base[which] = those.last[which] = number
        return True
    words = those.bits.shape[1]
    if number - base > words << 6:
        at[FULL] = 1
        return False
    word, bit = number >> 6 & words - 1, _ONE << np.uint64(number & 63)
    if those.bits[which, word] & bit:
        return False
    those.bits[which, word] |= bit
    last = max(last, number)
    while base < last and has_bit(those, which, base + 1):
        base += 1
        those.bits[which, base >> 6 & words - 1] &= ~(_ONE << np.uint64(base & 63))
    those.base[which], those.last[which] = base, last
    return True


@step
def has_bit(those: Any, which: Any, number: Any) -> Any:
    """Whether a number above the counter, and not above the largest, is in."""
    word = those.bits[which, number >> 6 & those.bits.shape[1] - 1]
    return (word >> np.uint64(number & 63) & _ONE) != 0


@step
def has(those: Any, which: Any, number: Any) -> Any:
    if number <= those.base[which]:
        return True
    return number <= those.last[which] and has_bit(those, which, number)
