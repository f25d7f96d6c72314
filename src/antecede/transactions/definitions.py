"""The levels straight from their definitions, on a few transactions: readable, exact and slow.

A level is violated if the orders that its reads demand, together with the causal order, form a cycle. Where a
transaction t3 reads x from t1, and t2, which also writes x, counts as seen by t3, t2 must come before t1: a
*demand*. The levels differ in what counts as seen, and in whose demands must hold at once (a *view*):

| level | seen by t3 | one view for |
|---|---|---|
| RC | what t3 has read from, earlier in the transaction | all transactions |
| RA | what t3 reads from, and earlier transactions of its session | all transactions |
| CC | its causal past | each transaction |
| CM | what must precede it in the view: its causal past and what demands add to it | each session |
| CCv | its causal past | all transactions |

For CC, CCv and CM these are the bad patterns of Bouajjani et al. (POPL 2017): a cycle without demands is
CyclicCO; with one, WriteCORead; a demand that something come before the initial values is WriteCOInitRead (or
WriteHBInitRead, if it was seen by demands); other cycles are CyclicCF in CCv, CyclicHB in CM. Transactions of
several reads add to CC cycles of several demands of one transaction, here called FracturedRead, or
NonRepeatableRead if they are about one key.

Of all violations that one with the fewest transactions is looked for, among a shortest cycle through each.
Time and memory grow with the cube of the number of transactions; the compiled modules decide the same for
millions of them, and witnesses are explained with this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from antecede.transactions.reads_from import INITIAL, ReadsFrom

SESSION, READ, DEMAND = "session", "read", "demand"


class Demand(NamedTuple):
    """`reader` read `key` from `after`, and had seen `before`, which also writes it."""

    before: int
    after: int
    reader: int
    key: int


class OrderStep(NamedTuple):
    """Why one transaction comes before another: session order, a read of `key`, or a demand."""

    before: int
    after: int
    kind: str
    key: int = -1
    demand: Demand | None = None


@dataclass
class Cycle:
    """A violation: steps that lead from a transaction back to it, and how each demand's reader saw."""

    level: str
    pattern: str
    steps: list[OrderStep]
    seen: dict[Demand, list[OrderStep]] = field(default_factory=dict)
    """For each demand, including those of other demands: the steps from `before` to `reader`."""

    @property
    def transactions(self) -> set[int]:
        steps = [step for path in (self.steps, *self.seen.values()) for step in path]
        named = {end for step in steps for end in (step.before, step.after)}
        return (named | {demand.reader for demand in self.seen}) - {INITIAL}


class Definitions:
    """The relations of a few transactions, as lists and sets."""

    def __init__(self, resolved: ReadsFrom) -> None:
        self.size = resolved.transactions
        starts = resolved.session_start.tolist()
        self.sessions = [range(*pair) for pair in pairwise(starts)]
        self.session = {number: session for session in self.sessions for number in session}
        reads = list(zip(resolved.read_key.tolist(), resolved.read_writer.tolist(), strict=True))
        begin = resolved.read_start.tolist()
        self.reads = [reads[begin[number] : begin[number + 1]] for number in range(self.size)]
        keys, begin = resolved.write_key.tolist(), resolved.write_start.tolist()
        self.writes = [set(keys[begin[number] : begin[number + 1]]) for number in range(self.size)]
        self.causal_steps = self._causal_steps()
        self.past = self._pasts(self.causal_steps)

    def _causal_steps(self) -> list[dict[int, OrderStep]]:
        """For each transaction those that follow it in session order or read from it."""
        following: list[dict[int, OrderStep]] = [{} for _ in range(self.size)]
        for reader, reads in enumerate(self.reads):
            for key, writer in reads:
                if writer != INITIAL:
                    following[writer].setdefault(reader, OrderStep(writer, reader, READ, key))
        for session in self.sessions:
            for place, before in enumerate(session):
                for after in session[place + 1 :]:
                    following[before][after] = OrderStep(before, after, SESSION)
        return following

    def _pasts(self, following: list[dict[int, OrderStep]]) -> list[set[int]]:
        past: list[set[int]] = [set() for _ in range(self.size)]
        for start in range(self.size):
            pending = list(following[start])
            while pending:
                reached = pending.pop()
                if start not in past[reached]:
                    past[reached].add(start)
                    pending += following[reached]
        return past

    def violation(self, level: str) -> Cycle | None:
        """The shortest cycle that violates a level, over all its views; None if it is satisfied."""
        causal = shortest_cycle(self.causal_steps)
        if causal is not None:
            return Cycle(level, "CyclicCO", causal)
        found = [cycle for view in self._views(level) if (cycle := self._view_violation(level, view))]
        return min(found, key=_size, default=None)

    def _views(self, level: str) -> Iterable[Iterable[int]]:
        if level == "CC":
            return [[reader] for reader in range(self.size)]
        return self.sessions if level == "CM" else [range(self.size)]

    def _view_violation(self, level: str, readers: Iterable[int]) -> Cycle | None:
        following = [dict(steps) for steps in self.causal_steps]
        past = self.past
        demands: dict[Demand, list[dict[int, OrderStep]]] = {}
        while True:
            # Demands of this round are explained by earlier steps only, never by each other.
            known = [dict(steps) for steps in following]
            found = {demand for reader in readers for demand in self._demands(level, reader, past)}
            for demand in sorted(found - demands.keys()):
                demands[demand] = known
                if demand.after != INITIAL:
                    step = OrderStep(demand.before, demand.after, DEMAND, demand.key, demand)
                    following[demand.before].setdefault(demand.after, step)
            if level != "CM" or not found - {demand for demand in demands if demands[demand] is not known}:
                break
            past = self._pasts(following)
        return self._shortest_violation(level, following, demands)

    def _shortest_violation(
        self,
        level: str,
        following: list[dict[int, OrderStep]],
        demands: dict[Demand, list[dict[int, OrderStep]]],
    ) -> Cycle | None:
        cycles = [
            [OrderStep(demand.before, INITIAL, DEMAND, demand.key, demand)]
            for demand in demands
            if demand.after == INITIAL
        ]
        cycles += [cycle for start in range(self.size) if (cycle := shortest_path(following, start, start))]
        found = []
        for steps in cycles:
            seen: dict[Demand, list[OrderStep]] = {}
            pending = [step.demand for step in steps if step.demand]
            while pending:
                demand = pending.pop()
                if demand not in seen:
                    seen[demand] = self._sight(level, demand, demands[demand])
                    pending += [step.demand for step in seen[demand] if step.demand]
            found.append(Cycle(level, _pattern(level, steps, seen), _from_demand(steps), seen))
        return min(found, key=_size, default=None)

    def _sight(self, level: str, demand: Demand, following: list[dict[int, OrderStep]]) -> list[OrderStep]:
        """The steps by which the reader of a demand saw `before`."""
        if level == "RC":
            key = next(key for key, writer in self.reads[demand.reader] if writer == demand.before)
            return [OrderStep(demand.before, demand.reader, READ, key)]
        return shortest_path(following, demand.before, demand.reader)

    def _demands(self, level: str, reader: int, past: list[set[int]]) -> Iterator[Demand]:
        for place, (key, after) in enumerate(self.reads[reader]):
            for before in self._seen(level, reader, place, past):
                if before not in (after, reader, INITIAL) and key in self.writes[before]:
                    yield Demand(before, after, reader, key)

    def _seen(self, level: str, reader: int, place: int, past: list[set[int]]) -> set[int]:
        """The transactions that count as seen by a read."""
        if level == "RC":
            return {writer for _, writer in self.reads[reader][:place]}
        if level == "RA":
            session = self.session[reader]
            return {writer for _, writer in self.reads[reader]} | set(range(session.start, reader))
        return past[reader]


def _size(cycle: Cycle) -> tuple[int, int, int]:
    return len(cycle.transactions), len(cycle.seen), len(cycle.steps)


def _from_demand(steps: list[OrderStep]) -> list[OrderStep]:
    """The same cycle, rotated to begin with a demand whose preceding step is not a demand."""
    for place, step in enumerate(steps):
        if step.demand and not steps[place - 1].demand:
            return steps[place:] + steps[:place]
    return steps


def _pattern(level: str, steps: list[OrderStep], seen: dict[Demand, list[OrderStep]]) -> str:
    by_demand = any(step.demand for path in seen.values() for step in path)
    if steps[0].after == INITIAL:
        return "WriteHBInitRead" if by_demand else "WriteCOInitRead"
    if len(seen) == 1 and not by_demand:
        return "WriteCORead"
    if len(steps) == 2 and len(seen) == 2 and len({(demand.reader, demand.key) for demand in seen}) == 1:
        return "NonRepeatableRead"
    names = {"RC": "NonMonotonicRead", "CM": "CyclicHB", "CCv": "CyclicCF"}
    return names.get(level, "FracturedRead")


def shortest_path(following: list[dict[int, OrderStep]], start: int, end: int) -> list[OrderStep]:
    """The fewest steps from `start` to `end`, at least one; empty if there are none. Breadth first."""
    reached: dict[int, OrderStep] = {}
    pending = deque([start])
    while pending:
        here = pending.popleft()
        for there, step in following[here].items():
            if there not in reached:
                reached[there] = step
                pending.append(there)
                if there == end:
                    pending.clear()
                    break
    if end not in reached:
        return []
    path = [reached[end]]
    while path[-1].before != start:
        path.append(reached[path[-1].before])
    return path[::-1]


def shortest_cycle(following: list[dict[int, OrderStep]]) -> list[OrderStep] | None:
    """The fewest steps from a transaction back to it; None if there are none."""
    cycles = (shortest_path(following, start, start) for start in range(len(following)))
    return min((cycle for cycle in cycles if cycle), key=len, default=None)
