"""The benchmark compares like with like: its rivals deliver every message at the same time as our engines."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import msgspec
import pytest

from antecede.sim.engines import simulate

ENGINE = Path(__file__).parent.parent.parent / "benchmarks" / "engine"
WORKLOADS: tuple[Literal["periodic", "poisson"], ...] = ("periodic", "poisson")
SIZES = (2, 9, 40)
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc to compile C with")


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of the benchmark, by its name."""
    monkeypatch.syspath_prepend(str(ENGINE))
    return importlib.import_module


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("peers", SIZES)
def test_heapq_and_our_engines_agree(part: Callable[[str], Any], kind: str, peers: int) -> None:
    rivals, given = part("rivals"), part("contest").workload(kind, peers, 4_000)
    truth = rivals.totals_of(simulate(given, engine="reference").metrics)
    assert truth.held
    assert rivals.totals_of(simulate(given, engine="recurrence").metrics) == truth
    plan = rivals.sends(given)
    assert rivals.heapq_bare(plan).differences(truth, causal=False) == []
    assert rivals.heapq_causal(plan).differences(truth, causal=True) == []
    if importlib.util.find_spec("simpy"):
        assert rivals.simpy_bare(plan).differences(truth, causal=False) == []


@needs_gcc
@pytest.mark.parametrize("kind", WORKLOADS)
def test_c_and_our_engines_agree(part: Callable[[str], Any], kind: str, tmp_path: Path) -> None:
    rivals, contest = part("rivals"), part("contest")
    library = rivals.compile_c(tmp_path)
    for peers in SIZES:
        for rate in (0.5, 10.0, 60.0):  # long silence, with many messages in flight
            given = msgspec.structs.replace(contest.workload(kind, peers, 8_000), rate=rate)
            truth = rivals.totals_of(simulate(given, engine="recurrence").metrics)
            for name in ("causal", "recurrence"):
                assert rivals.in_c(library, name, given)() == truth
            assert rivals.in_c(library, "bare", given)().differences(truth, causal=False) == []


def test_the_benchmark_detects_a_wrong_delivery(part: Callable[[str], Any]) -> None:
    totals = part("rivals").Totals
    truth = totals(messages=2, deliveries=2, latency=50, latest=30, held=1, hold=10, control=8, end=70)
    wrong = totals(messages=2, deliveries=2, latency=51, latest=31, held=1, hold=10, control=8, end=70)
    assert wrong.differences(truth, causal=True) == ["latency 51, not 50", "latest 31, not 30"]
    assert wrong.differences(truth, causal=False) == ["latency 51, not 40"]


@needs_gcc
def test_a_small_benchmark_ends_with_figures_and_a_picture(
    part: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = argparse.Namespace(
        sizes=[6, 20], deliveries=20_000, repeats=2, workload="periodic", no_others=True
    )
    found = part("measure").measure(asked, tmp_path)
    results = part("results")
    results.show(found)
    shown = capsys.readouterr().out
    assert "Antecede, recurrence: at least 0.7 × C, recurrence" in shown
    assert msgspec.json.decode(msgspec.json.encode(found), type=results.Results) == found
    picture = ElementTree.fromstring(part("chart").draw(found))  # noqa: S314
    assert len(picture.findall(".//{*}circle")) == len(found.compared)
