"""Groups with phones that change, simulated with faults: no violations, and exact replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from vopr.changing import phones
from vopr.changing.phones import execute

_FOUND = (1015, 5039, 7020)
"""Seeds that have found bugs."""


@pytest.fixture(autouse=True)
def short_times() -> Iterator[None]:
    with phones.short_times():
        yield


def test_no_execution_breaks_a_promise() -> None:
    results = [execute(seed) for seed in (*range(30), *_FOUND)]
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert sum(result.deliveries for result in results) > 5_000
    happened = sum((Counter(result.faults) for result in results), Counter[str]())
    rare = {"moves": 5, "phone is expelled": 5, "phone leaves": 5, "phone loses its store": 5, "returns": 5}
    assert {name: count for name, count in rare.items() if happened[name] < count} == {}


def test_a_seed_replays_exactly() -> None:
    first = execute(17, is_told=True)
    assert len(first.story) > 20
    assert first == execute(17, is_told=True)
