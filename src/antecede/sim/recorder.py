"""Events of a simulated run as rows of its trace."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from antecede.causality import MessageId
from antecede.sim.scenario import Scenario
from antecede.trace.event_tables import EventTables
from antecede.trace.schema import ADMIT, CLOSE, DELIVER, LEAVE, RECEIVE, REMOVE, SEND, SNAPSHOT
from antecede.trace.writer import TraceWriter

COLUMNS = (
    "run", "group", "process", "index", "kind", "origin", "seq", "time",
    "control_bytes", "payload_bytes", "link",
)  # fmt: skip
BATCH = 65_536
_CHANGES = {"admit": ADMIT, "leave": LEAVE, "remove": REMOVE, "disown": REMOVE, "close": CLOSE}
"""The kinds of rows for changes as members see them. A disowned process never began, and counts as
removed."""


class Recorder:
    """An observer that turns a run's events into rows of a trace, in batches."""

    def __init__(
        self, scenario: Scenario, writer: TraceWriter, receives: bool, sample: int, batch: int = BATCH
    ) -> None:
        self._groups = {group: code for code, group in enumerate(scenario.audiences())}
        self._tables = EventTables(scenario.key(), self._groups, scenario.peer_names())
        self._group_of: dict[MessageId, int] = {}
        self._payload = scenario.payload
        self._is_changing = scenario.is_changing
        self._index = np.zeros(scenario.most_processes(), np.int64)
        self._writer = writer
        self._receives, self._sample, self._batch = receives, sample, batch
        self._pending: list[tuple[int, ...]] = []
        self._seen: dict[int, np.ndarray] = {}
        """By process, if the group changes: the last message of each process that its application has."""
        self._snapshots: dict[int, tuple[int, np.ndarray]] = {}

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        if group is not None and len(self._groups) > 1:
            self._group_of[message] = self._groups[group]
        self._row(SEND, process, message, time, control=control)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self._row(RECEIVE, process, message, time, link)

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._row(DELIVER, process, message, time)

    def change(self, process: int, kind: str, member: int, message: MessageId, time: int) -> None:
        """A process has seen a change of its group."""
        self._row(_CHANGES[kind], process, message, time, member=member)

    def take_snapshot(self, sponsor: int, process: int) -> None:
        """A process is to begin with the present state of its sponsor's application."""
        self.flush()
        self._snapshots[process] = sponsor, self._seen_by(sponsor).copy()

    def start(self, process: int, time: int) -> None:
        """The process begins with that snapshot."""
        sponsor, seen = self._snapshots.pop(process)
        self._seen[process] = seen
        for origin in sorted({sponsor, *np.flatnonzero(seen).tolist()}):
            self._row(SNAPSHOT, process, MessageId(origin, int(seen[origin])), time, member=origin)

    def _seen_by(self, process: int) -> np.ndarray:
        if process not in self._seen:
            self._seen[process] = np.zeros(len(self._index), np.int64)
        return self._seen[process]

    def _note_seen(self, rows: np.ndarray) -> None:
        chosen = rows[(rows[:, 0] == SEND) | (rows[:, 0] == DELIVER)]
        for process in np.unique(chosen[:, 1]).tolist():
            mine = chosen[chosen[:, 1] == process]
            np.maximum.at(self._seen_by(process), mine[:, 2], mine[:, 3])

    def _row(
        self,
        kind: int,
        process: int,
        message: MessageId,
        time: int,
        link: int = 0,
        control: int = 0,
        member: int = 0,
    ) -> None:
        group = self._group_code(process, message)
        self._pending.append((kind, process, *message, time, link, control, group, member))
        if len(self._pending) >= self._batch:
            self.flush()

    def _group_code(self, process: int, message: MessageId) -> int:
        return self._group_of.get(message, 0)

    def flush(self) -> None:
        """Write the events that were observed one by one."""
        if self._pending:
            rows = np.array(self._pending, np.int64)
            self._pending = []
            self._write(rows[:, :-2], rows[:, -2], rows[:, -1])

    def take_rows(self, rows: np.ndarray) -> None:
        """Write many events at once, as compiled engines produce them; all are in one group."""
        self.flush()  # Earlier events.
        zeros = np.zeros(len(rows), np.int64)
        self._write(rows, zeros, zeros)

    def _write(self, rows: np.ndarray, group: np.ndarray, member: np.ndarray) -> None:
        if self._is_changing:
            self._note_seen(rows)
        if not self._receives or self._sample > 1:
            selected = (rows[:, 0] != RECEIVE) | self._receives
            selected &= ((rows[:, 3] - 1) % self._sample == 0) | (rows[:, 0] >= ADMIT)
            rows, group, member = rows[selected], group[selected], member[selected]
        self._writer.extend(self._table(rows, group, member, np.full(len(rows), self._payload)))

    def _table(
        self, rows: np.ndarray, group: np.ndarray, member: np.ndarray, payload_bytes: np.ndarray
    ) -> pa.Table:
        index = self._next_indices(rows[:, 1])
        members = member if self._is_changing else None
        return self._tables.build(rows, index, payload_bytes, group, member=members)

    def _next_indices(self, process: np.ndarray) -> np.ndarray:
        """The position of each row in its process's own order, after the rows written before."""
        size = len(self._index)
        counts = np.bincount(process, minlength=size)
        narrow = process.astype(np.uint16) if size <= 1 << 16 else process  # A radix sort takes few passes.
        order = np.argsort(narrow, kind="stable")
        index = np.empty(len(process), np.int64)
        index[order] = np.arange(len(process)) - np.repeat(np.cumsum(counts) - counts - self._index, counts)
        self._index += counts
        return index
