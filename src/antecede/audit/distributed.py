"""Judges one run that is too large for one Spark task: a DataFrame of its events in, its verdict out.

Processes are partitioned into blocks, one task each (`distributed_steps` says what a task does). One pass
over the events encodes names as numbers and packs rows into chunks; after that only chunks move. Rows are
shuffled twice, at 7 bytes each; senders' clocks go to every block, messages × streams × 2 bytes. The driver
holds the names of the processes, a few numbers for each stream, and the sums.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from antecede.audit import distributed_steps as steps
from antecede.audit import parquet_splits
from antecede.audit.core import RunAudit, build_tally, build_verdict, describe_root
from antecede.audit.faults import MessageKey, OrphanDelivery, WrongDeliveries, WrongDelivery, describe_faults
from antecede.audit.passes import COUNTED, TIME_BUCKETS
from antecede.audit.prepared_run import (
    FileSplits,
    PreparedRun,
    ids_of,
    in_run,
    persist,
    prepare_run,
    ranks_frame,
    with_messages,
)
from antecede.audit.roots import MissingMessage, Root, severity_of_root
from antecede.errors import InputError
from antecede.trace.schema import Members
from antecede.trace.validate import duplicate_index

_CHUNK = from_arrow_schema(steps.CHUNK)


class DistributedPasts(NamedTuple):
    """The chunks from which every message's past can be read."""

    rows: DataFrame
    collected: DataFrame
    sender_clocks: DataFrame
    """The clock of each message's sender at the send."""
    full_pasts: DataFrame
    """The pasts that exceed the sender's clock."""
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
    """Collect senders' clocks and close them transitively; if there is a cycle, once more without impossible
    deliveries."""
    plan = run.plan
    rows = persist(_packed(run), persisted)
    marked: list[DataFrame] = []
    impossible = 0
    while True:
        collected = persist(_by_block(run, steps.collect_block(plan), rows, *marked), persisted)
        _raise_errors(run, collected)
        clocks = collected.where(F.col("part") == steps.SENDER_CLOCK)
        closing = persist(clocks.coalesce(1).mapInArrow(steps.close_pasts(plan), _CHUNK), persisted)
        _raise_errors(run, closing)
        full_pasts = closing.where(F.col("part") == steps.FULL_PAST)
        if marked or not _sum(closing, steps.CYCLIC):
            return DistributedPasts(rows, collected, clocks, full_pasts, marked, impossible)
        pasts = [_to_every_block(plan, each) for each in (clocks, full_pasts)]
        marked = [persist(_by_block(run, steps.mark_impossible_block(plan), rows, *pasts), persisted)]
        _raise_errors(run, marked[0])
        impossible = _sum(marked[0], steps.IMPOSSIBLE, "previous")


def _judge(run: PreparedRun, most: int, persisted: list[DataFrame]) -> RunAudit:
    plan = run.plan
    found = compute_pasts(run, persisted)
    pasts = [_to_every_block(plan, each) for each in (found.sender_clocks, found.full_pasts)]
    state = found.collected.where(~F.col("part").isin(steps.SENDER_CLOCK, steps.DUPLICATE_ROWS))
    counting = _by_block(run, steps.count_block(plan, most), found.rows, state, *pasts)
    counted = persist(counting, persisted)
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


# Moving chunks.


def _packed(run: PreparedRun) -> DataFrame:
    """The run's events as chunks."""
    if run.files is not None and run.dense:
        return run.files.splits.mapInArrow(parquet_splits.pack_splits(run.plan, run.names), _CHUNK)
    return _encoded(run).mapInArrow(steps.pack_rows(run.plan), _CHUNK)


def _encoded(run: PreparedRun) -> DataFrame:
    """The run's events as rows of `distributed_steps.ENCODED`."""
    rows = with_messages(run)
    sent = -2 - F.col("message")
    if "delivered_apart" in rows.columns:
        sent = F.when(F.col("delivered_apart"), sent - steps.SEND_ONLY_EVENT).otherwise(sent)
    event = F.when(F.col("kind") == "send", sent).otherwise(F.coalesce("message", F.lit(-1)))
    ranked = rows.join(F.broadcast(ranks_frame(run)), "process")
    return ranked.select("rank", "index", event.alias("event"), "time")


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
    """Compute the frame, and raise the first error that a step reported in it."""
    reported = F.when(F.col("part") == steps.ERROR, F.struct("number", "index", "payload"))
    found = frame.agg(F.min(reported).alias("error")).first()
    error = found.error if found is not None else None
    if error is None:
        return
    if error.number < 0:
        raise InputError(bytes(error.payload).decode())
    raise in_run(run.plan.run, duplicate_index(run.names[error.number], error["index"]))


def _sum(frame: DataFrame, part: int, column: str = "number") -> int:
    found = frame.where(F.col("part") == part).agg(F.sum(column)).first()
    return int(found[0] or 0) if found is not None else 0


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
        .join(F.broadcast(ranks_frame(run)), "process")
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
    """The names of some messages."""
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
    ids = ids_of(run, {(run.names[origin], seq) for origin, seq in found.values()}, "send")
    return {
        message: MessageKey(origin, seq, ids.get((run.names[origin], seq), f"{run.names[origin]}:{seq}"))
        for message, (origin, seq) in found.items()
    }


def _wrong_deliveries(
    run: PreparedRun,
    found: DistributedPasts,
    missing: list[MissingMessage],
    has_orphans: bool,
    most: int,
) -> WrongDeliveries:
    """The worst missing, duplicate, impossible and orphan deliveries; the driver receives `most` of each."""
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
    """Deliveries of messages that nobody sent, by process and message, most frequent first."""
    key = ["process", "origin", "seq"]
    lost = with_messages(run).where("message is null").select(*key, "index")
    counted = lost.groupBy(*key).agg(F.min("index").alias("first"), F.count("*").alias("times"))
    rows = counted.orderBy(F.desc("times"), *key).limit(most).collect()
    again = [(*(row[name] for name in key), row["first"]) for row in rows if row.times > 1]
    second = {}
    if again:
        wanted = run.spark.createDataFrame(again, "process string, origin string, seq long, first long")
        later = lost.join(F.broadcast(wanted), key).where("index > first").groupBy(*key)
        second = {tuple(row[:3]): row.at for row in later.agg(F.min("index").alias("at")).collect()}
    ids = ids_of(run, {(row.origin, row.seq) for row in rows}, "deliver")
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
    """Count deliveries of messages that nobody sent, each message once per process; and their repetitions."""
    lost = with_messages(run).where("message is null")
    ((once, every),) = lost.agg(F.count_distinct("process", "origin", "seq"), F.count("*")).collect()
    return once, every - once
