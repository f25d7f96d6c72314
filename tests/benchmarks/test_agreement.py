"""Advice beside simulations of the same sends: the workloads of docs/advise.md in small."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from antecede.advise import Request
from antecede.sim.scenario import scenario

ADVISE = Path(__file__).parent.parent.parent / "benchmarks" / "advise"
SMALLER = {
    "50 peers, Poisson, all send": {"peers": 12, "seconds": 3.0},
    "100 peers, 8 start, all answer": {"peers": 20, "seconds": 6.0, "senders": 4, "reply": 0.04},
    "30 peers, bursts of 5": {"peers": 10, "seconds": 12.0},
}


@pytest.mark.parametrize("name", SMALLER)
def test_advice_agrees_with_simulation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ADVISE))
    script = importlib.import_module("agreement")
    given = scenario(**(script.WORKLOADS[name] | SMALLER[name]))
    rows = list(script.agreement(name, given, Request()))
    assert {row.protocol: row.ratio for row in rows if abs(row.ratio - 1) > 0.1} == {}
    assert len(script.table(rows).splitlines()) == 2 + 9
