"""A binary heap of single words, the least first, in an array that the caller owns.

The caller keeps the size and sees to it that there is space for what is pushed. Indices are unsigned: signed
ones cost a test for negatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline

_1, _2 = np.uint64(1), np.uint64(2)


@njit_inline
def push_word(heap: Any, size: Any, word: Any) -> Any:
    """Add a word to the `size` words of a heap."""
    place = np.uint64(size)
    while place:
        parent = place - _1 >> _1
        if heap[parent] <= word:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = word


@njit_inline
def pop_word(heap: Any, size: Any) -> Any:
    """Remove the first of the `size` words of a heap; the caller has read it."""
    left = np.uint64(size) - _1
    word = heap[left]
    place, child = np.uint64(0), _1
    while child < left:
        other = child + _1
        if other < left and heap[other] < heap[child]:
            child = other
        if word <= heap[child]:
            break
        heap[place] = heap[child]
        place = child
        child = _2 * place + _1
    heap[place] = word
