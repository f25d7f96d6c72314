"""The levels of consistency by trying every order, straight from their definitions, on raw histories.

Shares nothing with the package but the history type: reads are judged by executing transactions one after the
other on a dictionary. Exponential; for histories of at most six or so transactions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from antecede.transactions import History, Status

Relation = set[tuple[int, int]]
LEVELS = ("RC", "RA", "CC", "CM", "CCv")


class BruteForce:
    """All committed transactions of a history. -1 is the transaction that writes the initial values."""

    def __init__(self, history: History) -> None:
        self.initial = history.initial_value
        self.numbers = [
            number for number in range(history.transactions) if history.status[number] == Status.COMMITTED
        ]
        self.operations = {number: history.operations_of(number) for number in self.numbers}
        self.session_order: Relation = {
            (before, after)
            for before, after in itertools.combinations(self.numbers, 2)
            if history.session_of(before) == history.session_of(after)
        }

    def levels(self) -> dict[str, bool]:
        sources = {number: self._sources(number) for number in self.numbers}
        if any(found is None for found in sources.values()):
            return dict.fromkeys(LEVELS, False)
        self.sources = {number: found for number, found in sources.items() if found is not None}
        reads_from = {
            (writer, reader)
            for reader, reads in self.sources.items()
            for _, _, writer in reads
            if writer >= 0
        }
        causal = closure(self.session_order | reads_from)
        if any((number, number) in causal for number in self.numbers):
            return dict.fromkeys(LEVELS, False)
        orders = list(linear_extensions(self.numbers, causal))
        return {
            "RC": any(self._is_committed_order(order, "RC") for order in orders),
            "RA": any(self._is_committed_order(order, "RA") for order in orders),
            "CC": self.causally_consistent(causal),
            "CM": self.causal_memory(causal),
            "CCv": self.causally_convergent(causal, orders),
        }

    def _sources(self, reader: int) -> list[tuple[int, int, int]] | None:
        """The external reads of a transaction, as (place, key, writer); None if some read is a fault."""
        found, own = [], {}
        for place, (write, key, value) in enumerate(self.operations[reader]):
            if write:
                own[key] = value
            elif key in own:
                if own[key] != value:
                    return None
            else:
                writers = [number for number in self.numbers if self._last(number).get(key) == value]
                if reader in writers:
                    return None
                if not writers:
                    if value != self.initial:
                        return None
                    writers = [-1]
                found.append((place, key, writers[0]))
        return found

    def _last(self, number: int) -> dict[int, int]:
        return {key: value for write, key, value in self.operations[number] if write}

    def _is_committed_order(self, order: Sequence[int], level: str) -> bool:
        """The axioms of Biswas and Enea for one commit order."""
        place = {number: index for index, number in enumerate(order)} | {-1: -1}
        for reader, reads in self.sources.items():
            for at, key, writer in reads:
                for other in self.numbers:
                    if other in (writer, reader) or key not in self._last(other):
                        continue
                    if level == "RC":
                        seen = any(source == other and earlier < at for earlier, _, source in reads)
                    else:
                        seen = any(source == other for _, _, source in reads)
                        seen = seen or (other, reader) in self.session_order
                    if seen and place[other] > place[writer]:
                        return False
        return True

    def _explains(self, order: Iterable[int], judged: set[int]) -> bool:
        """Execute transactions in an order: whether the judged ones read what they say."""
        store: dict[int, int] = {}
        for number in order:
            for write, key, value in self.operations[number]:
                if write:
                    store[key] = value
                elif number in judged and store.get(key, self.initial) != value:
                    return False
        return True

    def _past(self, number: int, causal: Relation) -> list[int]:
        return [other for other in self.numbers if (other, number) in causal]

    def causally_consistent(self, causal: Relation) -> bool:
        return all(
            any(
                self._explains([*order, number], {number})
                for order in linear_extensions(self._past(number, causal), causal)
            )
            for number in self.numbers
        )

    def causal_memory(self, causal: Relation) -> bool:
        for number in self.numbers:
            judged = {number} | {before for before, after in self.session_order if after == number}
            orders = linear_extensions(self._past(number, causal), causal)
            if not any(self._explains([*order, number], judged) for order in orders):
                return False
        return True

    def causally_convergent(self, causal: Relation, orders: list[tuple[int, ...]]) -> bool:
        for order in orders:
            if all(
                self._explains([*(other for other in order if (other, number) in causal), number], {number})
                for number in self.numbers
            ):
                return True
        return False

    def with_any_causal_order(self) -> dict[str, bool]:
        """CC, CM and CCv where the causal order is any order that contains session order, as in the paper."""
        verdicts = dict.fromkeys(("CC", "CM", "CCv"), False)
        pairs = [(a, b) for a in self.numbers for b in self.numbers if a != b]
        for chosen in itertools.product((False, True), repeat=len(pairs)):
            causal = {pair for pair, taken in zip(pairs, chosen, strict=True) if taken}
            if not self.session_order <= causal or closure(causal) != causal:
                continue
            if any((b, a) in causal for a, b in causal):
                continue
            orders = list(linear_extensions(self.numbers, causal))
            verdicts["CC"] = verdicts["CC"] or self.causally_consistent(causal)
            verdicts["CM"] = verdicts["CM"] or self.causal_memory(causal)
            verdicts["CCv"] = verdicts["CCv"] or self.causally_convergent(causal, orders)
        return verdicts


def closure(relation: Relation) -> Relation:
    """The transitive closure."""
    closed = set(relation)
    while True:
        more = {(a, d) for a, b in closed for c, d in closed if b == c} - closed
        if not more:
            return closed
        closed |= more


def linear_extensions(numbers: Sequence[int], order: Relation) -> Iterator[tuple[int, ...]]:
    """Every total order that contains a strict order."""
    if not numbers:
        yield ()
    for first in numbers:
        if not any((other, first) in order for other in numbers):
            rest = [number for number in numbers if number != first]
            for tail in linear_extensions(rest, order):
                yield (first, *tail)


def brute_force_levels(history: History) -> dict[str, bool]:
    """Whether a history satisfies each level."""
    return BruteForce(history).levels()
