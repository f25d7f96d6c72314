"""Paper 002's runs, and their means by protocol, data and size."""

from __future__ import annotations

import math
from statistics import fmean

from antecede.papers.paper import Runs, Scale
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
"""The largest size that takes reasonable time; rows of larger sizes would be pending."""
SEEDS: dict[Scale, tuple[int, ...]] = {"quick": (1,), "full": (1, 2)}
"""Each seed is another topology."""
SENDERS, BURST, ROUNDS = 10, 10, 10
RATE, CALM = 1000.0, 1.0
"""Rounds per second: the paper's, and so few that links are idle again before each round."""
CALM_ROUNDS = 3
HEADER, NUMBER = 32, 4
ROOM = RoutedModel().mtu - HEADER
"""Bytes in a fragment after its header."""
MS, MB = 1e6, 1e6


def _run(name: str, peers: int, data: int, seed: int, rate: float = RATE) -> Scenario:
    protocol, multicast = PROTOCOLS[name]
    rounds = ROUNDS if rate == RATE else CALM_ROUNDS
    return scenario(
        protocol=protocol, peers=peers, seed=seed, payload=data, seconds=rounds / rate, workload="rounds",
        rate=rate, senders=min(SENDERS, peers), burst=BURST, count="paper", probes=("queues",),
        network={"model": "routed", "multicast": multicast, "header": HEADER},
    )  # fmt: skip


def grid(scale: Scale) -> list[Scenario]:
    sizes = [peers for peers in SIZES[scale] if peers <= LARGEST]
    runs = [
        _run(name, peers, data, seed)
        for peers in sizes
        for data in DATA
        for name in PROTOCOLS
        for seed in SEEDS[scale]
    ]
    return runs + [_run(name, sizes[-1], 0, SEEDS[scale][0], CALM) for name in PROTOCOLS]


def select(runs: Runs, name: str, data: int, rate: float = RATE) -> Runs:
    """The runs of one of `PROTOCOLS` with `data` bytes of data."""
    protocol, multicast = PROTOCOLS[name]

    def belongs(setting: Scenario) -> bool:
        return isinstance(setting.network, RoutedModel) and setting.network.multicast is multicast

    return runs.where(belongs, protocol=protocol, payload=data, rate=rate)


class MeanFigures:
    """Mean figures of the runs, by protocol, data and size."""

    def __init__(self, runs: Runs) -> None:
        self._by = {
            (name, data, rate): select(runs, name, data, rate).by(lambda setting: setting.peers)
            for name in PROTOCOLS
            for data in DATA
            for rate in (RATE, CALM)
        }
        main = [set(sizes) for (_, _, rate), sizes in self._by.items() if rate == RATE]
        self.sizes: list[int] = sorted(set.intersection(*main))
        """The sizes run with every protocol and data."""
        within = [size for size in self.sizes if size >= min(SIZES["full"])]
        self.judged = within or self.sizes[-1:]
        self.growth = within if len(within) > 1 else self.sizes
        calm = set.intersection(*(set(self._by[name, 0, CALM]) for name in PROTOCOLS))
        self.calm = [size for size in self.judged if size in calm]
        self.count = sum(len(self.runs(name, data, size)) for name, data, size in self._all())

    def _all(self) -> list[tuple[str, int, int]]:
        return [(name, data, size) for name in PROTOCOLS for data in DATA for size in self.judged]

    def runs(self, name: str, data: int, size: int, rate: float = RATE) -> Runs:
        return self._by[name, data, rate].get(size, Runs([]))

    def mean(self, figure: str, name: str, data: int, size: int, rate: float = RATE) -> float:
        return fmean(self.runs(name, data, size, rate).values(figure))

    def copies(self, name: str, size: int) -> list[float]:
        """Fragments per message, in each run without data."""
        runs = self.runs(name, 0, size)
        return [f / m for f, m in zip(runs.values("fragments"), runs.values("messages"), strict=True)]

    def lower(self, figure: str, data: int, one: str, other: str, rate: float = RATE) -> bool:
        sizes = self.judged if rate == RATE else self.calm
        return all(
            self.mean(figure, one, data, n, rate) < self.mean(figure, other, data, n, rate) for n in sizes
        )

    def show(self, figure: str, data: int, unit: str = "", scale: float = 1.0, rate: float = RATE) -> str:
        """A figure of every protocol at each size, as text."""
        parts = []
        for size in self.judged if rate == RATE else self.calm:
            overlay, tree, each = (
                short(self.mean(figure, name, data, size, rate) / scale) for name in PROTOCOLS
            )
            parts.append(f"n = {size}: {overlay} against {tree}{unit} (unicast {each})")
        return "; ".join(parts)

    def share(self, top: str, name: str, data: tuple[int, int], size: int) -> float:
        """The ratio of a figure with more data to that with less."""
        more, less = (self.mean(top, name, each, size) for each in data)
        return more / less if less else math.inf


def all_sizes(means: MeanFigures) -> list[int]:
    """The paper's own sizes, run or not, and all others that were run."""
    return sorted({*SIZES["full"], *means.sizes})


def short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
