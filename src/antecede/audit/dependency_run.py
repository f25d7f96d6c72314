"""Judges a dependency log where it fits: in this process if its memory suffices, on Spark otherwise.

The size of a log is known only once it has been read. So the log is read into this process's memory until
judging it would no longer fit; then Spark takes over what was read, and the rest. Reading dominates the time
on both engines, so Spark is faster only on a cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pyarrow as pa

from antecede import engine_choice
from antecede.audit.dependency_findings import DependencyVerdict
from antecede.audit.dependency_log import COLUMNS, judge_dependency_log
from antecede.errors import require

Progress = Callable[[str, int, int], None]
_MEMORY_PER_BYTE = 6
"""Measured bytes of memory that judging takes per byte of the log in Arrow, the log included."""


def judge_where_it_fits(
    batches: Iterable[pa.Table],
    engine: str,
    limit: int,
    master: str | None = None,
    progress: Progress = lambda *_: None,
    counted: str = "row",
) -> tuple[DependencyVerdict, str]:
    """The verdict on a log of `sources.dependency_log.SCHEMA`, and the engine that found it.

    `counted` says in words what the column `row` is the number of.
    """
    engine_choice.check_engine(engine)
    held: list[pa.Table] = []
    on_spark = engine == "spark" or (engine == "auto" and engine_choice.has_cluster(master))
    if not on_spark:
        room = engine_choice.usable_memory()
        batches = iter(batches)
        for batch in batches:
            held.append(batch.select(COLUMNS))
            room -= _MEMORY_PER_BYTE * held[-1].nbytes
            if room < 0 and engine == "auto":
                on_spark = True
                break
    if not on_spark:
        progress("judging", 0, 0)
        return judge_dependency_log(held, limit, counted), "local"
    require("antecede.spark", "spark")
    from antecede.audit.dependency_log_on_spark import judge_dependency_log_on_spark

    whole = itertools.chain(held, batches)
    verdict = judge_dependency_log_on_spark(whole, limit, master, progress, counted=counted)
    return verdict, "spark"
