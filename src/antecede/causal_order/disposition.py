"""What becomes of each row at hand: compiled, one pass over rows and dependencies, group after group.

Rows lie group by group, those of a group in the order in which they shall come out as far as their causes
allow. Each takes its turn as soon as all its causes had theirs: of those that could, the first. So rows
that were in causal order stay as they were, and the outcome does not depend on how rows arrived.

Costs: rows × log(rows that are ready at once) + dependencies; 50 bytes a row and 12 a dependency.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain

FREE, ABSENT, DEAD = -1, -2, -3
"""What a dependency points to, if not to a row at hand: one that came out before; nothing that is known; one
that never comes out, as it was put aside."""

WAITING, ORDERED, RELEASED, CIRCLE, TAINTED, OVERDUE, DUPLICATE, UNREADABLE = range(8)
"""A row's lot: it waits for a cause; it comes after all its causes; it comes without one of them; it depends
on itself; a cause of it was put aside; a cause of it has not come in time; it was there before; it does not
say who it is or what it depends on."""
QUARANTINED = (CIRCLE, TAINTED, OVERDUE, UNREADABLE)
"""The lots of rows that are put aside."""


@njit_plain
def match(owner: Any, number: Any, of_owner: Any, of_number: Any) -> Any:
    """For each row the first of its identity, and for each dependency the first that it names, or -1."""
    size = 16
    while size < 2 * owner.size:
        size *= 2
    mask = size - 1
    slots = np.full(size, -1, np.int64)
    first, target = np.empty(owner.size, np.int64), np.empty(of_owner.size, np.int64)
    for at in range(owner.size + of_owner.size):
        is_row = at < owner.size
        a = owner[at] if is_row else of_owner[at - owner.size]
        b = number[at] if is_row else of_number[at - owner.size]
        mixed = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        slot = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
        while slots[slot] >= 0 and (owner[slots[slot]] != a or number[slots[slot]] != b):
            slot = (slot + 1) & mask
        if is_row:
            if slots[slot] < 0:
                slots[slot] = at
            first[at] = slots[slot]
        else:
            target[at - owner.size] = slots[slot]
    return first, target


@njit_plain
def _push(heap: Any, size: int, value: int) -> None:
    while size > 0 and heap[(size - 1) >> 1] > value:
        heap[size] = heap[(size - 1) >> 1]
        size = (size - 1) >> 1
    heap[size] = value


@njit_plain
def _pop(heap: Any, size: int) -> int:
    """Take the least of `size` values out."""
    least, last, at = heap[0], heap[size - 1], 0
    while 2 * at + 1 < size - 1:
        child = 2 * at + 1
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return int(least)


@njit_plain
def _circles(low: int, high: int, offsets: Any, target: Any, lot: Any, scratch: Any) -> int:
    """Mark rows among those that wait in low..high that depend on themselves; how many (Tarjan's way)."""
    seen, link, stack, path, cursor = scratch
    found = count = depth = held = 0
    for root in range(low, high):
        if lot[root] != WAITING or seen[root] != 0:
            continue
        path[0], depth = root, 1
        while depth > 0:
            row = path[depth - 1]
            if seen[row] == 0:
                count += 1
                seen[row] = link[row] = count
                cursor[row] = offsets[row]
                stack[held] = row
                held += 1
            went_down = False
            while cursor[row] < offsets[row + 1]:
                cause = target[cursor[row]]
                cursor[row] += 1
                if cause < 0 or lot[cause] != WAITING:
                    continue
                if seen[cause] == 0:
                    path[depth] = cause
                    depth += 1
                    went_down = True
                    break
                if seen[cause] > 0:
                    link[row] = min(link[row], seen[cause])
            if went_down:
                continue
            depth -= 1
            if depth > 0:
                link[path[depth - 1]] = min(link[path[depth - 1]], link[row])
            if link[row] == seen[row]:
                alone = stack[held - 1] == row
                for place in range(offsets[row], offsets[row + 1]):
                    alone = alone and target[place] != row
                while True:
                    held -= 1
                    member = stack[held]
                    seen[member] = -1
                    if not alone:
                        lot[member] = CIRCLE
                        found += 1
                    if member == row:
                        break
    return found


@njit_plain
def settle(
    bounds: Any, offsets: Any, target: Any, lot: Any, overdue: Any, releases: bool, puts_aside: bool
) -> Any:
    """Decide about the rows whose `lot` is WAITING; the order of those that come out, group by group.

    Row r's dependencies are target[offsets[r]:offsets[r+1]], rows of its group or one of FREE, ABSENT, DEAD.
    `overdue` rows have waited long enough: with `releases` they go without what is ABSENT, with `puts_aside`
    they are put aside for it. What is DEAD, or comes to be, stops nobody with `releases`; without, it taints.
    """
    rows = lot.size
    need, begins = np.zeros(rows, np.int64), np.zeros(rows + 1, np.int64)
    for row in range(rows):
        if lot[row] == WAITING:
            for place in range(offsets[row], offsets[row + 1]):
                if target[place] >= 0:
                    begins[target[place] + 1] += 1
    for row in range(rows):
        begins[row + 1] += begins[row]
    effects, filled = np.empty(begins[rows], np.int64), begins[:-1].copy()
    for row in range(rows):
        if lot[row] == WAITING:
            for place in range(offsets[row], offsets[row + 1]):
                cause = target[place]
                if cause >= 0:
                    effects[filled[cause]] = row
                    filled[cause] += 1
    order, placed = np.empty(rows, np.int64), 0
    heap = np.empty(rows, np.int64)
    marked = np.zeros(rows, np.bool_)
    scratch = (
        np.zeros(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows + 1, np.int64),
        np.empty(rows, np.int64),
    )
    for group in range(bounds.size - 1):
        low, high = bounds[group], bounds[group + 1]
        ready = left = aside = 0
        for row in range(low, high):
            if lot[row] != WAITING:
                continue
            left += 1
            for place in range(offsets[row], offsets[row + 1]):
                cause = target[place]
                if cause == ABSENT:
                    if overdue[row] and releases:
                        marked[row] = True
                    else:
                        need[row] += 1
                elif cause == DEAD or (cause >= 0 and lot[cause] == UNREADABLE):
                    if releases:
                        marked[row] = True
                    else:
                        need[row] += 1
                elif cause >= 0:
                    need[row] += 1
            if need[row] == 0:
                _push(heap, ready, row)
                ready += 1
        looked = False
        while True:
            while ready > 0:
                row = _pop(heap, ready)
                ready -= 1
                left -= 1
                lot[row] = RELEASED if marked[row] else ORDERED
                order[placed] = row
                placed += 1
                for place in range(begins[row], begins[row + 1]):
                    effect = effects[place]
                    need[effect] -= 1
                    if need[effect] == 0:
                        _push(heap, ready, effect)
                        ready += 1
            if left == 0 or looked:
                break
            looked = True
            circles = _circles(low, high, offsets, target, lot, scratch)
            left -= circles
            if not releases:
                break
            if circles == 0:
                break
            for row in range(low, high):
                if lot[row] == CIRCLE:
                    for place in range(begins[row], begins[row + 1]):
                        effect = effects[place]
                        if lot[effect] == WAITING:
                            marked[effect] = True
                            need[effect] -= 1
                            if need[effect] == 0:
                                _push(heap, ready, effect)
                                ready += 1
        if left == 0 and not looked:
            continue
        if releases:
            continue
        # What was put aside takes all that depend on it along: the heap serves as a list of those to look at.
        for row in range(low, high):
            if lot[row] == CIRCLE or lot[row] == UNREADABLE:
                heap[aside] = row
                aside += 1
            elif lot[row] == WAITING:
                for place in range(offsets[row], offsets[row + 1]):
                    if target[place] == DEAD:
                        lot[row] = TAINTED
                    elif target[place] == ABSENT and overdue[row] and puts_aside and lot[row] == WAITING:
                        lot[row] = OVERDUE
                if lot[row] != WAITING:
                    heap[aside] = row
                    aside += 1
        while aside > 0:
            aside -= 1
            row = heap[aside]
            for place in range(begins[row], begins[row + 1]):
                if lot[effects[place]] == WAITING:
                    lot[effects[place]] = TAINTED
                    heap[aside] = effects[place]
                    aside += 1
    return order[:placed]
