"""Converts another program's table of events to a trace, in which a message is an origin and a sequence
number.

Where messages have one id instead, the send rows say who sent it; its sequence number is its place among its
sender's sends. So the files are read twice: for the sends, which are held in memory, then for all rows, batch
by batch.
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
from antecede.trace.schema import with_all_columns
from antecede.trace.validate import id_sent_twice

_SEND_COLUMNS = ("run", "process", "index", "kind", MESSAGE, "origin", "seq")
_NOBODY = "nobody's "


def convert_to_trace(
    path: Path, files: list[Path], mapping: ColumnMap, bad: BadRows | None = None
) -> Iterator[pa.Table]:
    """The rows of the files at `path` in our schema; `bad` counts those that cannot be read.

    A message that nobody sent gets an origin that no process has; all messages keep their ids. A process's
    deliveries of its own messages are marked as events of their own.
    """
    bad = bad or BadRows(str(path))
    sends = _Sends(path, files, mapping, bad)
    # Bad rows were counted when the sends were read.
    for rows in read_mapped_rows(path, files, mapping, BadRows(str(path), strict=False)):
        place = sends.find(rows)
        if MESSAGE in rows.column_names:
            rows = sends.name_messages(rows, place)
        elif mapping.first_seq == 0:
            rows = rows.append_column(MESSAGE, _counted_from_zero(rows))
        yield with_all_columns(_with_own_deliveries(rows, place))


class _Sends:
    """The sends of all runs, by message."""

    def __init__(self, path: Path, files: list[Path], mapping: ColumnMap, bad: BadRows) -> None:
        tables, size = [], 0
        bad.names_receivers = False
        for rows in read_mapped_rows(path, files, mapping, bad):
            size += rows.num_rows
            if "destinations" in rows.column_names:
                named = rows.num_rows - rows.column("destinations").null_count
                bad.names_receivers = bad.names_receivers or named > 0
            present = [name for name in _SEND_COLUMNS if name in rows.column_names]
            tables.append(rows.select(present).filter(pc.equal(rows.column("kind"), "send")))
        if bad.rows and not size:
            raise InputError(f"{path} has no row that could be taken{bad.first_example()}")
        rows = pa.concat_tables(tables, promote_options="default")
        rows = rows.sort_by([(name, "ascending") for name in ("run", "process", "index")])
        self.process = rows.column("process").combine_chunks()
        self.seq = _numbers_by_process(rows.column("run"), rows.column("process"))
        self._places: dict[str, dict[str, int]] = {}
        keys = zip(rows.column("run").to_pylist(), _keys(rows).to_pylist(), strict=True)
        for place, (run, key) in enumerate(keys):
            first = self._places.setdefault(run, {}).setdefault(key, place)
            if first != place:
                one, other = self.process[first].as_py(), self.process[place].as_py()
                raise InputError(f"{path}, run {run}: {id_sent_twice(key, one, other)}")
        self._nobody = _NOBODY
        while any(name.startswith(self._nobody) for name in self.process.unique().to_pylist()):
            self._nobody = f"?{self._nobody}"

    def find(self, rows: pa.Table) -> np.ndarray:
        """The position of the send of each row's message; -1 if there is none."""
        runs, messages = _dictionary(rows.column("run")), _dictionary(_keys(rows))
        width = max(len(messages.dictionary), 1)
        codes = runs.indices.to_numpy().astype(np.int64) * width + messages.indices.to_numpy()
        pairs, inverse = np.unique(codes, return_inverse=True)
        names = messages.dictionary.to_pylist()
        by_run = [self._places.get(run, {}) for run in runs.dictionary.to_pylist()]
        found = [by_run[pair // width].get(names[pair % width], -1) for pair in pairs.tolist()]
        return np.array(found, np.int64)[inverse] if found else np.empty(0, np.int64)

    def name_messages(self, rows: pa.Table, place: np.ndarray) -> pa.Table:
        """The rows with origin and seq instead of an id."""
        sent = pa.array(place >= 0)
        somewhere = pa.array(place, pa.int64(), mask=place < 0)
        nobody = pc.binary_join_element_wise(self._nobody, rows.column(MESSAGE), "")
        origin = pc.if_else(sent, self.process.take(somewhere), nobody)
        seq = pc.if_else(sent, pa.array(self.seq, pa.int64()).take(somewhere), 1)
        return rows.append_column("origin", origin).append_column("seq", seq)


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    """The key of each row's message: its id, or origin:seq."""
    if MESSAGE in rows.column_names:
        return rows.column(MESSAGE)
    return pc.binary_join_element_wise(rows.column("origin"), rows.column("seq").cast(pa.string()), ":")


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.combine_chunks().dictionary_encode()


def _numbers_by_process(runs: pa.ChunkedArray, processes: pa.ChunkedArray) -> np.ndarray:
    """The position of each row among its process's rows, from 1; rows are sorted by run and process."""
    new = np.ones(len(runs), np.bool_)
    run, process = (_dictionary(column).indices.to_numpy() for column in (runs, processes))
    new[1:] = (run[1:] != run[:-1]) | (process[1:] != process[:-1])
    firsts = np.flatnonzero(new)
    return np.arange(len(new)) - np.repeat(firsts, np.diff(np.append(firsts, len(new)))) + 1


def _with_own_deliveries(rows: pa.Table, place: np.ndarray) -> pa.Table:
    """The rows with a mark on senders' deliveries of their own messages."""
    own = pc.and_(
        pc.equal(rows.column("kind"), "deliver"), pc.equal(rows.column("process"), rows.column("origin"))
    )
    own = own.to_numpy(zero_copy_only=False) & (place >= 0)
    return rows.append_column("own_delivery", pa.array(np.ones(len(own), np.int64), mask=~own))


def _counted_from_zero(rows: pa.Table) -> pa.ChunkedArray:
    """The messages under the names in their log: origin:seq, where the first seq is 0."""
    seq = pc.subtract(rows.column("seq"), 1).cast(pa.string())
    return pc.binary_join_element_wise(rows.column("origin"), seq, ":")
