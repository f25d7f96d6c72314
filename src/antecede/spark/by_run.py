"""Applies a function to every run of a DataFrame of events, one Spark task per run.

Audits, graphs and advice all start alike: the columns of a trace in their types, one run's rows and members
in one task, and an `error` column for runs that cannot be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from antecede.errors import InputError
from antecede.trace.schema import FIELDS, REQUIRED, Meta, check_schema_version
from antecede.trace.validate import check_columns

RunTask = Callable[[str, pa.Table, list[Meta]], pa.Table]
"""From a run's name, rows and `meta.json` contents to a table; it may raise an `InputError`."""


def event_columns(events: DataFrame, optional: Sequence[str] = ()) -> list[Column]:
    """The required columns of a trace in their types, and those of `optional` that are there."""
    check_columns(events.columns, "the DataFrame of events")
    present = [*REQUIRED, *(name for name in optional if name in events.columns)]
    return [F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in present]


def lists_as_json(events: DataFrame, names: Sequence[str]) -> list[Column]:
    """Columns of lists as JSON text: handing lists to Python costs several times all other columns."""
    return [F.to_json(name).alias(name) for name in names if name in events.columns]


def apply_by_run(rows: DataFrame, members: DataFrame | None, task: RunTask, schema: pa.Schema) -> DataFrame:
    """The tables that `task` makes of each run's rows; a run that it refuses is a row with its `error`."""
    # With the number given, Spark does not combine a few small but costly runs into one task.
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    by_run = rows.repartition(tasks, "run").groupBy("run")
    result = from_arrow_schema(schema)
    if members is None:
        return by_run.applyInArrow(lambda table: _apply(task, schema, table, []), result)

    def apply(table: pa.Table, members: pa.Table) -> pa.Table:
        return _apply(task, schema, table, members.to_pylist())

    members = members.select("run", "groups", "schema_version").repartition(tasks, "run")
    return by_run.cogroup(members.groupBy("run")).applyInArrow(apply, result)


def _apply(task: RunTask, schema: pa.Schema, rows: pa.Table, members: list[dict[str, Any]]) -> pa.Table:
    if rows.num_rows == 0:
        return schema.empty_table()
    run = rows.column("run")[0].as_py()
    metas = [Meta(run, dict(each["groups"]), schema_version=each["schema_version"]) for each in members]
    try:
        for meta in metas:
            check_schema_version(meta, f"the meta.json of run {run}")
        return task(run, _lists_from_json(rows), metas)
    except InputError as error:
        return pa.Table.from_pylist([{"run": run, "error": str(error)}], schema=schema)


def _lists_from_json(rows: pa.Table) -> pa.Table:
    """The columns of lists as lists again, without those that no row has."""
    for name in rows.column_names:
        if pa.types.is_list(FIELDS[name][0]):
            column = rows.column(name)
            rows = rows.drop_columns([name])
            if column.null_count < len(column):
                lists = [msgspec.json.decode(text) if text else None for text in column.to_pylist()]
                rows = rows.append_column(name, pa.array(lists, FIELDS[name][0]))
    return rows


def raise_first_error(frame: DataFrame) -> None:
    """Compute a persisted frame, and raise the error of the first run that has one."""
    found = frame.agg(F.min("error").alias("error")).first()
    if found is not None and found.error is not None:
        raise InputError(found.error)
