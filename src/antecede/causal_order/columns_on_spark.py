"""The columns to order by, of a DataFrame: planned, derived, and checked for unreadable rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from antecede.causal_order.columns import (
    CLOCK_TYPE,
    NUMBER_IN_TEXT,
    ColumnFault,
    Conversion,
    DerivedColumn,
    Roles,
    plan_columns,
    possible_faults,
    unreadable,
)
from antecede.causal_order.dependency_edges import Columns, Form
from antecede.causal_order.rules import DIGEST, PLACE
from antecede.causal_order.text_types import CLOCK, parse_clock_text

_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)


class PreparedEvents(NamedTuple):
    """Events with the columns to order by beside their own; all names are escaped by `escape_name`."""

    frame: DataFrame
    columns: Columns
    internal: list[str]
    """Added columns, which are not the caller's."""
    sorted_by: list[str]
    """The preferred order of a group's rows."""


def prepare(
    events: DataFrame, roles: Roles, added: Iterable[str], split: str | None = None
) -> PreparedEvents:
    """Refuse events that cannot be ordered, naming the column and what was expected; add what tasks need."""
    own = [field for field in events.schema if field.name != PLACE]
    types = {field.name: field.dataType.simpleString() for field in own}
    plan = plan_columns(types, roles, added, split)
    internal = {name: _derive(derived) for name, derived in plan.derived.items()}
    internal[DIGEST] = _digest(own, roles)
    frame = events.withColumns(internal)
    columns = plan.columns
    names = (None if name is None else escape_name(name) for name in columns[1:])
    return PreparedEvents(
        frame.toDF(*map(escape_name, frame.columns)),
        Columns(columns.form, *names),
        list(internal),
        [escape_name(name) for name in plan.sorted_by],
    )


def quoted(name: str) -> str:
    """A column name quoted for SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def escape_name(name: str) -> str:
    """A column name that is safe in tasks: mapInArrow would read dots and backticks as syntax."""
    return name.replace("%", "%25").replace(".", "%2E").replace("`", "%60")


def _derive(derived: DerivedColumn) -> Column:
    source = F.col(quoted(derived.source))
    if derived.conversion in (Conversion.LIST, Conversion.PARSE_PAIRS) and derived.is_single:
        source = _as_list(source, derived.separator)
    if derived.conversion is Conversion.PARSE_PAIRS:
        source = F.transform(source, _parse_pair)
    elif derived.conversion is Conversion.PARSE_WHOLE:
        return source.try_cast("bigint")
    elif derived.conversion is Conversion.SORTABLE:
        return _sortable(source)
    elif derived.conversion is Conversion.COUNTS:
        entries = F.transform(source, lambda count, place: F.struct(place.cast("string"), count))
        source = F.map_from_entries(entries)
    elif derived.conversion is Conversion.JSON:
        # Its kind follows from the types of the function, which are missing from the stubs.
        source = arrow_udf(_parse_clocks, CLOCK_TYPE)(source)  # type: ignore[call-overload]
    return source.cast(derived.type)


def _parse_clocks(texts: pa.Array) -> pa.Array:
    return pa.array([parse_clock_text(text) for text in texts.to_pylist()], CLOCK)


def _as_list(source: Column, separator: str | None) -> Column:
    if separator is None:
        return F.filter(F.array(source), lambda value: value.isNotNull())
    # Not F.trim itself: transform would pass the place of the part as what to trim.
    return F.transform(F.split(source, re.escape(separator)), lambda part: F.trim(part))


def _parse_pair(text: Column) -> Column:
    number = F.substring_index(text, ":", -1)
    pair = F.struct(F.left(text, F.length(text) - F.length(number) - 1), number.try_cast("bigint"))
    return F.when(text != "", pair)


def _sortable(text: Column) -> Column:
    whole, fraction = (F.regexp_extract(text, NUMBER_IN_TEXT, place) for place in (2, 3))
    digits = F.concat(F.lpad(whole, 18, "0"), F.lit("."), fraction)
    falling = F.concat(F.lit("0"), F.translate(digits, "0123456789", "9876543210"), F.lit(":"))
    rising = F.when(text.startswith("-"), falling).otherwise(F.concat(F.lit("1"), digits))
    return F.when(text.rlike(NUMBER_IN_TEXT), rising).otherwise(F.concat(F.lit("2"), text))


def _digest(fields: Iterable[T.StructField], roles: Roles) -> Column:
    """Tells rows with the same id apart: which of them is kept must not depend on the order of arrival."""
    hashed: list[Column] = []
    for field in fields:
        column = F.col(quoted(field.name))
        # Spark's hash refuses maps, and skips nulls, so that values in neighbouring columns would be
        # confused.
        if field.name == roles["clock"] and isinstance(field.dataType, T.MapType):
            column = F.map_entries(column)
        elif isinstance(field.dataType, _NESTED) and field.name not in (roles["deps"], roles["clock"]):
            column = F.to_json(F.struct(column), {"ignoreNullFields": "false"})
        hashed += [column.isNull(), column]
    return F.xxhash64(*hashed)


def refuse_unreadable(prepared: PreparedEvents, roles: Roles) -> None:
    """Refuse events that have rows which cannot be ordered: one pass over the columns to order by."""
    faults = [
        (role, fault, _has_fault(prepared.columns, fault))
        for role, fault in possible_faults(prepared.columns.form)
    ]
    counted = prepared.frame.agg(*(F.count_if(bad).alias(str(n)) for n, (_, _, bad) in enumerate(faults)))
    for counts in counted.collect():
        for count, (role, fault, bad) in zip(counts, faults, strict=True):
            if count:
                example = prepared.frame.where(bad).drop(*prepared.internal).first()
                raise unreadable(role, roles[role], count, fault, str(example))


def _has_fault(columns: Columns, fault: ColumnFault) -> Column:
    def column(name: str | None) -> Column:
        return F.col(quoted(str(name)))

    if fault is ColumnFault.NO_ID:
        return _is_empty(column(columns.id), columns.form is Form.IDS)
    if fault is ColumnFault.NO_ORIGIN:
        return _is_empty(column(columns.origin), True)
    if fault is ColumnFault.NO_NUMBER:
        return F.coalesce(column(columns.seq), F.lit(-1)) < 0
    if fault is ColumnFault.BAD_DEPENDENCY:
        return F.coalesce(F.exists(column(columns.deps), _lacks_a_part), F.lit(False))
    clock = column(columns.clock)
    if fault is ColumnFault.NO_CLOCK:
        return clock.isNull()
    if fault is ColumnFault.BAD_ENTRY:
        return F.exists(F.map_values(clock), lambda count: count.isNull() | (count < 0))
    return F.coalesce(F.element_at(clock, column(columns.origin)), F.lit(0)) <= 0


def _is_empty(one: Column, is_text: bool) -> Column:
    return one.isNull() | (one == "") if is_text else one.isNull()


def _lacks_a_part(one: Column) -> Column:
    return one.isNotNull() & (_is_empty(one["origin"], True) | one["seq"].isNull())
