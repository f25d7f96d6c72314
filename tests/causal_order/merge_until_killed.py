"""A stream of a connector's topics, merged. As a program it runs until it is killed, for its restart test."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from antecede.spark import connect, merge_debezium

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
"""The columns of Spark's Kafka source, with headers."""


Row = tuple[bytes | None, bytes | None, str, int, int]
"""The key and the value of a record, its topic, partition and offset."""


def write_file(rows: list[Row], files: Path, number: int) -> None:
    """A file of records in these columns, younger than those with smaller numbers."""
    keys, values, topics, partitions, offsets = map(list, zip(*rows, strict=True)) if rows else ([],) * 5
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([number] * len(rows), pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * len(rows), pa.int32()),
            "headers": pa.array([[]] * len(rows), headers),
        }
    )
    pq.write_table(table, files.parent / "new")
    os.utime(files.parent / "new", (1e9 + number, 1e9 + number))
    (files.parent / "new").rename(files / f"{number:04}.parquet")


def started(spark: SparkSession, files: Path, place: Path, **trigger: Any) -> StreamingQuery:
    """Start merging files, one per batch; the checkpoint is beside the output."""
    coming = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))
    topics = json.loads((files.parent / "snapshot_of.json").read_text())
    merged = merge_debezium(coming, offsets="consecutive", snapshot_of=topics)
    writer = merged.writeStream.trigger(**trigger).format("parquet")
    return writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "out"))


if __name__ == "__main__":
    with connect() as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        started(session, Path(sys.argv[1]), Path(sys.argv[2]), processingTime="0 seconds").awaitTermination()
