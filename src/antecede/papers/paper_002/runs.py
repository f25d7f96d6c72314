"""Paper 002's runs, and their means by protocol, data and size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from antecede.papers.paper import Runs, Scale
from antecede.papers.readings import Joint, Seeds
from antecede.papers.scoreboard import slope
from antecede.papers.verdicts import Holds, is_less
from antecede.sim.network import RoutedModel
from antecede.sim.scenario import Scenario, scenario

PAPER = "002"
PROTOCOLS = {
    "Overlay": ("flooding", False),
    "Timestamp": ("timestamp", True),
    "unicast": ("timestamp", False),
}
"""By the paper's names: our protocol, and whether the network multicasts."""
DATA = (0, 100, 1000)
SIZES: dict[Scale, list[int]] = {"quick": [32, 64], "full": [100, 200, 300, 400, 500, 600]}
LARGEST = 600
"""The largest size that takes reasonable time; rows of larger sizes stay pending."""
CHOOSING_SIZES = (100, 200, 400)
"""Sizes on which a reading is chosen: flooding 500 and 600 nodes takes as long as all smaller sizes."""
FEWEST = 3
"""Topologies. Claims are not judged at sizes of which fewer were run, if there are others: two differ so much
that nothing could be decided by them."""
SENDERS, BURST, ROUNDS = 10, 10, 10
RATE = 1000.0
"""Rounds per second, as printed."""
HEADER, NUMBER = 32, 4
ROOM = RoutedModel().mtu - HEADER
"""Bytes in a fragment after its header."""
MS, MB = 1e6, 1e6


def _run(name: str, peers: int, data: int, seed: int, rate: float = RATE) -> Scenario:
    protocol, multicast = PROTOCOLS[name]
    return scenario(
        protocol=protocol, peers=peers, seed=seed, payload=data, seconds=ROUNDS / rate, workload="rounds",
        rate=rate, senders=min(SENDERS, peers), burst=BURST, count="paper", probes=("queues",),
        network={"model": "routed", "multicast": multicast, "header": HEADER},
    )  # fmt: skip


def seeds(scale: Scale) -> Seeds:
    """Each seed is another topology."""
    return Seeds((), (1, 2, 3)) if scale == "quick" else Seeds((101, 102, 103), tuple(range(1, 11)))


_seeds_of = seeds


def grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    chosen_on = _seeds_of(scale).choosing
    sizes = SIZES[scale] if tuple(seeds) != chosen_on else CHOOSING_SIZES
    return [
        _run(name, peers, data, seed, float(joint["rounds"]))
        for peers in sizes
        if peers <= LARGEST
        for data in DATA
        for name in PROTOCOLS
        for seed in seeds
    ]


def select(runs: Runs, name: str, data: int) -> Runs:
    """The runs of one of `PROTOCOLS` with `data` bytes of data."""
    protocol, multicast = PROTOCOLS[name]

    def belongs(setting: Scenario) -> bool:
        return isinstance(setting.network, RoutedModel) and setting.network.multicast is multicast

    return runs.where(belongs, protocol=protocol, payload=data)


class MeanFigures:
    """Mean figures of the runs, by protocol, data and size. `Timestamp` is read as the joint reading says;
    the other way to reach all is in the texts beside it."""

    def __init__(self, runs: Runs, joint: Joint) -> None:
        swapped = joint["Timestamp"] == "unicasts"
        names = {"Timestamp": "unicast", "unicast": "Timestamp"} if swapped else {}
        self.other = "tree" if swapped else "unicast"
        """The variant of Timestamp that is not judged."""
        self.way = "unicast" if swapped else "tree"
        self.rounds_ms = 1e3 * ROUNDS / float(joint["rounds"])
        """How long messages are sent."""
        self.sent = "fragments" if joint["counted"] == "fragments" else "packets"
        """The figure that counts what is sent."""
        self.whole_copies = joint["d"] == "copy"
        """Whether the size in the paper's formulas is that of all that a copy carries but timestamps."""
        self._by = {
            (name, data): select(runs, names.get(name, name), data).by(lambda setting: setting.peers)
            for name in PROTOCOLS
            for data in DATA
        }
        self.sizes: list[int] = sorted(set.intersection(*(set(sizes) for sizes in self._by.values())))
        """The sizes run with every protocol and data."""
        own = [size for size in self.sizes if size >= min(SIZES["full"])]
        within = [size for size in own if len(self.runs("Overlay", 0, size)) >= FEWEST] or own
        self.judged = within or self.sizes[-1:]
        self.growth = within if len(within) > 1 else self.sizes
        self.count = sum(len(self.runs(name, data, size)) for name, data, size in self._all())

    def _all(self) -> list[tuple[str, int, int]]:
        return [(name, data, size) for name in PROTOCOLS for data in DATA for size in self.judged]

    def runs(self, name: str, data: int, size: int) -> Runs:
        return self._by[name, data].get(size, Runs([]))

    def mean(self, figure: str, name: str, data: int, size: int) -> float:
        return fmean(self.runs(name, data, size).values(figure))

    def copies(self, name: str, size: int) -> list[float]:
        """How often a message is sent, in each run without data."""
        runs = self.runs(name, 0, size)
        return [f / m for f, m in zip(runs.values(self.sent), runs.values("messages"), strict=True)]

    @property
    def versus(self) -> str:
        """The two sides of a comparison, for texts."""
        return f"Overlay against Timestamp, {self.way} (Timestamp, {self.other})"

    def lower(self, figure: str, data: int, one: str, other: str) -> dict[int, Holds]:
        """Whether a figure is lower for one protocol than for the other, at each size."""
        return {
            n: is_less(self.runs(one, data, n).values(figure), self.runs(other, data, n).values(figure))
            for n in self.judged
        }

    def rises(self, figure: str, name: str, data: int) -> Holds:
        """Whether a figure grows with the size: the slope of each seed's line over the sizes."""
        lines: dict[int, list[tuple[float, float]]] = {}
        for n in self.growth:
            for run in self.runs(name, data, n).finished:
                lines.setdefault(run.scenario.seed, []).append((float(n), run.value(figure)))
        slopes = [slope(line) for line in lines.values() if len(line) > 1]
        return is_less([0.0] * len(slopes), slopes)

    def show(self, figure: str, data: int, unit: str = "", scale: float = 1.0) -> str:
        """A figure of every protocol at each size, as text."""
        parts = []
        for size in self.judged:
            overlay, tree, each = (short(self.mean(figure, name, data, size) / scale) for name in PROTOCOLS)
            parts.append(f"n = {size}: {overlay} against {tree}{unit} ({each})")
        return f"{self.versus}: {'; '.join(parts)}"

    def share(self, top: str, name: str, data: tuple[int, int], size: int) -> float:
        """The ratio of a figure with more data to that with less."""
        more, less = (self.mean(top, name, each, size) for each in data)
        return more / less if less else math.inf


def all_sizes(means: MeanFigures) -> list[int]:
    """The paper's own sizes, run or not, and all others that were run."""
    return sorted({*SIZES["full"], *means.sizes})


def short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
