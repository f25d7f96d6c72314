"""The benchmark of audits compares like with like, and ends with figures and a picture."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from antecede.audit.core import judge_files, judge_run
from antecede.trace.reader import trace_files
from planted import chain, table

AUDIT = Path(__file__).parent.parent.parent / "benchmarks" / "audit"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of the benchmark, by its name."""
    monkeypatch.syspath_prepend(str(AUDIT))
    return importlib.import_module


def test_plain_python_finds_made_traces_clean_as_the_audit_does(
    part: Callable[[str], Any], tmp_path: Path
) -> None:
    trace = part("scale").simulate_trace(tmp_path, 20, 0.01)
    (ours,) = judge_files(trace, trace_files(trace))
    assert ours.verdict.clean
    rows = part("plain").read_rows(trace_files(trace), [f"p{number:02}" for number in range(20)], 10**9)
    assert len(rows) == ours.verdict.messages + ours.verdict.deliveries
    assert 9_000 < len(rows) < 11_000
    assert part("plain").check(rows, 20) == 0
    assert part("scale").simulate_trace(tmp_path, 20, 0.01) == trace


def test_plain_python_detects_early_deliveries(part: Callable[[str], Any], tmp_path: Path) -> None:
    events = table(chain(2))
    assert judge_run("r", events, {}).verdict.causal_violations == 1
    pq.write_table(events, tmp_path / "chain.parquet")
    rows = part("plain").read_rows([tmp_path / "chain.parquet"], [f"n{number}" for number in range(3)], 100)
    assert part("plain").check(rows, 3) == 1


def test_memory_of_a_process_and_its_children_is_seen(part: Callable[[str], Any]) -> None:
    child = "import time; kept = bytes(range(256)) * 400_000; time.sleep(2)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('done')"
    found = part("watched").run([sys.executable, "-c", script], 1)
    assert found.output == "done\n"
    assert found.peak_bytes > 100_000_000
    assert found.seconds > 2


def test_aims_are_judged_and_drawn(part: Callable[[str], Any]) -> None:
    figures = part("figures")
    points = [
        figures.Point(who, 1_000, size, size, start + size * each, 3 << 30, 1)
        for size in (90_000, 1_000_000, 10_000_000, 100_000_000)
        for who, start, each in ((figures.SPARK, 6.0, 1e-6), (figures.PLAIN, 0.0, 4e-5))
    ]
    found = figures.Figures({}, 2, [5.0, 6.0, 9.0], points)
    aims = {aim.what: (aim.found, aim.reached) for aim in figures.judged(found)}
    assert aims["10 million rows of 1,000, start included: × plain Python, at least 20"] == ("25.0", True)
    assert aims["0.09 million rows of 1,000, start included: seconds, at most 10"] == ("6.1", True)
    grown = "10 million rows of 1,000 to 100 million rows of 1,000: seconds a row without the start"
    assert [each for what, each in aims.items() if what.startswith(grown)] == [("1.00", True)]
    picture = ElementTree.fromstring(figures.chart(found))  # noqa: S314
    assert len(picture.findall(".//{*}circle")) == len(points)
