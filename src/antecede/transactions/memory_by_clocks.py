"""Which sessions of a causally convergent history certainly satisfy causal memory, compiled.

`memory` finds the deadlines of a session's causal past by sweeps over the whole history: with k sessions, k
times. In a convergent history hardly any deadline differs from the causal one, which the vector clocks of the
session's own transactions give: u precedes the i-th of them if its clock counts u. So only the differences
are computed here, from a worklist.

Where the session reads x from w in its m-th transaction, every other writer u of x with a deadline up to m
must be before w. If u's deadline is later than w's, it is lowered to w's; so are those of what precedes u;
and then u's own writes make demands of earlier reads. If that ends, the session's past in the order of
deadlines, equal ones in an order that meets the demands of causal convergence, each transaction of the
session after all others with its deadline, explains the session's reads. Otherwise, or if it takes long, the
answer is left to `memory`.

Time is that of the clocks, O(n·k), and for each read a look at the sessions that write its key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_plain
from antecede.transactions.isolation import first_not_below

_MOST_LOWERED = 1 << 18
"""The most deadlines of a session that are lowered, and writes of these transactions."""


class Transactions(NamedTuple):
    """The history in arrays: see `reads_from.ReadsFrom` and `causal.Writers`."""

    session_of: Any
    session_start: Any
    read_start: Any
    read_key: Any
    read_writer: Any
    write_start: Any
    write_key: Any
    key_start: Any
    group_session: Any
    group_start: Any
    group_writer: Any
    rank: Any
    """Positions in an order that meets the demands of causal convergence."""


class Deadlines(NamedTuple):
    """The deadlines of one session: `lowered` where `stamp` is the session, and otherwise by the clocks."""

    session: Any
    begin: Any
    end: Any
    clocks: Any
    """The clocks of the session's transactions, each itself included."""
    stamp: Any
    lowered: Any
    work: Any
    """Transactions whose deadlines were lowered and whose demands remain to be met."""
    changed: Any
    """All transactions whose deadlines were lowered, each once."""
    key_stamp: Any
    """The session for which the key's list in the next three fields is valid."""
    key_head: Any
    writer: Any
    """The changed transactions that write a key, as a linked list."""
    following: Any
    sizes: Any
    """The number of entries in `work`, in `changed` and in `writer`."""


class SessionReads(NamedTuple):
    """The reads of a session, sorted by lookup key."""

    name: Any
    at: Any
    """The position of the reader in the session."""
    other: Any


@njit_hot
def _reads_of(sorted_reads: Any, name: Any) -> Any:
    """The positions of the reads with a lookup key."""
    begin = first_not_below(sorted_reads.name, 0, len(sorted_reads.name), name)
    end = begin
    while end < len(sorted_reads.name) and sorted_reads.name[end] == name:
        end += 1
    return range(begin, end)


@njit_hot
def _deadline(own: Any, history: Any, u: Any) -> Any:
    if own.stamp[u] == own.session:
        return np.int64(own.lowered[u])
    if own.begin <= u < own.end:
        return np.int64(u - own.begin)
    session = history.session_of[u]
    count = u - history.session_start[session]
    low, high = np.int64(0), np.int64(own.end - own.begin)
    while low < high:
        middle = (low + high) >> 1
        if own.clocks[middle, session] > count:
            high = middle
        else:
            low = middle + 1
    return low


@njit_hot
def _lower(own: Any, history: Any, u: Any, deadline: Any) -> Any:
    """Lower the deadline of u; False if that is impossible, or if too many were lowered."""
    first, last = history.write_start[u], history.write_start[u + 1]
    most = max(own.sizes[0], own.sizes[1], own.sizes[2] + last - first)
    if own.begin <= u < own.end or most >= _MOST_LOWERED:
        return False
    if own.stamp[u] != own.session:
        own.stamp[u] = own.session
        own.changed[own.sizes[1]] = u
        own.sizes[1] += 1
        for row in range(first, last):
            key, entry = history.write_key[row], own.sizes[2]
            own.writer[entry] = u
            own.following[entry] = own.key_head[key] if own.key_stamp[key] == own.session else -1
            own.key_stamp[key], own.key_head[key] = own.session, entry
            own.sizes[2] += 1
    own.lowered[u] = deadline
    own.work[own.sizes[0]] = u
    own.sizes[0] += 1
    return True


@njit_hot
def _meet_read(own: Any, history: Any, m: Any, key: Any, w: Any, deadline: Any) -> Any:
    """Lower the deadlines of the writers of a key in the causal past of the session's m-th transaction, which
    reads it from w, to that of w; False if that is impossible."""
    for group in range(history.key_start[key], history.key_start[key + 1]):
        session = history.group_session[group]
        is_own = session == own.session
        low = deadline if is_own else own.clocks[deadline, session]
        high = m if is_own else own.clocks[m, session]
        if low >= high:
            continue
        start, end = history.group_start[group], history.group_start[group + 1]
        first = history.session_start[session]
        for place in range(first_not_below(history.group_writer, start, end, first + low), end):
            u = history.group_writer[place]
            if u >= first + high:
                break
            if u == w:
                continue
            if is_own or (_deadline(own, history, u) > deadline and not _lower(own, history, u, deadline)):
                return False
    return True


@njit_hot
def _meet_lowered(own: Any, history: Any, by_key: Any, u: Any) -> Any:
    """Lower what precedes u to u's deadline, and u to the deadlines of what it must precede; False if
    impossible."""
    deadline = own.lowered[u]
    for row in range(history.read_start[u] - 1, history.read_start[u + 1]):
        is_previous = row < history.read_start[u]
        p = u - 1 if is_previous else history.read_writer[row]
        if p < 0 or (is_previous and history.session_of[p] != history.session_of[u]):
            continue
        if own.begin <= p < own.end:
            if p - own.begin >= deadline:
                return False
        elif _deadline(own, history, p) > deadline and not _lower(own, history, p, deadline):
            return False
    best = deadline
    for row in range(history.write_start[u], history.write_start[u + 1]):
        key = history.write_key[row]
        for place in _reads_of(by_key, key):
            w = by_key.other[place]
            if by_key.at[place] < deadline or w == u:
                continue
            if w < 0:
                return False
            best = min(best, _deadline(own, history, w))
    return best == deadline or _lower(own, history, u, best)


@njit_hot
def _meet_readers(own: Any, history: Any, by_writer: Any, u: Any) -> Any:
    """Lower writers that must precede u, because the session reads from u, to its new deadline."""
    deadline = own.lowered[u]
    for place in _reads_of(by_writer, u):
        m, key = by_writer.at[place], by_writer.other[place]
        if not _meet_read(own, history, m, key, u, deadline):
            return False
        entry = own.key_head[key] if own.key_stamp[key] == own.session else -1
        while entry >= 0:
            v = own.writer[entry]
            if v != u and deadline < own.lowered[v] <= m and not _lower(own, history, v, deadline):
                return False
            entry = own.following[entry]
    return True


@njit_hot
def _is_ordered(own: Any, history: Any, by_key: Any) -> Any:
    """Whether the order of ranks meets the demands between transactions that have one deadline."""
    for number in range(own.sizes[1]):
        u = own.changed[number]
        for row in range(history.write_start[u], history.write_start[u + 1]):
            key = history.write_key[row]
            for place in _reads_of(by_key, key):
                w = by_key.other[place]
                if w < 0 or w == u or by_key.at[place] < own.lowered[u] or own.begin <= w < own.end:
                    continue
                if _deadline(own, history, w) == own.lowered[u] and history.rank[u] > history.rank[w]:
                    return False
    return True


@njit_plain
def _sorted_reads(names: Any, at: Any, other: Any) -> Any:
    order = np.argsort(names * np.int64(len(names)) + np.arange(len(names)))
    return SessionReads(names[order], at[order], other[order])


@njit_plain
def certainly_satisfied(own: Any, history: Any) -> Any:
    """Whether the session's reads are explained by one order; False if that is not certain."""
    first, last = history.read_start[own.begin], history.read_start[own.end]
    at = np.empty(last - first, np.int64)
    for t in range(own.begin, own.end):
        at[history.read_start[t] - first : history.read_start[t + 1] - first] = t - own.begin
    keys = history.read_key[first:last].astype(np.int64)
    writers = history.read_writer[first:last].astype(np.int64)
    by_key, by_writer = _sorted_reads(keys, at, writers), _sorted_reads(writers, at, keys)
    own.sizes[:] = 0
    for place in range(len(at)):
        w = writers[place]
        if w >= 0 and not _meet_read(own, history, at[place], keys[place], w, _deadline(own, history, w)):
            return False
    while own.sizes[0]:
        own.sizes[0] -= 1
        u = own.work[own.sizes[0]]
        if not _meet_lowered(own, history, by_key, u) or not _meet_readers(own, history, by_writer, u):
            return False
    return _is_ordered(own, history, by_key)


class SessionsByClocks:
    """Judges sessions one after the other; the arrays are allocated once."""

    def __init__(self, history: Transactions) -> None:
        self._history = history
        self._stamp = np.full(len(history.session_of), -1, np.int32)
        self._lowered = np.zeros(len(history.session_of), np.int64)
        self._work, self._changed, self._writer, self._following = np.empty((4, _MOST_LOWERED), np.int64)
        self._key_stamp, self._key_head = np.full((2, len(history.key_start)), -1, np.int64)
        self._sizes = np.zeros(3, np.int64)

    def certainly_satisfied(self, session: int, clocks: Any) -> bool:
        """`clocks` are those of the session's transactions, each itself included."""
        begin, end = self._history.session_start[session : session + 2]
        place = np.int64(session), np.int64(begin), np.int64(end), clocks
        arrays = self._stamp, self._lowered, self._work, self._changed, self._key_stamp, self._key_head
        own = Deadlines(*place, *arrays, self._writer, self._following, self._sizes)
        return bool(certainly_satisfied(own, self._history))
