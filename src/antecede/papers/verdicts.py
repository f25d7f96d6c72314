"""Verdicts by equivalence: agreement has to be shown, it is not what remains where no difference was found.

A published number is compared with the 95 % confidence interval of ours, never with its mean alone:

- *matches*: the interval lies within ±10 % of the published value, or contains it and is narrower than 20 %
  of it
- *close*: the interval lies within ±25 %
- *differs*: the interval lies wholly outside ±25 %
- *undecided*: the interval reaches across that border, or there is only one sample. More runs would decide.

So noise never helps: the wider the interval, the less can be shown by it. A claim *holds* or *fails*; one
that compares two measured values is *undecided* if the interval of their differences contains zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

Verdict = Literal["matches", "close", "holds", "differs", "fails", "undecided", "pending"]
AGREES: tuple[Verdict, ...] = ("matches", "close", "holds")
MATCH, CLOSE = 0.10, 0.25
"""The largest distance from the published value, as a share of it."""

Holds = bool | Literal["undecided"] | None
"""Of a claim; None if what it speaks of was not run."""

_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
            2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
            2.045, 2.042)  # fmt: skip
"""Student's 97.5 % quantile for 1, 2, ... 30 degrees of freedom."""


def interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the bounds of its 95 % confidence interval; that of a single sample is unbounded.

    >>> interval([1.0, 2.0, 3.0])[0], interval([5.0])
    (2.0, (5.0, -inf, inf))
    """
    mean = fmean(samples)
    if len(samples) < 2:
        return mean, -math.inf, math.inf
    freedom = len(samples) - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96
    half = student * stdev(samples) / math.sqrt(len(samples))
    return mean, mean - half, mean + half


def judge_number(published: float, low: float, high: float) -> Verdict:
    """How the interval of our measurements agrees with a published number.

    A published zero is matched by zero alone, since no share of it is a distance.

    >>> judge_number(100, 95, 109), judge_number(100, 99, 111), judge_number(5, -59.3, 111.7)
    ('matches', 'matches', 'undecided')
    >>> judge_number(100, 112, 124), judge_number(100, 120, 130), judge_number(100, 126, 150)
    ('close', 'undecided', 'differs')
    """
    size = abs(published)

    def within(share: float) -> bool:
        # Borders belong to the better verdict, whatever the rounding of 1.1 in binary.
        slack = 1e-9 * size
        return published - share * size - slack <= low and high <= published + share * size + slack

    if within(MATCH) or (low <= published <= high and high - low < 2 * MATCH * size):
        return "matches"
    if within(CLOSE):
        return "close"
    outside = high < published - CLOSE * size or low > published + CLOSE * size
    return "differs" if outside else "undecided"


def judge_claim(holds: Holds) -> Verdict:
    if holds is None:
        return "pending"
    if holds == "undecided":
        return "undecided"
    return "holds" if holds else "fails"


def is_less(one: Sequence[float], other: Sequence[float]) -> Holds:
    """Whether samples are less than others that they are paired with (the same seeds); None without pairs.

    Decided by the interval of their differences, so that an order by chance is no order.

    >>> is_less([1, 2, 3], [2, 3, 4.1]), is_less([2, 3], [1, 2]), is_less([1, 2], [2, 1]), is_less([], [])
    (True, False, 'undecided', None)
    """
    differences = [b - a for a, b in zip(one, other, strict=False)]
    if not differences:
        return None
    _, low, high = interval(differences)
    if low > 0 or high < 0:
        return low > 0
    return False if low == high else "undecided"


def all_hold(parts: Sequence[Holds]) -> Holds:
    """A claim with several parts: it fails if one fails, and is undecided if none does and one is undecided.

    >>> all_hold([True, True]), all_hold([True, "undecided"]), all_hold([False, "undecided"]), all_hold([])
    (True, 'undecided', False, None)
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if any(part is False for part in known):
        return False
    return "undecided" if "undecided" in known else True
