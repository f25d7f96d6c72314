"""Builds dependency graphs on Spark: a DataFrame of events in, DataFrames of edges and figures out.

Runs are reduced in parallel, one task each. A run of more than `LARGE_RUN` rows is processed by many
tasks, as in an audit (`audit.distributed`), and reduced by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from antecede.audit.distributed import compute_pasts
from antecede.audit.distributed_steps import NAME, SEQ
from antecede.audit.prepared_run import LARGE_RUN, FileSplits, find_large_runs, prepare_run
from antecede.graph.core import EXACT_WIDTH, RESULT_SCHEMA, GraphFigures, graph_of_run, result_rows
from antecede.graph.distributed import graph_from_chunks
from antecede.spark.by_run import apply_by_run, event_columns, raise_first_error
from antecede.trace.schema import Meta


@dataclass(frozen=True)
class DependencyGraphs:
    """The graphs of several runs, still on Spark."""

    done: DataFrame
    edges: DataFrame
    """A row for each immediate dependency: run, cause, effect; messages by their own ids or as origin:seq."""
    figures: DataFrame
    """A row per run."""

    def release(self) -> None:
        """Free what Spark holds of the graphs."""
        self.done.unpersist()

    def by_run(self) -> Iterator[GraphFigures]:
        """The figures of each run, one row per run."""
        for row in self.figures.orderBy("run").toLocalIterator():
            yield msgspec.convert(row.asDict(recursive=True), GraphFigures)


def graph(
    events: DataFrame,
    *,
    exact_width: int = EXACT_WIDTH,
    large_run: int = LARGE_RUN,
    files: Sequence[Path] = (),
) -> DependencyGraphs:
    """The immediate-dependency graph of every run of a DataFrame of events in the schema of traces.

    The largest antichain is found for runs of fewer than `exact_width` messages. The work is done at once and
    the result persisted until `DependencyGraphs.release`. Invalid rows raise an `InputError`. Runs of more
    than `large_run` rows are processed by many tasks each; `files` is as in `audit`.
    """
    columns = event_columns(events, ("message", "own_delivery"))
    rows = events.select(*columns)
    splits, large = find_large_runs(events.sparkSession, rows, files, large_run)
    small = rows.where(~F.col("run").isin(*large)) if large else rows

    def reduce_run(run: str, table: pa.Table, _: list[Meta]) -> pa.Table:
        return result_rows(graph_of_run(run, table), exact_width)

    done = apply_by_run(small, None, reduce_run, RESULT_SCHEMA)
    persisted: list[DataFrame] = [splits.summary] if splits is not None else []
    for run in large:
        own = rows.where(F.col("run") == run)
        done = done.unionByName(_reduce_large_run(run, own, splits, exact_width, persisted))
    done = done.persist()
    try:
        raise_first_error(done)
    finally:
        for frame in persisted:
            frame.unpersist()
    return DependencyGraphs(
        done=done,
        edges=done.where("cause is not null").select("run", "cause", "effect"),
        figures=done.where("figures is not null").select("run", "figures.*"),
    )


def _reduce_large_run(
    run: str, events: DataFrame, files: FileSplits | None, exact_width: int, persisted: list[DataFrame]
) -> DataFrame:
    """The graph of one run, as rows of `RESULT_SCHEMA`: many tasks compute the pasts, one reduces them."""
    prepared = prepare_run(run, events, {}, files, persisted, single_group=True)
    pasts = compute_pasts(prepared, persisted)
    chunks = [pasts.sender_clocks, pasts.full_pasts]
    if not prepared.dense:
        chunks.append(_message_chunks(prepared.numbered, SEQ, F.col("seq").cast("string")))
    if prepared.ids is not None:
        sent = prepared.ids.where("kind = 'send'").drop("kind")
        named = prepared.numbered.join(sent, ["origin", "seq"])
        chunks.append(_message_chunks(named, NAME, F.col("id")))
    every = reduce(DataFrame.unionByName, chunks).repartition(1).sortWithinPartitions("part", "number")
    step = graph_from_chunks(prepared.plan, prepared.names, exact_width)
    return every.mapInArrow(step, from_arrow_schema(RESULT_SCHEMA))


def _message_chunks(messages: DataFrame, part: int, text: Column) -> DataFrame:
    """A chunk for each message, with a text about it."""
    return messages.select(
        F.lit(0).alias("block"),
        F.lit(part).cast("long").alias("part"),
        F.col("message").alias("number"),
        *(F.lit(0).cast("long").alias(name) for name in ("previous", "index")),
        F.encode(text, "utf-8").alias("payload"),
    )
