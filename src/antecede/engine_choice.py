"""Where an analysis runs: in this process or on Spark. Audits, graphs, advice and causal order choose alike.

Spark takes seconds to start, and passes every row between processes. So one process is faster up to millions
of rows, on two cores up to tens of millions, provided that its memory suffices (`benchmarks/crossover`). The
choice is by the rows, the cores, the memory that an analysis needs here, and the memory that is free.
Importing this module needs no extra.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from antecede.errors import InputError

ENGINES = ("auto", "local", "spark")
MAX_LOCAL_ROWS = 500_000_000
"""Above this, Spark is chosen in any case."""


class EngineCosts(NamedTuple):
    """What an analysis costs, as measured: bytes per row here, and seconds per million rows."""

    row_bytes: int
    here: float
    spark_start: float
    """Seconds for Spark's start and other costs that do not depend on rows."""
    on_spark: float
    """CPU seconds per million rows, of all tasks."""

    def crossover(self, cores: int) -> float:
        """The number of rows above which Spark is faster; infinity if it never is."""
        gain = self.here - self.on_spark / cores
        return 1e6 * self.spark_start / gain if gain > 0 else float("inf")


TRACES = EngineCosts(row_bytes=500, here=2.2, spark_start=46, on_spark=1.3)
ORDER = EngineCosts(row_bytes=500, here=3.8, spark_start=22, on_spark=6.2)
_MAX_SHARE = 0.6
"""The share of free memory that is used."""


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist."""
    if engine not in ENGINES:
        raise InputError(f"no engine '{engine}'; choose {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")


def wants_spark(
    engine: str,
    master: str | None,
    count_rows: Callable[[], int],
    costs: EngineCosts = TRACES,
    count_bytes: Callable[[], int] | None = None,
) -> bool:
    """Whether local files go to Spark: by choice, because there is a cluster, or by their size.

    `count_bytes` says how much memory it takes in this process, if that does not follow from the rows.
    """
    if engine != "auto":
        return engine == "spark"
    if has_cluster(master):
        return True
    rows = count_rows()
    needed = rows * costs.row_bytes if count_bytes is None else count_bytes()
    most = min(MAX_LOCAL_ROWS, costs.crossover(_cores()))
    return rows > most or needed > usable_memory()


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not Linux.
        return os.cpu_count() or 1


def has_cluster(master: str | None) -> bool:
    return bool(master or os.environ.get("SPARK_REMOTE"))


def usable_memory() -> int:
    """Bytes that an analysis may take in this process."""
    return int(_MAX_SHARE * free_memory())


def free_memory() -> int:
    """Bytes that this process can still allocate: what the machine has, and what its control group allows."""
    return min([_available_on_machine(), *_left_in_control_groups()])


def _available_on_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    # Not Linux: half of the machine's memory.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _left_in_control_groups() -> list[int]:
    """The memory left by the limits of containers, by version 2 of control groups."""
    try:
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
    except OSError:
        return []
    left = []
    innermost = Path("/sys/fs/cgroup") / own
    for folder in (innermost, *innermost.parents):
        try:
            limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        except OSError:
            continue
        if limit != "max":
            left.append(max(0, int(limit) - int(used)))
    return left
