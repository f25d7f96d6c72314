"""Groups that rarely change, on both engines: `./dev python benchmarks/engine/changing.py`.

CPU seconds of one run of each protocol on both, in turns, in one process; both must give the same figures.
Writes changing.json beside this file.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import msgspec
from results import machine, print_table
from rich.console import Console

from antecede.sim.engines import Engine, precompile, simulate
from antecede.sim.kernels.changing.event import Alternation
from antecede.sim.kernels.contract import ObserverFeed
from antecede.sim.scenario import Scenario, scenario


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocols", nargs="+", default=["mbcp", "vcube", "pc"])
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--changes", nargs="+", default=["join:2s", "leave:6s:5"])
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "changing.json")
    asked = parser.parse_args()
    rows = []
    for protocol in asked.protocols:
        given = scenario(
            protocol=protocol,
            peers=asked.peers,
            seconds=asked.seconds,
            churn=asked.changes,
            delay="1-50ms",
            rate=2,
        )
        rows.append(_compare(given))
        found = {"machine": machine(), "changes": asked.changes, "runs": rows}
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    columns = ("protocol", "peers", "packets", "reference, s", "event, s", "ratio", "compiled events")
    keys = ("protocol", "peers", "packets", "reference_seconds", "event_seconds", "ratio", "compiled_share")
    print_table(
        Console(width=110, highlight=False),
        columns,
        [tuple(f"{row[k]:.3g}" if isinstance(row[k], float) else str(row[k]) for k in keys) for row in rows],
    )


def _compare(given: Scenario) -> dict[str, Any]:
    precompile([given])
    simulate(msgspec.structs.replace(given, peers=4, seconds=1.0, churn=("join:0.5s",)), engine="event")
    compiled, fast = _timed(given, "event")
    truth, slow = _timed(given, "reference")
    if compiled != truth:
        raise SystemExit(f"{given.protocol}: the engines differ")
    run = Alternation(given, ObserverFeed([]), None)
    run.run()
    return {
        "protocol": given.protocol, "peers": given.peers, "seconds": given.seconds, "packets": truth.packets,
        "reference_seconds": round(slow, 2), "event_seconds": round(fast, 2), "ratio": round(slow / fast, 1),
        "compiled_share": round(run.calm_events / truth.packets, 3),
    }  # fmt: skip


def _timed(given: Scenario, engine: Engine) -> tuple[Any, float]:
    start = time.process_time()
    metrics = simulate(given, engine=engine).metrics
    return metrics, time.process_time() - start


if __name__ == "__main__":
    main()
