"""The few rows of a violation, out of a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from antecede.audit.excerpt import build_excerpt, select_rows
from antecede.audit.excerpt_on_spark import select_rows as select_rows_on_spark
from planted import busy, table, violation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_selects_the_same_rows(spark: SparkSession) -> None:
    rows = busy()
    found = [violation(rows, "n2", "n0:1")]
    others = table([("n0", "send", "n0:1", 5), ("n2", "deliver", "n0:1", 5)], run="another")
    events = spark.createDataFrame(
        [tuple(row.values()) for row in pa.concat_tables([rows, others]).select(SOME).to_pylist()], TYPES
    )
    expected, got = select_rows(rows, found), select_rows_on_spark(events, found)
    assert sorted(map(str, got.to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert build_excerpt(found[0], got) == build_excerpt(found[0], expected)


SOME = ["run", "process", "index", "kind", "origin", "seq", "time"]
TYPES = "run string, process string, index bigint, kind string, origin string, seq bigint, time bigint"
