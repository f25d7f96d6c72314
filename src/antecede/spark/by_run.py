"""Applies a function to every run of a DataFrame of events, one Spark task per run.

Audits, graphs and advice all start alike: the columns of a trace in their types, one run's rows and members
in one task, and an `error` column for runs that cannot be processed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from antecede.errors import InputError
from antecede.spark.session import require_frame
from antecede.trace.schema import FIELDS, REQUIRED, Meta, read_meta

RunTask = Callable[[str, pa.Table, list[Meta]], pa.Table]
"""From a run's name, rows and `meta.json` contents to a table; it may raise an `InputError`."""
_META = "_antecede_meta"


def event_columns(events: DataFrame, optional: Sequence[str] = ()) -> list[Column]:
    """The required columns of a trace in their types, and those of `optional` that exist."""
    require_frame(events)
    if missing := [name for name in REQUIRED if name not in events.columns]:
        what = f"column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        why = ""
        if "index" in missing:
            why += "; Spark keeps no order of rows, so index must number the events of each process"
        if "message" in events.columns and {"origin", "seq"} & {*missing}:
            why += "; the page Traces of the documentation shows how to derive origin and seq from message"
        raise InputError(f"the DataFrame of events has no {what}{why}; a trace needs {', '.join(REQUIRED)}")
    present = [*REQUIRED, *(name for name in optional if name in events.columns)]
    return [F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in present]


def lists_as_json(events: DataFrame, names: Sequence[str]) -> list[Column]:
    """Columns of lists as JSON text: passing lists to Python costs several times as much as all other
    columns."""
    return [F.to_json(name).alias(name) for name in names if name in events.columns]


def apply_by_run(rows: DataFrame, members: DataFrame | None, task: RunTask, schema: pa.Schema) -> DataFrame:
    """The tables that `task` makes from the rows of each run; a run that it refuses becomes a row with its
    `error`."""
    # With a given number of partitions, Spark does not combine a few small but costly runs into one task.
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if members is not None:
        # As rows among the others, they need no cogroup, which Sail cannot do with columns that have nulls.
        metas = F.to_json(F.struct("run", "groups", "schema_version")).alias(_META)
        rows = rows.withColumn(_META, F.lit(None).cast("string"))
        rows = rows.unionByName(members.select("run", metas), allowMissingColumns=True)
    by_run = rows.repartition(tasks, "run").groupBy("run")
    return by_run.applyInArrow(lambda table: _apply(task, schema, table), from_arrow_schema(schema))


def _apply(task: RunTask, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    texts: list[str] = []
    if _META in rows.column_names:
        texts = rows.column(_META).drop_null().to_pylist()
        rows = rows.filter(rows.column(_META).is_null()).drop_columns(_META)
    if rows.num_rows == 0:
        return schema.empty_table()
    run = rows.column("run")[0].as_py()
    try:
        metas = [read_meta(text, f"the meta.json of run {run}") for text in texts]
        return task(run, _lists_from_json(rows), metas)
    except InputError as error:
        return pa.Table.from_pylist([{"run": run, "error": str(error)}], schema=schema)


def _lists_from_json(rows: pa.Table) -> pa.Table:
    """The columns of lists, parsed back from JSON, without those that are null in every row."""
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
