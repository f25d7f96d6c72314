"""Runs one audit in a process of its own, which `scale.py` measures, and prints the result as JSON.

    auditor.py WAY TRACE

WAY is spark (what `antecede audit --engine spark` does), local (the same in this process), pass (the one-pass
audit of clean traces), plain (the opponent in plain Python), or warm (compiles what all of them run).
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

PLAIN_ROWS = 300_000


def on_spark(trace: Path) -> dict[str, Any]:
    from antecede.audit.run import audit_path
    from antecede.spark import connect

    with connect() as spark:
        # The audit uses the active session, so its shuffle statistics can be read afterwards.
        found = audit_path(str(trace), "spark", 10, None)
        executor = spark.sparkContext._jsc.sc().statusStore().executorList(True).head()
        return asdict(found.verdict) | {
            "shuffle_bytes": int(executor.totalShuffleWrite()),
            "cores": int(spark.sparkContext.defaultParallelism),
        }


def in_this_process(trace: Path) -> dict[str, Any]:
    from antecede.audit.run import audit_path

    return asdict(audit_path(str(trace), "local", 10, None).verdict)


def in_one_pass(trace: Path) -> dict[str, Any]:
    from antecede.audit.streaming import verdict_if_clean
    from antecede.trace.reader import read_metas, trace_files

    (meta,) = read_metas(trace)
    found = verdict_if_clean(trace_files(trace), meta.run, meta.groups)
    if found is None:
        raise SystemExit(f"{trace} cannot be judged in one pass")
    return asdict(found)


def in_plain_python(trace: Path) -> dict[str, Any]:
    from plain import check, read_rows

    from antecede.trace.reader import read_metas, trace_files

    (meta,) = read_metas(trace)
    (names,) = meta.groups.values()
    rows = read_rows(trace_files(trace), names, PLAIN_ROWS)
    gc.disable()
    start = time.process_time()
    violations = check(rows, len(names))
    return {"rows": len(rows), "causal_violations": violations, "cpu_seconds": time.process_time() - start}


def warm(trace: Path) -> dict[str, Any]:
    from antecede.spark import audit, connect, read_events, read_members

    with connect() as spark:
        for most in (0, 1_000_000):
            audit(read_events(spark, str(trace)), read_members(spark, str(trace)), large_run=most).total()
    return in_this_process(trace) | in_one_pass(trace)


WAYS = {
    "spark": on_spark,
    "local": in_this_process,
    "pass": in_one_pass,
    "plain": in_plain_python,
    "warm": warm,
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](Path(sys.argv[2]))))
