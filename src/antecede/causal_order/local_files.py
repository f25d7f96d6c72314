"""Files of events as Arrow tables, with exactly the types and values that Spark would read.

Spark infers the types of CSV and JSON by rules with many corners. Only what is certain is read here: a column
of whole numbers, simple decimals, ISO dates and times, booleans, or text. Anything else raises
`NeedsSparkError`, with the reason, and is left to Spark.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from antecede.causal_order.columns import Roles
from antecede.causal_order.event_files import EventFiles
from antecede.causal_order.request import NeedsSparkError
from antecede.errors import InputError
from antecede.trace.parquet_files import parquet_file

CLOCK = pa.map_(pa.string(), pa.int64())
_TEXT_ROW_BYTES = 60
_MAX_INT32 = 2**31 - 1
_TIME = pa.timestamp("us", "UTC")


def read_local(events: EventFiles, roles: Roles) -> pa.Table:
    """The rows of the files; columns that name rows are text unless all their values are whole numbers."""
    if events.partitioned:
        raise NeedsSparkError(f"{events.path} has columns in the names of folders")
    read = {"csv": _read_csv, "json": _read_json, "parquet": _read_parquet}[events.format]
    table = read(events, roles)
    if len({name.lower() for name in table.column_names}) < table.num_columns:
        raise NeedsSparkError(f"{events.path} has columns with the same name")
    return table


def estimate_rows(events: EventFiles) -> int:
    """How many rows there are: exact for Parquet, from the sizes of files for text."""
    if events.format == "parquet":
        return sum(_open_parquet(file).metadata.num_rows for file in events.files if file.stat().st_size)
    return sum(file.stat().st_size for file in events.files) // _TEXT_ROW_BYTES


# CSV

_LINE_END = re.compile(r"\r\n|\n|\r")
_FIELD = r'(?:[^",]*|"(?:[^"]|"")*")'
_WELL_FORMED = re.compile(f"{_FIELD}(?:,{_FIELD})*")

_WHOLE = r"^-?[0-9]{1,18}$"
_DECIMAL = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_BOOLEAN = r"(?i)^(true|false)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?$"
)
_MAYBE_WHOLE = r"^\s*[+-]?[\pN,]+\s*$"
_MAYBE_NOT_TEXT = "|".join(
    (
        r"^\s*[+-]?([\pN,]+\.?\pN*|\.\pN+)([eE][+-]?\pN+)?[dDfF]?\s*$",
        r"^\s*[+-]?0[xX]",
        r"(?i)^\s*[+-]?(nan|inf|infinity)[df]?\s*$",
        r"(?i)^\s*(true|false)\s*$",
        r"^\s*[+-]?\pN{4,}(-\pN{1,2}){0,2}([T ].*)?$",
        r"^\s*T?\pN{1,2}:\pN.*$",
    )
)
"""Whatever Spark might take for a number, a boolean or a time."""


def _read_csv(events: EventFiles, roles: Roles) -> pa.Table:
    tables = [_read_csv_file(file) for file in events.files if file.stat().st_size]
    texts = pa.concat_tables(tables)
    naming = {roles[role] for role in ("id", "origin", "deps")}
    columns = [
        _name_column(name, column) if name in naming else _typed_column(name, column)
        for name, column in zip(texts.column_names, texts.columns, strict=True)
    ]
    return pa.table(columns, texts.column_names)


def _read_csv_file(file: Path) -> pa.Table:
    """A file with all its columns as text; Spark reads empty fields as null, quoted or not."""
    data = file.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise NeedsSparkError(f"{file} is not UTF-8") from None
    for number, line in enumerate(_LINE_END.split(text), 1):
        if ('"' in line and not _WELL_FORMED.fullmatch(line)) or (line and not line.strip()):
            raise NeedsSparkError(f"{file}, line {number}: quotes or white space that only Spark reads")
    names = next(csv.reader([_LINE_END.split(text, 1)[0]]), [])
    if text.startswith("\ufeff") or not all(names) or len(set(names)) < len(names):
        raise NeedsSparkError(f"{file} has a header that only Spark reads")
    try:
        return pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(block_size=len(data) + 1),
            pa.csv.ParseOptions(newlines_in_values=False),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
    except pa.ArrowInvalid as error:
        raise NeedsSparkError(f"{file}: {error}") from error


def _all(values: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def _name_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids: whole numbers, or text as it is."""
    values = pc.unique(column.drop_null())
    if not len(values) or not _all(values, _MAYBE_WHOLE):
        return column
    if _all(values, _WHOLE):
        return _to_whole(column)
    raise NeedsSparkError(f"column {name} has whole numbers in a form that only Spark reads")


def _typed_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in the type that all its values have; text if one of them is certainly nothing else."""
    values = pc.unique(column.drop_null())
    if not len(values) or not _all(values, _MAYBE_NOT_TEXT):
        return column
    conversions: dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]] = {
        _WHOLE: _to_whole,
        _DECIMAL: lambda texts: texts.cast(pa.float64()),
        _BOOLEAN: lambda texts: pc.equal(pc.utf8_lower(texts), "true"),
        _DATE: lambda texts: _convert(texts, date.fromisoformat, pa.date32()),
        _TIMESTAMP: lambda texts: _convert(texts, _parse_time, _TIME),
    }
    for pattern, convert in conversions.items():
        if _all(values, pattern):
            try:
                return convert(column)
            except ValueError:
                break
    raise NeedsSparkError(f"column {name} has values whose type only Spark infers")


def _to_whole(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = texts.cast(pa.int64())
    extremes = pc.min_max(numbers).as_py()
    fits = extremes["min"] >= -_MAX_INT32 - 1 and extremes["max"] <= _MAX_INT32
    return numbers.cast(pa.int32()) if fits else numbers


def _convert(texts: pa.ChunkedArray, parse: Callable[[str], Any], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([[None if text is None else parse(text) for text in texts.to_pylist()]], kind)


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


# JSON lines

_TEXT, _NUMBER, _FRACTION, _TRUTH, _NULL = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.null()


def _read_json(events: EventFiles, roles: Roles) -> pa.Table:
    rows = [row for file in events.files for row in _json_objects(file)]
    if not any(rows):
        raise InputError(f"{events.path}: none of its lines is a JSON object; expected one in each line")
    columns: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            if name == roles["clock"] and isinstance(value, dict):
                _refuse_fractions(name, value.values())
                kind = CLOCK
            else:
                kind = _json_type(name, value)
            columns[name] = _merge(name, columns[name], kind) if name in columns else kind
    arrays = {}
    for name in sorted(columns):
        kind = _without_nulls(name, columns[name])
        if name in (roles["id"], roles["origin"], roles["deps"]):
            _refuse_odd_names(name, kind)
        arrays[name] = pa.array([_as_entries(row.get(name), kind) for row in rows], kind)
    return pa.table(arrays)


def _json_objects(file: Path) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise NeedsSparkError(f"{file}, line {number} is not JSON") from None
        if not isinstance(value, dict):
            raise NeedsSparkError(f"{file}, line {number} is not a JSON object")
        yield value


def _json_type(name: str, value: Any) -> pa.DataType:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _TRUTH
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return _NUMBER
    if isinstance(value, float) and abs(value) < float("inf"):
        return _FRACTION
    if isinstance(value, str):
        return _TEXT
    if isinstance(value, list):
        element = _NULL
        for one in value:
            element = _merge(name, element, _json_type(name, one))
        return pa.list_(element)
    if isinstance(value, dict):
        return pa.struct([(key, _json_type(name, value[key])) for key in sorted(value)])
    raise NeedsSparkError(f"column {name} has numbers that are too large for 64 bits")


def _merge(name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or other == _NULL:
        return one
    if one == _NULL:
        return other
    if {one, other} == {_NUMBER, _FRACTION}:
        return _FRACTION
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merge(name, one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merge(name, fields.get(field.name, _NULL), field.type)
        return pa.struct(sorted(fields.items()))
    raise NeedsSparkError(f"column {name} has values of different types")


def _without_nulls(name: str, kind: pa.DataType) -> pa.DataType:
    """The type of values that may all be null: text, as Spark has it."""
    if kind == _NULL:
        return _TEXT
    if pa.types.is_list(kind):
        return pa.list_(_without_nulls(name, kind.value_type))
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise NeedsSparkError(f"column {name} has empty objects")
        return pa.struct([(field.name, _without_nulls(name, field.type)) for field in kind])
    return kind


def _refuse_fractions(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if value is not None and _json_type(name, value) != _NUMBER:
            raise NeedsSparkError(f"column {name} has clocks with entries that are not whole numbers")


def _refuse_odd_names(name: str, kind: pa.DataType) -> None:
    """Spark reads fractions and truth values as their text if they name rows."""
    element = kind.value_type if pa.types.is_list(kind) else kind
    if element in (_FRACTION, _TRUTH) or pa.types.is_list(element):
        raise NeedsSparkError(f"column {name} has values that are neither text nor whole numbers")


def _as_entries(value: Any, kind: pa.DataType) -> Any:
    return list(value.items()) if kind == CLOCK and value is not None else value


# Parquet


def _read_parquet(events: EventFiles, _: Roles) -> pa.Table:
    tables = [_read_parquet_file(file) for file in events.files if file.stat().st_size]
    if any(table.schema != tables[0].schema for table in tables):
        raise NeedsSparkError(f"the files in {events.path} have different columns")
    return pa.concat_tables(tables)


def _read_parquet_file(file: Path) -> pa.Table:
    try:
        table = _open_parquet(file).read().replace_schema_metadata()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is a damaged Parquet file: {error}") from error
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(field.type.value_type))
    return table


def _open_parquet(file: Path) -> pq.ParquetFile:
    try:
        return parquet_file(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {error}") from error
