"""Measures verdicts on histories of up to ten million operations, one core, beside plain Python:
results.json.

Each measurement is a process of its own, one at a time. It takes about ten minutes, most of them plain
Python's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
STORES: dict[str, dict[str, Any]] = {
    "serializable": {"lag": 0},
    "lagging": {"lag": 200},
    "one stale read": {"stale": True},
}
SESSIONS, KEYS = 50, 10_000
MOST_PLAIN = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=HERE)
    parser.add_argument("--part", choices=("ours", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(_part(options.part, options.file)))
        return
    results: list[dict[str, Any]] = []
    _compile()
    with tempfile.TemporaryDirectory() as folder:
        for size in options.sizes:
            for store in STORES:
                results += _measure(Path(folder), store, size, options.sessions)
                _write(results, options.out)


def _measure(folder: Path, store: str, size: int, sessions: int) -> list[dict[str, Any]]:
    from store_workload import store_history, write_plume

    file = folder / "history.txt"
    keys = min(KEYS, max(100, size // 10))
    write_plume(store_history(size, sessions, keys, **STORES[store]), file)
    found = []
    for part in ("ours", "plain"):
        if part == "plain" and (size > MOST_PLAIN or store != "serializable"):
            continue
        command = [sys.executable, __file__, "--part", part, "--file", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = {"store": store, "operations": size, "sessions": sessions, "keys": keys, "who": part}
        row |= json.loads(done.stdout)
        print(json.dumps(row), flush=True)
        found.append(row)
    file.unlink()
    return found


def _part(part: str, file: Path) -> dict[str, Any]:
    """Judge a file and say how long it took, in CPU seconds, and the peak of memory."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    from antecede.transactions import LEVELS, check, read_history

    begin = time.process_time()
    history = read_history(file)
    reading = time.process_time() - begin
    found: dict[str, Any] = {"read": round(reading, 2), "bytes": file.stat().st_size}
    if part == "plain":
        from plain_awdit import is_causally_convergent

        gc.disable()
        begin = time.process_time()
        found |= {"levels": {"CCv": is_causally_convergent(history)}}
        found |= {"seconds": {"CCv": round(time.process_time() - begin, 2)}}
    else:
        begin = time.process_time()
        verdict = check(history)
        found["levels"] = {level: verdict.levels[level].ok for level in LEVELS}
        found["seconds"] = {"all": round(time.process_time() - begin, 2)}
        witnesses = [level.violation for level in verdict.levels.values() if level.violation]
        found["witness"] = [len(violation.transactions) for violation in witnesses]
        found["peak_bytes"] = _peak()
        for level in LEVELS:
            begin = time.process_time()
            check(history, [level])
            found["seconds"][level] = round(time.process_time() - begin, 2)
    found.setdefault("peak_bytes", _peak())
    return found


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _compile() -> None:
    """All kernels, in a process of its own, so that no measurement includes it."""
    with tempfile.TemporaryDirectory() as folder:
        for store in STORES:
            _measure(Path(folder), store, 2_000, 5)


def _write(results: list[dict[str, Any]], out: Path) -> None:
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": 1}
    (out / "results.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
