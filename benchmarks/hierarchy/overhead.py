"""What a hierarchy of super peers costs: control information by the number of internal groups, and by depth.

Some 160 messages a second are broadcast, by all peers alike, with delays of 5 to 50 ms a hop, so that many
are concurrent. Bits are counted as paper 000 counts: rows from the first to the last bit, 4 bytes a super
peer, no identities. A packet goes *up* from a peer to its super peer, *down* to a peer, or *across* between
super peers of the highest level. Writes results.json beside this file, and the tables of
docs/protocols/freescale.md. Usage: overhead.py [seeds].
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from antecede.protocols.freescale.hierarchy import HierarchyLayout
from antecede.sim import scenario
from antecede.sim.engines import simulate

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "protocols" / "freescale.md"
BEGIN, END = (f"<!-- {word}: benchmarks/hierarchy/overhead.py -->" for word in ("begin", "end"))
PROTOCOL = "antecede.protocols.freescale.hierarchy:Hierarchy"
MESSAGES, SECONDS = 160, 1
PHONES = 7
KINDS = ("up", "down", "across")

BY_GROUPS = {
    **{f"{groups} groups, one level": HierarchyLayout.regular(groups, PHONES, 1) for groups in (2, 4, 8, 16)},
    **{
        f"{groups} groups, below 2 super peers": HierarchyLayout(
            [-1, -1]
            + [each % 2 for each in range(groups)]
            + [2 + each % groups for each in range(PHONES * groups)]
        )
        for groups in (2, 4, 8, 16)
    },
}
BY_DEPTH = {
    f"{levels} level{'s' if levels > 1 else ''}, {inside} below each": HierarchyLayout.regular(
        1, inside, levels
    )
    for levels, inside in ((1, 62), (2, 7), (3, 4), (5, 2))
}


def measure(layout: HierarchyLayout, seeds: int) -> dict[str, float]:
    """Means over packets of each kind, and over seeds."""
    peers = len(layout.above)
    runs = [
        simulate(
            scenario(
                protocol=PROTOCOL,
                peers=peers,
                layout=msgspec.to_builtins(layout),
                seconds=SECONDS,
                rate=MESSAGES / SECONDS / peers,
                workload="poisson",
                delay="5-50ms",
                probes=("costs",),
                seed=seed,
            )
        ).metrics
        for seed in range(1, seeds + 1)
    ]
    found: dict[str, float] = {"peers": peers, "highest": layout.highest}
    for kind in KINDS:
        if any(f"{kind}_packets" in run.measured for run in runs):
            packets = sum(run.measured.get(f"{kind}_packets", 0) for run in runs)
            for unit in ("paper_bytes", "wire_bytes"):
                total = sum(
                    run.measured.get(f"{kind}_{unit}", 0) * run.measured.get(f"{kind}_packets", 0)
                    for run in runs
                )
                found[f"{kind}_{unit}"] = total / packets
    found["link_bytes"] = fmean(run.link_bytes / max(1, run.deliveries) for run in runs)
    found["latency_ms"] = fmean(run.latency_mean_ns for run in runs) / 1e6
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| arrangement | peers | up | down | across | on the wire, a delivery | delay, ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, each in found.items():
        bits = [
            f"{8 * each[f'{kind}_paper_bytes']:.0f}" if f"{kind}_paper_bytes" in each else "–"
            for kind in KINDS
        ]
        costs = f"{each['link_bytes']:.1f} B | {each['latency_ms']:.0f}"
        lines.append(f"| {name} | {each['peers']} | {' | '.join(bits)} | {costs} |")
    return "\n".join(lines)


def with_tables(page: str, found: dict[str, dict[str, dict[str, Any]]]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(found['groups'])}\n\n{table(found['depth'])}\n\n{END}{after}"


if __name__ == "__main__":
    seeds, began = int(sys.argv[1]) if len(sys.argv) > 1 else 3, time.process_time()
    results = {
        "groups": {name: measure(layout, seeds) for name, layout in BY_GROUPS.items()},
        "depth": {name: measure(layout, seeds) for name, layout in BY_DEPTH.items()},
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if BEGIN in (text := PAGE.read_text(encoding="utf-8")):
        PAGE.write_text(with_tables(text, results), encoding="utf-8")
    print(table(results["groups"]), table(results["depth"]), sep="\n\n")
    print(f"{time.process_time() - began:.0f} CPU seconds")
