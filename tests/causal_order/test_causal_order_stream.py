"""A stream in causal order: held, released and quarantined rows, and that the counts add up."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from antecede.errors import InputError
from antecede.spark import causal_order, held, stream_counts

ROWS = "room string, id string, deps array<string>, note string"
ASKED: dict[str, Any] = {"group": "room", "id": "id", "deps": "deps"}
_PATIENCE = 120.0
"""Seconds for something to happen on a machine that is busy."""

Event = tuple[str | None, str, list[str], str]


@pytest.fixture(autouse=True, scope="module")
def few_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


class Stream(NamedTuple):
    """A folder with the input of a stream, its checkpoint and its output."""

    spark: SparkSession
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def put(self, rows: Sequence[tuple[Any, ...]], names: str = "room id deps note") -> None:
        """Add a file of rows, which appears complete and is younger than those before."""
        place = self.folder / "in"
        place.mkdir(exist_ok=True)
        kinds = {"deps": pa.list_(pa.string())}
        table = pa.table(
            {
                name: pa.array([row[at] for row in rows], kinds.get(name, pa.string()))
                for at, name in enumerate(names.split())
            }
        )
        number = len(list(place.iterdir()))
        pq.write_table(table, self.folder / "new")
        os.utime(self.folder / "new", (1e9 + number, 1e9 + number))
        (self.folder / "new").rename(place / f"{number:04}.parquet")

    def start(self, schema: str = ROWS, every: str | None = None, **asked: Any) -> StreamingQuery:
        """Order the files that are there, one per batch; with `every`, keep looking at that interval."""
        coming = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        ordered = causal_order(coming.parquet(str(self.folder / "in")), **(ASKED | asked))
        writer = ordered.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
        return writer.format("parquet").start(str(self.folder / "out"))

    def run(self, schema: str = ROWS, **asked: Any) -> Counter[str]:
        """Order the files that are there; the sums of the batches' observations."""
        query = self.start(schema, **asked)
        assert query.awaitTermination(int(_PATIENCE))
        return observed(query, {})

    def out(self) -> list[Any]:
        return self.spark.read.parquet(str(self.folder / "out")).collect()

    def counts(self) -> dict[str, int]:
        return stream_counts(self.spark, self.checkpoint).first().asDict()  # type: ignore[union-attr]


def observed(query: StreamingQuery, seen: dict[int, dict[str, int]]) -> Counter[str]:
    """The sums of the batches' observations; `seen` keeps those that the query no longer reports."""
    for progress in query.recentProgress:
        metrics = progress.observedMetrics.get("causal_order")
        if metrics is not None:
            seen[progress.batchId] = metrics.asDict()
    total: Counter[str] = Counter()
    for counts in seen.values():
        total.update(counts)
    return total


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def until(query: StreamingQuery, done: Callable[[Counter[str]], bool]) -> Counter[str]:
    """Wait until the sums of the query's observations are as expected."""
    seen: dict[int, dict[str, int]] = {}
    deadline = time.monotonic() + _PATIENCE
    while not done(observed(query, seen)):
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, observed(query, seen)
        time.sleep(0.1)
    return observed(query, seen)


def many_events(rng: random.Random) -> tuple[list[Event], list[Event]]:
    """20,000 rows of 50 rooms, shuffled, some duplicated, and the 1 % of causes that are withheld at
    first."""
    rows: list[Event] = []
    causes: set[tuple[str, str]] = set()
    for room in range(50):
        for place in range(400):
            many = rng.choice([0, 0, 1, 1, 2]) if place else 0
            deps = sorted({str(rng.randrange(max(0, place - 30), place)) for _ in range(many)})
            causes.update((f"room {room}", dep) for dep in deps)
            rows.append((f"room {room}", str(place), deps, f"{room} {place}"))
    withheld = rng.sample([row for row in rows if (row[0], row[1]) in causes], 200)
    hidden = {(row[0], row[1]) for row in withheld}
    rest = [row for row in rows if (row[0], row[1]) not in hidden]
    rest += rng.sample(rest, 150)
    rng.shuffle(rest)
    return rest, withheld


def batch_statuses(spark: SparkSession, rows: Sequence[Event], on_missing: str) -> dict[tuple[Any, str], str]:
    frame = causal_order(spark.createDataFrame(list(rows), ROWS), on_missing=on_missing, **ASKED)
    return {(row.room, row.id): row.status for row in frame.collect()}


def assert_indices_count(rows: Sequence[Any]) -> None:
    """In each group indices are 0, 1, 2 …; ordered rows follow all their causes."""
    place = {(row.room, row.id): row.causal_index for row in rows if row.causal_index is not None}
    sizes = Counter(room for room, _ in place)
    assert sorted(place.values()) == sorted(index for size in sizes.values() for index in range(size))
    assert len({(room, index) for (room, _), index in place.items()}) == len(place)
    for row in rows:
        if row.status == "ordered":
            assert all(place[row.room, dep] < row.causal_index for dep in row.deps)


def test_a_row_without_its_cause_is_held_and_listed_until_the_cause_arrives(
    spark: SparkSession, tmp_path: Path
) -> None:
    began = datetime.now(UTC).replace(tzinfo=None)
    rows, withheld = many_events(random.Random(1))
    stream = Stream(spark, tmp_path)
    for begin in range(0, len(rows), 7_000):
        stream.put(rows[begin : begin + 7_000])
    seen = stream.run()
    expected = batch_statuses(spark, rows, "hold")
    expected_held = {key for key, status in expected.items() if status == "held"}
    assert seen == stream.counts()
    assert (seen["rows"], seen["held"], seen["duplicates"]) == (len(rows), len(expected_held), 150)
    assert seen["rows"] == seen["ordered"] + seen["held"] + seen["duplicates"]
    out = stream.out()
    assert_indices_count(out)
    assert {(row.room, row.id) for row in out} == set(expected) - expected_held
    assert {row.status for row in out} == {"ordered"}
    shown = held(spark, stream.checkpoint).collect()
    assert {(row.group, row.id) for row in shown} == expected_held
    assert len(shown) == len(expected_held)
    deps = {(room, row): set(deps) for room, row, deps, _ in rows}
    hidden = {(row[0], row[1]) for row in withheld}
    for row in shown:
        lacking = {dep for dep in deps[row.group, row.id] if (row.group, dep) in expected_held | hidden}
        assert set(row.waits_for) == lacking
        assert set(row.missing) == {dep for dep in lacking if (row.group, dep) in hidden}
        assert began <= row.since <= datetime.now(UTC).replace(tzinfo=None)

    stream.put(withheld)
    stream.run()
    assert stream.counts() == dict.fromkeys(seen, 0) | {"rows": 20_150, "ordered": 20_000, "duplicates": 150}
    assert held(spark, stream.checkpoint).collect() == []
    out = stream.out()
    assert_indices_count(out)
    whole = causal_order(spark.createDataFrame([*rows, *withheld], ROWS), **ASKED).collect()
    assert sorted((row.room, row.id, row.deps, row.note) for row in out) == sorted(
        (row.room, row.id, row.deps, row.note) for row in whole
    )


@pytest.mark.parametrize("on_missing", ["release", "quarantine"])
def test_with_a_timeout_all_rows_are_counted_and_causes_may_be_late(
    spark: SparkSession, tmp_path: Path, on_missing: str
) -> None:
    rows, withheld = many_events(random.Random(2))
    expected = batch_statuses(spark, rows, on_missing)
    stream = Stream(spark, tmp_path)
    stream.put(rows)
    with running(stream.start(every="1 second", on_missing=on_missing, timeout="2s")) as query:
        seen = until(query, lambda sums: sums["rows"] == len(rows) and sums["held"] == 0)
        first = stream.out()
        stream.put(withheld)
        after = until(query, lambda sums: sums["rows"] == len(rows) + len(withheld) and sums["held"] == 0)
    assert {(row.room, row.id): row.status for row in first} == expected
    assert all(row.held_ms >= 2_000 for row in first if row.status == "released")
    for sums in (seen, after):
        gone = sums["ordered"] + sums["released"] + sums["late"] + sums["quarantined"]
        assert sums["rows"] == gone + sums["duplicates"] + sums["held"]
    assert seen["duplicates"] == 150
    assert after == stream.counts()
    out = stream.out()
    assert len(out) == 20_000
    assert_indices_count(out)
    hidden = {(row[0], row[1]) for row in withheld}
    late = Counter(row.status for row in out if (row.room, row.id) in hidden)
    if on_missing == "release":
        released = {(row.room, row.id) for row in first if row.status == "released"}
        owed = {(room, dep) for room, row, deps, _ in rows for dep in deps if (room, row) in released}
        assert late == {"late": len(owed & hidden), "ordered": len(hidden - owed)}
        assert after["late"] == late["late"] > 150
    else:
        assert set(late) == {"ordered", "quarantined"}
        assert after["quarantined"] == seen["quarantined"] + late["quarantined"]
        assert {(row.room, row.id): row.status for row in out} == {
            (row.room, row.id): row.status for row in first
        } | {(row.room, row.id): row.status for row in out if (row.room, row.id) in hidden}


def test_the_dependency_columns_cannot_change_with_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    stream.put([("r", "2", ["1"], "")])
    assert stream.run()["held"] == 1
    stream.put([("r", "1", [], "")])
    coming = spark.readStream.schema(ROWS).parquet(str(tmp_path / "in"))
    numbers = coming.selectExpr("room", "int(id) id", "transform(deps, d -> int(d)) deps", "note")
    assert "made with ids and the query has numbers" in refusal(stream, numbers, id="id")
    renamed = coming.withColumnRenamed("id", "key")
    words = "id: the checkpoint was made with column id and the query has column key"
    assert words in refusal(stream, renamed, id="key")
    assert stream.run()["ordered"] == 2


def refusal(stream: Stream, coming: DataFrame, **asked: Any) -> str:
    """The message with which a query on the same checkpoint fails."""
    writer = causal_order(coming, **(ASKED | asked)).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(stream.checkpoint)).format("parquet")
    with pytest.raises(StreamingQueryException) as failed:
        writer.start(str(stream.folder / "out")).awaitTermination(int(_PATIENCE))
    return str(failed.value)


@contextmanager
def without_empty_batches(spark: SparkSession) -> Iterator[None]:
    """With them, Spark never ends a query that has timers, not even one of what is available now."""
    setting = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(setting, "false")
    yield
    spark.conf.unset(setting)


def test_columns_may_be_added_and_removed_with_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Held rows get nulls in a new column, whether a cause or the timeout releases them."""
    stream = Stream(spark, tmp_path)
    stream.put([("r", "2", ["1"], "two"), ("s", "9", ["8"], "nine")])
    rule: dict[str, Any] = {"on_missing": "release", "timeout": "5s"}
    with without_empty_batches(spark):
        assert stream.run(**rule)["held"] == 2
    stream.put([("r", "1", "more", [])], "room id extra deps")
    newer = "room string, id string, extra string, deps array<string>"
    with running(stream.start(newer, every="1 second", **rule)) as query:
        until(query, lambda sums: sums["ordered"] + sums["released"] == 3)
    parts = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out"))
    assert sorted((row.room, row.id, row.extra, row.deps, row.status) for row in parts.collect()) == [
        ("r", "1", "more", [], "ordered"),
        ("r", "2", None, ["1"], "ordered"),
        ("s", "9", None, ["8"], "released"),
    ]


def test_a_foreign_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for inspect in (held, stream_counts):
        with pytest.raises(InputError, match="is not the checkpoint of a causal_order stream"):
            inspect(spark, tmp_path / "nowhere")
