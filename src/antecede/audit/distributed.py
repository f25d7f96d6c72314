"""Judges one run that is too large for one Spark task: a DataFrame of its events in, its verdict out.

Processes are dealt out to blocks, one task each (`distributed_steps` says what a task does). One pass over
the events encodes names as numbers and packs rows into chunks; after that only chunks move. Rows are
shuffled twice, at 7 bytes each; senders' clocks go to every block, messages × streams × 2 bytes. The driver
holds the names of the processes, a few numbers for each stream, and the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from antecede.audit import distributed_steps as steps
from antecede.audit import parquet_splits
from antecede.audit.core import RunAudit, build_tally, build_verdict, describe_root
from antecede.audit.encoding import canonical_order, time_buckets
from antecede.audit.faults import MessageKey, OrphanDelivery, WrongDeliveries, WrongDelivery, describe_faults
from antecede.audit.passes import COUNTED, TIME_BUCKETS
from antecede.audit.roots import MissingMessage, Root, severity_of_root
from antecede.errors import InputError
from antecede.trace.reader import estimate_rows, open_any_parquet
from antecede.trace.schema import REQUIRED, Members
from antecede.trace.validate import (
    EMPTY_DESTINATION_SQL,
    INVALID_ROW_SQL,
    SENT_TWICE_SQL,
    check_event,
    duplicate_index,
    empty_destination,
    empty_rows,
    sent_twice,
)

LARGE_RUN = 2_000_000
"""Rows of a run above which one task is not enough."""
_ROWS_PER_SLICE = 512
"""Of one process: few enough that the pasts of what is delivered in a slice stay in the processor's cache."""
_BLOCKS_PER_CORE = 2
_TASKS_PER_CORE = 4
_MAX_AUDIENCES = 100_000
_CHUNK = from_arrow_schema(steps.CHUNK)


class FileSplits(NamedTuple):
    """A trace that workers read from Parquet files themselves (`parquet_splits`)."""

    splits: DataFrame
    summary: DataFrame


class PreparedRun(NamedTuple):
    """A run whose processes and streams are known."""

    plan: steps.BlockPlan
    names: list[str]
    rows: DataFrame
    numbered: DataFrame
    """Its sends: origin, seq, message, and whether the sender delivers it in an event of its own."""
    dense: bool
    """Whether every origin numbers its messages from 1, all to one audience: then no table of them is
    needed."""
    files: FileSplits | None
    ids: DataFrame | None
    """The rows of messages that have ids of their own: kind, origin, seq, id."""

    @property
    def spark(self) -> SparkSession:
        return self.rows.sparkSession


class DistributedPasts(NamedTuple):
    """The chunks from which every message's past can be read."""

    rows: DataFrame
    collected: DataFrame
    sender_clocks: DataFrame
    """What each message's sender had."""
    full_pasts: DataFrame
    """The pasts that are larger than that."""
    impossible_deliveries: list[DataFrame]
    impossible: int


def judge_large_run(
    run: str, events: DataFrame, members: Members, most: int, files: FileSplits | None = None
) -> RunAudit:
    """Judge the rows of one run, as `core.judge_run` does."""
    persisted: list[DataFrame] = []
    try:
        return _judge(prepare_run(run, events, members, files, persisted), most, persisted)
    finally:
        for frame in persisted:
            frame.unpersist()


def compute_pasts(run: PreparedRun, persisted: list[DataFrame]) -> DistributedPasts:
    """Collect senders' clocks and close them; in a cycle, once more without impossible deliveries."""
    plan = run.plan
    rows = _persist(_packed(run), persisted)
    marked: list[DataFrame] = []
    impossible = 0
    while True:
        collected = _persist(_by_block(run, steps.collect_block(plan), rows, *marked), persisted)
        _raise_errors(run, collected)
        clocks = collected.where(F.col("part") == steps.SENDER_CLOCK)
        closing = _persist(clocks.coalesce(1).mapInArrow(steps.close_pasts(plan), _CHUNK), persisted)
        _raise_errors(run, closing)
        full_pasts = closing.where(F.col("part") == steps.FULL_PAST)
        if marked or not _sum(closing, steps.CYCLIC):
            return DistributedPasts(rows, collected, clocks, full_pasts, marked, impossible)
        pasts = [_to_every_block(plan, each) for each in (clocks, full_pasts)]
        marked = [_persist(_by_block(run, steps.mark_impossible_block(plan), rows, *pasts), persisted)]
        _raise_errors(run, marked[0])
        impossible = _sum(marked[0], steps.IMPOSSIBLE, "previous")


def _judge(run: PreparedRun, most: int, persisted: list[DataFrame]) -> RunAudit:
    plan = run.plan
    found = compute_pasts(run, persisted)
    pasts = [_to_every_block(plan, each) for each in (found.sender_clocks, found.full_pasts)]
    state = found.collected.where(~F.col("part").isin(steps.SENDER_CLOCK, steps.DUPLICATE_ROWS))
    counting = _by_block(run, steps.count_block(plan, most), found.rows, state, *pasts)
    counted = _persist(counting, persisted)
    _raise_errors(run, counted)
    counts = np.zeros((plan.processes, COUNTED), np.int64)
    by_origin = np.zeros((int(plan.origin.max(initial=-1)) + 1, 2), np.int64)
    by_time = np.zeros((TIME_BUCKETS, 2), np.int64)
    roots: list[Root] = []
    missing: list[MissingMessage] = []
    for row in counted.toLocalIterator():
        figures = np.frombuffer(row.payload, np.int64)
        if row.part == steps.COUNTS:
            counts[row.number] = figures
        elif row.part == steps.ORIGINS:
            by_origin += figures.reshape(-1, 2)
        elif row.part == steps.OVER_TIME:
            by_time += figures.reshape(-1, 2)
        elif row.part == steps.ROOTS:
            roots += [Root(*root) for root in figures.reshape(-1, len(Root._fields)).tolist()]
        elif row.part == steps.MISSING_ROWS:
            missing += [MissingMessage(*each) for each in figures.reshape(-1, 3).tolist()]
    roots.sort(key=severity_of_root)
    paths = _find_paths(run, roots[:most], [found.sender_clocks, *found.impossible_deliveries])
    has_orphans = _sum(found.collected, steps.ORPHANS) > 0
    wrong = _wrong_deliveries(run, found, missing, has_orphans, most)
    orphans = _count_orphans(run) if has_orphans else (0, 0)
    keys = _message_keys(run, wrong.messages().union(*paths))
    sent = np.bincount(plan.origin, np.diff(plan.first), plan.processes)
    return RunAudit(
        plan.run,
        build_verdict(counts, plan.messages, *orphans, found.impossible),
        [describe_root(plan.run, run.names, keys, *each) for each in zip(roots, paths, strict=False)],
        build_tally(
            run.names,
            sent,
            counts,
            by_origin,
            by_time,
            plan.start_time,
            plan.bucket_width,
            timed=not run.rows.where("kind != 'receive' and time != index").isEmpty(),
        ),
        describe_faults(plan.run, run.names, keys, wrong, most),
    )


# Preparing a run: its processes, its streams, and the numbers of its messages.


class _StreamSize(NamedTuple):
    rank: int
    audience: int
    messages: int
    dense: bool


def prepare_run(
    run: str,
    events: DataFrame,
    members: Members,
    files: FileSplits | None,
    persisted: list[DataFrame],
    single_group: bool = False,
) -> PreparedRun:
    """Find who is there and who sends to whom, and number the messages.

    With `single_group` every message counts as addressed to everyone, which is all a graph needs.
    """
    optional = () if single_group else ("destinations", "own_delivery")
    rows = events.select(*REQUIRED, *(name for name in optional if name in events.columns))
    if single_group:
        rows = rows.withColumn("group", F.lit(""))
    summary = _summary(run, rows, files, single_group)
    seen: dict[str, set[str]] = {}
    for row in summary:
        seen.setdefault(row.group, set()).add(row.process)
    groups = {name: frozenset(members.get(name, those)) for name, those in seen.items()}
    sends, audiences = _sends(run, rows, groups, any(row.addressed for row in summary), files)
    names = sorted({row.process for row in summary}.union(*members.values(), *audiences.values()))
    distinct = _numbered_audiences(audiences.values(), names)
    spark = events.sparkSession
    sends = _persist(_number_in_stream(spark, sends, audiences, distinct), persisted)
    streams = _stream_sizes(sends, names)
    dense = all(stream.dense for stream in streams)
    dense = dense and len({stream.rank for stream in streams}) == len(streams)
    own = _own_deliveries(rows)
    dense = dense and own is None
    if not dense:
        _refuse_sent_twice(run, sends)
    plan = _block_plan(run, names, streams, distinct, summary, _BLOCKS_PER_CORE * _cores(spark))
    starts = [
        (names[stream.rank], stream.audience, int(first))
        for stream, first in zip(streams, plan.first, strict=False)
    ]
    starting = spark.createDataFrame(starts, "origin string, audience int, first long")
    numbered = sends.join(F.broadcast(starting), ["origin", "audience"])
    numbered = numbered.select("origin", "seq", (F.col("first") + F.col("number") - 1).alias("message"))
    if own is not None:
        numbered = numbered.join(own, ["origin", "seq"], "left")
    return PreparedRun(plan, names, rows, numbered, dense, files, _message_ids(events))


def _own_deliveries(rows: DataFrame) -> DataFrame | None:
    """The messages that their senders deliver in an event of its own; None if there is none."""
    if "own_delivery" not in rows.columns:
        return None
    own = rows.where("own_delivery = 1 and kind = 'deliver' and process = origin").select("origin", "seq")
    return None if own.isEmpty() else own.distinct().withColumn("delivered_apart", F.lit(True))


def _message_ids(events: DataFrame) -> DataFrame | None:
    if "message" not in events.columns:
        return None
    ids = events.where("kind != 'receive' and message is not null")
    return ids.select("kind", "origin", "seq", F.col("message").alias("id"))


def _numbered_audiences(audiences: Iterable[frozenset[str]], names: list[str]) -> dict[frozenset[str], int]:
    """The number of each distinct audience, as in `encoding.encode_run`."""
    rank = {name: place for place, name in enumerate(names)}
    ordered = canonical_order(frozenset(rank[name] for name in those) for those in audiences)
    return {frozenset(names[each] for each in those): place for place, those in enumerate(ordered)}


def _summary(run: str, rows: DataFrame, files: FileSplits | None, single_group: bool) -> list[Any]:
    """A row for each process in each group; invalid rows are refused."""
    addressed = "destinations" in rows.columns
    if files is not None:
        parts = files.summary.where(F.col("run") == run).withColumn("addressed", F.lit(False))
        parts = parts.withColumn("group", F.lit("")) if single_group else parts
    else:
        parts = rows.select(
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
        parts.groupBy("process", "group")
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
    """Raise an error for the first invalid row."""
    for name in REQUIRED:
        if empty := rows.where(F.col(name).isNull()).count():
            raise _in_run(run, InputError(empty_rows(name, empty)))
    bad = rows.where(INVALID_ROW_SQL).orderBy("process", "index").limit(1).collect()[0]
    try:
        check_event(bad.process, bad["index"], bad.kind, bad.origin, bad.seq)
    except InputError as error:
        raise _in_run(run, error) from error


def _sends(
    run: str, rows: DataFrame, groups: dict[str, frozenset[str]], addressed: bool, files: FileSplits | None
) -> tuple[DataFrame, dict[str, frozenset[str]]]:
    """The sends, each with a key for its audience, and who each audience is."""
    sends = rows.where("kind = 'send'")
    if files is not None:
        schema = from_arrow_schema(parquet_splits.SENDS)
        sends = files.splits.mapInArrow(parquet_splits.sends_of_run(run), schema)
        sends = sends.withColumn("group", F.lit("")) if [*groups] == [""] else sends
    audiences = {f"g{name}": those for name, those in groups.items()}
    key = F.concat(F.lit("g"), "group")
    if addressed:
        bad = sends.where(EMPTY_DESTINATION_SQL).select("origin", "seq").first()
        if bad is not None:
            raise _in_run(run, empty_destination(bad.origin, bad.seq))
        named = F.array_sort(F.array_distinct("destinations"))
        key = F.when(F.col("destinations").isNull(), key).otherwise(F.concat(F.lit("d"), F.to_json(named)))
        distinct = sends.where("destinations is not null").select(key.alias("key")).distinct()
        keys = [row.key for row in distinct.limit(_MAX_AUDIENCES + 1).toLocalIterator()]
        if len(keys) > _MAX_AUDIENCES:
            raise InputError(f"run {run} names more than {_MAX_AUDIENCES:,} different sets of destinations")
        audiences |= {each: frozenset(msgspec.json.decode(each[1:], type=list[str])) for each in keys}
    return sends.withColumn("key", key), audiences


def _number_in_stream(
    spark: SparkSession,
    sends: DataFrame,
    audiences: dict[str, frozenset[str]],
    distinct: dict[frozenset[str], int],
) -> DataFrame:
    """The sends with the number of their audience, and their own number within the stream."""
    by_key = spark.createDataFrame(
        [(key, distinct[those]) for key, those in audiences.items()], "key string, audience int"
    )
    in_stream = Window.partitionBy("origin", "audience").orderBy("index")
    sends = sends.join(F.broadcast(by_key), "key").withColumn("number", F.row_number().over(in_stream))
    return sends.select("origin", "seq", "index", "audience", "number")


def _stream_sizes(sends: DataFrame, names: list[str]) -> list[_StreamSize]:
    """Every stream, by origin and audience."""
    sizes = sends.groupBy("origin", "audience").agg(
        F.count("*").alias("messages"), F.min(F.col("number") == F.col("seq")).alias("dense")
    )
    rank = {name: place for place, name in enumerate(names)}
    return sorted(
        _StreamSize(rank[row.origin], row.audience, row.messages, row.dense)
        for row in sizes.toLocalIterator()
    )


def _block_plan(
    run: str,
    names: list[str],
    streams: list[_StreamSize],
    distinct: dict[frozenset[str], int],
    summary: list[Any],
    blocks: int,
) -> steps.BlockPlan:
    first = np.cumsum([0, *(stream.messages for stream in streams)])
    if first[-1] > steps.MAX_MESSAGE:
        raise InputError(f"run {run} has {first[-1]:,} messages; {steps.MAX_MESSAGE:,} can be judged")
    rank = {name: place for place, name in enumerate(names)}
    matrix = np.zeros((len(distinct), len(names)), np.bool_)
    for those, place in distinct.items():
        matrix[place, [rank[name] for name in those]] = True
    earliest, latest = min(row.earliest for row in summary), max(row.latest for row in summary)
    start_time, bucket_width = time_buckets(earliest, latest)
    lowest = min(row.lowest for row in summary)
    span = max(row.highest for row in summary) - lowest + 1
    slices = max(row.rows for row in summary) // _ROWS_PER_SLICE + 1
    return steps.BlockPlan(
        run=run,
        first=first.astype(np.int64),
        origin=np.array([stream.rank for stream in streams], np.int32),
        audience=np.array([stream.audience for stream in streams], np.int32),
        audiences=matrix,
        blocks=min(len(names), blocks),
        start_time=start_time,
        bucket_width=bucket_width,
        lowest_index=lowest,
        slice_width=-(-span // slices),
    )


def find_large_runs(
    spark: SparkSession, rows: DataFrame, files: Sequence[Path], large: int
) -> tuple[FileSplits | None, list[str]]:
    """The runs that need more than one task; if the rows lie in `files`, also how workers read these."""
    if files and estimate_rows(files) <= large:
        return None, []
    splits = _file_splits(spark, files) if files else None
    sizes = rows.select("run", F.lit(1).alias("rows")) if splits is None else splits.summary
    found = sizes.where("run is not null").groupBy("run").agg(F.sum("rows").alias("rows"))
    # Sorted, so that it is always the same run whose error is raised.
    return splits, sorted(row.run for row in found.where(F.col("rows") > large).toLocalIterator())


def _file_splits(spark: SparkSession, files: Sequence[Path]) -> FileSplits | None:
    """The files as splits; None if they have columns that only Spark reads."""
    columns = {name for file in files for name in open_any_parquet(file).schema_arrow.names}
    if columns & {"destinations", "own_delivery"}:
        return None
    splits = parquet_splits.list_splits(list(files))
    tasks = min(len(splits), _TASKS_PER_CORE * _cores(spark))
    dealt = [(*split, place % tasks) for place, split in enumerate(splits)]
    frame = spark.createDataFrame(dealt, "file string, first int, last int, task int")
    frame = frame.repartitionById(tasks, "task").select("file", "first", "last")
    schema = from_arrow_schema(parquet_splits.SUMMARY)
    summary = frame.mapInArrow(parquet_splits.summarise, schema).persist()
    bad = summary.agg(F.min("error").alias("error")).first()
    if bad is not None and bad.error is not None:
        summary.unpersist()
        raise InputError(bad.error)
    return FileSplits(frame, summary)


# Moving chunks.


def _packed(run: PreparedRun) -> DataFrame:
    """The run's events as chunks."""
    if run.files is not None and run.dense:
        return run.files.splits.mapInArrow(parquet_splits.pack_splits(run.plan, run.names), _CHUNK)
    return _encoded(run).mapInArrow(steps.pack_rows(run.plan), _CHUNK)


def _encoded(run: PreparedRun) -> DataFrame:
    """The run's events as rows of `distributed_steps.ENCODED`."""
    rows = _with_messages(run)
    sent = -2 - F.col("message")
    if "delivered_apart" in rows.columns:
        sent = F.when(F.col("delivered_apart"), sent - steps.SEND_ONLY_EVENT).otherwise(sent)
    event = F.when(F.col("kind") == "send", sent).otherwise(F.coalesce("message", F.lit(-1)))
    ranked = rows.join(F.broadcast(_ranks(run)), "process")
    return ranked.select("rank", "index", event.alias("event"), "time")


def _ranks(run: PreparedRun) -> DataFrame:
    ranks = zip(run.names, range(len(run.names)), strict=True)
    return run.spark.createDataFrame([*ranks], "process string, rank int")


def _with_messages(run: PreparedRun) -> DataFrame:
    """The sends and deliveries with the message's number; null for orphans."""
    rows = run.rows.where("kind != 'receive'")
    if not run.dense:
        return rows.join(run.numbered, ["origin", "seq"], "left")
    plan = run.plan
    bounds = [
        (run.names[rank], int(low), int(high))
        for rank, low, high in zip(plan.origin, plan.first, plan.first[1:], strict=False)
    ]
    streams = run.spark.createDataFrame(bounds, "origin string, first long, end long")
    number = F.col("first") + F.col("seq") - 1
    return rows.join(F.broadcast(streams), "origin", "left").withColumn(
        "message", F.when(number < F.col("end"), number)
    )


def _by_block(run: PreparedRun, step: steps.BatchStep, *frames: DataFrame) -> DataFrame:
    """Apply a step to each block's chunks, sorted by part. A `START` chunk makes every block run."""
    start = run.spark.range(run.plan.blocks).select(
        F.col("id").cast("int").alias("block"),
        F.lit(steps.START).cast("long").alias("part"),
        *(F.lit(0).cast("long").alias(name) for name in ("number", "previous", "index")),
        F.lit(b"").alias("payload"),
    )
    chunks = reduce(DataFrame.unionByName, frames, start)
    blocks = chunks.repartitionById(run.plan.blocks, "block").sortWithinPartitions("part", "number")
    return blocks.mapInArrow(step, _CHUNK)


def _to_every_block(plan: steps.BlockPlan, frame: DataFrame) -> DataFrame:
    blocks = F.explode(F.sequence(F.lit(0), F.lit(plan.blocks - 1)))
    return frame.drop("block").withColumn("block", blocks).select(*steps.CHUNK.names)


def _raise_errors(run: PreparedRun, frame: DataFrame) -> None:
    """Compute the frame, and raise the first error that a step reports in it."""
    reported = F.when(F.col("part") == steps.ERROR, F.struct("number", "index", "payload"))
    found = frame.agg(F.min(reported).alias("error")).first()
    error = found.error if found is not None else None
    if error is None:
        return
    if error.number < 0:
        raise InputError(bytes(error.payload).decode())
    raise _in_run(run.plan.run, duplicate_index(run.names[error.number], error["index"]))


def _refuse_sent_twice(run: str, sends: DataFrame) -> None:
    by_message = sends.groupBy("origin", "seq").agg(
        F.expr(SENT_TWICE_SQL).alias("twice"), F.max("index").alias("index")
    )
    found = by_message.where("twice").agg(F.min(F.struct("origin", "seq", "index")).alias("bad")).first()
    if found is not None and found.bad is not None:
        raise _in_run(run, sent_twice(found.bad.origin, found.bad.seq, found.bad["index"]))


def _in_run(run: str, error: InputError) -> InputError:
    return InputError(f"run {run}: {error}")


def _sum(frame: DataFrame, part: int, column: str = "number") -> int:
    found = frame.where(F.col("part") == part).agg(F.sum(column)).first()
    return int(found[0] or 0) if found is not None else 0


def _persist(frame: DataFrame, persisted: list[DataFrame]) -> DataFrame:
    frame = frame.persist(StorageLevel.DISK_ONLY)
    persisted.append(frame)
    return frame


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not say.
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1) // 4 + 1


# Describing what was found.


def _find_paths(run: PreparedRun, roots: list[Root], known: list[DataFrame]) -> list[list[int]]:
    """A shortest chain of messages for each root."""
    if not roots:
        return []
    keys = _message_keys(run, {root.cause for root in roots})
    causes = [
        (run.names[keys[root.cause].origin], keys[root.cause].seq, place) for place, root in enumerate(roots)
    ]
    wanted = run.spark.createDataFrame(causes, "origin string, seq long, number long")
    delivered = (
        run.rows.where("kind != 'receive'")
        .join(F.broadcast(wanted), ["origin", "seq"])
        .groupBy("process", "number")
        .agg(F.min("index").alias("previous"))
        .join(F.broadcast(_ranks(run)), "process")
        .select(
            F.lit(0).alias("block"),
            F.lit(steps.PATH).cast("long").alias("part"),
            "number",
            "previous",
            F.col("rank").cast("long").alias("index"),
            F.lit(b"").alias("payload"),
        )
    )
    chunks = reduce(DataFrame.unionByName, known, delivered).repartition(1)
    found = chunks.mapInArrow(steps.find_paths(run.plan, roots), _CHUNK).collect()
    by_root = {row.number: np.frombuffer(row.payload, np.int64).tolist() for row in found}
    return [by_root[place] for place in range(len(roots))]


def _message_keys(run: PreparedRun, messages: set[int]) -> dict[int, MessageKey]:
    """What some messages are called."""
    if run.dense:
        streams = np.searchsorted(run.plan.first, sorted(messages), "right") - 1
        found = {
            message: (int(run.plan.origin[stream]), int(message - run.plan.first[stream] + 1))
            for message, stream in zip(sorted(messages), streams, strict=True)
        }
    else:
        rank = {name: place for place, name in enumerate(run.names)}
        wanted = run.spark.createDataFrame([(message,) for message in messages], "message long")
        rows = run.numbered.join(F.broadcast(wanted), "message").collect()
        found = {row.message: (rank[row.origin], row.seq) for row in rows}
    ids = _ids_of(run, {(run.names[origin], seq) for origin, seq in found.values()}, "send")
    return {
        message: MessageKey(origin, seq, ids.get((run.names[origin], seq), f"{run.names[origin]}:{seq}"))
        for message, (origin, seq) in found.items()
    }


def _ids_of(run: PreparedRun, keys: set[tuple[str, int]], kind: str) -> dict[tuple[str, int], str]:
    """The ids of those messages that have their own, from rows of one kind."""
    if run.ids is None or not keys:
        return {}
    wanted = run.spark.createDataFrame(sorted(keys), "origin string, seq long")
    found = run.ids.where(F.col("kind") == kind).join(F.broadcast(wanted), ["origin", "seq"])
    rows = found.select("origin", "seq", "id").distinct().collect()
    return {(row.origin, row.seq): row.id for row in rows}


def _wrong_deliveries(
    run: PreparedRun,
    found: DistributedPasts,
    missing: list[MissingMessage],
    has_orphans: bool,
    most: int,
) -> WrongDeliveries:
    """The worst missing, duplicate, impossible and orphan deliveries; the driver gets `most` of each."""
    missing.sort(key=lambda each: (-each.consequences, each.process, each.message))
    return WrongDeliveries(
        missing=missing[:most],
        duplicates=_worst_marked([found.collected], steps.DUPLICATE_ROWS, most),
        impossible=_worst_marked(found.impossible_deliveries, steps.IMPOSSIBLE_ROWS, most),
        orphans=_worst_orphans(run, most) if has_orphans else [],
    )


def _worst_marked(frames: list[DataFrame], part: int, most: int) -> list[WrongDelivery]:
    """Marked deliveries by process and message, the most frequent first."""
    found: list[WrongDelivery] = []
    for frame in frames:
        chunks = frame.where(F.col("part") == part)
        rows = chunks.mapInArrow(steps.unpack_marked, from_arrow_schema(steps.MARKED))
        counted = rows.groupBy("rank", "message").agg(F.min("index").alias("at"), F.count("*").alias("times"))
        worst = counted.orderBy(F.desc("times"), "rank", "message").limit(most)
        found += [WrongDelivery(row["rank"], row.message, row["at"], row.times) for row in worst.collect()]
    return found


def _worst_orphans(run: PreparedRun, most: int) -> list[OrphanDelivery]:
    """Deliveries of what nobody sent by process and message, the most frequent first."""
    key = ["process", "origin", "seq"]
    lost = _with_messages(run).where("message is null").select(*key, "index")
    counted = lost.groupBy(*key).agg(F.min("index").alias("first"), F.count("*").alias("times"))
    rows = counted.orderBy(F.desc("times"), *key).limit(most).collect()
    again = [(*(row[name] for name in key), row["first"]) for row in rows if row.times > 1]
    second = {}
    if again:
        wanted = run.spark.createDataFrame(again, "process string, origin string, seq long, first long")
        later = lost.join(F.broadcast(wanted), key).where("index > first").groupBy(*key)
        second = {tuple(row[:3]): row.at for row in later.agg(F.min("index").alias("at")).collect()}
    ids = _ids_of(run, {(row.origin, row.seq) for row in rows}, "deliver")
    return [
        OrphanDelivery(
            process=row.process,
            message=ids.get((row.origin, row.seq), f"{row.origin}:{row.seq}"),
            first=row["first"],
            second=second.get((row.process, row.origin, row.seq)),
            times=row.times,
        )
        for row in rows
    ]


def _count_orphans(run: PreparedRun) -> tuple[int, int]:
    """Deliveries of what nobody sent, each message once a process; and the repetitions."""
    lost = _with_messages(run).where("message is null")
    ((once, every),) = lost.agg(F.count_distinct("process", "origin", "seq"), F.count("*")).collect()
    return once, every - once
