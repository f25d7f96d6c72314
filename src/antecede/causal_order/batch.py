"""A whole table into causal order. Nothing more will come: what is not there is missing for good."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.dependency_edges import FAULTS, Columns, Links, group_codes, read_links, rows_of
from antecede.causal_order.disposition import (
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
    decide_dispositions,
    match_identities,
)
from antecede.causal_order.rules import OnMissing

STATUS = np.array(
    ["held", "ordered", "released", *["quarantined"] * 3, "duplicate", "quarantined"], dtype=object
)
"""What a row's disposition is called, by its number."""


def order_table(
    table: pa.Table, columns: Columns, on_missing: OnMissing
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """In which order rows come out, each after its causes, and what is added to them.

    Groups are whole and lie together, rows in the order wanted otherwise. Those that are put aside or held
    follow at their group's end, without an index; duplicates are left out.
    """
    releases = on_missing is OnMissing.RELEASE
    links = read_links(table, columns, group_codes(table, columns)[0], over_gaps=releases)
    first, target = match_identities(links.owner, links.number, links.dep_owner, links.dep_number)
    target[target < 0] = UNKNOWN
    disposition = np.where(links.faults > 0, UNREADABLE, HELD).astype(np.int8)
    disposition[first != np.arange(disposition.size)] = DUPLICATE
    bounds = np.flatnonzero(np.diff(links.groups, prepend=-1, append=-1))
    order = decide_dispositions(
        bounds,
        links.offsets,
        target,
        disposition,
        np.ones(disposition.size, np.bool_),
        releases,
        on_missing is OnMissing.QUARANTINE,
    )
    rest = np.flatnonzero((disposition != ORDERED) & (disposition != RELEASED) & (disposition != DUPLICATE))
    rows = np.concatenate((order, rest))
    sizes = np.bincount(links.groups[order])
    index = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    added = {
        "causal_index": pa.concat_arrays([pa.array(index), pa.nulls(rest.size, pa.int64())]),
        "status": pa.array(STATUS[disposition[rows]], pa.string()),
        "reason": reasons(links, target, disposition, rows),
    }
    together = pa.array(np.argsort(links.groups[rows], kind="stable"))
    return pa.array(rows).take(together), {name: values.take(together) for name, values in added.items()}


def gathered(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of these rows: where their dependencies begin, and the places of these among all."""
    counts = np.diff(offsets)[rows]
    begins = np.concatenate(([0], np.cumsum(counts)))
    return begins, np.arange(begins[-1]) + np.repeat(offsets[rows] - begins[:-1], counts)


_TOLD = {
    HELD: "waits for ",
    RELEASED: "came without its cause ",
    CYCLE: "depends on itself through ",
    CAUSE_QUARANTINED: "its cause was put aside: ",
    OVERDUE: "its cause did not come: ",
}
_MAX_NAMED = 5


def reasons(links: Links, target: np.ndarray, disposition: np.ndarray, rows: np.ndarray) -> pa.Array:
    """Why rows did not simply come in order, with the names of the dependencies that are behind it."""
    told = np.full(rows.size, None, object)
    for code in np.unique(disposition[rows]):
        mine = np.flatnonzero(disposition[rows] == code)
        if code == UNREADABLE:
            told[mine] = np.array(FAULTS, object)[links.faults[rows[mine]]]
        elif code in _TOLD:
            told[mine] = _named(links, target, disposition, rows[mine], int(code))
    return pa.array(told, pa.string())


def _named(links: Links, target: np.ndarray, disposition: np.ndarray, rows: np.ndarray, code: int) -> Any:
    begins, places = gathered(links.offsets, rows)
    of = rows_of(begins)
    goal = target[places]
    dispositions = np.where(goal >= 0, disposition[np.maximum(goal, 0)], ORDERED)
    aside = (goal == QUARANTINED) | np.isin(dispositions, QUARANTINE_REASONS)
    meant = {
        HELD: (goal == UNKNOWN) | (dispositions == HELD),
        RELEASED: (goal == UNKNOWN) | aside,
        CYCLE: dispositions == CYCLE,
        CAUSE_QUARANTINED: aside,
        OVERDUE: goal == UNKNOWN,
    }[code]
    places, of = places[meant], of[meant]
    begins = np.searchsorted(of, np.arange(rows.size + 1))
    lists = pa.ListArray.from_arrays(pa.array(begins, pa.int32()), links.dep_names(places))
    text = pc.binary_join(pc.list_slice(lists, 0, _MAX_NAMED), ", ").to_numpy(zero_copy_only=False)
    more = np.diff(begins) - _MAX_NAMED
    ends_with = np.where(more > 0, [f" and {count} more" for count in more], "").astype(object)
    return _TOLD[code] + text + ends_with
