"""Writing a trace: rolled Parquet parts in bounded memory, each renamed into place when whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from antecede.errors import InputError
from antecede.trace.schema import FIELDS, META, Meta, read_meta

_BATCH_ROWS = 65_536
PART_ROWS = 1_048_576
ASIDE = ".writing"
_PART = re.compile(r"part-(\d{5,})\.parquet")


def part_name(number: int) -> str:
    """What a trace's part is called; parts are numbered from 0, in the order in which they are there."""
    return f"part-{number:05}.parquet"


def part_number(name: str) -> int | None:
    """Which part of a trace a file of this name is, if it is one."""
    found = _PART.fullmatch(name)
    number = int(found[1]) if found else 0
    return number if name == part_name(number) else None


class TraceWriter:
    """Rows into a trace folder, `part_rows` in each part. Less than `batch_rows` rows stay in memory.

    A folder that already holds a trace is written anew; any other folder with something in it is
    refused. Equal rows leave equal bytes, in however many tables they come.
    """

    def __init__(
        self,
        folder: str | Path,
        meta: Meta,
        columns: tuple[str, ...],
        *,
        batch_rows: int = _BATCH_ROWS,
        part_rows: int = PART_ROWS,
    ) -> None:
        if part_rows < 1:
            raise InputError(f"a part of a trace has at least one row, not {part_rows}")
        self.folder = Path(folder)
        self.rows = 0
        self._schema = pa.schema([(name, FIELDS[name][0]) for name in columns])
        self._waiting: list[pa.Table] = []
        self._batch_rows = batch_rows
        self._part_rows = part_rows
        self._parts = 0
        self._part: pq.ParquetWriter | None = None
        self._part_size = 0
        _make_room(self.folder)
        write_whole(self.folder / META, meta.encode())

    def extend(self, rows: pa.Table) -> None:
        """More rows; columns of names may be dictionaries, as long as they are so in every table."""
        self._waiting.append(rows)
        if sum(table.num_rows for table in self._waiting) >= self._next_rows():
            table, start = pa.concat_tables(self._waiting), 0
            while table.num_rows - start >= (rows := self._next_rows()):
                self._write(table.slice(start, rows))
                start += rows
            self._waiting = [table.slice(start)]

    def _next_rows(self) -> int:
        """How many rows are written next: a batch, or what its part still lacks."""
        return min(self._batch_rows, self._part_rows - self._part_size)

    def _write(self, table: pa.Table) -> None:
        self._opened(table.schema).write_table(table)
        self.rows += table.num_rows
        self._part_size += table.num_rows
        if self._part_size >= self._part_rows:
            self._roll()

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        if self._part is None:
            # Without Arrow's own note of the types, names are text to whoever reads them.
            self._part = pq.ParquetWriter(self._aside(), schema, compression="zstd", store_schema=False)
        return self._part

    def _roll(self) -> None:
        if self._part is not None:
            self._part.close()
            self._aside().rename(self.folder / part_name(self._parts))
            self._part, self._part_size = None, 0
            self._parts += 1

    def _aside(self) -> Path:
        return self.folder / f".{part_name(self._parts)}{ASIDE}"

    def close(self) -> None:
        """Write out what is left. A trace without events still has one (empty) part."""
        rest = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        if rest.num_rows:
            self._write(rest)
        if self._parts == 0:
            self._opened(self._schema)
        self._roll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


def write_parts(folder: Path, tables: Iterable[pa.Table], part_rows: int = PART_ROWS) -> None:
    """Rows that are tables already, as parts in an empty folder."""
    rows, part, writer = 0, 0, None
    for table in tables:
        if writer is None or rows >= part_rows:
            if writer is not None:
                writer.close()
            writer = pq.ParquetWriter(folder / part_name(part), table.schema, compression="zstd")
            rows, part = 0, part + 1
        writer.write_table(table)
        rows += table.num_rows
    if writer is not None:
        writer.close()


def _make_room(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a trace goes into a folder")
    folder.mkdir(parents=True, exist_ok=True)
    there = list(folder.iterdir())
    if (folder / META).exists():
        read_meta((folder / META).read_bytes(), f"{folder} is not written over: its {META}")
        ours = [file for file in there if _is_ours(file)]
    else:
        # An unfinished file is ours in any case: a writer was stopped before it could say so.
        ours = [file for file in there if file.suffix == ASIDE]
    if len(ours) < len(there) and not (folder / META).exists():
        raise InputError(f"{folder} has something else in it; a trace goes into a folder of its own")
    # The meta.json goes last: as long as it is there, what is left is known to be ours.
    for file in sorted(ours, key=lambda file: file.name == META):
        file.unlink()


def _is_ours(file: Path) -> bool:
    return file.name == META or file.suffix == ASIDE or bool(_PART.fullmatch(file.name))


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file so that it is there whole or not at all."""
    aside = path.with_name(f".{path.name}{ASIDE}")
    try:
        aside.write_bytes(data)
        aside.rename(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
