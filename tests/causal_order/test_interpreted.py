"""Small tables are processed without a compiler, with the same result."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from antecede.causal_order import disposition, interpreted, text_hash
from antecede.causal_order.outcomes import DUPLICATE, HELD, QUARANTINED, SATISFIED, UNKNOWN, UNREADABLE


@pytest.mark.parametrize("seed", range(60))
def test_interpreted_dispositions_equal_compiled_ones(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 12) for _ in range(rng.randrange(1, 4))]
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    causes: list[list[int]] = []
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        others = [*range(low, high), SATISFIED, UNKNOWN, QUARANTINED]
        weights = [3] * (high - low) + [2, 1, 1]
        causes += [rng.choices(others, weights, k=rng.choice([0, 0, 1, 1, 2])) for _ in range(low, high)]
    offsets = np.concatenate(([0], np.cumsum([len(own) for own in causes])))
    flat = np.array([cause for own in causes for cause in own], np.int64)
    begun = np.array(rng.choices([HELD, DUPLICATE, UNREADABLE], [12, 1, 1], k=len(causes)), np.int8)
    overdue = np.array([rng.random() < 0.5 for _ in causes])
    for release, quarantine in ((False, False), (True, False), (False, True)):
        results = []
        for module in (disposition, interpreted):
            decided = begun.copy()
            rules = (overdue, release, quarantine)
            order = module.decide_dispositions(bounds, offsets, flat, decided, *rules)
            results.append((order.tolist(), decided.tolist()))
        assert results[0] == results[1]


def test_interpreted_identities_and_hashes_equal_compiled_ones() -> None:
    rng = np.random.default_rng(5)
    numbers = [rng.integers(-3, 9, size) for size in (50, 50, 80, 80)]
    compiled = disposition.match_identities(*numbers)
    assert all(map(np.array_equal, compiled, interpreted.match_identities(*numbers)))
    octets = rng.integers(0, 256, 20_000).astype(np.uint8)
    begins = np.concatenate(([0], np.cumsum(rng.integers(0, 100, 150))))
    seeds = rng.integers(0, 2**64, 150, np.uint64)
    hashed = text_hash.hash_texts(octets, begins, seeds)
    assert np.array_equal(hashed, interpreted.hash_texts(octets, begins, seeds))


def test_300_rows_need_neither_a_compiler_nor_200_megabytes(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n - 1 if n else ''},text {n}\n" for n in range(300))
    (tmp_path / "a.csv").write_text(f"id,after,text\n{rows}")
    program = """
import re, sys
from pathlib import Path
from antecede.cli.main import main
try:
    main()
finally:
    loaded = [name for name in ("numba", "pyspark", "networkx") if name in sys.modules]
    # Not ru_maxrss, which begins with that of the parent.
    peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]
    print(loaded, peak, file=sys.stderr)
"""
    words = ["order", "a.csv", "--out", "out", "--id", "id", "--deps", "after"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    loaded, kilobytes = done.stderr.rsplit(" ", 1)
    assert loaded == "[]"
    assert int(kilobytes) < 200 * 1024
