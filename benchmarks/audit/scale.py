"""Measures audits of up to a hundred million rows on Spark and in plain Python: results.json and chart.svg.

Traces are simulated once, into the folder TRACES, and reused. Each audit is a process of its own, one at a
time. It takes about ten minutes once the traces exist; they take 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import figures
import msgspec
from figures import HERE, MILLION, PLAIN, SPARK, STREAMED, Figures, Point
from watched import Watched, run

from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.reader import estimate_rows, trace_files

SIZES = ("1000x0.09", "1000x1", "1000x10", "100x10", "10x10", "1000x100")
RATE = 10
"""Messages a second of each process."""
STARTS = 3
_FAULTS = ("causal_violations", "missing", "duplicates", "orphans", "impossible")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("traces", type=Path, metavar="TRACES", help="the folder for traces")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="processes x million rows: 1000x0.09 …")
    parser.add_argument("--cores", type=int, default=2, help="for every audit (2)")
    parser.add_argument("--most-here", type=float, default=10, help="million rows in one process (10)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).parent)
    options = parser.parse_args()
    sizes = [
        (int(processes), float(rows))
        for processes, _, rows in (each.partition("x") for each in options.sizes)
    ]
    tiny = simulate_trace(options.traces, 3, 0.0003)
    traces = [(processes, rows, simulate_trace(options.traces, processes, rows)) for processes, rows in sizes]
    report("compiling")
    audited("warm", tiny, options.cores)
    starts = []
    for _ in range(STARTS):
        starts.append(audited("spark", tiny, options.cores)[0].seconds)
        report(f"{starts[-1]:7.1f} s  Spark's start and a trace of a few rows")
    found = Figures(machine(), options.cores, starts, [])
    for processes, rows, trace in traces:
        measure(found, processes, round(rows * MILLION), trace, options.most_here * MILLION)
        # After each size, as the last takes long and may fail.
        write_results(found, options.out)
    figures.show(found)


def write_results(found: Figures, out: Path) -> None:
    found.aims = figures.judged(found)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    (out / "chart.svg").write_text(figures.chart(found), encoding="utf-8")


def simulate_trace(folder: Path, processes: int, millions: float) -> Path:
    """A log of sends and deliveries of about that many rows, in the order of time."""
    trace = folder / f"{processes}x{millions:g}"
    if not trace.exists():
        report(f"making {trace}")
        seconds = millions * MILLION / (RATE * processes**2)
        given = scenario(
            protocol="timestamp",
            peers=processes,
            seconds=seconds,
            rate=RATE,
            workload="poisson",
            delay="1-100ms",
        )
        unfinished = folder / f".{trace.name}"
        simulate_to(unfinished, given, receives=False, long=True)
        unfinished.rename(trace)
    return trace


def measure(found: Figures, processes: int, size: int, trace: Path, most_here: float) -> None:
    """Measure every way on one trace."""
    rows = estimate_rows(trace_files(trace))
    ways = [("spark", SPARK), ("pass", STREAMED), *([("local", HERE)] if size <= most_here else [])]
    for way, who in ways:
        watched, verdict = audited(way, trace, found.cores)
        point = Point(
            who, processes, size, rows, watched.seconds, watched.peak_bytes, verdict.get("shuffle_bytes")
        )
        if verdict["processes"] != processes or verdict["messages"] + verdict["deliveries"] != rows:
            raise SystemExit(f"{who} has not judged all rows of {trace}")
        found.points.append(point)
        report(f"{watched.seconds:7.1f} s  {who}, {rows:,} rows of {processes:,} processes")
    _, opponent = audited("plain", trace, 1)
    seconds = opponent["cpu_seconds"] / opponent["rows"] * rows
    found.points.append(Point(PLAIN, processes, size, rows, seconds, measured_rows=opponent["rows"]))
    report(f"{seconds:7.1f} s  {PLAIN} would take, from {opponent['rows']:,} rows")


def audited(way: str, trace: Path, cores: int) -> tuple[Watched, dict[str, Any]]:
    """Run an audit in a process of its own; the traces here are clean, and it has to find that."""
    command = [sys.executable, str(Path(__file__).with_name("auditor.py")), way, str(trace)]
    watched = run(command, cores)
    verdict: dict[str, Any] = json.loads(watched.output)
    if any(verdict.get(fault) for fault in _FAULTS):
        raise SystemExit(f"{way} finds faults in {trace}, which has none")
    if way == "spark" and verdict["cores"] != cores:
        raise SystemExit(f"Spark has {verdict['cores']} cores, not {cores}")
    return watched, verdict


def machine() -> dict[str, str]:
    """What the figures depend on."""
    about = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in about if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = {
        "processor": names[0] if names else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "Python": platform.python_version(),
    }
    return facts | {name: version(name) for name in ("pyspark", "pyarrow", "numba", "numpy")}


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
