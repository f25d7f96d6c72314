"""How fast the engines are beside SimPy, heapq and C: `./dev bench`.

Prints tables, and writes results.json and chart.svg into a folder: by default the one that this file is in.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import msgspec
from chart import draw
from results import Results, machine, show

_HERE = Path(__file__).parent


def main() -> None:
    asked = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        # Before numba is loaded, which looks there only once: so what compiling takes is seen too.
        os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(folder) / "numba"))
        found = measure(asked, Path(folder))
    show(found)
    asked.out.mkdir(parents=True, exist_ok=True)
    figures = asked.json or asked.out / "results.json"
    figures.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    (asked.out / "chart.svg").write_text(draw(found), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500, 900], help="peers in a group")
    parser.add_argument("--deliveries", type=int, default=5_000_000, help="about so many in a run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workload", choices=("periodic", "poisson"), default="periodic")
    parser.add_argument("--no-others", action="store_true", help="without flooding, freescale and vcube-agg")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the figures, instead of results.json")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=_HERE)
    return parser.parse_args()


def measure(asked: argparse.Namespace, folder: Path) -> Results:
    import contest
    from rivals import compile_c

    those, left_out = contest.contestants(compile_c(folder))
    for line in left_out:
        _say(line)
    others = [] if asked.no_others else contest.other_protocols(asked.sizes, asked.deliveries // 5)
    compiling = contest.warm_up(those, others)
    loads = [contest.workload(asked.workload, peers, asked.deliveries) for peers in asked.sizes]
    return Results(
        machine=machine(),
        workload=f"{asked.workload} senders, {loads[0].rate:g} messages/s each; delays {loads[0].delay}",
        left_out=left_out,
        compiling_cpu_seconds=compiling,
        compared=[each for load in loads for each in contest.compare(load, those, asked.repeats, _say)],
        others=contest.measure_others(others, asked.repeats, _say),
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
