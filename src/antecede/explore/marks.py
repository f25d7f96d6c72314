"""Faults of a run as marks on its events: the audit's findings by lane, event and message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from antecede.audit.core import Finding, RunAudit, judge_run, members_by_run
from antecede.audit.faults import DeliveryFault
from antecede.audit.streaming import verdict_if_clean
from antecede.causality import Verdict
from antecede.engine_choice import TRACES, usable_memory
from antecede.explore.columns import RunColumns
from antecede.explore.layout import NO_SEND, Events
from antecede.trace.reader import estimate_rows, read_metas, read_table, trace_files
from antecede.trace.schema import DELIVER

MAX_MARKS = 1_000
"""The most marks of each kind; all faults are counted."""
_MANY_ROWS = 1_000_000
"""Above this many rows, a one-pass audit is attempted first."""


class Mark(msgspec.Struct, frozen=True):
    """A fault at the event where it is visible. Numbers are -1 for none."""

    kind: str
    """`causal` for a delivery before its cause, or a kind of `DeliveryFault`."""
    text: str
    lane: int
    event: int
    """The event at which it shows: the delivery, or the send of a missing message."""
    message: int
    path: list[int]
    """The messages from the cause to the effect."""


class Judged(NamedTuple):
    """The marks of a run, worst first, and its counts; a sentence instead, if the run was not judged."""

    marks: list[Mark]
    faults: int
    impossible: np.ndarray
    """Events that precede their own send."""
    note: str


def judge(path: Path, columns: RunColumns, events: Events) -> Judged:
    """Judge the run in this process, without Spark: in one pass if it is large and clean."""
    none = np.empty(0, np.int64)
    files = trace_files(path)
    rows = estimate_rows(files)
    members = members_by_run(read_metas(path)).get(columns.run, {})
    if not (columns.kind == DELIVER).any():
        return Judged([], 0, none, "The trace has no deliveries.")
    is_parquet = all(file.suffix == ".parquet" for file in files)
    if rows > _MANY_ROWS and is_parquet and verdict_if_clean(files, columns.run, members) is not None:
        return Judged([], 0, none, "")
    if rows * TRACES.row_bytes > usable_memory():
        note = (
            "Violations were not looked for: it takes too much memory here. antecede audit does it on Spark."
        )
        return Judged([], 0, none, note)
    table = read_table(files)
    mine = table.filter(pc.equal(table.column("run"), columns.run))
    del table
    found = judge_run(columns.run, mine, members, MAX_MARKS)
    places = _Places(columns, events)
    marks = [*_causal_marks(found.findings, places), *_fault_marks(found.faults, places)]
    return Judged(marks, _count(found.verdict), places.impossible(found), "")


def _count(verdict: Verdict) -> int:
    return sum(getattr(verdict, name) for name in Verdict.FAULTS)


class _Places:
    """Maps the audit's names to lanes, events and messages."""

    def __init__(self, columns: RunColumns, events: Events) -> None:
        self._columns, self._events = columns, events
        self._lanes = {name: lane for lane, name in enumerate(columns.origins)}
        ids = columns.messages.ids
        self._by_id = {text: number for number, text in enumerate(ids) if text} if ids else {}

    def lane(self, process: str) -> int:
        lane = self._lanes.get(process, -1)
        return lane if lane < len(self._columns.lanes) else -1

    def message(self, shown: str) -> int:
        """The number of a message by its own id or as ORIGIN:SEQ; -1 if there is none."""
        if shown in self._by_id:
            return self._by_id[shown]
        origin, _, seq = shown.rpartition(":")
        first, numbers = self._columns.messages.first, self._columns.messages.seq
        if origin not in self._lanes or not seq.isdigit():
            return -1
        low, high = first[self._lanes[origin]], first[self._lanes[origin] + 1]
        place = int(low + np.searchsorted(numbers[low:high], int(seq)))
        return place if place < high and numbers[place] == int(seq) else -1

    def at(self, lane: int, index: int | None) -> int:
        """The event with this index; -1 if it is not shown."""
        if lane < 0 or index is None:
            return -1
        low, high = self._columns.lane_start[lane : lane + 2]
        row = low + np.searchsorted(self._columns.index_in_trace[low:high], index)
        event = int(np.searchsorted(self._events.row, row))
        return event if event < self._events.size and self._events.row[event] == row else -1

    def deliveries(self, pairs: set[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
        """The deliveries of some messages at some lanes, in the order of the lanes."""
        numbers = np.array([message for _, message in pairs], np.int64)
        events = self._events
        is_one = (events.kind == DELIVER) & np.isin(events.message, numbers)
        for event in np.flatnonzero(is_one).tolist():
            pair = int(events.lane[event]), int(events.message[event])
            if pair in pairs:
                yield pair, event

    def send(self, message: int) -> int:
        return int(self._events.send[message]) if message >= 0 else NO_SEND

    def impossible(self, found: RunAudit) -> np.ndarray:
        """Every delivery of a message at a process that delivered it before its send."""
        faults = [fault for fault in found.faults if fault.kind == "impossible"]
        pairs = {(self.lane(fault.process), self.message(fault.message)) for fault in faults}
        return np.array([event for _, event in self.deliveries(pairs)] if pairs else [], np.int64)


def _causal_marks(findings: Iterable[Finding], places: _Places) -> list[Mark]:
    paths = [[places.message(key) for key in finding.keys] for finding in findings]
    lanes = [places.lane(finding.process) for finding in findings]
    wanted = {(lane, path[-1]) for lane, path in zip(lanes, paths, strict=True)}
    first: dict[tuple[int, int], int] = {}
    for pair, event in places.deliveries(wanted) if wanted else ():
        first.setdefault(pair, event)
    return [
        Mark("causal", finding.text, lane, first.get((lane, path[-1]), -1), path[-1], path)
        for finding, lane, path in zip(findings, lanes, paths, strict=True)
    ]


def _fault_marks(faults: Iterable[DeliveryFault], places: _Places) -> list[Mark]:
    marks = []
    for fault in faults:
        lane, message = places.lane(fault.process), places.message(fault.message)
        event = places.send(message) if fault.kind == "missing" else places.at(lane, fault.index)
        marks.append(Mark(fault.kind, fault.text, lane, event, message, []))
    return marks
