"""The trace of a live member: the same rows that a simulation leaves, in a folder of the member's own.

With a journal, rows come from there: each checkpoint brings those since the last one in the same
transaction. Here they are moved into Parquet parts, a few seconds' worth or some tens of thousands in each.
A member that was killed resumes where its last part ends, so no row is missing and none is there twice.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from antecede.errors import InputError, require
from antecede.live.store.journal import Journal
from antecede.live.trace_rows import TraceRow

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = (
    "run", "group", "process", "index", "kind", "origin", "seq", "time",
    "deps", "control_bytes", "payload_bytes", "link",
)  # fmt: skip
_PART_ROWS = 50_000
_PART_SECONDS = 5.0
_decoder = msgspec.msgpack.Decoder(list[TraceRow])


class NodeTrace:
    """One member's trace folder."""

    def __init__(
        self, folder: str | Path, run: str, group: str, protocol: str, names: list[str], me: str
    ) -> None:
        require("pyarrow", "sim")
        from antecede.trace.event_tables import EventTables
        from antecede.trace.schema import Meta
        from antecede.trace.writer import TraceWriter

        self.folder = Path(folder) / me
        self._names, self._me = names, names.index(me)
        self._tables = EventTables(run, [group], names)
        try:
            self._writer = TraceWriter(
                self.folder, Meta(run, {group: names}, protocol), _COLUMNS, resume=True
            )
        except InputError as error:
            raise InputError(f"trace: {error}") from error
        self.rows = _count_rows(self.folder)
        """How many rows are in complete parts."""
        self._written_at = time.monotonic()
        self._pending: list[tuple[int, list[TraceRow]]] = []
        self._pending_rows = 0

    def add(self, first: int, rows: list[TraceRow]) -> None:
        """Rows of a member without a journal, and the index of the first."""
        self._pending.append((first, rows))
        self._pending_rows += len(rows)

    async def keep_up(self, journal: Journal | None, length: int) -> None:
        """Write a part if there are many rows, or some have waited for long; the trace has `length` rows."""
        waiting = self._pending_rows if journal is None else length - self.rows
        if waiting >= _PART_ROWS or time.monotonic() - self._written_at > _PART_SECONDS:
            await self.finish(journal)

    async def finish(self, journal: Journal | None) -> None:
        """Write all rows."""
        if journal is None:
            pending, self._pending, self._pending_rows = self._pending, [], 0
            await asyncio.to_thread(self._write, pending)
        else:
            await asyncio.to_thread(self._write_stored, journal.trace())
            journal.forget_trace(self.rows)

    def _write_stored(self, blobs: list[tuple[int, bytes]]) -> None:
        self._write([(first, _decoder.decode(blob)) for first, blob in blobs])

    def _write(self, batches: list[tuple[int, list[TraceRow]]]) -> None:
        self._written_at = time.monotonic()
        rows: list[TraceRow] = []
        for first, batch in batches:
            rows += batch[max(0, self.rows + len(rows) - first) :]
        if rows:
            self._writer.extend(self._table(rows))
            self._writer.end_part()
            self.rows += len(rows)

    def _table(self, rows: list[TraceRow]) -> pyarrow.Table:
        import numpy as np

        kind, origin, seq, times, control, payload, link, causes = zip(*rows, strict=True)
        process = [self._me] * len(rows)
        events = np.array([kind, process, origin, seq, times, link, control], np.int64).T
        index = np.arange(self.rows, self.rows + len(rows))
        deps = [None if named is None else self._dependencies(named) for named in causes]
        return self._tables.build(events, index, np.array(payload), deps=deps)

    def _dependencies(self, causes: list[tuple[int, int]]) -> list[str]:
        return [f"{self._names[peer]}:{seq}" for peer, seq in causes]


def _count_rows(folder: Path) -> int:
    """The trace of one process has as many rows as its last index says."""
    parquet: Any = require("pyarrow.parquet", "sim")
    parts = sorted(folder.glob("part-*.parquet"), key=lambda file: (len(file.name), file.name))
    if not parts:
        return 0
    last = parquet.read_table(parts[-1], columns=["index"])
    return 1 + int(last.column("index")[-1].as_py()) if last.num_rows else 0
