"""The demands of causal convergence, by vector clocks, compiled.

A transaction's clock says how many transactions of each session causally precede it, itself included. With k
sessions and n operations, time is O(n·k) (Møldrup and Pavlogiannis, PLDI 2025), times a binary search. A
clock is released once all direct successors of its transaction have been visited, so memory is k words per
transaction that is still needed, not per transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_plain
from antecede.transactions.isolation import append, first_not_below
from antecede.transactions.reads_from import ReadsFrom


@dataclass(frozen=True, eq=False)
class Writers:
    """For each key its writers, grouped by session; the groups of key x are `key_start[x]` to `key_start[x +
    1]`."""

    key_start: Any
    session: Any
    start: Any
    writer: Any


def writers_by_key(resolved: ReadsFrom) -> Writers:
    """The writers of each key, in ascending order and so by session."""
    return Writers(
        *_group_writers(
            resolved.session_of(), resolved.write_start, resolved.write_key, np.int64(resolved.keys)
        )
    )


@njit_plain
def _group_writers(session_of: Any, write_start: Any, write_key: Any, keys: Any) -> Any:
    place = np.zeros(keys + 2, np.int64)
    for row in range(len(write_key)):
        place[write_key[row] + 2] += 1
    for key in range(keys):
        place[key + 2] += place[key + 1]
    writer = np.empty(len(write_key), np.int32)
    for transaction in range(len(write_start) - 1):
        for row in range(write_start[transaction], write_start[transaction + 1]):
            writer[place[write_key[row] + 1]] = transaction
            place[write_key[row] + 1] += 1
    key_start = np.zeros(keys + 1, np.int64)
    session, start = np.empty(len(writer), np.int32), np.empty(len(writer) + 1, np.int64)
    groups = 0
    for key in range(keys):
        for row in range(place[key], place[key + 1]):
            if row == place[key] or session_of[writer[row]] != session_of[writer[row - 1]]:
                session[groups] = session_of[writer[row]]
                start[groups] = row
                groups += 1
        key_start[key + 1] = groups
    start[groups] = len(writer)
    return key_start, session[:groups].copy(), start[: groups + 1].copy(), writer


_RECENT = 1 << 16
_FIRST_PLACES = 64


@njit_plain
def _count_awaited(session_of: Any, read_writer: Any) -> Any:
    """For each transaction, how often its clock will be needed: by the next transaction of its session and by
    every read."""
    awaited = np.zeros(len(session_of), np.int32)
    awaited[:-1] = session_of[1:] == session_of[:-1]
    for row in range(len(read_writer)):
        if read_writer[row] >= 0:
            awaited[read_writer[row]] += 1
    return awaited


_MAX_CLOCK_BYTES = 16 << 30


@njit_plain
def _grow(clocks: Any) -> Any:
    """Clocks with twice the room, and the new slots, which are free."""
    used = len(clocks)
    if 8 * clocks.size > _MAX_CLOCK_BYTES:
        raise MemoryError("vector clocks of more than 16 GiB: too many sessions and transactions")
    larger = np.empty((2 * used, clocks.shape[1]), np.int32)
    larger[:used] = clocks
    free = np.empty(2 * used, np.int32)
    for number in range(used):
        free[number] = 2 * used - 1 - number
    return larger, free, used


@njit_hot
def _set_clock(
    clocks: Any,
    mine: Any,
    t3: Any,
    begin: Any,
    end: Any,
    session_of: Any,
    session_start: Any,
    writers: Any,
    place: Any,
) -> None:
    """The clock of what precedes t3: of the transaction before it, and of the writers that its reads `begin`
    to `end` read from. A writer that is in the clock already has its whole past there too."""
    clock = clocks[mine]
    is_first = t3 == session_start[session_of[t3]]
    previous = clocks[mine if is_first else place[t3 - 1]]
    for session in range(len(clock)):
        clock[session] = 0 if is_first else previous[session]
    for row in range(begin, end):
        writer = writers[row]
        if writer >= 0 and clock[session_of[writer]] <= writer - session_start[session_of[writer]]:
            other = clocks[place[writer]]
            for session in range(len(clock)):
                clock[session] = max(clock[session], other[session])


@njit_hot
def _unordered_writer(
    known: Any, count: Any, begin: Any, group_writer: Any, group_begin: Any, group_end: Any, t1: Any
) -> Any:
    """The last writer of a key, in one session, that a reader has seen, unless t1 has seen it; -1 if there is
    none.

    The reader has seen `count` transactions of the session, which begin at `begin`, and t1 `known`.
    """
    if known >= count:
        return -1
    found = first_not_below(group_writer, group_begin, group_end, begin + count) - 1
    if found < group_begin or group_writer[found] - begin < known or group_writer[found] == t1:
        return -1
    return group_writer[found]


@njit_plain
def causal_demands(
    order: Any,
    session_of: Any,
    session_start: Any,
    read_start: Any,
    read_key: Any,
    read_writer: Any,
    key_start: Any,
    group_session: Any,
    group_start: Any,
    group_writer: Any,
    of_each_reader: Any,
    keep: Any,
    kept: Any,
) -> Any:
    """Demands (before, after, reader, key) of causal convergence that are not causal steps themselves.

    Where t3 reads x from t1: the last writer of x of every session in t3's past, unless it precedes t1
    causally; earlier writers of that session come before it. A demand that another reader has just made is
    not repeated, unless those `of_each_reader` are wanted.

    The clock of each transaction t with `keep[t]` ≥ 0 is copied to that row of `kept`.
    """
    demands, size = np.empty((1024, 4), np.int32), 0
    recent = np.full((_RECENT, 2), -2, np.int32)
    awaited = _count_awaited(session_of, read_writer)
    place = np.full(len(session_of), -1, np.int32)
    clocks = np.empty((_FIRST_PLACES, len(session_start) - 1), np.int32)
    free, free_places = np.arange(_FIRST_PLACES).astype(np.int32), _FIRST_PLACES
    for t3 in order:
        if free_places == 0:
            clocks, free, free_places = _grow(clocks)
        free_places -= 1
        mine = free[free_places]
        place[t3] = mine
        begin, end = read_start[t3], read_start[t3 + 1]
        _set_clock(clocks, mine, t3, begin, end, session_of, session_start, read_writer, place)
        for row in range(begin, end):
            key, t1 = read_key[row], read_writer[row]
            for group in range(key_start[key], key_start[key + 1]):
                session = group_session[group]
                known = clocks[place[t1], session] if t1 >= 0 else 0
                t2 = _unordered_writer(
                    known,
                    clocks[mine, session],
                    session_start[session],
                    group_writer,
                    group_start[group],
                    group_start[group + 1],
                    t1,
                )
                slot = (t2 * 31 + t1) & (_RECENT - 1)
                repeated = recent[slot, 0] == t2 and recent[slot, 1] == t1
                if t2 >= 0 and (of_each_reader or not repeated):
                    recent[slot, 0], recent[slot, 1] = t2, t1
                    demands = append(demands, size, t2, t1, t3, key)
                    size += 1
        clocks[mine, session_of[t3]] += 1
        if keep[t3] >= 0:
            kept[keep[t3]] = clocks[mine]
        awaited[t3] += 1  # t3 itself needs its clock until here.
        for row in range(begin - 2, end):
            # Rows before the reads represent t3 itself and the transaction before it in its session.
            done = read_writer[row] if row >= begin else t3 if row == begin - 1 else t3 - 1
            if row == begin - 2 and t3 == session_start[session_of[t3]]:
                continue
            if done >= 0:
                awaited[done] -= 1
                if awaited[done] == 0:
                    free[free_places] = place[done]
                    free_places += 1
    return demands[:size]


@njit_hot
def cyclic_demands(
    start: Any, before_row: Any, after_session: Any, after_count: Any, kept: Any, in_cycle: Any
) -> None:
    """Which demands of each reader are on a cycle of its own demands and causal steps, or between such
    cycles.

    Demand e leads to demand f if `after` of e is `before` of f or causally precedes it, which f's clock
    tells. Demands to which none leads, or that lead to none, are removed until nothing changes: for a reader
    with d demands O(d³) at worst, usually O(d²).
    """
    for group in range(len(start) - 1):
        begin, end = start[group], start[group + 1]
        for demand in range(begin, end):
            in_cycle[demand] = True
        changed = True
        while changed:
            changed = False
            for demand in range(begin, end):
                if not in_cycle[demand]:
                    continue
                follows = precedes = False
                for other in range(begin, end):
                    if in_cycle[other]:
                        if kept[before_row[demand], after_session[other]] >= after_count[other]:
                            follows = True
                        if kept[before_row[other], after_session[demand]] >= after_count[demand]:
                            precedes = True
                        if follows and precedes:
                            break
                if not (follows and precedes):
                    in_cycle[demand] = False
                    changed = True
