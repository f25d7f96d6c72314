"""The messages of a run as a shuffled stream of rows that name their causes, put in causal order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from antecede.causal_order.event_files_on_spark import setting
from antecede.causal_order.stream_on_spark import PARTITIONS
from antecede.graph.core import edge_table, graph_files
from antecede.spark import causal_order
from antecede.sweep.run import Progress
from antecede.trace.reader import trace_files

_ROWS = pa.schema([("id", pa.string()), ("causes", pa.list_(pa.string()))])
_EXAMPLES = 8


class StreamedRow(msgspec.Struct, frozen=True):
    message: str
    causes: list[str]


class PlacedRow(msgspec.Struct, frozen=True):
    """A row, and its position in the output order."""

    row: StreamedRow
    place: int | None
    """None if the row was not emitted."""


class OrderedStream(msgspec.Struct, frozen=True):
    """What a stream received and emitted."""

    rows: int
    files: int
    early: int
    """Rows that arrived before one of their causes."""
    held: int
    """Rows that waited for a later micro-batch."""
    ordered: int
    disorder: list[str]
    """What is out of order or missing, in words."""
    first: list[PlacedRow]
    """The first rows that arrived."""
    seconds: float = 0.0

    @property
    def wrong(self) -> str:
        """What differs from the expected result; empty if all is well."""
        if self.disorder:
            return f"the stream is not in order: {self.disorder[0]}"
        return "" if self.early else "no row of the stream arrived before its cause"


def order_shuffled(
    spark: SparkSession, messages: Sequence[StreamedRow], folder: Path, files: int, progress: Progress
) -> OrderedStream:
    """Shuffle messages into files, order them as a stream, one file a micro-batch, and check the order."""
    rows = random.Random(7).sample(messages, len(messages))
    came = folder / "arrived"
    came.mkdir(parents=True)
    size = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * size : (number + 1) * size]
        table = pa.table([[row.message for row in part], [row.causes for row in part]], _ROWS)
        pq.write_table(table, came / f"part-{number:05}.parquet")
    progress("ordering", 0, files)
    schema = spark.read.parquet(str(came)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(came))
    writer = (
        causal_order(stream, id="id", deps="causes")
        .writeStream.format("parquet")
        .option("path", str(folder / "ordered"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    with setting(spark, PARTITIONS, "1"):  # one group, so one task has all of its state
        query = writer.start()
    while not query.awaitTermination(1):
        last = query.lastProgress
        progress("ordering", 1 + last["batchId"] if last else 0, files)
    emitted = pq.read_table(sorted((folder / "ordered").glob("*.parquet"))).sort_by("causal_index")
    return check_order(rows, emitted, files)


def messages_of(trace: Path) -> list[StreamedRow]:
    """The messages of a run, each with its immediate causes, in causal order."""
    (graph,) = graph_files(trace, trace_files(trace))
    edges = edge_table(graph)
    causes: dict[str, list[str]] = {name: [] for name in graph.names.take(pa.array(graph.order)).to_pylist()}
    pairs = zip(edges.column("cause").to_pylist(), edges.column("effect").to_pylist(), strict=True)
    for cause, effect in pairs:
        causes[effect].append(cause)
    return [StreamedRow(message, of) for message, of in causes.items()]


def check_order(arrived: Sequence[StreamedRow], emitted: pa.Table, files: int) -> OrderedStream:
    """Compare what a stream has written, by its index, with what arrived."""
    columns = zip(emitted.column("id").to_pylist(), emitted.column("causes").to_pylist(), strict=True)
    out = [StreamedRow(name, causes) for name, causes in columns]
    counts = Counter(row.message for row in out)
    places = {row.message: place for place, row in enumerate(out, start=1)}
    disorder = [f"{name} came out {count} times" for name, count in counts.items() if count > 1]
    disorder += [f"{row.message} did not come out" for row in arrived if row.message not in counts]
    disorder += [f"{effect} came out before its cause {cause}" for effect, cause in _early(out)]
    return OrderedStream(
        rows=len(arrived),
        files=files,
        early=len({effect for effect, _ in _early(arrived)}),
        held=sum(1 for waited in emitted.column("held_ms").to_pylist() if waited),
        ordered=len(counts),
        disorder=disorder,
        first=[PlacedRow(row, places.get(row.message)) for row in arrived[:_EXAMPLES]],
    )


def _early(rows: Sequence[StreamedRow]) -> Iterator[tuple[str, str]]:
    """Each row that comes before a cause, and that cause."""
    places = {row.message: place for place, row in enumerate(rows)}
    for place, row in enumerate(rows):
        for cause in row.causes:
            if places.get(cause, place) > place:
                yield row.message, cause
