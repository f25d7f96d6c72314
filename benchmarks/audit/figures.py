"""The figures of audits: their types, the aims, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from rich.console import Console
from rich.table import Table

from antecede.report.charts import Series, line_chart
from antecede.report.page import alone

SPARK = "Antecede on Spark"
HERE = "Antecede in one process"
STREAMED = "Antecede, one pass"
PLAIN = "plain Python"

MILLION = 1_000_000
SMALL_ROWS = 100_000
SMALL_SECONDS = 10.0
MANY = 1_000
"""The number of processes for which the aims for growth and speed hold."""
FROM_ROWS = 10 * MILLION
TIMES_PLAIN = 20
MAX_BYTES = 4 << 30
GROWTH = 1.2


class Point(msgspec.Struct):
    """One way on one trace."""

    who: str
    processes: int
    size: int
    """The requested number of rows; the trace has a few per cent more or less."""
    rows: int
    seconds: float
    """Wall-clock time, everything included; for plain Python CPU time, scaled from its first rows to all."""
    peak_bytes: int | None = None
    shuffle_bytes: int | None = None
    measured_rows: int | None = None
    """The number of rows from which it was scaled."""

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


class Aim(msgspec.Struct):
    what: str
    found: str
    reached: bool


class Figures(msgspec.Struct):
    machine: dict[str, str]
    cores: int
    start_seconds: list[float]
    """Seconds for a trace of a few rows on Spark, everything included."""
    points: list[Point]
    aims: list[Aim] = []

    @property
    def start(self) -> float:
        return sorted(self.start_seconds)[len(self.start_seconds) // 2]

    def of(self, who: str) -> list[Point]:
        return sorted(
            (one for one in self.points if one.who == who), key=lambda one: (one.processes, one.rows)
        )

    def plain(self, one: Point) -> Point:
        """The opponent on the same trace."""
        (found,) = [
            each for each in self.of(PLAIN) if (each.processes, each.size) == (one.processes, one.size)
        ]
        return found


def judged(found: Figures) -> list[Aim]:
    """The aims that these points decide."""
    aims = []
    spark = found.of(SPARK)
    many = [one for one in spark if one.processes == MANY and one.size >= MILLION]
    for one in spark:
        times = found.plain(one).seconds / one.seconds
        what = f"{_size(one)}, start included: × plain Python"
        if one.processes == MANY and one.size >= FROM_ROWS:
            aims.append(Aim(f"{what}, at least {TIMES_PLAIN}", f"{times:.1f}", times >= TIMES_PLAIN))
        elif one.size >= FROM_ROWS:
            aims.append(Aim(f"{what}, at least 1", f"{times:.2f}", times >= 1))
        if one.rows < SMALL_ROWS:
            what = f"{_size(one)}, start included: seconds, at most {SMALL_SECONDS:g}"
            aims.append(Aim(what, f"{one.seconds:.1f}", one.seconds <= SMALL_SECONDS))
    for less, more in pairwise(many):
        growth = (more.seconds - found.start) / (less.seconds - found.start) / (more.rows / less.rows)
        what = f"{_size(less)} to {_size(more)}: seconds a row without the start, × at most {GROWTH:g}"
        aims.append(Aim(what, f"{growth:.2f}", growth <= GROWTH))
    for one in many[-1:]:
        what = f"{_size(one)}: peak GiB, JVM and workers, under {MAX_BYTES >> 30}"
        peak = one.peak_bytes or 0
        aims.append(Aim(what, f"{peak / (1 << 30):.2f}", peak < MAX_BYTES))
    return aims


def show(found: Figures) -> None:
    """Tables for people."""
    console = Console(width=120, highlight=False)
    console.print(", ".join(f"{name} {value}" for name, value in found.machine.items()))
    starts = ", ".join(f"{each:.1f}" for each in found.start_seconds)
    console.print(f"Spark on {found.cores} cores. A trace of a few rows on Spark takes {starts} s.")
    heads = ("processes", "rows", "who", "seconds", "thousand rows/s", "× plain", "peak GiB", "shuffled MB")
    _print(console, heads, [_shown(found, one) for one in found.points])
    rows = [(aim.what, aim.found, "reached" if aim.reached else "missed") for aim in found.aims]
    _print(console, ("aim", "found", ""), rows)


def _shown(found: Figures, one: Point) -> tuple[str, ...]:
    peak = "" if one.peak_bytes is None else f"{one.peak_bytes / (1 << 30):.2f}"
    moved = "" if one.shuffle_bytes is None else f"{one.shuffle_bytes / 1e6:,.1f}"
    times = found.plain(one).seconds / one.seconds
    return (
        f"{one.processes:,}", f"{one.rows:,}", one.who, f"{one.seconds:,.1f}", f"{one.rate / 1e3:,.0f}",
        f"{times:.3g}", peak, moved,
    )  # fmt: skip


def _print(console: Console, heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    if rows:
        console.print(table)


def _size(one: Point) -> str:
    return f"{one.size / MILLION:g} million rows of {one.processes:,}"


def chart(found: Figures) -> str:
    """Seconds by rows, for the most processes."""
    most = max(one.processes for one in found.points)
    series = [
        Series(who, [(one.size, one.seconds) for one in found.of(who) if one.processes == most])
        for who in (PLAIN, HERE, STREAMED, SPARK)
    ]
    label = f"Seconds to audit a run of {most:,} processes by the number of its rows"
    return alone(line_chart(series, "rows", "seconds", label, powers=True))
