"""A fuzzer of file input: mutated logs and tables into every importer and every reader.

    python tests/trace/fuzz_importers.py SECONDS [SEED] [TARGET]

TARGET is the name of a reader, or how several names begin. Only an `InputError` may come out. With atheris
installed the mutations are guided by coverage; otherwise they are seeded ones, and inputs whose outcome is
new are mutated further. Prints how many inputs were tried, how many were taken for good, the undeclared
errors, and the peak of memory.
"""

from __future__ import annotations

import gc
import gzip
import importlib.util
import io
import json
import random
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pyarrow as pa
import pyarrow.parquet as pq

from antecede.errors import AntecedeError
from antecede.sources import find_source
from antecede.sources.tables import write_dependency_table
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import dependency_file, read_dependencies
from antecede.trace.foreign.column_map import parse_column_map
from antecede.trace.foreign.import_formats import import_path
from antecede.trace.foreign.to_trace import convert_to_trace
from antecede.trace.reader import read_batches, read_metas, read_run, trace_files

ROW = {
    "run": "r",
    "group": "g",
    "process": "ana",
    "index": 0,
    "kind": "send",
    "origin": "ana",
    "seq": 1,
    "time": 0,
}
EVENTS = [
    ROW,
    {**ROW, "process": "bo", "kind": "deliver", "deps": ["ana:1"], "control_bytes": 3},
    {**ROW, "process": "bo", "index": 1, "origin": "bo", "destinations": ["ana"], "link": "ana"},
]
FOREIGN = "host,what,msg,idx\na,PUB,1,0\nb,SUB,1,0\n"
MAPPING = ["process=host,kind=what,message=msg,index=idx", "kind.send=PUB,kind.deliver=SUB"]
TOKENS = [
    b"\x00",
    b"\xff\xfe",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b"\n",
    b"\r",
    b"null",
    b"1e999",
    b"-1",
    b"NaN",
    b"\\u0000",
]
TOKENS += [
    b"9" * 40,
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b'"parents":',
    b"PAR1",
    b"\x1f\x8b",
    b"[" * 2000,
    b"true",
]

_REPORT_SECONDS = 30.0
Reader = Callable[[str, bytes, Path], None]
"""Reads an input by the name of what it is for, in a folder."""


def parquet(rows: list[dict[str, object]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="zstd")
    return sink.getvalue()


def seeds() -> dict[str, list[bytes]]:
    """Good inputs by the name of what reads them."""
    lines = "".join(f"{json.dumps(each)}\n" for each in EVENTS).encode()
    names = list(ROW)
    table = "\n".join([",".join(names), *(",".join(str(each[name]) for name in names) for each in EVENTS)])
    parents = b"node,process,seq,parents\na,ana,1,\nb,bo,1,a\nc,bo,2,a b\n"
    nodes: list[dict[str, object]] = [{"node": "a", "process": "p", "seq": 1, "parents": []}]
    nodes.append({"node": "b", "process": "q", "seq": 1, "parents": ["a"]})
    editing = b'{"txns":[{"parents":[],"agent":0},{"parents":[0],"agent":"bo"},{"agent":1}]}'
    clocks = b'ana {"ana":1}\nsend\nbo {"ana":1,"bo":1}\nreceive\n12 bo {"bo":2,"ana":1}\nlater\n'
    akka = b'[INFO] [akka://sys/user/a] {"a":1} hello\n'
    return {
        "shiviz": [clocks, akka, gzip.compress(clocks)],
        "editing": [editing, gzip.compress(editing)],
        "dependencies": [parents, gzip.compress(parents)],
        "dependencies.parquet": [parquet(nodes)],
        "graph.csv": [parents],
        "graph.parquet": [parquet(nodes)],
        "trace.jsonl": [lines],
        "trace.csv": [table.encode()],
        "trace.parquet": [parquet(EVENTS)],
        "mapped.csv": [FOREIGN.encode()],
        "mapped.jsonl": [b'{"host":"a","what":"PUB","msg":1,"idx":0}\n'],
        "mapped.parquet": [parquet([{"host": "a", "what": "PUB", "msg": 1, "idx": 0}])],
        "meta.json": [b'{"run":"r","groups":{"g":["ana"]},"schema_version":1}'],
    }


def mutated(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Bytes flipped, cut, repeated, spliced with another input, or with a fragment of a format inserted."""
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(6)
        if how == 0 and place < len(data):
            data = data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
        elif how == 1:
            data = data[:place] + data[place + rng.randrange(1, 9) :]
        elif how == 2:
            data = data[:place] + data[place : place + 16] * rng.randrange(1, 40) + data[place:]
        elif how == 3:
            other = rng.choice(others)
            data = data[:place] + other[rng.randrange(len(other) + 1) :]
        else:
            data = data[:place] + rng.choice(TOKENS) + data[place:]
    return data[: 1 << 18]


def read(target: str, data: bytes, folder: Path) -> None:
    """Feed one input to one reader."""
    name, _, ending = target.partition(".")
    file = folder / (f"input.{ending}" if ending else "input")
    if target == "meta.json":
        (folder / "input.jsonl").write_bytes(seeds()["trace.jsonl"][0])
        file = folder / "_meta" / "meta.json"
        file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    if name in ("shiviz", "editing", "dependencies"):
        strict = data[-1:] == b"!"
        if name != "dependencies":
            import_path(name, file, folder / "out", strict=strict)
        elif source := find_source(str(file), name):
            write_dependency_table(source, folder / "out", BadRows(str(file), strict))
    elif name == "graph":
        if source := find_source(str(file)):
            write_dependency_table(source, folder / "out", BadRows(str(file), strict=False))
        if table := dependency_file(file):
            read_dependencies(table, BadRows(str(table), strict=False))
    elif name == "mapped":
        for _ in convert_to_trace(file, [file], parse_column_map(MAPPING), BadRows(str(file), strict=False)):
            pass
    elif target == "meta.json":
        read_metas(folder)
    else:
        for each in trace_files(file):
            for _ in read_batches(each):
                pass
        read_run(file)


def clear(folder: Path) -> None:
    for name in ("out", "_meta"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in folder.glob("input*"):
        file.unlink()


class Fuzzer:
    """Tries inputs, counts outcomes and keeps those with a new one."""

    def __init__(self, folder: Path, corpus: dict[str, list[bytes]], reader: Reader) -> None:
        self.folder, self.corpus, self._read = folder, corpus, reader
        self.tried: Counter[str] = Counter()
        self.undeclared: dict[str, tuple[str, bytes]] = {}
        self._seen: set[str] = set()

    def try_one(self, target: str, data: bytes) -> None:
        self.tried["inputs"] += 1
        outcome = "good"
        try:
            self._read(target, data, self.folder)
            self.tried["good"] += 1
        except AntecedeError as error:
            self.tried["refused"] += 1
            outcome = re.sub(r"[\d',]+", "", str(error).replace(str(self.folder), ""))[:60]
        except Exception as error:
            self.tried["undeclared"] += 1
            outcome = f"{type(error).__name__}: {error}"[:200]
            if f"{target}: {outcome}" not in self.undeclared:
                self.undeclared[f"{target}: {outcome}"] = target, data
                print(f"undeclared: {target}: {outcome}\n  {data[:2000]!r}", flush=True)
        finally:
            clear(self.folder)
        if f"{target} {outcome}" not in self._seen:
            self._seen.add(f"{target} {outcome}")
            self.corpus[target].append(data)

    def run(self, seconds: float, seed: int) -> None:
        rng = random.Random(seed)
        targets = list(self.corpus)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            target = rng.choice(targets)
            self.try_one(
                target, mutated(rng.choice(self.corpus[target]), rng, self.corpus[rng.choice(targets)])
            )

    def run_guided(self, seconds: float, seed: int) -> None:
        """By atheris: the first byte of an input chooses the reader. It ends the process."""
        atheris = importlib.import_module("atheris")
        targets = list(self.corpus)

        report_at = time.monotonic() + _REPORT_SECONDS

        def one(data: bytes) -> None:
            nonlocal report_at
            if data:
                self.try_one(targets[data[0] % len(targets)], data[1:])
            if time.monotonic() > report_at:  # it ends the process without letting us print
                report_at += _REPORT_SECONDS
                self.report()

        start = self.folder / "corpus"
        start.mkdir()
        for number, target in enumerate(targets):
            for other, data in enumerate(self.corpus[target]):
                (start / f"{number}-{other}").write_bytes(bytes([number]) + data)
        options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=8192", "-timeout=60"]
        atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=4096", str(start)], one)
        for target, inputs in list(self.corpus.items()):
            for data in list(inputs):
                self.try_one(target, data)  # what numba compiles must be compiled before it is instrumented
        for function in [each for each in gc.get_objects() if isinstance(each, FunctionType)]:
            if (function.__module__ or "").startswith("antecede"):
                atheris.instrument_func(function)
        atheris.Fuzz()

    def report(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        figures = {
            "peak_memory_mb": used.ru_maxrss // 1024,
            "cpu_seconds": round(used.ru_utime + used.ru_stime),
        }
        print({**self.tried, **figures, "outcomes": len(self._seen)}, flush=True)


def fuzz(corpus: dict[str, list[bytes]], reader: Reader, seconds: float, seed: int) -> Fuzzer:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        fuzzer = Fuzzer(Path(folder), corpus, reader)
        guided: Callable[[float, int], None] = fuzzer.run_guided
        (guided if importlib.util.find_spec("atheris") else fuzzer.run)(seconds, seed)
        fuzzer.report()
    return fuzzer


def main(corpus: dict[str, list[bytes]], reader: Reader) -> None:
    seconds, seed, only = (sys.argv[1:] + ["0", ""][len(sys.argv) - 2 :])[:3]
    chosen = {target: inputs for target, inputs in corpus.items() if target.startswith(only)}
    sys.exit(bool(fuzz(chosen, reader, float(seconds), int(seed)).undeclared))


if __name__ == "__main__":
    main(seeds(), read)
