"""The columns to order by, of an Arrow table: what `columns_on_spark` does for a DataFrame."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.columns import (
    NUMBER_IN_TEXT,
    ColumnFault,
    Conversion,
    DerivedColumn,
    Roles,
    possible_faults,
    unreadable,
)
from antecede.causal_order.dependency_edges import Columns, row_of_edge
from antecede.causal_order.request import NeedsSparkError
from antecede.causal_order.text_types import CLOCK, parse_clock_text

PAIRS = pa.list_(pa.struct([("origin", pa.string()), ("seq", pa.int64())]))
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "array<string>": pa.list_(pa.string()),
    "array<bigint>": pa.list_(pa.int64()),
    "array<struct<origin:string,seq:bigint>>": PAIRS,
    "map<string,bigint>": CLOCK,
}
_SPARK_NAMES = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
_WHOLE_NUMBER = re.compile(r"[\x00-\x20\x7f]*([+-]?[0-9]{1,100})[\x00-\x20\x7f]*")


def spark_types(table: pa.Table) -> dict[str, str]:
    """Spark's names for the types of a table's columns."""
    return {field.name: _spark_type(field.type) for field in table.schema}


def _spark_type(kind: pa.DataType) -> str:
    if kind in _SPARK_NAMES:
        return _SPARK_NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ",".join(f"{field.name}:{_spark_type(field.type)}" for field in kind)
        return f"struct<{fields}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_type(kind.key_type)},{_spark_type(kind.item_type)}>"
    # Allowed only as payload.
    return str(kind)


def _to_whole(value: str | None) -> int | None:
    found = None if value is None else _WHOLE_NUMBER.fullmatch(value)
    number = 0 if found is None else int(found[1])
    return number if found is not None and -(2**63) <= number < 2**63 else None


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)


def derive(table: pa.Table, derived: DerivedColumn) -> pa.ChunkedArray:
    """A column derived from another."""
    source, wanted = table.column(derived.source), _TYPES[derived.type]
    if derived.conversion is Conversion.CAST:
        return _cast(derived.source, source, wanted)
    if derived.is_single:
        lists = [_as_lists(chunk, derived.separator) for chunk in source.chunks]
        source = pa.chunked_array(lists, pa.list_(source.type))
    if derived.conversion is Conversion.LIST:
        return source.cast(wanted)
    values = source.to_pylist()
    if derived.conversion is Conversion.PARSE_PAIRS:
        values = [None if value is None else [_parse_pair(one) for one in value] for value in values]
    elif derived.conversion is Conversion.PARSE_WHOLE:
        values = [_to_whole(value) for value in values]
    elif derived.conversion is Conversion.SORTABLE:
        values = [None if value is None else _sortable(value) for value in values]
    elif derived.conversion is Conversion.COUNTS:
        values = [None if value is None else list(_numbered(value)) for value in values]
    elif derived.conversion is Conversion.JSON:
        values = [parse_clock_text(value) for value in values]
    return pa.chunked_array([values], wanted)


def _as_lists(values: pa.Array, separator: str | None) -> pa.Array:
    """As lists: of one element each, or of the parts of delimited text."""
    if separator is None:
        return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), values)
    lists = pc.split_pattern(values, separator)
    parts = pc.utf8_trim(lists.values, " ")
    return pa.ListArray.from_arrays(lists.offsets, parts, mask=lists.is_null())


_NUMBER = re.compile(NUMBER_IN_TEXT.replace(r"\z", r"\Z"))
_FALLING = str.maketrans("0123456789", "9876543210")


def _sortable(text: str) -> str:
    """Text as a sort key by which numbers sort numerically: negative ones by the complements of their
    digits."""
    number = _NUMBER.match(text)
    if number is None:
        return f"2{text}"
    digits = f"{number[2]:0>18}.{number[3] or ''}"
    return f"0{digits.translate(_FALLING)}:" if number[1] else f"1{digits}"


def _numbered(counts: list[int | None]) -> list[tuple[str, int | None]]:
    return [(str(place), count) for place, count in enumerate(counts)]


def _cast(name: str, source: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    kind = source.type
    if wanted == CLOCK:
        clocks = source.to_pylist()
        entries = [None if clock is None else [(str(key), n) for key, n in clock] for clock in clocks]
        return pa.chunked_array([entries], CLOCK)
    if wanted == PAIRS:
        origin, seq = kind.value_type[0].name, kind.value_type[1].name
        lists = [
            None
            if deps is None
            else [dep and {"origin": _to_text(dep[origin]), "seq": dep[seq]} for dep in deps]
            for deps in source.to_pylist()
        ]
        return pa.chunked_array([lists], PAIRS)
    if wanted == pa.string() and (pa.types.is_floating(kind) or pa.types.is_timestamp(kind)):
        raise NeedsSparkError(f"column {name} is {kind}, which only Spark converts to text")
    return source.cast(wanted)


def _parse_pair(text: str | None) -> dict[str, Any] | None:
    """The parts of text such as origin:seq; null text means no dependency."""
    if not text:
        return None
    origin, _, number = text.rpartition(":")
    return {"origin": origin, "seq": _to_whole(number)}


def refuse_unreadable(table: pa.Table, own: list[str], columns: Columns, roles: Roles) -> None:
    """Refuse a table with unreadable rows; `own` are the table's columns as they were read."""
    for role, fault in possible_faults(columns.form):
        bad = np.flatnonzero(_has_fault(table, columns, fault))
        if bad.size:
            (row,) = table.select(own).slice(int(bad[0]), 1).to_pylist(maps_as_pydicts="strict")
            example = f"Row({', '.join(f'{name}={value!r}' for name, value in row.items())})"
            raise unreadable(role, roles[role], bad.size, fault, example)


def _has_fault(table: pa.Table, columns: Columns, fault: ColumnFault) -> np.ndarray:
    def column(name: str | None) -> pa.Array:
        return pa.concat_arrays(table.column(str(name)).chunks)

    if fault is ColumnFault.NO_ID:
        return _is_empty(column(columns.id))
    if fault is ColumnFault.NO_ORIGIN:
        return _is_empty(column(columns.origin))
    if fault is ColumnFault.NO_NUMBER:
        return _mask(pc.less(column(columns.seq).fill_null(-1), 0))
    if fault is ColumnFault.BAD_DEPENDENCY:
        return _has_half_a_pair(column(columns.deps))
    clocks = column(columns.clock).to_pylist()
    if fault is ColumnFault.NO_CLOCK:
        return np.array([clock is None for clock in clocks], bool)
    if fault is ColumnFault.BAD_ENTRY:
        return np.array([any(n is None or n < 0 for _, n in clock or ()) for clock in clocks], bool)
    origins = column(columns.origin).to_pylist()
    own = [dict(clock or ()).get(origin) for clock, origin in zip(clocks, origins, strict=True)]
    return np.array([(count or 0) <= 0 for count in own], bool)


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)


def _is_empty(values: pa.Array) -> np.ndarray:
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        return _mask(values.is_null())
    return _mask(pc.equal(values, "").fill_null(True))


def _has_half_a_pair(lists: pa.Array) -> np.ndarray:
    """The rows with a pair in their list that lacks its origin or its number."""
    values = lists.flatten()
    bad = _is_empty(pc.struct_field(values, 0)) | _mask(pc.struct_field(values, 1).is_null())
    bad &= _mask(values.is_valid())
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    rows = np.zeros(len(lists), bool)
    rows[row_of_edge(np.concatenate(([0], np.cumsum(lengths))))[bad]] = True
    return rows
