"""Audits a simulated run while it runs, without a trace: an observer that feeds the one-pass audit.

For many or large runs. A run that one pass cannot clear is simulated again with a trace, for the full audit;
a simulation repeats exactly.
"""

from __future__ import annotations

import numpy as np

from antecede.audit.streaming import MAX_PROCESSES, OnePassAudit
from antecede.causality import MessageId, Verdict
from antecede.sim.scenario import Scenario
from antecede.trace.schema import DELIVER, SEND

_BATCH = 65_536


def can_audit(scenario: Scenario) -> bool:
    """Whether one pass can judge such a run: one group that does not change."""
    alone = len(scenario.audiences()) == 1 and not scenario.is_changing
    return alone and scenario.peers <= MAX_PROCESSES


class AuditingObserver:
    """Judges the events of a run in the order in which they happen."""

    def __init__(self, scenario: Scenario) -> None:
        self._audit = OnePassAudit(scenario.peers)
        self._rows = 0
        self._pending: list[tuple[int, int, int, int]] = []

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self._event(SEND, process, message)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        """Packets that are received are not judged, deliveries are."""

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._event(DELIVER, process, message)

    def _event(self, kind: int, process: int, message: MessageId) -> None:
        self._pending.append((kind, process, *message))
        if len(self._pending) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            rows = np.array(self._pending, np.int64)
            self._pending = []
            self._judge(rows)

    def take_rows(self, rows: np.ndarray) -> None:
        """Many events at once, as compiled engines produce them."""
        self._flush()
        self._judge(rows)

    def _judge(self, rows: np.ndarray) -> None:
        # Events arrive in each process's own order, so any increasing numbers serve as indices.
        index = np.arange(self._rows, self._rows + len(rows))
        self._rows += len(rows)
        kind, process, origin = (np.ascontiguousarray(rows[:, place], np.int32) for place in range(3))
        self._audit.take((process, index, kind, origin, np.ascontiguousarray(rows[:, 3])))

    def verdict(self) -> Verdict | None:
        """The verdict on a clean run that has ended; None if it has to be run again with a trace."""
        self._flush()
        return self._audit.verdict()
