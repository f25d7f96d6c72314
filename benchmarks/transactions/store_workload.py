"""Large histories as a store would leave them: made by compiled code, a second or two for ten million
operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from antecede.jit import njit_plain
from antecede.transactions.history import History, from_columns


def store_history(
    operations: int,
    sessions: int,
    keys: int,
    per_transaction: int = 8,
    lag: int = 0,
    stale: bool = False,
    seed: int = 1,
) -> History:
    """A history of a store whose transactions have a total order.

    A session sees all transactions but the last `lag` of that order (a random number up to it, never less
    than before) and its own. Of two writes of a key the later one in the order counts, so the history is
    causally convergent; without lag it is serializable and satisfies every level. A `stale` read at the end
    returns what its session has itself overwritten. Half of the operations are reads.
    """
    rows = _simulate(operations, sessions, keys, per_transaction, lag, seed)
    if stale:
        session, _, _, key, value = rows[np.flatnonzero(rows[:, 2])[-1]]
        last = rows[-1, 1]
        more = [[session, last + 1, 1, key, operations + 1], [session, last + 2, 0, key, value]]
        rows = np.concatenate((rows, more))
    session, transaction, write, key, value = np.ascontiguousarray(rows.T)
    return from_columns(session, transaction, write.astype(np.bool_), key, value, initial_value=0)


def write_plume(history: History, path: Path) -> None:
    """The history as Plume writes it."""
    owner = np.repeat(np.arange(history.transactions), np.diff(history.operation_start))
    session = np.repeat(np.arange(history.sessions), np.diff(history.session_start))[owner]
    columns = history.write, history.key_ids[history.key], history.value, session, owner
    with path.open("w") as file:
        for begin in range(0, history.operations, 1 << 18):
            rows = zip(*(column[begin : begin + (1 << 18)].tolist() for column in columns), strict=True)
            file.writelines(
                f"{'w' if write else 'r'}({key},{value},{at},{number})\n"
                for write, key, value, at, number in rows
            )


@njit_plain
def _simulate(operations: Any, sessions: Any, keys: Any, per_transaction: Any, lag: Any, seed: Any) -> Any:
    np.random.seed(seed)
    rows = np.empty((operations, 5), np.int64)
    log_key, log_value = np.empty(operations, np.int32), np.empty(operations, np.int64)
    log_end = np.zeros(operations // per_transaction + 2, np.int64)  # of each transaction
    known, applied = np.zeros((sessions, keys), np.int64), np.zeros(sessions, np.int64)
    logged, row, number = 0, 0, 0
    while row < operations:
        session = np.random.randint(sessions)
        target = number if lag == 0 else max(number - np.random.randint(lag + 1), 0)
        if target > 0:
            for place in range(applied[session], log_end[target - 1]):
                # Values grow with the order, so the larger one is the later one.
                known[session, log_key[place]] = max(known[session, log_key[place]], log_value[place])
            applied[session] = max(applied[session], log_end[target - 1])
        for _ in range(min(per_transaction, operations - row)):
            key, write = np.random.randint(keys), np.random.random() < 0.5
            if write:
                log_key[logged], log_value[logged] = key, row + 1
                logged += 1
                known[session, key] = row + 1
            value = known[session, key]
            rows[row, 0], rows[row, 1], rows[row, 2] = session, number, write
            rows[row, 3], rows[row, 4] = key, value
            row += 1
        log_end[number] = logged
        number += 1
    return rows
