"""Writes dependency tables: the dependencies of messages, without deliveries.

A folder holds `dependencies.parquet` (`node`, `process`, `seq`, `parents`; parents before their children)
and `dependencies.json`, which describes its source and its bad rows. Bad rows are counted, with examples; a
strict import refuses them.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRowKind, BadRows
from antecede.trace.dependencies import DEPENDENCIES, TABLE_INFO, describe_cycle
from antecede.trace.parquet_files import parquet_writer
from antecede.trace.schema import META
from antecede.trace.writer import UNFINISHED, write_whole

VERSION = 1
SCHEMA = pa.schema(
    [
        ("node", pa.string()),
        ("process", pa.string()),
        ("seq", pa.int64()),
        ("parents", pa.list_(pa.string())),
    ]
)
_BATCH_ROWS = 65_536


class NodeCollector(Protocol):
    """Collects the nodes of a graph as a reader finds them."""

    def add(
        self, node: str, process: str, seq: int, parents: Iterable[str], where: str, text: str | None = None
    ) -> None:
        """Add a node found at `where` in the source, with its `text` there. Its parents may come later."""

    def bad(self, what: str, example: str) -> None:
        """Count an item that cannot be used as it is."""


class DependencyTableInfo(msgspec.Struct, frozen=True):
    """The contents of `dependencies.json`."""

    source: str
    format: str
    rows: int
    processes: int
    parents: int
    """The number of parents in all."""
    parents_of_others: int
    """The number of parents that belong to another process than their child: in a log of events, messages."""
    parents_mean: float
    parents_most: int
    bad_rows: int
    bad: list[BadRowKind]
    runs: int = 1
    """The number of runs in the source, if the format delimits them, as a ShiViz log with delimiters does."""
    schema_version: int = VERSION


class DependencyWriter:
    """Collects rows in any order, then writes them with parents first. It holds them all in memory."""

    def __init__(self, source: str, form: str, strict: bool = False, bad: BadRows | None = None) -> None:
        self.source, self.form, self.runs = source, form, 1
        self._bad_rows = BadRows(source, strict) if bad is None else bad
        self._place: dict[str, int] = {}
        self._processes: dict[str, int] = {}
        self._process, self._seq = array("q"), array("q")
        self._named = array("q")
        self._named_end = array("q", [0])
        self._names: dict[str, int] = {}

    def add(
        self, node: str, process: str, seq: int, parents: Iterable[str], where: str, text: str | None = None
    ) -> None:
        """Add a row, which is at `where` in the source. Its parents may be added later.

        A table of dependencies has no column for its `text`.
        """
        if not node or not process:
            self.bad(f"rows without a {'process' if node else 'node'}, left out", where)
            return
        if node in self._place:
            self.bad("nodes that repeat a name, left out", f"{where}: {node}")
            return
        if not -(2**63) <= seq < 2**63:
            self.bad("rows whose seq is too large, left out", f"{where}: {str(seq)[:30]}")
            return
        self._place[node] = len(self._seq)
        self._process.append(self._processes.setdefault(process, len(self._processes)))
        self._seq.append(seq)
        self._named.extend(self._names.setdefault(each, len(self._names)) for each in dict.fromkeys(parents))
        self._named_end.append(len(self._named))

    def bad(self, what: str, example: str) -> None:
        """Count a bad row; a strict import ends here."""
        self._bad_rows.add(what, example)

    def write(self, folder: Path) -> DependencyTableInfo:
        """Write the table to a folder of its own; an older table there is replaced."""
        if not self._seq:
            raise InputError(f"{self.source} has no row that could be taken{self._bad_rows.first_example()}")
        nodes = list(self._place)
        parents, ends = self._resolve_parents(nodes)
        order = _parents_first(parents, ends, nodes, self.source)
        counts = np.diff(ends)
        process = np.frombuffer(self._process, np.int64)
        others = process[parents] != process[np.repeat(np.arange(len(nodes)), counts)]
        about = DependencyTableInfo(
            source=self.source,
            format=self.form,
            rows=len(nodes),
            processes=len(self._processes),
            parents=len(parents),
            parents_of_others=int(others.sum()),
            parents_mean=len(parents) / len(nodes),
            parents_most=int(counts.max()),
            bad_rows=self._bad_rows.rows,
            bad=self._bad_rows.kinds,
            runs=self.runs,
        )
        _prepare_folder(folder)
        unfinished = folder / f".{DEPENDENCIES}{UNFINISHED}"
        names, processes = pa.array(nodes, pa.string()), pa.array(list(self._processes), pa.string())
        seq = np.frombuffer(self._seq, np.int64)
        with parquet_writer(unfinished, SCHEMA) as writer:
            for start in range(0, len(nodes), _BATCH_ROWS):
                rows = order[start : start + _BATCH_ROWS]
                flat = [parents[ends[row] : ends[row + 1]] for row in rows]
                offsets = np.concatenate([[0], np.cumsum(counts[rows])]).astype(np.int32)
                columns = [
                    names.take(rows),
                    processes.take(process[rows]),
                    pa.array(seq[rows]),
                    pa.ListArray.from_arrays(offsets, names.take(np.concatenate(flat))),
                ]
                writer.write_table(pa.table(columns, schema=SCHEMA))
        write_whole(folder / TABLE_INFO, msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n")
        unfinished.rename(folder / DEPENDENCIES)
        return about

    def _resolve_parents(self, nodes: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The parents of all rows as positions, and where each row's end."""
        named = np.frombuffer(self._named, np.int64) if self._named else np.empty(0, np.int64)
        ends = np.frombuffer(self._named_end, np.int64)
        place = np.array([self._place.get(name, -1) for name in self._names], np.int64)
        parents = place[named] if len(named) else named
        unknown = np.flatnonzero(parents < 0)
        if len(unknown):
            names = list(self._names)
            children = np.searchsorted(ends, unknown, side="right") - 1
            examples = (
                f"the parents of {nodes[child]}: {names[named[one]]}"
                for child, one in zip(children, unknown, strict=True)
            )
            what = "parents that are no node, left out"
            self._bad_rows.add_all(what, examples, len(unknown), left_out=False)
            left_out = np.concatenate([[0], np.cumsum(parents < 0)])
            ends = ends - left_out[ends]
            parents = parents[parents >= 0]
        return parents, ends


def _parents_first(parents: np.ndarray, ends: np.ndarray, nodes: Sequence[str], source: str) -> np.ndarray:
    """A topological order of the rows that keeps their own where it can: Kahn's algorithm with a heap."""
    size = len(ends) - 1
    child = np.repeat(np.arange(size), np.diff(ends))
    if (parents < child).all():
        return np.arange(size)
    by_parent = np.argsort(parents, kind="stable")
    children, starts = child[by_parent].tolist(), np.searchsorted(parents[by_parent], np.arange(size + 1))
    unplaced = np.diff(ends).tolist()
    ready = [row for row, count in enumerate(unplaced) if not count]
    order = []
    while ready:
        row = heapq.heappop(ready)
        order.append(row)
        for place in range(starts[row], starts[row + 1]):
            other = children[place]
            unplaced[other] -= 1
            if not unplaced[other]:
                heapq.heappush(ready, other)
    if len(order) < size:
        raise InputError(f"{source}: {describe_cycle(nodes, ends, parents, np.array(order, np.int64))}")
    return np.array(order)


def _prepare_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a dependency table goes into a folder")
    folder.mkdir(parents=True, exist_ok=True)
    others = [file for file in folder.iterdir() if file.suffix != UNFINISHED]
    if not others:
        return
    if not (folder / TABLE_INFO).exists():
        what = "holds a trace" if (folder / META).exists() else "has something else in it"
        raise InputError(f"{folder} {what}; a dependency table goes into a folder of its own")
    read_table_info(folder)
    # dependencies.json is replaced atomically: as long as it exists, the folder is known to be ours.
    (folder / DEPENDENCIES).unlink(missing_ok=True)


def read_table_info(folder: Path) -> DependencyTableInfo:
    """Read the `dependencies.json` of a folder."""
    file = folder / TABLE_INFO
    try:
        about = msgspec.json.decode(file.read_bytes(), type=DependencyTableInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} does not describe a dependency table: {error}") from error
    if about.schema_version > VERSION:
        raise InputError(
            f"{file}: the table has schema version {about.schema_version}, this Antecede reads up to "
            f"{VERSION}; upgrade it"
        )
    return about
