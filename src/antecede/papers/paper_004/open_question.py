"""Paper 004's open question: sizes that are not powers of two."""

from __future__ import annotations

from statistics import fmean

from antecede.papers.paper import Figure, Runs, Scale
from antecede.papers.paper_004.runs import (
    AGG,
    NONE,
    UNIT,
    Figured,
    claim_row,
    line_of,
    per_run,
    percent_saved,
    run,
    select,
    sizes_run,
    value_of,
)
from antecede.papers.scoreboard import ScoreRow
from antecede.sim.scenario import Scenario

ODD_SIZES: dict[Scale, list[int]] = {"quick": [12, 20, 48], "full": [12, 20, 48, 100, 200]}
ODD_SEEDS: dict[Scale, int] = {"quick": 3, "full": 10}


def _neighbours(nodes: int) -> tuple[int, int]:
    """The powers of two around a size.

    >>> _neighbours(20), _neighbours(16)
    ((16, 32), (16, 32))
    """
    below = 1 << nodes.bit_length() - 1
    return below, 2 * below


def open_grid(scale: Scale) -> list[Scenario]:
    odd = ODD_SIZES[scale]
    sizes = sorted({*odd, *(even for nodes in odd for even in _neighbours(nodes))})
    seeds = range(1, ODD_SEEDS[scale] + 1)
    return [run(protocol, nodes, seed) for nodes in sizes for protocol in (NONE, AGG) for seed in seeds]


def _is_power(nodes: int) -> bool:
    return nodes & (nodes - 1) == 0


def open_score(runs: Runs) -> list[ScoreRow]:
    rows = []
    odd = [nodes for nodes in sizes_run(runs) if not _is_power(nodes)]
    plain = {nodes: set(select(runs, NONE, nodes).values("packets")) for nodes in odd}
    one_each = all(counts == {nodes * (nodes - 1)} for nodes, counts in plain.items()) if odd else None
    shown = ", ".join(f"{nodes}: {max(counts, default=0):,.0f}" for nodes, counts in plain.items())
    rows.append(
        claim_row("any number of nodes gets each message by N − 1 packets", one_each, shown, runs, own=True)
    )
    for figure, what in (
        (percent_saved, "% fewer packets"),
        (value_of("reception_mean_ns"), "reception latency"),
        (value_of("latency_mean_ns"), "delivery latency"),
    ):
        scale = 1 if figure is percent_saved else UNIT
        means = {n: fmean(per_run(select(runs, AGG, n), figure)) / scale for n in sizes_run(runs)}
        for nodes in odd:
            low, high = (means.get(each) for each in _neighbours(nodes))
            holds = None if low is None or high is None else low <= means[nodes] <= high
            between = " and ".join(str(each) for each in _neighbours(nodes))
            shown = f"{low or 0:.4g}, {means[nodes]:.4g}, {high or 0:.4g}"
            statement = f"{what} with {nodes} nodes is between that with {between}"
            why = "an incomplete cube has different trees"
            rows.append(claim_row(statement, holds, shown, select(runs, AGG, nodes), why, own=True))
    return rows


def open_figures(runs: Runs) -> list[Figure]:
    def lines(figure: Figured) -> dict[str, list[tuple[float, float]]]:
        return {
            "powers of two": line_of(
                select(runs, AGG).where(lambda setting: _is_power(setting.peers)), figure
            ),
            "other sizes": line_of(
                select(runs, AGG).where(lambda setting: not _is_power(setting.peers)), figure
            ),
        }

    late = "A message for a missing rank goes to the nearest rank that exists: VCube's own rule."
    return [
        Figure("open a", "Packets saved by aggregation", "nodes", "%", lines(percent_saved), note=late),
        Figure(
            "open b", "Reception latency", "nodes", "units of time",
            lines(lambda run: run.value("reception_mean_ns") / UNIT),
        ),
        Figure(
            "open c", "Delivery latency", "nodes", "units of time",
            lines(lambda run: run.value("latency_mean_ns") / UNIT),
        ),
    ]  # fmt: skip
