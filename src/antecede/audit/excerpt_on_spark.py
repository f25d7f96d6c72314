"""Picks the few events that show violations out of a DataFrame: `excerpt.select_rows` on Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from antecede.audit.core import Finding
from antecede.audit.excerpt import COLUMNS, NEIGHBOURS, required_messages

_KEYS = "run string, process string, origin string, seq bigint"


def select_rows(events: DataFrame, findings: Sequence[Finding]) -> pa.Table:
    """The rows that the findings need. The driver receives a few per message of their paths, however large
    the trace."""
    keys = events.sparkSession.createDataFrame(sorted(required_messages(findings)), _KEYS)
    own = ["run", "process"]
    ids = F.col("message") if "message" in events.columns else F.lit(None).cast("string")
    rows = (
        events.where(F.col("kind") != "receive")
        .select("run", *COLUMNS, ids.alias("message"))
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
    selected: pa.Table = (
        rows.join(first, [*own, "index"], "left")
        .withColumn("place", F.row_number().over(in_order).cast("bigint") - 1)
        .withColumn("near", F.max("wanted").over(in_order.rowsBetween(-NEIGHBOURS, NEIGHBOURS)))
        .where("near = 1")
        .select("run", *COLUMNS, "message", "place")
        .toArrow()
    )
    return selected
