"""The rows that a `causal_order` stream holds, and its counts, read from its checkpoint, also while it
runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antecede.causal_order.dependency_edges import Columns, Form, read_edges, row_of_edge
from antecede.causal_order.disposition import match_identities
from antecede.causal_order.group_state import OpenGroup
from antecede.causal_order.history import EMITTED, IdHistory, SpanHistory
from antecede.causal_order.merge_stream import waiting_records
from antecede.causal_order.missing_causes import first_missing_edge
from antecede.causal_order.rules import ARRIVED, OnMissing, RowCounts
from antecede.causal_order.segments import join
from antecede.causal_order.stream_on_spark import (
    BUCKET,
    GROUPS,
    decode_bucket,
    group_name,
    refuse_other_columns,
)
from antecede.errors import InputError
from antecede.sources.changes import ID
from antecede.sources.debezium import COORDINATES
from antecede.spark.session import spark_error_message

_COUNTS = RowCounts.__struct_fields__
_HELD = pa.schema(
    [
        ("group", pa.string()),
        ("id", pa.string()),
        ("waits_for", pa.list_(pa.string())),
        ("missing", pa.list_(pa.string())),
        ("since", pa.timestamp("us", "UTC")),
    ]
)
_COUNTED_FOR = pa.field("counted_for", pa.string())
"""The missing cause under which a row is counted."""
_HELD_ON_SPARK = "group string, id string, waits_for array<string>, missing array<string>, since timestamp"


def held(spark: SparkSession, checkpoint: str | Path, operator: int | None = None) -> DataFrame:
    """The rows that a `causal_order` stream holds, as of its last batch.

    `waits_for` are the causes that have not been emitted, and `missing` those among them that have not even
    arrived; `since` is when the row arrived. `operator` is only for queries with several `causal_order`: the
    number that Spark gave to the one that is meant.
    """
    operator = _find_operator(spark, checkpoint) if operator is None else operator
    return _held(spark, checkpoint, operator).drop(_COUNTED_FOR.name)


def held_by_cause(spark: SparkSession, checkpoint: str | Path) -> DataFrame:
    """The missing causes that hold rows of a `causal_order` stream: group, id and rows."""
    rows = _held(spark, checkpoint, _find_operator(spark, checkpoint))
    named = rows.select("group", F.explode("missing").alias("id"), F.lit(0).alias("rows"))
    counted = rows.select("group", F.col(_COUNTED_FOR.name).alias("id"), F.lit(1).alias("rows"))
    return named.union(counted).groupBy("group", "id").agg(F.sum("rows").alias("rows"))


def _held(spark: SparkSession, checkpoint: str | Path, operator: int) -> DataFrame:
    schema = f"{_HELD_ON_SPARK}, {_COUNTED_FOR.name} string"
    buckets = _buckets(spark, checkpoint, operator).limit(1).collect()
    if not buckets:
        return spark.createDataFrame([], schema)
    entries = _state(spark, checkpoint, operator, GROUPS).select(
        "user_map_key.name", "user_map_key.part", F.col("user_map_value.data").alias("data")
    )
    columns = decode_bucket(bytes(buckets[0].data)).columns
    return (
        entries.repartition("name")
        .sortWithinPartitions("name", "part")
        .mapInArrow(_held_task(columns), schema)
    )


def stream_counts(spark: SparkSession, checkpoint: str | Path, operator: int | None = None) -> DataFrame:
    """One row: how many rows a `causal_order` stream has read so far, by outcome.

    `rows` is the number that came in; `ordered`, `released`, `late` and `quarantined` rows were emitted,
    `duplicates` dropped, and `held` rows wait: together they are `rows`. `operator`: see `held`.
    """
    operator = _find_operator(spark, checkpoint) if operator is None else operator

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = [
                msgspec.structs.astuple(decode_bucket(data.as_py()).counts) for data in batch.column("data")
            ]
            arrays = [pa.array([row[at] for row in counts], pa.int64()) for at in range(len(_COUNTS))]
            yield pa.record_batch(arrays, names=list(_COUNTS))

    counted = _buckets(spark, checkpoint, operator).mapInArrow(read, ", ".join(f"{n} long" for n in _COUNTS))
    return counted.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS))


def refuse_other_query(
    spark: SparkSession,
    checkpoint: str | Path,
    columns: Columns,
    named: Mapping[str, str | None],
    on_missing: OnMissing,
) -> None:
    """Refuse a query that cannot continue the stream of a checkpoint.

    Tasks refuse it too; but a query without new rows starts no tasks, and would seem to be in order.
    """
    operator = _find_operator(spark, checkpoint)
    buckets = _buckets(spark, checkpoint, operator).limit(1).collect()
    if buckets:
        refuse_other_columns(decode_bucket(bytes(buckets[0].data)), columns, named)
    listed = spark.read.format("state-metadata").load(str(checkpoint)).where(F.col("operatorId") == operator)
    rows = listed.select("operatorProperties").limit(1).collect()
    timed = any("ProcessingTime" in (row.operatorProperties or "") for row in rows)
    if timed != (on_missing is not OnMissing.HOLD):
        raise other_rule()


def other_rule() -> InputError:
    return InputError(
        "--on-missing: with a checkpoint, hold cannot become release or quarantine, nor the reverse; "
        "restore it, or start over with another OUT"
    )


def _find_operator(spark: SparkSession, checkpoint: str | Path) -> int:
    """The number of `causal_order` among the stateful operators of a query."""
    try:
        listed = spark.read.format("state-metadata").load(str(checkpoint))
        rows = listed.select("operatorId", "operatorProperties").distinct().collect()
    except PySparkException as error:
        raise _no_checkpoint(checkpoint, error) from error
    ours = sorted({row.operatorId for row in rows if f'"{GROUPS}"' in (row.operatorProperties or "")})
    if len(ours) > 1:
        numbers = " or ".join(f"operator={number}" for number in ours)
        raise InputError(f"{checkpoint} has several causal_order; choose one with {numbers}")
    return int(ours[0]) if ours else 0


def _no_checkpoint(checkpoint: str | Path, error: PySparkException) -> InputError:
    return InputError(
        f"{checkpoint} is not the checkpoint of a causal_order stream with a finished batch: "
        f"{spark_error_message(error)}"
    )


def _buckets(spark: SparkSession, checkpoint: str | Path, operator: int) -> DataFrame:
    return _state(spark, checkpoint, operator, BUCKET).select(F.col("value.data").alias("data"))


def _state(spark: SparkSession, checkpoint: str | Path, operator: int, variable: str) -> DataFrame:
    try:
        return (
            spark.read.format("statestore")
            .option("operatorId", operator)
            .option("stateVarName", variable)
            .load(str(checkpoint))
        )
    except PySparkException as error:
        raise _no_checkpoint(checkpoint, error) from error


class _ReadOnlyEntries:
    """The entries of one group as a state store."""

    def __init__(self, entries: dict[int, bytes]) -> None:
        self._entries = entries

    def get(self, group: str | None, number: int) -> bytes | None:
        return self._entries.get(number)

    def put(self, group: str | None, number: int, data: bytes, new: bool) -> None:
        raise NotImplementedError

    def drop(self, group: str | None, number: int) -> None:
        raise NotImplementedError


def _held_task(columns: Columns) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def entries(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, bytes]]:
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, own in groupby(entries(batches), key=lambda entry: entry[0]):
            name = group_name(key)
            group = OpenGroup(_ReadOnlyEntries({number: data for _, number, data in own}), name)
            if group.held:
                rows = held_records(group) if columns.form is Form.TOPICS else held_rows(group, name, columns)
                yield from rows.to_batches()

    return read


def held_records(group: OpenGroup) -> pa.Table:
    """The records that a merge of topics holds, and the records they wait for."""
    rows, waiting = waiting_records(group)
    coordinates = [rows.column(name).to_pylist() for name in COORDINATES]
    places = [f"{topic}-{partition}@{offset}" for topic, partition, offset in zip(*coordinates, strict=True)]
    ids = [
        place if transaction is None or name is None else name
        for name, transaction, place in zip(
            rows.column(ID).to_pylist(), rows.column("transaction").to_pylist(), places, strict=True
        )
    ]
    why = [waiting[row] for row in range(rows.num_rows)]
    arrays = [
        pa.nulls(rows.num_rows, pa.string()),
        pa.array(ids, pa.string()),
        pa.array([one.waits_for for one in why], pa.list_(pa.string())),
        pa.array([one.missing for one in why], pa.list_(pa.string())),
        _times(rows),
        pa.array([one.missing[0] for one in why], pa.string()),
    ]
    return pa.table(arrays, schema=_HELD.append(_COUNTED_FOR))


def _times(rows: pa.Table) -> pa.Array:
    return pc.multiply(rows.column(ARRIVED).combine_chunks(), 1000).cast(pa.timestamp("us", "UTC"))


def held_rows(group: OpenGroup, name: str | None, columns: Columns) -> pa.Table:
    """The rows that a group holds, and the causes that they wait for."""
    rows = join([segment.rows() for segment in group.held])
    history = SpanHistory([group], columns) if columns.numbered else IdHistory([group], columns, 0)
    edges = read_edges(rows, columns, np.zeros(rows.num_rows, np.int64), [history.known])
    history.use_codes(edges)
    waiting = np.flatnonzero(history.look_up(edges.dep_owner, edges.dep_number) != EMITTED)
    _, target = match_identities(
        edges.owner, edges.number, edges.dep_owner[waiting], edges.dep_number[waiting]
    )
    edge_rows = row_of_edge(edges.offsets)[waiting]

    def names_by_row(places: np.ndarray, place_rows: np.ndarray) -> pa.Array:
        begins = np.searchsorted(place_rows, np.arange(rows.num_rows + 1))
        return pa.ListArray.from_arrays(pa.array(begins, pa.int32()), edges.dep_names(places))

    if columns.id is not None:
        ids = rows.column(columns.id).cast(pa.string()).combine_chunks()
    else:
        origins = rows.column(str(columns.origin)).cast(pa.string()).combine_chunks()
        ids = pc.binary_join_element_wise(origins, pa.array(edges.number).cast(pa.string()), ":")
    since = _times(rows)
    groups = pa.array([name] * rows.num_rows, pa.string())
    waits_for = names_by_row(waiting, edge_rows)
    missing = names_by_row(waiting[target < 0], edge_rows[target < 0])
    chosen = first_missing_edge(rows.num_rows, edge_rows, target)
    counted_for = edges.dep_names(waiting[chosen])
    return pa.table([groups, ids, waits_for, missing, since, counted_for], schema=_HELD.append(_COUNTED_FOR))
