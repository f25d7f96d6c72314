"""All protocols against each other, on the networks of all papers: who is cheapest where."""

from __future__ import annotations

from statistics import fmean

from antecede.protocols.catalog import PROTOCOLS
from antecede.sim.scenario import Scenario, scenario
from antecede.studies.papers.board import Runs, Scale

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
"""What is compared; packets and bytes on links are taken for each delivery."""


def grid(scale: Scale) -> list[Scenario]:
    return [
        scenario(
            protocol=protocol, peers=16 if scale == "quick" else 48, seed=seed, seconds=1.5, rate=8,
            payload=50, workload="poisson", **fields,
        )
        for fields in NETWORKS.values()
        for protocol in PROTOCOLS
        if _can_run(protocol, fields)
        for seed in ((1,) if scale == "quick" else (1, 2, 3))
    ]  # fmt: skip


def _can_run(protocol: str, fields: dict[str, object]) -> bool:
    """Nodes that take time do not keep order on a link; clocks that wait need a bound that only plain
    delays have."""
    links = PROTOCOLS[protocol].links
    if "network" not in fields:
        return True
    return not links.bounded and not (links.fifo and fields["network"] == {"model": "nodes"})


def table(runs: Runs) -> list[dict[str, str]]:
    """A row for each network and measure: every protocol's mean, and the cheapest."""
    rows = []
    for name, fields in NETWORKS.items():
        example = scenario(protocol="mbcp", **fields)
        here = runs.where(delay=example.delay, network=example.network)
        for measure, (figure, factor, unit) in MEASURES.items():
            means = {}
            for protocol in PROTOCOLS:
                those = here.where(protocol=protocol).done
                if those:
                    means[protocol] = fmean(
                        factor * run.value(figure) / (1 if measure == "delay" else run.metrics.deliveries)
                        for run in those
                    )
            if means:
                least = min(means.values())
                best = [protocol for protocol, mean in means.items() if mean <= least * 1.01]
                shown = {protocol: f"{mean:.3g}" for protocol, mean in means.items()}
                label = f"{measure}, {unit}" if unit else measure
                rows.append({"network": name, "measure": label, "cheapest": ", ".join(best), **shown})
    return rows
