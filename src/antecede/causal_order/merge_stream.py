"""One micro-batch of a merge of topics: new rows with those that are held.

The state is that of one group: held rows, the transactions and ids that were emitted within the horizon, and
the `MergeProgress`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.group_state import OpenGroup, StateStore
from antecede.causal_order.history import EMITTED, ID_COLUMNS
from antecede.causal_order.merge import HeldRecord, Merged, MergeProgress, MergeRules, merge
from antecede.causal_order.merge_rows import NO_CHANGE, REPEATED, records_of
from antecede.causal_order.micro_batch import MicroBatch
from antecede.causal_order.rules import ARRIVED, PLACE, OrderRules, RowCounts
from antecede.causal_order.segments import join
from antecede.sources.changes import ID

_LATE = "a transaction after this snapshot was emitted before it"


def merge_micro_batch(
    rules: OrderRules, merge_rules: MergeRules, store: StateStore, new: pa.Table, now: int
) -> MicroBatch:
    """Merge new rows with the held rows."""
    group = OpenGroup(store, None, rules.tail_bytes)
    if PLACE in new.column_names:
        new = new.sort_by(PLACE)
    rows, held_before = _with_held(group, new)
    records = records_of(rows, _was_emitted(group, rows, now - rules.horizon_ms))
    progress = group.state.merge or MergeProgress()
    progress.rules = merge_rules
    merged = merge(records, held_before, progress)
    group.state.merge = progress
    result = _leaving_rows(rows, merged, group, now, rules.internal_columns)
    _remember(group, rows, merged.emitted, now)
    _store_held(group, rows, merged, held_before)
    group.write_state()
    counts = RowCounts(
        rows=rows.num_rows - held_before,
        ordered=len(merged.emitted) - len(merged.late),
        late=len(merged.late),
        quarantined=len(merged.unreadable),
        duplicates=len(merged.duplicates),
        held=len(merged.held) - held_before,
    )
    return MicroBatch(result, counts, [None], {})


def waiting_records(group: OpenGroup) -> tuple[pa.Table, dict[int, HeldRecord]]:
    """The rows that a stream holds, and what each of them waits for."""
    rows, held = _with_held(group, None)
    progress = group.state.merge or MergeProgress()
    return rows, merge(records_of(rows, np.zeros(held, bool)), held, progress).held


def _with_held(group: OpenGroup, new: pa.Table | None) -> tuple[pa.Table, int]:
    held = [segment.rows() for segment in group.held]
    rows = join([*held, new] if new is not None else held)
    return rows, sum(table.num_rows for table in held)


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    """The keys remembered for emitted rows: their transaction, or else their id."""
    transaction = pc.binary_join_element_wise("transaction ", rows.column("transaction"), "")
    return pc.coalesce(transaction, rows.column(ID))


def _was_emitted(group: OpenGroup, rows: pa.Table, horizon: int) -> np.ndarray:
    known = [ID_COLUMNS.empty_table()]
    for segment in group.ids:
        segment.retain(segment.rows().column("at").to_numpy() >= horizon)
        known.append(segment.rows())
    return np.asarray(pc.is_in(_keys(rows), join(known).column("id").combine_chunks()))


def _remember(group: OpenGroup, rows: pa.Table, emitted: list[int], now: int) -> None:
    keys = pc.unique(_keys(rows).take(pa.array(emitted, pa.int64())).drop_null())
    kinds, times = np.full(len(keys), EMITTED, np.int8), np.full(len(keys), now)
    group.write_ids(pa.table([keys, pa.array(kinds), pa.array(times)], schema=ID_COLUMNS))


def _leaving_rows(
    rows: pa.Table, merged: Merged, group: OpenGroup, now: int, internal: Sequence[str]
) -> pa.Table:
    repeated = merged.duplicates if PLACE in rows.column_names else []
    leaving = pa.array([*merged.emitted, *merged.unreadable, *repeated], pa.int64())
    emitted, unreadable = len(merged.emitted), len(merged.unreadable)
    never = unreadable + len(repeated)
    begin = group.state.next_index
    group.state.next_index += emitted
    is_late = [row in merged.late for row in merged.emitted]
    arrived = rows.column(ARRIVED).take(leaving)
    added = {
        "causal_index": pa.array([*range(begin, begin + emitted), *[None] * never], pa.int64()),
        "status": pa.array(
            ["late" if late else "ordered" for late in is_late]
            + ["quarantined"] * unreadable
            + ["duplicate"] * len(repeated),
            pa.string(),
        ),
        "reason": pa.array(
            [_LATE if late else None for late in is_late]
            + [NO_CHANGE] * unreadable
            + [REPEATED] * len(repeated),
            pa.string(),
        ),
        "held_ms": pc.subtract(pa.scalar(now), arrived),
    }
    table = rows.drop_columns(list(internal)).take(leaving)
    for name, values in added.items():
        table = table.append_column(name, values)
    return table


def _store_held(group: OpenGroup, rows: pa.Table, merged: Merged, held_before: int) -> None:
    stays = np.zeros(rows.num_rows, bool)
    stays[list(merged.held)] = True
    begin = 0
    for segment in group.held:
        segment.retain(stays[begin : begin + segment.rows_before])
        begin += segment.rows_before
    new = held_before + np.flatnonzero(stays[held_before:])
    if group.held or new.size:
        group.write_held(rows.take(pa.array(new)).combine_chunks())
