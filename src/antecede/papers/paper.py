"""What a paper's module provides: which runs to make, how to score them, what to draw, how it was read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from antecede.papers.readings import Joint, Reading, Seeds, joint_readings
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdicts import interval
from antecede.report.charts import Measured
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario

Scale = Literal["quick", "full"]
"""Small sizes that take minutes, or the paper's own."""
Points = list[tuple[float, float]]


def mean(samples: Sequence[float]) -> float:
    """The mean; with its 95 % interval, and so drawn with an error bar, if there are several samples."""
    middle, low, high = interval(samples)
    return Measured(middle, low, high) if math.isfinite(low) else middle


class FinishedRun(msgspec.Struct, frozen=True):
    scenario: Scenario
    metrics: Metrics

    def value(self, name: str) -> float:
        """A figure of the run by name: a field of its metrics, or one of those in `measured`."""
        value: float = getattr(self.metrics, name, None) or self.metrics.measured.get(name, 0.0)
        return value


class Runs:
    """Finished runs, selected by their scenarios.

    `runs.where(protocol="mbcp", peers=10).values("paper_bytes_mean")`
    """

    def __init__(self, finished: Sequence[FinishedRun]) -> None:
        self.finished = list(finished)

    def where(self, test: Callable[[Scenario], bool] | None = None, **fields: Any) -> Runs:
        """The runs whose scenarios have these fields and pass the test."""
        return Runs(
            [
                run
                for run in self.finished
                if all(getattr(run.scenario, name) == value for name, value in fields.items())
                and (test is None or test(run.scenario))
            ]
        )

    def values(self, name: str) -> list[float]:
        """A figure of every run."""
        return [run.value(name) for run in self.finished]

    def by(self, key: Callable[[Scenario], Any]) -> dict[Any, Runs]:
        """The runs grouped by a key of their scenarios, in order."""
        keys = sorted({key(run.scenario) for run in self.finished})
        return {each: self.where(lambda scenario, each=each: key(scenario) == each) for each in keys}  # type: ignore[misc]

    def line(self, name: str, along: Callable[[Scenario], float] = lambda scenario: scenario.peers) -> Points:
        """The mean of a figure for each value of `along`: points to draw."""
        return [(key, mean(runs.values(name))) for key, runs in self.by(along).items()]

    def __len__(self) -> int:
        return len(self.finished)


class Figure(msgspec.Struct, frozen=True):
    """A chart of the report: our lines, and the points that the paper prints."""

    number: str
    title: str
    x_label: str
    y_label: str
    lines: dict[str, Points]
    published: dict[str, Points] = {}
    note: str = ""


class Paper(msgspec.Struct, frozen=True):
    """One paper's experiments."""

    name: str
    title: str
    readings: list[Reading]
    seeds: Callable[[Scale], Seeds]
    grid: Callable[[Scale, Joint, Sequence[int]], list[Scenario]]
    """The runs of a joint reading with these seeds."""
    score: Callable[[Runs, Joint], list[ScoreRow]]
    figures: Callable[[Runs, Joint], list[Figure]]
    open_question: str = ""
    """What the paper leaves open and we answer, on the same scenarios."""
    open_grid: Callable[[Scale], list[Scenario]] = lambda _: []
    open_score: Callable[[Runs], list[ScoreRow]] = lambda _: []
    open_figures: Callable[[Runs], list[Figure]] = lambda _: []

    @property
    def plainest(self) -> Joint:
        """The joint reading of first alternatives."""
        return joint_readings(self.readings)[0]

    def plain_grid(self, scale: Scale) -> list[Scenario]:
        """The runs that the plainest reading is judged by."""
        return self.grid(scale, self.plainest, self.seeds(scale).judging)

    def joints(self, scale: Scale) -> list[Joint]:
        """The joint readings to choose from; only the plainest where no seeds are for choosing."""
        return joint_readings(self.readings)[: None if self.seeds(scale).choosing else 1]


def _signed(value: float) -> str:
    """
    >>> _signed(-0.4), _signed(8.6), _signed(-31.0)
    ('0', '+9', '-31')
    """
    return f"{value:+.0f}" if round(value) else "0"


def wire_figure(counted: dict[str, tuple[Points, Points]], x_label: str = "peers") -> list[Figure]:
    """Control information as the paper counts it and as it is on our wire, for each protocol.

    Papers leave out identities, sequence numbers and framing; a wire format cannot. The note compares both
    at the largest size.
    """
    lines: dict[str, Points] = {}
    differences = []
    for name, (paper, wire) in counted.items():
        if not paper or not wire:
            continue
        lines[f"{name}, as the paper counts"], lines[f"{name}, on our wire"] = paper, wire
        (size, as_counted), (_, on_wire) = paper[-1], wire[-1]
        if as_counted:
            change = 100 * (on_wire / as_counted - 1)
            differences.append(
                f"{name} {on_wire:,.0f} for {as_counted:,.0f} bytes at {size:,.0f} ({_signed(change)} %)"
            )
    note = (
        "Our wire, with identities, sequence numbers and framing, which papers do not count: "
        f"{'; '.join(differences)}."
        if differences
        else ""
    )
    title = "Control information per message"
    return [Figure("bytes", title, x_label, "bytes", lines, note=note)] if lines else []
