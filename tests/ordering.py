"""A direct definition of causal order as a reference, and tables to compare on."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import pyarrow as pa

from antecede.causal_order.dependency_edges import Columns, Form


class Row(NamedTuple):
    """A row of a group: numbers stand for ids."""

    group: str | None
    id: int
    deps: tuple[int, ...]


def reference(rows: Sequence[Row], on_missing: str) -> dict[tuple[str | None, int], tuple[int | None, str]]:
    """The index and the status of each (group, id)."""
    found: dict[tuple[str | None, int], tuple[int | None, str]] = {}
    for group in {row.group for row in rows}:
        mine: dict[int, set[int]] = {}
        for row in sorted((row for row in rows if row.group == group), key=lambda row: row.id):
            mine.setdefault(row.id, set(row.deps))
        for key, outcome in _one_group(mine, on_missing).items():
            found[group, key] = outcome
    return found


def _one_group(causes: dict[int, set[int]], on_missing: str) -> dict[int, tuple[int | None, str]]:
    graph = nx.DiGraph([(dep, row) for row, deps in causes.items() for dep in deps])
    graph.add_nodes_from(causes)
    absent = {row for row in graph if row not in causes}
    aside = {row for part in nx.strongly_connected_components(graph) if len(part) > 1 for row in part}
    aside |= {row for row in causes if row in causes[row]}
    lacking = {row for row in causes if causes[row] & absent}
    if on_missing == "quarantine":
        aside |= lacking
    if on_missing != "release":
        aside |= {effect for row in aside for effect in nx.descendants(graph, row)}
    held = set()
    if on_missing == "hold":
        held = {effect for row in absent for effect in nx.descendants(graph, row)} - aside
    status = (
        dict.fromkeys(causes, "ordered") | dict.fromkeys(held, "held") | dict.fromkeys(aside, "quarantined")
    )
    goes = {row for row in causes if status[row] == "ordered"}
    for row in goes:
        if causes[row] & (absent | aside):
            status[row] = "released"
    place: dict[int, int] = {}
    ready = [row for row in goes if not causes[row] & goes]
    heapq.heapify(ready)
    waits = {row: causes[row] & goes for row in goes}
    # With `release`, rows that follow a cycle are emitted after all that do not.
    later = set()
    if on_missing == "release":
        later = {effect for row in aside for effect in nx.descendants(graph, row)} & goes
    for wave in (goes - later, later):
        ready = [row for row in wave if not waits[row]]
        heapq.heapify(ready)
        while ready:
            row = heapq.heappop(ready)
            place[row] = len(place)
            for effect in graph.successors(row):
                if row in waits.get(effect, ()):
                    waits[effect].discard(row)
                    if not waits[effect] and effect in wave:
                        heapq.heappush(ready, effect)
    return {row: (place.get(row), status[row]) for row in causes}


FORMS = (Form.IDS, Form.NUMBERS, Form.SEQUENCES)


def columns_of(form: Form) -> Columns:
    if form is Form.SEQUENCES:
        return Columns(form, "room", origin="origin", seq="seq", deps="deps")
    return Columns(form, "room", id="id", deps="deps")


def table_of(rows: Sequence[Row], form: Form) -> pa.Table:
    """Rows as a table; ids sort as their numbers do."""
    columns: dict[str, pa.Array] = {"room": pa.array([row.group for row in rows], pa.string())}
    if form is Form.SEQUENCES:
        # Origins are every third number's, so that spans have gaps.
        columns["origin"] = pa.array([f"o{row.id % 3}" for row in rows], pa.string())
        columns["seq"] = pa.array([row.id // 3 for row in rows], pa.int64())
        kind = pa.list_(pa.struct([("origin", pa.string()), ("seq", pa.int64())]))
        listed = [[{"origin": f"o{dep % 3}", "seq": dep // 3} for dep in row.deps] for row in rows]
        columns["deps"] = pa.array(listed, kind)
    elif form is Form.NUMBERS:
        columns["id"] = pa.array([row.id for row in rows], pa.int64())
        columns["deps"] = pa.array([list(row.deps) for row in rows], pa.list_(pa.int64()))
    else:
        columns["id"] = pa.array([f"{row.id:05}" for row in rows], pa.string())
        columns["deps"] = pa.array([[f"{dep:05}" for dep in row.deps] for row in rows], pa.list_(pa.string()))
    columns["number"] = pa.array([row.id for row in rows], pa.int64())
    return pa.table(columns)


class Memory:
    """A state store in a dictionary."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str | None, int], bytes] = {}
        self.written = 0

    def get(self, group: str | None, part: int) -> bytes | None:
        return self.parts.get((group, part))

    def put(self, group: str | None, part: int, data: bytes, new: bool) -> None:
        assert new == ((group, part) not in self.parts)
        self.parts[group, part] = data
        self.written += len(data)

    def drop(self, group: str | None, part: int) -> None:
        del self.parts[group, part]
