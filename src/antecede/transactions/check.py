"""The verdict on a history: which levels it satisfies, and a witness in words for each that it does not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from antecede.transactions.decide import LevelEvidence, violated_levels
from antecede.transactions.explain import LevelViolation, explain_fault, explain_violation
from antecede.transactions.history import History, Status
from antecede.transactions.levels import IMPLIED, LEVELS
from antecede.transactions.reads_from import ReadsFrom, resolve


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
        """Whether every requested level is satisfied."""
        return all(level.ok for level in self.levels.values())


def check(
    history: History, levels: Collection[str] = tuple(LEVELS), examples: int = 10
) -> ConsistencyVerdict:
    """Decide the levels of consistency of a history.

    A history with a read that no level allows (`reads_from`) violates all of them for that reason; so many
    `examples` of such reads are explained.
    """
    resolved, faults = resolve(history, max(1, examples))
    explained = [explain_fault(history, fault) for fault in faults.first]
    if explained:
        verdicts = {level: LevelVerdict(LEVELS[level], False, explained[0]) for level in levels}
    else:
        verdicts = _verdicts(history, resolved, violated_levels(resolved, levels))
    return ConsistencyVerdict(
        sessions=history.sessions,
        transactions=history.transactions,
        aborted=int(np.count_nonzero(history.status == Status.ABORTED)),
        operations=history.operations,
        keys=history.keys,
        levels=verdicts,
        faults=faults.counts,
        fault_examples=explained[:examples],
    )


def _verdicts(
    history: History, resolved: ReadsFrom, against: dict[str, LevelEvidence | None]
) -> dict[str, LevelVerdict]:
    """Explain violations: by the smallest witness, which may also violate a weaker level."""
    verdicts = {level: LevelVerdict(LEVELS[level], True) for level in against}
    for level, evidence in against.items():
        if evidence is None:
            continue
        found = [verdicts[weaker].violation for weaker in IMPLIED.get(level, ()) if weaker in verdicts]
        weaker_witnesses = [violation for violation in found if violation]
        if weaker_witnesses and weaker_witnesses[0].pattern == "CyclicCO":
            violation = weaker_witnesses[0]
        else:
            own = explain_violation(history, resolved, level, evidence)
            violation = min([*weaker_witnesses, own], key=lambda witness: len(witness.transactions))
        verdicts[level] = LevelVerdict(LEVELS[level], False, violation)
    return verdicts
