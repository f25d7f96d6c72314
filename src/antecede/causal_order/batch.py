"""Puts a whole table into causal order. No more rows will arrive: a cause that is not in the table is
missing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.dependency_edges import (
    FAULTS,
    Columns,
    DependencyEdges,
    encode_groups,
    read_edges,
    row_of_edge,
)
from antecede.causal_order.interpreted import is_small
from antecede.causal_order.outcomes import (
    CAUSE_QUARANTINED,
    CYCLE,
    DUPLICATE,
    HELD,
    ORDERED,
    OVERDUE,
    QUARANTINE_REASONS,
    QUARANTINED,
    RELEASED,
    UNKNOWN,
    UNREADABLE,
)
from antecede.causal_order.rules import PLACE, OnMissing

STATUS = np.array(
    ["held", "ordered", "released", *["quarantined"] * 3, "duplicate", "quarantined"], dtype=object
)
"""The status of a row by its disposition."""


class DecidedTable(NamedTuple):
    """The rows of a table as a graph, and their dispositions."""

    edges: DependencyEdges
    target: np.ndarray
    """The row that each dependency points to, or UNKNOWN."""
    disposition: np.ndarray
    emitted: np.ndarray
    """The rows to be emitted, in order, group by group."""
    groups: pa.Array
    """The names of the groups."""
    lists_duplicates: bool
    """Whether the result lists rows that repeat the id of another row."""


def decide_table(table: pa.Table, columns: Columns, on_missing: OnMissing) -> DecidedTable:
    """Decide about the rows of a table: whole groups one after another, each in the preferred order."""
    if is_small(table.num_rows):
        from antecede.causal_order.interpreted import decide_dispositions, match_identities
    else:
        from antecede.causal_order.disposition import decide_dispositions, match_identities
    release = on_missing is OnMissing.RELEASE
    codes, names = encode_groups(table, columns)
    edges = read_edges(table, columns, codes, over_gaps=release)
    first, target = match_identities(edges.owner, edges.number, edges.dep_owner, edges.dep_number)
    has_places = PLACE in table.column_names
    if has_places:
        first, target = first_by_place(first, target, table.column(PLACE).to_numpy())
    target[target < 0] = UNKNOWN
    disposition = np.where(edges.faults > 0, UNREADABLE, HELD).astype(np.int8)
    disposition[first != np.arange(disposition.size)] = DUPLICATE
    emitted = decide_dispositions(
        np.flatnonzero(np.diff(edges.groups, prepend=-1, append=-1)),
        edges.offsets,
        target,
        disposition,
        np.ones(disposition.size, np.bool_),
        release,
        on_missing is OnMissing.QUARANTINE,
    )
    return DecidedTable(edges, target, disposition, emitted, names, has_places)


def first_by_place(first: np.ndarray, target: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The result of `match_identities`, with the row of the lowest position as the first of its identity."""
    alike = np.flatnonzero(np.isin(first, first[first != np.arange(first.size)]))
    by_place = alike[np.lexsort((place[alike], first[alike]))]
    identities, begins = np.unique(first[by_place], return_index=True)
    lowest = np.arange(first.size)
    lowest[identities] = by_place[begins]
    return lowest[first], np.where(target >= 0, lowest[np.maximum(target, 0)], target)


def order_table(
    table: pa.Table, columns: Columns, on_missing: OnMissing
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The rows in causal order, as positions in the table, and the columns to add to them."""
    return order_decided(decide_table(table, columns, on_missing))


def order_decided(decided: DecidedTable) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The rows in causal order, as positions in the table, and the columns to add to them.

    Where dependencies leave a choice, rows stay in the order of the table. Rows that are quarantined or held
    follow at the end of their group, without an index; so do duplicates, if they are listed.
    """
    edges, target, disposition, emitted = decided[:4]
    is_rest = (disposition != ORDERED) & (disposition != RELEASED)
    if not decided.lists_duplicates:
        is_rest &= disposition != DUPLICATE
    rest = np.flatnonzero(is_rest)
    rows = np.concatenate((emitted, rest))
    sizes = np.bincount(edges.groups[emitted])
    index = np.arange(emitted.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    added = {
        "causal_index": pa.concat_arrays([pa.array(index), pa.nulls(rest.size, pa.int64())]),
        "status": pa.array(STATUS[disposition[rows]], pa.string()),
        "reason": explain_rows(edges, target, disposition, rows),
    }
    by_group = pa.array(np.argsort(edges.groups[rows], kind="stable"))
    return pa.array(rows).take(by_group), {name: values.take(by_group) for name, values in added.items()}


def edges_of_rows(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The dependencies of some rows: where each row's begin, and their indices among all dependencies."""
    counts = np.diff(offsets)[rows]
    begins = np.concatenate(([0], np.cumsum(counts)))
    return begins, np.arange(begins[-1]) + np.repeat(offsets[rows] - begins[:-1], counts)


_REASONS = {
    HELD: "waits for ",
    RELEASED: "released without its cause ",
    CYCLE: "depends on itself through ",
    CAUSE_QUARANTINED: "its cause is quarantined: ",
    OVERDUE: "its cause is missing: ",
}
SEEN_BEFORE = "a row before it has its id"
_MAX_NAMED = 5
"""The number of causes that a reason names."""


def explain_rows(
    edges: DependencyEdges, target: np.ndarray, disposition: np.ndarray, rows: np.ndarray
) -> pa.Array:
    """Why rows are not emitted as `ordered`, naming the responsible causes; null for rows that are."""
    reasons = np.full(rows.size, None, object)
    for code in np.unique(disposition[rows]):
        alike = np.flatnonzero(disposition[rows] == code)
        if code == UNREADABLE:
            reasons[alike] = np.array(FAULTS, object)[edges.faults[rows[alike]]]
        elif code == DUPLICATE:
            reasons[alike] = SEEN_BEFORE
        elif code in _REASONS:
            reasons[alike] = _name_causes(edges, target, disposition, rows[alike], int(code))
    return pa.array(reasons, pa.string())


def _name_causes(
    edges: DependencyEdges, target: np.ndarray, disposition: np.ndarray, rows: np.ndarray, code: int
) -> Any:
    """The reasons of the rows with one disposition."""
    begins, places = edges_of_rows(edges.offsets, rows)
    edge_rows = row_of_edge(begins)
    cause = target[places]
    of_cause = np.where(cause >= 0, disposition[np.maximum(cause, 0)], ORDERED)
    quarantined = (cause == QUARANTINED) | np.isin(of_cause, QUARANTINE_REASONS)
    responsible = {
        HELD: (cause == UNKNOWN) | (of_cause == HELD),
        RELEASED: (cause == UNKNOWN) | quarantined,
        CYCLE: of_cause == CYCLE,
        CAUSE_QUARANTINED: quarantined,
        OVERDUE: cause == UNKNOWN,
    }[code]
    places, edge_rows = places[responsible], edge_rows[responsible]
    begins = np.searchsorted(edge_rows, np.arange(rows.size + 1))
    lists = pa.ListArray.from_arrays(pa.array(begins, pa.int32()), edges.dep_names(places))
    text = pc.binary_join(pc.list_slice(lists, 0, _MAX_NAMED), ", ").to_numpy(zero_copy_only=False)
    more = np.diff(begins) - _MAX_NAMED
    suffix = np.where(more > 0, [f" and {count} more" for count in more], "").astype(object)
    return _REASONS[code] + text + suffix
