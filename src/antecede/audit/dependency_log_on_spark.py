"""Judges a dependency log on Spark, with the same verdict as `dependency_log` in one process.

Records are numbered in the order of the log. Missing causes, repeated ids and clocks are counted by joins and
aggregations. Cycles, of causes alone or with the order of a process, are local in that order: every cycle
contains a back edge, and between any two neighbouring positions within the cycle some edge leads back. The
log is divided into parts of equal size, parts connected by a back edge are joined into blocks, and each block
is judged by one task with compiled code. A log in a valid causal order has no back edge, so there is nothing
to judge.

A task holds its block as numbers, about 100 bytes per record and cause. If the order of the log is unrelated
to causality, for example newest first, the whole log is one block. The driver holds one number per part and
the listed findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from antecede.audit.cyclic_faults import cyclic_faults
from antecede.audit.dependency_findings import (
    RECORD_COLUMNS,
    ClockSkew,
    DependencyVerdict,
    DuplicateId,
    LogRecord,
    MissingCause,
    causal_cycle,
    clock_skew,
    duplicate_id,
    effect_before_cause,
    missing_cause,
)
from antecede.audit.dependency_log import COLUMNS
from antecede.audit.process_order import NO_SEQ
from antecede.spark.session import connect, refuse_unshared, spark_path
from antecede.temporary_folders import temporary_folder
from antecede.trace.parquet_files import parquet_writer

Progress = Callable[[str, int, int], None]
PART_ROWS = 1 << 20
_MAX_PARTS = 4096
_FILE_ROWS = 1 << 20
_CYCLE, _EARLY, _COUNTS = "cycle", "early", "counts"
_BLOCK_SCHEMA = pa.schema([("kind", pa.string()), ("size", pa.int64()), ("path", pa.list_(pa.int64()))])
"""The rows that a block yields: a cycle or an early record with its path, or the three counts."""


def judge_dependency_log_on_spark(
    batches: Iterable[pa.Table],
    limit: int = 10,
    master: str | None = None,
    progress: Progress = lambda *_: None,
    part_rows: int = PART_ROWS,
    counted: str = "row",
) -> DependencyVerdict:
    """Judge a log of `sources.dependency_log.SCHEMA`, which is first copied to a temporary folder.

    `counted` says in words what the column `row` is the number of.
    """
    with temporary_folder("log") as folder:
        rows = _write(batches, folder)
        if not rows:
            return DependencyVerdict(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], [], [], [], [])
        progress("starting Spark", 0, 0)
        with connect(master) as spark:
            refuse_unshared(spark, folder)
            progress("auditing", 0, 0)
            log = spark.read.parquet(spark_path(folder))
            size = max(part_rows, -(-rows // _MAX_PARTS))
            with _prepared(log) as prepared:
                return _SparkJudgement(spark, prepared, limit, size, counted).verdict()


def _write(batches: Iterable[pa.Table], folder: Path) -> int:
    """Write the log to files that tasks can read in parallel; returns the number of rows."""
    rows, writer, room = 0, None, 0
    try:
        for batch in batches:
            table = batch.select(COLUMNS)
            table = table.set_column(
                COLUMNS.index("file"), "file", table.column("file").cast(pa.string())
            ).add_column(0, "place", pa.array(np.arange(rows, rows + len(table))))
            if writer is None or room <= 0:
                if writer is not None:
                    writer.close()
                writer, room = parquet_writer(folder / f"log-{rows:015}.parquet", table.schema), _FILE_ROWS
            writer.write_table(table)
            rows += len(table)
            room -= len(table)
    finally:
        if writer is not None:
            writer.close()
    return rows


class _Log(NamedTuple):
    """The log as tables."""

    rows: DataFrame
    repeated: DataFrame
    """Ids that several records share: `id`, `first` (a position) and `records`."""
    records: DataFrame
    """The first record of each id; `origin` is the first position of its process, which stands for the
    process."""
    edges: DataFrame
    """One row per cause that a record names: `effect`, `position` in its list, and `cause`, or `name` if no
    record has that id; `time` and `origin` of both ends."""


@contextmanager
def _prepared(rows: DataFrame) -> Iterator[_Log]:
    persisted: list[DataFrame] = []

    def persist(frame: DataFrame) -> DataFrame:
        persisted.append(frame.persist(StorageLevel.DISK_ONLY))
        return persisted[-1]

    try:
        by_id = rows.groupBy("id").agg(F.min("place").alias("first"), F.count("*").alias("records"))
        repeated = persist(by_id.where("records > 1"))
        records = rows
        if not repeated.isEmpty():
            again = rows.join(repeated, "id").where("place > first").select("place")
            records = rows.join(again, "place", "left_anti")
        origins = records.groupBy("process").agg(F.min("place").alias("origin"))
        records = persist(records.join(origins, "process"))
        yield _Log(rows, repeated, records, persist(_edges(records)))
    finally:
        for frame in persisted:
            frame.unpersist()


def _edges(records: DataFrame) -> DataFrame:
    effects = records.select(
        F.col("place").alias("effect"),
        F.col("time").alias("effect_time"),
        F.col("origin").alias("effect_origin"),
        F.posexplode("causes").alias("position", "name"),
    )
    causes = records.select(
        F.col("id").alias("name"),
        F.col("place").alias("cause"),
        F.col("time").alias("cause_time"),
        F.col("origin").alias("cause_origin"),
    )
    joined = effects.join(causes, "name", "left")
    return joined.withColumn("name", F.when(F.col("cause").isNull(), F.col("name")))


class _SparkJudgement:
    def __init__(self, spark: SparkSession, log: _Log, limit: int, part_rows: int, counted: str) -> None:
        self.spark, self.log, self.limit, self.part_rows = spark, log, limit, part_rows
        self.counted = counted

    def verdict(self) -> DependencyVerdict:
        counted = self._one(
            self.log.records.agg(F.count("*").alias("records"), F.countDistinct("origin").alias("processes"))
        )
        edges = self._one(
            self.log.edges.agg(
                F.count("*").alias("causes"),
                F.count("name").alias("missing_causes"),
                F.countDistinct("name").alias("missing_ids"),
                F.count(F.when(F.expr("effect_time < cause_time"), 1)).alias("skewed_pairs"),
            )
        )
        repeated = self._one(self.log.repeated.agg(F.sum("records").alias("rows"), F.count("*").alias("ids")))
        cycles, on_cycles, early, cycle_list, before = self._cyclic()
        return DependencyVerdict(
            records=counted.records,
            processes=counted.processes,
            causes=edges.causes,
            missing_ids=edges.missing_ids,
            missing_causes=edges.missing_causes,
            duplicate_records=(repeated.rows or 0) - repeated.ids,
            cycles=cycles,
            records_on_cycles=on_cycles,
            effects_before_causes=early,
            skewed_pairs=edges.skewed_pairs,
            missing=self._missing() if edges.missing_ids else [],
            duplicates=self._duplicates() if repeated.ids else [],
            cycle_list=cycle_list,
            before_causes=before,
            skew=self._skew() if edges.skewed_pairs else [],
        )

    def _one(self, frame: DataFrame) -> Any:
        return frame.collect()[0]

    def _records(self, places: Iterable[int]) -> dict[int, LogRecord]:
        """The records at these positions, for a finding to name."""
        wanted = self.spark.createDataFrame(pa.table({"place": pa.array(sorted({*places}), pa.int64())}))
        found = self.log.rows.join(F.broadcast(wanted), "place").select("place", *RECORD_COLUMNS)
        return {row.place: LogRecord._make([*row[1:], self.counted]) for row in found.collect()}

    # Missing causes and repeated ids.

    def _missing(self) -> list[MissingCause]:
        by_name = (
            self.log.edges.where("name is not null")
            .groupBy("name")
            .agg(F.count("*").alias("effects"), F.min(F.struct("effect", "position")).alias("first"))
            .orderBy(F.desc("effects"), "first")
            .limit(self.limit)
            .collect()
        )
        records = self._records(row.first.effect for row in by_name)
        return [missing_cause(row.name, row.effects, records[row.first.effect]) for row in by_name]

    def _duplicates(self) -> list[DuplicateId]:
        worst = self.log.repeated.orderBy(F.desc("records"), "first").limit(self.limit)
        later = self.log.rows.join(F.broadcast(worst), "id").where("place > first")
        listed = (
            later.groupBy("records", "first")
            .agg(F.min("place").alias("second"))
            .orderBy(F.desc("records"), "first")
            .collect()
        )
        records = self._records(place for row in listed for place in (row["first"], row.second))
        return [duplicate_id(row.records, records[row["first"]], records[row.second]) for row in listed]

    # Clocks.

    def _skew(self) -> list[ClockSkew]:
        # The difference of two 64-bit numbers may need 65 bits.
        behind = F.col("cause_time").cast("decimal(20,0)") - F.col("effect_time").cast("decimal(20,0)")
        timed = self.log.edges.where("cause_time is not null and effect_time is not null")
        is_skewed = F.expr("effect_time < cause_time")
        worst = F.struct((-behind).alias("ahead"), "effect", "position", "cause")
        pairs = (
            timed.groupBy("cause_origin", "effect_origin")
            .agg(
                F.count("*").alias("of"),
                F.count(F.when(is_skewed, 1)).alias("effects"),
                F.min(F.when(is_skewed, worst)).alias("worst"),
            )
            .where("effects > 0")
            .orderBy("worst.ahead", "cause_origin", "effect_origin")
            .limit(self.limit)
            .collect()
        )
        records = self._records(place for row in pairs for place in (row.worst.cause, row.worst.effect))
        return [
            clock_skew(records[worst.cause], records[worst.effect], -int(worst.ahead), effects, of)
            for _, _, of, effects, worst in pairs
        ]

    # Cycles.

    def _cyclic(self) -> tuple[int, int, int, list[Any], list[Any]]:
        block_of = self._blocks()
        if not block_of:
            return 0, 0, 0, [], []
        found = self._judged_blocks(block_of).persist()
        try:
            totals = found.where(F.col("kind") == _COUNTS).select(
                *(F.sum(F.col("path")[each]).alias(f"n{each}") for each in range(3))
            )
            counts = [int(each) for each in self._one(totals)]
            order = F.desc("size"), F.col("path")[0]
            cycles = found.where(F.col("kind") == _CYCLE).orderBy(*order).limit(self.limit).collect()
            last = F.element_at("path", -1)
            early = found.where(F.col("kind") == _EARLY).orderBy(last).limit(self.limit).collect()
        finally:
            found.unpersist()
        records = self._records(place for row in [*cycles, *early] for place in row.path)
        return (
            counts[0],
            counts[1],
            counts[2],
            [causal_cycle(row.size, [records[place] for place in row.path]) for row in cycles],
            [effect_before_cause([records[place] for place in row.path]) for row in early],
        )

    def _blocks(self) -> dict[int, int]:
        """For each part of the log that may contain a cycle, the first part of its block."""
        parts = [self._part("low").alias("first"), self._part("high").alias("last")]
        back = self.log.edges.where("cause >= effect").selectExpr("effect as low", "cause as high")
        numbered = self.log.records.where("seq is not null").groupBy("origin", "seq")
        groups = numbered.agg(F.min("place").alias("low"), F.max("place").alias("end"))
        before = F.lag("end").over(Window.partitionBy("origin").orderBy("seq"))
        unordered = groups.withColumn("high", before).where("high > low").select("low", "high")
        spans = back.union(unordered).select(*parts).groupBy("first").agg(F.max("last").alias("last"))
        block_of: dict[int, int] = {}
        end = -1
        for first, last in sorted((row["first"], row["last"]) for row in spans.collect()):
            start = block_of[end] if first <= end else first
            for part in range(max(first, end + 1), last + 1):
                block_of[part] = start
            end = max(end, last)
        return block_of

    def _part(self, place: str) -> Any:
        return F.floor(F.col(place) / self.part_rows).cast("long")

    def _judged_blocks(self, block_of: dict[int, int]) -> DataFrame:
        blocks = self.spark.createDataFrame(
            pa.table({"part": pa.array([*block_of], pa.int64()), "block": pa.array([*block_of.values()])})
        )
        records = (
            self.log.records.withColumn("part", self._part("place"))
            .join(F.broadcast(blocks), "part")
            .selectExpr("block", "true as is_record", "place as a", "origin as b", "seq as c")
        )
        of_cause = blocks.selectExpr("part as cause_part", "block as cause_block")
        edges = (
            self.log.edges.where("cause is not null")
            .withColumn("part", self._part("effect"))
            .withColumn("cause_part", self._part("cause"))
            .join(F.broadcast(blocks), "part")
            .join(F.broadcast(of_cause), "cause_part")
            .where("block = cause_block")
            .selectExpr("block", "false as is_record", "effect as a", "cause as b", "position as c")
        )
        judge = _judge_block(self.limit)
        by_block = records.union(edges).groupBy("block")
        return by_block.applyInArrow(judge, from_arrow_schema(_BLOCK_SCHEMA))


def _judge_block(limit: int) -> Callable[[pa.Table], pa.Table]:
    def judge(table: pa.Table) -> pa.Table:
        is_record = table.column("is_record").to_numpy()
        a, b = (table.column(name).to_numpy() for name in ("a", "b"))
        c = table.column("c").fill_null(NO_SEQ).to_numpy()
        places, origin, seq = (values[is_record] for values in (a, b, c))
        order = np.argsort(places)
        places, origin, seq = places[order], origin[order], seq[order]
        effect, cause, position = (values[~is_record] for values in (a, b, c))
        order = np.lexsort((position, effect))
        effect, cause = np.searchsorted(places, effect[order]), np.searchsorted(places, cause[order])
        found = cyclic_faults(cause, effect, origin, seq, limit)
        rows = [(_COUNTS, 0, [found.cycles, found.on_cycles, found.early])]
        rows += [(_CYCLE, size, places[path].tolist()) for size, path in found.cycle_paths]
        rows += [(_EARLY, 0, places[path].tolist()) for path in found.early_paths]
        return pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=_BLOCK_SCHEMA)

    return judge
