"""Rows straight from Parquet files, where every worker can open them.

That is several times as fast as through Spark, which makes rows one by one: names stay numbers all the way.

An *item* is a piece of work: a file and some of its row groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antecede.audit.distributed_steps import PACKED_ROWS, Batches, BlockPlan, packed
from antecede.errors import InputError
from antecede.trace.reader import read_dictionary_encoded
from antecede.trace.schema import KINDS
from antecede.trace.validate import RECEIVE, SEND, invalid_events

ITEM = pa.schema([("file", pa.string()), ("first", pa.int32()), ("last", pa.int32())])
SUMMARY = pa.schema(
    [
        ("error", pa.string()),
        ("run", pa.string()),
        ("process", pa.string()),
        ("group", pa.string()),
        ("rows", pa.int64()),
        *((name, pa.int64()) for name in ("earliest", "latest", "lowest", "highest")),
        ("invalid", pa.bool_()),
    ]
)
"""What there is of each process in each group; times and indexes are those of its whole run."""
SENDS = pa.schema(
    [("origin", pa.string()), ("seq", pa.int64()), ("index", pa.int64()), ("group", pa.string())]
)
_ITEM_ROWS = 1 << 20
_NAMES = ("run", "group", "process", "kind", "origin")
_NUMBERS = ("index", "seq", "time")

Columns = dict[str, np.ndarray]
Names = dict[str, list[str]]


def items(files: list[Path]) -> list[tuple[str, int, int]]:
    """The work that files are; their footers are read, no rows."""
    found = []
    for file in files:
        about = pq.ParquetFile(file).metadata
        first, rows = 0, 0
        for group in range(about.num_row_groups):
            rows += about.row_group(group).num_rows
            if rows >= _ITEM_ROWS or group == about.num_row_groups - 1:
                found.append((str(file.resolve()), first, group))
                first, rows = group + 1, 0
    return found


def summarise(work: Batches) -> Iterator[pa.RecordBatch]:
    """Who is in these files, in which groups, and from when to when."""
    try:
        for codes, names in _read(work):
            yield _summary(codes, names)
    except InputError as error:
        yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=SUMMARY)


def _summary(codes: Columns, names: Names) -> pa.RecordBatch:
    runs, groups, processes = (len(names[name]) for name in ("run", "group", "process"))
    key = (codes["run"].astype(np.int64) * groups + codes["group"]) * processes + codes["process"]
    if runs * groups * processes <= max(1 << 16, len(key)):
        counts = np.bincount(key, minlength=runs * groups * processes)
        there = np.flatnonzero(counts)
        counts = counts[there]
    else:
        there, counts = np.unique(key, return_counts=True)
    order = np.argsort(codes["run"], kind="stable")
    present, begin = np.unique(codes["run"][order], return_index=True)
    kind = _places(names["kind"], {name: place for place, name in enumerate(KINDS)})[codes["kind"]]
    origin = _places(names["origin"], {name: place for place, name in enumerate(names["process"])})
    invalid = invalid_events(kind, codes["seq"], origin[codes["origin"]], codes["process"])
    run = there // (groups * processes)
    place = np.searchsorted(present, run)
    extremes = [
        pick.reduceat(codes[column][order], begin)[place]
        for column in ("time", "index")
        for pick in (np.minimum, np.maximum)
    ]
    columns = [
        pa.nulls(len(there), pa.string()),
        pa.array(names["run"], pa.string()).take(pa.array(run)),
        pa.array(names["process"], pa.string()).take(pa.array(there % processes)),
        pa.array(names["group"], pa.string()).take(pa.array(there // processes % groups)),
        *map(pa.array, [counts, *extremes]),
        pa.array(np.logical_or.reduceat(invalid[order], begin)[place]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SUMMARY)


def sends_of(run: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The sends of one run."""

    def read(work: Batches) -> Iterator[pa.RecordBatch]:
        for codes, names in _read(work):
            is_send = np.array([name == KINDS[SEND] for name in names["kind"]])[codes["kind"]]
            rows = np.flatnonzero(is_send & _in_run(codes, names, run))
            columns = [
                pa.array(names[name], pa.string()).take(pa.array(codes[name][rows]))
                if name in names
                else pa.array(codes[name][rows])
                for name in SENDS.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SENDS)

    return read


def pack(plan: BlockPlan, process_names: list[str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The parcels of a run in which every origin numbers its messages from 1 on, all to one audience."""
    begin = np.zeros(len(process_names) + 1, np.int64)
    end = np.zeros(len(process_names) + 1, np.int64)
    begin[plan.origin], end[plan.origin] = plan.first[:-1], plan.first[1:]

    rank = {name: place for place, name in enumerate(process_names)}

    def coded(codes: Columns, names: Names) -> tuple[np.ndarray, ...]:
        receive = np.array([name == KINDS[RECEIVE] for name in names["kind"]])
        rows = np.flatnonzero(_in_run(codes, names, plan.run) & ~receive[codes["kind"]])
        # Whoever is no process has sent nothing, as what stands last.
        origin = _places(names["origin"], rank)[codes["origin"][rows]]
        message = begin[origin] + codes["seq"][rows] - 1
        message[message >= end[origin]] = -1
        sends = np.array([name == KINDS[SEND] for name in names["kind"]])[codes["kind"][rows]]
        process = _places(names["process"], rank).astype(np.int32)[codes["process"][rows]]
        return process, codes["index"][rows], np.where(sends, -2 - message, message), codes["time"][rows]

    def read(work: Batches) -> Iterator[pa.RecordBatch]:
        waiting: list[tuple[np.ndarray, ...]] = []
        for codes, names in _read(work):
            waiting.append(coded(codes, names))
            if sum(len(each[0]) for each in waiting) >= PACKED_ROWS:
                yield packed(plan, *map(np.concatenate, zip(*waiting, strict=True)))
                waiting = []
        if sum(len(each[0]) for each in waiting):
            yield packed(plan, *map(np.concatenate, zip(*waiting, strict=True)))

    return read


def _in_run(codes: Columns, names: Names, run: str) -> np.ndarray:
    mine = np.array([name == run for name in names["run"]])
    return mine[codes["run"]] if not mine.all() else np.ones(len(codes["run"]), np.bool_)


def _places(names: list[str], places: dict[str, int]) -> np.ndarray:
    return np.array([places.get(name, -1) for name in names], np.int64)


def _read(work: Batches) -> Iterator[tuple[Columns, Names]]:
    """The rows of these items: names as numbers, and what these stand for."""
    for batch in work:
        for item in batch.to_pylist():
            groups = list(range(item["first"], item["last"] + 1))
            for read in read_dictionary_encoded(Path(item["file"]), _NAMES, _NUMBERS, groups):
                codes = {name: read.column(name).indices.to_numpy() for name in _NAMES}
                codes |= {name: read.column(name).to_numpy() for name in _NUMBERS}
                yield codes, {name: read.column(name).dictionary.to_pylist() for name in _NAMES}
