"""What depends on what, immediately: a DataFrame of events in, DataFrames of edges and figures out.

Runs are done in parallel, each by one task, as audits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from antecede.audit.distributed import LARGE_RUN, FileSplits, compute_pasts, find_large_runs, prepare_run
from antecede.audit.distributed_steps import KEY
from antecede.errors import InputError
from antecede.graph.core import EXACT_WIDTH, RESULT_SCHEMA, GraphFigures, graph_of_run, told
from antecede.graph.distributed import graph_from_chunks
from antecede.trace.schema import FIELDS, REQUIRED
from antecede.trace.validate import check_columns


@dataclass(frozen=True)
class DependencyGraphs:
    """The graphs of several runs, still on Spark."""

    done: DataFrame
    edges: DataFrame
    """A row for each immediate dependency: run, cause, effect; messages as origin:seq."""
    figures: DataFrame
    """A row a run."""

    def release(self) -> None:
        """Free what Spark keeps of the graphs."""
        self.done.unpersist()

    def by_run(self) -> Iterator[GraphFigures]:
        """Figures a run: a summary, as many rows as there are runs."""
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

    The largest antichain is found for runs of fewer than `exact_width` messages. It is all done here and now
    and kept (`DependencyGraphs.release` lets go of it). Bad rows raise an `InputError`. Runs of more than
    `large_run` rows are gone through by many tasks each; `files` is as in `audit`.
    """
    check_columns(events.columns, "the DataFrame of events")
    rows = events.select(*(F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in REQUIRED))
    spark = events.sparkSession
    work, large = find_large_runs(spark, rows, files, large_run)
    small = rows.where(~F.col("run").isin(*large)) if large else rows
    # The number is given so that Spark does not gather a few small, costly runs into one task.
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    schema = from_arrow_schema(RESULT_SCHEMA)
    done = small.repartition(tasks, "run").groupBy("run").applyInArrow(_graph(exact_width), schema)
    kept: list[DataFrame] = [work.summary] if work is not None else []
    for run in large:
        own = rows.where(F.col("run") == run)
        done = done.unionByName(_graph_of_large_run(run, own, work, exact_width, schema, kept))
    done = done.persist()
    bad = done.agg(F.min("error").alias("error")).first()
    for frame in kept:
        frame.unpersist()
    if bad is not None and bad.error is not None:
        raise InputError(bad.error)
    return DependencyGraphs(
        done=done,
        edges=done.where("cause is not null").select("run", "cause", "effect"),
        figures=done.where("figures is not null").select("run", "figures.*"),
    )


def _graph(exact_width: int) -> Callable[[pa.Table], pa.Table]:
    def make(rows: pa.Table) -> pa.Table:
        run = rows.column("run")[0].as_py()
        try:
            return told(graph_of_run(run, rows), exact_width)
        except InputError as error:
            return pa.Table.from_pylist([{"run": run, "error": str(error)}], schema=RESULT_SCHEMA)

    return make


def _graph_of_large_run(
    run: str,
    events: DataFrame,
    work: FileSplits | None,
    exact_width: int,
    schema: StructType,
    kept: list[DataFrame],
) -> DataFrame:
    """The graph of one run, as rows of `schema`, made by one task from what many found. `kept` is what Spark
    keeps until that is done."""
    known = prepare_run(run, events, {}, work, kept, together=True)
    pasts = compute_pasts(known, kept)
    parcels = [pasts.had, pasts.closed]
    if not known.dense:
        nothing = (F.lit(0).cast("long").alias(name) for name in ("previous", "index"))
        keys = known.numbered.select(
            F.lit(0).alias("block"),
            F.lit(KEY).cast("long").alias("part"),
            F.col("message").alias("number"),
            *nothing,
            F.encode(F.col("seq").cast("string"), "utf-8").alias("payload"),
        )
        parcels.append(keys)
    every = reduce(DataFrame.unionByName, parcels).repartition(1).sortWithinPartitions("part", "number")
    return every.mapInArrow(graph_from_chunks(known.plan, known.names, exact_width), schema)
