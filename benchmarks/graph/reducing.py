"""Compares transitive reduction with networkx, rustworkx and bit sets in Python integers: results.json.

Each contender reduces each table in a process of its own, after its input is ready and its code is
compiled; all must return the same edges. A contender that fails, does not fit into memory or takes too long
is left out from that size on, and this is reported.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("antecede", "bitset", "rustworkx", "networkx")
SIZES = ((1_000, 10), (10_000, 10), (10_000, 100), (100_000, 100), (1_000_000, 1_000))
"""Messages, and processes that send them."""
MIN_SECONDS = 0.5
"""In CPU seconds: a shorter reduction is repeated, and the mean counts."""
Point = dict[str, Any]


def measure(name: str, which: str) -> Point:
    """One contender on one table, in this process."""
    from contenders import CONTENDERS, pairs_of, table

    from antecede.sources import find_source
    from antecede.sources.tables import write_dependency_table
    from antecede.temporary_folders import temporary_folder
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.dependencies import read_dependencies

    if which.endswith(".csv"):
        source = find_source(which, "dependencies")
        assert source is not None  # a preset is named  # noqa: S101
        with temporary_folder("benchmark") as folder:
            write_dependency_table(source, folder / "table", BadRows(which))
            given = read_dependencies(folder / "table")
    else:
        messages, processes = which.split("x")
        given = table(int(messages), int(processes))
    reduce = CONTENDERS[name](given)
    ready = peak_bytes()
    rounds, start = 0, time.process_time()
    while time.process_time() - start < MIN_SECONDS:
        pairs = reduce()
        rounds += 1
    spent = (time.process_time() - start) / rounds
    edges = np.sort(pairs[1].astype(np.int64) * len(given.order) + pairs[0])
    return {
        "who": name, "messages": len(given.order), "processes": len(np.unique(given.process)),
        "stated": pairs_of(given).shape[1], "immediate": len(edges),
        "edges": hashlib.sha256(edges.tobytes()).hexdigest()[:16],
        "cpu_seconds": spent, "peak_megabytes": peak_bytes() / 1e6, "of_which_before": ready / 1e6,
    }  # fmt: skip


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure_apart(name: str, which: str, patience: float, memory: int) -> Point | str:
    """The same in a process of its own; or the reason why there is no result."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (int(patience), int(patience) + 1))

    command = [sys.executable, __file__, "--one", name, "--table", which]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    if done.returncode in (-24, -9):
        return f"takes more than {patience:,.0f} CPU seconds"
    if done.returncode:
        return f"fails: {(done.stderr.strip().splitlines() or ['for no reason given'])[-1][:100]}"
    found: Point = json.loads(done.stdout)
    return found


def compare(which: str, messages: int, patience: float, memory: int, out: dict[str, str]) -> list[Point]:
    """All contenders on one table, ours first; `out` has the contenders left out so far, and why."""
    from contenders import needs_bytes

    points: list[Point] = []
    for name in NAMES:
        if name in out:
            continue
        if needs_bytes(name, messages) > memory:
            out[name] = f"would need {needs_bytes(name, messages) / 1e9:,.0f} GB"
            found: Point | str = out[name]
        else:
            found = measure_apart(name, which, patience, memory)
        if isinstance(found, str):
            out[name] = f"{found} for {messages:,} messages"
            print(f"{name} is left out: it {out[name]}", flush=True)
            continue
        if points and found["edges"] != points[0]["edges"]:
            raise SystemExit(f"{name} finds other edges than {points[0]['who']} in {which}")
        found["table"] = Path(which).stem if which.endswith(".csv") else "made"
        found["times_ours"] = found["cpu_seconds"] / points[0]["cpu_seconds"] if points else 1.0
        points.append(found)
        print(shown(found), flush=True)
    return points


HEADER = (
    f"{'table':20} {'messages':>9} {'stated':>9} {'immediate':>9} {'who':10} "
    f"{'CPU s':>9} {'× ours':>9} {'peak MB':>8}"
)


def shown(one: Point) -> str:
    return (
        f"{one['table']:20} {one['messages']:>9,} {one['stated']:>9,} {one['immediate']:>9,} {one['who']:10} "
        f"{one['cpu_seconds']:>9.4f} {one['times_ours']:>9.1f} {one['peak_megabytes']:>8,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1][0], help="the most messages")
    parser.add_argument("--real", type=Path, metavar="FOLDER", help="real tables too: its *.dag.csv")
    parser.add_argument("--patience", type=float, default=600, help="CPU seconds for each (600)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).parent)
    parser.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.table)))
        return
    for name in ("networkx", "rustworkx"):
        if importlib.util.find_spec(name) is None:
            raise SystemExit(
                f"{name} is not installed; ./dev bench installs it, benchmarks/README.md says how"
            )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    print(HEADER)
    points: list[Point] = []
    left_out: dict[str, str] = {}
    for file in sorted(options.real.glob("*.dag.csv")) if options.real else []:
        rows = sum(1 for _ in file.open()) - 1
        points += compare(str(file.resolve()), rows, options.patience, memory, {})
    for messages, processes in SIZES:
        if messages <= options.most:
            which = f"{messages}x{processes}"
            points += compare(which, messages, options.patience, memory, left_out)
    machine = {"system": f"{platform.system()} {platform.machine()}", "Python": platform.python_version()}
    machine |= {name: version(name) for name in ("numba", "numpy", "networkx", "rustworkx")}
    document = {"machine": machine, "points": points, "left_out": left_out}
    (options.out / "results.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
