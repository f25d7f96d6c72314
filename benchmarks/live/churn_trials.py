"""Many churn trials, one after another, each with its own seed, and one audit of all their traces on Spark.

    .venv/bin/python benchmarks/live/churn_trials.py FOLDER --runs 20 --first 3000     # as root on Linux

Each is `antecede cluster 8 --churn 20 …`; FOLDER gets `trials.csv`, with a line for each run as it ends, and
their traces. A failed run keeps its stores and logs, as the command reports. CPU time is that of all
processes of a run, including its own audit.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

_COLUMNS = ["seed", "ok", "changes", "stops", "partitions", "crashes", "accepted", "deliveries"]
_COLUMNS += ["run_s", "wall_s", "cpu_s", "faults"]
_COMMAND = [sys.executable, "-m", "antecede"]


def trial(folder: Path, seed: int, options: argparse.Namespace) -> dict[str, object]:
    churn = ["--churn", "20", "--seconds", f"{options.seconds}s", "--no-sync", "--seed", str(seed)]
    load = ["--messages", str(12 * options.seconds), "--trace", str(folder / "traces" / str(seed)), "--json"]
    began, before = time.monotonic(), os.times()
    done = subprocess.run([*_COMMAND, "cluster", "8", *churn, *load], capture_output=True, check=False)
    after, shown = os.times(), json.loads(done.stdout)
    cpu = sum(after[2:4]) - sum(before[2:4])
    steps, verdict = shown["steps"], shown["verdict"]
    return {
        "seed": seed,
        "ok": shown["ok"],
        "changes": shown["changes"],
        "stops": steps.get("stop", 0),
        "partitions": steps.get("partition", 0),
        "crashes": steps.get("crash", 0),
        "accepted": verdict["accepted"],
        "deliveries": verdict["deliveries"],
        "run_s": round(shown["seconds"]),
        "wall_s": round(time.monotonic() - began),
        "cpu_s": round(cpu),
        "faults": "; ".join(shown["faults"][:1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=int, default=150, help="of each run")
    options = parser.parse_args()
    (options.folder / "traces").mkdir(parents=True, exist_ok=True)
    with (options.folder / "trials.csv").open("a", newline="", buffering=1) as out:
        table = csv.DictWriter(out, _COLUMNS)
        table.writeheader()
        for seed in range(options.first, options.first + options.runs):
            row = trial(options.folder, seed, options)
            table.writerow(row)
            print(*(f"{name} {value}" for name, value in row.items()), sep=", ", flush=True)
    audit = ["audit", str(options.folder / "traces"), "--engine", "spark"]
    sys.exit(subprocess.run([*_COMMAND, *audit], check=False).returncode)


if __name__ == "__main__":
    main()
