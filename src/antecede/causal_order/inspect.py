"""What a stream in causal order holds, and the account of its rows: from its checkpoint, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antecede.causal_order.dependency_edges import Columns, read_links, rows_of
from antecede.causal_order.disposition import match_identities
from antecede.causal_order.group_state import Group
from antecede.causal_order.released import OUT, IdRecord, SpanRecord
from antecede.causal_order.rules import ARRIVED, Counts
from antecede.causal_order.segments import join
from antecede.causal_order.stream_on_spark import BUCKET, GROUPS, group_name, read_bucket
from antecede.errors import InputError
from antecede.spark.session import first_line

_COUNTS = Counts.__struct_fields__
_HELD = pa.schema(
    [
        ("group", pa.string()),
        ("id", pa.string()),
        ("waits_for", pa.list_(pa.string())),
        ("missing", pa.list_(pa.string())),
        ("since", pa.timestamp("us", "UTC")),
    ]
)


def explain(spark: SparkSession, checkpoint: str | Path, operator: int = 0) -> DataFrame:
    """The rows that a `causal_order` stream holds, as of its last batch: a row for each.

    `waits_for` are those of its causes that have not come out, and `missing` those among them that have not
    even come in; `since` is when the row came. `operator` is the place of `causal_order` among the stateful
    operators of the query.
    """
    columns = _buckets(spark, checkpoint, operator).limit(1).collect()
    if not columns:
        return spark.createDataFrame([], _spark_schema())
    entries = _state(spark, checkpoint, operator, GROUPS).select(
        "user_map_key.name", "user_map_key.part", F.col("user_map_value.data").alias("data")
    )
    read = read_bucket(bytes(columns[0].data)).columns
    return (
        entries.repartition("name")
        .sortWithinPartitions("name", "part")
        .mapInArrow(_explainer(read), _spark_schema())
    )


def accounts(spark: SparkSession, checkpoint: str | Path, operator: int = 0) -> DataFrame:
    """One row: what a `causal_order` stream took in so far, and what became of it.

    `rows` came in; `ordered`, `released`, `late` and `quarantined` came out; `duplicates` were dropped, and
    `held` wait: together they are `rows`.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = [
                msgspec.structs.astuple(read_bucket(data.as_py()).counts) for data in batch.column("data")
            ]
            arrays = [pa.array([row[at] for row in counts], pa.int64()) for at in range(len(_COUNTS))]
            yield pa.record_batch(arrays, names=list(_COUNTS))

    counted = _buckets(spark, checkpoint, operator).mapInArrow(read, ", ".join(f"{n} long" for n in _COUNTS))
    return counted.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS))


def _spark_schema() -> str:
    return "group string, id string, waits_for array<string>, missing array<string>, since timestamp"


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
        raise InputError(
            f"{checkpoint} is no checkpoint of a causal_order stream with a batch done: {first_line(error)}"
        ) from error


class _Entries:
    """A group's entries, as a store that is only read."""

    def __init__(self, parts: dict[int, bytes]) -> None:
        self._parts = parts

    def get(self, group: str | None, part: int) -> bytes | None:
        return self._parts.get(part)

    def put(self, group: str | None, part: int, data: bytes, new: bool) -> None:
        raise NotImplementedError

    def drop(self, group: str | None, part: int) -> None:
        raise NotImplementedError


def _explainer(columns: Columns) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def entries(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, bytes]]:
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, parts in groupby(entries(batches), key=lambda entry: entry[0]):
            name = group_name(key)
            group = Group(_Entries({part: data for _, part, data in parts}), name)
            if group.waiting:
                yield from held_rows(group, name, columns).to_batches()

    return told


def held_rows(group: Group, name: str | None, columns: Columns) -> pa.Table:
    """What a group holds, and what for."""
    rows = join([piece.rows() for piece in group.waiting])
    record = SpanRecord([group], columns) if columns.numbered else IdRecord([group], columns, 0)
    links = read_links(rows, columns, np.zeros(rows.num_rows, np.int64), [record.known])
    record.code(links)
    lacking = np.flatnonzero(record.look(links.dep_owner, links.dep_number) != OUT)
    _, target = match_identities(
        links.owner, links.number, links.dep_owner[lacking], links.dep_number[lacking]
    )
    of = rows_of(links.offsets)[lacking]

    def listed(places: np.ndarray, of_row: np.ndarray) -> pa.Array:
        begins = np.searchsorted(of_row, np.arange(rows.num_rows + 1))
        return pa.ListArray.from_arrays(pa.array(begins, pa.int32()), links.dep_names(places))

    if columns.id is not None:
        ids = rows.column(columns.id).cast(pa.string()).combine_chunks()
    else:
        origins = rows.column(str(columns.origin)).cast(pa.string()).combine_chunks()
        ids = pc.binary_join_element_wise(origins, pa.array(links.number).cast(pa.string()), ":")
    since = pc.multiply(rows.column(ARRIVED).combine_chunks(), 1000).cast(pa.timestamp("us", "UTC"))
    names = pa.array([name] * rows.num_rows, pa.string())
    waits, missing = listed(lacking, of), listed(lacking[target < 0], of[target < 0])
    return pa.table([names, ids, waits, missing, since], schema=_HELD)
