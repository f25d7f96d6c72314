"""Where an analysis runs: in this process or on Spark. Audits, graphs, advice and causal order choose alike.

Importing this module needs no extra.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from antecede.errors import InputError

ENGINES = ("auto", "local", "spark")
MAX_LOCAL_ROWS = 1_000_000
"""Up to here, working in this process takes no longer than starting Spark."""


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist."""
    if engine not in ENGINES:
        raise InputError(f"no engine '{engine}'; choose {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")


def wants_spark(engine: str, master: str | None, count_rows: Callable[[], int]) -> bool:
    """Whether local files go to Spark: by choice, because there is a cluster, or by their number of rows."""
    if engine != "auto":
        return engine == "spark"
    return has_cluster(master) or count_rows() > MAX_LOCAL_ROWS


def has_cluster(master: str | None) -> bool:
    return bool(master or os.environ.get("SPARK_REMOTE"))
