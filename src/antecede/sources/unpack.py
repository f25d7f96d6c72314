"""Copies of inputs that cannot be read in place: Delta and Iceberg tables, compressed files, tables with
tabs.

A Delta or Iceberg table is more than the Parquet files in its folder: its log says which of them count, and
which rows of them are deleted. They are read by the libraries `deltalake` and `pyiceberg`, which are extras;
without them such a folder is refused. Rows are copied in batches. A table may name files outside its folder;
those are not read.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from antecede.errors import InputError, require
from antecede.sources.records import likely_separator
from antecede.trace.copies import COMPRESSED, register_copy
from antecede.trace.foreign.open_files import (
    compression,
    open_bytes,
    open_text,
    read_head,
    streaming_limit,
    text_encoding,
)
from antecede.trace.parquet_files import parquet_writer
from antecede.trace.table_folders import (
    DELTA,
    ICEBERG,
    iceberg_metadata,
    refuse_table_folder,
    table_folder,
)
from antecede.trace.validate import first_line

TABLE_COPY = "table.parquet"
"""The one file of a copy of a Delta or Iceberg table."""
_TABLES_IN_TEXT = (".csv", ".tsv", ".tab")


def needs_copy(path: Path, separators: bool = True) -> bool:
    """Whether readers of traces and tables need a copy of the file or folder at a path.

    Without `separators`, they determine themselves what separates the fields of a table.
    """
    if path.is_dir():
        if table_folder(path) is not None:
            return True
        return any(_is_packed(file, separators) for file in _visible(path))
    return path.is_file() and _is_packed(path, separators)


def holds_packed_parquet(path: Path) -> bool:
    """Whether a file is compressed Parquet, or a folder contains one; Parquet is read from its end."""
    files = _visible(path) if path.is_dir() else [path] if path.is_file() else []
    return any(file.suffix in COMPRESSED and read_head(file, 4) == b"PAR1" for file in files)


def copy_for_readers(path: Path, folder: Path, separators: bool = True, max_bytes: int | None = None) -> Path:
    """A copy in `folder` that readers of traces and tables can read; `max_bytes` is for each file."""
    kind = table_folder(path) if path.is_dir() else None
    if kind is not None:
        if kind not in (DELTA, ICEBERG):
            refuse_table_folder(path, [".hoodie"])
        copy = folder / path.resolve().name
        copy.mkdir()
        version, batches = _open_delta(path) if kind == DELTA else _open_iceberg(path)
        table = copy / TABLE_COPY
        _write(batches, table, path)
        register_copy(table, path, ".parquet", version)
        return copy
    if path.is_dir():
        copy = folder / path.resolve().name
        for file in _visible(path):
            target = copy / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if _is_packed(file, separators):
                _unpack(file, target.parent, separators, max_bytes)
            else:
                target.symlink_to(file.resolve())
        return copy
    return _unpack(path, folder, separators, max_bytes)


def _visible(path: Path) -> Iterator[Path]:
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
            yield file


# Files


def _is_packed(file: Path, separators: bool) -> bool:
    """Whether a file is compressed, or a table whose fields no comma separates."""
    with file.open("rb") as stream:
        head = stream.read(8)
    try:
        if compression(head) is not None:
            return True
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return separators and file.suffix in _TABLES_IN_TEXT and _separator(file, file.suffix) != ","


def _separator(file: Path, suffix: str) -> str:
    if suffix in (".tsv", ".tab"):
        return "\t"
    head = read_head(file, 1 << 16)
    return likely_separator(head.decode(text_encoding(head), errors="replace").split("\n", 1)[0])


def _unpack(file: Path, folder: Path, separators: bool, max_bytes: int | None) -> Path:
    """Decompress a file, and write its table with commas, under the name that it has.

    Only Parquet is called what it is, as Spark takes files by their names.
    """
    unpacked = Path(file.stem) if file.suffix in COMPRESSED else Path(file.name)
    target = folder / (unpacked if unpacked.suffix == ".parquet" else file.name)
    limit = max_bytes or streaming_limit(file)
    with file.open("rb") as raw:
        compressed = compression(raw.read(8)) is not None
    suffix = unpacked.suffix
    if separators and suffix in _TABLES_IN_TEXT:
        suffix = ".csv"
        separator = _separator(file, unpacked.suffix)
        if separator != ",":
            _with_commas(file, target, separator, limit)
            compressed = False
    if compressed:
        with open_bytes(file, limit) as stream, target.open("wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)
    register_copy(target, file, suffix)
    return target


def _with_commas(file: Path, table: Path, separator: str, limit: int) -> None:
    """The same fields separated by commas; rows with too few or too many fields keep theirs, so that readers
    report them."""
    csv.field_size_limit(1 << 28)
    with open_text(file, limit) as lines, table.open("w", encoding="utf-8", newline="") as out:
        rows = csv.reader(lines, delimiter=separator, strict=True)
        try:
            csv.writer(out).writerows(rows)
        except csv.Error as error:
            raise InputError(f"{file}, line {rows.line_num}: {error}") from error


# Delta and Iceberg


def _open_delta(path: Path) -> tuple[str, Iterator[pa.RecordBatch]]:
    """The version of a table, and its rows."""
    library = require("deltalake", "delta")
    with _reading(path, "Delta"):
        table = library.DeltaTable(str(path.resolve()))
        _refuse_outside(path, table.file_uris())
        return f"version {table.version()}", _batches(path, "Delta", table.to_pyarrow_dataset().to_batches())


def _open_iceberg(path: Path) -> tuple[str, Iterator[pa.RecordBatch]]:
    """The snapshot of a table, and its rows."""
    library = require("pyiceberg.table", "iceberg")
    with _reading(path, "Iceberg"):
        table = library.StaticTable.from_metadata(str(iceberg_metadata(path).resolve()))
        scan = table.scan()
        files = list(scan.plan_files())
        _refuse_outside(path, (task.file.file_path for task in files))
        _refuse_outside(path, (each.file_path for task in files for each in task.delete_files))
        snapshot = table.current_snapshot()
        version = "no snapshot" if snapshot is None else f"snapshot {snapshot.snapshot_id}"
        return version, _batches(path, "Iceberg", scan.to_arrow_batch_reader())


def _batches(path: Path, what: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _reading(path, what):
        yield from batches


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the libraries have their own, and those of Rust
        raise InputError(f"{path} is a table of {what} that cannot be read ({first_line(error)})") from error


def _refuse_outside(path: Path, names: Iterable[str]) -> None:
    root = path.resolve()
    for name in names:
        parts = urlsplit(name)
        local = Path(unquote(parts.path) if parts.scheme == "file" else name)
        if parts.scheme not in ("", "file") or not (root / local).resolve().is_relative_to(root):
            raise InputError(
                f"{path} names a file outside its folder, which is not read: {name}; copy the table with the "
                "program that wrote it"
            )


def _write(batches: Iterator[pa.RecordBatch], file: Path, path: Path) -> None:
    writer: Any = None
    try:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            writer = writer or parquet_writer(file, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise InputError(f"{path} has no rows")
