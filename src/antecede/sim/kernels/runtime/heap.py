"""Binary heaps of entries (time, order, item) in arrays that the caller owns.

Many heaps can share one array, each from a row `start` on. The caller keeps their sizes and sees to it that
there is a row for what is pushed. Heaps of single words are in `compiled/word_heap.py`.
"""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_inline

TIME, ORDER, ITEM, COLUMNS = range(4)
"""Columns of an entry. Entries are sorted by time, then by order."""


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
