"""Writes a source as a table of events to be ordered, including the rows that cannot be read.

An unreadable row contains only its location, the reason and its original text; `order` quarantines it. So no
part of a source is lost, however malformed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from antecede.trace.bad_rows import UNREADABLE, UNREADABLE_ROW, BadRows
from antecede.trace.parquet_files import parquet_writer

_BATCH_ROWS = 4_096
_ROW = re.compile(r"(?:row|line|span|request|trace|transaction|commit) (\d{1,18})")


class EventTable:
    """Writes a table of events as Parquet, with a row for each bad row that `bad` counts and that has a
    text."""

    def __init__(self, file: Path, schema: pa.Schema, bad: BadRows, names: Mapping[str, str]) -> None:
        """`names` maps paths of the source's files to the user's names for them."""
        self._schema = schema.append(pa.field(UNREADABLE, pa.string()))
        self._schema = self._schema.append(pa.field(UNREADABLE_ROW, pa.binary()))
        self._file, self._bad, self._names = file, bad, names
        self._unreadable: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._writer = parquet_writer(self._file, self._schema)
        self._bad.quarantine = self._quarantine
        return self

    def __exit__(self, *_: object) -> None:
        self._bad.quarantine = None
        self._write_unreadable()
        self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Write rows that could be read."""
        for name in (UNREADABLE, UNREADABLE_ROW):
            table = table.append_column(name, pa.nulls(table.num_rows, self._schema.field(name).type))
        self._writer.write_table(table)

    def _quarantine(self, file: str, why: str, text: bytes) -> None:
        file, row = self._names.get(file, file), _ROW.match(why)
        place = {"file": file, "row": int(row[1]) if row else None}
        self._unreadable.append(place | {UNREADABLE: f"{Path(file).name}, {why}", UNREADABLE_ROW: text})
        if len(self._unreadable) >= _BATCH_ROWS:
            self._write_unreadable()

    def _write_unreadable(self) -> None:
        rows, self._unreadable = self._unreadable, []
        if rows:
            arrays = [
                pa.array([row.get(field.name) for row in rows]).cast(field.type) for field in self._schema
            ]
            self._writer.write_table(pa.table(arrays, schema=self._schema))
