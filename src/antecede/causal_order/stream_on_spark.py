"""Causal order of a stream, on Spark's state store.

Spark hands a stateful operator its rows key by key, and each key costs it more than the rows do. So groups
share buckets, and a bucket's rows travel as parcels: one Arrow table each, packed before the shuffle and
opened after it, which pass through Spark as bytes. A bucket is one key; its groups are entries of one map, so
that of each group that a batch touches one book is read and one written (`trace.ordering.stream`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
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

from antecede.causal_order.columns import Prepared, plain, quoted
from antecede.causal_order.dependency_edges import Columns
from antecede.causal_order.rules import ARRIVED, Counts, OnMissing, Rules
from antecede.causal_order.segments import join, pack, unpack
from antecede.causal_order.streaming import advance
from antecede.errors import InputError

_BUCKET = "_antecede_bucket"
_COUNTS = Counts.__struct_fields__
_PACKED_BYTES = 1 << 25
"""How much is packed at once; the less, the smaller the parcels."""
_BUCKETS = 64
"""As many tasks can order a stream. It is part of what a checkpoint means, so it can never change."""
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

GROUPS, BUCKET = "groups", "bucket"
"""The names of the state's variables."""


class Bucket(msgspec.Struct, array_like=True):
    """What is kept of a bucket besides its groups."""

    columns: Columns
    counts: Counts = msgspec.field(default_factory=Counts)
    entries: int = 0
    """Of its groups, in the map."""
    due: dict[str, int] = {}
    """When to look at groups again in which rows wait for what is missing."""
    timer: int = 0
    """When we asked to be woken; 0 if we did not."""


def group_key(name: str | None) -> str:
    """A group's name in the state, which has no nulls."""
    return "" if name is None else "=" + name


def group_name(key: str) -> str | None:
    return key[1:] or "" if key else None


def order_stream(prepared: Prepared, schema: T.StructType, rules: Rules, name: str) -> DataFrame:
    """The stream with its rows in causal order."""
    frame = prepared.frame
    _want_rocks_db(frame.sparkSession)
    made = [*prepared.made, ARRIVED]
    rules = rules._replace(made=tuple(made))
    group = prepared.columns.group
    shared = F.lit(0) if group is None else F.pmod(F.xxhash64(F.col(quoted(group))), F.lit(_BUCKETS))
    coming = frame.withColumns({ARRIVED: F.unix_millis(F.current_timestamp()), _BUCKET: shared.cast("int")})
    parcels = coming.mapInArrow(_packer(), "bucket int, parcel binary")
    counted = ", ".join(f"{count} long" for count in _COUNTS)
    ordered = parcels.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=_Orderer(rules),
        outputStructType=f"parcel binary, {counted}",
        outputMode="Append",
        timeMode="None" if rules.on_missing is OnMissing.HOLD else "ProcessingTime",
    )
    # An empty batch has no sums; zero says more than null.
    sums = [F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in _COUNTS]
    return ordered.observe(name, *sums).select("parcel").mapInArrow(_opener(schema), schema)


def _want_rocks_db(spark: SparkSession) -> None:
    """Spark's stateful operator works on RocksDB only, which is not what it takes unless it is told."""
    spark.conf.set(_STORE, _ROCKS_DB)


def _packer() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parcels(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
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
        settle_in()
        pile: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if batch.num_rows:
                pile.append(batch)
                size += batch.nbytes
            if size >= _PACKED_BYTES:
                yield parcels(pile)
                pile, size = [], 0
        if pile:
            yield parcels(pile)

    return pack_all


def _opener(schema: T.StructType) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = [plain(name) for name in schema.names]

    def shaped(table: pa.Table) -> pa.Table:
        """Rows that waited since before the query had other columns: with those that it has now."""
        if table.column_names == names:
            return table
        there = set(table.column_names)
        columns = [
            table.column(name) if name in there else pa.nulls(len(table), to_arrow_type(field.dataType))
            for name, field in zip(names, schema, strict=True)
        ]
        return pa.table(columns, names)

    def open_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        for batch in batches:
            for parcel in batch.column("parcel"):
                if parcel.is_valid:
                    yield from shaped(unpack(parcel.as_buffer())).to_batches()

    return open_all


@cache
def settle_in() -> None:
    """Spark's workers collect garbage after every task: let them not look at what stays for ever."""
    gc.collect()
    gc.freeze()


class _MapStore:
    """Parts of groups in a bucket's map."""

    def __init__(self, state: Any, size: int) -> None:
        self._state = state
        self._all: dict[tuple[str, int], bytes] | None = None
        self.size = size
        """How many entries there are."""

    def read_all(self) -> None:
        """Take all entries at once, which takes less time than asking for most of them one by one."""
        self._all = {tuple(key): value[0] for key, value in self._state.iterator()} if self.size else {}

    def get(self, group: str | None, part: int) -> bytes | None:
        key = group_key(group), part
        if self._all is not None:
            return self._all.get(key)
        value = self._state.getValue(key)
        return None if value is None else value[0]

    def put(self, group: str | None, part: int, data: bytes, new: bool) -> None:
        self._state.updateValue((group_key(group), part), (data,))
        self.size += new

    def drop(self, group: str | None, part: int) -> None:
        self._state.removeKey((group_key(group), part))
        self.size -= 1


class _Orderer(StatefulProcessor):
    """Spark's side of `advance`: a bucket's rows and state in, rows in order out."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle_in()
        self._handle = handle
        self._groups = handle.getMapState(GROUPS, "name string, part int", "data binary")
        self._bucket = handle.getValueState(BUCKET, "data binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        new = join([unpack(parcel) for frame in rows for parcel in frame["parcel"]])
        yield from self._advanced(self._read_bucket(), new, int(new.column(ARRIVED)[0].as_py()))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        bucket = self._read_bucket()
        bucket.timer = 0
        yield from self._advanced(bucket, None, timerValues.getCurrentProcessingTimeInMs())

    def _advanced(self, bucket: Bucket, new: pa.Table | None, now: int) -> Iterator[pd.DataFrame]:
        overdue = [group_name(group) for group, when in bucket.due.items() if when <= now]
        if new is not None or overdue:
            store = _MapStore(self._groups, bucket.entries)
            if new is not None and bucket.entries < new.num_rows:
                store.read_all()
            outcome = advance(self._rules, store, new, now, overdue)
            bucket.entries = store.size
            for group in outcome.groups:
                bucket.due.pop(group_key(group), None)
            if self._rules.on_missing is not OnMissing.HOLD:
                bucket.due |= {group_key(group): when for group, when in outcome.due.items()}
            for name in _COUNTS:
                setattr(bucket.counts, name, getattr(bucket.counts, name) + getattr(outcome.counts, name))
            parcel = pack(outcome.rows) if outcome.rows.num_rows else None
            yield pd.DataFrame(
                [[parcel, *msgspec.structs.astuple(outcome.counts)]], columns=["parcel", *_COUNTS]
            )
        if bucket.due and (not bucket.timer or min(bucket.due.values()) < bucket.timer):
            bucket.timer = max(min(bucket.due.values()), now + 1)
            self._handle.registerTimer(bucket.timer)
        self._bucket.update((msgspec.msgpack.encode(bucket),))

    def _read_bucket(self) -> Bucket:
        value = self._bucket.get()
        if value is None:
            return Bucket(self._rules.columns)
        bucket = read_bucket(bytes(value[0]))
        before, now = bucket.columns, self._rules.columns
        if before.form is not now.form:
            raise InputError(
                f"the checkpoint was made with {before.form} and the query has {now.form}: how rows name "
                "their causes cannot change; take a new checkpoint, or go back"
            )
        for role in ("group", "id", "deps", "origin", "seq", "clock"):
            if getattr(before, role) != getattr(now, role):
                raise InputError(
                    f"{role}: the checkpoint was made with another column, or one of another type: rows that "
                    "wait have no other; take a new checkpoint, or go back"
                )
        bucket.columns = now
        return bucket

    def close(self) -> None:
        pass


def read_bucket(data: bytes) -> Bucket:
    try:
        return msgspec.msgpack.decode(data, type=Bucket)
    except msgspec.DecodeError as error:
        raise InputError(f"the checkpoint holds something else than Antecede's state: {error}") from error
