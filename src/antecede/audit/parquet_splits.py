"""Reads a large run straight from Parquet files that every Spark worker can open.

That is several times as fast as reading through Spark, which makes rows one by one: names stay dictionary
codes all the way. A *split* is a unit of work: a file and some of its row groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from antecede.audit.distributed_steps import PACKED_ROWS, Batches, BatchStep, BlockPlan, pack
from antecede.errors import InputError
from antecede.trace.reader import open_any_parquet, read_dictionary_encoded
from antecede.trace.schema import KINDS, RECEIVE, SEND
from antecede.trace.validate import invalid_events

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
"""One row per process and group; times, indices and validity are those of the process's whole run."""
SENDS = pa.schema(
    [("origin", pa.string()), ("seq", pa.int64()), ("index", pa.int64()), ("group", pa.string())]
)
_SPLIT_ROWS = 1 << 20
_NAMES = ("run", "group", "process", "kind", "origin")
_NUMBERS = ("index", "seq", "time")

Columns = dict[str, np.ndarray]
Dictionaries = dict[str, list[str]]


def list_splits(files: list[Path]) -> list[tuple[str, int, int]]:
    """The splits of files: file, first and last row group. Only footers are read."""
    splits = []
    for file in files:
        footer = open_any_parquet(file).metadata
        first, rows = 0, 0
        for group in range(footer.num_row_groups):
            rows += footer.row_group(group).num_rows
            if rows >= _SPLIT_ROWS or group == footer.num_row_groups - 1:
                splits.append((str(file.resolve()), first, group))
                first, rows = group + 1, 0
    return splits


def summarise(splits: Batches) -> Iterator[pa.RecordBatch]:
    """The processes in these splits, with their groups and their first and last times; as rows of
    `SUMMARY`."""
    try:
        for codes, names in _read(splits):
            yield _summary(codes, names)
    except InputError as error:
        yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=SUMMARY)


def _summary(codes: Columns, names: Dictionaries) -> pa.RecordBatch:
    runs, groups, processes = (len(names[name]) for name in ("run", "group", "process"))
    key = (codes["run"].astype(np.int64) * groups + codes["group"]) * processes + codes["process"]
    if runs * groups * processes <= max(1 << 16, len(key)):
        counts = np.bincount(key, minlength=runs * groups * processes)
        present = np.flatnonzero(counts)
        counts = counts[present]
    else:
        present, counts = np.unique(key, return_counts=True)
    order = np.argsort(codes["run"], kind="stable")
    runs_present, begin = np.unique(codes["run"][order], return_index=True)
    run = present // (groups * processes)
    place = np.searchsorted(runs_present, run)
    extremes = [
        pick.reduceat(codes[column][order], begin)[place]
        for column in ("time", "index")
        for pick in (np.minimum, np.maximum)
    ]
    columns = [
        pa.nulls(len(present), pa.string()),
        pa.array(names["run"], pa.string()).take(pa.array(run)),
        pa.array(names["process"], pa.string()).take(pa.array(present % processes)),
        pa.array(names["group"], pa.string()).take(pa.array(present // processes % groups)),
        *map(pa.array, [counts, *extremes]),
        pa.array(np.logical_or.reduceat(_invalid(codes, names)[order], begin)[place]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SUMMARY)


def _invalid(codes: Columns, names: Dictionaries) -> np.ndarray:
    """Which rows are invalid events."""
    kind = _lookup(names["kind"], {name: place for place, name in enumerate(KINDS)})[codes["kind"]]
    origin = _lookup(names["origin"], {name: place for place, name in enumerate(names["process"])})
    return invalid_events(kind, codes["seq"], origin[codes["origin"]], codes["process"])


def sends_of_run(run: str) -> BatchStep:
    """From splits to the sends of one run, as rows of `SENDS`."""

    def step(splits: Batches) -> Iterator[pa.RecordBatch]:
        for codes, names in _read(splits):
            rows = np.flatnonzero(_is_kind(SEND, codes, names) & _in_run(codes, names, run))
            columns = [
                pa.array(names[name], pa.string()).take(pa.array(codes[name][rows]))
                if name in names
                else pa.array(codes[name][rows])
                for name in SENDS.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SENDS)

    return step


def pack_splits(plan: BlockPlan, process_names: list[str]) -> BatchStep:
    """From splits to chunks of a *dense* run, in which every origin numbers its messages from 1, all to one
    audience."""
    begin = np.zeros(len(process_names) + 1, np.int64)
    end = np.zeros(len(process_names) + 1, np.int64)
    begin[plan.origin], end[plan.origin] = plan.first[:-1], plan.first[1:]
    rank = {name: place for place, name in enumerate(process_names)}

    def encode(codes: Columns, names: Dictionaries) -> tuple[np.ndarray, ...]:
        is_event = _in_run(codes, names, plan.run) & ~_is_kind(RECEIVE, codes, names)
        rows = np.flatnonzero(is_event)
        # An origin that is not a process has rank -1: the extra entry at the end, without messages.
        origin = _lookup(names["origin"], rank)[codes["origin"][rows]]
        message = begin[origin] + codes["seq"][rows] - 1
        message[message >= end[origin]] = -1
        event = np.where(_is_kind(SEND, codes, names)[rows], -2 - message, message)
        process = _lookup(names["process"], rank).astype(np.int32)[codes["process"][rows]]
        return process, codes["index"][rows], event, codes["time"][rows]

    def step(splits: Batches) -> Iterator[pa.RecordBatch]:
        waiting: list[tuple[np.ndarray, ...]] = []
        for codes, names in _read(splits):
            waiting.append(encode(codes, names))
            if sum(len(each[0]) for each in waiting) >= PACKED_ROWS:
                yield pack(plan, *map(np.concatenate, zip(*waiting, strict=True)))
                waiting = []
        if sum(len(each[0]) for each in waiting):
            yield pack(plan, *map(np.concatenate, zip(*waiting, strict=True)))

    return step


def _in_run(codes: Columns, names: Dictionaries, run: str) -> np.ndarray:
    mine = np.array([name == run for name in names["run"]])
    return mine[codes["run"]] if not mine.all() else np.ones(len(codes["run"]), np.bool_)


def _is_kind(kind: int, codes: Columns, names: Dictionaries) -> np.ndarray:
    mine: np.ndarray = np.array([name == KINDS[kind] for name in names["kind"]], np.bool_)[codes["kind"]]
    return mine


def _lookup(names: list[str], places: dict[str, int]) -> np.ndarray:
    return np.array([places.get(name, -1) for name in names], np.int64)


def _read(splits: Batches) -> Iterator[tuple[Columns, Dictionaries]]:
    """The rows of these splits in dictionary codes, and what the codes stand for."""
    for batch in splits:
        for split in batch.to_pylist():
            groups = list(range(split["first"], split["last"] + 1))
            for rows in read_dictionary_encoded(Path(split["file"]), _NAMES, _NUMBERS, groups):
                codes = {name: rows.column(name).indices.to_numpy() for name in _NAMES}
                codes |= {name: rows.column(name).to_numpy() for name in _NUMBERS}
                yield codes, {name: rows.column(name).dictionary.to_pylist() for name in _NAMES}
