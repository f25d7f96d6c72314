"""Compares what `antecede advise` reports on a log with a simulation of each protocol on the same sends.

A log is the trace of one protocol's run, and advice sees only its rows. The simulation has the same sends but
its own network, with the scenario's delays from another seed instead of the log's; and it covers all
messages, not only the first. `python benchmarks/advise/agreement.py` prints the table of docs/advise.md; it
takes some minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from antecede.advise import Advice, Request
from antecede.advise.run import advise_path
from antecede.advise.trial import trial_scenario
from antecede.sim import engines
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from antecede.trace.reader import read_run

WORKLOADS: dict[str, dict[str, object]] = {
    "50 peers, Poisson, all send": {
        "protocol": "mbcp", "peers": 50, "seconds": 5.0, "workload": "poisson", "rate": 10.0,
    },
    "100 peers, 8 start, all answer": {
        "protocol": "timestamp", "peers": 100, "seconds": 5.0, "workload": "periodic", "rate": 5.0,
        "senders": 8, "reply": 0.008, "delay": "normal:0-50ms",
    },
    "30 peers, bursts of 5": {
        "protocol": "vcube", "peers": 30, "seconds": 10.0, "workload": "rounds", "rate": 2.0, "burst": 5,
        "delay": "wild:1ms-2s",
    },
}  # fmt: skip


class Row(NamedTuple):
    workload: str
    protocol: str
    advised: float
    simulated: float

    @property
    def ratio(self) -> float:
        return self.advised / self.simulated


def agreement(name: str, given: Scenario, request: Request) -> Iterator[Row]:
    """The control bytes of each protocol, both ways."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder)
        simulate_to(trace, given)
        ((advice,), _) = advise_path(folder, request, engine="local")
        sends: dict[str, list[int]] = {peer: [] for peer in given.peer_names()}
        for row in read_run(trace):
            if row["kind"] == "send":
                sends[row["process"]].append(row["time"])
    for cost in advice.costs:
        names, layout = _arranged(cost.protocol, given, advice)
        again = trial_scenario(
            cost.protocol,
            [sends[peer] for peer in names],
            given.delay,
            given.payload,
            layout,
            seed=given.seed + 1,
        )
        measured = engines.simulate(again).metrics
        yield Row(name, cost.protocol, cost.control_bytes_mean or 0.0, measured.control_bytes_mean)


def _arranged(
    protocol: str, given: Scenario, advice: Advice
) -> tuple[list[str], dict[str, list[int]] | None]:
    """Members in the order of their ranks: in freescale, that of their roles."""
    roles = advice.split
    if protocol != "freescale" or roles is None:
        return given.peer_names(), None
    return [roles.super_peer, *roles.internal, *roles.external], {"inside": [len(roles.internal)]}


def table(rows: list[Row]) -> str:
    """A line per protocol; for each workload what was advised, what was simulated, and the ratio."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    lines = ["| | " + " | ".join(workloads) + " |", "|---|" + "---|" * len(workloads)]
    for protocol in dict.fromkeys(row.protocol for row in rows):
        mine = [row for row in rows if row.protocol == protocol]
        cells = [f"{row.advised:.1f} / {row.simulated:.1f} = {row.ratio:.3f}" for row in mine]
        lines.append(f"| `{protocol}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    rows = []
    for name, fields in WORKLOADS.items():
        for row in agreement(name, scenario(**fields), Request()):
            print(f"{name}, {row.protocol}: {row.ratio:.3f}", file=sys.stderr)
            rows.append(row)
    worst = max(abs(row.ratio - 1) for row in rows)
    print(f"{table(rows)}\n\nThe worst is off by {worst:.1%}.")
    sys.exit(worst > 0.1)


if __name__ == "__main__":
    main()
