"""Synthetic histories of many groups, and a check that an order respects them.

In a group ten writers answer each other: a row follows its writer's previous one and one or two recent ones.
Its time is by its writer's clock, and clocks are off by about 20 ms, so that sorting by time puts some rows
before the rows they follow. Rows are generated in the order of true time, and then shuffled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

WRITERS = 10
GAP, SKEW = 100e6, 20e6
"""Nanoseconds: between two rows of a group on average, and of a clock's error (standard deviation)."""
SHUFFLES = {
    "stream": "within windows of 1,000 rows of the whole stream",
    "group": "within windows of 1,000 rows of each group",
}
WINDOW = 1_000
BLOCK = 1_000_000
"""The most rows to generate at once; larger workloads are written in several blocks."""
Array = np.ndarray[Any, Any]


class Histories:
    """Groups that continue from block to block."""

    def __init__(self, groups: int, seed: int, numbers: bool = False) -> None:
        self._numbers = numbers
        self._chance = np.random.default_rng(seed)
        self._groups = groups
        self._done = 0
        self._last = np.full((groups, WRITERS), -1)
        self._now = np.full((groups, 1), 1.7e18) + self._chance.uniform(0, GAP, (groups, 1))
        self._skew = self._chance.normal(0, SKEW, (groups, WRITERS))

    def block(self, rows: int, shuffle: str) -> pa.Table:
        """The next so many rows of every group, in the order in which they arrive."""
        chance, shape = self._chance, (self._groups, rows)
        group, number = np.indices(shape)
        number += self._done
        writer = chance.integers(WRITERS, size=shape)
        sent = self._now + chance.exponential(GAP, shape).cumsum(axis=1)
        follows = self._follows(number, writer)
        order = _arrival(sent, number, shuffle, chance)
        self._done += rows
        self._now = sent[:, -1:]
        time = (sent + np.take_along_axis(self._skew, writer, axis=1)).astype(np.int64)
        ids = _numbers if self._numbers else _ids
        return _table(
            group.ravel()[order], number.ravel()[order], follows[order], time.ravel()[order], chance, ids
        )

    def _follows(self, number: Array, writer: Array) -> Array:
        """Up to three rows of the same group for each row, by number; -1 is none."""
        own = np.full_like(number, -1)
        for each in range(WRITERS):
            latest = np.maximum.accumulate(
                np.where(writer == each, number, self._last[:, each : each + 1]), axis=1
            )
            before = np.concatenate((self._last[:, each : each + 1], latest[:, :-1]), axis=1)
            own = np.where(writer == each, before, own)
            self._last[:, each] = latest[:, -1]
        # Every row but a group's first has one to follow.
        near = np.maximum(number - self._chance.geometric(0.5, number.shape), np.minimum(number - 1, 0))
        far = near - self._chance.geometric(0.5, number.shape)
        far[(far < 0) | (far == own) | (self._chance.random(number.shape) < 0.5)] = -1
        own[own == near] = -1
        return np.stack((own, near, far), axis=-1).reshape(-1, 3)


def _arrival(sent: Array, number: Array, shuffle: str, chance: np.random.Generator) -> Array:
    """The order of arrival."""
    groups, rows = sent.shape
    order = np.argsort(sent, axis=None, kind="stable")
    if shuffle == "stream":
        return order[np.argsort(np.arange(order.size) // WINDOW + chance.random(order.size))]
    # A group has its places in the stream as before, with other rows in them.
    within = np.argsort(number // WINDOW + chance.random(sent.shape), axis=1)
    moved: Array = (np.arange(groups)[:, None] * rows + within).ravel()
    return moved[order]


def _table(
    group: Array,
    number: Array,
    follows: Array,
    time: Array,
    chance: np.random.Generator,
    ids: Callable[[Array, Array], pa.Array],
) -> pa.Table:
    some = follows >= 0
    ends = np.concatenate(([0], some.sum(axis=1).cumsum())).astype(np.int32)
    causes = ids(np.broadcast_to(group[:, None], follows.shape)[some], follows[some])
    names = pa.array([f"room-{each:04}" for each in range(group.max() + 1)])
    return pa.table({
        "room": names.take(pa.array(group)),
        "event_id": ids(group, number),
        "follows": pa.ListArray.from_arrays(pa.array(ends), causes),
        "time": time,
        "body": _hexadecimal(chance.bytes(20 * len(group)), 40),
    })  # fmt: skip


def _numbers(_: Array, number: Array) -> pa.Array:
    """Sequence numbers within a group."""
    return pa.array(number, pa.int64())


def _ids(group: Array, number: Array) -> pa.Array:
    """Opaque ids, unique because the scrambling is a bijection."""
    key = (group.astype(np.uint64) << np.uint64(40)) | number.astype(np.uint64)
    halves = np.stack((_scrambled(key), _scrambled(~key)), axis=-1)
    return _hexadecimal(halves.astype(">u8").tobytes(), 32)


def _scrambled(key: Array) -> Array:
    """The finaliser of SplitMix64."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: Array = key ^ (key >> np.uint64(31))
    return scrambled


def _hexadecimal(raw: bytes, width: int) -> pa.Array:
    ends = np.arange(0, 2 * len(raw) + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(raw.hex().encode())]
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)


def write(table: pa.Table, folder: Path, files: int, first: int = 0) -> list[Path]:
    """Write rows as several files, which a stream reads in the order of their age."""
    folder.mkdir(parents=True, exist_ok=True)
    cuts = np.linspace(0, table.num_rows, files + 1).astype(int)
    paths = []
    for number, (start, end) in enumerate(pairwise(cuts), start=first):
        paths.append(folder / f"part-{number:05}.parquet")
        hidden = folder / f".{paths[-1].name}"
        # Several row groups a file, so that several tasks can read it.
        pq.write_table(table.slice(start, end - start), hidden, row_group_size=50_000)
        os.utime(hidden, (1.6e9 + number, 1.6e9 + number))
        hidden.rename(paths[-1])
    return paths


def make(folder: Path, rows: int, groups: int, shuffle: str, files: int, seed: int) -> Path:
    """Write a workload as Parquet files, unless it exists."""
    place = folder / f"{rows}x{groups}-{shuffle}-{files}-{seed}"
    if not place.exists():
        each, blocks = rows // groups, -(-rows // BLOCK)
        if files % blocks or each % blocks:
            raise SystemExit(f"{rows:,} rows are made in {blocks} blocks, which have to be alike")
        histories = Histories(groups, seed)
        unfinished = folder / f".{place.name}"
        for block in range(blocks):
            table = histories.block(each // blocks, shuffle)
            write(table, unfinished, files // blocks, block * files // blocks)
        unfinished.rename(place)
    return place


def inverted(given: Path, got: pa.Table) -> int:
    """How many dependencies an order violates; ends the benchmark if rows are lost, duplicated or changed.

    Without a column `causal_index` the order is that of the rows themselves.
    """
    ids = _column(got, "event_id")
    _refuse_changed(given, got, ids)
    index = np.arange(len(ids))
    if "causal_index" in got.column_names:
        index = got["causal_index"].to_numpy()
        rooms = pc.dictionary_encode(_column(got, "room")).indices.to_numpy().astype(np.int64)
        if len(np.unique(rooms * (index.max() + 1) + index)) < len(ids):
            raise SystemExit("two rows of a group have the same causal_index")
    follows = _column(got, "follows")
    causes = pc.index_in(follows.flatten(), value_set=ids).to_numpy()
    return int((index[causes] >= index[pc.list_parent_indices(follows).to_numpy()]).sum())


def _refuse_changed(given: Path, got: pa.Table, ids: pa.Array) -> None:
    names = pq.read_schema(next(given.glob("*.parquet"))).names
    places = pc.index_in(ids, value_set=_column(pq.read_table(given, columns=["event_id"]), "event_id"))
    rows = sum(pq.read_metadata(file).num_rows for file in given.glob("*.parquet"))
    if places.null_count or len(ids) != rows or len(pc.unique(places)) != rows:
        raise SystemExit(f"{len(pc.unique(places)):,} different rows of {rows:,}, and {len(ids):,} in all")
    for name in names:
        # One column at a time, for the sake of memory.
        before = _column(pq.read_table(given, columns=[name]), name)
        if not before.take(places).equals(_column(got, name).cast(before.type)):
            raise SystemExit(f"{name} has changed on the way")


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name].combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
