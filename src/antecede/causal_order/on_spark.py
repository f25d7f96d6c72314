"""Rows in causal order: each after every row that it depends on. Batch and stream, the same call.

A batch is shuffled once by group and sorted there by the JVM; then whole groups pass through one compiled
pass in a Python worker (`trace.ordering`). A worker holds one chunk of groups at a time, or one group if that
is larger; of a group beyond half a gigabyte, rows lie in a file meanwhile. A stream is in `order_stream`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.batch import order_table
from antecede.causal_order.columns import Prepared, added_columns, prepare, quoted, refuse_unreadable
from antecede.causal_order.dependency_edges import Columns
from antecede.causal_order.rules import OnMissing, Rules
from antecede.causal_order.stream_on_spark import order_stream, settle_in
from antecede.errors import InputError
from antecede.units import parse_duration

_CHUNK_ROWS = 200_000
_SLICE_ROWS = 65_536
_IN_MEMORY = 1 << 29
"""Bytes of rows of one chunk beyond which they wait in a file."""


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

    Name the columns that tell what depends on what, in one of three forms:

    - `id` and `deps`: text or whole numbers; `deps` an array of ids, or one id, or null;
    - `origin`, `seq` and `deps`: whose event it is and its number there; `deps` an array of (origin, seq),
      or of text "origin:seq";
    - `origin` and `clock`: a vector clock that counts the event itself, as a map from origin to number, as an
      array (then an origin is a place in it, from 0), or as such a map in JSON text.

    `group` is the column that parts events which have nothing to do with each other; without it all are one
    group. Where causes leave a choice, the least of column `by` comes first, then the least number; for text
    ids it is always the same, but no more can be said of it.

    Added columns: `causal_index`, the place in the group's order; `status`; `reason`; in a stream `held_ms`.
    Status is `ordered`; `released`, if a cause is missing and `on_missing` is "release"; `held` (in a batch;
    a stream keeps such events), if it is "hold"; `quarantined`, if it is "quarantine", or if an event depends
    on itself, or on one that is quarantined, or cannot be read; `late`, if an effect was released before it.
    What is held or quarantined has no index. Events with an id that was there are dropped.

    A batch is looked through once before for events that cannot be read, and refused if there are any; with
    `check=False` they are quarantined, as in a stream.

    In a stream, a cause is missing when its effect has waited for `timeout`. Ids that are text are forgotten
    `horizon` after they came out: an effect must come within that time, and so must what comes twice. Numbers
    are remembered for ever, as spans. Each batch's progress has an observation called `name`, which counts
    rows and what became of them; `explain` tells what is held, and `accounts` counts over the whole stream.
    The session's state store becomes RocksDB, as Spark needs it for this.
    """
    said = {"group": group, "id": id, "deps": deps, "origin": origin, "seq": seq, "clock": clock, "by": by}
    policy = _policy(on_missing)
    patience, memory = _duration("timeout", timeout), _duration("horizon", horizon)
    added = added_columns(events.isStreaming)
    prepared = prepare(events, said, added)
    schema = T.StructType(
        [*events.schema.fields, *(T.StructField(name, kind) for name, kind in added.items())]
    )
    if events.isStreaming:
        rules = Rules(prepared.columns, policy, patience, memory)
        return order_stream(prepared, schema, rules, name)
    if check:
        refuse_unreadable(prepared, said)
    return _batch(prepared, schema, policy)


def _policy(on_missing: str) -> OnMissing:
    try:
        return OnMissing(on_missing)
    except ValueError:
        raise InputError(f"on_missing: {on_missing!r} is none of {', '.join(OnMissing)}") from None


def _duration(role: str, text: str) -> int:
    """Milliseconds."""
    try:
        return parse_duration(text) // 1_000_000
    except (InputError, AttributeError):
        raise InputError(f"{role}: {text!r} is not a duration; write one like 30s, 10m or 24h") from None


def _batch(prepared: Prepared, schema: T.StructType, policy: OnMissing) -> DataFrame:
    group = prepared.columns.group
    if group is None:
        together = prepared.frame.repartition(1)
    else:
        together = prepared.frame.repartition(F.col(quoted(group)))
    keys = [group, *prepared.sorted_by] if group is not None else prepared.sorted_by
    sorted_rows = together.sortWithinPartitions(*(F.col(quoted(key)).asc_nulls_last() for key in keys))
    return sorted_rows.mapInArrow(_orderer(prepared.columns, policy, prepared.made), schema)


def _orderer(
    columns: Columns, policy: OnMissing, made: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        for table in whole_groups(batches, columns.group):
            rows, added = order_table(table, columns, policy)
            kept = table.drop_columns(made)
            for begin in range(0, len(rows), _SLICE_ROWS):
                part = kept.take(rows[begin : begin + _SLICE_ROWS])
                for name, values in added.items():
                    part = part.append_column(name, values[begin : begin + _SLICE_ROWS])
                yield from part.combine_chunks().to_batches()

    return order


def whole_groups(
    batches: Iterator[pa.RecordBatch],
    group: str | None,
    enough: int = _CHUNK_ROWS,
    in_memory: int = _IN_MEMORY,
) -> Iterator[pa.Table]:
    """Tables of whole groups, from rows sorted by group; each of about `enough` rows, or of one group."""
    pile = _Pile(in_memory)
    for batch in batches:
        end = _last_boundary(batch, group, pile.last) if pile.rows + batch.num_rows >= enough else None
        if end is not None:
            pile.add(batch.slice(0, end), group)
            if pile.rows:
                yield pile.taken()
            batch = batch.slice(end)
        pile.add(batch, group)
    if pile.rows:
        yield pile.taken()


def _last_boundary(batch: pa.RecordBatch, group: str | None, before: object) -> int | None:
    """The first row of the last group that begins in the batch, if one does."""
    if group is None or not batch.num_rows:
        return None
    names = batch.column(group)
    runs = pa.compute.run_end_encode(names)
    starts = [0, *runs.run_ends.to_pylist()[:-1]]
    if len(starts) > 1:
        return int(starts[-1])
    return 0 if before is not _NOTHING and names[0].as_py() != before else None


_NOTHING = object()


class _Pile:
    """Rows until their groups are whole: in memory, or in a file once they are too many for that."""

    def __init__(self, in_memory: int) -> None:
        self._in_memory = in_memory
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
        if self._bytes > self._in_memory:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._file = tempfile.NamedTemporaryFile(prefix="antecede-order-")  # noqa: SIM115
            self._writer = pa.ipc.new_file(self._file.name, self._batches[0].schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches = []

    def taken(self) -> pa.Table:
        """All that is there, which is then no longer here."""
        if self._writer is None:
            table = pa.Table.from_batches(self._batches)
        else:
            self._writer.close()
            table = pa.ipc.open_file(pa.memory_map(self._file.name)).read_all()
            self._file.close()
        self._clear()
        return table
