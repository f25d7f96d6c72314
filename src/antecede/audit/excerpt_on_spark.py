"""The few rows that show violations, out of a DataFrame: what `trace.excerpt.near` does, on Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from antecede.audit.core import Finding
from antecede.audit.excerpt import AROUND, COLUMNS, needed

_KEYS = "run string, process string, origin string, seq bigint"


def near(events: DataFrame, findings: Sequence[Finding]) -> pa.Table:
    """To the driver come as many rows as the findings' paths are long, times a few; whatever the trace."""
    keys = events.sparkSession.createDataFrame(sorted(needed(findings)), _KEYS)
    own = ["run", "process"]
    rows = (
        events.where(F.col("kind") != "receive")
        .select("run", *COLUMNS)
        .join(F.broadcast(keys.select(*own).distinct()), own, "left_semi")
    )
    message = [*own, "origin", "seq"]
    first = (
        rows.join(F.broadcast(keys), message, "left_semi")
        .groupBy(*message, "kind")
        .agg(F.min("index").alias("index"))
        .select(*own, "index", F.lit(1).alias("wanted"))
    )
    in_order = Window.partitionBy(*own).orderBy("index")
    found: pa.Table = (
        rows.join(first, [*own, "index"], "left")
        .withColumn("place", F.row_number().over(in_order).cast("bigint") - 1)
        .withColumn("beside", F.max("wanted").over(in_order.rowsBetween(-AROUND, AROUND)))
        .where("beside = 1")
        .select("run", *COLUMNS, "place")
        .toArrow()
    )
    return found
