"""The reader of traces: local Parquet, JSON lines and CSV, whole or in batches.

Files come from outside, so every row passes `trace.validate` before it is used: `read_batches` yields only
tables whose columns have the types of the schema. Errors name the file and, where possible, the row and the
field. `read_dictionary_encoded` is the fast path for compiled passes over large Parquet files.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.copies import table_suffix
from antecede.trace.csv_records import (
    CsvFormat,
    LineNumbers,
    OnUnreadable,
    RecordLines,
    csv_records,
    open_csv,
    read_header,
)
from antecede.trace.json_lines import json_lines
from antecede.trace.parquet_files import (
    parquet_file,
    refuse_long_text,
    refuse_oversized,
    text_columns_of,
)
from antecede.trace.schema import FIELDS, META, META_BEFORE, Meta, read_meta
from antecede.trace.table_folders import refuse_table_folder
from antecede.trace.validate import (
    cast_columns,
    check_columns,
    check_parquet_schema,
    first_line,
    refuse_duplicate_columns,
    refuse_empty_fields,
    validate_parquet_batch,
    validate_rows,
)

BATCH_ROWS = 65_536
_ENCODED_ROWS = 1 << 18
TEXT_ROW_BYTES = 60
"""Bytes of a row in a text file, from which the number of rows is estimated before reading. A row in memory
takes more, which is counted where it is held."""
TRACE_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")

_NUMBER = re.compile(r"(([0-9]{1,18})|[^0-9]+|[0-9]+)")

Row = dict[str, Any]


def trace_files(path: Path) -> list[Path]:
    """The files of the trace at `path`: itself, or those in the folder at any depth."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if path.is_file():
        if table_suffix(path) not in TRACE_SUFFIXES:
            raise InputError(
                f"{path}: a trace is a folder or a file ending in {_any_of(TRACE_SUFFIXES)}; "
                "antecede sources lists the formats of other programs"
            )
        return [path]
    if not path.is_dir():
        raise InputError(f"{path} is neither a file nor a folder")
    found = [parent / name for parent, names in _walk(path) for name in names]
    files = [file for file in found if table_suffix(file) in TRACE_SUFFIXES and file.is_file()]
    if not found:
        raise InputError(f"{path} holds no trace yet: the folder has no recorded events")
    if not files:
        raise InputError(f"{path} holds no trace: no file in it ends in {_any_of(TRACE_SUFFIXES)}")
    return sorted(files, key=_by_name)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder and its subfolders at any depth, with the names of their files; hidden ones are left out, and
    a subfolder that cannot be listed is an error."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        refuse_table_folder(Path(parent), folders)
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield Path(parent), [name for name in names if not name.startswith((".", "_"))]


def _by_name(file: Path) -> list[list[tuple[int, int, str]]]:
    """A sort key of files: those of a log are read one after the other."""
    return [natural_order(part) for part in file.parts]


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which `day-2` comes before `day-10`."""
    return [(0, int(digits), text) if digits else (1, 0, text) for text, digits in _NUMBER.findall(name)]


def read_metas(path: Path) -> list[Meta]:
    """The `meta.json` of every trace folder at `path`."""
    folders = [path.parent] if path.is_file() else [parent for parent, _ in _walk(path)]
    found = [file for folder in folders if (file := _meta_file(folder)) is not None]
    return [read_meta(file.read_bytes(), str(file)) for file in sorted(found, key=_by_name)]


def _meta_file(folder: Path) -> Path | None:
    """The file that describes a folder's trace: in `META`, or beside its parts, as before 0.1.0."""
    if (folder / META).is_file():
        return folder / META
    before = folder / META_BEFORE
    return before if before.is_file() and b'"schema_version"' in before.read_bytes() else None


def names_receivers(local: Path, files: Sequence[Path]) -> bool:
    """Whether a local trace may say who should get a message: in a `meta.json` or a column."""
    return bool(read_metas(local)) or any("destinations" in _first_columns(file) for file in files)


def _first_columns(file: Path) -> list[str]:
    """The columns of a file; for JSON lines, whose rows may differ, all columns that may occur."""
    if file.suffix == ".parquet":
        return list(open_any_parquet(file).schema_arrow.names)
    header: list[str] = []
    if table_suffix(file) != ".csv":
        return list(FIELDS)
    next(csv_rows(file, header.extend), None)
    return header


def missing_rows(path: str) -> int:
    """How many rows of a local trace are lost, by its `meta.json`: a live member could not write them."""
    local = Path(path.removeprefix("file://"))
    if not local.exists():
        return 0
    spans = [span for meta in read_metas(local) for span in meta.parameters.get("missing", [])]
    try:
        return sum(last - first + 1 for first, last in spans)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: `missing` in a meta.json is not a list of pairs of numbers") from error


def check_files(files: list[Path]) -> None:
    """Refuse a Parquet file that is damaged or lacks columns of a trace; only footers are read."""
    for file in files:
        if file.suffix == ".parquet":
            open_parquet(file)


def estimate_rows(files: Sequence[Path]) -> int:
    """How many rows a trace has: exact for Parquet, from the file's size for text."""
    return sum(
        open_parquet(file).metadata.num_rows
        if file.suffix == ".parquet"
        else file.stat().st_size // TEXT_ROW_BYTES
        for file in files
    )


def read_batches(file: Path) -> Iterator[pa.Table]:
    """The validated rows of one file, in the types of the schema."""
    if file.suffix == ".parquet":
        yield from _read_parquet(file)
    elif table_suffix(file) == ".csv":
        header = partial(check_columns, where=str(file))
        yield from _in_batches(csv_rows(file, header), file)
    else:
        yield from _in_batches(_with_fields(json_rows(file), file), file)


def read_trace(path: Path | str) -> pa.Table:
    """The validated rows of the trace at `path` as one table."""
    return read_table(trace_files(Path(path)))


def read_table(files: Sequence[Path], bad: BadRows | None = None) -> pa.Table:
    """The validated rows of several files as one table, for traces that fit into memory.

    `bad` counts the rows of each file.
    """
    return pa.concat_tables(read_files(files, bad), promote_options="default")


def read_files(files: Sequence[Path], bad: BadRows | None = None) -> Iterator[pa.Table]:
    """The validated rows of several files, batch by batch; `bad` counts the rows of each."""
    bad = bad or BadRows("")
    bad.reads(files)
    for file in files:
        for table in read_batches(file):
            bad.count(file, table.num_rows)
            yield table
        bad.finish(file)


def count_by_footers(files: Sequence[Path], bad: BadRows) -> None:
    """Count the rows of Parquet files without reading them."""
    bad.reads(files)
    for file in files:
        if file.suffix == ".parquet":
            bad.count(file, open_any_parquet(file).metadata.num_rows)
            bad.finish(file)


def read_run(path: Path, run: str | None = None, bad: BadRows | None = None) -> list[Row]:
    """The rows of one run of a trace as dictionaries, for traces small enough to look at.

    `bad` counts the rows of each file.
    """
    rows = [row for table in read_files(trace_files(path), bad) for row in table.to_pylist()]
    runs = sorted({row["run"] for row in rows})
    if run is None and len(runs) > 1:
        raise InputError(f"{path} has {len(runs):,} runs; name one with --run, such as {runs[0]}")
    if run is not None and run not in runs:
        raise InputError(f"{path} has no run {run}")
    return [row for row in rows if row["run"] == (run or runs[0])] if rows else []


# Parquet.


def open_parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file whose footer is intact and whose columns are those of a trace."""
    opened = open_any_parquet(file)
    check_parquet_schema(opened.schema_arrow, file)
    return opened


def open_any_parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file whose footer is intact, whatever its columns."""
    try:
        opened = parquet_file(file)
        _ = opened.schema_arrow.names  # They may not be text.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        remedy = "; copy it again" if _begins_as_parquet(file) else ""
        raise InputError(f"{file} is {_why_not_parquet(file)} ({first_line(error)}){remedy}") from error
    refuse_oversized(opened, file)
    return opened


def _why_not_parquet(file: Path) -> str:
    with file.open("rb") as stream:
        head = stream.read(4)
    if not head:
        return "empty, not Parquet"
    return "a truncated or damaged Parquet file" if _begins_as_parquet(file) else "not a Parquet file"


def _begins_as_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def damaged_parquet(file: Path, error: Exception) -> InputError:
    return InputError(f"{file} is a damaged Parquet file ({first_line(error)}); copy it again")


def _read_parquet(file: Path) -> Iterator[pa.Table]:
    opened = open_parquet(file)
    columns = [name for name in opened.schema_arrow.names if name in FIELDS]
    schema = pa.schema([(name, FIELDS[name][0]) for name in columns])
    if opened.metadata.num_rows == 0:
        yield schema.empty_table()
    rows_before = 0
    try:
        encoded = parquet_file(file, text_columns_of(opened))
        for batch in encoded.iter_batches(BATCH_ROWS, columns=columns):
            refuse_long_text(batch, file)
            yield validate_parquet_batch(batch, schema, file, rows_before)
            rows_before += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise damaged_parquet(file, error) from error
    refuse_missing_rows(file, opened.metadata.num_rows, rows_before)


def refuse_missing_rows(file: Path, declared: int, read: int) -> None:
    """Refuse a file whose row groups do not have the rows that its footer says."""
    if read != declared:
        raise InputError(
            f"{file} is a damaged Parquet file (its footer says {declared:,} rows, there are {read:,}); copy "
            "it again"
        )


def read_dictionary_encoded(
    file: Path, names: Sequence[str], numbers: Sequence[str], row_groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Columns of a Parquet file that `open_parquet` accepted, `names` as dictionaries, `numbers` as int64.

    `row_groups` are consecutive; by default all.
    """
    kinds = [pa.dictionary(pa.int32(), pa.string())] * len(names) + [pa.int64()] * len(numbers)
    schema = pa.schema(list(zip([*names, *numbers], kinds, strict=True)))
    try:
        opened = parquet_file(file, list(names))
        sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
        groups = range(row_groups[0], row_groups[-1] + 1) if row_groups else range(len(sizes))
        rows_before = sum(sizes[: groups.start])
        columns = [*dict.fromkeys([*names, *numbers, "time"])]
        for batch in opened.iter_batches(_ENCODED_ROWS, row_groups, columns=columns):
            refuse_long_text(batch, file)
            table = pa.Table.from_batches([batch])
            refuse_empty_fields(table, file, rows_before)
            rows_before += batch.num_rows
            yield from cast_columns(table.select([*names, *numbers]), schema, file).to_batches()
    except (pa.ArrowException, OSError) as error:
        raise damaged_parquet(file, error) from error
    refuse_missing_rows(file, sum(sizes[: groups.stop]), rows_before)


# JSON lines and CSV.


def _in_batches(rows: Iterator[tuple[int, Row]], file: Path) -> Iterator[pa.Table]:
    batch: list[tuple[int, Row]] = []
    empty = True
    try:
        for numbered in rows:
            empty = False
            batch.append(numbered)
            if len(batch) >= BATCH_ROWS:
                yield validate_rows(batch, file)
                batch = []
    except InputError:
        validate_rows(batch, file)  # An invalid row before the unreadable one is reported first.
        raise
    if empty:
        raise empty_file(file)
    yield validate_rows(batch, file)


def _with_fields(rows: Iterator[tuple[int, Row]], file: Path) -> Iterator[tuple[int, Row]]:
    """The rows; if the first lacks fields of a trace, the file is probably not one, and the error says so."""
    for number, row in itertools.islice(rows, 1):
        check_columns(list(row), f"{file}, row {number},")
        yield number, row
    yield from rows


def empty_file(file: Path) -> InputError:
    what = "has a header but no rows" if table_suffix(file) == ".csv" else "is empty"
    return InputError(f"{file} {what}; a trace needs at least one row")


def json_rows(file: Path, on_unreadable: OnUnreadable | None = None) -> Iterator[tuple[int, Row]]:
    """The objects of a file of JSON lines, each with its line's number."""
    on_unreadable = on_unreadable or _refuse_row(file)
    with file.open("rb") as stream:
        for number, row in json_lines(stream, msgspec.json.decode, on_unreadable, file):
            if isinstance(row, dict):
                yield number, row
            else:
                on_unreadable(number, "expected an object with named fields")


def csv_rows(
    file: Path,
    check_header: Callable[[list[str]], None] = lambda _: None,
    on_unreadable: OnUnreadable | None = None,
    form: CsvFormat = CsvFormat(),  # noqa: B008
    line_numbers: LineNumbers | None = None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file by its header's names, numbered from 1; `check_header` may refuse the header.

    `line_numbers` says at which line of the file each row begins.
    """
    on_unreadable = on_unreadable or _refuse_row(file)
    with open_csv(file, form) as lines:
        try:
            names = read_header(lines, file, form, line_numbers)
            if not names:
                raise InputError(f"{file} is empty; a trace needs a header and rows")
            check_header(names)
            refuse_duplicate_columns(names, file)
            records = RecordLines(lines, line_numbers)
            for number, fields in csv_records(records, on_unreadable, form, len(names)):
                yield number, dict(zip(names, fields, strict=True))
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not text in {error.encoding}: {error.reason}") from error


def _refuse_row(file: Path) -> OnUnreadable:
    def refuse(number: int, why: str) -> None:
        why = why.replace("give the --encoding", "write it in UTF-8, or read it with --map encoding=latin-1")
        raise InputError(f"{file}, row {number}: {why}")

    return refuse


def _any_of(items: tuple[str, ...]) -> str:
    return f"{', '.join(items[:-1])} or {items[-1]}"
