"""Groups with phones that change, simulated with faults: no violations, and exact replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from antecede.live.changing.protocols import WITH_PHONES
from antecede.membership.gateways import ChangingHcg
from antecede.membership.packets import Counts
from antecede.membership.site import LiveSlot
from antecede.protocols.freescale.packets import UplinkPacket
from vopr.changing import phones
from vopr.changing.phones import execute
from vopr.world import Result

_FOUND = (1015, 5039, 7020)
"""Seeds that have found bugs."""
_FOUND_WITH_GATEWAYS = (400_028, 960_041)


class NamesNothing(ChangingHcg):
    """Messages of a local process name only its own earlier ones."""

    def _named_by(self, place: LiveSlot, packet: UplinkPacket) -> Counts | None:
        return {}


@pytest.fixture(autouse=True)
def short_times() -> Iterator[None]:
    with phones.short_times():
        yield


def check(results: list[Result], rare: dict[str, int]) -> None:
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert sum(result.deliveries for result in results) > 5_000
    happened = sum((Counter(result.faults) for result in results), Counter[str]())
    assert {name: count for name, count in rare.items() if happened[name] < count} == {}


def test_no_execution_breaks_a_promise() -> None:
    rare = {"moves": 5, "phone is expelled": 5, "phone leaves": 5, "phone loses its store": 5, "returns": 5}
    check([execute(seed, protocol="freescale") for seed in (*range(30), *_FOUND)], rare)


def test_no_execution_with_gateways_breaks_a_promise() -> None:
    """Signed ones, too: the first version of `hcg` signed other causes than it sent."""
    rare = {"moves": 5, "phone loses its store": 5, "returns": 5, "gives up a super peer": 1}
    check(
        [
            execute(seed, protocol=("hcg", "basic")[seed % 3 == 0])
            for seed in (*range(30), *_FOUND_WITH_GATEWAYS)
        ],
        rare,
    )


def test_messages_that_name_no_causes_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WITH_PHONES, "hcg", NamesNothing)
    assert any(execute(seed, protocol="hcg").violation for seed in range(60))


def test_a_seed_replays_exactly() -> None:
    first = execute(17, is_told=True, protocol="freescale")
    assert len(first.story) > 20
    assert first == execute(17, is_told=True, protocol="freescale")
