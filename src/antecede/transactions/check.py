"""The verdict on a history: which levels it satisfies, and a witness in words for each that it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from antecede.transactions.decide import violated_levels
from antecede.transactions.explain import LevelViolation, explain_fault, explain_violation
from antecede.transactions.history import History, Status
from antecede.transactions.levels import LEVELS
from antecede.transactions.reads_from import resolve


@dataclass
class LevelVerdict:
    """Whether a history satisfies one level."""

    name: str
    ok: bool
    violation: LevelViolation | None = None


@dataclass
class ConsistencyVerdict:
    """What was judged, and the verdict on each level by its short name."""

    sessions: int
    transactions: int
    aborted: int
    operations: int
    keys: int
    levels: dict[str, LevelVerdict]
    faults: dict[str, int]
    """Reads that no level allows, by pattern."""
    fault_examples: list[LevelViolation]

    @property
    def clean(self) -> bool:
        """Whether every level that was asked for is satisfied."""
        return all(level.ok for level in self.levels.values())


def check(
    history: History, levels: Collection[str] = tuple(LEVELS), examples: int = 10
) -> ConsistencyVerdict:
    """Decide the levels of consistency of a history.

    A history with a read that no level allows (`reads_from`) violates all of them for that reason; so many
    `examples` of such reads are explained.
    """
    resolved, faults = resolve(history)
    explained = [explain_fault(history, fault) for fault in faults[: max(1, examples)]]
    verdicts: dict[str, LevelVerdict] = {}
    if faults:
        verdicts = {level: LevelVerdict(LEVELS[level], False, explained[0]) for level in levels}
    else:
        for level, evidence in violated_levels(resolved, levels).items():
            violation = explain_violation(history, resolved, level, evidence) if evidence else None
            verdicts[level] = LevelVerdict(LEVELS[level], violation is None, violation)
    return ConsistencyVerdict(
        sessions=history.sessions,
        transactions=history.transactions,
        aborted=int(np.count_nonzero(history.status == Status.ABORTED)),
        operations=history.operations,
        keys=history.keys,
        levels=verdicts,
        faults=dict(Counter(fault.pattern for fault in faults)),
        fault_examples=explained[:examples],
    )
