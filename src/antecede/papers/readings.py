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
from antecede.papers.verdicts import CLOSE, MATCH

Joint = dict[str, str]
"""The alternative that is chosen of each reading, by name."""


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
    """Numbers within 25 %, and claims that hold, or would by their means."""
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


class ChosenReading(msgspec.Struct, frozen=True):
    """The joint reading that a paper is judged by, and how it was chosen."""

    joint: Joint
    scored: list[tuple[Joint, Agreement]]
    """Every joint reading, best first; empty if there was nothing to choose."""
    seeds: Seeds


def joint_readings(readings: Sequence[Reading]) -> list[Joint]:
    """All combinations, the plainest first."""
    open_ones = [reading for reading in readings if len(reading.alternatives) > 1]
    names = [reading.name for reading in open_ones]
    chosen = product(*([each.name for each in reading.alternatives] for reading in open_ones))
    return [dict(zip(names, combination, strict=True)) for combination in chosen]


def choose(scored: Sequence[tuple[Joint, Agreement]], seeds: Seeds) -> ChosenReading:
    """The joint reading with which most rows agree; of equal ones the one declared first."""
    ranking = sorted(scored, key=lambda pair: pair[1].shares, reverse=True)  # stable
    return ChosenReading(ranking[0][0], ranking, seeds)


def in_words(joint: Joint) -> str:
    """A joint reading as text.

    >>> in_words({"DS": "one interval", "Last": "not counted"})
    'DS: one interval; Last: not counted'
    """
    return "; ".join(f"{name}: {chosen}" for name, chosen in joint.items())
