"""How one group's time and memory grow with its peers, up to a million: size.json and size.svg.

Twenty peers, spread over all, send one message each within a second; every peer delivers all of them. Each
point is a process of its own, which says what it needed; code is compiled before.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from antecede.report.charts import Series, line_chart
from antecede.report.page import alone
from antecede.sim.engines import simulate
from antecede.sim.scenario import scenario

PROTOCOLS = ("vcube", "flooding")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
Point = dict[str, Any]


def measure(protocol: str, peers: int) -> Point:
    """One run, in this process."""
    made = scenario(protocol=protocol, peers=peers, senders=20, workload="once", seconds=1, delay="1-10ms")
    simulate(msgspec.structs.replace(made, peers=100), engine="event")  # Loads compiled code.
    began = time.process_time()
    metrics = simulate(made, engine="event").metrics
    spent = time.process_time() - began
    if metrics.deliveries != metrics.messages * (peers - 1):
        raise AssertionError(f"{protocol}: not everyone has everything")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "protocol": protocol, "peers": peers, "messages": metrics.messages,
        "deliveries": metrics.deliveries, "packets": metrics.packets, "cpu_seconds": spent,
        "peak_megabytes": memory / 1e6,
    }  # fmt: skip


def measure_apart(protocol: str, peers: int) -> Point:
    command = [sys.executable, __file__, "--one", protocol, "--most", str(peers)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Point = json.loads(done.stdout)
    return found


def shown(point: Point) -> str:
    return (
        f"{point['protocol']:9} {point['peers']:>9,} {point['deliveries']:>12,} {point['packets']:>13,} "
        f"{point['cpu_seconds']:>9.2f} {point['peak_megabytes']:>9,.0f}"
    )


def chart(points: list[Point]) -> str:
    series = [
        Series(
            f"{protocol}, {unit}",
            [(each["peers"], each[field]) for each in points if each["protocol"] == protocol],
        )
        for field, unit in (("cpu_seconds", "s"), ("peak_megabytes", "MB"))
        for protocol in PROTOCOLS
    ]
    label = "CPU seconds and peak megabytes by the number of peers, 20 messages to all"
    return line_chart(series, "peers", "CPU seconds, peak megabytes", label, powers=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest group")
    parser.add_argument("--one", choices=PROTOCOLS, help="only this point, as JSON")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).parent)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.most)))
        return
    print(f"{'protocol':9} {'peers':>9} {'deliveries':>12} {'packets':>13} {'CPU s':>9} {'peak MB':>9}")
    points = []
    for protocol in PROTOCOLS:
        measure_apart(protocol, 100)
        for peers in SIZES:
            if peers <= asked.most:
                points.append(measure_apart(protocol, peers))
                print(shown(points[-1]), flush=True)
    (asked.out / "size.json").write_text(json.dumps(points, indent=1) + "\n")
    (asked.out / "size.svg").write_text(alone(chart(points)))


if __name__ == "__main__":
    main()
