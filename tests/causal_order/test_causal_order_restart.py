"""A killed stream continues where it stopped, and gives the rows of an undisturbed one."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from killed_stream import PATIENCE, batches, killed_in_mid_batch, kills
from order_until_killed import started
from pyspark.sql import SparkSession

from antecede.spark import held, stream_counts

KILLS = kills(2)
_FILES = 4
"""Files that arrive before each start."""
_FILE_ROWS = 300

Event = tuple[str, str, list[str], str]


def events(rng: random.Random) -> list[Event]:
    """Rows of 20 rooms, up to two files from where they would be, some of them twice; a few lack a cause."""
    rows: list[Event] = []
    sizes = dict.fromkeys((f"room {number}" for number in range(20)), 0)
    for _ in range(_FILES * (KILLS + 1) * _FILE_ROWS):
        room = rng.choice(list(sizes))
        place = sizes[room]
        deps = {str(rng.randrange(max(0, place - 20), place)) for _ in range(rng.randrange(3)) if place}
        if rng.random() < 0.001:
            deps.add("never")
        if rows and rng.random() < 0.01:
            rows.append(rng.choice(rows))
            continue
        rows.append((room, str(place), sorted(deps), f"{room} {place}"))
        sizes[room] += 1
    places = sorted(range(len(rows)), key=lambda place: place + rng.uniform(0, 2 * _FILE_ROWS))
    return [rows[place] for place in places]


def put(rows: list[Event], files: Path, numbers: range) -> None:
    """Write the rows as this many files, each younger than those before."""
    for number in numbers:
        some = rows[number * _FILE_ROWS : (number + 1) * _FILE_ROWS]
        table = pa.table(
            {
                "room": pa.array([row[0] for row in some]),
                "id": pa.array([row[1] for row in some]),
                "deps": pa.array([row[2] for row in some], pa.list_(pa.string())),
                "note": pa.array([row[3] for row in some]),
            }
        )
        pq.write_table(table, files.parent / "new")
        os.utime(files.parent / "new", (1e9 + number, 1e9 + number))
        (files.parent / "new").rename(files / f"{number:04}.parquet")


def outcome(spark: SparkSession, place: Path, *apart: str) -> tuple[list[Any], list[Any], Any]:
    """All that came out apart from some columns, the held rows and what they wait for, and the counts."""
    out = spark.read.parquet(str(place / "out")).drop(*apart)
    rows = held(spark, place / "checkpoint").drop("since")
    return (
        sorted(map(tuple, out.collect()), key=repr),
        sorted(map(tuple, rows.collect()), key=repr),
        stream_counts(spark, place / "checkpoint").first(),
    )


def test_a_stream_that_is_killed_gives_the_same_rows_as_an_undisturbed_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(KILLS)
    rows = events(rng)
    files, killed, whole = tmp_path / "in", tmp_path / "killed", tmp_path / "whole"
    files.mkdir()
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        in_mid_batch = 0
        for number in range(KILLS):
            put(rows, files, range(number * _FILES, (number + 1) * _FILES))
            in_mid_batch += killed_in_mid_batch("order_until_killed.py", files, killed, rng)
        put(rows, files, range(KILLS * _FILES, (KILLS + 1) * _FILES))
        for place in (killed, whole):
            assert started(spark, files, place, availableNow=True).awaitTermination(int(PATIENCE))
        # A source that is killed may put the files of two batches into one; then rows that do not depend on
        # each other may change places.
        same_batches = batches(killed, "commits") == batches(whole, "commits")
        apart = ["held_ms", "emitted_at", *([] if same_batches else ["causal_index"])]
        after, undisturbed = (outcome(spark, place, *apart) for place in (killed, whole))
        places = {
            (row.room, row.id): row.causal_index for row in spark.read.parquet(str(killed / "out")).collect()
        }
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    print(f"{KILLS} kills, {in_mid_batch} of them in mid-batch; {undisturbed[2]}; {apart} left out")
    assert after == undisturbed
    for room, name, deps, *_ in after[0]:
        assert all(places[room, cause] < places[room, name] for cause in deps)
    out, held, counts = undisturbed
    assert counts.rows == len(rows) == len(out) + len(held) + counts.duplicates
    assert held
    assert counts.duplicates
