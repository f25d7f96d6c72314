"""Three topics with a snapshot, shuffled, late and duplicated, in a stream that is killed again and again.

ANTECEDE_KILLS and ANTECEDE_TRANSACTIONS make it longer.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from change_history import History, Written, check_order
from killed_stream import PATIENCE, batches, killed_in_mid_batch, kills
from merge_until_killed import started, write_file
from pyspark.sql import SparkSession

from antecede.spark import stream_counts

KILLS = kills(1)
"""test_causal_order_restart.py shows that a stream with the same state may be killed repeatedly."""
_FILES = 2
"""Files that arrive before each start."""
_TRANSACTIONS = int(os.environ.get("ANTECEDE_TRANSACTIONS", "120"))
"""Transactions for each start."""


def shuffled(history: History, rng: random.Random) -> list[Written]:
    """Every record up to two files from where it was written, one topic two more; some twice."""
    records = history.records + rng.choices(history.records, k=len(history.records) // 10)
    size = len(records) / (_FILES * (KILLS + 1))
    at = {one: place for place, one in enumerate(history.records)}
    late = {"shop.public.orders": 2 * size}
    return sorted(records, key=lambda one: at[one] + late.get(one.topic, 0) + rng.uniform(0, 2 * size))


def put(records: list[Written], files: Path, numbers: range) -> None:
    """So many files of records in the columns of Spark's Kafka source, each younger than those before."""
    every = -(-len(records) // (_FILES * (KILLS + 1)))
    for number in numbers:
        some = records[number * every : (number + 1) * every]
        rows = [(_bytes(one.key), _bytes(one.value), one.topic, one.partition, one.offset) for one in some]
        write_file(rows, files, number)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def test_a_merge_that_is_killed_gives_each_record_once_and_transactions_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(KILLS)
    history = History(rng, _TRANSACTIONS * (KILLS + 1), again=False)
    records = shuffled(history, rng)
    files, place = tmp_path / "in", tmp_path / "killed"
    files.mkdir()
    (tmp_path / "snapshot_of.json").write_text(json.dumps(history.snapshot_topics))
    partitions = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    begin = time.monotonic()
    try:
        in_mid_batch = 0
        for number in range(KILLS):
            put(records, files, range(number * _FILES, (number + 1) * _FILES))
            in_mid_batch += killed_in_mid_batch("merge_until_killed.py", files, place, rng)
        put(records, files, range(KILLS * _FILES, (KILLS + 1) * _FILES))
        assert started(spark, files, place, availableNow=True).awaitTermination(int(PATIENCE))
        out = spark.read.parquet(str(place / "out")).orderBy("causal_index").collect()
        counts = stream_counts(spark, place / "checkpoint").first()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    by_place = {(one.topic, one.partition, one.offset): one for one in records}
    came_out = [by_place[row.topic, row.partition, row.offset] for row in out]
    ends = sum(one.is_end for one in came_out)
    print(
        f"{KILLS} kills, {in_mid_batch} of them in mid-batch; {batches(place, 'commits')} batches, "
        f"{len(records):,} records, {len(out):,} of them out with {ends:,} transactions, "
        f"{time.monotonic() - begin:.0f} s; {counts}"
    )
    assert [row.causal_index for row in out] == [*range(len(out))]
    assert [bytes(row.value or b"").decode() for row in out] == [one.value or "" for one in came_out]
    assert {one.name for one in came_out} == {one.name for one in records}
    check_order(records, [one.name for one in came_out])
    assert counts is not None
    assert (counts.rows, counts.held, counts.late) == (len(records), 0, 0)
    assert counts.duplicates == len(records) - len(out)
