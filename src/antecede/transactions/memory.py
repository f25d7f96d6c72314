"""Causal memory, session by session, compiled.

For one session, all its reads must be explained by one order of its causal past. What must come before a
transaction of the session grows with every demand, and a demand may add to what was seen earlier, so the
demands are a least fixed point (CyclicHB of Bouajjani et al., POPL 2017, who compute it in O(n⁵)).

A session is a chain, so the only relevant fact about a transaction u is its *deadline*: the first transaction
of the session before which u must be placed. A demand "u before w" lowers u's deadline to w's. The session's
reads of a key from deadline(u) on all demand that a writer u of the key be before what they read. It is
enough to follow the first such read of another transaction's value: from there the next one follows in the
same way, unless there is a cycle anyway.

So one sweep over the history, from its end to its beginning, is linear (times a binary search), and sweeps
are repeated until no deadline changes. That takes two or three for real histories, and at worst as many as
there are transactions: O(n·k·sweeps) for k sessions. `memory_by_clocks` spares most sessions the sweeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_plain
from antecede.transactions.isolation import append, first_not_below

SATISFIED, VIOLATED, UNDECIDED = 0, 1, 2
"""UNDECIDED: some demand goes against the order of the sweep, so its demands need a search for cycles."""

_NEVER = np.int32(2**31 - 1)


@njit_inline
def _first_read(
    at: Any, next_other: Any, writer: Any, begin: Any, end: Any, deadline: Any, author: Any
) -> Any:
    """The position of the first read, from `deadline` on, whose value was not written by `author`; `end` if
    none."""
    low = first_not_below(at, begin, end, deadline)
    if low < end and writer[low] == author:
        low = min(next_other[low], end)
    return low


@njit_plain
def _session_reads(
    begin: Any, end: Any, read_start: Any, read_key: Any, read_writer: Any, key_start: Any
) -> Any:
    """The reads of a session by key: position of the reader, writer, and the next read of another writer's
    value."""
    key_start[:] = 0
    for row in range(read_start[begin], read_start[end]):
        key_start[read_key[row] + 1] += 1
    for key in range(len(key_start) - 1):
        key_start[key + 1] += key_start[key]
    total = read_start[end] - read_start[begin]
    at, writer, next_other = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int64)
    for t in range(end - 1, begin - 1, -1):
        for row in range(read_start[t + 1] - 1, read_start[t] - 1, -1):
            # Filled from the end of each key's part, which leaves key_start[key + 1] at its beginning.
            key_start[read_key[row] + 1] -= 1
            place = key_start[read_key[row] + 1]
            at[place], writer[place] = t - begin, read_writer[row]
    key_start[: len(key_start) - 1] = key_start[1:].copy()
    key_start[len(key_start) - 1] = total
    for key in range(len(key_start) - 1):
        for place in range(key_start[key + 1] - 1, key_start[key] - 1, -1):
            following = place + 1
            if following < key_start[key + 1] and writer[following] == writer[place]:
                following = next_other[following]
            next_other[place] = following
    return at, writer, next_other


@njit_hot
def _find_reads(
    u: Any,
    begin: Any,
    end: Any,
    deadline: Any,
    written: Any,
    key_start: Any,
    at: Any,
    writer: Any,
    next_other: Any,
    found: Any,
) -> None:
    """For each key that u writes, the read from which u's deadline derives a demand, or -1."""
    for place in range(len(written)):
        low, high = key_start[written[place]], key_start[written[place] + 1]
        first = high
        if low < high:
            first = _first_read(at, next_other, writer, low, high, deadline[u] + (begin <= u < end), u)
        found[place] = first if first < high else -1


@njit_hot
def _meet_demands(
    u: Any,
    begin: Any,
    end: Any,
    deadline: Any,
    searched: Any,
    written: Any,
    key_start: Any,
    at: Any,
    writer: Any,
    next_other: Any,
    found: Any,
) -> Any:
    """Lower the deadline of u by the demands of the session's reads of what u writes.

    `found` is for these reads; they are searched for again only if the deadline is not the one `searched`
    for. Returns the place in `found` of a demand that cannot be met, or -1: its read saw an initial value, or
    u is of the session itself and would have to come before something that it has seen.
    """
    own = begin <= u < end
    while True:
        was = deadline[u]
        if searched[u] != was:
            _find_reads(u, begin, end, deadline, written, key_start, at, writer, next_other, found)
            searched[u] = was
        for place in range(len(written)):
            if found[place] >= 0:
                w = writer[found[place]]
                if w < 0 or (own and deadline[w] <= u - begin):
                    return place
                if deadline[w] < deadline[u]:
                    deadline[u] = deadline[w]
        if deadline[u] == was:
            return -1


@njit_hot
def _pass_on(u: Any, deadline: Any, session_of: Any, sources: Any) -> Any:
    """Lower the deadlines of u's direct predecessors to that of u. Returns whether any changed."""
    changed = False
    if u > 0 and session_of[u - 1] == session_of[u] and deadline[u - 1] > deadline[u]:
        deadline[u - 1] = deadline[u]
        changed = True
    for w in sources:
        if w >= 0 and deadline[w] > deadline[u]:
            deadline[w] = deadline[u]
            changed = True
    return changed


@njit_plain
def session_memory(
    begin: Any,
    end: Any,
    order: Any,
    rank: Any,
    session_of: Any,
    read_start: Any,
    read_key: Any,
    read_writer: Any,
    write_start: Any,
    write_key: Any,
    keys: Any,
) -> Any:
    """Whether one order explains all reads of the session of transactions `begin` to `end`.

    `order` contains the causal order, `rank` is its inverse. Returns the answer and, unless it is SATISFIED,
    demands (before, after, reader, key): those that the fixed point leaves, or one that cannot be met.
    """
    key_start = np.zeros(keys + 1, np.int64)
    at, writer, next_other = _session_reads(begin, end, read_start, read_key, read_writer, key_start)
    deadline = np.full(len(rank), _NEVER, np.int32)
    deadline[begin:end] = np.arange(end - begin)
    searched, found = np.full(len(rank), -1, np.int32), np.full(len(write_key), -1, np.int32)
    changed, sweeps = True, 0
    while changed or sweeps < 2:
        changed = False
        for place in range(len(order) - 1, -1, -1):
            u = order[place]
            if deadline[u] == _NEVER:
                continue
            if sweeps > 0:  # The first sweep propagates the causal order alone.
                was, first, last = deadline[u], write_start[u], write_start[u + 1]
                bad = _meet_demands(
                    u,
                    begin,
                    end,
                    deadline,
                    searched,
                    write_key[first:last],
                    key_start,
                    at,
                    writer,
                    next_other,
                    found[first:last],
                )
                if bad >= 0:
                    read, demands = found[first + bad], np.empty((1, 4), np.int32)
                    key = write_key[first + bad]
                    return VIOLATED, append(demands, 0, u, writer[read], begin + at[read], key)
                changed = changed or deadline[u] < was
            sources = read_writer[read_start[u] : read_start[u + 1]]
            changed = _pass_on(u, deadline, session_of, sources) or changed
        sweeps += 1
    return _collect(begin, rank, write_start, write_key, at, writer, found)


@njit_plain
def _collect(
    begin: Any, rank: Any, write_start: Any, write_key: Any, at: Any, writer: Any, found: Any
) -> Any:
    """The answer that follows from the remaining demands, and these, unless all of them point forward."""
    demands, size = np.empty((64, 4), np.int32), 0
    forward = True
    for u in range(len(rank)):
        for row in range(write_start[u], write_start[u + 1]):
            if found[row] >= 0:
                forward = forward and rank[u] < rank[writer[found[row]]]
    for u in range(len(rank) if not forward else 0):
        for row in range(write_start[u], write_start[u + 1]):
            if found[row] >= 0:
                read = found[row]
                demands = append(demands, size, u, writer[read], begin + at[read], write_key[row])
                size += 1
    return (SATISFIED if forward else UNDECIDED), demands[:size]
