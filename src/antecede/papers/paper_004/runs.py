"""Paper 004's runs, its printed tables, and how runs are selected and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from antecede.papers.paper import FinishedRun, Runs, Scale, mean
from antecede.papers.readings import Joint, Seeds
from antecede.papers.scoreboard import ScoreRow, claim, number
from antecede.papers.verdicts import Holds
from antecede.sim.scenario import Scenario, scenario

PAPER = "004"
NONE = "vcube"
AGG = "antecede.protocols.vcube_variants:VcubeAggPaperSizes"
SINGLE = "antecede.protocols.vcube_variants:VcubeAggSingleTree"
NAMES = {NONE: "no aggregation", AGG: "aggregation", SINGLE: "one tree for all"}

SIZES: dict[Scale, list[int]] = {"quick": [8, 16, 32, 64], "full": [8, 16, 32, 64, 128, 256, 512, 1024]}
SMALL_SEEDS: dict[Scale, int] = {"quick": 3, "full": 10}
"""At most so many seeds of runs with messages of 5 bytes; a run has as many samples as nodes."""
MESSAGE, SMALL_MESSAGE = 50, 5
STARTS: dict[str, tuple[float, str | None]] = {
    # seconds within which every node sends once, and how the times are distributed, unless evenly; when the
    # middle is does not matter
    "even": (0.5, None),
    "bell, 125": (2.0, "gauss:500ms,125ms,1ms"),
    "bell, 100": (2.0, "gauss:500ms,100ms,1ms"),
}

UNIT = 1e6
"""Nanoseconds."""

TABLE_1 = {
    # nodes: packets without and with aggregation, % fewer, % of packets with more than one message
    16: (240, 232, 3.33, 3.02),
    32: (992, 919, 7.36, 5.77),
    64: (4032, 3513, 12.87, 9.05),
    128: (16256, 13759, 15.36, 11.04),
    256: (65280, 49262, 24.54, 15.41),
    512: (261632, 191528, 26.79, 16.70),
    1024: (1047552, 745943, 28.79, 19.14),
}
TABLE_2 = {
    # messages: the probe's name for it, % of all packets, % of packets with more than one message
    "1": ("packets_of_to_1", 84.59, None),
    "2": ("packets_of_to_2", 9.16, 59.46),
    "3": ("packets_of_to_3", 3.12, 20.25),
    "4": ("packets_of_to_4", 1.26, 8.18),
    "5": ("packets_of_to_5", 0.66, 4.31),
    "more than 5": ("", 1.2, 7.8),
}
TABLE_3 = {
    # bytes: the probe's name for it, % of packets without and with aggregation: the columns are swapped in
    # the paper, whose text says that nothing without aggregation is as large as 8.45 % of packets with it
    "up to 100": ("packet_bytes_to_100", 63.67, 52.66),
    "100–200": ("packet_bytes_to_200", 30.30, 31.28),
    "200–300": ("packet_bytes_to_300", 6.03, 7.62),
    "300–400": ("packet_bytes_to_400", 0.0, 3.91),
    "more than 400": ("packet_bytes_over_400", 0.0, 4.54),
}
FIGURE_6 = {
    "no": ("causes_to_0", 27.0),
    "1 to 4": ("causes_to_4", 28.5),
    "5 to 9": ("causes_to_9", 18.4),
    "more than 12": ("causes_over_12", 23.0),
}
CAUSES = (0, 4, 9, 14, 19, 24, 29, 34, 39, 44, 49, 54)
DETAILED = 256
"""The size of Tables 2 and 3 and Figure 6; Figures 9 and 10 have 1024."""
HUGE = 1024

WHY_ORDER = (
    "fewer messages overtake each other than in the paper's runs; with σ = 40 as many do, but then Figure 10 "
    "differs. Table 1's steps from size to size are larger than the spread of our runs, so some of "
    "its rows may be single runs"
)

Figured = Callable[[FinishedRun], float]
"""A figure of a run."""


def run(protocol: str, peers: int, seed: int, payload: int = MESSAGE, joint: Joint | None = None) -> Scenario:
    """With one tree, links vary each time they are used (section 5.5), whatever they do with others."""
    network = {"model": "nodes"}
    seconds, at = STARTS[joint["starts"] if joint else "even"]
    if joint is not None:
        drawn = "copy" if protocol == SINGLE else joint["propagation"]
        network |= {"queue": joint["queue"], "drawn": drawn}
    return scenario(
        protocol=protocol, peers=peers, seed=seed, payload=payload, workload="starts" if at else "once",
        seconds=seconds, interval=at, network=network, count="paper", probes=("bundles",),
    )  # fmt: skip


def seeds(scale: Scale) -> Seeds:
    return Seeds((), (1, 2, 3, 4, 5)) if scale == "quick" else Seeds((101, 102, 103), tuple(range(1, 31)))


_seeds_of = seeds


def grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    """Readings are chosen without the runs with one tree, which hardly depend on them (its root decides), and
    without those with small messages."""
    sizes = SIZES[scale]
    if tuple(seeds) == _seeds_of(scale).choosing:
        return [
            run(each, peers, seed, joint=joint) for peers in sizes for each in (NONE, AGG) for seed in seeds
        ]
    runs = [
        run(protocol, peers, seed, joint=joint) for peers in sizes for protocol in NAMES for seed in seeds
    ]
    few = seeds[: SMALL_SEEDS[scale]]
    return runs + [run(AGG, sizes[-1], seed, SMALL_MESSAGE, joint) for seed in few]


def select(runs: Runs, protocol: str, peers: int | None = None, payload: int = MESSAGE) -> Runs:
    return runs.where(
        lambda setting: peers is None or setting.peers == peers, protocol=protocol, payload=payload
    )


def sizes_run(runs: Runs, protocol: str = AGG) -> list[int]:
    """The sizes that were run."""
    return sorted({run.scenario.peers for run in select(runs, protocol).finished})


def per_run(runs: Runs, figure: Figured) -> list[float]:
    return [figure(run) for run in runs.finished]


def line_of(runs: Runs, figure: Figured) -> list[tuple[float, float]]:
    """The mean of a figure at each size: points to draw."""
    by_size = runs.by(lambda setting: setting.peers)
    return [(float(nodes), mean(per_run(sized, figure))) for nodes, sized in by_size.items()]


def by_start(runs: Runs) -> list[tuple[float, float]]:
    """The mean reception latency of messages sent in each slice of 50 units: points to draw."""
    slices = ((part, [v for v in runs.values(f"reception_ns_sent_in_{part}") if v]) for part in range(40))
    return [(part * 50.0 + 25, fmean(values) / UNIT) for part, values in slices if values]


def value_of(name: str) -> Figured:
    return lambda run: run.value(name)


def percent(name: str, of: str = "packets_sized") -> Figured:
    return lambda run: 100 * run.value(name) / run.value(of)


def aggregated(run: FinishedRun) -> float:
    """Packets with more than one message."""
    return run.value("packets_sized") - run.value("packets_of_to_1")


def packets_of(run: FinishedRun, name: str) -> float:
    """The packets of a row of Table 2; without a name, those of its last row."""
    if name:
        return run.value(name)
    return run.value("packets_sized") - sum(run.value(each) for each, _, _ in TABLE_2.values() if each)


def percent_saved(run: FinishedRun) -> float:
    """% fewer packets than one tree per message takes."""
    nodes = run.scenario.peers
    return 100 - 100 * run.value("packets") / (nodes * (nodes - 1))


def _pairs(
    runs: Runs, peers: int, one: str = AGG, other: str = NONE
) -> Iterator[tuple[FinishedRun, FinishedRun]]:
    """Runs of two protocols with the same seed."""
    seeds = {run.scenario.seed: run for run in select(runs, other, peers).finished}
    for run in select(runs, one, peers).finished:
        if run.scenario.seed in seeds:
            yield run, seeds[run.scenario.seed]


def _ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """The ratio of two sums as samples, one for each pair: the jackknife's pseudo-values.

    Ratios of single pairs would not do: at small sizes hardly anything is held or aggregated.

    >>> _ratios([(1.0, 2.0), (2.0, 4.0)]), _ratios([(1.0, 0.0)])
    ([0.5, 0.5], [])
    """
    above, below = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    if not below:
        return []
    if any(b == below for _, b in pairs):
        return [above / below]
    count = len(pairs)
    return [count * above / below - (count - 1) * (above - a) / (below - b) for a, b in pairs]


def more(runs: Runs, peers: int, figure: Figured, one: str = AGG, other: str = NONE) -> list[float]:
    """By how many % a figure is larger with one protocol than with the other."""
    pairs = [(figure(a), figure(b)) for a, b in _pairs(runs, peers, one, other)]
    return [100 * ratio - 100 for ratio in _ratios(pairs)]


def changes(
    runs: Runs, figure: Figured, sizes: Sequence[int], one: str = AGG, other: str = NONE
) -> dict[int, float]:
    """The mean of `more` at each size."""
    samples_by_size = {nodes: more(runs, nodes, figure, one, other) for nodes in sizes}
    return {nodes: fmean(samples) for nodes, samples in samples_by_size.items() if samples}


def number_row(quantity: str, published: float, samples: Sequence[float], why: str = "") -> ScoreRow:
    return number(PAPER, quantity, published, samples, why)


def claim_row(
    statement: str,
    holds: Holds,
    measured: str,
    runs: Runs | Sequence[object],
    why: str = "",
    own: bool = False,
) -> ScoreRow:
    return claim(PAPER, statement, holds, measured, len(runs), why, own)


def broken_at(sizes: Sequence[int]) -> str:
    """The sizes at which a claim does not hold, as a reason.

    >>> broken_at([16, 32])
    'not with 16 and 32 nodes'
    """
    *rest, last = (str(nodes) for nodes in sizes) if sizes else ("",)
    return f"not with {', '.join(rest)}{' and ' * bool(rest)}{last} nodes"


def falls_at(values: dict[int, float]) -> str:
    """Where values that should rise with the size fall, as a reason.

    >>> falls_at({16: 1.0, 32: 2.0, 64: 1.5})
    'it falls from 32 to 64 nodes'
    """
    steps = [f"from {a} to {b}" for a, b in pairwise(values) if values[b] < values[a]]
    return f"it falls {', '.join(steps)} nodes"


def listed(values: dict[int, float]) -> str:
    return ", ".join(f"{nodes}: {value:.1f}" for nodes, value in values.items())
