"""Every protocol on the networks of all papers: which one is cheapest where."""

from __future__ import annotations

from statistics import fmean

from antecede.papers.paper import Runs, Scale
from antecede.papers.verdict_marks import shown
from antecede.protocols.catalog import PROTOCOLS
from antecede.sim.scenario import Scenario, scenario

NETWORKS: dict[str, dict[str, object]] = {
    "one hop, 0–50 ms": {"delay": "normal:0-50ms"},
    "one hop, 50–550 ms": {"delay": "normal:50-550ms"},
    "routed, 10 Mbit/s": {"network": {"model": "routed"}},
    "nodes that take time": {"network": {"model": "nodes"}},
}
MEASURES = {
    "delay": ("latency_mean_ns", 1e-6, "ms"),
    "packets": ("packets", 1.0, ""),
    "control bytes": ("link_bytes", 1.0, "B"),
}
"""The measures that are compared; packets and bytes are per delivery."""


PEERS: dict[Scale, int] = {"quick": 16, "full": 48}
SEEDS: dict[Scale, tuple[int, ...]] = {"quick": (1,), "full": (1, 2, 3)}
SECONDS, RATE, PAYLOAD = 1.5, 8, 50


def setup(scale: Scale) -> str:
    """Group and load, in one sentence."""
    runs = "one run" if len(SEEDS[scale]) == 1 else f"means of {len(SEEDS[scale])} runs"
    return (
        f"{PEERS[scale]} processes that each broadcast {RATE} messages of {PAYLOAD} bytes a second, at "
        f"random times, for {SECONDS:g} s; {runs}."
    )


def grid(scale: Scale) -> list[Scenario]:
    return [
        scenario(
            protocol=protocol, peers=PEERS[scale], seed=seed, seconds=SECONDS, rate=RATE, payload=PAYLOAD,
            workload="poisson", **fields,
        )
        for fields in NETWORKS.values()
        for protocol in PROTOCOLS
        if _can_run(protocol, fields)
        for seed in SEEDS[scale]
    ]  # fmt: skip


def _can_run(protocol: str, fields: dict[str, object]) -> bool:
    """Queued nodes do not keep order on a link, and only direct links bound delays."""
    links = PROTOCOLS[protocol].links
    if "network" not in fields:
        return True
    return not links.bounded_delays and not (links.fifo and fields["network"] == {"model": "nodes"})


def table(runs: Runs) -> list[dict[str, str]]:
    """A row for each measure and protocol with its mean on every network; a star marks the cheapest."""
    rows = []
    for measure, (figure, factor, unit) in MEASURES.items():
        columns: dict[str, dict[str, str]] = {}
        for name, fields in NETWORKS.items():
            example = scenario(protocol="mbcp", **fields)
            columns[name] = _column(runs.where(delay=example.delay, network=example.network), figure, factor)
        for protocol in PROTOCOLS:
            cells = {name: column.get(protocol, "–") for name, column in columns.items()}
            rows.append({"measure": f"{measure}, {unit}" if unit else measure, "protocol": protocol, **cells})
    return rows


def _column(runs: Runs, figure: str, factor: float) -> dict[str, str]:
    """Every protocol's mean on one network."""
    means = {}
    for protocol in PROTOCOLS:
        values = [
            factor * run.value(figure) / (1 if figure == "latency_mean_ns" else run.metrics.deliveries)
            for run in runs.where(protocol=protocol).finished
        ]
        if values:
            means[protocol] = fmean(values)
    least = min(means.values(), default=0.0)
    return {name: f"{shown(mean)}{' ★' if mean <= least * 1.01 else ''}" for name, mean in means.items()}
