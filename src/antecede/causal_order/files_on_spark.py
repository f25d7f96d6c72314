"""Files of events into causal order on Spark: as a batch, or as a stream of the files that appear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from antecede.causal_order.columns import ADDED, ADDED_BY_STREAM, refuse_place
from antecede.causal_order.columns_on_spark import prepare, quoted, refuse_unreadable
from antecede.causal_order.dependency_edges import FAULTS, Columns
from antecede.causal_order.event_files import EventFiles
from antecede.causal_order.event_files_on_spark import FileTable, refuse_empty, setting
from antecede.causal_order.inspect import (
    held,
    held_by_cause,
    other_rule,
    refuse_other_query,
    stream_counts,
)
from antecede.causal_order.merge_on_spark import (
    TOPIC_COLUMNS,
    as_changes,
    count_missing_records,
    merge_frame,
)
from antecede.causal_order.missing_causes import MAX_LISTED, MissingId, MissingIds
from antecede.causal_order.on_spark import (
    columns_by_role,
    count_missing_causes,
    make_rules,
    order_frame,
)
from antecede.causal_order.request import (
    MAX_EXAMPLES,
    MAX_UNREADABLE,
    NOT_ORDERED,
    OUTCOME,
    STATUSES,
    Example,
    HeldRow,
    OrderRequest,
    OrderResult,
    Progress,
    has_finished_batch,
)
from antecede.causal_order.rules import PLACE, ROW_BITS, OnMissing, RowCounts
from antecede.causal_order.stream_on_spark import MAX_STREAM_TASKS, PARTITIONS
from antecede.causal_order.text_files import bad_rows
from antecede.errors import InputError
from antecede.spark.session import connect, is_connect, refuse_unshared, spark_path, uninterrupted
from antecede.trace.bad_rows import UNREADABLE, UNREADABLE_ROW, BadRows

_MAX_OPEN_FILES, _OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters", "4"
"""Each task has one file open per outcome. Otherwise Spark would sort rows by outcome before writing them,
and they would no longer be sorted by group and index."""
_TIMES = "spark.sql.parquet.outputTimestampType"
_OBSERVATION = "causal_order"
_POLL_SECONDS = 1
_MAX_NAMED = 3


def order_batch(
    events: EventFiles,
    out: Path,
    request: OrderRequest,
    master: str | None,
    progress: Progress,
    bad: BadRows,
) -> OrderResult:
    """Order the existing files, into Parquet below `out`, partitioned by outcome."""
    with _session(events, out, master, progress) as spark, _task_errors():
        progress("reading", 0, 0)
        table = FileTable(spark, events, request)
        frame = table.read()
        _refuse(frame, events, request, ADDED, progress)
        progress("ordering", 0, 0)
        written = Observation()
        counted_rows, rows_read = table.read_and_count(bad)
        ordered = _order(counted_rows, request)
        counted = {status: F.count_if(F.col("status") == status) for status in STATUSES}
        if UNREADABLE in ordered.columns:
            counted["unreadable"] = F.count(UNREADABLE)
        ordered = ordered.observe(written, *(count.alias(name) for name, count in counted.items()))
        with _written_as_read(spark):
            rows = _with_outcome(_with_places_in_reasons(ordered, events))
            rows.write.partitionBy(OUTCOME).mode("append").parquet(str(out.resolve()))
        found = written.get
        unreadable = found.pop("unreadable", 0)
        counts = RowCounts(rows=rows_read(), **found)
        counts.duplicates = counts.rows - sum(getattr(counts, status) for status in STATUSES)
        examples = [one for status in NOT_ORDERED for one in _examples(spark, out, request, counts, status)]
        missing = _missing(spark, table.read_with_places(), out, request) if counts.held else MissingIds()
        groups = _count_groups(spark, out, request.columns["group"])
        places = _unreadable_examples(spark, out) if unreadable else []
        return OrderResult(counts, examples, "spark", unreadable, places, False, groups, missing)


def order_stream(
    events: EventFiles,
    out: Path,
    request: OrderRequest,
    once: bool,
    checkpoint: Path,
    master: str | None,
    progress: Progress,
) -> OrderResult:
    """Order the files in a folder and those that appear, until Ctrl-C; with `once`, only the existing
    files."""
    with _session(events, out, master, progress) as spark, _task_errors():
        progress("reading", 0, 0)
        table = FileTable(spark, events, request)
        columns = _refuse(table.read(), events, request, ADDED_BY_STREAM, progress)
        progress("starting", 0, 0)
        if has_finished_batch(checkpoint):
            named = {} if request.merges else columns_by_role(request.columns, request.split)
            rule = OnMissing(request.on_missing)
            refuse_other_query(spark, str(checkpoint.resolve()), columns, named, rule)
        coming = table.follow(request.strict)
        if request.merges:
            coming = as_changes(coming, request.without)
        stream = _with_outcome(_order(coming, request).drop(PLACE))
        before = count_stream(spark, checkpoint)
        writer = stream.writeStream.format("parquet").partitionBy(OUTCOME).queryName("antecede order")
        writer = writer.option("checkpointLocation", str(checkpoint.resolve()))
        writer = writer.option("path", str(out.resolve()))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
        with _written_as_read(spark), setting(spark, PARTITIONS, _partitions(spark)):
            query = writer.start()
        interrupted = _watch(query, before, progress, once)
        progress("counting", 0, 0)
        counts = count_stream(spark, checkpoint)
        rows = held_rows(spark, checkpoint, MAX_EXAMPLES) if counts.held else []
        examples = [Example(row.group, row.id, "held", _waits_for(row), row.since) for row in rows]
        for status in ("quarantined", "duplicate"):
            examples += _examples(spark, out, request, counts, status)
        missing = MissingIds()
        if counts.held:
            missing = summarise_on_spark(held_by_cause(spark, str(checkpoint.resolve())))
        return OrderResult(counts, examples, "spark", interrupted=interrupted, missing=missing)


@contextmanager
def _written_as_read(spark: SparkSession) -> Iterator[None]:
    """Rows keep their order, and times keep a zone, which Spark's default (INT96) drops."""
    with setting(spark, _MAX_OPEN_FILES, _OPEN_FILES), setting(spark, _TIMES, "TIMESTAMP_MICROS"):
        yield


def _partitions(spark: SparkSession) -> str:
    """As many partitions as cores, if that number is known: each takes time to commit even an empty state."""
    if is_connect(spark):
        return str(spark.conf.get(PARTITIONS))
    return str(min(MAX_STREAM_TASKS, spark.sparkContext.defaultParallelism))


def inspect_stream(
    checkpoint: Path, limit: int, master: str | None, progress: Progress
) -> tuple[RowCounts, list[HeldRow]]:
    """The counts of a stream, and its held rows, longest first."""
    progress("starting Spark", 0, 0)
    with connect(master) as spark:
        progress("reading", 0, 0)
        counts = count_stream(spark, checkpoint)
        return counts, held_rows(spark, checkpoint, limit) if counts.held else []


def count_stream(spark: SparkSession, checkpoint: Path) -> RowCounts:
    if not has_finished_batch(checkpoint):
        return RowCounts()
    (row,) = stream_counts(spark, str(checkpoint.resolve())).collect()
    return RowCounts(**row.asDict())


def held_rows(spark: SparkSession, checkpoint: Path, limit: int) -> list[HeldRow]:
    """The rows that a stream holds, longest first."""
    rows = held(spark, str(checkpoint.resolve())).orderBy("since", "group", "id").limit(limit).collect()
    return [HeldRow(**row.asDict() | {"since": row.since.astimezone(UTC)}) for row in rows]


@contextmanager
def _session(events: EventFiles, out: Path, master: str | None, progress: Progress) -> Iterator[SparkSession]:
    progress("starting Spark", 0, 0)
    with connect(master) as spark:
        refuse_unshared(spark, events.path, events.files[0])
        out.mkdir(parents=True, exist_ok=True)
        refuse_unshared(spark, out)
        yield spark


def _refuse(
    frame: DataFrame, events: EventFiles, request: OrderRequest, added: Iterable[str], progress: Progress
) -> Columns:
    """Refuse tables that cannot be ordered and, if strict, rows that cannot; returns the columns to order
    by."""
    refuse_place(frame.columns)
    if request.merges:
        as_changes(frame)
        refuse_empty(frame, events)
        return TOPIC_COLUMNS
    rows = frame.drop(UNREADABLE, UNREADABLE_ROW)
    prepared = prepare(rows, request.columns, [*added, OUTCOME], request.split)
    refuse_empty(frame, events)
    if not request.strict:
        return prepared.columns
    progress("checking", 0, 0)
    if UNREADABLE in frame.columns:
        why = F.col(UNREADABLE)
        (bad,) = frame.agg(F.count(why).alias("count"), F.min(why).alias("first")).collect()
        if bad["count"]:
            raise bad_rows(bad["count"], bad["first"])
    refuse_unreadable(prepared, request.columns)
    return prepared.columns


def _order(frame: DataFrame, request: OrderRequest) -> DataFrame:
    if request.merges:
        return merge_frame(frame, request.merge, request.horizon, _OBSERVATION)
    rules = make_rules(request.on_missing, request.timeout, request.horizon)
    return order_frame(frame, request.columns, rules, _OBSERVATION, request.split)


def _with_places_in_reasons(ordered: DataFrame, events: EventFiles) -> DataFrame:
    """Rows that are themselves faulty have their file and row in the reason."""
    names = F.array(*(F.lit(str(file.relative_to(events.folder))) for file in events.files))
    place, reason = F.col(PLACE), F.col("reason")
    name = F.element_at(names, F.shiftright(place, ROW_BITS).cast("int") + 1)
    row = place.bitwiseAND(F.lit((1 << ROW_BITS) - 1)).cast("string")
    placed = F.concat(name, F.lit(", row "), row, F.lit(": "), reason)
    reason = F.when(reason.isin(*FAULTS[1:]), placed).otherwise(reason)
    return ordered.withColumn("reason", reason).drop(PLACE)


def _with_outcome(ordered: DataFrame) -> DataFrame:
    """The rows with the folder they go to; rows that could not be read have that as their reason."""
    status = F.col("status")
    outcome = F.when(status.isin(*NOT_ORDERED), status).otherwise("ordered")
    if UNREADABLE in ordered.columns:
        ordered = ordered.withColumn("reason", F.coalesce(UNREADABLE, "reason")).drop(UNREADABLE)
    return ordered.withColumn(OUTCOME, outcome)


def _examples(
    spark: SparkSession, out: Path, request: OrderRequest, counts: RowCounts, status: str
) -> list[Example]:
    """Some of the written rows that were not ordered."""
    if not getattr(counts, NOT_ORDERED[status]):
        return []
    group, names = request.columns["group"], [request.columns[role] for role in ("id", "origin", "seq")]
    id_text = F.concat_ws(":", *(F.col(quoted(name)).cast("string") for name in names if name is not None))
    rows = (
        spark.read.parquet(spark_path(out))
        .where(F.col(OUTCOME) == status)
        .select(
            (F.lit(None) if group is None else F.col(quoted(group))).cast("string").alias("group"),
            id_text.alias("id"),
            F.lit(status).alias("status"),
            "reason",
        )
    )
    return [Example(**row.asDict()) for row in rows.limit(MAX_EXAMPLES).collect()]


def _unreadable_examples(spark: SparkSession, out: Path) -> list[str]:
    """Where some of the unreadable rows are, and why they could not be read; taken from the written rows."""
    written = spark.read.parquet(spark_path(out)).where(F.col(UNREADABLE_ROW).isNotNull())
    return [row.reason for row in written.select("reason").orderBy("reason").limit(MAX_UNREADABLE).collect()]


def _count_groups(spark: SparkSession, out: Path, group: str | None) -> int:
    """The number of groups among the written rows; a row that could not be read belongs to none."""
    if group is None:
        return 1
    of_none = F.col(quoted(group)).isNull() & (F.col("status") == "quarantined")
    written = spark.read.parquet(spark_path(out)).where(~of_none)
    return written.select(quoted(group)).distinct().count()


def _missing(spark: SparkSession, frame: DataFrame, out: Path, request: OrderRequest) -> MissingIds:
    """The missing causes, found by a second pass over the groups that have held rows."""
    if request.merges:
        return summarise_on_spark(count_missing_records(frame, request.merge))
    group = request.columns["group"]
    if group is not None:
        held_groups = spark.read.parquet(spark_path(out)).where(F.col(OUTCOME) == "held")
        names = held_groups.select(F.col(quoted(group)).alias("_group")).distinct()
        frame = frame.join(names, F.col(quoted(group)).eqNullSafe(F.col("_group")), "left_semi")
    return summarise_on_spark(count_missing_causes(frame, request.columns, request.split))


def summarise_on_spark(causes: DataFrame) -> MissingIds:
    """How many ids are missing, how many rows they hold, and the ids that hold most rows."""
    causes = causes.persist()
    (sums,) = causes.agg(F.count(F.lit(1)).alias("ids"), F.sum("rows").alias("rows")).collect()
    order = [F.desc("rows"), F.asc_nulls_last("group"), F.asc("id")]
    first = [MissingId(**row.asDict()) for row in causes.orderBy(*order).limit(MAX_LISTED).collect()]
    causes.unpersist()
    return MissingIds(sums["ids"], sums["rows"] or 0, first)


@contextmanager
def _task_errors() -> Iterator[None]:
    """Raise an error of ours from a task as itself, not as a failure of Spark."""
    try:
        yield
    except PySparkException as error:
        raise _stream_error(error) from error


def _watch(query: StreamingQuery, counts: RowCounts, progress: Progress, once: bool) -> bool:
    """Report the progress of a stream until it ends; True if Ctrl-C ended it.

    With timeouts Spark runs batch after batch, even of the files that exist now, and never ends the query. So
    with `once` it is stopped here, when a batch without new files leaves no row that waits for its timeout.
    """
    last_batch = -1
    all_read = False
    with uninterrupted() as interrupted:
        try:
            while query.isActive and not interrupted and not (once and all_read and not counts.held):
                query.awaitTermination(_POLL_SECONDS)
                for batch in query.recentProgress:
                    observed = batch.observedMetrics.get(_OBSERVATION)
                    if observed is not None and batch.batchId > last_batch:
                        last_batch = batch.batchId
                        for name in RowCounts.__struct_fields__:
                            setattr(counts, name, getattr(counts, name) + observed[name])
                        all_read = all(source.startOffset == source.endOffset for source in batch.sources)
                emitted = counts.ordered + counts.released + counts.late
                doing = "waiting for missing causes" if once and all_read else "ordering"
                progress(f"{doing}: {emitted:,} out, {counts.held:,} held", counts.rows, 0)
        except PySparkException as error:
            raise _stream_error(error) from error
        finally:
            query.stop()
    failure = query.exception()
    if failure is not None and not interrupted:
        raise _stream_error(failure)
    return bool(interrupted)


def _stream_error(error: PySparkException) -> Exception:
    """The error behind a failed stream: one that a task raised is not a failure of Spark."""
    if "Cannot change timeMode" in str(error):
        return other_rule()
    raised = re.search(r"antecede\.errors\.InputError: (.+)", str(error))
    return InputError(raised[1]) if raised else error


def _waits_for(row: HeldRow) -> str:
    more = len(row.waits_for) - _MAX_NAMED
    return f"waits for {', '.join(row.waits_for[:_MAX_NAMED])}" + (f" and {more:,} more" if more > 0 else "")
