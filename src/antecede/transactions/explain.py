"""Violations in words: which transaction saw what, before what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from antecede.transactions.decide import LevelEvidence
from antecede.transactions.definitions import DEMAND, READ, Cycle, Demand, OrderStep
from antecede.transactions.history import History
from antecede.transactions.reads_from import INITIAL, ReadFault, ReadsFrom
from antecede.transactions.witness import find_witness

_MANY = 12
"""The most operations of a transaction listed in a witness."""


@dataclass
class WitnessTransaction:
    """A transaction of a witness, with its operations on the keys that matter."""

    name: str
    session: str
    operations: list[str]


@dataclass
class LevelViolation:
    """Why a history does not satisfy a level."""

    pattern: str
    text: str
    """The violation in one sentence."""
    because: list[str] = field(default_factory=list)
    """The facts from which it follows, a sentence each."""
    transactions: list[WitnessTransaction] = field(default_factory=list)
    """A minimal part of the history that shows the violation: no transaction can be left out."""


def explain_fault(history: History, fault: ReadFault) -> LevelViolation:
    """A read that no level allows."""
    words = _Words(history)
    reader = _owner(history, fault.operation)
    what = words.assignment(int(history.key[fault.operation]), int(history.value[fault.operation]))
    involved = [reader]
    read = f"{words.who(reader)} read {what}"
    if fault.write >= 0:
        writer = _owner(history, fault.write)
        involved += [writer] if writer != reader else []
        wrote = words.assignment(int(history.key[fault.write]), int(history.value[fault.write]))
    match fault.pattern:
        case "ThinAirRead":
            text = f"{read}, which nobody wrote"
        case "AbortedRead":
            text = f"{read} from {words.who(writer)}, which did not commit"
        case "IntermediateRead":
            text = f"{read} from {words.who(writer)}, which overwrote it before it committed"
        case "FutureRead":
            text = f"{read} before it wrote it itself"
        case _:
            text = f"{read} after it had itself written {wrote}"
    keys = {int(history.key[fault.operation])}
    return LevelViolation(fault.pattern, text, [], [words.witness(number, keys) for number in involved])


def explain_violation(
    history: History, resolved: ReadsFrom, level: str, evidence: LevelEvidence
) -> LevelViolation:
    """The smallest part of a history that is found to violate a level, in words."""
    part, cycle = find_witness(resolved, level, evidence)
    words = _Words(history, part)
    text, because = _sentences(words, cycle)
    keys = {step.key for path in (cycle.steps, *cycle.seen.values()) for step in path if step.key >= 0}
    keys |= {demand.key for demand in cycle.seen}
    numbers = sorted(int(part.source[number]) for number in cycle.transactions)
    return LevelViolation(cycle.pattern, text, because, [words.witness(number, keys) for number in numbers])


def _owner(history: History, operation: int) -> int:
    return int(history.operation_start.searchsorted(operation, side="right")) - 1


def _sentences(words: _Words, cycle: Cycle) -> tuple[str, list[str]]:
    """The violation in one sentence, and the facts from which it follows."""
    demands = [step.demand for step in cycle.steps if step.demand]
    if not demands:
        names = words.together(step.before for step in cycle.steps)
        return f"{names} precede each other in a circle", [words.step(step) for step in cycle.steps]
    first = demands[0]
    if first.after == INITIAL:
        text = f"{words.read(first)}, its initial value, although it had seen {words.overwrote(first)}"
        return text, words.sightings(cycle, demands, with_demand=False)
    if cycle.pattern == "WriteCORead":
        text = (
            f"{words.read(first)}, although it had seen {words.name(first.before)}, "
            f"which overwrote it after {words.name(first.after)}"
        )
        rest = [words.step(step) for step in cycle.steps if not step.demand]
        return text, [*rest, *words.sightings(cycle, demands, with_demand=False)]
    if cycle.pattern == "NonRepeatableRead":
        return f"{words.read(demands[0])}, and also {words.source(demands[1])}", []
    names = words.together(step.before for step in cycle.steps)
    readers = words.together(sorted({demand.reader for demand in cycle.seen}))
    agreed = " on which all sessions agree" if cycle.level in ("RC", "RA", "CCv") else ""
    text = f"{names} cannot be put in one order{agreed} that explains what {readers} read"
    rest = [words.step(step) for step in cycle.steps if not step.demand]
    return text, [*words.sightings(cycle, demands, with_demand=True), *rest]


class _Words:
    """Names and sentences of one history; transactions are numbered as in `part`."""

    def __init__(self, history: History, part: ReadsFrom | None = None) -> None:
        self._history, self._part = history, part

    def _number(self, transaction: int) -> int:
        return transaction if self._part is None else int(self._part.source[transaction])

    def name(self, transaction: int) -> str:
        return self._history.transaction_name(self._number(transaction))

    def session(self, transaction: int) -> str:
        return self._history.session_name(self._history.session_of(self._number(transaction)))

    def who(self, transaction: int) -> str:
        return f"{self.name(transaction)} (session {self.session(transaction)})"

    def together(self, transactions: Iterable[int]) -> str:
        names = [self.who(number) for number in transactions]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def assignment(self, key: int, value: int) -> str:
        return f"{self._history.key_name(key)}={self._history.value_name(value)}"

    def _written(self, writer: int, key: int) -> str:
        """The last value that a transaction wrote to a key."""
        if writer == INITIAL:
            return self.assignment(key, self._history.initial_value or 0)
        operations = self._history.operations_of(self._number(writer))
        return self.assignment(
            key, [value for write, wrote, value in operations if write and wrote == key][-1]
        )

    def read(self, demand: Demand) -> str:
        return f"{self.who(demand.reader)} read {self.source(demand)}"

    def source(self, demand: Demand) -> str:
        value = self._written(demand.after, demand.key)
        return value if demand.after == INITIAL else f"{value} from {self.name(demand.after)}"

    def overwrote(self, demand: Demand) -> str:
        return f"{self.name(demand.before)}, which wrote {self._written(demand.before, demand.key)}"

    def step(self, step: OrderStep) -> str:
        before, after = self.name(step.before), self.name(step.after)
        if step.kind == READ:
            return f"{after} read {self._written(step.before, step.key)} from {before}"
        if step.kind == DEMAND:
            return f"{before} has to come before {after}"
        return f"{after} came after {before} in session {self.session(step.before)}"

    def sightings(self, cycle: Cycle, demands: Sequence[Demand], with_demand: bool) -> list[str]:
        """How the reader of each demand saw what it saw; with `with_demand`, also the conclusion.

        Demands that produced others (in CM only) come first.
        """
        sentences: list[str] = []
        for demand in [demand for demand in reversed(cycle.seen) if demand not in demands] + list(demands):
            steps = [self.step(step) for step in cycle.seen[demand]]
            if with_demand or demand not in demands:
                after, before = self.name(demand.after), self.name(demand.before)
                fact = f"{self.read(demand)}, and had seen {self.overwrote(demand)}"
                sentences.append(f"{fact} ({'; '.join(steps)}), so {before} has to come before {after}")
            else:
                sentences += steps
        return list(dict.fromkeys(sentences))

    def witness(self, number: int, keys: set[int]) -> WitnessTransaction:
        """A transaction of the history, with its operations on some keys."""
        history = self._history
        operations = [
            f"{'wrote' if write else 'read'} {self.assignment(key, value)}"
            for write, key, value in history.operations_of(number)
            if key in keys
        ]
        more = [f"and {len(operations) - _MANY} more"] if len(operations) > _MANY else []
        session = history.session_name(history.session_of(number))
        return WitnessTransaction(history.transaction_name(number), session, operations[:_MANY] + more)
