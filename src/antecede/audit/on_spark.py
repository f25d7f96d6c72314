"""Did anything arrive before its cause? DataFrames of events in, tables of verdicts out.

Runs are judged in parallel, each by one task, which takes memory for the run's rows and shuffles each of them
once; a run of more than `LARGE_RUN` rows is judged by many tasks (`large`). The driver sees sums and the few
rows that it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from antecede.audit.core import COUNTS, MAX_VIOLATIONS, Finding, RunAudit, judge_run, members_by_run
from antecede.audit.distributed import LARGE_RUN, FileSplits, find_large_runs, judge_large_run
from antecede.audit.tally import ByOrigin, ByProcess, Tally
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.spark.session import first_line
from antecede.trace.schema import FIELDS, META, REQUIRED, SCHEMA, Meta, check_schema_version
from antecede.trace.validate import check_columns


def _struct(kind: type[msgspec.Struct]) -> pa.DataType:
    first, *others = kind.__struct_fields__
    return pa.struct([(first, pa.string()), *((name, pa.int64()) for name in others)])


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
_MANY = pa.list_(pa.int64())
_TALLY = pa.struct(
    [
        ("by_process", pa.list_(_struct(ByProcess))),
        ("by_origin", pa.list_(_struct(ByOrigin))),
        (
            "over_time",
            pa.struct(
                [
                    ("start", pa.int64()),
                    ("width", pa.int64()),
                    ("deliveries", _MANY),
                    ("causal_deliveries", _MANY),
                ]
            ),
        ),
    ]
)
_JUDGED = pa.schema(
    [
        ("run", pa.string()),
        ("error", pa.string()),
        *((name, pa.int64()) for name in COUNTS),
        ("findings", pa.list_(_FINDING)),
        ("tally", _TALLY),
    ]
)
_MEMBERS = "run string, groups map<string, array<string>>, schema_version int"


@dataclass(frozen=True)
class Audit:
    """What an audit found, still on Spark."""

    judged: DataFrame
    kept: DataFrame
    """The part of it that Spark keeps."""
    verdicts: DataFrame
    """A row a run: the counts."""
    violations: DataFrame
    """A row for each cause that was not there in time, with its witness: the worst of each run."""
    tallies: DataFrame
    """A row a run: its counts by process, by origin and over time."""

    def release(self) -> None:
        """Free what Spark keeps of the audit."""
        self.kept.unpersist()

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

    def tally(self, run: str) -> Tally | None:
        """Where and when one run went wrong."""
        row = self.tallies.where(F.col("run") == run).select("tally").first()
        return msgspec.convert(row.tally.asDict(recursive=True), Tally) if row and row.tally else None

    def worst_run(self, findings: list[Finding]) -> tuple[str | None, int]:
        """The run with the worst of these violations, or that misses most; and how many runs there are."""
        worst = F.max_by("run", F.struct("missing", "duplicates"))
        row = self.verdicts.agg(worst.alias("run"), F.count("*").alias("runs")).first()
        if row is None:
            return None, 0
        return findings[0].run if findings else row.run, row.runs

    def first(self, count: int) -> list[Finding]:
        """A few violations, the worst first."""
        worst = (F.desc("late"), F.desc("consequences"), "run", "process", "effect")
        rows = self.violations.orderBy(*worst).limit(count)
        return [msgspec.convert(row.asDict(), Finding) for row in rows.collect()]


def audit(
    events: DataFrame,
    members: DataFrame | None = None,
    most_violations: int = MAX_VIOLATIONS,
    *,
    strict: bool = True,
    large_run: int = LARGE_RUN,
    files: Sequence[Path] = (),
) -> Audit:
    """Judge a DataFrame of events in the schema of traces, run by run.

    `members` (as `read_members` gives them) says who should have got what; without it a message is
    meant for every process that its group's rows name. Rows with `destinations` say so themselves.
    The judging is done here and now and kept (`Audit.release` lets go of it). Bad rows raise an
    `InputError`, unless `strict` is off: then `Audit.errors` has the runs they spoil. Runs of more than
    `large_run` rows are judged by many tasks each, one run after the other. If these very events lie in
    Parquet `files` that every worker can open, workers read them there, which is faster.
    """
    check_columns(events.columns, "the DataFrame of events")
    spark = events.sparkSession
    columns = [F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in REQUIRED]
    addressed = [F.col("destinations")] if "destinations" in events.columns else []
    typed = events.select(*columns, *addressed)
    # As text: handing a column of lists to Python costs several times all the others.
    rows = events.select(*columns, *(F.to_json(column).alias("destinations") for column in addressed))
    known = members if members is not None else spark.createDataFrame([], _MEMBERS)
    work, large = find_large_runs(spark, rows, files, large_run)
    small = rows.where(~F.col("run").isin(*large)) if large else rows
    # The number is given so that Spark does not gather a few small, costly runs into one task.
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    kept = (
        small.repartition(tasks, "run")
        .groupBy("run")
        .cogroup(known.select("run", "groups", "schema_version").repartition(tasks, "run").groupBy("run"))
        .applyInArrow(_judge(most_violations), from_arrow_schema(_JUDGED))
        .persist()
    )
    error = kept.agg(F.min("error").alias("error")).first() if strict else None
    if error is not None and error.error is not None:
        raise InputError(error.error)
    judged = kept
    if large:
        of_members = _rows_of_members(known, large)
        alone = [_judge_large(typed, run, of_members, most_violations, strict, work) for run in large]
        made = spark.createDataFrame(pa.Table.from_pylist(alone, schema=_JUDGED))
        judged = judged.unionByName(made.select(*judged.columns))
    if work is not None:
        work.summary.unpersist()
    return Audit(
        judged=judged,
        kept=kept,
        verdicts=judged.where("error is null").select(
            "run", *COUNTS, *(F.col(new).alias(old) for old, new in Verdict.DEPRECATED.items())
        ),
        violations=judged.select("run", F.inline("findings")),
        tallies=judged.where("error is null").select("run", "tally"),
    )


def _rows_of_members(known: DataFrame, runs: list[str]) -> list[Meta]:
    rows = known.where(F.col("run").isin(*runs)).toLocalIterator()
    return [Meta(row.run, row.groups, schema_version=row.schema_version) for row in rows]


def _judge_large(
    events: DataFrame, run: str, about: list[Meta], most: int, strict: bool, work: FileSplits | None
) -> dict[str, Any]:
    mine = [meta for meta in about if meta.run == run]
    try:
        for meta in mine:
            check_schema_version(meta, f"the meta.json of run {run}")
        own = events.where(F.col("run") == run)
        return _row(judge_large_run(run, own, members_by_run(mine).get(run, {}), most, work))
    except InputError as error:
        if strict:
            raise
        return {"run": run, "error": str(error)}


def _judge(most: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def judge(rows: pa.Table, known: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return _JUDGED.empty_table()
        run = rows.column("run")[0].as_py()
        about = [
            Meta(run, dict(each["groups"]), schema_version=each["schema_version"])
            for each in known.to_pylist()
        ]
        try:
            for meta in about:
                check_schema_version(meta, f"the meta.json of run {run}")
            judged = judge_run(run, _with_lists(rows), members_by_run(about).get(run, {}), most)
        except InputError as error:
            return pa.Table.from_pylist([{"run": run, "error": str(error)}], schema=_JUDGED)
        return pa.Table.from_pylist([_row(judged)], schema=_JUDGED)

    return judge


def _row(judged: RunAudit) -> dict[str, Any]:
    return {
        "run": judged.run,
        **{name: getattr(judged.verdict, name) for name in COUNTS},
        "findings": msgspec.to_builtins(judged.findings),
        "tally": msgspec.to_builtins(judged.tally),
    }


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
