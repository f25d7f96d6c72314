"""Records in the columns of Spark's Kafka source become events that causal_order takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from merge_until_killed import SCHEMA
from pyspark.sql import SparkSession

from antecede.errors import InputError
from antecede.spark import causal_order, kafka_events, read_kafka

AT = datetime(2026, 1, 1, tzinfo=UTC)


def records(spark: SparkSession, folder: Path) -> None:
    """A payment after its order after a greeting, written in the opposite order; one has odd bytes."""
    rows = [
        (b"p", b'{"amount": 5}', "payments", 0, 7, AT, 0, [("ce_id", b"p-1"), ("causation_id", b"o-1")]),
        (b"o", b"\xff", "orders", 1, 3, AT, 0, [("ce_id", b"o-1"), ("causation_id", b"greetings-0@2")]),
        (None, None, "greetings", 0, 2, AT, 0, None),
        (b"x", b"{}", "orders", 0, 4, AT, 0, [("ce_id", b"\xff"), ("causation_id", b"o-9")]),
    ]
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(str(folder))


def test_records_are_ordered_by_the_causation_ids_of_their_headers(
    spark: SparkSession, tmp_path: Path
) -> None:
    records(spark, tmp_path / "in")
    events = kafka_events(spark.read.parquet(str(tmp_path / "in")))
    rows = causal_order(events, id="id", deps="causes").collect()
    assert [(row.id, row.causes, row.status) for row in rows] == [
        ("greetings-0@2", [], "ordered"),
        ("o-1", ["greetings-0@2"], "ordered"),
        ("p-1", ["o-1"], "ordered"),
        ("orders-0@4", ["o-9"], "held"),
    ]
    assert bytes(rows[1].value) == b"\xff"
    coming = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    query = causal_order(kafka_events(coming), id="id", deps="causes").writeStream.trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
    assert query.start(str(tmp_path / "out")).awaitTermination(240)
    out = spark.read.parquet(str(tmp_path / "out")).orderBy("causal_index").collect()
    assert [row.id for row in out] == ["greetings-0@2", "o-1", "p-1"]


def test_a_custom_preset_defines_where_ids_are_found(spark: SparkSession, tmp_path: Path) -> None:
    preset = 'name = "mine"\ntitle = "mine"\nreader = "kafka"\nprocess = ["{topic}"]\n'
    (tmp_path / "mine.toml").write_text(f'{preset}id = ["{{key}}"]\ncauses = ["{{body.after[]}}"]\n')
    rows = [(b"b", b'{"after": ["a"]}', "t", 0, 0, AT, 0, None), (b"a", b"{}", "t", 0, 1, AT, 0, None)]
    events = kafka_events(spark.createDataFrame(rows, SCHEMA), str(tmp_path / "mine.toml"))
    assert [(row.id, row.causes) for row in events.collect()] == [("b", ["a"]), ("a", [])]


def test_a_missing_kafka_connector_is_reported_with_its_package(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="spark-sql-kafka-0-10_2.13:" + spark.version.replace(".", r"\.")):
        read_kafka(spark, "127.0.0.1:9092", ["orders"])


def test_other_tables_are_refused_with_the_column(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="no column offset"):
        kafka_events(spark.createDataFrame([], "topic string, partition int"))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("struct(1 as a) value", "column value of the records is struct<a:int>; expected binary"),
        (
            "map('a', 'b') headers",
            "column headers of the records is map<string,string>; expected array<struct",
        ),
        ("1.5 partition", "column partition of the records is decimal(2,1); expected int"),
    ],
)
def test_records_of_other_types_are_refused_before_any_task(
    spark: SparkSession, column: str, expected: str
) -> None:
    frame = spark.sql("select 't' topic, 0 partition, 1L offset, binary('x') value, null headers")
    assert kafka_events(frame).first().id == "t-0@1"  # type: ignore[union-attr]
    with pytest.raises(InputError) as refused:
        kafka_events(frame.drop(column.split()[-1]).selectExpr("*", column))
    assert expected in str(refused.value)
