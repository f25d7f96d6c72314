"""What each protocol would cost on a workload: a DataFrame of events in, one of costs out.

Runs are done in parallel, each by one task, as audits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from antecede.advise import Advice, Cost, Request, advise_run
from antecede.audit.core import members_by_run
from antecede.errors import InputError
from antecede.trace.schema import FIELDS, REQUIRED, Meta, check_schema_version
from antecede.trace.validate import check_columns

_DONE = pa.schema([("run", pa.string()), ("error", pa.string()), ("advice", pa.string())])
_LISTS = ("destinations", "deps")
_OPTIONAL = ("link", "control_bytes", "payload_bytes")
_TYPES = {"protocol": "string", "exact": "boolean"}
_COST = ", ".join(f"{name}: {_TYPES.get(name, 'double')}" for name in Cost.__struct_fields__)
_ADVICE = f"recommended string, reason string, costs array<struct<{_COST}>>"
_MEMBERS = "run string, groups map<string, array<string>>, schema_version int"


def advise(events: DataFrame, members: DataFrame | None = None, asked: Request | None = None) -> DataFrame:
    """What each protocol would cost on every run of a DataFrame of events in the schema of traces.

    A row a run and protocol: `run`, the fields of `Cost`, whether it is `recommended`, and if so the
    `reason`. `members` (as `read_members` gives them) says who belongs to the group besides those who do
    something. It is done here and now and kept. Runs that cannot be advised raise an `InputError`.
    """
    told = F.from_json("advice", _ADVICE)
    each = _advised(events, members, asked or Request()).select("run", told.alias("told"))
    costs = each.select("run", "told.recommended", "told.reason", F.inline("told.costs"))
    best = F.col("recommended") == F.col("protocol")
    return costs.select(
        "run",
        *Cost.__struct_fields__,
        best.alias("recommended"),
        F.when(best, F.col("reason")).alias("reason"),
    )


def advice_by_run(events: DataFrame, members: DataFrame | None, asked: Request) -> Iterator[Advice]:
    """The whole of it, a summary a run."""
    done = _advised(events, members, asked)
    for row in done.orderBy("run").toLocalIterator():
        yield msgspec.json.decode(row.advice, type=Advice)
    done.unpersist()


def _advised(events: DataFrame, members: DataFrame | None, asked: Request) -> DataFrame:
    check_columns(events.columns, "the DataFrame of events")
    spark = events.sparkSession
    there = [*REQUIRED, *(name for name in _OPTIONAL if name in events.columns)]
    columns = [F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in there]
    # As text: handing a column of lists to Python costs several times all the others.
    columns += [F.to_json(name).alias(name) for name in _LISTS if name in events.columns]
    known = members if members is not None else spark.createDataFrame([], _MEMBERS)
    # The number is given so that Spark does not gather a few small, costly runs into one task.
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    done = (
        events.select(*columns)
        .repartition(tasks, "run")
        .groupBy("run")
        .cogroup(known.select("run", "groups", "schema_version").repartition(tasks, "run").groupBy("run"))
        .applyInArrow(_one(asked), from_arrow_schema(_DONE))
        .persist()
    )
    bad = done.where("error is not null").orderBy("run").first()
    if bad is not None:
        done.unpersist()
        raise InputError(bad.error)
    return done


def _one(asked: Request) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def one(rows: pa.Table, known: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _DONE.empty_table()
        run = rows.column("run")[0].as_py()
        about = [
            Meta(run, dict(each["groups"]), schema_version=each["schema_version"])
            for each in known.to_pylist()
        ]
        told: dict[str, str] = {"run": run}
        try:
            for meta in about:
                check_schema_version(meta, f"the meta.json of run {run}")
            advice = advise_run(run, _with_lists(rows), members_by_run(about).get(run, {}), asked)
            told["advice"] = msgspec.json.encode(advice).decode()
        except InputError as error:
            told["error"] = str(error)
        return pa.Table.from_pylist([told], schema=_DONE)

    return one


def _with_lists(rows: pa.Table) -> pa.Table:
    """Columns of lists as such again; none where no row has any."""
    for name in _LISTS:
        if name in rows.column_names:
            column = rows.column(name)
            rows = rows.drop_columns([name])
            if column.null_count < len(column):
                lists = [msgspec.json.decode(text) if text else None for text in column.to_pylist()]
                rows = rows.append_column(name, pa.array(lists, FIELDS[name][0]))
    return rows
