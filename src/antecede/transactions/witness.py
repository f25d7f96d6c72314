"""From the evidence against a level to the few transactions that show it.

First a shortest cycle is looked for among the demands of the evidence (all of them, as long as the search
visits no more than `_VISITS` nodes). Its transactions, the readers that make its demands and the shortest
chains by which they saw what they saw are a small part of the history that violates the level by itself. Then
every transaction that can be left out of that part is left out (delta debugging, Zeller and Hildebrandt
2002). What remains is minimal: without any one of its transactions, nothing would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from antecede.causality.components import component_numbers
from antecede.transactions.decide import Decision, Demands, LevelEvidence, violated_levels
from antecede.transactions.definitions import Cycle, Definitions
from antecede.transactions.history import Bools
from antecede.transactions.order_graph import causal_graph, causal_past, with_demands
from antecede.transactions.reads_from import INITIAL, ReadsFrom
from antecede.transactions.shortest import Finder

_VISITS = 20_000_000
"""The most nodes that searches for a shortest cycle may visit, about a second; then the shortest cycle so far
is taken."""
_SMALL = 64
"""Histories of up to this many transactions are searched completely, by `Definitions`."""


def find_witness(resolved: ReadsFrom, level: str, evidence: LevelEvidence) -> tuple[ReadsFrom, Cycle]:
    """A minimal part of a history that violates a level, and its shortest cycle."""

    def violated(part: ReadsFrom) -> bool:
        return violated_levels(part, [level])[level] is not None

    if resolved.transactions > _SMALL:
        if evidence.session is None:
            resolved = resolved.restrict(_involved(resolved, evidence))
        else:
            resolved = _part_of_session(resolved, evidence.session)
    if resolved.transactions <= _SMALL and (cycle := Definitions(resolved).violation(level)) is not None:
        chosen = np.zeros(resolved.transactions, np.bool_)
        chosen[list(cycle.transactions)] = True
        resolved = resolved.restrict(chosen)
    resolved = _minimise(resolved, violated)
    found = Definitions(resolved).violation(level)
    if found is None:
        raise AssertionError(f"{resolved.transactions} transactions violate {level} only as compiled")
    return resolved, found


def _involved(resolved: ReadsFrom, evidence: LevelEvidence) -> Bools:
    """Transactions that violate the level by themselves: those of a short cycle, and those that its readers
    saw."""
    chosen = np.zeros(resolved.transactions, np.bool_)
    demands = evidence.demands
    causal = Finder(*causal_graph(resolved), resolved.session_of())
    if len(demands.before) == 0:
        chosen[_causal_cycle(resolved, causal)] = True
        return chosen
    if evidence.separate:
        rows = [_nearest(causal, demands)]
        cycle = causal.path(int(demands.after[rows[0]]), int(demands.before[rows[0]]))
    else:
        cycle, rows = _demand_cycle(resolved, demands)
    chosen[cycle] = True
    for row in rows:
        chosen[causal.path(int(demands.before[row]), int(demands.reader[row]))] = True
    return chosen


def _part_of_session(resolved: ReadsFrom, session: int) -> ReadsFrom:
    """A minimal part of a history in which no order explains the reads of a session.

    Deadlines do not say by which demands they came about, so this starts from all that the session has seen
    up to the first transaction where something is wrong, found by bisection.
    """

    def violated(part: ReadsFrom) -> bool:
        return Decision(part).against_session(session) is not None

    order, session_of = Decision(resolved).causal_order, resolved.session_of()
    columns = session_of, resolved.read_start, resolved.read_writer
    low, high = resolved.session_start[session : session + 2].tolist()
    part = resolved
    while low < high:
        middle = (low + high) // 2
        shorter = resolved.restrict(causal_past(order, *columns, middle))
        if violated(shorter):
            high, part = middle, shorter
        else:
            low = middle + 1
    return _minimise(part, violated)


def _causal_cycle(resolved: ReadsFrom, finder: Finder) -> list[int]:
    """A shortest cycle of the causal order: a read whose writer follows its reader."""
    component = component_numbers(*causal_graph(resolved))
    reader = np.repeat(np.arange(resolved.transactions), np.diff(resolved.read_start))
    writer = resolved.read_writer
    rows = np.flatnonzero((writer >= 0) & (component[reader] == component[writer]))
    pairs = [(int(reader[row]), int(writer[row])) for row in rows]
    best = _shortest(finder, pairs)
    return finder.path(*pairs[best])


def _demand_cycle(resolved: ReadsFrom, demands: Demands) -> tuple[list[int], list[int]]:
    """The transactions of a shortest cycle, and the demands in it."""
    finder = Finder(*with_demands(resolved, demands.before, demands.after), resolved.session_of())
    pairs = list(zip(demands.after.tolist(), demands.before.tolist(), strict=True))
    best = _shortest(finder, pairs)
    cycle = finder.path(*pairs[best])
    rows = {(before, after): row for row, (after, before) in enumerate(pairs)}
    steps = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    return cycle, [rows[step] for step in steps if step in rows]


def _shortest(finder: Finder, pairs: list[tuple[int, int]]) -> int:
    """The pair with the fewest steps from its first to its second."""
    best, length = 0, 2**30
    for place, (source, goal) in enumerate(pairs):
        if length < 2**30 and finder.visits > _VISITS:
            break
        if (found := finder.length(source, goal, length)) < length:
            best, length = place, found
    return best


def _nearest(causal: Finder, demands: Demands) -> int:
    """Among demands that are violations by themselves, the one with the fewest steps to `before` and on to
    the reader."""
    best, length = 0, 2**30
    for row, (before, after, reader, _) in enumerate(zip(*map(np.ndarray.tolist, demands), strict=True)):
        if length < 2**30 and causal.visits > _VISITS:
            break
        found = 0 if after == INITIAL else causal.length(after, before, length)
        if found < length:
            found += causal.length(before, reader, length - found)
        if found < length:
            best, length = row, found
    return best


def _minimise(resolved: ReadsFrom, violated: Callable[[ReadsFrom], bool]) -> ReadsFrom:
    """Leave out transactions, many at a time and then one by one, as long as the rest violates the level."""
    size = max(1, resolved.transactions // 2)
    while True:
        begin, removed = 0, False
        while begin < resolved.transactions and resolved.transactions > 1:
            chosen = np.ones(resolved.transactions, np.bool_)
            chosen[begin : begin + size] = False
            part = resolved.restrict(chosen)
            if violated(part):
                resolved, removed = part, True
            else:
                begin += size
        if size == 1 and not removed:
            return resolved
        size = max(1, size // 2)
