"""Prepares a run that many tasks judge: its processes, its streams, and the numbers of its messages.

The driver holds the names of the processes and a few numbers for each stream; rows stay on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from antecede.audit.encoding import canonical_order, time_buckets
from antecede.errors import InputError
from antecede.spark.session import is_spark
from antecede.trace.reader import estimate_rows, open_any_parquet
from antecede.trace.schema import REQUIRED, Members
from antecede.trace.validate import (
    EMPTY_DESTINATION_SQL,
    INVALID_ROW_SQL,
    NO_CHANGE_SQL,
    SENT_TWICE_SQL,
    check_event,
    empty_destination,
    empty_rows,
    sent_twice,
)

LARGE_RUN = 2_000_000
"""Rows of a run above which one task is not enough."""
_ROWS_PER_SLICE = 512
"""Rows of one process in a slice: few enough that the pasts of the messages delivered in a slice stay in the
processor's cache."""
_BLOCKS_PER_CORE = 2
_TASKS_PER_CORE = 4
_MAX_AUDIENCES = 100_000


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
    """The run's sends: origin, seq, message, and whether the sender delivers it in an event of its own."""
    dense: bool
    """Whether every origin numbers its messages from 1, all to one audience: then no table of them is
    needed."""
    files: FileSplits | None
    ids: DataFrame | None
    """The rows of messages that have ids of their own: kind, origin, seq, id."""

    @property
    def spark(self) -> SparkSession:
        return self.rows.sparkSession


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
    """Find the processes and the streams between them, and number the messages.

    With `single_group` every message counts as addressed to all processes, which is all a graph needs.
    """
    optional = () if single_group else ("destinations", "own_delivery")
    rows = events.select(*REQUIRED, *(name for name in optional if name in events.columns))
    if "member" in events.columns:
        rows = rows.where(NO_CHANGE_SQL)
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
    sends = persist(_number_in_stream(spark, sends, audiences, distinct), persisted)
    streams = _stream_sizes(sends, names)
    dense = all(stream.dense for stream in streams)
    dense = dense and len({stream.rank for stream in streams}) == len(streams)
    own = _own_deliveries(rows)
    dense = dense and own is None
    if not dense:
        _refuse_sent_twice(run, sends)
    plan = _block_plan(run, names, streams, distinct, summary, _BLOCKS_PER_CORE * cores_of(spark))
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
            raise in_run(run, InputError(empty_rows(name, empty)))
    bad = rows.where(INVALID_ROW_SQL).orderBy("process", "index").limit(1).collect()[0]
    try:
        check_event(bad.process, bad["index"], bad.kind, bad.origin, bad.seq)
    except InputError as error:
        raise in_run(run, error) from error


def _sends(
    run: str, rows: DataFrame, groups: dict[str, frozenset[str]], addressed: bool, files: FileSplits | None
) -> tuple[DataFrame, dict[str, frozenset[str]]]:
    """The sends, each with a key for its audience, and the members of each audience."""
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
            raise in_run(run, empty_destination(bad.origin, bad.seq))
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
    if not is_spark(spark):
        return None, []  # On these engines one task judges a run, however large it is.
    splits = _file_splits(spark, files) if files else None
    sizes = rows.select("run", F.lit(1).alias("rows")) if splits is None else splits.summary
    found = sizes.where("run is not null").groupBy("run").agg(F.sum("rows").alias("rows"))
    runs = {row.run for row in found.where(F.col("rows") > large).toLocalIterator()}
    if runs and "member" in rows.columns:
        # One task judges a run whose group changes, however large it is.
        changing = rows.where(F.col("run").isin(*runs) & ~F.expr(NO_CHANGE_SQL)).select("run").distinct()
        runs -= {row.run for row in changing.toLocalIterator()}
    # Sorted, so that the error of the same run is raised every time.
    return splits, sorted(runs)


def _file_splits(spark: SparkSession, files: Sequence[Path]) -> FileSplits | None:
    """The files as splits; None if they have columns that only Spark reads."""
    columns = {name for file in files for name in open_any_parquet(file).schema_arrow.names}
    if columns & {"destinations", "own_delivery", "member"}:
        return None
    splits = parquet_splits.list_splits(list(files))
    tasks = min(len(splits), _TASKS_PER_CORE * cores_of(spark))
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


def ranks_frame(run: PreparedRun) -> DataFrame:
    ranks = zip(run.names, range(len(run.names)), strict=True)
    return run.spark.createDataFrame([*ranks], "process string, rank int")


def with_messages(run: PreparedRun) -> DataFrame:
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


def ids_of(run: PreparedRun, keys: set[tuple[str, int]], kind: str) -> dict[tuple[str, int], str]:
    """The ids of those messages that have their own, from rows of one kind."""
    if run.ids is None or not keys:
        return {}
    wanted = run.spark.createDataFrame(sorted(keys), "origin string, seq long")
    found = run.ids.where(F.col("kind") == kind).join(F.broadcast(wanted), ["origin", "seq"])
    rows = found.select("origin", "seq", "id").distinct().collect()
    return {(row.origin, row.seq): row.id for row in rows}


def _refuse_sent_twice(run: str, sends: DataFrame) -> None:
    by_message = sends.groupBy("origin", "seq").agg(
        F.expr(SENT_TWICE_SQL).alias("twice"), F.max("index").alias("index")
    )
    found = by_message.where("twice").agg(F.min(F.struct("origin", "seq", "index")).alias("bad")).first()
    if found is not None and found.bad is not None:
        raise in_run(run, sent_twice(found.bad.origin, found.bad.seq, found.bad["index"]))


def in_run(run: str, error: InputError) -> InputError:
    return InputError(f"run {run}: {error}")


def persist(frame: DataFrame, persisted: list[DataFrame]) -> DataFrame:
    frame = frame.persist(StorageLevel.DISK_ONLY)
    persisted.append(frame)
    return frame


def cores_of(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not expose it.
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1) // 4 + 1
