"""Reads one run of a trace as numbers, a column at a time and without Spark.

Rows come in each process's own order, one process (a *lane*) after the other. Messages are numbered by origin
and seq. About 45 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from antecede.errors import InputError
from antecede.trace.reader import (
    natural_order,
    open_parquet,
    read_batches,
    read_dictionary_encoded,
    read_metas,
    trace_files,
)
from antecede.trace.schema import DELIVER, KINDS, RECEIVE, SEND
from antecede.trace.validate import check_encoded_run, unknown_kind

_NAMES = ("run", "process", "kind", "origin")
_NUMBERS = ("index", "seq", "time")
_MAX_SPREAD = 4
"""Sequence numbers are used directly as array indices if the array has at most this many times the rows."""


class Messages(NamedTuple):
    """The messages of a run, by number; numbers have gaps where senders' sequence numbers have."""

    first: np.ndarray
    """The first number of each origin; at the end, one more than the last number."""
    seq: np.ndarray
    """Ascending for each origin."""
    ids: list[str] | None
    """Their own ids, by number; "" if a message has none."""


class RunColumns(NamedTuple):
    """The rows of one run in numbers."""

    run: str
    origins: list[str]
    """The names of the lanes, then of origins that have no rows of their own."""
    lane_start: np.ndarray
    """Where each lane's rows begin; one more at the end."""
    index_in_trace: np.ndarray
    kind: np.ndarray
    origin: np.ndarray
    message: np.ndarray
    time: np.ndarray
    messages: Messages

    @property
    def lanes(self) -> list[str]:
        return self.origins[: len(self.lane_start) - 1]


class _Codes:
    """Numbers for names, in the order in which they occur."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def encode(self, column: pa.DictionaryArray) -> np.ndarray:
        """The number of each value; only values that occur get one."""
        if not len(column):
            return np.empty(0, np.int32)
        indices = column.indices.to_numpy()
        codes = np.full(len(column.dictionary), -1, np.int32)
        for place in np.unique(indices):
            codes[place] = self.names.setdefault(column.dictionary[int(place)].as_py(), len(self.names))
        encoded: np.ndarray = codes[indices]
        return encoded


def read_columns(path: Path, run: str | None = None) -> RunColumns:
    """The rows of one run of the trace at `path`; a trace of several runs needs its name."""
    files = trace_files(path)
    codes = {name: _Codes() for name in _NAMES}
    parts: list[list[np.ndarray]] = []
    ids: list[pa.Array] = []
    for batch in _batches(files):
        parts.append(
            [codes[name].encode(batch.column(name)) for name in _NAMES]
            + [batch.column(name).to_numpy() for name in _NUMBERS]
        )
        if "message" in batch.schema.names:
            ids.append(batch.column("message"))
    if not sum(len(part[0]) for part in parts):
        raise InputError(f"{path} has no events")
    columns = dict(zip((*_NAMES, *_NUMBERS), map(np.concatenate, zip(*parts, strict=True)), strict=True))
    del parts
    chosen, mine = _choose_run(path, codes["run"].names, columns["run"], run)
    if len(codes["run"].names) > 1:
        columns = {name: column[mine] for name, column in columns.items()}
    texts = _texts(ids, mine) if len(ids) else None
    members = [meta.groups.values() for meta in read_metas(path) if meta.run == chosen]
    silent = {name for groups in members for group in groups for name in group}
    return _numbered(chosen, codes, columns, texts, silent)


def _batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    has_ids = any(
        file.suffix != ".parquet" or "message" in open_parquet(file).schema_arrow.names for file in files
    )
    for file in files:
        if file.suffix == ".parquet" and not has_ids:
            yield from read_dictionary_encoded(file, _NAMES, _NUMBERS)
            continue
        for table in read_batches(file):
            whole = table.combine_chunks()
            columns = {name: _one(whole.column(name).dictionary_encode()) for name in _NAMES}
            columns |= {name: _one(whole.column(name)) for name in _NUMBERS}
            no_ids = pa.nulls(whole.num_rows, pa.string())
            columns["message"] = _one(whole.column("message")) if "message" in table.column_names else no_ids
            yield pa.record_batch(columns)


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _choose_run(
    path: Path, names: dict[str, int], column: np.ndarray, run: str | None
) -> tuple[str, np.ndarray]:
    """The name of the run, and where its rows are."""
    if run is None and len(names) > 1:
        raise InputError(f"{path} has {len(names):,} runs; name one with --run, such as {min(names)}")
    if run is not None and run not in names:
        raise InputError(f"{path} has no run {run}")
    chosen = run if run is not None else next(iter(names))
    return chosen, np.flatnonzero(column == names[chosen])


def _texts(ids: list[pa.Array], mine: np.ndarray) -> pa.ChunkedArray:
    return pa.chunked_array(ids, pa.string()).take(pa.array(mine))


def _numbered(
    run: str,
    codes: dict[str, _Codes],
    columns: dict[str, np.ndarray],
    texts: pa.ChunkedArray | None,
    silent: set[str],
) -> RunColumns:
    present = np.unique(columns["process"])
    by_code = list(codes["process"].names)
    lanes = sorted({by_code[code] for code in present} | silent, key=natural_order)
    senders = list(codes["origin"].names)
    used = {senders[code] for code in np.unique(columns["origin"])}
    origins = [*lanes, *sorted(used - {*lanes}, key=natural_order)]
    rank = {name: place for place, name in enumerate(origins)}
    process = np.array([rank.get(name, -1) for name in by_code], np.int32)[columns["process"]]
    origin = np.array([rank.get(name, -1) for name in senders], np.int32)[columns["origin"]]
    kind = _kinds(codes["kind"].names)[columns["kind"]]
    order = _lane_order(process, columns["index"])
    process, origin, kind = process[order], origin[order], kind[order]
    index, seq, time = (columns[name][order] for name in _NUMBERS)
    words = pa.chunked_array([pa.DictionaryArray.from_arrays(kind, pa.array(KINDS))])
    try:
        check_encoded_run(origins, words, np.arange(len(kind)), process, index, kind, origin, seq)
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    message, messages = _number_messages(origin, seq, len(origins))
    if texts is not None and texts.null_count < len(texts):
        messages = messages._replace(ids=_ids(texts, order, kind, message, messages))
    start = np.searchsorted(process, np.arange(len(lanes) + 1))
    return RunColumns(run, origins, start, index, kind, origin, message, time, messages)


def _kinds(words: dict[str, int]) -> np.ndarray:
    for word in words:
        if word not in KINDS:
            raise InputError(unknown_kind(word))
    return np.array([KINDS.index(word) for word in words], np.int8)


def _lane_order(process: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows by lane and index. Most traces have each lane's in order already: a radix sort is enough."""
    small = process.astype(np.uint16) if process.max(initial=0) < 1 << 16 else process
    order = np.argsort(small, kind="stable")
    if ((np.diff(index[order]) < 0) & (np.diff(process[order]) == 0)).any():
        return np.lexsort((index, process))
    return order


def _number_messages(origin: np.ndarray, seq: np.ndarray, origins: int) -> tuple[np.ndarray, Messages]:
    """The number of each row's message, by its seq if senders count without large gaps; -1 for a row without
    a message."""
    highest = np.zeros(origins, np.int64)
    np.maximum.at(highest, origin, seq)
    if float(highest.astype(np.float64).sum()) <= _MAX_SPREAD * len(seq) + 1024:
        first = np.concatenate([[0], np.cumsum(highest)])
        numbers = np.arange(first[-1]) - np.repeat(first[:-1], highest) + 1
        message = np.where(seq > 0, first[origin] + seq - 1, -1).astype(np.int32)
        return message, Messages(first, numbers, None)
    order = np.lexsort((seq, origin))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(origin[order]) != 0) | (np.diff(seq[order]) != 0)
    message = np.empty(len(order), np.int32)
    message[order] = np.cumsum(new) - 1
    message[seq < 1] = -1
    first = np.searchsorted(origin[order][new], np.arange(origins + 1))
    return message, Messages(first, seq[order][new], None)


def _ids(
    texts: pa.ChunkedArray, order: np.ndarray, kind: np.ndarray, message: np.ndarray, messages: Messages
) -> list[str]:
    """The trace's own name of each message: at its send, or else at any of its rows."""
    row = np.full(len(messages.seq), -1, np.int64)
    for which in (kind != DELIVER, kind == DELIVER, kind == RECEIVE, kind == SEND):
        places = np.flatnonzero(which & (message >= 0))
        row[message[places]] = order[places]
    named = texts.take(pa.array(np.maximum(row, 0))).to_pylist()
    return [(text or "") if place >= 0 else "" for text, place in zip(named, row.tolist(), strict=True)]
