"""Ways to put rows in order: Antecede, and what a user would do without it."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from antecede.spark import connect

COLUMNS = ("room", "event_id", "follows", "time", "body")
SCHEMA = "room string, event_id string, follows array<string>, time long, body string"
ROCKSDB, HDFS = (
    f"org.apache.spark.sql.execution.streaming.state.{name}StateStoreProvider"
    for name in ("RocksDB", "HDFSBacked")
)
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""Without this setting, RocksDB syncs and copies its files at every commit; it is on for all peers."""
Row = tuple[Any, ...]
Progress = dict[str, Any]
Group = tuple[set[str], dict[str, list[Row]]]
"""The delivered rows, and the waiting rows by the cause they wait for."""


@dataclass
class Job:
    """A timed job: its input, its output, and what remains to be checked afterwards."""

    spark: Any
    """A session, or None for peers that need none."""
    given: Path
    folder: Path
    progress: list[Progress] = field(default_factory=list)
    rows: list[Row] | None = None

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def result(self) -> pa.Table:
        return pq.read_table(self.out) if self.rows is None else table_of(self.rows)


Prepare = Callable[[Job], Callable[[], None]]
"""Called before the clock starts; the function that it returns is timed."""


@dataclass(frozen=True)
class Peer:
    who: str
    prepare: Prepare
    batches: int | None = None
    """How many micro-batches a stream has."""
    causal: bool = True
    like: str = ""
    """The peer to compare with: what a user would otherwise use."""

    @property
    def files(self) -> int:
        return self.batches or FILES


def session(cores: int) -> AbstractContextManager[SparkSession]:
    """A session on so many cores; its workers find this module."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    return connect(python_path=[Path(__file__).parent])


def wake(spark: SparkSession) -> None:
    """Start workers off the clock: workers that are idle for a minute end, and new ones must import
    modules."""
    spark.range(0, 8, 1, 8).mapInPandas(_slowly, "id long").count()


def forget_state(spark: SparkSession) -> None:
    """Stop state stores, which outlive their stream and would clean up during the next peer's time."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def _slowly(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    time.sleep(0.1)  # So that every core needs a worker of its own.
    yield from frames


# In pure Python


def new_group() -> Group:
    return set(), {}


def ordered(rows: Iterable[Row], groups: dict[str, Group]) -> list[Row]:
    """Rows in causal order, numbered in their group; rows that lack a cause stay in `groups`.

    A row waits for one cause at a time: when that arrives, it looks for the next.
    """
    out = []
    for arrived in rows:
        delivered, waiting = groups[arrived[0]]
        ready = [arrived]
        while ready:
            row = ready.pop()
            for cause in row[2]:
                if cause not in delivered:
                    waiting.setdefault(cause, []).append(row)
                    break
            else:
                out.append((*row, len(delivered)))
                delivered.add(row[1])
                if row[1] in waiting:
                    ready += waiting.pop(row[1])
    return out


def rows_of(folder: Path) -> list[Row]:
    table = pq.read_table(folder)
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(dict(zip((*COLUMNS, "causal_index"), map(list, zip(*rows, strict=True)), strict=True)))


def in_memory(job: Job) -> Callable[[], None]:
    rows = rows_of(job.given)

    def run() -> None:
        job.rows = ordered(rows, defaultdict(new_group))

    return run


def from_files(job: Job) -> Callable[[], None]:
    def run() -> None:
        job.out.mkdir(parents=True)
        rows = ordered(rows_of(job.given), defaultdict(new_group))
        pq.write_table(table_of(rows), job.out / "part.parquet")

    return run


# On Spark, in a batch


def batch(change: Callable[[DataFrame], DataFrame]) -> Prepare:
    def prepare(job: Job) -> Callable[[], None]:
        return lambda: change(job.spark.read.schema(SCHEMA).parquet(str(job.given))).write.parquet(
            str(job.out)
        )

    return prepare


def sort_by_time(rows: DataFrame) -> DataFrame:
    return rows.repartition("room").sortWithinPartitions("room", "time")


def number_by_time(rows: DataFrame) -> DataFrame:
    return rows.withColumn("causal_index", F.row_number().over(Window.partitionBy("room").orderBy("time")))


def causally(rows: DataFrame, **options: Any) -> DataFrame:
    order = importlib.import_module("antecede.spark").causal_order
    changed: DataFrame = order(rows, group="room", id="event_id", deps="follows", **options)
    return changed


def there_is_ours() -> bool:
    return hasattr(importlib.import_module("antecede.spark"), "causal_order")


# On Spark, in a stream


def stream(change: Callable[[DataFrame], DataFrame], store: str = ROCKSDB) -> Prepare:
    """From files to files with a checkpoint, a micro-batch a file."""

    def prepare(job: Job) -> Callable[[], None]:
        job.spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)

        def run() -> None:
            rows = job.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(job.given))
            writer = (
                change(rows).writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
            )
            query = writer.option("checkpointLocation", str(job.folder / "checkpoint")).start(str(job.out))
            query.awaitTermination()
            job.progress = [json.loads(each.json) for each in query.recentProgress]

        return run

    return prepare


def unchanged(rows: DataFrame) -> DataFrame:
    """The cost of micro-batches by themselves."""
    return rows


def with_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("room").applyInPandasWithState(
        order_group, f"{SCHEMA}, causal_index long", "packed binary", "append", GroupStateTimeout.NoTimeout
    )


def order_group(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """One group's rows of a micro-batch; its state is one value, which costs one look-up."""
    # The state is what this function wrote.
    group: Group = pickle.loads(state.get[0]) if state.exists else new_group()  # noqa: S301
    out: list[Row] = []
    for frame in frames:
        columns = [frame[name].tolist() for name in COLUMNS]
        columns[2] = [each.tolist() for each in columns[2]]
        out += ordered(zip(*columns, strict=True), {key[0]: group})
    state.update((pickle.dumps(group, pickle.HIGHEST_PROTOCOL),))
    if out:
        yield pd.DataFrame(out, columns=[*COLUMNS, "causal_index"])


def summed(progress: list[Progress]) -> dict[str, float]:
    """How a stream's time was spent, summed over all micro-batches; sizes are those of the last one. The
    figures of state stores are summed over tasks, which run in parallel."""
    total: dict[str, float] = defaultdict(float)
    for each in progress:
        for name in SIZES:
            total.pop(f"state.{name}", None)
        for name, value in each["durationMs"].items():
            total[f"durationMs.{name}"] += value
        for operator in each["stateOperators"]:
            figures = {name: value for name, value in operator.items() if isinstance(value, int | float)}
            for name, value in (figures | operator["customMetrics"]).items():
                if "SnapshotLastUploaded" not in name:  # of each partition apart
                    total[f"state.{name}"] += value
    return dict(total)


SIZES = {
    "memoryUsedBytes", "numRowsTotal", "numShufflePartitions", "numStateStoreInstances",
    "rocksdbPinnedBlocksMemoryUsage", "rocksdbSstFileSize", "stateOnCurrentVersionSizeBytes",
}  # fmt: skip

LOOP, LOOP_FILES = "Python loop, rows in memory", "Python loop, Parquet to Parquet"
SORT, NUMBER = "Spark, sort by time", "Spark, row_number by time"
STATE, STATE_HDFS = "applyInPandasWithState, RocksDB", "applyInPandasWithState, HDFS-backed"
UNCHANGED = "Spark, stream that changes nothing"
OURS_BATCH, OURS_STREAM = "Antecede, batch", "Antecede, stream"

FILES = 10
PEERS = [
    Peer(LOOP, in_memory),
    Peer(LOOP_FILES, from_files),
    Peer(SORT, batch(sort_by_time), causal=False),
    Peer(NUMBER, batch(number_by_time), causal=False),
    Peer(OURS_BATCH, batch(causally), like=SORT),
    *(Peer(UNCHANGED, stream(unchanged), batches, causal=False) for batches in (1, FILES)),
    *(Peer(STATE, stream(with_state), batches) for batches in (1, FILES)),
    *(Peer(STATE_HDFS, stream(with_state, HDFS), batches) for batches in (1, FILES)),
    *(Peer(OURS_STREAM, stream(causally), batches, like=STATE) for batches in (1, FILES)),
]
