"""Where an analysis runs: in this process or on Spark. Audits, graphs, advice and causal order choose alike.

Spark takes seconds to start, and passes every row between processes. So one process is faster up to tens of
millions of rows (`benchmarks/crossover`), provided that its memory suffices: the choice is by rows, by the
memory that an analysis needs here, and by the memory that is free. Importing this module needs no extra.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from antecede.errors import InputError

ENGINES = ("auto", "local", "spark")
MAX_LOCAL_ROWS = 25_000_000
"""Beyond this, Spark on two cores audits sooner than one process does."""
TRACE_ROW_BYTES = 250
"""What an analysis of a trace takes at most for each row, in this process."""
_MAX_SHARE = 0.6
"""Of the memory that is free, so much is taken."""


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist."""
    if engine not in ENGINES:
        raise InputError(f"no engine '{engine}'; choose {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")


def wants_spark(
    engine: str,
    master: str | None,
    count_rows: Callable[[], int],
    count_bytes: Callable[[int], int] = lambda rows: rows * TRACE_ROW_BYTES,
) -> bool:
    """Whether local files go to Spark: by choice, because there is a cluster, or by their size.

    `count_bytes` says how much memory so many rows take in this process.
    """
    if engine != "auto":
        return engine == "spark"
    if has_cluster(master):
        return True
    rows = count_rows()
    return rows > MAX_LOCAL_ROWS or count_bytes(rows) > _MAX_SHARE * free_memory()


def has_cluster(master: str | None) -> bool:
    return bool(master or os.environ.get("SPARK_REMOTE"))


def free_memory() -> int:
    """Bytes that this process can still take: what the machine has, and what its control group allows."""
    return min([_available_on_machine(), *_left_in_control_groups()])


def _available_on_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    # Not Linux: half of what there is.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _left_in_control_groups() -> list[int]:
    """What the limits of containers leave, by version 2 of control groups."""
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
