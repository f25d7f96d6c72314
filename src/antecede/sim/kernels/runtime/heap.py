"""Binary heaps in arrays that the caller owns: of entries (time, order, item), and of single words.

Many heaps can share one array, each from a row `start` on. The caller keeps their sizes and sees to it that
there is a row for what is pushed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline

TIME, ORDER, ITEM, COLUMNS = range(4)
"""Columns of an entry. Entries are sorted by time, then by order."""
_1, _2 = np.uint64(1), np.uint64(2)


@njit_inline
def push(heap: Any, start: Any, size: Any, time: Any, order: Any, item: Any) -> Any:
    """Add an entry to the `size` entries of the heap at `start`."""
    place = size
    while place:
        parent = place - 1 >> 1
        above = start + parent
        if heap[above, TIME] < time or (heap[above, TIME] == time and heap[above, ORDER] <= order):
            break
        here = start + place
        heap[here, TIME], heap[here, ORDER], heap[here, ITEM] = (
            heap[above, TIME], heap[above, ORDER], heap[above, ITEM],
        )  # fmt: skip
        place = parent
    here = start + place
    heap[here, TIME], heap[here, ORDER], heap[here, ITEM] = time, order, item


@njit_inline
def pop(heap: Any, start: Any, size: Any) -> Any:
    """Remove the first of the `size` entries of the heap at `start`; the caller has read it."""
    last = start + size - 1
    time, order, item = heap[last, TIME], heap[last, ORDER], heap[last, ITEM]
    place, left = 0, size - 1
    while True:
        child = 2 * place + 1
        if child >= left:
            break
        below = start + child
        if child + 1 < left and (
            heap[below + 1, TIME] < heap[below, TIME]
            or (heap[below + 1, TIME] == heap[below, TIME] and heap[below + 1, ORDER] < heap[below, ORDER])
        ):
            child, below = child + 1, below + 1
        if time < heap[below, TIME] or (time == heap[below, TIME] and order <= heap[below, ORDER]):
            break
        here = start + place
        heap[here, TIME], heap[here, ORDER], heap[here, ITEM] = (
            heap[below, TIME], heap[below, ORDER], heap[below, ITEM],
        )  # fmt: skip
        place = child
    here = start + place
    heap[here, TIME], heap[here, ORDER], heap[here, ITEM] = time, order, item


@njit_inline
def push_word(heap: Any, size: Any, word: Any) -> Any:
    """Add a word to the `size` words of a heap. Indices are unsigned: signed ones cost a test for
    negatives."""
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
