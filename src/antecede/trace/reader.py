"""Reading traces from local files: Parquet, JSON lines and CSV, whole or in batches.

Whatever comes from a file is hostile until it is decoded: every error names the file, and the row
and the field where there is one.
"""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.schema import FIELDS, REQUIRED, SCHEMA, Meta, check_columns, read_meta
from antecede.trace.writer import META

BATCH_ROWS = 65_536
_CODED_ROWS = 1 << 18
_TEXT_ROW_BYTES = 60
_LONGEST_FIELD = 1 << 28
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")
_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")


def trace_files(path: Path) -> list[Path]:
    """The files of the trace at `path`: itself, or what lies in the folder at any depth."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if path.is_file():
        if path.suffix not in _SUFFIXES:
            raise InputError(
                f"{path}: a trace is a folder or a file ending in {_list(_SUFFIXES)}; "
                "other programs' logs are read by antecede import"
            )
        return [path]
    if not path.is_dir():
        raise InputError(f"{path} is neither a file nor a folder")
    files = [file for file in _walk(path) if file.suffix in _SUFFIXES]
    if not files:
        raise InputError(f"{path} holds no trace: no file in it ends in {_list(_SUFFIXES)}")
    return files


def _walk(folder: Path) -> list[Path]:
    """The plain files in a folder at any depth; a part of it that cannot be looked into is an error."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}") from error

    found = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [Path(parent) / name for name in names if not name.startswith((".", "_"))]
    return sorted(file for file in found if file.is_file())


def read_metas(path: Path) -> list[Meta]:
    """What the trace folders at `path` say of themselves."""
    if path.is_file():
        found = [path.parent / META] if (path.parent / META).exists() else []
    else:
        found = [file for file in _walk(path) if file.name == META]
    return [read_meta(file.read_bytes(), str(file)) for file in found]


def check_files(files: list[Path]) -> None:
    """Whether every Parquet file is whole and has the columns of a trace; nothing else is read."""
    for file in files:
        if file.suffix == ".parquet":
            open_parquet(file)


def estimate_rows(files: Sequence[Path]) -> int:
    """How many rows a trace has: exact for Parquet, from its size for text."""
    return sum(
        open_parquet(file).metadata.num_rows
        if file.suffix == ".parquet"
        else file.stat().st_size // _TEXT_ROW_BYTES
        for file in files
    )


def read_batches(file: Path) -> Iterator[pa.Table]:
    """The rows of one file, in the types of the schema."""
    if file.suffix == ".parquet":
        yield from _read_parquet(file)
    elif file.suffix == ".csv":
        yield from _in_batches(_read_csv(file), file)
    else:
        yield from _in_batches(_read_json_lines(file), file)


def read_run(path: Path, run: str | None = None) -> list[dict[str, Any]]:
    """The rows of one run of a trace, as dictionaries; for traces small enough to look at."""
    rows = [row for file in trace_files(path) for table in read_batches(file) for row in table.to_pylist()]
    runs = sorted({row["run"] for row in rows})
    if run is None and len(runs) > 1:
        raise InputError(f"{path} has {len(runs):,} runs; name one with --run, such as {runs[0]}")
    if run is not None and run not in runs:
        raise InputError(f"{path} has no run {run}")
    return [row for row in rows if row["run"] == (run or runs[0])] if rows else []


def open_parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file whose footer and columns are in order."""
    opened = open_any_parquet(file)
    names = opened.schema_arrow.names
    check_columns(names, str(file))
    refuse_duplicate_columns(names, file)
    for name in names:
        if name in FIELDS:
            _check_type(opened.schema_arrow.field(name), file)
    return opened


def open_any_parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file whose footer is in order, whatever it holds."""
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is {why_not_parquet(file)} ({first_line(error)})") from error


def refuse_duplicate_columns(names: Sequence[str], file: Path) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{file}: it has two columns {brief(name)}")


def why_not_parquet(file: Path) -> str:
    with file.open("rb") as stream:
        head = stream.read(4)
    if not head:
        return "empty, not Parquet"
    return "a truncated or damaged Parquet file" if head == b"PAR1" else "not a Parquet file"


def _check_type(field: pa.Field, file: Path) -> None:
    expected = FIELDS[field.name][0]
    found = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    same = (
        (pa.types.is_integer(expected) and pa.types.is_integer(found))
        or (pa.types.is_string(expected) and _is_text(found))
        or (pa.types.is_list(expected) and (pa.types.is_list(found) or pa.types.is_large_list(found)))
    )
    if not same:
        raise InputError(f"{file}: column {field.name} holds {found}, expected {expected}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _read_parquet(file: Path) -> Iterator[pa.Table]:
    opened = open_parquet(file)
    columns = [name for name in opened.schema_arrow.names if name in FIELDS]
    schema = pa.schema([(name, FIELDS[name][0]) for name in columns])
    if opened.metadata.num_rows == 0:
        yield schema.empty_table()
    before = 0
    try:
        for batch in opened.iter_batches(BATCH_ROWS, columns=columns):
            table = pa.Table.from_batches([batch])
            table.validate(full=True)
            table = _cast(table, schema, file)
            _check_nulls(table, file, before)
            before += table.num_rows
            yield table
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is a damaged Parquet file ({first_line(error)})") from error


def read_dictionary_encoded(
    file: Path, names: Sequence[str], numbers: Sequence[str], row_groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of a Parquet file that `open_parquet` has looked at, those of names as dictionaries."""
    kinds = [pa.dictionary(pa.int32(), pa.string())] * len(names) + [pa.int64()] * len(numbers)
    schema = pa.schema(list(zip([*names, *numbers], kinds, strict=True)))
    before = 0
    try:
        for batch in pq.ParquetFile(file, read_dictionary=list(names)).iter_batches(
            _CODED_ROWS, row_groups, columns=[*dict.fromkeys([*names, *numbers, "time"])]
        ):
            table = pa.Table.from_batches([batch])
            _check_nulls(table, file, before)
            before += batch.num_rows
            yield from _cast(table.select([*names, *numbers]), schema, file).to_batches()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is a damaged Parquet file ({first_line(error)})") from error


def _cast(table: pa.Table, schema: pa.Schema, file: Path) -> pa.Table:
    for field in schema:
        try:
            column = table.column(field.name).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{file}, column {field.name}: {first_line(error)}") from error
        table = table.set_column(table.column_names.index(field.name), field, column)
    return table


def _check_nulls(table: pa.Table, file: Path, before: int) -> None:
    for name in (each for each in REQUIRED if each in table.column_names):
        column = table.column(name)
        if column.null_count:
            row = before + column.is_null().to_pylist().index(True) + 1
            raise InputError(f"{file}, row {row}, field {name}: it is empty")


Row = dict[str, Any]


def _in_batches(rows: Iterator[Row], file: Path) -> Iterator[pa.Table]:
    batch: list[Row] = []
    seen = False
    for row in rows:
        seen = True
        batch.append(row)
        if len(batch) >= BATCH_ROWS:
            yield pa.Table.from_pylist(batch, schema=SCHEMA)
            batch = []
    if not seen:
        raise InputError(f"{file} is empty; a trace needs at least one row")
    yield pa.Table.from_pylist(batch, schema=SCHEMA)


def _read_json_lines(file: Path) -> Iterator[Row]:
    for number, row in json_rows(file):
        yield {
            name: _checked(row.get(name), name, file, number)
            for name in FIELDS
            if name in row or name in REQUIRED
        }


Wrong = Callable[[int, str], None]
"""Told of a row that cannot be read: which, and why. If it does not raise, the row is left out."""


def json_rows(file: Path, wrong: Wrong | None = None) -> Iterator[tuple[int, Row]]:
    """The objects of a file of JSON lines, each with its line's number."""
    wrong = wrong or _refuses(file)
    decoder = msgspec.json.Decoder()
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = decoder.decode(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                wrong(number, f"not JSON: {error}")
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                wrong(number, "expected an object with named fields")


def _refuses(file: Path) -> Wrong:
    def refuse(number: int, why: str) -> None:
        raise InputError(f"{file}, row {number}: {why}")

    return refuse


def _read_csv(file: Path) -> Iterator[Row]:
    for number, row in csv_rows(file, lambda names: check_columns(names, str(file))):
        yield {
            name: _checked(_from_text(row[name], name), name, file, number) for name in FIELDS if name in row
        }


def csv_rows(
    file: Path, check: Callable[[list[str]], None] = lambda _: None, wrong: Wrong | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file, numbered from 1, by the names in its header, which `check` may refuse."""
    wrong = wrong or _refuses(file)
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv_dict_reader(stream)
        try:
            if reader.fieldnames is None:
                raise InputError(f"{file} is empty; a trace needs a header and rows")
            names = list(reader.fieldnames)
            check(names)
            refuse_duplicate_columns(names, file)
            for number, row in enumerate(reader, start=1):
                if None in row or None in row.values():
                    wrong(number, f"it does not have the header's {len(names)} fields")
                else:
                    yield number, row
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not text in UTF-8: {error.reason}") from error
        except csv.Error as error:
            raise InputError(f"{file}, line {reader.line_num}: {error}") from error


def csv_dict_reader(stream: Iterable[str]) -> csv.DictReader[str]:
    """Rows of CSV whose fields may be long, as lists of thousands of names are."""
    csv.field_size_limit(_LONGEST_FIELD)
    return csv.DictReader(stream, strict=True)


def parse_integer(text: str) -> int | None:
    """A number as people write it, if it is one: Python would also take 1_000 and digits of any script."""
    return int(text) if _WHOLE.fullmatch(text) else None


def _from_text(text: str, name: str) -> Any:
    kind = FIELDS[name][0]
    if text == "" and name not in REQUIRED:
        return None
    if pa.types.is_integer(kind):
        number = parse_integer(text)
        return text if number is None else number
    return text.split() if pa.types.is_list(kind) else text


def _checked(value: Any, name: str, file: Path, number: int) -> Any:
    """A value that has its field's type, or an error that says where it is and what it is."""
    kind = FIELDS[name][0]
    if value is None:
        if name in REQUIRED:
            raise InputError(f"{file}, row {number}, field {name}: it is missing")
        return None
    if pa.types.is_integer(kind):
        right, expected = type(value) is int and -(2**63) <= value < 2**63, "a whole number"
    elif pa.types.is_list(kind):
        right = isinstance(value, list) and all(isinstance(each, str) for each in value)
        expected = "a list of texts"
    else:
        right, expected = isinstance(value, str), "text"
    if not right:
        shown = repr(value)[:60]
        raise InputError(f"{file}, row {number}, field {name}: expected {expected}, got {shown}")
    return value


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _list(items: tuple[str, ...]) -> str:
    return f"{', '.join(items[:-1])} or {items[-1]}"
