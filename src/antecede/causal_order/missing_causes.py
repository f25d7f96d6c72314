"""Counts the rows that each missing cause holds.

A held row is counted once: under the first missing cause that it names, or else under that of the first held
row that it names. So the counts add up to the number of held rows. Cost: a few passes over the dependencies,
as many as the logarithm of the longest chain of held rows.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.batch import DecidedTable
from antecede.causal_order.dependency_edges import row_of_edge
from antecede.causal_order.outcomes import HELD, UNKNOWN

MAX_LISTED = 20
SCHEMA = pa.schema([("group", pa.string()), ("id", pa.string()), ("rows", pa.int64())])
SCHEMA_ON_SPARK = "group string, id string, rows long"


class MissingId(msgspec.Struct):
    """A missing id that rows wait for."""

    group: str | None
    id: str
    rows: int
    """How many rows it holds."""


class MissingIds(msgspec.Struct):
    """All missing ids that rows wait for."""

    ids: int = 0
    rows: int = 0
    """How many rows they hold."""
    first: list[MissingId] = []
    """The ids that hold the most rows."""


def first_missing_edge(rows: int, edge_rows: np.ndarray, target: np.ndarray) -> np.ndarray:
    """For each row with an edge, the edge to the missing cause under which it is counted; -1 for other rows.
    Edges lead from held rows, in their order, to held rows or, with a negative target, to missing causes."""
    chosen = np.full(rows, -1)
    for edges in (np.flatnonzero(target >= 0), np.flatnonzero(target < 0)):
        own, first = np.unique(edge_rows[edges], return_index=True)
        chosen[own] = edges[first]
    named = np.where(chosen >= 0, target[chosen], -1) if target.size else np.full(rows, -1)
    jump = np.where(named >= 0, named, np.arange(rows))
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            return chosen[jump]
        jump = further


def count_missing(decided: DecidedTable) -> pa.Table:
    """A row for each missing cause of held rows: its group, its id, and how many rows it holds."""
    edges, target, disposition, groups = decided.edges, decided.target, decided.disposition, decided.groups
    edge_rows = row_of_edge(edges.offsets)
    of_cause = np.where(target >= 0, disposition[np.maximum(target, 0)], HELD) if target.size else target
    waits = (disposition[edge_rows] == HELD) & ((target == UNKNOWN) | ((target >= 0) & (of_cause == HELD)))
    places = np.flatnonzero(waits)
    chosen = first_missing_edge(disposition.size, edge_rows[places], target[places])
    missing = places[target[places] < 0]
    counted = places[chosen[(disposition == HELD) & (chosen >= 0)]]
    both = np.concatenate((missing, counted))
    names = groups.take(pa.array(edges.groups[edge_rows[both]])).cast(pa.string())
    table = pa.table(
        {
            "group": names,
            "id": edges.dep_names(both),
            "rows": np.repeat([0, 1], [missing.size, counted.size]),
        }
    )
    summed = table.group_by(["group", "id"]).aggregate([("rows", "sum")])
    return summed.rename_columns(["group", "id", "rows"]).cast(SCHEMA)


def summarise_missing(table: pa.Table) -> MissingIds:
    """How many ids are missing, how many rows they hold, and the ids that hold most rows."""
    order = [("rows", "descending"), ("group", "ascending"), ("id", "ascending")]
    first = table.take(pc.sort_indices(table, order)).slice(0, MAX_LISTED).to_pylist()
    rows = pc.sum(table.column("rows")).as_py() or 0
    return MissingIds(table.num_rows, rows, [MissingId(**row) for row in first])
