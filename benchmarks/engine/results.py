"""The results: how they are stored, compared with the aims, and shown."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

SIMPY = "SimPy, bare dispatch"
SIMPY_GUIDE = "SimPy, as in its guide"
C_BARE = "C, bare dispatch"
C_CAUSAL = "C, causal delivery"
C_RECURRENCE = "C, recurrence"
EVENT = "Antecede, event kernel"
RECURRENCE = "Antecede, recurrence"
PEER_IN_C = {
    SIMPY: C_BARE,
    SIMPY_GUIDE: C_BARE,
    "heapq, bare dispatch": C_BARE,
    "heapq, causal delivery": C_CAUSAL,
    "Antecede, reference": C_CAUSAL,
    EVENT: C_CAUSAL,
    RECURRENCE: C_RECURRENCE,
}
"""Contestants that do the same in C."""


class Aim(NamedTuple):
    """How fast a contestant should be, as a multiple of another."""

    who: str
    times: float
    whom: str
    peers: tuple[int, ...] = ()
    """The sizes for which this holds; all sizes if empty."""


AIMS = (
    Aim(RECURRENCE, 150, SIMPY),
    Aim(RECURRENCE, 150, SIMPY_GUIDE),
    Aim(RECURRENCE, 0.7, C_RECURRENCE),
    Aim(EVENT, 30, SIMPY, (100,)),
    Aim(EVENT, 30, SIMPY_GUIDE, (100,)),
    Aim(EVENT, 0.7, C_CAUSAL),
)


class Timed(msgspec.Struct):
    """The times of a contestant for a number of deliveries, one per turn."""

    name: str
    peers: int
    deliveries: int = 0
    packets: int = 0
    share: float = 1.0
    """The simulated seconds of sending."""
    cpu_seconds: list[float] = msgspec.field(default_factory=list)

    @property
    def rate(self) -> float:
        """Deliveries per CPU second; the median."""
        return self.deliveries / median(self.cpu_seconds)


class Results(msgspec.Struct):
    machine: dict[str, str]
    workload: str
    left_out: list[str]
    compiling_cpu_seconds: dict[str, float]
    compared: list[Timed]
    others: list[Timed]

    def ratio(self, who: str, whom: str, peers: int) -> float | None:
        """How many times as fast one contestant is as another, at the same size; None if either was left
        out."""
        rates = {each.name: each.rate for each in self.compared if each.peers == peers}
        return rates[who] / rates[whom] if who in rates and whom in rates else None

    def sizes(self) -> list[int]:
        return sorted({each.peers for each in self.compared})


def machine() -> dict[str, str]:
    """What the figures depend on."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    facts = {
        "processor": names[0] if names else platform.processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    facts |= {name: version(name) for name in ("numba", "numpy", "simpy") if importlib.util.find_spec(name)}
    gcc = shutil.which("gcc")
    if gcc:
        facts["gcc"] = subprocess.run(
            [gcc, "-dumpfullversion"], capture_output=True, text=True
        ).stdout.strip()
    return facts


def show(found: Results) -> None:
    """Tables for people."""
    console = Console(width=110, highlight=False)
    console.print(", ".join(f"{name} {value}" for name, value in found.machine.items()))
    console.print(f"All-to-all broadcast; {found.workload}. CPU time of one thread; medians.")
    print_table(
        console,
        ("peers", "who", "million deliveries/s", "least–most", "× SimPy", "× C"),
        [_compared(found, each) for each in found.compared],
    )
    print_table(console, ("aim", "peers", "found", ""), _aims(found))
    print_table(
        console,
        ("event kernel of", "peers", "million deliveries/s", "million packets/s"),
        [
            (one.name, str(one.peers), _million(one.rate), _million(one.rate * one.packets / one.deliveries))
            for one in found.others
        ],
    )  # fmt: skip
    took = ", ".join(f"{name} {spent:.1f}" for name, spent in found.compiling_cpu_seconds.items())
    console.print(f"Not in these figures: the first, tiny run of each, compiling, took CPU seconds: {took}.")
    for line in found.left_out:
        console.print(line)


def _compared(found: Results, one: Timed) -> tuple[str, ...]:
    ratios = (found.ratio(one.name, whom, one.peers) for whom in (SIMPY, PEER_IN_C.get(one.name, "")))
    part = "" if one.share == 1 else f" ({one.share:.0%} of the time)"
    fastest, slowest = min(one.cpu_seconds), max(one.cpu_seconds)
    spread = f"{_million(one.deliveries / slowest)}–{_million(one.deliveries / fastest)}"
    shown = ("" if ratio is None else f"{ratio:.3g}" for ratio in ratios)
    return str(one.peers), one.name + part, _million(one.rate), spread, *shown


def _aims(found: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for aim in AIMS:
        for peers in aim.peers or found.sizes():
            ratio = found.ratio(aim.who, aim.whom, peers)
            if ratio is not None:
                what = f"{aim.who}: at least {aim.times:g} × {aim.whom}"
                rows.append((what, str(peers), f"{ratio:.3g}", "reached" if ratio >= aim.times else "missed"))
    return rows


def _million(rate: float) -> str:
    return f"{rate / 1e6:.3g}"


def print_table(console: Console, heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        table = Table(*heads)
        for row in rows:
            table.add_row(*row)
        console.print(table)
