"""A stream of a connector's topics, merged. As a program it runs until it is killed, for its restart test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from antecede.spark import connect, merge_debezium

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
"""The columns of Spark's Kafka source, with headers."""


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
