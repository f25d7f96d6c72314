"""Cyclic faults of a dependency graph: cycles of causes alone, or of causes and a process's own order.

Records are numbers in the order of the log, so that both engines find the same paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from antecede.audit.process_order import Neighbours, early_records
from antecede.causality.components import components


class CyclicFaults(NamedTuple):
    """Counts of all cyclic faults, and paths of the first `limit` of them."""

    cycles: int
    on_cycles: int
    """How many records lie on cycles of causes."""
    early: int
    """How many records precede one of their causes in their own process."""
    cycle_paths: list[tuple[int, list[int]]]
    """The cycles, largest first: how many records, and a shortest cycle through the first of them."""
    early_paths: list[list[int]]
    """In the order of the effects: a shortest path from a cause to an effect that precedes it in its
    process."""


def cyclic_faults(
    cause: np.ndarray, effect: np.ndarray, process: np.ndarray, seq: np.ndarray, limit: int
) -> CyclicFaults:
    """The cycles of causes, and the records that precede one of their causes in their process.

    Edges are in the order of their effects. `seq` is `NO_SEQ` where a record has no number. Edges within one
    cycle are left out before the order of processes is compared.
    """
    number = np.full(len(seq), -1, np.int64)
    cycles: list[np.ndarray] = []
    if (cause >= effect).any():
        cycles = components(len(seq), cause, effect)
        cycles.sort(key=lambda each: (-len(each), int(each[0])))
    for place, each in enumerate(cycles):
        number[each] = place
    around = (number[cause] >= 0) & (number[cause] == number[effect])
    early = early_records(cause[~around], effect[~around], process, seq)
    causes = Neighbours(effect[~around], cause[~around])

    def path_to(record: int) -> list[int]:
        def is_later(other: int) -> bool:
            return bool(process[other] == process[record] and seq[other] > seq[record])

        return causes.shortest_path(record, is_later)[::-1]

    return CyclicFaults(
        cycles=len(cycles),
        on_cycles=sum(map(len, cycles)),
        early=len(early),
        cycle_paths=[(len(each), _shortest_cycle(each, cause, effect, len(seq))) for each in cycles[:limit]],
        early_paths=[path_to(record) for record in early[:limit].tolist()],
    )


def _shortest_cycle(records: np.ndarray, cause: np.ndarray, effect: np.ndarray, size: int) -> list[int]:
    inside = np.zeros(size, np.bool_)
    inside[records] = True
    within = inside[cause] & inside[effect]
    start = int(records[0])
    return Neighbours(cause[within], effect[within]).shortest_path(start, lambda record: record == start)
