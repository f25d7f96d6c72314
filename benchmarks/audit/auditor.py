"""One audit in a process of its own, for `scale.py` to watch: says what it found, as JSON.

    auditor.py WAY TRACE

WAY is spark (what `antecede audit --engine spark` does), local (the same in this process), pass (one pass
over the rows, which can only say that all is well), plain (the opponent), or warm (compiles what all run).
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
        # The session is active, so that the audit takes it, and what it moved can be asked afterwards.
        found = audit_path(str(trace), "spark", 10, None)
        executor = spark.sparkContext._jsc.sc().statusStore().executorList(True).head()
        return asdict(found.verdict) | {
            "shuffle_bytes": int(executor.totalShuffleWrite()),
            "cores": int(spark.sparkContext.defaultParallelism),
        }


def here(trace: Path) -> dict[str, Any]:
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


def plainly(trace: Path) -> dict[str, Any]:
    from plain import check, read_rows

    from antecede.trace.reader import read_metas, trace_files

    (meta,) = read_metas(trace)
    (names,) = meta.groups.values()
    rows = read_rows(trace_files(trace), names, PLAIN_ROWS)
    gc.disable()
    began = time.process_time()
    early = check(rows, len(names))
    return {"rows": len(rows), "causal_deliveries": early, "cpu_seconds": time.process_time() - began}


def warm(trace: Path) -> dict[str, Any]:
    from antecede.spark import audit, connect, read_events, read_members

    with connect() as spark:
        for most in (0, 1_000_000):
            audit(read_events(spark, str(trace)), read_members(spark, str(trace)), large_run=most).total()
    return here(trace) | in_one_pass(trace)


WAYS = {"spark": on_spark, "local": here, "pass": in_one_pass, "plain": plainly, "warm": warm}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](Path(sys.argv[2]))))
