"""Where is the crossover between one process and Spark? Audits and causal order of 10⁵ to 10⁸ rows.

Logs are made once, into the folder LOGS, and reused. Each command is a process of its own, one at a time, and
the engines take turns, so that other load on the machine meets both. Times are wall-clock times of the
command and CPU times of all its processes; of several runs, the least counts. `--engine auto` is measured
too: it should be as fast as the better one. Audits are of a clean log, which `auto` judges in one pass, and
of the same log without its last delivery, for which that pass is in vain: the worst case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent / "audit"))
from scale import machine, report, simulate_trace
from watched import family, run

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
ENGINES = ("local", "spark", "auto")
ANALYSES = ("audit", "audit with a fault", "order")
_BLOCK = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logs", type=Path, metavar="LOGS", help="the folder for logs")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--analyses", nargs="+", choices=ANALYSES, default=ANALYSES)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    asked = parser.parse_args()
    results = json.loads(asked.out.read_text())["results"] if asked.out.exists() else []
    for analysis in asked.analyses:
        for rows in map(int, asked.rows):
            measured = measure(analysis, rows, asked)
            results = [each for each in results if (each["analysis"], each["rows"]) != (analysis, rows)]
            results.append({"analysis": analysis, "rows": rows, **measured})
            document = {"machine": machine(), "cores": asked.cores, "results": results}
            asked.out.write_text(json.dumps(document, indent=1) + "\n")
            report(f"{analysis} {rows:,}: {measured}")


def measure(analysis: str, rows: int, asked: argparse.Namespace) -> dict[str, dict[str, float | str]]:
    """Seconds and gigabytes of each engine."""
    if analysis != "order":
        log = simulate_trace(asked.logs, 100, rows / 1e6)
        words = ["audit", str(log if analysis == "audit" else without_last_delivery(log)), "--json"]
    else:
        log = events(asked.logs, rows)
        words = ["order", str(log), "--group", "room", "--id", "id", "--deps", "after", "--json"]
    found: dict[str, dict[str, float | str]] = {}
    for _ in range(asked.repeats):
        for engine in asked.engines:
            with tempfile.TemporaryDirectory(dir=asked.logs) as folder:
                out = ["--out", f"{folder}/out"] if analysis == "order" else []
                with CpuClock() as clock:
                    command = [*ANTECEDE, *words, "--engine", engine, *out]
                    watched = run(command, asked.cores, exit_code=int(analysis == "audit with a fault"))
                shutil.rmtree(f"{folder}/out", ignore_errors=True)
            used = json.loads(watched.output)["engine"]
            if engine not in found or watched.seconds < float(found[engine]["seconds"]):
                gigabytes = round(watched.peak_bytes / 1e9, 2)
                found[engine] = {
                    "seconds": round(watched.seconds, 1),
                    "cpu_seconds": round(clock.seconds(), 1),
                    "gigabytes": gigabytes,
                    "engine": used,
                }
    return found


class CpuClock:
    """Samples the CPU time of all processes that this one has started; other load changes it little."""

    def __enter__(self) -> CpuClock:
        self._ticks: dict[int, int] = {}
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.2):
            for pid in family(os.getpid())[1:]:
                with suppress(OSError, IndexError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    self._ticks[pid] = int(fields[11]) + int(fields[12])

    def seconds(self) -> float:
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def without_last_delivery(log: Path) -> Path:
    """A log that is clean up to its end, where one message is missing."""
    faulty = log.with_name(f"{log.name}-faulty")
    if faulty.exists():
        return faulty
    unfinished = log.with_name(f".{log.name}-faulty")
    shutil.copytree(log, unfinished)
    last = max(unfinished.rglob("*.parquet"))
    table = pq.read_table(last)
    deliveries = np.flatnonzero(pc.equal(table["kind"], "deliver").to_numpy())
    kept = np.delete(np.arange(table.num_rows), deliveries[-1])
    pq.write_table(table.take(kept), last, compression="zstd")
    unfinished.rename(faulty)
    return faulty


def events(folder: Path, rows: int) -> Path:
    """Rows of groups of a thousand, shuffled within blocks; each follows one of the three before it."""
    file = folder / f"events-{rows}.parquet"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(rows)
    unfinished = file.with_suffix(".unfinished")
    schema = pa.schema(
        {"room": pa.string(), "id": pa.string(), "after": pa.list_(pa.string()), "text": pa.string()}
    )
    with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        for begin in range(0, rows, _BLOCK):
            writer.write_table(_block(rng, begin, min(rows, begin + _BLOCK), schema))
    unfinished.rename(file)
    return file


def _block(rng: np.random.Generator, begin: int, end: int, schema: pa.Schema) -> pa.Table:
    numbers = rng.permutation(np.arange(begin, end))
    place = numbers % 1000
    first = numbers - 1 - rng.integers(0, 3, numbers.size)
    lists = [
        [] if at == 0 else [f"m{one}"]
        for at, one in zip(place, np.maximum(first, numbers - place), strict=True)
    ]
    columns = [
        pa.array([f"r{number // 1000}" for number in numbers]),
        pa.array([f"m{number}" for number in numbers]),
        pa.array(lists, pa.list_(pa.string())),
        pa.array([f"what somebody wrote in message {number}" for number in numbers]),
    ]
    return pa.table(columns, schema=schema)


if __name__ == "__main__":
    main()
