"""Groups that are encrypted from end to end, simulated with faults: every decrypting process delivers all it
is owed, once and in order, and none waits for a key for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from vopr.changing import phones
from vopr.changing.world import execute

_MEMBERS = (0, 59, 78, 80, 140, 168, 236)
_PHONES = (13, 26, 55, 119)
"""Seeds that have found bugs."""


@pytest.fixture(autouse=True)
def short_times() -> Iterator[None]:
    with phones.short_times():
        yield


def test_no_execution_breaks_a_promise() -> None:
    """With all protocols, one for each seed."""
    results = [execute(seed, encrypts=True) for seed in (*range(1, 16), *_MEMBERS)]
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    happened = sum((Counter(result.faults) for result in results), Counter[str]())
    rare = {"joined": 20, "remove": 3, "returns": 2, "kill": 5, "power": 2}
    assert {name: count for name, count in rare.items() if happened[name] < count} == {}


def test_no_execution_with_phones_breaks_a_promise() -> None:
    results = [phones.execute(seed, encrypts=True) for seed in (*range(20, 34), *_PHONES)]
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    happened = sum((Counter(result.faults) for result in results), Counter[str]())
    rare = {"moves": 3, "phone is expelled": 2, "phone leaves": 1, "phone loses its store": 2}
    assert {name: count for name, count in rare.items() if happened[name] < count} == {}


def test_a_seed_replays_exactly() -> None:
    """Though keys are random: what happens does not depend on them."""
    first = phones.execute(17, is_told=True, encrypts=True)
    assert len(first.story) > 20
    assert first == phones.execute(17, is_told=True, encrypts=True)
