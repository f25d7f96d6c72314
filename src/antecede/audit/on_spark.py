"""Audits a DataFrame of events: did anything arrive before its cause? DataFrames of verdicts come out.

Runs are judged in parallel, one task each, which holds the run's rows; every row is shuffled once. A run of
more than `LARGE_RUN` rows is judged by many tasks (`audit.distributed`). The driver receives sums and the few
rows that it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from antecede.audit.core import COUNTS, MAX_VIOLATIONS, Finding, RunAudit, judge_run, members_by_run
from antecede.audit.distributed import judge_large_run
from antecede.audit.faults import DeliveryFault, worst_first
from antecede.audit.prepared_run import LARGE_RUN, FileSplits, find_large_runs
from antecede.audit.tally import ByOrigin, ByProcess, Tally
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.spark.by_run import apply_by_run, event_columns, lists_as_json, raise_first_error
from antecede.trace.schema import Meta, check_schema_version


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
        ("keys", pa.list_(pa.string())),
    ]
)
_FAULT = pa.struct(
    [
        *((name, pa.string()) for name in ("kind", "process", "message", "sender")),
        *((name, pa.int64()) for name in ("index", "consequences")),
        ("text", pa.string()),
    ]
)
_OVER_TIME = pa.struct(
    [
        ("start", pa.int64()),
        ("width", pa.int64()),
        *((name, pa.list_(pa.int64())) for name in ("deliveries", "causal_violations", "causal_deliveries")),
    ]
)
_TALLY = pa.struct(
    [
        ("by_process", pa.list_(_struct(ByProcess))),
        ("by_origin", pa.list_(_struct(ByOrigin))),
        ("over_time", _OVER_TIME),
    ]
)
_JUDGED = pa.schema(
    [
        ("run", pa.string()),
        ("error", pa.string()),
        *((name, pa.int64()) for name in COUNTS),
        ("findings", pa.list_(_FINDING)),
        ("faults", pa.list_(_FAULT)),
        ("tally", _TALLY),
    ]
)


@dataclass(frozen=True)
class Audit:
    """What an audit found, still on Spark."""

    judged: DataFrame
    persisted: DataFrame
    """The part of `judged` that Spark holds in its cache."""
    verdicts: DataFrame
    """A row per run: the counts."""
    violations: DataFrame
    """A row for each cause that a process did not have in time: the worst of each run."""
    faults: DataFrame
    """A row for each missing, duplicate, orphan or impossible delivery: the worst of each kind and run."""
    tallies: DataFrame
    """A row per run: its counts by process, by origin and over time."""

    def release(self) -> None:
        """Free what Spark holds of the audit."""
        self.persisted.unpersist()

    def total(self) -> Verdict:
        """The counts of all runs together."""
        sums = self.verdicts.agg(*(F.coalesce(F.sum(n), F.lit(0)).alias(n) for n in COUNTS)).first()
        return Verdict(**(sums.asDict() if sums else {}))

    def by_run(self) -> Iterator[tuple[str, Verdict]]:
        """A verdict per run: a summary, as many rows as there are runs."""
        for row in self.verdicts.orderBy("run").toLocalIterator():
            yield row.run, Verdict(**{name: row[name] for name in COUNTS})

    def errors(self) -> dict[str, str]:
        """The runs that could not be judged, and why."""
        failed = self.judged.where("error is not null").select("run", "error")
        return {row.run: row.error for row in failed.toLocalIterator()}

    def tally(self, run: str) -> Tally | None:
        """The counts of one run by process, by origin and over time."""
        row = self.tallies.where(F.col("run") == run).select("tally").first()
        return msgspec.convert(row.tally.asDict(recursive=True), Tally) if row and row.tally else None

    def worst_run(self, findings: list[Finding]) -> tuple[str | None, int]:
        """The run with the worst of these violations, or else with the most missing messages; and the number
        of runs."""
        worst = F.max_by("run", F.struct("missing", "duplicates"))
        row = self.verdicts.agg(worst.alias("run"), F.count("*").alias("runs")).first()
        if row is None:
            return None, 0
        return findings[0].run if findings else row.run, row.runs

    def first(self, count: int) -> list[Finding]:
        """A few violations, the worst first."""
        numbered = self.judged.select("run", F.posexplode("findings").alias("place", "finding"))
        worst = (F.desc("finding.consequences"), F.desc("finding.late"), "run", "place")
        rows = numbered.orderBy(*worst).limit(count).select("run", "finding.*").collect()
        return [msgspec.convert(row.asDict(), Finding) for row in rows]

    def first_faults(self, count: int) -> list[DeliveryFault]:
        """A few faults of each kind, the worst first."""
        numbered = self.judged.select("run", F.posexplode("faults").alias("place", "fault"))
        by_kind = Window.partitionBy("fault.kind").orderBy(F.desc("fault.consequences"), "run", "place")
        chosen = numbered.withColumn("number", F.row_number().over(by_kind)).where(F.col("number") <= count)
        rows = chosen.orderBy("run", "place").select("run", "fault.*").collect()
        return worst_first(msgspec.convert(row.asDict(), DeliveryFault) for row in rows)


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

    `members` (from `read_members`) says who should have got what; without it a message is addressed to every
    process that its group's rows name. Rows with `destinations` say so themselves. The work is done at once
    and the result persisted until `Audit.release`. Invalid rows raise an `InputError`, unless `strict` is
    False: then `Audit.errors` has the runs they spoil. Runs of more than `large_run` rows are judged by many
    tasks each, one run after the other. If these very events lie in Parquet `files` that every worker can
    open, workers read them there, which is faster.
    """
    columns = event_columns(events, ("message", "own_delivery", "member", "of_process"))
    addressed = [F.col("destinations")] if "destinations" in events.columns else []
    typed = events.select(*columns, *addressed)
    rows = events.select(*columns, *lists_as_json(events, ["destinations"]))
    splits, large = find_large_runs(events.sparkSession, rows, files, large_run)
    small = rows.where(~F.col("run").isin(*large)) if large else rows

    def judge(run: str, table: pa.Table, metas: list[Meta]) -> pa.Table:
        judged = judge_run(run, table, members_by_run(metas).get(run, {}), most_violations)
        return pa.Table.from_pylist([_row(judged)], schema=_JUDGED)

    persisted = apply_by_run(small, members, judge, _JUDGED).persist()
    if strict:
        raise_first_error(persisted)
    judged = persisted
    if large:
        metas = _metas_of(members, large)
        alone = [_judge_large(typed, run, metas, most_violations, strict, splits) for run in large]
        added = events.sparkSession.createDataFrame(pa.Table.from_pylist(alone, schema=_JUDGED))
        judged = judged.unionByName(added.select(*judged.columns))
    if splits is not None:
        splits.summary.unpersist()
    valid = judged.where("error is null")
    deprecated = [F.col(new).alias(old) for old, new in Verdict.DEPRECATED.items()]
    return Audit(
        judged=judged,
        persisted=persisted,
        verdicts=valid.select("run", *COUNTS, *deprecated),
        violations=judged.select("run", F.inline("findings")),
        faults=judged.select("run", F.inline("faults")),
        tallies=valid.select("run", "tally"),
    )


def _metas_of(members: DataFrame | None, runs: list[str]) -> list[Meta]:
    if members is None:
        return []
    rows = members.where(F.col("run").isin(*runs)).toLocalIterator()
    return [Meta(row.run, row.groups, schema_version=row.schema_version) for row in rows]


def _judge_large(
    events: DataFrame, run: str, metas: list[Meta], most: int, strict: bool, files: FileSplits | None
) -> dict[str, Any]:
    metas = [meta for meta in metas if meta.run == run]
    try:
        for meta in metas:
            check_schema_version(meta, f"the meta.json of run {run}")
        rows = events.where(F.col("run") == run)
        return _row(judge_large_run(run, rows, members_by_run(metas).get(run, {}), most, files))
    except InputError as error:
        if strict:
            raise
        return {"run": run, "error": str(error)}


def _row(judged: RunAudit) -> dict[str, Any]:
    return {
        "run": judged.run,
        **{name: getattr(judged.verdict, name) for name in COUNTS},
        "findings": msgspec.to_builtins(judged.findings),
        "faults": msgspec.to_builtins(judged.faults),
        "tally": msgspec.to_builtins(judged.tally),
    }
