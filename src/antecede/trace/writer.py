"""Writing a trace: Parquet parts of bounded size, each renamed into place when it is complete.

Simulations and live members write their traces by the same `TraceWriter`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antecede.durability import create_private, sync_file, sync_folder
from antecede.errors import InputError
from antecede.trace.parquet_files import parquet_writer
from antecede.trace.schema import FIELDS, META, META_FOLDER, Meta, read_meta

_BATCH_ROWS = 65_536
PART_ROWS = 1_048_576
UNFINISHED = ".writing"
"""The suffix of a file until it is complete and renamed."""
_PART = re.compile(r"part-(\d{5,})\.parquet")


def part_name(number: int) -> str:
    """The file name of a part; parts are numbered from 0 in the order of their rows."""
    return f"part-{number:05}.parquet"


def part_number(name: str) -> int | None:
    """The number of the part with this file name, or None if it is not a part."""
    match = _PART.fullmatch(name)
    number = int(match[1]) if match else 0
    return number if name == part_name(number) else None


class TraceWriter:
    """Writes rows into a trace folder, `part_rows` in each part, with fewer than `batch_rows` rows in memory.

    An existing trace is replaced, or continued with `resume` if it is of the same run; a folder that contains
    anything else is refused. Equal rows give equal bytes, in whatever tables they arrive. Only the owner can
    read it. With `durable` each part survives a power failure once it has its name.
    """

    def __init__(
        self,
        folder: str | Path,
        meta: Meta,
        columns: tuple[str, ...],
        *,
        batch_rows: int = _BATCH_ROWS,
        part_rows: int = PART_ROWS,
        resume: bool = False,
        durable: bool = False,
    ) -> None:
        if part_rows < 1:
            raise InputError(f"a part of a trace has at least one row, not {part_rows}")
        self.folder = Path(folder)
        self.rows = 0
        self._meta, self._is_durable = meta, durable
        self._schema = pa.schema([(name, FIELDS[name][0]) for name in columns])
        self._waiting: list[pa.Table] = []
        self._batch_rows = batch_rows
        self._part_rows = part_rows
        self._part: pq.ParquetWriter | None = None
        self._part_size = 0
        if resume and (self.folder / META).exists():
            self._meta = _read_same_meta(self.folder, meta)
            self._parts = _count_parts(self.folder)
        else:
            self._parts = 0
            _clear(self.folder)
            self._write_meta()

    def extend(self, rows: pa.Table) -> None:
        """Add rows. Columns of names may be dictionary-encoded, if they are so in every table."""
        self._waiting.append(rows)
        if sum(table.num_rows for table in self._waiting) >= self._next_rows():
            table, start = pa.concat_tables(self._waiting), 0
            while table.num_rows - start >= (rows := self._next_rows()):
                self._write(table.slice(start, rows))
                start += rows
            self._waiting = [table.slice(start)]

    def _next_rows(self) -> int:
        """The number of rows to write next: a batch, or the rest of the part."""
        return min(self._batch_rows, self._part_rows - self._part_size)

    def _write(self, table: pa.Table) -> None:
        self._open_part(table.schema).write_table(table)
        self.rows += table.num_rows
        self._part_size += table.num_rows
        if self._part_size >= self._part_rows:
            self._finish_part()

    def _open_part(self, schema: pa.Schema) -> pq.ParquetWriter:
        if self._part is None:
            # Without Arrow's own schema, dictionary-encoded names are read as text.
            self._part = parquet_writer(self._unfinished(), schema, store_schema=False)
        return self._part

    def _write_meta(self) -> None:
        (self.folder / META_FOLDER).mkdir(mode=0o700, exist_ok=True)
        write_whole(self.folder / META, self._meta.encode(), self._is_durable)
        if self._is_durable:
            sync_folder(self.folder / META_FOLDER)

    def _finish_part(self) -> None:
        if self._part is not None:
            self._part.close()
            if self._is_durable:
                sync_file(self._unfinished())
            self._unfinished().rename(self.folder / part_name(self._parts))
            if self._is_durable:
                sync_folder(self.folder)
            self._part, self._part_size = None, 0
            self._parts += 1

    def _unfinished(self) -> Path:
        return self.folder / f".{part_name(self._parts)}{UNFINISHED}"

    def end_part(self) -> None:
        """Complete a part with the rows so far, for readers that follow the trace."""
        if self._waiting:
            rest, self._waiting = pa.concat_tables(self._waiting), []
            if rest.num_rows:
                self._write(rest)
        self._finish_part()

    def abandon_part(self) -> None:
        """Discard the part that is being written, after an error: its rows can be added again."""
        part, self._part, self._part_size, self._waiting = self._part, None, 0, []
        with contextlib.suppress(OSError, pa.ArrowException):
            if part is not None:
                part.close()
        with contextlib.suppress(OSError):
            self._unfinished().unlink(missing_ok=True)

    def note_missing(self, first: int, last: int) -> None:
        """Record in meta.json that the rows with these indices are lost: the trace is incomplete."""
        before = [span for span in self._meta.parameters.get("missing", []) if span[0] != first]
        missing = [*before, [first, last]]
        parameters = {**self._meta.parameters, "missing": missing}
        self._meta = msgspec.structs.replace(self._meta, parameters=parameters)
        self._write_meta()

    def close(self) -> None:
        """Write the remaining rows. A trace without events still has one empty part."""
        self.end_part()
        if self._parts == 0:
            self._open_part(self._schema)
            self._finish_part()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


def write_parts(folder: Path, tables: Iterable[pa.Table], part_rows: int = PART_ROWS) -> None:
    """Write tables as they are, as parts in an empty folder."""
    rows, part, writer = 0, 0, None
    for table in tables:
        if writer is None or rows >= part_rows:
            if writer is not None:
                writer.close()
            writer = parquet_writer(folder / part_name(part), table.schema)
            rows, part = 0, part + 1
        writer.write_table(table)
        rows += table.num_rows
    if writer is not None:
        writer.close()


def _read_same_meta(folder: Path, meta: Meta) -> Meta:
    """The meta.json of a trace that is to be continued."""
    before = read_meta((folder / META).read_bytes(), str(folder / META))
    if (before.run, before.groups, before.protocol) != (meta.run, meta.groups, meta.protocol):
        raise InputError(f"{folder} holds the trace of another run; name another folder")
    return before


def _count_parts(folder: Path) -> int:
    """The number of parts of a trace that is to be continued."""
    numbers = [part_number(file.name) for file in folder.iterdir()]
    return 1 + max((number for number in numbers if number is not None), default=-1)


def _clear(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a trace goes into a folder")
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for file in folder.iterdir() if file.name != META_FOLDER]
    if (folder / META).exists():
        read_meta((folder / META).read_bytes(), f"{folder} is not written over: its {META}")
        ours = [file for file in files if _is_ours(file)]
    else:
        # An unfinished file is ours in any case: a writer was stopped before it wrote meta.json.
        ours = [file for file in files if file.suffix == UNFINISHED]
    if len(ours) < len(files) and not (folder / META).exists():
        raise InputError(f"{folder} has something else in it; a trace goes into a folder of its own")
    # meta.json is removed last: while it exists, the other files are known to be ours.
    for file in ours:
        file.unlink()
    (folder / META).unlink(missing_ok=True)


def _is_ours(file: Path) -> bool:
    return file.suffix == UNFINISHED or bool(_PART.fullmatch(file.name))


def write_whole(path: Path, data: bytes, durable: bool = False) -> None:
    """Write a small file atomically: readers see it complete or not at all. Only its owner can read it; with
    `durable` it survives a power failure."""
    unfinished = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        create_private(unfinished)
        unfinished.write_bytes(data)
        if durable:
            sync_file(unfinished)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
