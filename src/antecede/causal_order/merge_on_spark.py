"""`merge_debezium`: the topics of a connector as one DataFrame in its order, batch or stream, by one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from antecede.causal_order.columns import ADDED, ADDED_BY_STREAM, EMITTED_AT
from antecede.causal_order.columns_on_spark import PreparedEvents, escape_name
from antecede.causal_order.dependency_edges import Columns, Form
from antecede.causal_order.merge import MergeRules
from antecede.causal_order.merge_rows import merge_table
from antecede.causal_order.missing_causes import SCHEMA_ON_SPARK
from antecede.causal_order.on_spark import added_field, in_slices, make_rules, whole_groups
from antecede.causal_order.rules import PLACE, OrderRules
from antecede.causal_order.stream_on_spark import (
    freeze_gc_heap,
    order_stream,
    warn_of_partitions,
    without_watermark,
)
from antecede.errors import InputError
from antecede.sources.changes import CHANGE_COLUMNS, EVENTS, ID, parse_changes
from antecede.sources.debezium import COORDINATES
from antecede.spark.session import require_frame

OFFSETS = ("increasing", "consecutive")
TOPIC_COLUMNS = Columns(Form.TOPICS, None)
"""The columns a merge orders by: coordinates and transactions, with fixed names."""
_INTERNAL = [ID, EVENTS]
_RECORD = ("key", "value", *COORDINATES)
_TEXT = (T.BinaryType, T.StringType)


def merge_debezium(
    records: DataFrame,
    *,
    without: Collection[str] = (),
    snapshot_of: Sequence[str] = (),
    offsets: str = "increasing",
    first_offsets: Mapping[str, int] | None = None,
    horizon: str = "24h",
    name: str = "causal_order",
) -> DataFrame:
    """The records of a Debezium connector's topics in the order in which it wrote them, each once.

    `records` has the columns of Spark's Kafka source: key, value, topic, partition and offset; others are
    kept. They are from all topics of one connector, with its transaction topic
    (`provide.transaction.metadata=true`), and carry JSON, with its schema or without.

    All events of a transaction come one after another, between its BEGIN and its END, in the order of the
    commits. Rows of a snapshot come before every transaction that is not contained in it. A transaction that
    is not complete is held, with all that follows it. `antecede.causal_order.merge` has the rules.
    `without` are tables of the connector whose topics are not among the records, by the names that they have
    in `data_collections` of an END, such as "public.audit": transactions are complete without their events.

    Added columns: `kind` (create, update, delete, truncate, message, snapshot, tombstone, BEGIN, END),
    `transaction`, `transaction_order`, `position` in the database's log, `snapshot` (the row's
    `source.snapshot`), and those of `causal_order`: `causal_index`, `status`, `reason`; in a stream also
    `held_ms` and `emitted_at`.
    Status is `ordered`; `held` (in a batch; a stream keeps such records); `quarantined`, if a record is no
    change event; `late`, if a transaction after a snapshot was emitted before this row of it.

    In a stream:

    - `snapshot_of`: topics that begin with a snapshot of at least two rows. Transactions wait for the last
      row of each. Without it they wait only for snapshots of which a row has arrived.
    - `offsets`: "increasing", if each partition arrives in its order, as from Kafka; records with a lower
      offset than one before are dropped as duplicates. "consecutive", if records arrive in any order; then
      offsets have no gaps, and begin at 0, or as `first_offsets` says, by "topic-partition".
    - Transactions and keys are remembered for `horizon`, to recognise what a connector writes again.

    `held`, `stream_counts` and `name` are as for `causal_order`. One task does the merge.
    """
    if offsets not in OFFSETS:
        raise InputError(f"offsets: {offsets!r} is none of {', '.join(OFFSETS)}")
    rules = MergeRules(offsets == "consecutive", dict(first_offsets or {}), list(snapshot_of))
    return merge_frame(parse_records(records, without), rules, horizon, name)


def as_changes(records: DataFrame, without: Collection[str] = ()) -> DataFrame:
    """Records of files with CHANGE_COLUMNS, which are added if absent; kcat calls a value `payload`."""
    if ID in records.columns:
        return records
    if "payload" in records.columns and "value" not in records.columns:
        records = records.withColumnRenamed("payload", "value")
    return parse_records(records, without)


def parse_records(records: DataFrame, without: Collection[str] = ()) -> DataFrame:
    """Records with CHANGE_COLUMNS added to their own columns."""
    require_frame(records, "records")
    types = {field.name: field.dataType for field in records.schema}
    missing = [name for name in _RECORD if name not in types]
    if missing:
        raise InputError(
            f"records have no column {missing[0]}; expected the columns of Spark's Kafka source: "
            f"{', '.join(_RECORD)}"
        )
    if not isinstance(types["value"], _TEXT):
        raise InputError(f"value: it is {types['value'].simpleString()}; expected binary or text")
    for field in from_arrow_schema(CHANGE_COLUMNS):
        if field.name in types:
            raise InputError(
                f"records have a column {field.name}, a name that the result needs; rename it: "
                f"records.withColumnRenamed('{field.name}', 'their_{field.name}')"
            )

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_heap()
        for batch in batches:
            topics, keys, values = (batch.column(name).to_pylist() for name in ("topic", "key", "value"))
            parsed = parse_changes(topics, keys, values, frozenset(without))
            yield pa.record_batch([*batch.columns, *parsed], [*batch.schema.names, *CHANGE_COLUMNS.names])

    escaped = records.toDF(*map(escape_name, records.columns))
    schema = T.StructType([*escaped.schema.fields, *from_arrow_schema(CHANGE_COLUMNS).fields])
    return escaped.mapInArrow(parse, schema).toDF(*records.columns, *CHANGE_COLUMNS.names)


def merge_frame(records: DataFrame, rules: MergeRules, horizon: str, name: str) -> DataFrame:
    """Merge records that have CHANGE_COLUMNS."""
    words = make_rules("hold", "10m", horizon)
    own = [field for field in records.schema.fields if field.name not in _INTERNAL]
    added = ADDED_BY_STREAM if records.isStreaming else ADDED
    schema = T.StructType([*own, *(added_field(column) for column in added if column != EMITTED_AT)])
    escaped = records.toDF(*map(escape_name, records.columns))
    if not records.isStreaming:
        return _in_one_partition(escaped).mapInArrow(_batch_task(rules), schema)
    warn_of_partitions(records.sparkSession)
    schema = T.StructType([without_watermark(field) for field in schema])
    order_rules = OrderRules(TOPIC_COLUMNS, *words, merge=rules)
    return order_stream(PreparedEvents(escaped, TOPIC_COLUMNS, _INTERNAL, []), schema, order_rules, name)


def count_missing_records(records: DataFrame, rules: MergeRules) -> DataFrame:
    """The missing records that hold others in a batch: group, id and rows."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in whole_groups(batches, None):
            yield from merge_table(table, rules).missing.to_batches()

    places = [name for name in records.columns if name == PLACE]
    columns = [*COORDINATES, *CHANGE_COLUMNS.names, *places]
    return _in_one_partition(records.select(*columns)).mapInArrow(task, SCHEMA_ON_SPARK)


def _in_one_partition(records: DataFrame) -> DataFrame:
    """All records in one partition, sorted by place if they have places."""
    records = records.repartition(1)
    return records.sortWithinPartitions(PLACE) if PLACE in records.columns else records


def _batch_task(rules: MergeRules) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_heap()
        for table in whole_groups(batches, None):
            merged = merge_table(table, rules)
            yield from in_slices(table.drop_columns(_INTERNAL), merged.rows, merged.added)

    return merge
