"""The benchmark of dependency graphs compares like with like: all find the same edges."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent.parent / "benchmarks" / "graph"


def test_contenders_find_the_same_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("networkx", "rustworkx"):
        pytest.importorskip(module)
    monkeypatch.syspath_prepend(str(FOLDER))
    contenders = importlib.import_module("contenders")
    given = contenders.table(500, 10)
    found = {
        name: set(zip(*np.asarray(prepare(given)()).tolist(), strict=True))
        for name, prepare in contenders.CONTENDERS.items()
    }
    assert len(found["antecede"]) < contenders.pairs_of(given).shape[1]
    assert all(edges == found["antecede"] for edges in found.values())
