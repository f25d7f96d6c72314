"""Causal order of a stream, on Spark's state store.

Spark calls a stateful operator key by key, and each call costs more than the rows. So groups share buckets,
and a bucket's rows go through Spark as bytes: Arrow tables packed before the shuffle and unpacked after it. A
bucket is one key. The state is two of its variables: the map `groups` has the entries of its groups
(`group_state`), of which each batch reads and writes one for every group that it touches; the value `bucket`
has a `Bucket`. One more key, which every batch has, holds no group: it says which columns the stream was
started with, so that a query with others is refused whatever groups its rows are of.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from antecede.causal_order.columns import EMITTED_AT
from antecede.causal_order.columns_on_spark import PreparedEvents, escape_name, quoted
from antecede.causal_order.dependency_edges import Columns
from antecede.causal_order.merge_stream import merge_micro_batch
from antecede.causal_order.micro_batch import order_micro_batch
from antecede.causal_order.rules import ARRIVED, OnMissing, OrderRules, RowCounts
from antecede.causal_order.segments import join, pack, unpack
from antecede.errors import InputError

_BUCKET = "_antecede_bucket"
_COUNTS = RowCounts.__struct_fields__
_PACKED_BYTES = 1 << 25
"""How many bytes are packed at once; with fewer, the packed tables become smaller and more numerous."""
MAX_STREAM_TASKS = 64
"""The number of tasks that can order a stream. Checkpoints depend on it, so it can never change."""
_PACKED = pa.schema([("bucket", pa.int32()), ("parcel", pa.binary())])
_MARKER = -1
"""A key that occurs in every batch."""
_WATERMARK = "spark.watermarkDelayMs"
"""Marks event-time columns, in their metadata."""
PARTITIONS = "spark.sql.shuffle.partitions"
_STORE_SETTING = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

GROUPS, BUCKET = "groups", "bucket"
"""The names of the state's variables."""


class Bucket(msgspec.Struct, array_like=True):
    """The state of a bucket besides that of its groups."""

    columns: Columns
    named: dict[str, str | None]
    """The caller's names for the columns, by role."""
    counts: RowCounts = msgspec.field(default_factory=RowCounts)
    entries: int = 0
    """The number of entries of its groups in the map."""
    due: dict[str, int] = {}
    """When the first row of a group will have waited long enough for a missing cause."""
    timer: int = 0
    """When the next timer fires; 0 if there is none."""


def group_key(name: str | None) -> str:
    """A group's name in the state, which allows no nulls."""
    return "" if name is None else "=" + name


def group_name(key: str) -> str | None:
    return key[1:] or "" if key else None


def order_stream(prepared: PreparedEvents, schema: T.StructType, rules: OrderRules, name: str) -> DataFrame:
    """The stream with its rows in causal order."""
    frame = prepared.frame
    _use_rocks_db(frame.sparkSession)
    rules = rules._replace(internal_columns=(*prepared.internal, ARRIVED))
    group = prepared.columns.group
    bucket = F.lit(0) if group is None else F.pmod(F.xxhash64(F.col(quoted(group))), F.lit(MAX_STREAM_TASKS))
    arriving = frame.withColumns({ARRIVED: F.unix_millis(F.current_timestamp()), _BUCKET: bucket.cast("int")})
    packed = arriving.mapInArrow(_pack_task(), "bucket int, parcel binary")
    counts = ", ".join(f"{count} long" for count in _COUNTS)
    ordered = packed.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=_OrderProcessor(rules),
        outputStructType=f"parcel binary, {counts}",
        outputMode="Append",
        timeMode="None" if rules.on_missing is OnMissing.HOLD else "ProcessingTime",
    )
    # The sums of an empty batch are null; report zero instead.
    sums = [F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in _COUNTS]
    emitted = ordered.observe(name, *sums).select("parcel").mapInArrow(_unpack_task(schema), schema)
    # By the clock of the batch: the same when a batch is replayed, and never earlier than before.
    return emitted.withColumn(EMITTED_AT, F.current_timestamp())


def without_watermark(field: T.StructField) -> T.StructField:
    """A column without its event-time mark.

    A row that was held is older than the watermark when it is emitted, so operators after this one would drop
    it as late. Without the mark, Spark refuses those that need a watermark until they are given one on
    `emitted_at`.
    """
    metadata = {key: value for key, value in field.metadata.items() if key != _WATERMARK}
    return T.StructField(field.name, field.dataType, field.nullable, metadata)


def warn_of_partitions(spark: SparkSession) -> None:
    """Warn if most tasks of a batch would only commit an empty state."""
    partitions = int(spark.conf.get(PARTITIONS, "200") or 200)
    if partitions > MAX_STREAM_TASKS:
        warnings.warn(
            f"{PARTITIONS} is {partitions}: a causal_order stream would run as many tasks in each batch, of "
            f"which at most {MAX_STREAM_TASKS} have rows; set it to the number of cores before the first "
            "start, as a checkpoint keeps the value that it began with",
            stacklevel=4,
        )


def _use_rocks_db(spark: SparkSession) -> None:
    """Spark's stateful operator requires RocksDB, which is not its default."""
    spark.conf.set(_STORE_SETTING, _ROCKS_DB)


def _pack_task() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack_by_bucket(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        table = pa.Table.from_batches(batches)
        bucket = table.column(_BUCKET).to_numpy()
        order = np.argsort(bucket, kind="stable")
        table = table.drop_columns([_BUCKET]).take(pa.array(order)).combine_chunks()
        numbers, begins = np.unique(bucket[order], return_index=True)
        ends = [*begins[1:], table.num_rows]
        packed = [pack(table.slice(low, high - low)) for low, high in zip(begins, ends, strict=True)]
        return pa.record_batch(
            {"bucket": pa.array(numbers, pa.int32()), "parcel": pa.array(packed, pa.binary())}
        )

    def pack_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_heap()
        buffered: list[pa.RecordBatch] = []
        size = 0
        yield pa.record_batch([pa.array([_MARKER], pa.int32()), pa.array([b""], pa.binary())], _PACKED.names)
        for batch in batches:
            if batch.num_rows:
                buffered.append(batch)
                size += batch.nbytes
            if size >= _PACKED_BYTES:
                yield pack_by_bucket(buffered)
                buffered, size = [], 0
        if buffered:
            yield pack_by_bucket(buffered)

    return pack_all


def _unpack_task(schema: T.StructType) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = [escape_name(name) for name in schema.names]

    def with_all_columns(table: pa.Table) -> pa.Table:
        """Rows held since before the query was changed lack the columns that were added."""
        if table.column_names == names:
            return table
        present = set(table.column_names)
        columns = [
            table.column(name) if name in present else pa.nulls(len(table), to_arrow_type(field.dataType))
            for name, field in zip(names, schema, strict=True)
        ]
        return pa.table(columns, names)

    def unpack_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_heap()
        for batch in batches:
            for packed in batch.column("parcel"):
                if packed.is_valid:
                    yield from with_all_columns(unpack(packed.as_buffer())).to_batches()

    return unpack_all


@cache
def freeze_gc_heap() -> None:
    """Spark's workers collect garbage after every task: exclude objects that stay for ever."""
    gc.collect()
    gc.freeze()


class _MapStateStore:
    """The entries of a bucket's groups in a map of Spark's state store."""

    def __init__(self, state: Any, size: int) -> None:
        self._state = state
        self._all: dict[tuple[str, int], bytes] | None = None
        self.size = size
        """The number of entries."""

    def read_all(self) -> None:
        """Read all entries at once, which is faster than asking for most of them one by one."""
        self._all = {tuple(key): value[0] for key, value in self._state.iterator()} if self.size else {}

    def get(self, group: str | None, number: int) -> bytes | None:
        key = group_key(group), number
        if self._all is not None:
            return self._all.get(key)
        value = self._state.getValue(key)
        return None if value is None else value[0]

    def put(self, group: str | None, number: int, data: bytes, new: bool) -> None:
        self._state.updateValue((group_key(group), number), (data,))
        self.size += new

    def drop(self, group: str | None, number: int) -> None:
        self._state.removeKey((group_key(group), number))
        self.size -= 1


class _OrderProcessor(StatefulProcessor):
    """Spark's side of `order_micro_batch`: a bucket's rows and state in, rows in order out."""

    def __init__(self, rules: OrderRules) -> None:
        self._rules = rules

    def init(self, handle: StatefulProcessorHandle) -> None:
        freeze_gc_heap()
        self._handle = handle
        self._groups = handle.getMapState(GROUPS, "name string, part int", "data binary")
        self._bucket = handle.getValueState(BUCKET, "data binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        if key[0] == _MARKER:
            self._bucket.update((msgspec.msgpack.encode(self._read_bucket()),))
            return
        new = join([unpack(packed) for frame in rows for packed in frame["parcel"]])
        yield from self._order(self._read_bucket(), new, int(new.column(ARRIVED)[0].as_py()))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        bucket = self._read_bucket()
        bucket.timer = 0
        yield from self._order(bucket, None, timerValues.getCurrentProcessingTimeInMs())

    def _order(self, bucket: Bucket, new: pa.Table | None, now: int) -> Iterator[pd.DataFrame]:
        overdue = [group_name(group) for group, when in bucket.due.items() if when <= now]
        if new is not None or overdue:
            store = _MapStateStore(self._groups, bucket.entries)
            if new is not None and bucket.entries < new.num_rows:
                store.read_all()
            if self._rules.merge is not None and new is not None:
                done = merge_micro_batch(self._rules, self._rules.merge, store, new, now)
            else:
                done = order_micro_batch(self._rules, store, new, now, overdue)
            bucket.entries = store.size
            for group in done.groups:
                bucket.due.pop(group_key(group), None)
            if self._rules.on_missing is not OnMissing.HOLD:
                bucket.due |= {group_key(group): when for group, when in done.due.items()}
            for name in _COUNTS:
                setattr(bucket.counts, name, getattr(bucket.counts, name) + getattr(done.counts, name))
            packed = pack(done.rows) if done.rows.num_rows else None
            yield pd.DataFrame(
                [[packed, *msgspec.structs.astuple(done.counts)]], columns=["parcel", *_COUNTS]
            )
        if bucket.due and (not bucket.timer or min(bucket.due.values()) < bucket.timer):
            bucket.timer = max(min(bucket.due.values()), now + 1)
            self._handle.registerTimer(bucket.timer)
        self._bucket.update((msgspec.msgpack.encode(bucket),))

    def _read_bucket(self) -> Bucket:
        value = self._bucket.get()
        if value is None:
            return Bucket(self._rules.columns, dict(self._rules.named))
        bucket = decode_bucket(bytes(value[0]))
        refuse_other_columns(bucket, self._rules.columns, self._rules.named)
        bucket.columns = self._rules.columns
        return bucket

    def close(self) -> None:
        pass


def refuse_other_columns(bucket: Bucket, now: Columns, named: Mapping[str, str | None]) -> None:
    """Refuse to continue a stream with columns other than those it was started with."""
    before = bucket.columns
    if before.form is not now.form:
        raise InputError(
            f"the checkpoint was made with {before.form} and the query has {now.form}: how rows name "
            "their causes cannot change; use a new checkpoint, or restore the query"
        )
    for role, name in named.items():
        if (was := bucket.named.get(role)) != name:
            raise InputError(
                f"{role}: the checkpoint was made with {_column(was)} and the query has {_column(name)}, "
                "which its held rows were not ordered by; use a new checkpoint, or restore the query"
            )
        if getattr(before, role) != getattr(now, role):
            raise InputError(
                f"{role}: the checkpoint was made with a column {name} of another type; use a new "
                "checkpoint, or restore the query"
            )


def _column(name: str | None) -> str:
    return "none" if name is None else f"column {name}"


def decode_bucket(data: bytes) -> Bucket:
    try:
        return msgspec.msgpack.decode(data, type=Bucket)
    except msgspec.DecodeError as error:
        raise InputError(f"the checkpoint does not hold Antecede's state: {error}") from error
