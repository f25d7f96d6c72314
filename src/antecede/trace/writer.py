"""Writing a trace: rolled Parquet parts in bounded memory, each renamed into place when whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from antecede.errors import InputError
from antecede.trace.schema import FIELDS, Meta, read_meta

META = "meta.json"
_BATCH_ROWS = 65_536
_PART_ROWS = 1_048_576
_ASIDE = ".writing"
_PART = re.compile(r"part-\d{5,}\.parquet")


class TraceWriter:
    """Rows into a trace folder. At most `batch_rows` rows are in memory at a time.

    A folder that already holds a trace is written anew; any other folder with something in it is
    refused. Equal rows leave equal bytes.
    """

    def __init__(
        self,
        folder: str | Path,
        meta: Meta,
        columns: tuple[str, ...],
        *,
        batch_rows: int = _BATCH_ROWS,
        part_rows: int = _PART_ROWS,
    ) -> None:
        self.folder = Path(folder)
        self.rows = 0
        self._schema = pa.schema([(name, FIELDS[name][0]) for name in columns])
        self._pending: list[tuple[Any, ...]] = []
        self._batch_rows = batch_rows
        self._part_rows = part_rows
        self._parts = 0
        self._part: pq.ParquetWriter | None = None
        self._part_size = 0
        _make_room(self.folder)
        write_whole(self.folder / META, meta.encode())

    def append(self, row: tuple[Any, ...]) -> None:
        """A row, in the order of the columns."""
        self._pending.append(row)
        if len(self._pending) >= self._batch_rows:
            self._flush()

    def _flush(self) -> None:
        rows = len(self._pending)
        if rows == 0:
            return
        if self._part is None:
            self._part = pq.ParquetWriter(self._aside(), self._schema, compression="zstd")
        columns = zip(*self._pending, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._part.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._pending = []
        self.rows += rows
        self._part_size += rows
        if self._part_size >= self._part_rows:
            self._roll()

    def _roll(self) -> None:
        if self._part is not None:
            self._part.close()
            self._aside().rename(self.folder / f"part-{self._parts:05}.parquet")
            self._part, self._part_size = None, 0
            self._parts += 1

    def _aside(self) -> Path:
        return self.folder / f".part-{self._parts:05}.parquet{_ASIDE}"

    def close(self) -> None:
        """Write out what is left. A trace without events still has one (empty) part."""
        self._flush()
        if self._part is None and self._parts == 0:
            self._part = pq.ParquetWriter(self._aside(), self._schema, compression="zstd")
        self._roll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


def write_parts(folder: Path, tables: Iterable[pa.Table], part_rows: int = _PART_ROWS) -> None:
    """Rows that are tables already, as parts in an empty folder."""
    rows, part, writer = 0, 0, None
    for table in tables:
        if writer is None or rows >= part_rows:
            if writer is not None:
                writer.close()
            writer = pq.ParquetWriter(folder / f"part-{part:05}.parquet", table.schema, compression="zstd")
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
        ours = [file for file in there if file.suffix == _ASIDE]
    if len(ours) < len(there) and not (folder / META).exists():
        raise InputError(f"{folder} has something else in it; a trace goes into a folder of its own")
    # The meta.json goes last: as long as it is there, what is left is known to be ours.
    for file in sorted(ours, key=lambda file: file.name == META):
        file.unlink()


def _is_ours(file: Path) -> bool:
    return file.name == META or file.suffix == _ASIDE or bool(_PART.fullmatch(file.name))


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file so that it is there whole or not at all."""
    aside = path.with_name(f".{path.name}{_ASIDE}")
    aside.write_bytes(data)
    aside.rename(path)
