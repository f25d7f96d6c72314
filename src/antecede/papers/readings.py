"""Readings as data: what a paper leaves open, the alternatives, and which of them explains the paper best.

Alternatives are declared in a paper's module before they are run. A *joint reading* chooses one alternative
of each reading, for all rows of the paper at once; nothing is chosen row by row. All joint readings are
scored on the runs of some seeds, and the verdicts come from runs of the best one with other seeds. So a
reading that agreed by chance does not agree again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec

from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdicts import AGREES, CLOSE, MATCH

Joint = dict[str, str]
"""The chosen alternative of each reading, by name."""


class Alternative(msgspec.Struct, frozen=True):
    name: str
    reading: str
    why: str = ""
    changes: str = ""
    """What it changes: fields of scenarios, figures of runs."""


class Reading(msgspec.Struct, frozen=True):
    """Something that a paper leaves open, and how it may be read: the first alternative is the plainest."""

    name: str
    question: str
    alternatives: tuple[Alternative, ...]


def fixed(question: str, reading: str, why: str) -> Reading:
    """A reading without alternatives."""
    return Reading(question, question, (Alternative("", reading, why),))


class Seeds(msgspec.Struct, frozen=True):
    """Which seeds a joint reading is chosen on, and which others the verdicts come from."""

    choosing: tuple[int, ...]
    judging: tuple[int, ...]


class Agreement(msgspec.Struct, frozen=True):
    """How well rows agree by their means alone, for comparing readings; verdicts need intervals."""

    close: int
    """Numbers within 25 %, and claims that hold, or would hold by their means."""
    matching: int
    """Numbers within 10 %, and claims that hold."""
    rows: int

    @property
    def shares(self) -> tuple[float, float]:
        return self.close / max(1, self.rows), self.matching / max(1, self.rows)

    @classmethod
    def of(cls, rows: Sequence[ScoreRow]) -> Agreement:
        ran = [row for row in rows if not row.own and row.verdict != "pending"]
        return cls(sum(_within(row, CLOSE) for row in ran), sum(_within(row, MATCH) for row in ran), len(ran))


def _within(row: ScoreRow, share: float) -> bool:
    if isinstance(row.measured, float | int) and isinstance(row.published, float | int):
        return abs(row.measured - row.published) <= share * max(abs(row.published), row.scale)
    return row.verdict == "holds" or row.likely


class Tried(msgspec.Struct, frozen=True):
    """What all joint readings gave for one row, on the seeds for choosing."""

    readings: int
    agreeing: int
    """The number of joint readings in which the row is within 25 %, or holds, by its mean."""
    low: float | None = None
    high: float | None = None
    """The least and the greatest mean of a number."""

    @classmethod
    def of(cls, rows: Sequence[ScoreRow]) -> Tried:
        means = [row.measured for row in rows if isinstance(row.measured, float | int)]
        agreeing = sum(_within(row, CLOSE) for row in rows)
        return cls(len(rows), agreeing, *((min(means), max(means)) if means else ()))

    def in_words(self, seeds: Sequence[int]) -> str:
        """As a sentence for a row that does not agree, with the seeds of these runs, which are not ours.

        >>> Tried(12, 3, 0.25, 4.0).in_words([101])
        'On seed 101 it is within 25 % in 3 of 12 joint readings (0.25 to 4).'
        >>> Tried(12, 0).in_words([101, 102, 103])
        'On seeds 101 to 103 it holds in 0 of 12 joint readings.'
        """
        among = f"in {self.agreeing} of {self.readings} joint readings"
        if self.low is None or self.high is None:
            return f"On {seeds_in_words(seeds)} it holds {among}."
        span = f"{self.low:.3g} to {self.high:.3g}" if self.low < self.high else f"{self.low:.3g} in all"
        return f"On {seeds_in_words(seeds)} it is within 25 % {among} ({span})."


class ChosenReading(msgspec.Struct, frozen=True):
    """The joint reading that a paper is judged by, and how it was chosen."""

    joint: Joint
    scored: list[tuple[Joint, Agreement]]
    """Every joint reading, best first; empty if there was nothing to choose."""
    seeds: Seeds
    tried: dict[str, Tried] = {}
    """The results of all joint readings, for each row by its quantity."""

    def explain(self, row: ScoreRow) -> ScoreRow:
        """The row, with the results of the other readings if it does not agree."""
        tried = self.tried.get(row.quantity)
        if tried is None or row.own or row.verdict in (*AGREES, "pending"):
            return row
        return msgspec.structs.replace(row, tried=tried.in_words(self.seeds.choosing))


def joint_readings(readings: Sequence[Reading]) -> list[Joint]:
    """All combinations, the plainest first."""
    open_ones = [reading for reading in readings if len(reading.alternatives) > 1]
    names = [reading.name for reading in open_ones]
    chosen = product(*([each.name for each in reading.alternatives] for reading in open_ones))
    return [dict(zip(names, combination, strict=True)) for combination in chosen]


def choose(scored: Sequence[tuple[Joint, Sequence[ScoreRow]]], seeds: Seeds) -> ChosenReading:
    """The joint reading with which most rows agree; of equal ones the one declared first."""
    agreements = [(joint, Agreement.of(rows)) for joint, rows in scored]
    ranking = sorted(agreements, key=lambda pair: pair[1].shares, reverse=True)  # The sort is stable.
    by_row: dict[str, list[ScoreRow]] = {}
    for _, rows in scored:
        for row in rows:
            if row.verdict != "pending":
                by_row.setdefault(row.quantity, []).append(row)
    tried = {quantity: Tried.of(rows) for quantity, rows in by_row.items()}
    return ChosenReading(ranking[0][0], ranking, seeds, tried)


def seeds_in_words(seeds: Sequence[int]) -> str:
    """
    >>> seeds_in_words([101]), seeds_in_words([1, 2]), seeds_in_words([1, 2, 3])
    ('seed 101', 'seeds 1 and 2', 'seeds 1 to 3')
    """
    if len(seeds) > 2:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {' and '.join(map(str, seeds))}"


def in_words(joint: Joint) -> str:
    """A joint reading as text.

    >>> in_words({"DS": "one interval", "Last": "not counted"})
    'DS: one interval; Last: not counted'
    """
    return "; ".join(f"{name}: {chosen}" for name, chosen in joint.items())
