"""The columns to order by, of an Arrow table: what `columns_on_spark` does for a DataFrame."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.columns import (
    ColumnFault,
    Conversion,
    DerivedColumn,
    Roles,
    element_type,
    is_text,
    is_whole,
    possible_faults,
    unreadable,
)
from antecede.causal_order.dependency_edges import Columns, row_of_edge
from antecede.causal_order.event_files import needs_split
from antecede.causal_order.local_files import CLOCK
from antecede.causal_order.request import NeedsSparkError, OrderRequest
from antecede.errors import InputError

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
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")


def spark_types(table: pa.Table) -> dict[str, str]:
    """Spark's names for the types of a table's columns."""
    return {field.name: _spark_type(field.name, field.type) for field in table.schema}


def _spark_type(name: str, kind: pa.DataType) -> str:
    if kind in _SPARK_NAMES:
        return _SPARK_NAMES[kind]
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_spark_type(name, kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ",".join(f"{field.name}:{_spark_type(name, field.type)}" for field in kind)
        return f"struct<{fields}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_type(name, kind.key_type)},{_spark_type(name, kind.item_type)}>"
    raise NeedsSparkError(f"column {name} is of type {kind}")


def with_lists(table: pa.Table, format_name: str, request: OrderRequest) -> pa.Table:
    """Dependencies as lists of ids, where the file itself cannot express that."""
    name, split = request.columns["deps"], request.split
    types = spark_types(table)
    if name is None or name not in types:
        return table
    kind, id_type = types[name], types.get(str(request.columns["id"]))
    whole_ids = id_type is not None and is_whole(id_type)
    if split is not None:
        if kind.startswith(("array<", "struct<", "map<")):
            raise InputError(f"--split: column {name} is {kind}, not text that can be split")
        if not is_text(kind) and not is_whole(kind):
            raise NeedsSparkError(f"column {name} is {kind}, which only Spark splits")
        texts = table.column(name).cast(pa.string()).to_pylist()
        return _replace(table, name, [_split(text, split) for text in texts], whole_ids)
    if whole_ids and is_text(kind):
        raise needs_split(name, request)
    element = element_type(kind) if format_name == "json" else None
    if id_type is not None and element is not None and (is_text(element) if whole_ids else is_whole(element)):
        return _replace(table, name, table.column(name).to_pylist(), whole_ids)
    return table


def _split(text: str | None, separator: str) -> list[str] | None:
    if text is None:
        return None
    return [part.strip(" ") for part in text.split(separator) if part.strip(" ")]


def _replace(table: pa.Table, name: str, lists: list[Any], whole_ids: bool) -> pa.Table:
    """Set a column to lists of whole numbers or texts; what is not a number becomes null."""
    convert = _to_whole if whole_ids else _to_text
    values = [None if one is None else [convert(value) for value in one] for one in lists]
    column = pa.array(values, pa.list_(pa.int64() if whole_ids else pa.string()))
    return table.set_column(table.column_names.index(name), name, column)


def _to_whole(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if not _WHOLE_NUMBER.fullmatch(value):
        if re.fullmatch(r"\s*[+-]?\d+\s*", value):
            raise NeedsSparkError("whole numbers of more than 18 digits")
        return None
    return int(value)


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)


def derive(table: pa.Table, derived: DerivedColumn) -> pa.ChunkedArray:
    """A column derived from another."""
    source, wanted = table.column(derived.source), _TYPES[derived.type]
    if derived.conversion is Conversion.CAST:
        return _cast(derived.source, source, wanted)
    values = source.to_pylist()
    if derived.conversion is Conversion.ONE_ID:
        lists: list[Any] = [[] if value is None else [value] for value in values]
    elif derived.conversion is Conversion.PARSE_PAIRS:
        lists = [None if value is None else [_parse_pair(one) for one in value] for value in values]
    elif derived.conversion is Conversion.COUNTS:
        lists = [None if value is None else list(_numbered(value)) for value in values]
    else:
        lists = [_parse_clock(derived.source, value) for value in values]
    return pa.chunked_array([lists], wanted)


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


def _parse_pair(text: str | None) -> dict[str, Any]:
    """The parts of a text like origin:seq; Spark makes null parts of a null text."""
    if text is None:
        return {"origin": None, "seq": None}
    origin, _, number = text.rpartition(":")
    return {"origin": origin, "seq": _to_whole(number)}


def _parse_clock(name: str, text: str | None) -> list[tuple[str, int | None]] | None:
    if text is None:
        return None
    try:
        return list(msgspec.json.decode(text, type=dict[str, int | None]).items())
    except msgspec.DecodeError:
        raise NeedsSparkError(f"column {name} has clocks that only Spark can try to read") from None


def refuse_unreadable(table: pa.Table, own: list[str], columns: Columns, roles: Roles) -> None:
    """Refuse a table with rows which cannot be read; `own` are the table's columns as they were read."""
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
        return _mask(column(columns.id).is_null())
    if fault is ColumnFault.NO_ORIGIN:
        return _mask(column(columns.origin).is_null())
    if fault is ColumnFault.NO_NUMBER:
        return _mask(pc.less(column(columns.seq).fill_null(-1), 0))
    if fault is ColumnFault.NULL_DEPENDENCY:
        return _has_null_in_list(column(columns.deps))
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


def _has_null_in_list(lists: pa.Array) -> np.ndarray:
    """The rows with a null in their list, or with a pair that has one."""
    values = lists.flatten()
    bad = values.is_null()
    if pa.types.is_struct(values.type):
        for at in range(values.type.num_fields):
            bad = pc.or_(bad, pc.struct_field(values, at).is_null())
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    rows = np.zeros(len(lists), bool)
    rows[row_of_edge(np.concatenate(([0], np.cumsum(lengths))))[_mask(bad)]] = True
    return rows
