"""Records of Kafka on Spark: read live where Spark has its connector, with the columns to order them by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.columns_on_spark import escape_name
from antecede.causal_order.stream_on_spark import freeze_gc_heap
from antecede.errors import InputError
from antecede.sources import Preset, find_preset
from antecede.sources.debezium import COORDINATES
from antecede.sources.fields import Template
from antecede.sources.kafka import decode_body
from antecede.spark.session import require_frame

_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TYPES = {
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint", "string"),
    "offset": ("bigint", "int", "string"),
    "key": ("binary", "string", "void"),
    "value": ("binary", "string", "void"),
    "headers": ("array<struct<key:string,value:binary>>", "void"),
}
"""The types of columns of Spark's Kafka source, and others that are read in the same way."""
_NAMES = (*COORDINATES, "key", "value", "headers", "timestamp")
"""Columns of Spark's Kafka source that a preset may name."""


def read_kafka(
    spark: SparkSession, servers: str, topics: Sequence[str], stream: bool = True, **options: str
) -> DataFrame:
    """The records of topics, in the columns of Spark's Kafka source, from the earliest on.

    `options` are those of the source, such as `startingOffsets` or `maxOffsetsPerTrigger`; write those with a
    dot in their name as `**{"kafka.security.protocol": "SSL"}`. Refused if Spark has no Kafka connector.
    """
    settings = {"startingOffsets": "earliest", "includeHeaders": "true"} | options
    settings |= {"kafka.bootstrap.servers": servers, "subscribe": ",".join(topics)}
    reader = spark.readStream if stream else spark.read
    try:
        records = reader.format("kafka").options(**settings).load()
        _ = records.schema  # Spark Connect resolves the source only now.
        return records
    except AnalysisException as error:
        if "Failed to find" in str(error) or "DATA_SOURCE_NOT_FOUND" in str(error):
            raise InputError(
                f"Spark has no Kafka connector; start it with --packages {_CONNECTOR}:{spark.version}, or "
                "set spark.jars.packages to that"
            ) from error
        raise


def kafka_events(records: DataFrame, preset: str = "kafka") -> DataFrame:
    """Records in the columns of Spark's Kafka source, with `id` and `causes` as a preset finds them.

    Then `causal_order(kafka_events(records), id="id", deps="causes")` puts them into causal order, in a batch
    or in a stream. The preset `kafka` takes both from headers that are usual for it, and otherwise
    `topic-partition@offset` as the id; `antecede sources kafka > mine.toml` prints it, to be changed, and
    `preset` may be that file. Headers are there if the source has `includeHeaders`.
    """
    require_frame(records, "records")
    missing = [name for name in COORDINATES if name not in records.columns]
    if missing:
        raise InputError(f"records have no column {missing[0]}; expected the columns of Spark's Kafka source")
    for name in ("id", "causes"):
        if name in records.columns:
            raise InputError(
                f"records have a column {name}, a name that the result needs; rename it: "
                f"records.withColumnRenamed('{name}', 'their_{name}')"
            )
    _refuse_other_types(records.schema)
    chosen = find_preset(preset)

    def add_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_heap()
        ids, causes = _templates(chosen)
        for batch in batches:
            rows = [_record(row) for row in batch.select(_present(batch)).to_pylist()]
            names = [next((found[0] for one in ids if (found := one.values(row))), None) for row in rows]
            named = [list(dict.fromkeys(id_ for one in causes for id_ in one.values(row))) for row in rows]
            added = [pa.array(names, pa.string()), pa.array(named, pa.list_(pa.string()))]
            yield pa.record_batch([*batch.columns, *added], [*batch.schema.names, "id", "causes"])

    escaped = records.toDF(*map(escape_name, records.columns))
    schema = T.StructType([*escaped.schema.fields])
    schema = schema.add("id", T.StringType()).add("causes", T.ArrayType(T.StringType()))
    return escaped.mapInArrow(add_columns, schema).toDF(*records.columns, "id", "causes")


def _refuse_other_types(schema: T.StructType) -> None:
    """Refuse columns that Spark's Kafka source has with other types; tasks could not read their values."""
    for field in schema:
        kind = field.dataType.simpleString()
        expected = _TYPES.get(field.name, (kind,))
        is_header = isinstance(field.dataType, T.ArrayType) and _is_header(field.dataType.elementType)
        if kind not in expected and not (field.name == "headers" and is_header):
            raise InputError(
                f"column {field.name} of the records is {kind}; expected {expected[0]}, as in Spark's Kafka "
                "source"
            )


def _is_header(kind: T.DataType) -> bool:
    types = (
        {field.name: field.dataType.simpleString() for field in kind}
        if isinstance(kind, T.StructType)
        else {}
    )
    return types.get("key") == "string" and types.get("value") in ("binary", "string")


def _templates(preset: Preset) -> tuple[list[Template], list[Template]]:
    return list(map(Template, preset.id)), [Template(text, preset.no_cause) for text in preset.causes]


def _present(batch: pa.RecordBatch) -> list[str]:
    return [name for name in _NAMES if name in batch.schema.names]


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """A record in the form that the reader of dumps produces: headers and keys as text, and the value as
    `body`."""
    headers = row.get("headers") or []
    row["headers"] = [{"key": each["key"], "value": _text(each["value"])} for each in headers]
    row["body"] = decode_body(row.get("value"))
    row["key"], row["value"] = _text(row.get("key")), _text(row.get("value"))
    return row


def _text(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
