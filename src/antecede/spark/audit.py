"""Did anything arrive before its cause? DataFrames of events in, tables of verdicts out.

Runs are judged in parallel, each by one task; the driver sees sums and the few rows that it asks for. A run
costs its task memory for its rows, and shuffles each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from antecede.errors import InputError
from antecede.order import Verdict
from antecede.spark.session import first_line
from antecede.trace.judge import COUNTS, MOST_VIOLATIONS, Finding, judge_run, members_of
from antecede.trace.schema import FIELDS, REQUIRED, SCHEMA, Meta, check_columns, refuse_newer
from antecede.trace.writer import META

_FINDING = pa.struct(
    [
        ("process", pa.string()),
        ("cause", pa.string()),
        ("effect", pa.string()),
        ("late", pa.bool_()),
        ("path", pa.list_(pa.string())),
        ("text", pa.string()),
        ("consequences", pa.int64()),
    ]
)
_JUDGED = pa.schema(
    [
        ("run", pa.string()),
        ("error", pa.string()),
        *((name, pa.int64()) for name in COUNTS),
        ("findings", pa.list_(_FINDING)),
    ]
)
_MEMBERS = "run string, groups map<string, array<string>>, schema_version int"


@dataclass(frozen=True)
class Audit:
    """What an audit found, still on Spark."""

    judged: DataFrame
    verdicts: DataFrame
    """A row a run: the counts."""
    violations: DataFrame
    """A row for each causal violation with its witness: the first of each run, late ones first."""

    def release(self) -> None:
        """Free what Spark keeps of the audit."""
        self.judged.unpersist()

    def total(self) -> Verdict:
        """The counts of all runs together."""
        sums = self.verdicts.agg(*(F.coalesce(F.sum(n), F.lit(0)).alias(n) for n in COUNTS)).first()
        return Verdict(**(sums.asDict() if sums else {}))

    def by_run(self) -> Iterator[tuple[str, Verdict]]:
        """A verdict a run: a summary, as many rows as there are runs."""
        for row in self.verdicts.orderBy("run").toLocalIterator():
            yield row.run, Verdict(**{name: row[name] for name in COUNTS})

    def errors(self) -> dict[str, str]:
        """The runs that could not be judged, and why."""
        spoilt = self.judged.where("error is not null").select("run", "error")
        return {row.run: row.error for row in spoilt.toLocalIterator()}

    def first(self, count: int) -> list[Finding]:
        """A few violations, late ones first."""
        rows = self.violations.orderBy(F.desc("late"), "run", "process", "effect").limit(count)
        return [msgspec.convert(row.asDict(), Finding) for row in rows.collect()]


def audit(
    events: DataFrame,
    members: DataFrame | None = None,
    most_violations: int = MOST_VIOLATIONS,
    *,
    strict: bool = True,
) -> Audit:
    """Judge a DataFrame of events in the schema of traces, run by run.

    `members` (as `read_members` gives them) says who should have got what; without it a message is
    meant for every process that its group's rows name. Rows with `destinations` say so themselves.
    The judging is done here and now and kept (`Audit.release` lets go of it). Bad rows raise an
    `InputError`, unless `strict` is off: then `Audit.errors` has the runs they spoil.
    """
    check_columns(events.columns, "the DataFrame of events")
    spark = events.sparkSession
    columns = [F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in REQUIRED]
    if "destinations" in events.columns:
        # As text: handing a column of lists to Python costs several times all the others.
        columns.append(F.to_json("destinations").alias("destinations"))
    rows = events.select(*columns)
    known = members if members is not None else spark.createDataFrame([], _MEMBERS)
    # The number is given so that Spark does not gather a few small, costly runs into one task.
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    judged = (
        rows.repartition(tasks, "run")
        .groupBy("run")
        .cogroup(known.select("run", "groups", "schema_version").repartition(tasks, "run").groupBy("run"))
        .applyInArrow(_judge(most_violations), from_arrow_schema(_JUDGED))
        .persist()
    )
    bad = judged.where("error is not null").first() if strict else None
    if bad is not None:
        raise InputError(bad.error)
    return Audit(
        judged=judged,
        verdicts=judged.where("error is null").select("run", *COUNTS),
        violations=judged.select("run", F.inline("findings")),
    )


def _judge(most: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def judge(rows: pa.Table, known: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _JUDGED.empty_table()
        run = rows.column("run")[0].as_py()
        row: dict[str, Any] = {"run": run}
        about = [
            Meta(run, dict(each["groups"]), schema_version=each["schema_version"])
            for each in known.to_pylist()
        ]
        try:
            for meta in about:
                refuse_newer(meta, f"the meta.json of run {run}")
            judged = judge_run(run, _with_lists(rows), members_of(about).get(run, {}), most)
        except InputError as error:
            return pa.Table.from_pylist([row | {"error": str(error)}], schema=_JUDGED)
        row |= {name: getattr(judged.verdict, name) for name in COUNTS}
        row["findings"] = [msgspec.to_builtins(finding) for finding in judged.findings]
        return pa.Table.from_pylist([row], schema=_JUDGED)

    return judge


def _with_lists(rows: pa.Table) -> pa.Table:
    """The destinations as lists again; no column of them where no row has any."""
    if "destinations" not in rows.column_names:
        return rows
    texts = rows.column("destinations").to_pylist()
    rest = rows.drop_columns(["destinations"])
    if not any(texts):
        return rest
    lists = [msgspec.json.decode(text) if text else None for text in texts]
    return rest.append_column("destinations", pa.array(lists, FIELDS["destinations"][0]))


def read_events(spark: SparkSession, *paths: str) -> DataFrame:
    """The events of the traces at `paths`: local, or any URL Spark reads."""
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    try:
        found = reader.parquet(*paths).columns
    except AnalysisException as error:
        raise InputError(f"{', '.join(paths)} holds no trace: {first_line(error)}") from error
    check_columns(found, ", ".join(paths))
    # With the schema given, parts that differ in width of numbers or in optional columns read as one.
    return reader.schema(from_arrow_schema(SCHEMA)).parquet(*paths)


def read_members(spark: SparkSession, *paths: str) -> DataFrame:
    """Who was in which group, from the `meta.json` files at `paths`."""
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", META)
    texts = reader.text(list(paths), wholetext=True)
    meta = F.from_json("value", _MEMBERS, {"mode": "FAILFAST"})
    return texts.select(meta.alias("meta")).select("meta.*")


def members_frame(spark: SparkSession, about: Sequence[Meta]) -> DataFrame:
    """The same from what has been read already."""
    rows = [(meta.run, meta.groups, meta.schema_version) for meta in about]
    return spark.createDataFrame(rows, _MEMBERS)
