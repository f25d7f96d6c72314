"""The plain Python implementation of AWDIT's algorithm, which ours is measured beside, is right."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from antecede.transactions import check

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "transactions"))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "transactions"))
    return importlib.import_module


def test_plain_python_and_the_compiled_checker_agree(part: Any) -> None:
    judge = part("plain_awdit").is_causally_convergent
    replicated = part("replicated_store").replicated_history
    verdicts = set()
    for seed in range(40):
        history = replicated(seed, by_timestamp=seed % 2 == 0, faults=0.01 * (seed % 3))
        expected = check(history, ["CCv"]).levels["CCv"].ok
        assert judge(history) == expected, seed
        verdicts.add(expected)
    assert verdicts == {True, False}


def test_the_measured_stores_have_their_stated_consistency(part: Any) -> None:
    store = part("store_workload").store_history
    assert check(store(4_000, 8, 200)).clean
    levels = check(store(4_000, 8, 50, lag=100)).levels
    assert levels["CCv"].ok
    assert not levels["CM"].ok
    stale = check(store(4_000, 8, 200, stale=True)).levels
    assert [level for level, verdict in stale.items() if not verdict.ok] == ["RA", "CC", "CM", "CCv"]


def test_a_measurement_starts(part: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    times = part("verdict_times")
    (ours, plain) = times._measure(tmp_path, "serializable", 2_000, 4)
    assert ours["levels"]["CCv"] is plain["levels"]["CCv"] is True
    assert ours["peak_bytes"] > 0
