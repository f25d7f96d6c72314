"""The scoreboard: every number and claim that a paper prints, beside what was measured here.

`verdicts` decides; nothing is rounded to fit. What has not been run is *pending*. Results of our own (a
paper's open question, sizes beyond it) are rows too, but not a paper's: they are counted and shown apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from antecede.papers.errata import smallest_runs
from antecede.papers.verdicts import Holds, Verdict, interval, judge_claim, judge_number


class ScoreRow(msgspec.Struct, frozen=True):
    """One number or claim. `published` and `measured` are words for a claim."""

    paper: str
    quantity: str
    published: float | str | None
    measured: float | str | None
    low: float | None
    high: float | None
    """The 95 % interval of a number; None with a single sample, which has none."""
    runs: int
    ratio: float | None
    verdict: Verdict
    why: str
    own: bool = False
    """Whether it is a result of ours that the paper does not claim."""
    scale: float = 0.0
    """The least scale that a slope is compared on (`verdicts.FLAT`)."""
    likely: bool = False
    """Whether it is an undecided claim whose means agree with it."""
    tried: str = ""
    """What all readings of the paper gave, as a sentence, if the row does not agree."""


def number(
    paper: str,
    quantity: str,
    published: float,
    samples: Sequence[float],
    why: str = "",
    scale: float = 0.0,
) -> ScoreRow:
    """A row for a printed number, with one sample for each run; pending without samples.

    `why` is what we believe the reason to be, and appears only if the number does not match. `scale` is for
    slopes (`verdicts.flat_scale`).
    """
    if not samples:
        return ScoreRow(
            paper, quantity, published, None, None, None, 0, None, "pending", "not run at this size yet"
        )
    mean, low, high = interval(samples)
    verdict = judge_number(published, low, high, scale)
    ratio = mean / published if published else None
    known = math.isfinite(low)
    return ScoreRow(
        paper, quantity, published, mean, low if known else None, high if known else None, len(samples),
        ratio, verdict, "" if verdict == "matches" else why, scale=scale,
    )  # fmt: skip


def claim(
    paper: str, statement: str, holds: Holds, measured: str, runs: int, why: str = "", own: bool = False
) -> ScoreRow:
    """A row for a claim in words; pending if `holds` is None. `own`: it is ours, not the paper's."""
    verdict = judge_claim(holds)
    shown = None if holds is None else measured
    reason = "" if verdict == "holds" else why
    likely = holds == "likely"
    return ScoreRow(
        paper, statement, "holds", shown, None, None, runs, None, verdict, reason, own, likely=likely
    )


def smallest(rule: str) -> str:
    """The smallest run in which a rule fails, as a reason: its size, and what finds and draws it."""
    run = next(run for run in smallest_runs() if run.name == rule)
    return f"the smallest run has {run.messages} messages and {run.steps} steps: {run.command}"


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line.

    >>> slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
