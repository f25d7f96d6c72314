"""Histories of a simulated store: every session has a replica, transactions reach the others late.

With causal delivery, replicas that let the last arrival win are causal memory but need not converge; replicas
that let the highest timestamp win converge but need not be causal memory. Delivery out of causal order, or of
one write at a time, gives histories that are not causally consistent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from antecede.transactions import History, HistoryBuilder, Operation


@dataclass
class _Update:
    origin: int
    number: int
    clock: list[int]
    stamp: tuple[int, int]
    writes: dict[int, int]


@dataclass
class _Replica:
    clock: list[int]
    lamport: int = 0
    values: dict[int, tuple[tuple[int, int], int]] = field(default_factory=dict)
    waiting: list[_Update] = field(default_factory=list)

    def apply(self, update: _Update, by_timestamp: bool) -> None:
        for key, value in update.writes.items():
            if not by_timestamp or key not in self.values or self.values[key][0] < update.stamp:
                self.values[key] = update.stamp, value
        self.lamport = max(self.lamport, update.stamp[0])
        self.clock[update.origin] = max(self.clock[update.origin], update.number)


def replicated_history(
    seed: int,
    sessions: int = 4,
    transactions: int = 40,
    keys: int = 5,
    by_timestamp: bool = True,
    faults: float = 0,
) -> History:
    """A history of `transactions` transactions; `faults` is the share of deliveries that ignore causal
    order."""
    rng = random.Random(seed)
    replicas = [_Replica([0] * sessions) for _ in range(sessions)]
    builder, value = HistoryBuilder(0), 0
    for number in range(transactions):
        at = rng.randrange(sessions)
        replica = replicas[at]
        _deliver(rng, replica, by_timestamp, faults)
        operations, writes = [], {}
        for _ in range(rng.randint(1, 4)):
            key = rng.randrange(keys)
            if rng.random() < 0.5:
                value += 1
                writes[key] = value
                operations.append(Operation(True, key, value))
            else:
                seen = writes.get(key, replica.values.get(key, ((0, 0), 0))[1])
                operations.append(Operation(False, key, seen))
        builder.add(at, f"T{number}", operations)
        replica.clock[at] += 1
        replica.lamport += 1
        update = _Update(at, replica.clock[at], list(replica.clock), (replica.lamport, at), writes)
        replica.apply(update, by_timestamp)
        for other in range(sessions):
            if other != at:
                replicas[other].waiting.append(update)
    return builder.build()


def _deliver(rng: random.Random, replica: _Replica, by_timestamp: bool, faults: float) -> None:
    """Apply some of the waiting updates, in an order that causality allows, mostly."""
    for _ in range(rng.randint(0, 2 * len(replica.clock))):
        ready = [
            update
            for update in replica.waiting
            if rng.random() < faults
            or all(
                known >= count - (origin == update.origin)
                for origin, (known, count) in enumerate(zip(replica.clock, update.clock, strict=True))
            )
        ]
        if not ready:
            return
        update = rng.choice(ready)
        if len(update.writes) > 1 and rng.random() < faults:
            key = rng.choice(list(update.writes))
            part = {key: update.writes[key]}
            replica.apply(_Update(update.origin, 0, update.clock, update.stamp, part), by_timestamp)
            continue
        replica.waiting.remove(update)
        replica.apply(update, by_timestamp)
