"""Small random histories: some almost consistent, some arbitrary, with every kind of fault."""

from __future__ import annotations

import random

from antecede.transactions import History, HistoryBuilder, Status
from antecede.transactions.history import Operation


def random_history(seed: int, transactions: int = 7) -> History:
    """A history of at most `transactions` transactions; half of them have a single operation in each.

    Reads mostly return a value that somebody wrote to the key; rarely one of an aborted transaction, one that
    was overwritten within its transaction, one that nobody wrote, or one of the transaction's own future.
    """
    rng = random.Random(seed)
    sessions, keys = rng.randint(2, 4), rng.randint(1, 3)
    faults, longest, total = (
        rng.random() < 0.1,
        rng.choice((1, 3)),
        max(rng.randint(2, transactions) for _ in range(3)),
    )
    shapes = [[rng.random() < 0.5 for _ in range(rng.randint(1, longest))] for _ in range(total)]
    status = [Status.ABORTED if rng.random() < 0.03 else Status.COMMITTED for _ in shapes]
    written: dict[int, list[tuple[int, int]]] = {key: [] for key in range(keys)}
    plan: list[list[tuple[bool, int, int]]] = []
    value = 0
    for number, shape in enumerate(shapes):
        operations = []
        for write in shape:
            key = rng.randrange(keys)
            value += 1
            operations.append((write, key, value))
            if write:
                written[key].append((number, value))
        plan.append(operations)
    builder = HistoryBuilder(0)
    for number, operations in enumerate(plan):
        rows = []
        own: dict[int, int] = {}
        for write, key, fresh in operations:
            if write:
                own[key] = fresh
                rows.append(Operation(True, key, fresh))
                continue
            rows.append(Operation(False, key, _read(rng, number, key, own, written, status, plan, faults)))
        builder.add(rng.randrange(sessions), f"T{number + 1}", rows, status[number])
    return builder.build()


def _read(
    rng: random.Random,
    reader: int,
    key: int,
    own: dict[int, int],
    written: dict[int, list[tuple[int, int]]],
    status: list[Status],
    plan: list[list[tuple[bool, int, int]]],
    faults: bool,
) -> int:
    if faults and rng.random() < 0.1:
        return rng.choice([10_000, *(value for _, value in written[key])])
    if key in own:
        return own[key]
    # Mostly from transactions that came earlier: otherwise nearly every history has a cycle of reads.
    last = {
        writer: value
        for writer, value in written[key]
        if status[writer] == Status.COMMITTED and writer != reader and (writer < reader or rng.random() < 0.1)
    }
    if last and rng.random() < 0.9:
        return rng.choice([*last.values()])
    return 0
