"""One run that is too large for one task, judged by many: a DataFrame of its rows in, its verdict out.

Processes are dealt out to blocks, a task each (`trace.parcels` says what these do). One pass over the events
makes numbers of names and parcels of rows; after that only parcels move. Rows are shuffled twice, at 7 bytes
each; what senders had goes to every block, messages × streams × 2 bytes. The driver holds the names of the
processes, a few numbers for each stream, and the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from antecede.audit import distributed_steps, parquet_splits
from antecede.audit.core import RunAudit, build_tally, build_verdict, finding
from antecede.audit.encoding import time_buckets
from antecede.audit.passes import COUNTED, TIME_BUCKETS, Root
from antecede.errors import InputError
from antecede.trace.execution_from_rows import Members
from antecede.trace.reader import estimate_rows
from antecede.trace.schema import REQUIRED
from antecede.trace.validate import (
    INVALID_ROW_SQL,
    check_event,
    duplicate_index,
    empty_destination,
    empty_rows,
    sent_twice,
)

LARGE_RUN = 2_000_000
"""Rows of a run above which one task is not enough."""
_ROWS_A_PART = 512
"""Of one process: few enough that the pasts of what is delivered in a part stay near the processor."""
_BLOCKS_A_CORE = 2
_TASKS_A_CORE = 4
_MAX_AUDIENCES = 100_000
_CHUNK = from_arrow_schema(distributed_steps.CHUNK)


class FileSplits(NamedTuple):
    """Rows that workers read from files themselves (`trace.direct`)."""

    items: DataFrame
    summary: DataFrame


class _Run(NamedTuple):
    """A run whose streams are known."""

    plan: distributed_steps.BlockPlan
    names: list[str]
    rows: DataFrame
    numbered: DataFrame
    """Its sends: origin, seq, message."""
    dense: bool
    """Whether every origin numbers its messages from 1 on, all to one audience: then no table is needed."""
    work: FileSplits | None

    @property
    def spark(self) -> SparkSession:
        return self.rows.sparkSession


def judge_large_run(
    run: str, events: DataFrame, members: Members, most: int, work: FileSplits | None = None
) -> RunAudit:
    """Judge the rows of one run, as `judge_run` does."""
    kept: list[DataFrame] = []
    try:
        return _judge(prepare_run(run, events, members, work, kept), most, kept)
    finally:
        for frame in kept:
            frame.unpersist()


class _Pasts(NamedTuple):
    """What is known once every message's past is."""

    rows: DataFrame
    gathered: DataFrame
    had: DataFrame
    """What each message's sender had."""
    closed: DataFrame
    """The pasts that are more than that."""
    barred: list[DataFrame]
    impossible: int


def compute_pasts(run: _Run, kept: list[DataFrame]) -> _Pasts:
    plan = run.plan
    rows = _kept(_packed(run), kept)
    barred: list[DataFrame] = []
    impossible = 0
    while True:
        gathered = _kept(_by_block(run, distributed_steps.gather_block(plan), rows, *barred), kept)
        _refuse(run, gathered)
        had = gathered.where(F.col("part") == distributed_steps.VECTOR)
        closing = _kept(had.coalesce(1).mapInArrow(distributed_steps.close_all(plan), _CHUNK), kept)
        _refuse(run, closing)
        closed = closing.where(F.col("part") == distributed_steps.CLOSED)
        if barred or not _sum(closing, distributed_steps.CYCLIC):
            return _Pasts(rows, gathered, had, closed, barred, impossible)
        every = [_to_every_block(plan, each) for each in (had, closed)]
        barred = [_kept(_by_block(run, distributed_steps.bar_block(plan), rows, *every), kept)]
        _refuse(run, barred[0])
        impossible = _sum(barred[0], distributed_steps.BARRED, "previous")


def _judge(run: _Run, most: int, kept: list[DataFrame]) -> RunAudit:
    plan = run.plan
    rows, gathered, had, closed, barred, impossible = compute_pasts(run, kept)
    pasts = [_to_every_block(plan, each) for each in (had, closed)]
    known = gathered.where(F.col("part") != distributed_steps.VECTOR)
    counted = _kept(_by_block(run, distributed_steps.count_block(plan, most), rows, known, *pasts), kept)
    _refuse(run, counted)
    counts = np.zeros((plan.processes, COUNTED), np.int64)
    by_origin = np.zeros((int(plan.origin.max(initial=-1)) + 1, 2), np.int64)
    by_time = np.zeros((TIME_BUCKETS, 2), np.int64)
    roots: list[Root] = []
    for row in counted.toLocalIterator():
        figures = np.frombuffer(row.payload, np.int64)
        if row.part == distributed_steps.COUNTS:
            counts[row.number] = figures
        elif row.part == distributed_steps.ORIGINS:
            by_origin += figures.reshape(-1, 2)
        elif row.part == distributed_steps.OVER_TIME:
            by_time += figures.reshape(-1, 2)
        elif row.part == distributed_steps.ROOTS:
            roots += [Root(*root) for root in figures.reshape(-1, len(Root._fields)).tolist()]
    roots.sort(key=lambda root: (-root.late, -root.consequences, root.place, root.cause))
    paths = _paths(run, roots[:most], [had, *barred])
    orphans = _orphans(run) if _sum(gathered, distributed_steps.ORPHANS) else (0, 0)
    keys = _keys(run, {message for path in paths for message in path})
    sent = np.bincount(plan.origin, np.diff(plan.first), plan.processes)
    return RunAudit(
        plan.run,
        build_verdict(counts, plan.messages, *orphans, impossible),
        [finding(plan.run, run.names, keys, *each) for each in zip(roots, paths, strict=False)],
        build_tally(run.names, sent, counts, by_origin, by_time, plan.start_time, plan.bucket_width),
    )


def prepare_run(
    run: str,
    events: DataFrame,
    members: Members,
    work: FileSplits | None,
    kept: list[DataFrame],
    together: bool = False,
) -> _Run:
    """Who is there, who sends to whom, and how messages are numbered; `together`, all is meant for all."""
    rows = events.select(*(name for name in (*REQUIRED, "destinations") if name in events.columns))
    if together:
        rows = rows.select(*REQUIRED).withColumn("group", F.lit(""))
    summary = _summary(run, rows, work, together)
    seen: dict[str, set[str]] = {}
    for row in summary:
        seen.setdefault(row.group, set()).add(row.process)
    groups = {name: frozenset(members.get(name, those)) for name, those in seen.items()}
    sends, audiences = _sends(run, rows, groups, any(row.addressed for row in summary), work)
    names = sorted({row.process for row in summary}.union(*members.values(), *audiences.values()))
    sets = {those: place for place, those in enumerate(dict.fromkeys(audiences.values()))}
    spark = events.sparkSession
    by_key = spark.createDataFrame(
        [(key, sets[those]) for key, those in audiences.items()], "key string, audience int"
    )
    in_turn = Window.partitionBy("origin", "audience").orderBy("index")
    sends = sends.join(F.broadcast(by_key), "key").withColumn("number", F.row_number().over(in_turn))
    sends = _kept(sends.select("origin", "seq", "index", "audience", "number"), kept)
    told = sends.groupBy("origin", "audience").agg(
        F.count("*").alias("messages"), F.min(F.col("number") == F.col("seq")).alias("dense")
    )
    rank = {name: place for place, name in enumerate(names)}
    streams = sorted(
        (rank[row.origin], row.audience, row.messages, row.dense) for row in told.toLocalIterator()
    )
    dense = all(stream[3] for stream in streams) and len({stream[0] for stream in streams}) == len(streams)
    if not dense:
        _refuse_sent_twice(run, sends)
    first = np.cumsum([0, *(stream[2] for stream in streams)])
    if first[-1] > distributed_steps.LARGEST_MESSAGE:
        raise InputError(
            f"run {run} has {first[-1]:,} messages; {distributed_steps.LARGEST_MESSAGE:,} can be judged"
        )
    starts = [
        (names[stream[0]], stream[1], int(begin)) for stream, begin in zip(streams, first, strict=False)
    ]
    starting = spark.createDataFrame(starts, "origin string, audience int, first long")
    numbered = sends.join(F.broadcast(starting), ["origin", "audience"])
    numbered = numbered.select("origin", "seq", (F.col("first") + F.col("number") - 1).alias("message"))
    matrix = np.zeros((len(sets), len(names)), np.bool_)
    for those, place in sets.items():
        matrix[place, [rank[name] for name in those]] = True
    start_time, bucket_width = time_buckets(
        min(row.earliest for row in summary), max(row.latest for row in summary)
    )
    lowest = min(row.lowest for row in summary)
    span = max(row.highest for row in summary) - lowest + 1
    parts = max(row.rows for row in summary) // _ROWS_A_PART + 1
    plan = distributed_steps.BlockPlan(
        run=run,
        first=first.astype(np.int64),
        origin=np.array([stream[0] for stream in streams], np.int32),
        audience=np.array([stream[1] for stream in streams], np.int32),
        audiences=matrix,
        blocks=min(len(names), _BLOCKS_A_CORE * _cores(spark)),
        start_time=start_time,
        bucket_width=bucket_width,
        lowest=lowest,
        width=-(-span // parts),
    )
    return _Run(plan, names, rows, numbered, dense, work)


def _summary(run: str, rows: DataFrame, work: FileSplits | None, together: bool) -> list[Any]:
    """What there is of each process in each group; what no log can say is refused."""
    addressed = "destinations" in rows.columns
    if work is not None:
        told = work.summary.where(F.col("run") == run).withColumn("addressed", F.lit(False))
        told = told.withColumn("group", F.lit("")) if together else told
    else:
        told = rows.select(
            "process",
            "group",
            F.lit(1).alias("rows"),
            *(F.col("time").alias(name) for name in ("earliest", "latest")),
            *(F.col("index").alias(name) for name in ("lowest", "highest")),
            F.expr(INVALID_ROW_SQL).alias("invalid"),
            (F.col("destinations").isNotNull() if addressed else F.lit(False)).alias("addressed"),
        )
    least, most = ("earliest", "lowest"), ("latest", "highest", "invalid", "addressed")
    summary = (
        told.groupBy("process", "group")
        .agg(
            F.sum("rows").alias("rows"),
            *(F.min(name).alias(name) for name in least),
            *(F.max(name).alias(name) for name in most),
        )
        .collect()
    )
    if any(row.invalid for row in summary):
        _refuse_invalid_row(run, rows)
    return summary


def _refuse_invalid_row(run: str, rows: DataFrame) -> None:
    """Say which row is invalid, and why."""
    for name in REQUIRED:
        if empty := rows.where(F.col(name).isNull()).count():
            raise _in_run(run, InputError(empty_rows(name, empty)))
    bad = rows.where(INVALID_ROW_SQL).orderBy("process", "index").limit(1).collect()[0]
    try:
        check_event(bad.process, bad["index"], bad.kind, bad.origin, bad.seq)
    except InputError as error:
        raise _in_run(run, error) from error


def _sends(
    run: str, rows: DataFrame, groups: dict[str, frozenset[str]], addressed: bool, work: FileSplits | None
) -> tuple[DataFrame, dict[str, frozenset[str]]]:
    """The sends with a key for whom they are meant for, and who that is."""
    sends = rows.where("kind = 'send'")
    if work is not None:
        sends = work.items.mapInArrow(parquet_splits.sends_of(run), from_arrow_schema(parquet_splits.SENDS))
        sends = sends.withColumn("group", F.lit("")) if [*groups] == [""] else sends
    audiences = {f"g{name}": those for name, those in groups.items()}
    key = F.concat(F.lit("g"), "group")
    if addressed:
        named = F.array_sort(F.array_distinct("destinations"))
        bad = (
            sends.where(F.exists("destinations", lambda name: name.isNull())).select("origin", "seq").first()
        )
        if bad is not None:
            raise _in_run(run, empty_destination(bad.origin, bad.seq))
        key = F.when(F.col("destinations").isNull(), key).otherwise(F.concat(F.lit("d"), F.to_json(named)))
        keys = sends.where("destinations is not null").select(key.alias("key")).distinct()
        found = [row.key for row in keys.limit(_MAX_AUDIENCES + 1).toLocalIterator()]
        if len(found) > _MAX_AUDIENCES:
            raise InputError(f"run {run} names more than {_MAX_AUDIENCES:,} different sets of destinations")
        audiences |= {each: frozenset(msgspec.json.decode(each[1:], type=list[str])) for each in found}
    return sends.withColumn("key", key), audiences


def find_large_runs(
    spark: SparkSession, rows: DataFrame, files: Sequence[Path], large: int
) -> tuple[FileSplits | None, list[str]]:
    """The runs that one task is not enough for, and if these rows lie in `files`, how workers read them."""
    if files and estimate_rows(files) <= large:
        return None, []
    work = _work(spark, files) if files else None
    sizes = rows.select("run", F.lit(1).alias("rows")) if work is None else work.summary
    found = sizes.where("run is not null").groupBy("run").agg(F.sum("rows").alias("rows"))
    # Sorted, so that which of them is refused first does not depend on chance.
    return work, sorted(row.run for row in found.where(F.col("rows") > large).toLocalIterator())


def _work(spark: SparkSession, files: Sequence[Path]) -> FileSplits | None:
    """These files as work; None if they say whom messages are meant for, which only Spark reads."""
    if any("destinations" in pq.ParquetFile(file).schema_arrow.names for file in files):
        return None
    pieces = parquet_splits.items(list(files))
    tasks = min(len(pieces), _TASKS_A_CORE * _cores(spark))
    numbered = [(*piece, place % tasks) for place, piece in enumerate(pieces)]
    frame = spark.createDataFrame(numbered, "file string, first int, last int, task int")
    items = frame.repartitionById(tasks, "task").select("file", "first", "last")
    summary = items.mapInArrow(parquet_splits.summarise, from_arrow_schema(parquet_splits.SUMMARY)).persist()
    bad = summary.agg(F.min("error").alias("error")).first()
    if bad is not None and bad.error is not None:
        summary.unpersist()
        raise InputError(bad.error)
    return FileSplits(items, summary)


def _messages(run: _Run) -> DataFrame:
    """The rows that send or deliver, with the message's number; none if nobody sent it."""
    rows = run.rows.where("kind != 'receive'")
    if not run.dense:
        return rows.join(run.numbered, ["origin", "seq"], "left")
    plan = run.plan
    begin = [
        (run.names[rank], int(low), int(high))
        for rank, low, high in zip(plan.origin, plan.first, plan.first[1:], strict=False)
    ]
    streams = run.spark.createDataFrame(begin, "origin string, first long, end long")
    number = F.col("first") + F.col("seq") - 1
    return rows.join(F.broadcast(streams), "origin", "left").withColumn(
        "message", F.when(number < F.col("end"), number)
    )


def _packed(run: _Run) -> DataFrame:
    """The rows as parcels."""
    if run.work is not None and run.dense:
        return run.work.items.mapInArrow(parquet_splits.pack(run.plan, run.names), _CHUNK)
    return _coded(run).mapInArrow(distributed_steps.pack(run.plan), _CHUNK)


def _coded(run: _Run) -> DataFrame:
    """The rows in numbers."""
    ranks = run.spark.createDataFrame(
        [*zip(run.names, range(len(run.names)), strict=True)], "process string, rank int"
    )
    what = F.when(F.col("kind") == "send", -2 - F.col("message")).otherwise(F.coalesce("message", F.lit(-1)))
    return (
        _messages(run).join(F.broadcast(ranks), "process").select("rank", "index", what.alias("what"), "time")
    )


def _by_block(run: _Run, work: Callable[..., Iterator[Any]], *frames: DataFrame) -> DataFrame:
    """Have each block's parcels worked on, in the order of their parts; a block without any has its turn."""
    hello = run.spark.range(run.plan.blocks).select(
        F.col("id").cast("int").alias("block"),
        F.lit(distributed_steps.HELLO).cast("long").alias("part"),
        *(F.lit(0).cast("long").alias(name) for name in ("number", "previous", "index")),
        F.lit(b"").alias("payload"),
    )
    every = reduce(DataFrame.unionByName, frames, hello)
    blocks = every.repartitionById(run.plan.blocks, "block").sortWithinPartitions("part", "number")
    return blocks.mapInArrow(work, _CHUNK)


def _to_every_block(plan: distributed_steps.BlockPlan, frame: DataFrame) -> DataFrame:
    blocks = F.explode(F.sequence(F.lit(0), F.lit(plan.blocks - 1)))
    return frame.drop("block").withColumn("block", blocks).select(*distributed_steps.CHUNK.names)


def _paths(run: _Run, roots: list[Root], known: list[DataFrame]) -> list[list[int]]:
    """A shortest chain of messages for each root."""
    if not roots:
        return []
    keys = _keys(run, {root.cause for root in roots})
    causes = [
        (run.names[keys[root.cause][0]], keys[root.cause][1], place) for place, root in enumerate(roots)
    ]
    wanted = run.spark.createDataFrame(causes, "origin string, seq long, number long")
    ranks = run.spark.createDataFrame(
        [*zip(run.names, range(len(run.names)), strict=True)], "process string, rank int"
    )
    had = (
        run.rows.where("kind != 'receive'")
        .join(F.broadcast(wanted), ["origin", "seq"])
        .groupBy("process", "number")
        .agg(F.min("index").alias("previous"))
        .join(F.broadcast(ranks), "process")
        .select(
            F.lit(0).alias("block"),
            F.lit(distributed_steps.PATH).cast("long").alias("part"),
            "number",
            "previous",
            F.col("rank").cast("long").alias("index"),
            F.lit(b"").alias("payload"),
        )
    )
    every = reduce(DataFrame.unionByName, known, had).repartition(1)
    found = every.mapInArrow(distributed_steps.paths(run.plan, roots), _CHUNK).collect()
    by_root = {row.number: np.frombuffer(row.payload, np.int64).tolist() for row in found}
    return [by_root[place] for place in range(len(roots))]


def _keys(run: _Run, messages: set[int]) -> dict[int, tuple[int, int]]:
    """The origin and seq of some messages."""
    if run.dense:
        streams = np.searchsorted(run.plan.first, sorted(messages), "right") - 1
        return {
            message: (int(run.plan.origin[stream]), int(message - run.plan.first[stream] + 1))
            for message, stream in zip(sorted(messages), streams, strict=True)
        }
    rank = {name: place for place, name in enumerate(run.names)}
    wanted = run.spark.createDataFrame([(message,) for message in messages], "message long")
    found = run.numbered.join(F.broadcast(wanted), "message").collect()
    return {row.message: (rank[row.origin], row.seq) for row in found}


def _orphans(run: _Run) -> tuple[int, int]:
    """Deliveries of what nobody sent, each once; and the rest of them."""
    lost = _messages(run).where("message is null")
    ((once, all_of_them),) = lost.agg(F.count_distinct("process", "origin", "seq"), F.count("*")).collect()
    return once, all_of_them - once


def _refuse(run: _Run, frame: DataFrame) -> None:
    """Have it done now, and see whether all could be."""
    wrong = F.when(F.col("part") == distributed_steps.ERROR, F.struct("number", "index", "payload"))
    found = frame.agg(F.min(wrong).alias("wrong")).first()
    bad = found.wrong if found is not None else None
    if bad is None:
        return
    if bad.number < 0:
        raise InputError(bytes(bad.payload).decode())
    raise _in_run(run.plan.run, duplicate_index(run.names[bad.number], bad["index"]))


def _refuse_sent_twice(run: str, sends: DataFrame) -> None:
    twice = sends.groupBy("origin", "seq").agg(F.count("*").alias("times"), F.max("index").alias("index"))
    found = twice.where("times > 1").agg(F.min(F.struct("origin", "seq", "index")).alias("bad")).first()
    if found is not None and found.bad is not None:
        raise _in_run(run, sent_twice(found.bad.origin, found.bad.seq, found.bad["index"]))


def _in_run(run: str, error: InputError) -> InputError:
    return InputError(f"run {run}: {error}")


def _sum(frame: DataFrame, part: int, column: str = "number") -> int:
    found = frame.where(F.col("part") == part).agg(F.sum(column)).first()
    return int(found[0] or 0) if found is not None else 0


def _kept(frame: DataFrame, kept: list[DataFrame]) -> DataFrame:
    frame = frame.persist(StorageLevel.DISK_ONLY)
    kept.append(frame)
    return frame


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not tell.
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1) // 4 + 1
