"""Real processes killed with SIGKILL, over and over, judged by what their applications saw.

    python benchmarks/live/kills.py [--kills 5000] [--parallel 2] [--results kills.jsonl]

Each run is a trial as `antecede cluster` makes it: members of one protocol with stores, which receive their
own messages too; one is killed every half second and started again. In the end the logs of all applications
are compared: every accepted message was delivered at every member, its author included, once, or again if it
was in flight at a kill and marked so. Appends a line for each run, and goes on from there when it is started
again. Exit code 1 if anything was lost or delivered twice.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from antecede.live.trial.cluster import TrialPlan, run, summary

HERE = Path(__file__).parent
PROTOCOLS = (
    "mbcp", "freescale", "vcube", "flooding", "timestamp", "vcube-agg", "pc", "timestamp-diff", "depseq",
)  # fmt: skip


def plan(number: int) -> TrialPlan:
    protocol = PROTOCOLS[number % len(PROTOCOLS)]
    has_phones = protocol == "freescale"
    return TrialPlan(
        size=6,
        protocol=protocol,
        messages=600,
        seconds=40.0,
        delay="0ms-20ms",
        kill_every=0.5,
        cut_every="10s",
        super_peers=2 if has_phones else 0,
        internal=1 if has_phones else 0,
        sync=number % 2 == 0,
        security="signed" if number % 3 == 2 else "none",
        seed=number,
        patience=120.0,
    )


async def work(numbers: itertools.count[int], results: Path, target: int) -> None:
    while sum(each["kills"] for each in read(results)) < target:
        number = next(numbers)
        chosen = plan(number)
        with tempfile.TemporaryDirectory(prefix="antecede-kills-") as folder:
            result = await run(chosen, Path(folder), None, lambda *_: None)
        found = summary(result)
        line = {
            "number": number,
            "protocol": chosen.protocol,
            "sync": chosen.sync,
            "security": chosen.security,
            "kills": result.kills,
            "deliveries": sum(member.delivered for member in result.members),
            "redelivered": sum(member.redelivered for member in result.members),
            "faults": result.faults,
            "seconds": found["seconds"],
        }
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        kills = sum(each["kills"] for each in read(results))
        print(f"{kills:,} kills; {line}", flush=True)


def read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5_000)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--results", type=Path, default=HERE / "kills.jsonl")
    options = parser.parse_args()
    numbers = itertools.count(len(read(options.results)))
    await asyncio.gather(*(work(numbers, options.results, options.kills) for _ in range(options.parallel)))
    runs = read(options.results)
    faults = [fault for each in runs for fault in each["faults"]]
    total = {name: sum(each[name] for each in runs) for name in ("kills", "deliveries", "redelivered")}
    print(json.dumps({"runs": len(runs), **total, "faults": len(faults)}))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    asyncio.run(main())
