"""Topics merged on Spark: the same as locally in a batch, and in a stream every record once, in order."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_history import History, Written, check_order
from pyspark.sql import SparkSession
from test_merge import table_of

from antecede.causal_order.merge import MergeRules
from antecede.causal_order.merge_rows import merge_table
from antecede.errors import InputError
from antecede.spark import held, merge_debezium, stream_counts

RECORDS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, name string"
)
"""The columns of Spark's Kafka source that are looked at, and a name."""


def write_records(records: list[Written], file: Path) -> None:
    """Records as Spark's Kafka source has them."""
    columns = {
        "key": pa.array([None if one.key is None else one.key.encode() for one in records], pa.binary()),
        "value": pa.array(
            [None if one.value is None else one.value.encode() for one in records], pa.binary()
        ),
        "topic": pa.array([one.topic for one in records]),
        "partition": pa.array([one.partition for one in records], pa.int32()),
        "offset": pa.array([one.offset for one in records], pa.int64()),
        "timestamp": pa.array([0] * len(records), pa.timestamp("us", "UTC")),
        "name": pa.array([one.name for one in records]),
    }
    pq.write_table(pa.table(columns), file)


def test_a_batch_merged_on_spark_equals_the_local_merge(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(5)
    records = [one for one in History(rng, 40, partitions=2).records if one.snapshot or rng.random() < 0.997]
    rng.shuffle(records)
    write_records(records, tmp_path / "records.parquet")
    rows = merge_debezium(spark.read.parquet(str(tmp_path))).collect()
    merged = merge_table(table_of(records), MergeRules())
    local = [records[row].name for row in merged.rows.to_pylist()]
    assert [(row.name, row.causal_index, row.status, row.reason) for row in rows] == list(
        zip(
            local,
            *(merged.added[name].to_pylist() for name in ("causal_index", "status", "reason")),
            strict=True,
        )
    )
    assert {row.status for row in rows} == {"ordered", "held"}
    first = next(row for row in rows if row.transaction == "700" and row.transaction_order == 1)
    assert first.kind in ("create", "update", "delete")
    assert bytes(first.value).decode() == next(one.value for one in records if one.name == "700:1")


def test_a_stream_emits_every_record_once_and_reports_held_ones(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(6)
    history = History(rng, 60, again=False)
    lost = {"759:1", "759:END"}
    records = [one for one in history.records if one.name not in lost]
    records += rng.choices(records, k=50)
    rng.shuffle(records)
    (tmp_path / "in").mkdir()
    for number in range(6):
        write_records(records[number::6], tmp_path / "in" / f"{number}.parquet")
    coming = spark.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    merged = merge_debezium(coming, offsets="consecutive", snapshot_of=history.snapshot_topics)
    writer = merged.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("parquet").trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(240)
    out = spark.read.parquet(str(tmp_path / "out")).orderBy("causal_index").collect()
    emitted = [row.name for row in out]
    check_order(records, emitted)
    waiting = held(spark, tmp_path / "checkpoint").collect()
    counts = stream_counts(spark, tmp_path / "checkpoint").first()
    assert counts is not None
    assert {row.status for row in out} == {"ordered"}
    assert counts.rows == len(records) == len(out) + counts.duplicates + len(waiting)
    assert set(emitted) | {row.id for row in waiting} >= {one.name for one in records if one.transaction}
    places = {f"{one.topic}-{one.partition}@{one.offset}" for one in history.records if one.name in lost}
    missing = {cause for row in waiting for cause in row.missing}
    assert missing
    assert missing <= places | lost


def test_a_table_without_kafka_columns_is_refused_naming_the_column(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="no column value"):
        merge_debezium(spark.createDataFrame([], "key binary, topic string, partition int, offset long"))
    with pytest.raises(InputError, match="'dense' is none of increasing, consecutive"):
        merge_debezium(spark.createDataFrame([], RECORDS), offsets="dense")
