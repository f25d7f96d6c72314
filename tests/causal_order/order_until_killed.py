"""A stream of files in causal order. As a program it runs until it is killed, for its restart test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from antecede.spark import causal_order, connect

SCHEMA = "room string, id string, deps array<string>, note string"


def started(spark: SparkSession, files: Path, place: Path, **trigger: Any) -> StreamingQuery:
    """Start ordering files, one per batch; the checkpoint is beside the output."""
    coming = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))
    writer = causal_order(coming, group="room", id="id", deps="deps").writeStream.trigger(**trigger)
    writer = writer.option("checkpointLocation", str(place / "checkpoint")).format("parquet")
    return writer.start(str(place / "out"))


if __name__ == "__main__":
    with connect() as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        started(session, Path(sys.argv[1]), Path(sys.argv[2]), processingTime="0 seconds").awaitTermination()
