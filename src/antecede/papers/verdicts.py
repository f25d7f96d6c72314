"""Verdicts by equivalence testing: agreement has to be demonstrated; the absence of a significant difference
is not enough.

A published number is compared with the 95 % confidence interval of ours, never with its mean alone:

- *matches*: the interval lies within ±10 % of the published value, or contains it and is narrower than 20 %
  of it
- *close*: the interval lies within ±25 %
- *differs*: the interval lies wholly outside ±25 %
- *undecided*: the interval reaches across that border, or there is only one sample. More runs would decide.

So noise never helps: the wider the interval, the less can be shown by it. A claim *holds* or *fails*; one
that compares two measured values is *undecided* if the interval of their differences contains zero.

A share of a slope near zero says nothing: ±10 % of 0.002 bytes a peer is less than a tenth of a byte over 400
peers. A line that rises or falls by less than 10 % of its quantity over the sizes is *flat*, and its slope is
compared on the scale of such a rise: the interval has to lie within ±10 % of it (±25 %), which is 1 % (2.5 %)
of the quantity from one end to the other.
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

FLAT = 0.10
"""A line that changes by less over its sizes, as a share of its quantity, is flat."""

Holds = bool | Literal["likely", "unlikely"] | None
"""Of a claim; None if what it speaks of was not run. `likely` and `unlikely` are both *undecided*: the means
are as claimed, or not, but the interval reaches across. Only the choice of a reading, which goes by means,
tells them apart."""

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


def judge_number(published: float, low: float, high: float, scale: float = 0.0) -> Verdict:
    """How the interval of our measurements agrees with a published number; `scale` is that of a flat line.

    A published zero without a scale is matched by zero alone, since no share of it is a distance.

    >>> judge_number(100, 95, 109), judge_number(100, 99, 111), judge_number(5, -59.3, 111.7)
    ('matches', 'matches', 'undecided')
    >>> judge_number(100, 112, 124), judge_number(100, 120, 130), judge_number(100, 126, 150)
    ('close', 'undecided', 'differs')
    """
    size = max(abs(published), scale)

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


def flat_scale(points: Sequence[tuple[float, float]]) -> float:
    """The slope of a line that is just not flat, for the points (size, quantity) of another.

    >>> flat_scale([(100, 40.0), (300, 60.0)])
    0.025
    """
    span = max(x for x, _ in points) - min(x for x, _ in points)
    return FLAT * abs(fmean(y for _, y in points)) / span


def judge_claim(holds: Holds) -> Verdict:
    if holds is None:
        return "pending"
    if isinstance(holds, str):
        return "undecided"
    return "holds" if holds else "fails"


def is_less(one: Sequence[float], other: Sequence[float]) -> Holds:
    """Whether samples are less than others that they are paired with (the same seeds); None without pairs.

    Decided by the interval of their differences, so that an order by chance is no order.

    >>> is_less([1, 2, 3], [2, 3, 4.1]), is_less([2, 3], [1, 2]), is_less([1, 2], [3, 1]), is_less([], [])
    (True, False, 'likely', None)
    """
    differences = [b - a for a, b in zip(one, other, strict=False)]
    if not differences:
        return None
    mean, low, high = interval(differences)
    if low > 0 or high < 0:
        return low > 0
    if low == high:
        return False
    return "likely" if mean > 0 else "unlikely"


def all_hold(parts: Sequence[Holds]) -> Holds:
    """A claim with several parts: it fails if one fails, and is undecided if none does and one is undecided.

    >>> all_hold([True, True]), all_hold([True, "likely"]), all_hold([False, "likely"]), all_hold([])
    (True, 'likely', False, None)
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if any(part is False for part in known):
        return False
    if "unlikely" in known:
        return "unlikely"
    return "likely" if "likely" in known else True


def opposite(holds: Holds) -> Holds:
    """Whether a claim's opposite holds.

    >>> opposite(True), opposite("unlikely"), opposite(None)
    (False, 'likely', None)
    """
    if holds is None or isinstance(holds, bool):
        return None if holds is None else not holds
    return "unlikely" if holds == "likely" else "likely"
