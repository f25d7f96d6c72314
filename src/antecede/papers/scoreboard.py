"""The scoreboard: every number and claim that a paper prints, beside what was measured here.

A number *matches* if it lies in the 95 % confidence interval of ours or within 10 % of our mean. A number, a
claim or a series has the *same shape* if sign and order agree and the ratio is between a half and two.
Otherwise it *differs*. What has not been run is *pending*. Nothing else decides; nothing is rounded to fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

import msgspec

Agreement = Literal["matches", "same shape", "differs", "pending"]


class ScoreRow(msgspec.Struct, frozen=True):
    """One number or claim. `published` and `measured` are words for a claim."""

    paper: str
    quantity: str
    published: float | str | None
    measured: float | str | None
    low: float | None
    high: float | None
    runs: int
    ratio: float | None
    verdict: Agreement
    why: str


def number(paper: str, quantity: str, published: float, samples: Sequence[float], why: str = "") -> ScoreRow:
    """A row for a printed number, with one sample for each run; pending without samples.

    `why` is what we believe the reason to be, and appears only if the number does not match.
    """
    if not samples:
        return ScoreRow(
            paper, quantity, published, None, None, None, 0, None, "pending", "not run at this size yet"
        )
    mean, low, high = interval(samples)
    verdict = judge(published, mean, low, high)
    ratio = mean / published if published else None
    return ScoreRow(
        paper, quantity, published, mean, low, high, len(samples), ratio, verdict,
        "" if verdict == "matches" else why,
    )  # fmt: skip


def judge(published: float, mean: float, low: float, high: float) -> Agreement:
    """How a measured mean and its interval agree with a printed number.

    >>> judge(100, 108, 107, 109), judge(100, 120, 90, 150), judge(100, 60, 59, 61), judge(1, -1, -1, -1)
    ('matches', 'matches', 'same shape', 'differs')
    """
    if low <= published <= high or abs(mean - published) <= 0.1 * abs(published):
        return "matches"
    if published and 0.5 <= mean / published <= 2:
        return "same shape"
    return "differs"


def claim(
    paper: str, statement: str, holds: bool | None, measured: str, runs: int, why: str = ""
) -> ScoreRow:
    """A row for a claim in words; pending if `holds` is None."""
    verdict: Agreement = "pending" if holds is None else "same shape" if holds else "differs"
    shown = None if holds is None else measured
    return ScoreRow(paper, statement, "holds", shown, None, None, runs, None, verdict, "" if holds else why)


_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
            2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
            2.045, 2.042)  # fmt: skip
"""Student's 97.5 % quantile for 1, 2, ... 30 degrees of freedom."""


def interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the bounds of its 95 % confidence interval; a single sample is its own interval.

    >>> interval([1.0, 2.0, 3.0])[0], interval([5.0])
    (2.0, (5.0, 5.0, 5.0))
    """
    mean = fmean(samples)
    if len(samples) < 2:
        return mean, mean, mean
    freedom = len(samples) - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96
    half = student * stdev(samples) / math.sqrt(len(samples))
    return mean, mean - half, mean + half


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line.

    >>> slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
