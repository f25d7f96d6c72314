"""The trace of a live member: the same rows that a simulation leaves, in a folder of the member's own.

Rows come from the journal: each new image brings those since the last one in the same transaction. Here they
are moved on into Parquet parts, a few seconds' worth or some tens of thousands in each. A member that was
killed goes on where its last part ends, so no row is missing and none is there twice.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError, require
from antecede.live.core import Core, Event
from antecede.live.store.journal import Journal

_PART_ROWS = 50_000
_PART_SECONDS = 5.0
_decoder = msgspec.msgpack.Decoder(list[Event])


class NodeTrace:
    def __init__(
        self, folder: str | Path, run: str, group: str, protocol: str, names: list[str], me: str
    ) -> None:
        writer: Any = require("antecede.trace.writer", "sim")
        schema: Any = require("antecede.trace.schema", "sim")
        self._writer, self._schema = writer, schema
        self.folder = Path(folder) / me
        self._run, self._group, self._names, self._me = run, group, names, me
        self._written_at = time.monotonic()
        meta = schema.Meta(run, {group: names}, protocol)
        self._begin(meta)

    def _begin(self, meta: Any) -> None:
        """Find where the last part ends, or make a new folder."""
        place = self.folder / self._writer.META
        if place.exists():
            found = self._schema.read_meta(place.read_bytes(), str(place))
            if (found.run, found.groups, found.protocol) != (meta.run, meta.groups, meta.protocol):
                raise InputError(
                    f"trace: {self.folder} holds the trace of another run; give it another folder"
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise InputError(f"trace: {self.folder} has something else in it")
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

    async def keep_up(self, journal: Journal | None, core: Core) -> None:
        """Move rows on, if there are many or some have waited for long."""
        waited = time.monotonic() - self._written_at
        if journal is None:
            if core.events_waiting >= _PART_ROWS or waited > _PART_SECONDS:
                await self.finish(None, core)
        elif waited > _PART_SECONDS or core.events - self.rows >= _PART_ROWS:
            await self.finish(journal, core)

    async def finish(self, journal: Journal | None, core: Core) -> None:
        """Move all rows on."""
        if journal is None:
            taken = core.take_events()
            await asyncio.to_thread(self._write, [taken] if taken else [])
        else:
            await asyncio.to_thread(self._write, journal.events())
            journal.forget_events(self.rows)

    def _write(self, packed: list[tuple[int, bytes]]) -> None:
        self._written_at = time.monotonic()
        rows: list[Event] = []
        for first, data in packed:
            rows += _decoder.decode(data)[max(0, self.rows + len(rows) - first) :]
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
