"""The disposition of every row: compiled, one pass over rows and dependencies, group by group.

The rows of a group are emitted in topological order by Kahn's algorithm with a heap: of the rows whose causes
have all been emitted, the first in input order comes next. So rows already in causal order keep their order,
and the result does not depend on the order of arrival. Among the rows that Kahn's algorithm cannot reach,
Tarjan's algorithm finds those on a cycle.

Cost: rows × log(rows ready at once) + dependencies; 50 bytes per row and 12 per dependency.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.causal_order.outcomes import (
    CAUSE_QUARANTINED,
    CYCLE,
    HELD,
    ORDERED,
    OVERDUE,
    QUARANTINED,
    RELEASED,
    SATISFIED,
    UNKNOWN,
    UNREADABLE,
)
from antecede.compiled.splitmix64 import STEP, mix
from antecede.compiled.word_heap import pop_word, push_word
from antecede.jit import njit_inline, njit_plain


class _Graph(NamedTuple):
    """The rows as a graph. Row r's causes are causes[offsets[r]:offsets[r+1]], rows of its group or one of
    SATISFIED, UNKNOWN, QUARANTINED; its effects are effects[begins[r]:begins[r+1]]."""

    offsets: Any
    causes: Any
    begins: Any
    effects: Any
    disposition: Any
    unmet: Any
    """The number of causes that each row still waits for."""
    incomplete: Any
    """Which rows are to be emitted without one of their causes."""
    heap: Any
    """The rows that are ready; later reused as a stack of quarantined rows."""


class _Search(NamedTuple):
    """The depth-first search of Tarjan's algorithm."""

    index: Any
    """The visiting order of each row, from 1; 0 for unvisited rows, -1 for rows in a completed component."""
    low_link: Any
    component: Any
    """A stack of rows whose component is not completed."""
    path: Any
    cursor: Any
    """For each row, the next cause to visit."""


@njit_plain
def decide_dispositions(
    bounds: Any, offsets: Any, causes: Any, disposition: Any, overdue: Any, release: bool, quarantine: bool
) -> Any:
    """Decide about every row whose `disposition` is HELD. Returns the rows to emit, in order, group by group.

    Group g is rows bounds[g]:bounds[g+1]; `offsets` and `causes` are as in `_Graph`. Rows that are `overdue`
    have waited long enough for UNKNOWN causes: with `release` they are emitted without them, with
    `quarantine` they are quarantined. The effects of a quarantined row are quarantined too, unless `release`
    is set.
    """
    rows = disposition.size
    begins, effects = _transpose(offsets, causes, disposition)
    unmet, incomplete = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    heap = np.empty(rows, np.int64)
    graph = _Graph(offsets, causes, begins, effects, disposition, unmet, incomplete, heap)
    search = _Search(
        np.zeros(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows + 1, np.int64),
        np.empty(rows, np.int64),
    )
    order, emitted = np.empty(rows, np.int64), 0
    for group in range(bounds.size - 1):
        low, high = bounds[group], bounds[group + 1]
        ready, held = _count_unmet(graph, low, high, overdue, release)
        before = emitted
        emitted = _emit(graph, ready, order, emitted)
        if emitted - before == held:
            continue
        cycles = _mark_cycles(graph, search, low, high)
        if not release:
            _quarantine(graph, low, high, overdue, quarantine)
        elif cycles > 0:
            emitted = _emit(graph, _free_effects_of_cycles(graph, low, high), order, emitted)
    return order[:emitted]


@njit_plain
def match_identities(owner: Any, number: Any, of_owner: Any, of_number: Any) -> Any:
    """For each row the first row with its identity, and for each dependency the first row it names, or -1.

    A hash table with open addressing; the hash is the finaliser of SplitMix64.
    """
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
        slot = np.int64(mix(np.uint64(a) * STEP + np.uint64(b)) & np.uint64(mask))
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
def _transpose(offsets: Any, causes: Any, disposition: Any) -> Any:
    """The edges from causes to effects, for the rows that are HELD."""
    rows = disposition.size
    begins = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        if disposition[row] == HELD:
            for place in range(offsets[row], offsets[row + 1]):
                if causes[place] >= 0:
                    begins[causes[place] + 1] += 1
    for row in range(rows):
        begins[row + 1] += begins[row]
    effects, filled = np.empty(begins[rows], np.int64), begins[:-1].copy()
    for row in range(rows):
        if disposition[row] == HELD:
            for place in range(offsets[row], offsets[row + 1]):
                cause = causes[place]
                if cause >= 0:
                    effects[filled[cause]] = row
                    filled[cause] += 1
    return begins, effects


@njit_inline
def _count_unmet(graph: Any, low: int, high: int, overdue: Any, release: bool) -> Any:
    """Count the causes that each row of a group waits for. Returns how many rows are ready, and how many are
    held."""
    ready = held = 0
    for row in range(low, high):
        if graph.disposition[row] != HELD:
            continue
        held += 1
        for place in range(graph.offsets[row], graph.offsets[row + 1]):
            cause = graph.causes[place]
            if cause == SATISFIED:
                continue
            never = cause == QUARANTINED or (cause >= 0 and graph.disposition[cause] == UNREADABLE)
            if release and (never or (cause == UNKNOWN and overdue[row])):
                graph.incomplete[row] = True
            else:
                graph.unmet[row] += 1
        if graph.unmet[row] == 0:
            push_word(graph.heap, ready, row)
            ready += 1
    return ready, held


@njit_inline
def _emit(graph: Any, ready: int, order: Any, emitted: int) -> int:
    """Kahn's algorithm: emit the rows on the heap and all that become ready. Returns how many have been
    emitted."""
    while ready > 0:
        row = graph.heap[0]
        pop_word(graph.heap, ready)
        ready -= 1
        graph.disposition[row] = RELEASED if graph.incomplete[row] else ORDERED
        order[emitted] = row
        emitted += 1
        for place in range(graph.begins[row], graph.begins[row + 1]):
            effect = graph.effects[place]
            graph.unmet[effect] -= 1
            if graph.unmet[effect] == 0:
                push_word(graph.heap, ready, effect)
                ready += 1
    return emitted


@njit_inline
def _mark_cycles(graph: Any, search: Any, low: int, high: int) -> int:
    """Tarjan's algorithm over the rows that are still HELD: mark those on a CYCLE. Returns how many."""
    marked = visited = depth = height = 0
    for root in range(low, high):
        if graph.disposition[root] != HELD or search.index[root] != 0:
            continue
        search.path[0], depth = root, 1
        while depth > 0:
            row = search.path[depth - 1]
            if search.index[row] == 0:
                visited += 1
                search.index[row] = search.low_link[row] = visited
                search.cursor[row] = graph.offsets[row]
                search.component[height] = row
                height += 1
            cause = _next_unvisited_cause(graph, search, row)
            if cause >= 0:
                search.path[depth] = cause
                depth += 1
                continue
            depth -= 1
            if depth > 0:
                effect = search.path[depth - 1]
                search.low_link[effect] = min(search.low_link[effect], search.low_link[row])
            if search.low_link[row] == search.index[row]:
                height, on_cycle = _complete_component(graph, search, row, height)
                marked += on_cycle
    return marked


@njit_inline
def _next_unvisited_cause(graph: Any, search: Any, row: int) -> int:
    """The next cause to descend to, or -1; lowers the row's low link by the causes passed over."""
    while search.cursor[row] < graph.offsets[row + 1]:
        cause = graph.causes[search.cursor[row]]
        search.cursor[row] += 1
        if cause < 0 or graph.disposition[cause] != HELD:
            continue
        if search.index[cause] == 0:
            return int(cause)
        if search.index[cause] > 0:
            search.low_link[row] = min(search.low_link[row], search.index[cause])
    return -1


@njit_inline
def _complete_component(graph: Any, search: Any, root: int, height: int) -> Any:
    """Pop a component from the stack; it is a CYCLE if it has several rows or its only row names itself.
    Returns the new height of the stack, and how many rows were marked."""
    is_cycle = search.component[height - 1] != root
    for place in range(graph.offsets[root], graph.offsets[root + 1]):
        is_cycle = is_cycle or graph.causes[place] == root
    marked = 0
    while True:
        height -= 1
        row = search.component[height]
        search.index[row] = -1
        if is_cycle:
            graph.disposition[row] = CYCLE
            marked += 1
        if row == root:
            return height, marked


@njit_inline
def _free_effects_of_cycles(graph: Any, low: int, high: int) -> int:
    """Release effects without their causes on cycles. Returns how many rows are ready now."""
    ready = 0
    for row in range(low, high):
        if graph.disposition[row] != CYCLE:
            continue
        for place in range(graph.begins[row], graph.begins[row + 1]):
            effect = graph.effects[place]
            if graph.disposition[effect] == HELD:
                graph.incomplete[effect] = True
                graph.unmet[effect] -= 1
                if graph.unmet[effect] == 0:
                    push_word(graph.heap, ready, effect)
                    ready += 1
    return ready


@njit_inline
def _quarantine(graph: Any, low: int, high: int, overdue: Any, quarantine: bool) -> None:
    """Quarantine the rows that can never be emitted, and everything that depends on them."""
    size = 0
    for row in range(low, high):
        if graph.disposition[row] == HELD:
            graph.disposition[row] = _disposition_by_causes(graph, row, quarantine and overdue[row])
            doomed = graph.disposition[row] != HELD
        else:
            doomed = graph.disposition[row] == CYCLE or graph.disposition[row] == UNREADABLE
        if doomed:
            graph.heap[size] = row
            size += 1
    while size > 0:
        size -= 1
        row = graph.heap[size]
        for place in range(graph.begins[row], graph.begins[row + 1]):
            effect = graph.effects[place]
            if graph.disposition[effect] == HELD:
                graph.disposition[effect] = CAUSE_QUARANTINED
                graph.heap[size] = effect
                size += 1


@njit_inline
def _disposition_by_causes(graph: Any, row: int, is_overdue: bool) -> int:
    """The disposition of a held row, determined by its causes outside the table."""
    decided = HELD
    for place in range(graph.offsets[row], graph.offsets[row + 1]):
        if graph.causes[place] == QUARANTINED:
            return CAUSE_QUARANTINED
        if graph.causes[place] == UNKNOWN and is_overdue:
            decided = OVERDUE
    return decided
