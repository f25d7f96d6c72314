"""Traces of a fixed list of scenarios, across every protocol and engine, are the same row for row.

A refactoring may change anything but these. Where a change of behaviour is intended, regenerate the digests
with `./dev test tests/sim/test_golden_traces.py --rewrite -n 0` and say why in the commit.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from antecede.sim.engines import simulate
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

FILE = Path(__file__).parent / "golden_traces.json"
GOLDEN: list[dict[str, Any]] = json.loads(FILE.read_text())


def digest_of_rows(folder: Path) -> str:
    digest = hashlib.sha256()
    for part in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(part).to_pylist():
            digest.update(msgspec.json.encode(row, order="sorted"))
    return digest.hexdigest()


def digest_of(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


@pytest.mark.parametrize("place", range(len(GOLDEN)))
def test_a_scenario_leaves_the_same_trace_on_every_engine(place: int, tmp_path: Path, rewrite: bool) -> None:
    golden = GOLDEN[place]
    given = scenario(**golden["scenario"])
    for engine in golden["engines"]:
        if engine == "recurrence":  # it reports no events to observers
            metrics = simulate(given, engine=engine).metrics
        else:
            metrics = simulate_to(tmp_path / engine, given, engine=engine).metrics
            trace = digest_of_rows(tmp_path / engine)
            if rewrite:
                golden["trace"] = trace
            assert trace == golden["trace"]
        if rewrite:
            golden["metrics"] = digest_of(metrics)
        assert digest_of(metrics) == golden["metrics"]
    if rewrite:
        FILE.write_text("[\n" + ",\n".join(json.dumps(each) for each in GOLDEN) + "\n]\n")
