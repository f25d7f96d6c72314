"""What one large group costs in a batch, from ten thousand rows to ten million: group_size.json.

A single group is ordered by one task, whatever the number of cores. Each point is a separate process, from
Parquet to Parquet, after a few rows to start the workers; memory is the peak PSS of the JVM, its workers and
the process itself, sampled twice a second. The output is checked afterwards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peers import LOOP_FILES, OURS_BATCH, PEERS, SORT, Job, session, there_is_ours, wake
from rich.console import Console
from rich.table import Table
from workload import BLOCK, inverted, make

sys.path.insert(0, str(Path(__file__).parent.parent / "audit"))
from scale import machine, report
from watched import run

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
NAMES = {"ours": OURS_BATCH, "sort": SORT, "loop": LOOP_FILES}
Point = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--who", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", nargs=3, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).parent)
    asked = parser.parse_args()
    if asked.one:
        few, given, folder = asked.one
        print(one(asked.who[0], few, given, folder, asked.cores))
        return
    if "ours" in asked.who and not there_is_ours():
        report("antecede.spark has no causal_order: Antecede is left out")
        asked.who.remove("ours")
    with tempfile.TemporaryDirectory(prefix="antecede-order-") as scratch:
        points = list(measure(asked, Path(scratch)))
    found = {"machine": machine(), "cores": asked.cores, "seed": asked.seed, "points": points}
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "group_size.json").write_text(json.dumps(found, indent=2) + "\n")
    show(points)


def measure(asked: argparse.Namespace, scratch: Path) -> Iterator[Point]:
    """Every peer on every size."""
    few = make(scratch, 1_000, 1, "stream", 1, asked.seed)
    for rows in asked.sizes:
        given = make(scratch, rows, 1, "stream", max(10, rows // BLOCK), asked.seed)
        for who in asked.who:
            yield measured(who, rows, few, given, scratch / "turn", asked.cores)
        shutil.rmtree(given)


def measured(who: str, rows: int, few: Path, given: Path, folder: Path, cores: int) -> Point:
    """One point, in a separate process."""
    shutil.rmtree(folder, ignore_errors=True)
    places = map(str, (few, given, folder))
    watched = run([sys.executable, __file__, "--who", who, "--cores", str(cores), "--one", *places], cores)
    seconds = float(watched.output)
    point = {"who": NAMES[who], "rows": rows, "seconds": seconds, "peak_bytes": watched.peak_bytes}
    report(f"{seconds:7.2f} s  {NAMES[who]}, {rows:,} rows")
    return point | {"inverted": inverted(given, Job(None, given, folder).result())}


def one(who: str, few: Path, given: Path, folder: Path, cores: int) -> float:
    """Seconds from files to files."""
    (peer,) = [each for each in PEERS if each.who == NAMES[who]]
    if who == "loop":
        return timed(peer.prepare(Job(None, given, folder)))
    with session(cores) as spark:
        peer.prepare(Job(spark, few, folder / "few"))()
        wake(spark)
        return timed(peer.prepare(Job(spark, given, folder)))


def timed(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def show(points: list[Point]) -> None:
    table = Table("rows of one group", "who", "seconds", "rows/s", "peak GiB", "inverted")
    for each in points:
        table.add_row(
            f"{each['rows']:,}", each["who"], f"{each['seconds']:,.2f}",
            f"{each['rows'] / each['seconds']:,.0f}", f"{each['peak_bytes'] / (1 << 30):.2f}",
            f"{each['inverted']:,}",
        )  # fmt: skip
    Console(width=120, highlight=False).print(table)


if __name__ == "__main__":
    main()
