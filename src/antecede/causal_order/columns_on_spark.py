"""The columns to order by, of a DataFrame: planned, derived, and checked for unreadable rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.columns import (
    CLOCK_TYPE,
    ColumnFault,
    Conversion,
    DerivedColumn,
    Roles,
    plan_columns,
    possible_faults,
    unreadable,
)
from antecede.causal_order.dependency_edges import Columns
from antecede.causal_order.rules import DIGEST

_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)


class PreparedEvents(NamedTuple):
    """Events with the columns to order by beside their own; all names are escaped by `escape_name`."""

    frame: DataFrame
    columns: Columns
    internal: list[str]
    """Columns that are not the caller's."""
    sorted_by: list[str]
    """The preferred order of a group's rows."""


def prepare(events: DataFrame, roles: Roles, added: Iterable[str]) -> PreparedEvents:
    """Refuse events that cannot be ordered, naming the column and what was expected; add what tasks need."""
    types = {field.name: field.dataType.simpleString() for field in events.schema}
    plan = plan_columns(types, roles, added)
    internal = {name: _derive(derived) for name, derived in plan.derived.items()}
    internal[DIGEST] = _digest(events, roles)
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
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def escape_name(name: str) -> str:
    """A column's name for tasks: mapInArrow would read dots and backticks as syntax."""
    return name.replace("%", "%25").replace(".", "%2E").replace("`", "%60")


def _derive(derived: DerivedColumn) -> Column:
    source = F.col(quoted(derived.source))
    if derived.conversion is Conversion.ONE_ID:
        source = F.filter(F.array(source), lambda value: value.isNotNull())
    elif derived.conversion is Conversion.PARSE_PAIRS:
        source = F.transform(source, _parse_pair)
    elif derived.conversion is Conversion.COUNTS:
        entries = F.transform(source, lambda count, place: F.struct(place.cast("string"), count))
        source = F.map_from_entries(entries)
    elif derived.conversion is Conversion.JSON:
        source = F.from_json(source, CLOCK_TYPE)
    return source.cast(derived.type)


def _parse_pair(text: Column) -> Column:
    number = F.substring_index(text, ":", -1)
    return F.struct(F.left(text, F.length(text) - F.length(number) - 1), number.try_cast("bigint"))


def _digest(events: DataFrame, roles: Roles) -> Column:
    """Tells rows with the same id apart: which of them stays must not depend on which arrived first."""
    hashed: list[Column] = []
    for field in events.schema:
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
    """Refuse events that have rows which cannot be read: one pass over the columns to order by."""
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
        return column(columns.id).isNull()
    if fault is ColumnFault.NO_ORIGIN:
        return column(columns.origin).isNull()
    if fault is ColumnFault.NO_NUMBER:
        return F.coalesce(column(columns.seq), F.lit(-1)) < 0
    if fault is ColumnFault.NULL_DEPENDENCY:
        broken = F.exists(column(columns.deps), _is_null if columns.seq is None else _lacks_a_part)
        return F.coalesce(broken, F.lit(False))
    clock = column(columns.clock)
    if fault is ColumnFault.NO_CLOCK:
        return clock.isNull()
    if fault is ColumnFault.BAD_ENTRY:
        return F.exists(F.map_values(clock), lambda count: count.isNull() | (count < 0))
    return F.coalesce(F.element_at(clock, column(columns.origin)), F.lit(0)) <= 0


def _is_null(one: Column) -> Column:
    return one.isNull()


def _lacks_a_part(one: Column) -> Column:
    return one.isNull() | one["origin"].isNull() | one["seq"].isNull()
