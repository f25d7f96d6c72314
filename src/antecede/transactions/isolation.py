"""The demands of read committed and read atomic, compiled.

Only demands that do not follow from others are listed (Møldrup and Pavlogiannis, PLDI 2025, arXiv
2504.06975): a chain of them and of causal steps leads wherever a demand of the definition does, unless there
is a cycle anyway. Time is O(n^1.5) for n operations: two sets are intersected by walking the smaller one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_plain


@njit_plain
def append(demands: Any, size: Any, before: Any, after: Any, reader: Any, key: Any) -> Any:
    """Enter a demand after the first `size` rows; the table, or a larger copy if it was full."""
    if size == len(demands):
        larger = np.empty((2 * size, 4), np.int32)
        larger[:size] = demands
        demands = larger
    demands[size, 0], demands[size, 1], demands[size, 2], demands[size, 3] = before, after, reader, key
    return demands


@njit_inline
def first_not_below(values: Any, begin: Any, end: Any, limit: Any) -> Any:
    """The position of the first value that is not below a limit, among ascending values from `begin` to
    `end`; `end` if there is none."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] < limit:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit_plain
def holds(keys: Any, begin: Any, end: Any, key: Any) -> Any:
    """Whether a sorted part of `keys` contains `key`."""
    place = first_not_below(keys, begin, end, key)
    return place < end and keys[place] == key


@njit_plain
def read_committed_demands(
    read_start: Any, read_key: Any, read_writer: Any, write_start: Any, write_key: Any, keys: Any
) -> Any:
    """Demands (before, after, reader, key) of read committed.

    Where a transaction first reads from t2, and afterwards reads a key that t2 writes, the next such read of
    another writer's value demands that t2 be before that writer. Reads are walked backwards; for every key
    the writers of the nearest read and of the nearest one of a different writer are known.
    """
    demands, size = np.empty((64, 4), np.int32), 0
    transactions = len(read_start) - 1
    stamp = np.full(keys, -1, np.int64)  # The transaction for which the next two are valid.
    nearest, other = np.empty(keys, np.int32), np.empty(keys, np.int32)
    later = np.empty(keys, np.int32)
    first = np.full(transactions, -1, np.int64)  # The first read from a writer, by the present transaction.
    for t3 in range(transactions):
        begin, end = read_start[t3], read_start[t3 + 1]
        for row in range(end - 1, begin - 1, -1):
            if read_writer[row] >= 0:
                first[read_writer[row]] = row
        distinct = 0
        for row in range(end - 1, begin - 1, -1):
            t2 = read_writer[row]
            if t2 >= 0 and first[t2] == row:
                low, high = write_start[t2], write_start[t2 + 1]
                by_writes = high - low <= distinct
                for place in range(high - low if by_writes else distinct):
                    key = write_key[low + place] if by_writes else later[place]
                    if stamp[key] != t3 or (not by_writes and not holds(write_key, low, high, key)):
                        continue
                    t1 = nearest[key] if nearest[key] != t2 else other[key]
                    if t1 == -2:
                        continue
                    demands = append(demands, size, t2, t1, t3, key)
                    size += 1
            key = read_key[row]
            if stamp[key] != t3:
                stamp[key] = t3
                nearest[key], other[key] = t2, -2  # No other writer.
                later[distinct] = key
                distinct += 1
            elif nearest[key] != t2:
                nearest[key], other[key] = t2, nearest[key]
    return demands[:size]


@njit_plain
def read_atomic_demands(
    session_start: Any,
    read_start: Any,
    read_key: Any,
    read_writer: Any,
    write_start: Any,
    write_key: Any,
    keys: Any,
) -> Any:
    """Demands (before, after, reader, key) of read atomic.

    For every key that a transaction reads from t1: the last transaction of its session that wrote the key,
    and every transaction that it reads from and that wrote the key, come before t1. A key read from two
    writers makes a cycle at once.
    """
    demands, size = np.empty((64, 4), np.int32), 0
    last_writer = np.full(keys, -1, np.int64)
    stamp, source = np.full(keys, -1, np.int64), np.empty(keys, np.int32)
    read_keys = np.empty(keys, np.int32)
    joined = np.full(len(read_start) - 1, -1, np.int64)  # The last transaction that read from a writer.
    for session in range(len(session_start) - 1):
        for t3 in range(session_start[session], session_start[session + 1]):
            distinct = 0
            for row in range(read_start[t3], read_start[t3 + 1]):
                key, t1 = read_key[row], read_writer[row]
                if stamp[key] != t3:
                    stamp[key], source[key] = t3, t1
                    read_keys[distinct] = key
                    distinct += 1
                elif source[key] != t1:  # Each must precede the other.
                    demands = append(demands, size, max(t1, source[key]), min(t1, source[key]), t3, key)
                    if min(t1, source[key]) >= 0:
                        size += 1
                        demands = append(demands, size, min(t1, source[key]), max(t1, source[key]), t3, key)
                    size += 1
                t2 = last_writer[key]
                if t2 >= session_start[session] and t2 != t1:
                    demands = append(demands, size, t2, t1, t3, key)
                    size += 1
            for row in range(read_start[t3], read_start[t3 + 1]):
                t2 = read_writer[row]
                if t2 >= 0 and joined[t2] != t3:
                    joined[t2] = t3
                    own = write_key[write_start[t2] : write_start[t2 + 1]]
                    demands, size = _of_writer(
                        demands, size, t2, t3, own, read_keys[:distinct], stamp, source
                    )
            for row in range(write_start[t3], write_start[t3 + 1]):
                last_writer[write_key[row]] = t3
    return demands[:size]


@njit_plain
def _of_writer(
    demands: Any, size: Any, t2: Any, t3: Any, written: Any, read: Any, stamp: Any, source: Any
) -> Any:
    """Demands that t2 be before the writers of those of its keys that t3 reads from others."""
    by_writes = len(written) <= len(read)
    for key in written if by_writes else read:
        if stamp[key] == t3 and source[key] != t2 and (by_writes or holds(written, 0, len(written), key)):
            demands = append(demands, size, t2, source[key], t3, key)
            size += 1
    return demands, size
