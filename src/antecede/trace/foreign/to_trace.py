"""Somebody else's table of events as a trace: every message by its origin and its number there.

Where messages have one id, the send rows say whose it is; its number is its place among its sender's. So
the files are read twice: for the sends, which are held in memory, then for everything, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.column_map import MESSAGE, ColumnMap
from antecede.trace.foreign.mapped_rows import read_mapped_rows
from antecede.trace.schema import SCHEMA
from antecede.trace.validate import id_sent_twice

_OF_SENDS = ("run", "process", "index", "kind", MESSAGE, "origin", "seq")
_UNSENT = "nobody's "


def convert_to_trace(
    path: Path, files: list[Path], mapping: ColumnMap, bad: BadRows | None = None
) -> Iterator[pa.Table]:
    """The rows of the files at `path` in our schema; `bad` counts those that cannot be read, if it is there.

    What nobody sent gets an origin that no process has. A process's first delivery of its own message is
    part of the send, as in any trace, and left out.
    """
    bad = bad or BadRows(str(path))
    sends = _Sends(path, files, mapping, bad)
    had: set[int] = set()
    # What is wrong was counted when the sends were read.
    for rows in read_mapped_rows(path, files, mapping, BadRows(str(path), strict=False)):
        place = sends.places(rows)
        if MESSAGE in rows.column_names:
            rows = sends.named(rows, place)
        yield _whole(_without_own(rows, place, had))


class _Sends:
    """Who sent what."""

    def __init__(self, path: Path, files: list[Path], mapping: ColumnMap, bad: BadRows) -> None:
        found, size = [], 0
        for rows in read_mapped_rows(path, files, mapping, bad):
            size += rows.num_rows
            there = [name for name in _OF_SENDS if name in rows.column_names]
            found.append(rows.select(there).filter(pc.equal(rows.column("kind"), "send")))
        if bad.rows and not size:
            raise InputError(f"{path} has no row that could be taken{bad.first_example()}")
        rows = pa.concat_tables(found, promote_options="default")
        rows = rows.sort_by([(name, "ascending") for name in ("run", "process", "index")])
        self.process = rows.column("process").combine_chunks()
        self.seq = _numbers_within(rows.column("run"), rows.column("process"))
        self._known: dict[str, dict[str, int]] = {}
        keys = zip(rows.column("run").to_pylist(), _keys(rows).to_pylist(), strict=True)
        for place, (run, key) in enumerate(keys):
            first = self._known.setdefault(run, {}).setdefault(key, place)
            if first != place:
                one, other = self.process[first].as_py(), self.process[place].as_py()
                raise InputError(f"{path}, run {run}: {id_sent_twice(key, one, other)}")
        self._nobody = _UNSENT
        while any(name.startswith(self._nobody) for name in self.process.unique().to_pylist()):
            self._nobody = f"?{self._nobody}"

    def places(self, rows: pa.Table) -> np.ndarray:
        """Which send each row is about; -1 if there is none."""
        runs, messages = _coded(rows.column("run")), _coded(_keys(rows))
        width = max(len(messages.dictionary), 1)
        codes = runs.indices.to_numpy().astype(np.int64) * width + messages.indices.to_numpy()
        pairs, inverse = np.unique(codes, return_inverse=True)
        names = messages.dictionary.to_pylist()
        known = [self._known.get(run, {}) for run in runs.dictionary.to_pylist()]
        found = [known[pair // width].get(names[pair % width], -1) for pair in pairs.tolist()]
        return np.array(found, np.int64)[inverse] if found else np.empty(0, np.int64)

    def named(self, rows: pa.Table, place: np.ndarray) -> pa.Table:
        """The rows with origin and seq instead of an id."""
        sent = pa.array(place >= 0)
        somewhere = pa.array(place, pa.int64(), mask=place < 0)
        nobody = pc.binary_join_element_wise(self._nobody, rows.column(MESSAGE), "")
        origin = pc.if_else(sent, self.process.take(somewhere), nobody)
        seq = pc.if_else(sent, pa.array(self.seq, pa.int64()).take(somewhere), 1)
        return rows.append_column("origin", origin).append_column("seq", seq)


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    """What names the message of each row."""
    if MESSAGE in rows.column_names:
        return rows.column(MESSAGE)
    return pc.binary_join_element_wise(rows.column("origin"), rows.column("seq").cast(pa.string()), ":")


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.combine_chunks().dictionary_encode()


def _numbers_within(runs: pa.ChunkedArray, processes: pa.ChunkedArray) -> np.ndarray:
    """The place of each row among its process's, from 1; they come one process after the other."""
    new = np.ones(len(runs), np.bool_)
    run, process = (_coded(column).indices.to_numpy() for column in (runs, processes))
    new[1:] = (run[1:] != run[:-1]) | (process[1:] != process[:-1])
    firsts = np.flatnonzero(new)
    return np.arange(len(new)) - np.repeat(firsts, np.diff(np.append(firsts, len(new)))) + 1


def _without_own(rows: pa.Table, place: np.ndarray, had: set[int]) -> pa.Table:
    delivered = pc.equal(rows.column("kind"), "deliver").to_numpy(zero_copy_only=False)
    mine = pc.equal(rows.column("process"), rows.column("origin")).to_numpy(zero_copy_only=False)
    kept = np.ones(rows.num_rows, np.bool_)
    for row in np.flatnonzero(delivered & mine & (place >= 0)).tolist():
        kept[row] = place[row] in had
        had.add(int(place[row]))
    return rows if kept.all() else rows.filter(pa.array(kept))


def _whole(rows: pa.Table) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)
