"""One micro-batch of a stream: emit the rows whose causes have been emitted, hold the others.

All groups that a batch touches are decided in one pass (`disposition`). Of each, one `GroupState` is read and
one is written, besides segments if it holds many rows. The result depends on the rows of each batch, not on
their order of arrival within it, so a batch that is replayed gives the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.batch import STATUS, edges_of_rows, explain_rows
from antecede.causal_order.dependency_edges import (
    Columns,
    DependencyEdges,
    encode_groups,
    read_edges,
    row_of_edge,
)
from antecede.causal_order.disposition import decide_dispositions, match_identities
from antecede.causal_order.group_state import OpenGroup, StateStore
from antecede.causal_order.history import EMITTED, IN_QUARANTINE, OVERTAKEN, Decisions, IdHistory, SpanHistory
from antecede.causal_order.outcomes import (
    DUPLICATE,
    HELD,
    ORDERED,
    QUARANTINE_REASONS,
    QUARANTINED,
    RELEASED,
    SATISFIED,
    UNKNOWN,
    UNREADABLE,
)
from antecede.causal_order.rules import ARRIVED, DIGEST, PLACE, OnMissing, OrderRules, RowCounts
from antecede.causal_order.segments import OpenSegment, join

_NEVER = np.iinfo(np.int64).max


class MicroBatch(NamedTuple):
    """The result of a micro-batch."""

    rows: pa.Table
    """The emitted and quarantined rows, with causal_index, status, reason and held_ms."""
    counts: RowCounts
    groups: list[str | None]
    """The groups whose state was read and written."""
    due: dict[str | None, int]
    """When the first row of a group will have waited long enough for a missing cause."""


def order_micro_batch(
    rules: OrderRules,
    store: StateStore,
    new: pa.Table | None,
    now: int,
    overdue: Sequence[str | None] = (),
) -> MicroBatch:
    """Order new rows, and revisit the groups in which rows are `overdue`."""
    columns = rules.columns
    codes, names = _touched_groups(new, columns, overdue)
    groups = [OpenGroup(store, name, rules.tail_bytes) for name in names]
    segments = [(at, segment) for at, group in enumerate(groups) for segment in group.held]
    held = [segment.rows() for _, segment in segments]
    held_before = sum(table.num_rows for table in held)
    rows = join([*held, new] if new is not None else held)
    held_codes = [np.full(table.num_rows, at) for (at, _), table in zip(segments, held, strict=True)]
    history: SpanHistory | IdHistory
    if columns.numbered:
        history = SpanHistory(groups, columns)
    else:
        history = IdHistory(groups, columns, now - rules.horizon_ms)
    release = rules.on_missing is OnMissing.RELEASE
    edges = read_edges(rows, columns, np.concatenate([*held_codes, codes]), [history.known], release)
    history.use_codes(edges)
    arrived = rows.column(ARRIVED).to_numpy()
    waited = now - arrived
    disposition, target, leaving = _decide(
        rules, rows, edges, history, held_before, waited >= rules.timeout_ms
    )
    emitted = (disposition == ORDERED) | (disposition == RELEASED)
    late = emitted & (history.look_up(edges.owner, edges.number) == OVERTAKEN)
    result = _leaving_rows(
        rows.drop_columns(list(rules.internal_columns)),
        edges,
        disposition,
        target,
        _with_duplicates(leaving, edges, disposition) if PLACE in rows.column_names else leaving,
        late,
        groups,
        waited,
    )
    edge_rows, is_missing = row_of_edge(edges.offsets), target == UNKNOWN
    overtaken = np.flatnonzero(is_missing & (disposition[edge_rows] == RELEASED))
    decided = Decisions(leaving[emitted[leaving]], leaving[~emitted[leaving]], overtaken, now)
    history.record(rows, edges, decided)
    _store_held(rows, edges, disposition, groups, segments, held_before)
    for group in groups:
        group.write_state()
    waiting = edge_rows[is_missing & (disposition[edge_rows] == HELD)]
    oldest = np.full(len(groups), _NEVER)
    np.minimum.at(oldest, edges.groups[waiting], arrived[waiting])
    due = {names[at]: int(oldest[at]) + rules.timeout_ms for at in np.flatnonzero(oldest < _NEVER)}
    return MicroBatch(result, _count(disposition, late, held_before), names, due)


def _touched_groups(
    new: pa.Table | None, columns: Columns, overdue: Sequence[str | None]
) -> tuple[np.ndarray, list[str | None]]:
    """The groups of the new rows as codes, and the names of all groups to visit."""
    if new is None:
        return np.empty(0, np.int64), list(overdue)
    codes, named = encode_groups(new, columns)
    names = named.to_pylist()
    return codes, names + [name for name in overdue if name not in set(names)]


def _decide(
    rules: OrderRules,
    rows: pa.Table,
    edges: DependencyEdges,
    history: SpanHistory | IdHistory,
    held_before: int,
    overdue: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each row's disposition, the target of each dependency, and the emitted or quarantined rows in order."""
    preferred = _preferred_order(rows, edges, rules.columns)
    # Among rows with one id the held row wins; among new ones the first by place or in the preferred order.
    new = preferred[preferred >= held_before]
    if PLACE in rows.column_names:
        new = new[np.argsort(rows.column(PLACE).to_numpy()[new], kind="stable")]
    priority = np.concatenate((preferred[preferred < held_before], new))
    first, target = match_identities(
        edges.owner[priority], edges.number[priority], edges.dep_owner, edges.dep_number
    )
    repeated = np.empty(priority.size, bool)
    repeated[priority] = first != np.arange(priority.size)
    outcome = history.look_up(edges.owner, edges.number)
    disposition = np.where(edges.faults > 0, UNREADABLE, HELD).astype(np.int8)
    disposition[repeated | (outcome == EMITTED) | (outcome == IN_QUARANTINE)] = DUPLICATE
    dep_outcome = history.look_up(edges.dep_owner, edges.dep_number)
    target = np.where(target >= 0, priority[target], UNKNOWN)
    target[dep_outcome == EMITTED] = SATISFIED
    target[dep_outcome == IN_QUARANTINE] = QUARANTINED
    candidates = preferred[disposition[preferred] != DUPLICATE]
    place = np.empty(disposition.size, np.int64)
    place[candidates] = np.arange(candidates.size)
    offsets, selected = edges_of_rows(edges.offsets, candidates)
    causes = target[selected]
    decided = disposition[candidates]
    order = decide_dispositions(
        np.flatnonzero(np.diff(edges.groups[candidates], prepend=-1, append=-1)),
        offsets,
        np.where(causes >= 0, place[np.maximum(causes, 0)], causes),
        decided,
        overdue[candidates],
        rules.on_missing is OnMissing.RELEASE,
        rules.on_missing is OnMissing.QUARANTINE,
    )
    disposition[candidates] = decided
    leaving = np.concatenate((candidates[order], candidates[np.isin(decided, QUARANTINE_REASONS)]))
    return disposition, target, leaving[np.argsort(edges.groups[leaving], kind="stable")]


def _with_duplicates(leaving: np.ndarray, edges: DependencyEdges, disposition: np.ndarray) -> np.ndarray:
    """The rows to emit or quarantine and, at the end of each group, rows with an id seen before."""
    rows = np.concatenate((leaving, np.flatnonzero(disposition == DUPLICATE)))
    return rows[np.argsort(edges.groups[rows], kind="stable")]


def _preferred_order(rows: pa.Table, edges: DependencyEdges, columns: Columns) -> np.ndarray:
    """Rows group by group, in the order in which they would be emitted without dependencies."""
    keys: list[np.ndarray] = [rows.column(DIGEST).to_numpy()]
    if columns.numbered:
        keys.append(edges.number)
    if columns.origin is not None:
        keys.append(_rank(rows.column(columns.origin)))
    if columns.by is not None:
        keys.append(_rank(rows.column(columns.by)))
    return np.lexsort((*keys, edges.groups))


def _rank(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy(), np.int64)


def _leaving_rows(
    rows: pa.Table,
    edges: DependencyEdges,
    disposition: np.ndarray,
    target: np.ndarray,
    leaving: np.ndarray,
    late: np.ndarray,
    groups: list[OpenGroup],
    waited_ms: np.ndarray,
) -> pa.Table:
    """The emitted or quarantined rows, with the added columns; advances the groups' next index."""
    group_of_row = edges.groups[leaving]
    emitted = (disposition[leaving] == ORDERED) | (disposition[leaving] == RELEASED)
    sizes = np.bincount(group_of_row[emitted], minlength=len(groups))
    before = np.array([group.state.next_index for group in groups])
    index = np.zeros(leaving.size, np.int64)
    index[emitted] = np.arange(emitted.sum()) + np.repeat(before - np.cumsum(sizes) + sizes, sizes)
    for group, size in zip(groups, sizes.tolist(), strict=True):
        group.state.next_index += size
    status = STATUS[disposition[leaving]]
    status[late[leaving]] = "late"
    reason = explain_rows(edges, target, disposition, leaving)
    if late.any():
        details = np.array([f"; {text}" if text else "" for text in reason.to_pylist()], object)
        reason = pc.if_else(
            pa.array(late[leaving]),
            pa.array("an effect of it was released before it" + details, pa.string()),
            reason,
        )
    table = rows.take(pa.array(leaving))
    for name, values in {
        "causal_index": pa.array(index, mask=~emitted),
        "status": pa.array(status, pa.string()),
        "reason": reason,
        "held_ms": pa.array(waited_ms[leaving]),
    }.items():
        table = table.append_column(name, values)
    return table


def _store_held(
    rows: pa.Table,
    edges: DependencyEdges,
    disposition: np.ndarray,
    groups: list[OpenGroup],
    segments: list[tuple[int, OpenSegment]],
    held_before: int,
) -> None:
    """Write the held rows to the groups' segments."""
    begin = 0
    for _, segment in segments:
        segment.retain(disposition[begin : begin + segment.rows_before] == HELD)
        begin += segment.rows_before
    new = held_before + np.flatnonzero(disposition[held_before:] == HELD)
    order = np.argsort(edges.groups[new], kind="stable")
    bounds = np.searchsorted(edges.groups[new][order], np.arange(len(groups) + 1)).tolist()
    table = rows.take(pa.array(new[order])).combine_chunks()
    for at, group in enumerate(groups):
        own = table.slice(bounds[at], bounds[at + 1] - bounds[at])
        if group.held or own.num_rows:
            group.write_held(own)


def _count(disposition: np.ndarray, late: np.ndarray, held_before: int) -> RowCounts:
    return RowCounts(
        rows=disposition.size - held_before,
        ordered=int((disposition[~late] == ORDERED).sum()),
        released=int((disposition[~late] == RELEASED).sum()),
        late=int(late.sum()),
        quarantined=int(np.isin(disposition, QUARANTINE_REASONS).sum()),
        duplicates=int((disposition == DUPLICATE).sum()),
        held=int((disposition == HELD).sum()) - held_before,
    )
