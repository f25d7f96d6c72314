"""Judging a trace in one pass over its rows, where that can be done.

A recorder that sees everything writes rows in an order that could have happened: each process's own in turn,
and nobody delivers what has not been sent. Such a trace is judged as it is read. A process has, of each
origin, so many messages; what its sender had then is a message's vector time; and a delivery is in order if
the process has all that. It is enough to look at what the sender had itself: had anything further back been
lacking, it would have lacked at an earlier delivery (paper 001, Proposition 1).

The answer is that a run is clean, or nothing: then somebody has to look closer. Memory is processes² and a
vector for each message that is not delivered everywhere yet; time is processes / 16 steps a delivery.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from antecede.causality import Verdict
from antecede.jit import njit_plain
from antecede.trace.execution_from_rows import Members
from antecede.trace.reader import open_parquet, read_dictionary_encoded
from antecede.trace.schema import KINDS

_SEND, _RECEIVE, _DELIVER = range(len(KINDS))
_NAMES = ("run", "group", "process", "kind", "origin")
_NUMBERS = ("index", "seq")

_MAX_PROCESSES = 10_000
"""Above that, what everybody has of everybody does not fit."""
_MAX_BYTES = 1 << 30
"""For the vectors of messages that are under way."""

_GOES_ON, _FULL, _OTHERWISE = range(3)
_FREE, _MESSAGES, _DELIVERIES, _UNDER_WAY = range(4)


class _State(NamedTuple):
    at: np.ndarray
    last: np.ndarray
    """Each process's last index."""
    has: np.ndarray
    """How many messages of each origin each process has."""
    vectors: np.ndarray
    left: np.ndarray
    """Of messages that are under way: what their sender had, and how many have not delivered them yet."""
    free: np.ndarray
    place: np.ndarray
    """Where the vector of an origin's message is, by its number in a ring."""


def verdict_if_clean(files: list[Path], run: str, members: Members) -> Verdict | None:
    """The verdict on a run whose rows are in these files, if they show that it is clean."""
    if len(members) != 1:
        return None
    (group, names), *_ = members.items()
    if not 0 < len(names) <= _MAX_PROCESSES or len(set(names)) < len(names):
        return None
    state = _fresh(len(names))
    for rows in _rows(files, run, group, names):
        if rows is None:
            return None
        done, count = 0, len(rows[0])
        while done < count:
            done, outcome = _take(state, rows, done)
            if outcome == _OTHERWISE:
                return None
            if outcome == _FULL:
                if 2 * state.vectors.nbytes > _MAX_BYTES:
                    return None
                state = _larger(state)
    if state.at[_UNDER_WAY]:
        return None
    return Verdict.no_faults(len(names), int(state.at[_MESSAGES]), int(state.at[_DELIVERIES]))


def _rows(files: list[Path], run: str, group: str, names: list[str]) -> Iterator[tuple[Any, ...] | None]:
    """Processes, indices, kinds, origins and numbers, batch by batch; None if there is anything unusual."""
    ranks = {name: rank for rank, name in enumerate(names)}
    known = {
        "run": {run: 0},
        "group": {group: 0},
        "process": ranks,
        "kind": {kind: number for number, kind in enumerate(KINDS)},
        "origin": ranks,
    }
    for file in files:
        if "destinations" in open_parquet(file).schema_arrow.names:
            yield None
        for batch in read_dictionary_encoded(file, _NAMES, _NUMBERS):
            found = [_codes(batch.column(name), known[name]) for name in _NAMES]
            if any(codes is None for codes in found):
                yield None
                return
            index, seq = (batch.column(name).to_numpy() for name in _NUMBERS)
            _, _, process, kind, origin = found
            yield process, index, kind, origin, seq


def _codes(column: pa.Array, known: dict[str, int]) -> np.ndarray | None:
    """A column of names as numbers; None if one is not known."""
    meant = [known.get(name, -1) for name in column.dictionary.to_pylist()]
    if -1 in meant:
        return None
    return np.array(meant, np.int32)[column.indices.to_numpy()] if meant else np.empty(0, np.int32)


def _fresh(size: int, room: int = 64, ring: int = 16) -> _State:
    return _State(
        at=np.array([room, 0, 0, 0]),
        last=np.full(size, -(1 << 62)),
        has=np.zeros((size, size), np.int32),
        vectors=np.empty((room, size), np.int32),
        left=np.zeros(room, np.int32),
        free=np.arange(room, dtype=np.int32),
        place=np.full((size, ring), -1, np.int32),
    )


def _larger(state: _State) -> _State:
    """The same with twice the room."""
    room, ring = len(state.left), state.place.shape[1]
    size = len(state.last)
    made = _fresh(size, 2 * room, 2 * ring)
    made.vectors[:room], made.left[:room] = state.vectors, state.left
    unused = int(state.at[_FREE])
    made.free[:unused] = state.free[:unused]
    made.free[unused : unused + room] = np.arange(room, 2 * room)
    made.at[:] = state.at
    made.at[_FREE] = unused + room
    sent = np.diagonal(state.has)
    for back in range(ring):  # each of the last numbers of every origin moves to its new place
        number = sent - back
        origins = np.flatnonzero(number > 0)
        made.place[origins, number[origins] % (2 * ring)] = state.place[origins, number[origins] % ring]
    return made._replace(last=state.last, has=state.has)


@njit_plain
def _take(state: Any, rows: Any, start: Any) -> Any:
    """Rows from `start` on: how far it came, and why no further."""
    processes, indices, kinds, origins, numbers = rows
    at, has = state.at, state.has
    size, ring = len(state.last), state.place.shape[1]
    for row in range(start, len(processes)):
        process, kind, origin, seq = processes[row], kinds[row], origins[row], numbers[row]
        if indices[row] <= state.last[process] or seq < 1:
            return row, _OTHERWISE
        if kind != _RECEIVE and seq != has[process, origin] + 1:
            return row, _OTHERWISE
        if kind == _SEND and (at[_FREE] == 0 or state.place[origin, seq % ring] >= 0):
            return row, _FULL
        state.last[process] = indices[row]
        if kind == _RECEIVE:
            continue
        if kind == _SEND:
            if origin != process:
                return row, _OTHERWISE
            at[_MESSAGES] += 1
            if size > 1:
                at[_FREE] -= 1
                at[_UNDER_WAY] += 1
                vector = state.free[at[_FREE]]
                for other in range(size):
                    state.vectors[vector, other] = has[process, other]
                state.left[vector] = size - 1
                state.place[origin, seq % ring] = vector
        else:
            vector = state.place[origin, seq % ring]
            if origin == process or seq > has[origin, origin] or vector < 0:
                return row, _OTHERWISE
            lacking = False
            for other in range(size):
                lacking |= state.vectors[vector, other] > has[process, other]
            if lacking:
                return row, _OTHERWISE
            at[_DELIVERIES] += 1
            state.left[vector] -= 1
            if state.left[vector] == 0:
                state.free[at[_FREE]] = vector
                at[_FREE] += 1
                at[_UNDER_WAY] -= 1
                state.place[origin, seq % ring] = -1
        has[process, origin] = seq
    return len(processes), _GOES_ON
