"""`causal_order`: a DataFrame in causal order, batch or stream, by the same call.

A batch is shuffled once by group and sorted there by the JVM; then whole groups go through one compiled pass
in a Python worker (`batch`). A worker holds one chunk of groups at a time, or one group if that is larger;
the rows of a group beyond half a gigabyte are in a file. Streams are in `stream_on_spark`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.batch import decide_table, order_table
from antecede.causal_order.columns import ADDED, ADDED_BY_STREAM, EMITTED_AT, Roles
from antecede.causal_order.columns_on_spark import PreparedEvents, prepare, quoted, refuse_unreadable
from antecede.causal_order.missing_causes import SCHEMA_ON_SPARK, count_missing
from antecede.causal_order.rules import OnMissing, OrderRules
from antecede.causal_order.stream_on_spark import (
    freeze_gc_heap,
    order_stream,
    warn_of_partitions,
    without_watermark,
)
from antecede.errors import InputError
from antecede.spark.session import is_spark, require_frame
from antecede.units import parse_duration

_CHUNK_ROWS = 200_000
_SLICE_ROWS = 65_536
_MAX_BYTES_IN_MEMORY = 1 << 29
"""Above this many bytes, the rows of one chunk are in a file."""
GroupTask = Callable[[pa.Table], Iterator[pa.RecordBatch]]
"""From the rows of whole groups to results."""
_TEXT_COLUMNS = ("status", "reason")


def causal_order(
    events: DataFrame,
    *,
    group: str | None = None,
    id: str | None = None,  # noqa: A002
    deps: str | None = None,
    origin: str | None = None,
    seq: str | None = None,
    clock: str | None = None,
    by: str | None = None,
    on_missing: str = "hold",
    timeout: str = "10m",
    horizon: str = "24h",
    name: str = "causal_order",
    check: bool = True,
) -> DataFrame:
    """The events, within each group each after every event that it depends on, exactly once.

    Name the columns that state what depends on what, in one of three forms:

    - `id` and `deps`: text or whole numbers; `deps` is an array of ids, or one id, or null;
    - `origin`, `seq` and `deps`: the origin of an event and its sequence number there; `deps` is an array of
      (origin, seq), or of text "origin:seq";
    - `origin` and `clock`: a vector clock that counts the event itself, as a map from origin to number, as an
      array (then an origin is a place in it, from 0), or as such a map in JSON text.

    `group` is the column that separates independent sets of events; without it all events are one group.
    Where dependencies leave a choice, the least value of column `by` comes first, then the least number; the
    choice among text ids is arbitrary, but always the same.

    Added columns: `causal_index`, the place in the group's order; `status`; `reason`; in a stream `held_ms`
    and `emitted_at`, the time of the batch. A held row is older than a watermark on its own time by the time
    it is emitted: give operators after this one a watermark on `emitted_at`.
    Status is `ordered`; `released`, if a cause is missing and `on_missing` is "release"; `held` (in a batch;
    a stream keeps such events), if it is "hold"; `quarantined`, if it is "quarantine", or if an event depends
    on itself, or on one that is quarantined, or cannot be read; `late`, if an effect was released before it.
    Held and quarantined events have no index. Events with an id that was seen before are dropped.

    Before a batch runs, one pass looks for events that cannot be read, and refuses them; with `check=False`
    they are quarantined, as in a stream.

    In a stream, a cause is missing when its effect has waited for `timeout`. Text ids are forgotten `horizon`
    after they were emitted: effects and repetitions must arrive within that time. Numbers are remembered for
    ever, as ranges. Each batch's progress has an observation called `name`, which counts rows by outcome;
    `held` lists the rows that a stream holds, and `stream_counts` counts over the whole stream. The session's
    state store becomes RocksDB, which Spark requires for this.
    """
    require_frame(events)
    roles = {"group": group, "id": id, "deps": deps, "origin": origin, "seq": seq, "clock": clock, "by": by}
    rules = make_rules(on_missing, timeout, horizon)
    if check and not events.isStreaming:
        refuse_unreadable(prepare(events, roles, ADDED), roles)
    return order_frame(events, roles, rules, name)


class RuleWords(NamedTuple):
    """The arguments of `causal_order` that are rules, validated."""

    on_missing: OnMissing
    timeout_ms: int
    horizon_ms: int


def make_rules(on_missing: str, timeout: str, horizon: str) -> RuleWords:
    return RuleWords(_rule(on_missing), _milliseconds("timeout", timeout), _milliseconds("horizon", horizon))


def order_frame(
    events: DataFrame, roles: Roles, rules: RuleWords, name: str, split: str | None = None
) -> DataFrame:
    """`causal_order` without its check; `split` is the text between two dependencies in one text."""
    added = ADDED_BY_STREAM if events.isStreaming else ADDED
    prepared = prepare(events, roles, added, split)
    fields = [*events.schema.fields, *(added_field(column) for column in added if column != EMITTED_AT)]
    if events.isStreaming:
        warn_of_partitions(events.sparkSession)
        named = columns_by_role(roles, split)
        schema = T.StructType([without_watermark(field) for field in fields])
        return order_stream(prepared, schema, OrderRules(prepared.columns, *rules, named), name)
    schema = T.StructType(fields)
    return _order_batch(prepared, schema, rules.on_missing)


def columns_by_role(roles: Roles, split: str | None) -> dict[str, str | None]:
    """The columns that cannot change during a stream, in the form stored in its checkpoint."""
    named = {role: name for role, name in roles.items() if role != "by"}
    if split is not None:
        named["deps"] = f"{roles['deps']} split by {split!r}"
    return named


def added_field(name: str) -> T.StructField:
    """A column that results have in addition to the caller's own."""
    return T.StructField(name, T.StringType() if name in _TEXT_COLUMNS else T.LongType())


def _rule(on_missing: str) -> OnMissing:
    try:
        return OnMissing(on_missing)
    except ValueError:
        raise InputError(f"on_missing: {on_missing!r} is none of {', '.join(OnMissing)}") from None


def _milliseconds(role: str, text: str) -> int:
    try:
        return parse_duration(text) // 1_000_000
    except (InputError, AttributeError):
        raise InputError(f"{role}: {text!r} is not a duration; write one like 30s, 10m or 24h") from None


def _order_batch(prepared: PreparedEvents, schema: T.StructType, on_missing: OnMissing) -> DataFrame:
    columns, internal = prepared.columns, prepared.internal

    def order(table: pa.Table) -> Iterator[pa.RecordBatch]:
        rows, added = order_table(table, columns, on_missing)
        for part in in_slices(table.drop_columns(internal), rows, added):
            yield part.rename_columns(schema.names)

    return _by_group(prepared, order, schema)


def count_missing_causes(events: DataFrame, roles: Roles, split: str | None = None) -> DataFrame:
    """The missing causes that hold rows of a batch: group, id and rows."""
    prepared = prepare(events, roles, ADDED, split)
    columns = prepared.columns

    def count(table: pa.Table) -> Iterator[pa.RecordBatch]:
        missing = count_missing(decide_table(table, columns, OnMissing.HOLD))
        # A batch is needed even without rows.
        yield pa.record_batch([column.combine_chunks() for column in missing.columns], missing.schema)

    return _by_group(prepared, count, SCHEMA_ON_SPARK)


def _by_group(prepared: PreparedEvents, task: GroupTask, schema: T.StructType | str) -> DataFrame:
    """Turn a function of whole groups into a task; the rows of each group are in the preferred order."""
    group, frame = prepared.columns.group, prepared.frame
    keys = [] if group is None else [F.col(quoted(group))]
    if not is_spark(frame.sparkSession):
        return frame.groupBy(*keys).applyInArrow(_sorting(prepared.sorted_by, task), schema)

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc_heap()
        for table in whole_groups(batches, group):
            yield from task(table)

    # One after another in each partition.
    by_group = frame.repartition(*keys) if keys else frame.repartition(1)
    keys += [F.col(quoted(key)) for key in prepared.sorted_by]
    return by_group.sortWithinPartitions(*(key.asc_nulls_last() for key in keys)).mapInArrow(apply, schema)


def _sorting(keys: list[str], task: GroupTask) -> Callable[[pa.Table], pa.Table]:
    """A task on one group whose rows arrive in any order."""

    def apply(rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches(task(rows.sort_by([(key, "ascending") for key in keys])))

    return apply


def in_slices(table: pa.Table, rows: pa.Array, added: dict[str, pa.Array]) -> Iterator[pa.RecordBatch]:
    """Rows of a table with added columns, without a copy of the whole table."""
    for begin in range(0, len(rows), _SLICE_ROWS):
        part = table.take(rows[begin : begin + _SLICE_ROWS])
        for name, values in added.items():
            part = part.append_column(name, values[begin : begin + _SLICE_ROWS])
        yield from part.combine_chunks().to_batches()


def whole_groups(
    batches: Iterator[pa.RecordBatch],
    group: str | None,
    enough: int = _CHUNK_ROWS,
    max_bytes: int = _MAX_BYTES_IN_MEMORY,
) -> Iterator[pa.Table]:
    """Tables of whole groups, from rows sorted by group; each has about `enough` rows, or one group."""
    buffer = _GroupBuffer(max_bytes)
    for batch in batches:
        end = _last_boundary(batch, group, buffer.last) if buffer.rows + batch.num_rows >= enough else None
        if end is not None:
            buffer.add(batch.slice(0, end), group)
            if buffer.rows:
                yield buffer.flush()
            batch = batch.slice(end)
        buffer.add(batch, group)
    if buffer.rows:
        yield buffer.flush()


def _last_boundary(batch: pa.RecordBatch, group: str | None, before: object) -> int | None:
    """The first row of the last group that begins in the batch, if any does."""
    if group is None or not batch.num_rows:
        return None
    names = batch.column(group)
    run_ends = pa.compute.run_end_encode(names).run_ends
    starts = [0, *run_ends.to_pylist()[:-1]]
    if len(starts) > 1:
        return int(starts[-1])
    return 0 if before is not _NOTHING and names[0].as_py() != before else None


_NOTHING = object()


class _GroupBuffer:
    """Buffers rows until their groups are complete: in memory, or in a file once there are too many."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self.rows = self._bytes = 0
        self.last: object = _NOTHING
        self._batches: list[pa.RecordBatch] = []
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch, group: str | None) -> None:
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        self._bytes += batch.nbytes
        self.last = batch.column(group)[-1].as_py() if group is not None else None
        self._batches.append(batch)
        if self._bytes > self._max_bytes:
            self._spill()

    def _spill(self) -> None:
        if self._writer is None:
            self._file = tempfile.NamedTemporaryFile(prefix="antecede-order-")  # noqa: SIM115
            self._writer = pa.ipc.new_file(self._file.name, self._batches[0].schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches = []

    def flush(self) -> pa.Table:
        """Return all rows and empty the buffer."""
        if self._writer is None:
            table = pa.Table.from_batches(self._batches)
        else:
            self._writer.close()
            table = pa.ipc.open_file(pa.memory_map(self._file.name)).read_all()
            self._file.close()
        self._clear()
        return table
