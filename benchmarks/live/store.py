"""The store of this checkout beside that of another one, measured in turns on one machine.

    python benchmarks/live/store.py OTHER_CHECKOUT [--turns 3]

Group commits of one journal (one record of 100 or 10,000 bytes each), with and without waiting for the disk;
`antecede load 4` with stores, and its CPU time; the better turn of each counts. Then single bits are flipped
in a store that was closed, and in one whose process was killed: how often that is detected, is harmless, or
changes in silence what was accepted. Writes store.json. OTHER_CHECKOUT is a git worktree of an earlier
commit, such as 8cfcb6c, whose store was an SQLite database.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
COMMITS = """
import sys, time
from pathlib import Path
from antecede.live.events import PacketReceived
from antecede.live.store.journal import Journal
folder, sync, size, seconds = Path(sys.argv[1]), sys.argv[2] == "sync", int(sys.argv[3]), float(sys.argv[4])
try:
    from antecede.live.store.disk import FileDisk
    from antecede.live.store.records import Checkpoint
    journal, empty = Journal(FileDisk(folder / "store"), {}, sync), Checkpoint(b"", [])
    due = lambda: journal.checkpoint_is_due
except ImportError:
    from antecede.live.store.journal import Checkpoint
    journal, empty = Journal(folder / "store", {}, sync), Checkpoint(b"", [], {}, [], None)
    due = lambda: count * size % (1 << 22) < size
body, count, began = bytes(size), 0, time.perf_counter()
while (elapsed := time.perf_counter() - began) < seconds:
    count += 1
    journal.write([PacketReceived(0, count, body, count)])
    if due():
        journal.write([], empty)
journal.close()
print(count / elapsed)
"""
FLIPS = """
import json, os, random, shutil, sys
from pathlib import Path
from antecede.errors import InputError
from antecede.live.events import PacketReceived
from antecede.live.store.journal import Journal
folder, flips, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(1)
try:
    from antecede.live.store.disk import FileDisk
    opened = lambda path: Journal(FileDisk(path), {"me": "ana"}, False)
except ImportError:
    path_of = lambda path: path / "database"
    opened = lambda path: Journal(path_of(path), {"me": "ana"}, False)
def content(path):
    journal = opened(path)
    try:
        return [(record.number, record.data) for record in journal.records()], journal.store
    finally:
        journal.close()
journal = opened(folder / "closed")
for number in range(50):
    journal.write([PacketReceived(0, number, rng.randbytes(200), 1)])
shutil.copytree(folder / "closed", folder / "killed")
journal.close()
result = {}
for kind in ("closed", "killed"):
    whole = content(Path(shutil.copytree(folder / kind, folder / "copy")))
    shutil.rmtree(folder / "copy")
    counts = {"detected": 0, "harmless": 0, "silent": 0}
    files = [file for file in sorted((folder / kind).iterdir()) if not file.name.endswith(("lock", "shm"))]
    sizes = [len(file.read_bytes().rstrip(b"\\0")) for file in files]
    for _ in range(flips):
        copy = Path(shutil.copytree(folder / kind, folder / "copy"))
        file, size = rng.choices(list(zip(files, sizes)), sizes)[0]
        data = bytearray(file.read_bytes())
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
        (copy / file.name).write_bytes(data)
        try:
            counts["harmless" if content(copy) == whole else "silent"] += 1
        except InputError:
            counts["detected"] += 1
        except Exception:
            counts["detected"] += 1
        shutil.rmtree(copy)
    result[kind] = counts
print(json.dumps(result))
"""


def run(checkout: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    ran = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    return ran.stdout


def commits(checkout: Path, sync: bool, size: int) -> float:
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        wait = "sync" if sync else "no-sync"
        return float(run(checkout, "-c", COMMITS, folder, wait, str(size), "3"))


def flips(checkout: Path, count: int) -> dict[str, dict[str, int]]:
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        result: dict[str, dict[str, int]] = json.loads(run(checkout, "-c", FLIPS, folder, str(count)))
        return result


def load(checkout: Path, sync: bool, size: int, messages: int, figure: str, sign: int = 1) -> float:
    """A figure of `antecede load`."""
    wait = "--sync" if sync else "--no-sync"
    options = ["--messages", str(messages), "--bytes", str(size), wait, "--json"]
    return sign * float(json.loads(run(checkout, "-m", "antecede", "load", "4", *options))[figure])


def measurements(messages: int) -> dict[str, Callable[[Path], float]]:
    """The measurements. CPU seconds are negative, so that more is better in all of them."""
    found: dict[str, Callable[[Path], float]] = {}
    for sync, how in ((True, "synced"), (False, "not synced")):
        for size in (100, 10_000):
            key = f"group commits per second, {size} bytes, {how}"
            found[key] = partial(commits, sync=sync, size=size)
        for size in (100, 1_000):
            loaded = partial(load, sync=sync, size=size, messages=messages)
            key = f"load: deliveries per second, {size} bytes, {how}"
            found[key] = partial(loaded, figure="deliveries_a_second")
            key = f"load: CPU seconds of a member, {size} bytes, {how}"
            found[key] = partial(loaded, figure="cpu_seconds", sign=-1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure this checkout's store beside another's.")
    parser.add_argument("other", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--flips", type=int, default=500)
    options = parser.parse_args()
    checkouts = {"this": HERE.parent.parent, "other": options.other.resolve()}
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.turns):
        for key, measure in measurements(options.messages).items():
            figures = best.setdefault(key, {})
            for name, checkout in checkouts.items():
                value = measure(checkout)
                figures[name] = max(figures.get(name, value), value)
    result: dict[str, object] = {}
    for key, figures in best.items():
        result[key] = {name: abs(round(value, 3)) for name, value in figures.items()}
    result["flipped bits"] = {name: flips(checkout, options.flips) for name, checkout in checkouts.items()}
    text = json.dumps(result, indent=2)
    print(text)
    (HERE / "store.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
