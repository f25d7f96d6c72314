"""The trace of a live member: the same rows as a simulation's, in a folder of the member's own.

Rows stay in the core's buffer until a Parquet part that contains them is complete and synced; a part has a
few seconds' worth of rows, or some tens of thousands. A checkpoint of the store contains the rows that are
not in a part yet, and a replay of its log reproduces later ones. A member that was killed therefore resumes
where its last part ends: no row is missing, and none occurs twice.

A folder that cannot be written never stops the member: the error is reported, and writing is retried. Rows
that had to be dropped meanwhile, or were in a damaged part, are listed as `missing` in the trace's meta.json.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antecede.errors import InputError, require
from antecede.live.operations.logs import Log
from antecede.live.trace_rows import TraceBuffer, TraceRow

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = (
    "run", "group", "process", "index", "kind", "origin", "seq", "time",
    "deps", "control_bytes", "payload_bytes", "link",
)  # fmt: skip
_CHANGING_COLUMNS = (*(name for name in _COLUMNS if name != "deps"), "member")
_PART_ROWS = 50_000
_PART_SECONDS = 5.0


class NodeTrace:
    """One member's trace folder, which receives the rows of `buffer`.

    In a dynamic group, `names` grows, and rows identify the incarnation of the member. The folder's name then
    also contains `changing_store`, the identifier of the store: a member may continue with another store.
    """

    def __init__(
        self,
        folder: str | Path,
        run: str,
        group: str,
        protocol: str,
        names: list[str],
        me: str,
        buffer: TraceBuffer,
        changing_store: str | None = None,
    ) -> None:
        require("pyarrow", "sim")
        from antecede.trace.event_tables import EventTables
        from antecede.trace.schema import Meta
        from antecede.trace.writer import TraceWriter

        is_changing = changing_store is not None
        self.folder = Path(folder) / (f"{me}-{changing_store}" if is_changing else me)
        self.problem = ""
        """Why the last attempt to write failed."""
        self._names, self._buffer, self._is_changing = names, buffer, is_changing
        self._me = -1 if is_changing else names.index(me)
        self._log = Log(group, me)
        self._run, self._group = run, group
        self._tables = EventTables(run, [group], names)
        try:
            _set_aside_damaged_part(self.folder, self._log)
            # In a dynamic group, the rows themselves name the members.
            meta = Meta(run, {} if is_changing else {group: names}, protocol)
            columns = _CHANGING_COLUMNS if is_changing else _COLUMNS
            self._writer = TraceWriter(self.folder, meta, columns, resume=True, durable=True)
        except InputError as error:
            raise InputError(f"trace: {error}") from error
        except OSError as error:
            raise InputError(f"trace: {error.filename}: {error.strerror}") from error
        self.rows = _count_rows(self.folder)
        """How many rows are in complete parts."""
        if self.rows > buffer.length:
            raise InputError(
                f"trace: {self.folder} has {self.rows:,} rows, and the store of {me} only {buffer.length:,}: "
                "it is the trace of another store; name another folder, or remove this one"
            )
        buffer.drop_before(self.rows)
        self._written_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether there are many rows, or some have waited for long."""
        waited = time.monotonic() - self._written_at
        return len(self._buffer.rows) >= _PART_ROWS or (bool(self._buffer.rows) and waited > _PART_SECONDS)

    async def write(self) -> None:
        """Write all rows that are durable; on failure, set `problem` to the reason."""
        first, rows = self._buffer.durable_rows()
        self._written_at = time.monotonic()
        try:
            await asyncio.to_thread(self._write, first, rows)
        except Exception as error:
            self._writer.abandon_part()
            self.problem = f"the trace {self.folder} cannot be written: {error}"
        else:
            self._buffer.drop_before(self.rows)
            self.problem = ""

    def _write(self, first: int, rows: list[TraceRow]) -> None:
        if not rows:
            return
        if first > self.rows:
            text = f"the trace {self.folder} is incomplete: rows {self.rows} to {first - 1} are lost"
            self._log.warning("%s", text)
            self._writer.note_missing(self.rows, first - 1)
        self._writer.extend(self._table(first, rows))
        self._writer.end_part()
        self.rows = first + len(rows)

    def _table(self, first: int, rows: list[TraceRow]) -> pyarrow.Table:
        import numpy as np

        kind, origin, seq, times, control, payload, link, causes, member, process = zip(*rows, strict=True)
        if not self._is_changing:
            process = (self._me,) * len(rows)
        events = np.array([kind, process, origin, seq, times, link, control], np.int64).T
        index = np.arange(first, first + len(rows))
        if self._is_changing:
            from antecede.trace.event_tables import EventTables

            tables = EventTables(self._run, [self._group], self._names)
            return tables.build(events, index, np.array(payload), member=np.array(member))
        deps = [None if named is None else self._dependencies(named) for named in causes]
        return self._tables.build(events, index, np.array(payload), deps=deps)

    def _dependencies(self, causes: list[tuple[int, int]]) -> list[str]:
        return [f"{self._names[peer]}:{seq}" for peer, seq in causes]


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"), key=lambda file: (len(file.name), file.name))


def _set_aside_damaged_part(folder: Path, log: Log) -> None:
    """Set aside a last part that was truncated: its rows are written again if the store still has them."""
    from antecede.trace.parquet_files import parquet_file

    arrow: Any = require("pyarrow", "sim")
    for part in _parts(folder)[-1:]:
        try:
            with parquet_file(part) as file:
                file.read()
        except (OSError, arrow.ArrowException) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            aside = part.with_name(f".{part.name}.damaged")
            log.warning("%s is damaged and put aside as %s: %s", part, aside.name, error)
            part.replace(aside)


def _count_rows(folder: Path) -> int:
    """How many rows there are: the trace of one process has consecutive indices."""
    parquet: Any = require("pyarrow.parquet", "sim")
    for part in reversed(_parts(folder)):
        last = parquet.read_table(part, columns=["index"])
        if last.num_rows:
            return 1 + int(last.column("index")[-1].as_py())
    return 0
