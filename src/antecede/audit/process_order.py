"""Finds the records that precede one of their causes, direct or transitive, in their own process.

If a record c is before its cause a in the order of their process, then that order from c to a and the causes
from a to c close a cycle. So all such records are in strongly connected components of the union of the two
orders, and a log without faults has none: linear time. Within a component, one pass over its edges for each
of its processes finds the highest number of that process among the causes of every record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from antecede.causality.components import components
from antecede.causality.topological_sort import kahn
from antecede.jit import njit_plain

NO_SEQ = np.iinfo(np.int64).min
"""The number of a record without a sequence number."""


def early_records(cause: np.ndarray, effect: np.ndarray, process: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """The records with a cause that has a higher number in the same process. Causes must not form a cycle."""
    size = len(seq)
    earlier, later, nodes = _process_order(process, seq)
    if not len(earlier) or not len(cause):
        return np.empty(0, np.int64)
    suspects = components(nodes, np.concatenate([cause, earlier]), np.concatenate([effect, later]))
    if not suspects:
        return np.empty(0, np.int64)
    member = np.full(nodes, -1, np.int64)
    for number, each in enumerate(suspects):
        member[each] = number
    within = np.flatnonzero((member[cause] >= 0) & (member[cause] == member[effect]))
    within = within[np.argsort(member[cause[within]], kind="stable")]
    bounds = np.searchsorted(member[cause[within]], np.arange(len(suspects) + 1))
    place = np.empty(size, np.int64)
    found = []
    for number, each in enumerate(suspects):
        records = each[each < size]
        edges = within[bounds[number] : bounds[number + 1]]
        place[records] = np.arange(len(records))
        local = _early_in_component(place[cause[edges]], place[effect[edges]], process[records], seq[records])
        found.append(records[local])
    return np.sort(np.concatenate(found))


def _process_order(process: np.ndarray, seq: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Edges from each record to the next ones of its process, and the number of nodes.

    Between records that share a number and those with the next one is a node of its own, so that there are at
    most two edges for each record.
    """
    numbered = np.flatnonzero(seq != NO_SEQ)
    ordered = numbered[np.lexsort((seq[numbered], process[numbered]))]
    new_process = np.ones(len(ordered), np.bool_)
    new_process[1:] = np.diff(process[ordered]) != 0
    new_number = new_process.copy()
    new_number[1:] |= seq[ordered][1:] != seq[ordered][:-1]
    # The node before the records of a number, and the node after them.
    before = len(seq) + np.cumsum(new_number)
    has_earlier = ~new_process[np.flatnonzero(new_number)][np.cumsum(new_number) - 1]
    return (
        np.concatenate([before[has_earlier], ordered]),
        np.concatenate([ordered[has_earlier], before + 1]),
        int(len(seq) + new_number.sum() + 2),
    )


def _early_in_component(
    cause: np.ndarray, effect: np.ndarray, process: np.ndarray, seq: np.ndarray
) -> np.ndarray:
    size = len(seq)
    by_effect, by_cause = np.argsort(effect, kind="stable"), np.argsort(cause, kind="stable")
    numbers = np.arange(size + 1)
    cause_start = np.searchsorted(effect[by_effect], numbers)
    order, _ = kahn(cause_start, np.searchsorted(cause[by_cause], numbers), effect[by_cause])
    processes, codes = np.unique(process, return_inverse=True)
    several = np.bincount(codes[seq != NO_SEQ], minlength=len(processes)) > 1
    early = np.zeros(size, np.bool_)
    for code in np.flatnonzero(several).tolist():
        _mark_early(order, cause_start, cause[by_effect], np.where(codes == code, seq, NO_SEQ), early)
    return early


@njit_plain
def _mark_early(order: Any, cause_start: Any, causes: Any, seq: Any, early: Any) -> None:
    """Mark the records of one process with a higher number among their causes; `seq` has only its own."""
    highest = np.full(len(seq), NO_SEQ)
    for record in order:
        best = NO_SEQ
        for edge in range(cause_start[record], cause_start[record + 1]):
            cause = causes[edge]
            best = max(best, highest[cause], seq[cause])
        highest[record] = best
        if seq[record] != NO_SEQ and best > seq[record]:
            early[record] = True


class Neighbours:
    """The edges of each record in one direction."""

    def __init__(self, source: np.ndarray, target: np.ndarray) -> None:
        order = np.argsort(source, kind="stable")
        self._source, self._target = source[order], target[order]

    def of(self, record: int) -> list[int]:
        begin, end = np.searchsorted(self._source, [record, record + 1])
        found: list[int] = self._target[begin:end].tolist()
        return found

    def shortest_path(self, start: int, is_end: Callable[[int], bool]) -> list[int]:
        """The shortest path of one edge or more, by breadth-first search; if a cycle, without its end."""
        came_from: dict[int, int] = {}
        queue = deque([start])
        while queue:
            record = queue.popleft()
            for each in self.of(record):
                if is_end(each):
                    path = [] if each == start else [each]
                    while record != start:
                        path.append(record)
                        record = came_from[record]
                    return [start, *reversed(path)]
                if each not in came_from and each != start:
                    came_from[each] = record
                    queue.append(each)
        raise AssertionError("there is no path")
