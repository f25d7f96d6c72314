"""The trace of a live member: the same rows that a simulation leaves, in a folder of the member's own.

With a journal, rows come from there: each checkpoint brings those since the last one in the same
transaction. Here they are moved into Parquet parts, a few seconds' worth or some tens of thousands in each.
A member that was killed resumes where its last part ends, so no row is missing and none is there twice.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError, require
from antecede.live.store.journal import Journal
from antecede.live.trace_rows import TraceRow

_PART_ROWS = 50_000
_PART_SECONDS = 5.0
_decoder = msgspec.msgpack.Decoder(list[TraceRow])


class NodeTrace:
    """One member's trace folder."""

    def __init__(
        self, folder: str | Path, run: str, group: str, protocol: str, names: list[str], me: str
    ) -> None:
        writer: Any = require("antecede.trace.writer", "sim")
        schema: Any = require("antecede.trace.schema", "sim")
        self._writer, self._schema = writer, schema
        self.folder = Path(folder) / me
        self._run, self._group, self._names, self._me = run, group, names, me
        self._written_at = time.monotonic()
        self._pending: list[tuple[int, list[TraceRow]]] = []
        self._pending_rows = 0
        meta = schema.Meta(run, {group: names}, protocol)
        self._open(meta)

    def _open(self, meta: Any) -> None:
        """Find where the last part ends, or make a new folder."""
        place = self.folder / self._writer.META
        if place.exists():
            found = self._schema.read_meta(place.read_bytes(), str(place))
            if (found.run, found.groups, found.protocol) != (meta.run, meta.groups, meta.protocol):
                raise InputError(f"trace: {self.folder} holds the trace of another run; name another folder")
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise InputError(f"trace: {self.folder} has something else in it; name another folder")
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._writer.write_whole(place, meta.encode())
        numbers = [self._writer.part_number(file.name) for file in self.folder.iterdir()]
        self._parts = 1 + max((number for number in numbers if number is not None), default=-1)
        self.rows = 0
        """How many rows are in the parts."""
        if self._parts:
            parquet: Any = require("pyarrow.parquet", "sim")
            last = parquet.read_table(
                self.folder / self._writer.part_name(self._parts - 1), columns=["index"]
            )
            self.rows = 1 + int(last.column("index")[-1].as_py()) if last.num_rows else 0

    def add(self, first: int, rows: list[TraceRow]) -> None:
        """Rows of a member without a journal, and the index of the first."""
        self._pending.append((first, rows))
        self._pending_rows += len(rows)

    async def keep_up(self, journal: Journal | None, length: int) -> None:
        """Write a part if there are many rows, or some have waited for long; `length` is of the whole
        trace."""
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
        if not rows:
            return
        arrow: Any = require("pyarrow", "sim")
        parquet: Any = require("pyarrow.parquet", "sim")
        names = self._names
        sends = [row.kind == "send" for row in rows]
        columns = {
            "run": [self._run] * len(rows),
            "group": [self._group] * len(rows),
            "process": [self._me] * len(rows),
            "index": list(range(self.rows, self.rows + len(rows))),
            "kind": [row.kind for row in rows],
            "origin": [names[row.origin] for row in rows],
            "seq": [row.seq for row in rows],
            "time": [row.time for row in rows],
            "deps": [_named(row.causes, names) for row in rows],
            "control_bytes": [row.control if send else None for row, send in zip(rows, sends, strict=True)],
            "payload_bytes": [row.payload if send else None for row, send in zip(rows, sends, strict=True)],
            "link": [names[row.link] if row.link >= 0 else None for row in rows],
        }
        schema = arrow.schema([(name, self._schema.FIELDS[name][0]) for name in columns])
        name = self._writer.part_name(self._parts)
        aside = self.folder / f".{name}{self._writer.ASIDE}"
        parquet.write_table(
            arrow.table(columns, schema=schema), aside, compression="zstd", store_schema=False
        )
        aside.rename(self.folder / name)
        self._parts += 1
        self.rows += len(rows)


def _named(causes: list[tuple[int, int]] | None, names: list[str]) -> list[str] | None:
    return None if causes is None else [f"{names[peer]}:{seq}" for peer, seq in causes]
