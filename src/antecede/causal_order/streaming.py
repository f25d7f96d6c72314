"""Rows into causal order as they come: what can go goes, what cannot waits, and nothing is forgotten.

All groups that a batch touches are looked at in one pass (`disposition`); of each, one book is read and one
is written, besides parts of what waits if that is much. The outcome depends on the rows of each batch,
not on the order in which they arrived within it, so a batch that is done again comes out the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.batch import STATUS, gathered, reasons
from antecede.causal_order.dependency_edges import Columns, Links, group_codes, read_links, rows_of
from antecede.causal_order.disposition import (
    DUPLICATE,
    HELD,
    ORDERED,
    QUARANTINE_REASONS,
    QUARANTINED,
    RELEASED,
    SATISFIED,
    UNKNOWN,
    UNREADABLE,
    decide_dispositions,
    match_identities,
)
from antecede.causal_order.group_state import Group, Store
from antecede.causal_order.released import ASIDE, OUT, OWED, Added, IdRecord, SpanRecord
from antecede.causal_order.rules import ARRIVED, DIGEST, Counts, OnMissing, Rules
from antecede.causal_order.segments import Piece, join

_NEVER = np.iinfo(np.int64).max


class Outcome(NamedTuple):
    """What comes of a batch."""

    rows: pa.Table
    """Those that come out or are put aside, with causal_index, status, reason and held_ms."""
    counts: Counts
    groups: list[str | None]
    """The groups that were looked at."""
    due: dict[str | None, int]
    """When to look at groups again in which rows wait for what is missing."""


def advance(
    rules: Rules, store: Store, new: pa.Table | None, now: int, overdue: Sequence[str | None] = ()
) -> Outcome:
    """Look at new rows, and at groups in which rows may have waited long enough."""
    columns = rules.columns
    codes, names = _touched(new, columns, overdue)
    groups = [Group(store, name, rules.tail_bytes) for name in names]
    pieces = [(at, piece) for at, group in enumerate(groups) for piece in group.waiting]
    old = [piece.rows() for _, piece in pieces]
    waited = sum(table.num_rows for table in old)
    rows = join([*old, new] if new is not None else old)
    of_old = [np.full(table.num_rows, at) for (at, _), table in zip(pieces, old, strict=True)]
    record: SpanRecord | IdRecord
    if columns.numbered:
        record = SpanRecord(groups, columns)
    else:
        record = IdRecord(groups, columns, now - rules.horizon_ms)
    releases = rules.on_missing is OnMissing.RELEASE
    links = read_links(rows, columns, np.concatenate([*of_old, codes]), [record.known], releases)
    record.code(links)
    arrived = rows.column(ARRIVED).to_numpy()
    disposition, target, out = _decide(rules, rows, links, record, waited, now - arrived >= rules.timeout_ms)
    is_out = (disposition == ORDERED) | (disposition == RELEASED)
    late = is_out & (record.look(links.owner, links.number) == OWED)
    made = _outcome(
        rows.drop_columns(list(rules.made)), links, disposition, target, out, late, groups, now - arrived
    )
    of = rows_of(links.offsets)
    lacks = target == UNKNOWN
    owed = np.flatnonzero(lacks & (disposition[of] == RELEASED))
    record.add(rows, links, Added(out[is_out[out]], out[~is_out[out]], owed, now))
    _keep_waiting(rows, links, disposition, groups, pieces, waited)
    for group in groups:
        group.write()
    oldest = np.full(len(groups), _NEVER)
    lacking = of[lacks & (disposition[of] == HELD)]
    np.minimum.at(oldest, links.groups[lacking], arrived[lacking])
    due = {names[at]: int(oldest[at]) + rules.timeout_ms for at in np.flatnonzero(oldest < _NEVER)}
    return Outcome(made, _counts(disposition, late, waited), names, due)


def _touched(
    new: pa.Table | None, columns: Columns, overdue: Sequence[str | None]
) -> tuple[np.ndarray, list[str | None]]:
    """The groups of the new rows as codes, and the names of all groups to look at."""
    if new is None:
        return np.empty(0, np.int64), list(overdue)
    codes, named = group_codes(new, columns)
    names = named.to_pylist()
    return codes, names + [name for name in overdue if name not in set(names)]


def _decide(
    rules: Rules,
    rows: pa.Table,
    links: Links,
    record: SpanRecord | IdRecord,
    waited: int,
    overdue: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each row's disposition, what each dependency points to, and the rows that leave, in their order."""
    wanted = _wanted_order(rows, links, rules.columns)
    # Of rows with one id the one that waits stays, and of new ones the first as wanted, whichever came first.
    arrival = np.concatenate((wanted[wanted < waited], wanted[wanted >= waited]))
    first, target = match_identities(
        links.owner[arrival], links.number[arrival], links.dep_owner, links.dep_number
    )
    again = np.empty(arrival.size, bool)
    again[arrival] = first != np.arange(arrival.size)
    known = record.look(links.owner, links.number)
    disposition = np.where(links.faults > 0, UNREADABLE, HELD).astype(np.int8)
    disposition[again | (known == OUT) | (known == ASIDE)] = DUPLICATE
    of_dep = record.look(links.dep_owner, links.dep_number)
    target = np.where(target >= 0, arrival[target], UNKNOWN)
    target[of_dep == OUT] = SATISFIED
    target[of_dep == ASIDE] = QUARANTINED
    playing = wanted[disposition[wanted] != DUPLICATE]
    place = np.empty(disposition.size, np.int64)
    place[playing] = np.arange(playing.size)
    offsets, deps = gathered(links.offsets, playing)
    goal = target[deps]
    dispositions = disposition[playing]
    order = decide_dispositions(
        np.flatnonzero(np.diff(links.groups[playing], prepend=-1, append=-1)),
        offsets,
        np.where(goal >= 0, place[np.maximum(goal, 0)], goal),
        dispositions,
        overdue[playing],
        rules.on_missing is OnMissing.RELEASE,
        rules.on_missing is OnMissing.QUARANTINE,
    )
    disposition[playing] = dispositions
    out = np.concatenate((playing[order], playing[np.isin(dispositions, QUARANTINE_REASONS)]))
    return disposition, target, out[np.argsort(links.groups[out], kind="stable")]


def _wanted_order(rows: pa.Table, links: Links, columns: Columns) -> np.ndarray:
    """Rows group by group, in the order in which they would come out if nothing depended on anything."""
    keys: list[np.ndarray] = [rows.column(DIGEST).to_numpy()]
    if columns.numbered:
        keys.append(links.number)
    if columns.origin is not None:
        keys.append(_rank(rows.column(columns.origin)))
    if columns.by is not None:
        keys.append(_rank(rows.column(columns.by)))
    return np.lexsort((*keys, links.groups))


def _rank(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy(), np.int64)


def _outcome(
    rows: pa.Table,
    links: Links,
    disposition: np.ndarray,
    target: np.ndarray,
    out: np.ndarray,
    late: np.ndarray,
    groups: list[Group],
    waited_ms: np.ndarray,
) -> pa.Table:
    """The rows that leave, with what is added to them; the groups' books count on."""
    of_group = links.groups[out]
    goes = (disposition[out] == ORDERED) | (disposition[out] == RELEASED)
    sizes = np.bincount(of_group[goes], minlength=len(groups))
    before = np.array([group.book.next_index for group in groups])
    index = np.zeros(out.size, np.int64)
    index[goes] = np.arange(goes.sum()) + np.repeat(before - np.cumsum(sizes) + sizes, sizes)
    for group, size in zip(groups, sizes.tolist(), strict=True):
        group.book.next_index += size
    status = STATUS[disposition[out]]
    status[late[out]] = "late"
    reason = reasons(links, target, disposition, out)
    if late.any():
        told = np.array([f"; {text}" if text else "" for text in reason.to_pylist()], object)
        reason = pc.if_else(
            pa.array(late[out]),
            pa.array("an effect of it was released before it" + told, pa.string()),
            reason,
        )
    table = rows.take(pa.array(out))
    for name, values in {
        "causal_index": pa.array(index, mask=~goes),
        "status": pa.array(status, pa.string()),
        "reason": reason,
        "held_ms": pa.array(waited_ms[out]),
    }.items():
        table = table.append_column(name, values)
    return table


def _keep_waiting(
    rows: pa.Table,
    links: Links,
    disposition: np.ndarray,
    groups: list[Group],
    pieces: list[tuple[int, Piece]],
    waited: int,
) -> None:
    """Put what waits on the groups' shelves."""
    begin = 0
    for _, piece in pieces:
        piece.leave(disposition[begin : begin + piece.before] == HELD)
        begin += piece.before
    new = waited + np.flatnonzero(disposition[waited:] == HELD)
    order = np.argsort(links.groups[new], kind="stable")
    bounds = np.searchsorted(links.groups[new][order], np.arange(len(groups) + 1)).tolist()
    table = rows.take(pa.array(new[order])).combine_chunks()
    for at, group in enumerate(groups):
        mine = table.slice(bounds[at], bounds[at + 1] - bounds[at])
        if group.waiting or mine.num_rows:
            group.book.waiting = group.put_back(group.waiting, mine)


def _counts(disposition: np.ndarray, late: np.ndarray, waited: int) -> Counts:
    def many(*dispositions: int) -> int:
        return int(np.isin(disposition, dispositions).sum())

    return Counts(
        rows=disposition.size - waited,
        ordered=int((disposition[~late] == ORDERED).sum()),
        released=int((disposition[~late] == RELEASED).sum()),
        late=int(late.sum()),
        quarantined=many(*QUARANTINE_REASONS),
        duplicates=many(DUPLICATE),
        held=many(HELD) - waited,
    )
