"""Short runs of `antecede cluster` with each protocol that is live, each with its own seed.

    nice -n 3 .venv/bin/python benchmarks/live/cluster_trials.py FOLDER --runs 50     # as root on Linux

Runs with an odd seed have kills and cut connections, and a fixed list of members; those with an even seed
have members that come and go, in network namespaces. `multigroup` is a ring of groups with kills and cuts,
whose members come and go as well if the seed is even. `freescale` has phones; `hcg` and `basic` have local
processes behind gateways. `--protocols "freescale on two levels"` always has a fixed list. Every trace is
audited here once more, for its counts; without a trace, the counts come from the applications' logs.
`cluster_trials.csv` gets a line for each run as it ends, and runs in this file are not repeated. A failed run
keeps its folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from antecede.audit.run import audit_path
from antecede.errors import AntecedeError
from antecede.live.changing.protocols import LIVE as CHANGING
from antecede.live.changing.protocols import WITH_PHONES
from antecede.protocols.catalog import PROTOCOLS

_COLUMNS = ["protocol", "seed", "faults", "exit_code", "messages", "deliveries", "kills", "cuts", "changes"]
_COLUMNS += ["violations", "lost", "wall_s", "load", "problem"]
_WRONG = ["causal_violations", "fifo_violations", "duplicates", "orphans", "impossible", "after_end"]
_LAST = ["hcg", "basic"]
_OVERLAPPING, _HIERARCHY = "multigroup", "freescale on two levels"
_COMMAND = [sys.executable, "-m", "antecede", "cluster"]


def options_of(protocol: str, seed: int) -> tuple[str, list[str]]:
    """The faults to inject, and the command's arguments."""
    churn = seed % 2 == 0
    if protocol == _OVERLAPPING:
        faults = ["--kill-every", "2s", "--cut-every", "1500ms"]
        if churn:
            return "kills, cuts, churn", ["6", *_load(120, 5), *faults, "--churn", "4"]
        return "kills, cuts", ["6", *_load(120), *faults]
    if churn and protocol in WITH_PHONES:
        return "churn", ["9", "--super-peers", "5", *_load(120, 6), "--churn", "6"]
    if churn and protocol in CHANGING:
        return "churn", ["5", *_load(60, 4), "--churn", "8"]
    if protocol in _LAST:
        # Messages pass two gateways, and clocks are compared first: processes need some time together.
        faults = ["--kill-every", "6s", "--cut-every", "3s", "--delay", "0-10ms"]
        return "kills, cuts", ["5", "--super-peers", "2", *_load(50, 6), *faults]
    faults = ["--kill-every", "2s", "--cut-every", "800ms", "--delay", "0-10ms"]
    if protocol == _HIERARCHY:
        return "kills, cuts", [
            "10",
            "--super-peers",
            "2",
            "--internal",
            "2",
            "--levels",
            "2",
            *_load(60),
            *faults,
        ]
    if protocol == "freescale":
        return "kills, cuts", ["6", "--super-peers", "2", "--internal", "1", *_load(60), *faults]
    return "kills, cuts", ["4", *_load(60), *faults]


def _load(messages: int, seconds: int = 2) -> list[str]:
    return ["--messages", str(messages), "--seconds", f"{seconds}s"]


def trial(protocol: str, seed: int, folder: Path) -> dict[str, object]:
    """One run, as a line of the table."""
    work = folder / f"{protocol}-{seed}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    faults, arguments = options_of(protocol, seed)
    common = ["--protocol", protocol.split()[0], "--seed", str(seed)]
    began, load = time.monotonic(), os.getloadavg()[0]
    has_trace = "churn" not in faults or protocol not in {*WITH_PHONES, _OVERLAPPING}
    trace = ["--trace", str(work / "trace")] if has_trace else []
    done = subprocess.run(
        [*_COMMAND, *arguments, *common, "--no-sync", "--json", *trace],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(work)},
    )
    (work / "output").write_text(done.stdout + done.stderr)
    shown: dict[str, Any] = {"faults": [done.stderr.strip()[-200:]]}
    if done.stdout.startswith("{"):
        shown = json.loads(done.stdout)
    steps = shown.get("steps", {})
    row = {
        "protocol": protocol,
        "seed": seed,
        "faults": faults,
        "exit_code": done.returncode,
        "kills": shown.get("kills", steps.get("crash", 0) + steps.get("die", 0)),
        "cuts": shown.get("cuts", steps.get("partition", 0)),
        "changes": shown.get("changes", sum(steps.values())),
        **(counts(work / "trace") if has_trace else counts_of_applications(shown)),
        "wall_s": round(time.monotonic() - began),
        "load": round(load, 1),
        "problem": "; ".join(shown["faults"][:1]),
    }
    if done.returncode == 0 and row.get("violations") == row.get("lost") == 0:
        shutil.rmtree(work)
    return row


def counts(trace: Path) -> dict[str, Any]:
    """The oracle's counts for a trace."""
    if not trace.is_dir() or not any(trace.iterdir()):
        return {}
    try:
        verdict = audit_path(str(trace), "local", 1, None).verdict
    except AntecedeError:
        return {}  # A failed run may leave part of a trace.
    found = verdict.counts()
    return {
        "messages": verdict.messages,
        "deliveries": verdict.deliveries,
        "violations": sum(found[name] for name in _WRONG),
        "lost": found["missing"],
    }


def counts_of_applications(shown: dict[str, Any]) -> dict[str, Any]:
    """The counts from the applications' logs, for a run without a trace. Anything wrong there is a fault."""
    verdict = shown.get("judged") or shown.get("verdict")
    if not isinstance(verdict, dict):
        return {}
    found = {name: verdict[name] for name in ("messages", "deliveries")}
    return {**found, "violations": len(verdict["faults"]), "lost": 0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50, help="of each protocol")
    parser.add_argument("--protocols", nargs="+", default=[name for name in PROTOCOLS if name not in _LAST])
    parser.add_argument("folder", type=Path, help="for runs that fail")
    parser.add_argument("--table", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    table: Path = options.table
    done = set()
    if table.exists():
        with table.open(newline="") as before:
            done = {(row["protocol"], int(row["seed"])) for row in csv.DictReader(before)}
    with table.open("a", newline="", buffering=1) as out:
        lines = csv.DictWriter(out, _COLUMNS)
        if not done:
            lines.writeheader()
        for seed in range(1, options.runs + 1):
            for protocol in options.protocols:
                if (protocol, seed) not in done:
                    row = trial(protocol, seed, options.folder)
                    lines.writerow(row)
                    print(*(f"{name} {value}" for name, value in row.items()), sep=", ", flush=True)


if __name__ == "__main__":
    main()
