"""The scoreboard: every number and every claim that a paper prints, beside what was measured here.

A number *matches* if it lies in the 95 % interval of ours or within 10 % of it. A number, a claim or a series
has the *same shape* if sign and order are the same and the ratio is between a half and two. Otherwise it
*differs*. What has not been run is *pending*. Nothing else decides, and nothing is rounded to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any, Literal

import msgspec

from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario

Verdict = Literal["matches", "same shape", "differs", "pending"]
Scale = Literal["quick", "full"]


class Row(msgspec.Struct, frozen=True):
    """One number or claim. `published` and `measured` of a claim are words."""

    paper: str
    quantity: str
    published: float | str | None
    measured: float | str | None
    low: float | None
    high: float | None
    runs: int
    ratio: float | None
    verdict: Verdict
    why: str


def number(paper: str, quantity: str, published: float, samples: Sequence[float], why: str = "") -> Row:
    """A row for a printed number; a sample is one run's value. Without samples it is pending.

    `why` says what we think the reason is, and is kept only where it differs.
    """
    if not samples:
        return Row(
            paper, quantity, published, None, None, None, 0, None, "pending", "not run at this size yet"
        )
    mean, low, high = interval(samples)
    verdict = judge(published, mean, low, high)
    ratio = mean / published if published else None
    return Row(
        paper, quantity, published, mean, low, high, len(samples), ratio, verdict,
        "" if verdict == "matches" else why,
    )  # fmt: skip


def judge(published: float, mean: float, low: float, high: float) -> Verdict:
    """What a measured mean with its interval says of a printed number.

    >>> judge(100, 108, 107, 109), judge(100, 120, 90, 150), judge(100, 60, 59, 61), judge(1, -1, -1, -1)
    ('matches', 'matches', 'same shape', 'differs')
    """
    if low <= published <= high or abs(mean - published) <= 0.1 * abs(published):
        return "matches"
    if published and 0.5 <= mean / published <= 2:
        return "same shape"
    return "differs"


def claim(paper: str, says: str, holds: bool | None, measured: str, runs: int, why: str = "") -> Row:
    """A row for something that is said in words; None if it has not been run."""
    verdict: Verdict = "pending" if holds is None else "same shape" if holds else "differs"
    shown = None if holds is None else measured
    return Row(paper, says, "holds", shown, None, None, runs, None, verdict, "" if holds else why)


_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
            2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
            2.045, 2.042)  # fmt: skip
"""Student's 97.5 % quantile for 1, 2, ... 30 degrees of freedom."""


def interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval; one sample has no interval but itself.

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
    """The slope of the line of least squares.

    >>> slope([(0, 1), (1, 3), (2, 5)])
    2.0
    """
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread


class Done(msgspec.Struct, frozen=True):
    """A finished run."""

    scenario: Scenario
    metrics: Metrics

    def value(self, name: str) -> float:
        """A figure of the run: a field of its metrics, or something that was measured besides."""
        found: float = getattr(self.metrics, name, None) or self.metrics.measured.get(name, 0.0)
        return found


class Runs:
    """Finished runs, to be asked for by what they were.

    `runs.where(protocol="mbcp", peers=10).values("paper_bytes_mean")`
    """

    def __init__(self, done: Sequence[Done]) -> None:
        self.done = list(done)

    def where(self, test: Callable[[Scenario], bool] | None = None, **fields: Any) -> Runs:
        return Runs(
            [
                run
                for run in self.done
                if all(getattr(run.scenario, name) == value for name, value in fields.items())
                and (test is None or test(run.scenario))
            ]
        )

    def values(self, name: str) -> list[float]:
        return [run.value(name) for run in self.done]

    def by(self, key: Callable[[Scenario], Any]) -> dict[Any, Runs]:
        """The runs apart, by whatever `key` says of their scenarios, in order."""
        keys = sorted({key(run.scenario) for run in self.done})
        return {each: self.where(lambda made, each=each: key(made) == each) for each in keys}  # type: ignore[misc]

    def line(
        self, name: str, along: Callable[[Scenario], float] = lambda made: made.peers
    ) -> list[tuple[float, float]]:
        """Mean values of a figure along something: points to draw."""
        return [(key, fmean(runs.values(name))) for key, runs in self.by(along).items()]

    def __len__(self) -> int:
        return len(self.done)


class Figure(msgspec.Struct, frozen=True):
    """A picture of the report: lines of ours, and the points that the paper prints."""

    number: str
    title: str
    x_label: str
    y_label: str
    lines: dict[str, list[tuple[float, float]]]
    published: dict[str, list[tuple[float, float]]] = {}
    note: str = ""


Points = list[tuple[float, float]]


def wire_figure(counted: dict[str, tuple[Points, Points]], x_label: str = "peers") -> list[Figure]:
    """Control information of each protocol as its paper counts and as our wire has it; says by how much they
    differ at the largest size. Papers leave out identities, numbers and framing; a wire cannot."""
    lines: dict[str, Points] = {}
    said = []
    for name, (paper, wire) in counted.items():
        if not paper or not wire:
            continue
        lines[f"{name}, as the paper counts"], lines[f"{name}, on our wire"] = paper, wire
        (size, before), (_, ours) = paper[-1], wire[-1]
        if before:
            change = 100 * (ours / before - 1)
            said.append(f"{name} {ours:,.0f} for {before:,.0f} bytes at {size:,.0f} ({change:+.0f} %)")
    note = f"Our wire, with identities, numbers and framing, which papers do not count: {'; '.join(said)}."
    title = "Control information a message"
    return [Figure("bytes", title, x_label, "bytes", lines, note=note if said else "")] if lines else []


class Reading(msgspec.Struct, frozen=True):
    """Where a paper leaves something open: what, how it is read here, and why."""

    what: str
    taken: str
    why: str


class Paper(msgspec.Struct, frozen=True):
    """One paper's experiments."""

    name: str
    title: str
    grid: Callable[[Scale], list[Scenario]]
    score: Callable[[Runs], list[Row]]
    figures: Callable[[Runs], list[Figure]]
    readings: list[Reading]
    open_question: str = ""
    """What the paper left open, and we answer on the same scenarios."""
    open_grid: Callable[[Scale], list[Scenario]] = lambda _: []
    open_score: Callable[[Runs], list[Row]] = lambda _: []
    open_figures: Callable[[Runs], list[Figure]] = lambda _: []
