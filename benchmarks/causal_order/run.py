"""Rows of many groups put into causal order on Spark, and the alternatives: results.json.

All peers take turns in one session, several times; the median counts. After each turn, off the clock, all
rows must be there, each after all that it follows. A million rows take about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
from peers import CHANGELOG, LOOP, PEERS, Job, Peer, forget_state, session, summed, there_is_ours, wake
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from workload import SHUFFLES, inverted, make

sys.path.insert(0, str(Path(__file__).parent.parent / "audit"))
from scale import machine, report
from watched import family

PHASES = ("triggerExecution", "addBatch", "queryPlanning", "walCommit", "commitOffsets")


class Point(msgspec.Struct):
    """One peer on one workload."""

    who: str
    shuffle: str
    batches: int | None
    """The number of micro-batches; None for a batch."""
    rows: int
    seconds: list[float]
    cpu_seconds: list[float]
    """Memory of the JVM, its workers and this process: unaffected by other processes on the machine."""
    spent: list[dict[str, float]]
    """How the time of a stream was spent."""
    like: str = ""
    inverted: int = 0

    @property
    def median(self) -> float:
        return statistics.median_low(self.seconds)

    @property
    def spent_by_median(self) -> dict[str, float]:
        return self.spent[self.seconds.index(self.median)]


class Figures(msgspec.Struct):
    machine: dict[str, str]
    cores: int
    rows: int
    groups: int
    seed: int
    settings: dict[str, str]
    points: list[Point] = []
    notes: list[str] = []

    def point(self, peer: Peer, shuffle: str) -> Point:
        """The point of a peer, created the first time."""
        for each in self.points:
            if (each.who, each.batches, each.shuffle) == (peer.who, peer.batches, shuffle):
                return each
        self.points.append(Point(peer.who, shuffle, peer.batches, self.rows, [], [], [], peer.like))
        return self.points[-1]

    def times(self, one: Point, who: str) -> str:
        """How many times as fast as another peer on the same rows."""
        for other in self.points:
            if (other.who, other.shuffle) == (who, one.shuffle) and other.batches in (None, one.batches):
                return f"{other.median / one.median:.2f}"
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--shuffles", nargs="+", choices=SHUFFLES, default=list(SHUFFLES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="whose names contain one of these")
    parser.add_argument("--json", action="store_true", help="what results.json has, instead of tables")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).parent)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="antecede-order-") as folder, session(asked.cores) as spark:
        found = measure(asked, spark, Path(folder))
    if asked.json:
        sys.stdout.write((asked.out / "results.json").read_text())
    else:
        show(found)


def keep(found: Figures, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def measure(asked: argparse.Namespace, spark: SparkSession, folder: Path) -> Figures:
    """Every peer on every workload, in turn."""
    wanted = [peer for peer in PEERS if not asked.only or any(part in peer.who for part in asked.only)]
    ours = [peer for peer in wanted if peer.who.startswith("Antecede")]
    notes = []
    if ours and not there_is_ours():
        notes.append("antecede.spark has no causal_order: Antecede is left out")
        report(notes[-1])
        wanted = [peer for peer in wanted if peer not in ours]

    def given(shuffle: str, peer: Peer, rows: int = asked.rows, groups: int = asked.groups) -> Path:
        return make(folder, rows, groups, shuffle, peer.files, asked.seed)

    spark.conf.set(CHANGELOG, "true")
    # More partitions than cores only add cost, for every peer.
    spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
    found = Figures(
        machine(),
        int(spark.sparkContext.defaultParallelism),
        asked.rows,
        asked.groups,
        asked.seed,
        settings(spark),
        notes=notes,
    )
    report("generating rows, and warming up every peer")
    for peer in wanted:
        turn(peer, spark, given("group", peer, 2_000, 20), folder)
        for shuffle in asked.shuffles:
            given(shuffle, peer)
    for _ in range(asked.repeats):
        for shuffle, peer in itertools.product(asked.shuffles, wanted):
            point = found.point(peer, shuffle)
            # Workers end when they have been idle for a minute; do not let a peer wait for new ones.
            turn(replace(peer, batches=None), spark, make(folder, 200, 20, shuffle, 1, asked.seed), folder)
            seconds, cpu, point.inverted, spent = turn(peer, spark, given(shuffle, peer), folder)
            point.seconds.append(seconds)
            point.cpu_seconds.append(cpu)
            point.spent.append(spent)
            report(f"{seconds:7.2f} s  {cpu:7.2f} CPU s  {named(point)}, shuffled by {shuffle}")
            # After each one, because all of them together take long.
            keep(found, asked.out)
    return found


def turn(
    peer: Peer, spark: SparkSession, given: Path, folder: Path
) -> tuple[float, float, int, dict[str, float]]:
    """Seconds, CPU seconds, violated dependencies, and where a stream's time went."""
    job = Job(spark, given, Path(tempfile.mkdtemp(dir=folder)))
    run = peer.prepare(job)
    wake(spark)
    gc.collect()
    gc.disable()
    before, began = cpu_seconds(), time.perf_counter()
    run()
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
    gc.enable()
    if peer.batches and len(job.progress) < peer.batches:
        raise SystemExit(f"{peer.who} took {len(job.progress)} micro-batches, not {peer.batches}")
    wrong = inverted(given, job.result())
    forget_state(spark)
    shutil.rmtree(job.folder)
    if peer.causal and wrong:
        raise SystemExit(f"{peer.who} breaks {wrong:,} dependencies")
    return seconds, cpu, wrong, summed(job.progress)


def cpu_seconds() -> float:
    """CPU seconds of this process and all its descendants, also of those that have ended."""
    ticks = 0
    for pid in family(os.getpid()):
        with suppress(OSError):  # It has just ended.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def settings(spark: SparkSession) -> dict[str, str]:
    """Settings of the session or Spark's defaults, the same for all peers."""
    names = ("spark.driver.memory", "spark.sql.shuffle.partitions", CHANGELOG)
    return {name: str(spark.conf.get(name)) for name in names}


def named(point: Point) -> str:
    many = "" if point.batches is None else f", {point.batches} micro-batch{'es' * (point.batches > 1)}"
    return point.who + many


def show(found: Figures) -> None:
    """Tables for people."""
    console = Console(width=160, highlight=False)
    console.print(", ".join(f"{name} {value}" for name, value in found.machine.items()))
    console.print(
        f"{found.rows:,} rows in {found.groups:,} groups; Spark on {found.cores} cores",
        *found.notes,
        sep="\n",
    )
    for shuffle in dict.fromkeys(point.shuffle for point in found.points):
        points = [point for point in found.points if point.shuffle == shuffle]
        heads = ("who", "seconds", "CPU s", "rows/s", "× its peer", "× loop", "inverted")
        table = Table(*heads, title=f"Shuffled {SHUFFLES[shuffle]}")
        for point in points:
            table.add_row(
                named(point), f"{point.median:,.2f}", f"{statistics.median_low(point.cpu_seconds):,.2f}",
                f"{point.rows / point.median:,.0f}",
                found.times(point, point.like), found.times(point, LOOP), f"{point.inverted:,}",
            )  # fmt: skip
        console.print(table)
        show_spent(console, [point for point in points if point.batches])


def show_spent(console: Console, points: list[Point]) -> None:
    """Where streams spent their time: in the driver's phases, and in the state stores of all tasks."""
    table = Table("seconds of", *PHASES, "state: updates", "commit")
    for point in points:
        names = (*(f"durationMs.{name}" for name in PHASES), "state.allUpdatesTimeMs", "state.commitTimeMs")
        table.add_row(named(point), *(f"{point.spent_by_median.get(name, 0) / 1e3:.2f}" for name in names))
    if points:
        console.print(table)


if __name__ == "__main__":
    main()
