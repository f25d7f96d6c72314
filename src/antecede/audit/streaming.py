"""Judges a clean trace in one pass over its rows.

A recorder that sees all events writes rows in a valid order: each process's rows in its own order, and no
delivery before its send. Such a trace can be judged as it is read. Each process counts the messages it has
from every origin; a message carries its sender's counts, a vector clock; a delivery is in causal order if the
process has reached those counts. The sender's direct knowledge is enough: had an indirect cause been missing,
it would have been missing at an earlier delivery (paper 001, Proposition 1).

The answer is the verdict on a clean run, or None, which calls for the full audit; this includes invalid rows,
which the full audit reports. Memory is processes² and one vector per message that is not yet delivered
everywhere; time is processes / 16 steps per delivery.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from antecede.causality import Verdict
from antecede.jit import njit_plain
from antecede.trace.reader import open_parquet, read_dictionary_encoded
from antecede.trace.schema import DELIVER, RECEIVE, SEND, Members

_NAMES = ("run", "group", "process", "kind", "origin")
_NUMBERS = ("index", "seq")

MAX_PROCESSES = 10_000
"""The most processes: above that, a count for every pair of processes takes too much memory."""
_MAX_BYTES = 1 << 30
"""Bytes for the vectors of messages in flight."""

_CONTINUE, _FULL, _NOT_CLEAN = range(3)
_FREE, _MESSAGES, _DELIVERIES, _IN_FLIGHT = range(4)


class _ReplayState(NamedTuple):
    counters: np.ndarray
    last_index: np.ndarray
    """The index of each process's last row."""
    delivered: np.ndarray
    """How many messages of each origin each process has."""
    vectors: np.ndarray
    """The vector clocks of messages in flight."""
    pending: np.ndarray
    """For each of these vectors, how many processes have not delivered its message yet."""
    free: np.ndarray
    """A stack of unused vectors."""
    vector_of: np.ndarray
    """For each origin a ring: the vector of the message with that sequence number; -1 if none."""


class OnePassAudit:
    """The audit of a run of one group with `size` processes, a batch of rows at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._clean = 0 < size <= MAX_PROCESSES
        self._state = _create_state(size if self._clean else 0)

    def take(self, rows: tuple[Any, ...]) -> bool:
        """Judge the next rows: processes (int32), their indices, kinds and origins (int32), and numbers.

        False if the run is not clean as far as one pass can tell; later rows are not looked at.
        """
        done, count = 0, len(rows[0])
        while self._clean and done < count:
            done, outcome = _replay(self._state, rows, done)
            if outcome == _FULL and 2 * self._state.vectors.nbytes <= _MAX_BYTES:
                self._state = _grow(self._state)
            elif outcome != _CONTINUE:
                self._clean = False
        return self._clean

    def verdict(self) -> Verdict | None:
        """The verdict on a clean run after its last row; None if it is not clean."""
        counters = self._state.counters
        if not self._clean or counters[_IN_FLIGHT]:
            return None
        return Verdict.no_faults(self._size, int(counters[_MESSAGES]), int(counters[_DELIVERIES]))


def verdict_if_clean(files: list[Path], run: str, members: Members) -> Verdict | None:
    """The verdict on a run whose rows are in these files, if they show that it is clean."""
    if len(members) != 1:
        return None
    (group, names), *_ = members.items()
    if len(set(names)) < len(names):
        return None
    audit = OnePassAudit(len(names))
    for rows in _encoded_rows(files, run, group, names):
        if rows is None or not audit.take(rows):
            return None
    return audit.verdict()


def _encoded_rows(
    files: list[Path], run: str, group: str, names: list[str]
) -> Iterator[tuple[Any, ...] | None]:
    """Processes, indices, kinds, origins and seqs, batch by batch; None if this pass cannot judge them."""
    ranks = {name: rank for rank, name in enumerate(names)}
    codes = {
        "run": {run: 0},
        "group": {group: 0},
        "process": ranks,
        "kind": {"send": SEND, "receive": RECEIVE, "deliver": DELIVER},
        "origin": ranks,
    }
    for file in files:
        if "destinations" in open_parquet(file).schema_arrow.names:
            yield None
        for batch in read_dictionary_encoded(file, _NAMES, _NUMBERS):
            columns = [_encode(batch.column(name), codes[name]) for name in _NAMES]
            if any(column is None for column in columns):
                yield None
                return
            index, seq = (batch.column(name).to_numpy() for name in _NUMBERS)
            _, _, process, kind, origin = columns
            yield process, index, kind, origin, seq


def _encode(column: pa.Array, codes: dict[str, int]) -> np.ndarray | None:
    """A column of names as numbers; None if it has a name without a code."""
    names = column.dictionary.to_pylist()
    if not names:
        return np.empty(0, np.int32)
    encoded = np.array([codes.get(name, -1) for name in names], np.int32)
    numbers = encoded[column.indices.to_numpy()]
    # Our writer's dictionary has every kind of event, those that do not occur too.
    return None if encoded.min() < 0 and numbers.min(initial=0) < 0 else numbers


def _create_state(size: int, room: int = 64, ring: int = 16) -> _ReplayState:
    return _ReplayState(
        counters=np.array([room, 0, 0, 0]),
        last_index=np.full(size, -(1 << 62)),
        delivered=np.zeros((size, size), np.int32),
        vectors=np.empty((room, size), np.int32),
        pending=np.zeros(room, np.int32),
        free=np.arange(room, dtype=np.int32),
        vector_of=np.full((size, ring), -1, np.int32),
    )


def _grow(state: _ReplayState) -> _ReplayState:
    """The same state with twice the room."""
    room, ring = len(state.pending), state.vector_of.shape[1]
    size = len(state.last_index)
    larger = _create_state(size, 2 * room, 2 * ring)
    larger.vectors[:room], larger.pending[:room] = state.vectors, state.pending
    unused = int(state.counters[_FREE])
    larger.free[:unused] = state.free[:unused]
    larger.free[unused : unused + room] = np.arange(room, 2 * room)
    larger.counters[:] = state.counters
    larger.counters[_FREE] = unused + room
    sent = np.diagonal(state.delivered)
    for back in range(ring):  # the last messages of every origin move to their new places
        number = sent - back
        origins = np.flatnonzero(number > 0)
        larger.vector_of[origins, number[origins] % (2 * ring)] = state.vector_of[
            origins, number[origins] % ring
        ]
    return larger._replace(last_index=state.last_index, delivered=state.delivered)


@njit_plain
def _replay(state: Any, rows: Any, start: Any) -> Any:
    """Replay rows from `start` on; return how far that went, and why no further."""
    processes, indices, kinds, origins, numbers = rows
    counters, delivered = state.counters, state.delivered
    size, ring = len(state.last_index), state.vector_of.shape[1]
    for row in range(start, len(processes)):
        process, kind, origin, seq = processes[row], kinds[row], origins[row], numbers[row]
        if indices[row] <= state.last_index[process] or seq < 1:
            return row, _NOT_CLEAN
        if kind != RECEIVE and seq != delivered[process, origin] + 1:
            return row, _NOT_CLEAN
        if kind == SEND and (counters[_FREE] == 0 or state.vector_of[origin, seq % ring] >= 0):
            return row, _FULL
        state.last_index[process] = indices[row]
        if kind == RECEIVE:
            continue
        if kind == SEND:
            if origin != process:
                return row, _NOT_CLEAN
            counters[_MESSAGES] += 1
            if size > 1:
                counters[_FREE] -= 1
                counters[_IN_FLIGHT] += 1
                vector = state.free[counters[_FREE]]
                for other in range(size):
                    state.vectors[vector, other] = delivered[process, other]
                state.pending[vector] = size - 1
                state.vector_of[origin, seq % ring] = vector
        else:
            vector = state.vector_of[origin, seq % ring]
            if origin == process or seq > delivered[origin, origin] or vector < 0:
                return row, _NOT_CLEAN
            lacking = False
            for other in range(size):
                lacking |= state.vectors[vector, other] > delivered[process, other]
            if lacking:
                return row, _NOT_CLEAN
            counters[_DELIVERIES] += 1
            state.pending[vector] -= 1
            if state.pending[vector] == 0:
                state.free[counters[_FREE]] = vector
                counters[_FREE] += 1
                counters[_IN_FLIGHT] -= 1
                state.vector_of[origin, seq % ring] = -1
        delivered[process, origin] = seq
    return len(processes), _CONTINUE
