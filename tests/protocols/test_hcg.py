"""Subgroups and gateways: they order what happened before, and each rule as paper 003 prints it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from antecede.causality import BitWindow, Judgement, MessageId, judge
from antecede.protocols.base import Packet
from antecede.protocols.hcg import Hcg
from antecede.protocols.hcg.packets import GatewayPacket, LocalRank, SubgroupPacket
from antecede.sim.engines import simulate
from antecede.sim.scenario import Scenario, scenario
from antecede.sim.verify import Histories, VerifyReport, verify
from antecede.sim.world import World
from printed_protocols import hcg as printed
from smallest_run import assert_passed, smallest_run

HCG, BASIC = "antecede.protocols.hcg:Hcg", "antecede.protocols.hcg:Basic"
MS = 1_000_000


def final(protocol: str, runs: int) -> VerifyReport:
    found = VerifyReport(protocol)
    for found in verify(protocol, runs, seed=7):
        if found.failed:
            break
    return found


@pytest.mark.parametrize("protocol", [HCG, BASIC])
def test_random_subgroups_preserve_causal_order(protocol: str) -> None:
    assert_passed(final(protocol, 250))


LAYOUTS = [
    ["rt:3", "rt:4", "rt:2"],
    ["lt:3", "lt:4", "lt:2"],
    ["vt:3", "vt:4", "vt:2"],
    ["rt:3", "lt:3", "vt:3"],
    ["vt:1", "rt:1", "lt:1", "rt:2", "lt:2", "vt:2"],
    ["lt:9"],
]


def loose(protocol: str, subgroups: Sequence[str], seed: int, **more: Any) -> Scenario:
    """Links that reorder and duplicate, and clocks that differ by five times the longest local delay."""
    fields: dict[str, Any] = {
        "peers": sum(int(each.partition(":")[2]) for each in subgroups),
        "seconds": 0.4,
        "rate": 20.0,
        "reply": 0.1,
        "delay": "wild:1us-500ms",
        "local_delay": "0-4ms",
        "skew": "20ms",
        "faults": ("duplicate:20%:200ms",),
        "most_messages": 60,
        "layout": {"subgroups": list(subgroups)},
        "seed": seed,
    }
    return scenario(protocol=protocol, **{**fields, **more})


def run(
    made: Scenario,
) -> tuple[Judgement, dict[MessageId, set[tuple[int, int]]], dict[tuple[int, int], MessageId]]:
    """A run: its judgement, what each message names between gateways, and the message of each number."""
    members, histories = made.members(), Histories(made)
    world = made.world(members, [histories])
    names: dict[MessageId, set[tuple[int, int]]] = {}
    numbers: dict[tuple[int, int], MessageId] = {}
    sites = made.resolved_layout().sites(made.peers)  # type: ignore[union-attr]

    def watched(source: int, to: Sequence[int], packet: Packet) -> None:
        if isinstance(packet, GatewayPacket):
            (message,) = packet.message_ids()
            numbers[sites[source], packet.number] = message
            counted = {(k, n) for k, count in enumerate(packet.counts) for n in range(1, count + 1)}
            names[message] = counted | set(packet.beyond)
        World.transmit(world, source, to, packet)

    world.transmit = watched  # type: ignore[method-assign]
    world.run()
    assert [member.waiting() for member in members] == [[] for _ in members]
    return judge(histories.execution()), names, numbers


Pairs = set[tuple[MessageId, MessageId]]


def ordered(names: dict[MessageId, set[tuple[int, int]]], numbers: dict[tuple[int, int], MessageId]) -> Pairs:
    """(earlier, later): what gateways order, by what packets name and by sender order."""
    past: dict[MessageId, set[MessageId]] = {}

    def before(message: MessageId) -> set[MessageId]:
        if message not in past:
            direct = {numbers[each] for each in names[message]}
            if message.seq > 1:
                direct.add(MessageId(message.origin, message.seq - 1))
            past[message] = direct.union(*(before(each) for each in direct))
        return past[message]

    return {(one, other) for other in names for one in before(other)}


def happened(judgement: Judgement) -> Pairs:
    order = judgement.order
    return {(one, two) for one in order.messages for two in order.messages if order.happened_before(one, two)}


@pytest.mark.parametrize("protocol", [HCG, BASIC])
@pytest.mark.parametrize("subgroups", LAYOUTS, ids=" ".join)
def test_skewed_clocks_and_links_that_overtake(protocol: str, subgroups: list[str]) -> None:
    for seed in range(12):
        made = loose(protocol, subgroups, seed)
        judgement, names, numbers = run(made)
        assert judgement.verdict.clean, smallest_run(made)
        assert judgement.verdict.messages > 30
        if len(subgroups) > 1:
            assert happened(judgement) <= ordered(names, numbers)


@pytest.mark.parametrize(
    "subgroups",
    [["rt:3", "rt:4", "rt:2"], ["vt:3", "vt:4", "vt:2"], ["rt:3", "vt:3", "rt:1", "vt:1"]],
    ids=" ".join,
)
def test_real_time_and_vector_subgroups_order_exactly_happened_before(subgroups: list[str]) -> None:
    pairs = 0
    for seed in range(25):
        judgement, names, numbers = run(loose(HCG, subgroups, seed, reply=0.0))
        assert ordered(names, numbers) == happened(judgement)
        pairs += len(happened(judgement))
    assert pairs > 5000


def test_a_largest_number_orders_more_than_happened_before() -> None:
    extra = 0
    for seed in range(5):
        made = loose(f"{printed.__name__}:LargestNumberOnly", LAYOUTS[0], seed, reply=0.0)
        judgement, names, numbers = run(made)
        assert judgement.verdict.clean
        extra += len(ordered(names, numbers) - happened(judgement))
    assert extra > 0


class WhatBasicWouldName(Hcg):
    """hcg, recording what `basic` would name at the same moment."""

    name: ClassVar[str] = "both"
    noted: ClassVar[dict[MessageId, set[tuple[int, int]]]] = {}

    def _find_preceding(self, sender: LocalRank, packet: SubgroupPacket) -> list[BitWindow]:
        here = {(k, number) for k, window in enumerate(self.forwarded) for number in window}
        self.noted.setdefault(MessageId(packet.origin, packet.seq), here)
        before = super()._find_preceding(sender, packet)
        assert {(k, number) for k, window in enumerate(before) for number in window} <= here
        return before


@pytest.mark.parametrize("subgroups", LAYOUTS[:5], ids=" ".join)
def test_hcg_orders_nothing_that_basic_would_not(subgroups: list[str]) -> None:
    saved = 0
    for seed in range(6):
        WhatBasicWouldName.noted.clear()
        _, names, numbers = run(loose(f"{__name__}:WhatBasicWouldName", subgroups, seed, reply=0.0))
        basic = {message: WhatBasicWouldName.noted[message] for message in names}
        mine, theirs = ordered(names, numbers), ordered(basic, numbers)
        assert mine <= theirs
        saved += len(theirs - mine)
    assert saved > 0


def test_where_nothing_waits_at_a_gateway_hcg_orders_less_than_basic() -> None:
    """With the same delay on all long links, `basic` holds nothing longer, so both runs are comparable."""
    for subgroups in LAYOUTS[:4]:
        runs = [
            ordered(*run(loose(name, subgroups, 3, reply=0.0, delay="40ms", faults=()))[1:])
            for name in (HCG, BASIC)
        ]
        assert runs[0] < runs[1]


@pytest.mark.parametrize(
    "broken",
    [
        printed.NoWait,
        printed.NoSkew,
        printed.MoreThanTheWait,
        printed.TwiceTheWait,
        printed.DatesBack,
        printed.SmallestStamp,
        printed.EqualNumbers,
        printed.NoOrderOfOrigins,
        printed.CountsWhatArrived,
        printed.NamesNothingBeyond,
        printed.PromisesAtOnce,
        printed.GatewayFirst,
    ],
)
def test_each_rule_as_printed_or_plausible_breaks(broken: type[Hcg]) -> None:
    found = final(f"{printed.__name__}:{broken.__name__}", 1500)
    assert found.violations > 0
    assert (found.raised, found.duplicates) == (0, 0)


def test_packets_at_the_same_instant_need_one_unit_more() -> None:
    late = [
        sum(
            run(loose(name, ["rt:5"], seed, delay="0", local_delay=None, skew=None))[
                0
            ].verdict.causal_violations
            for seed in range(5)
        )
        for name in (HCG, f"{printed.__name__}:NoMoreThanTheSum")
    ]
    assert late[0] == 0 < late[1]


def test_the_longest_path_costs_the_waits_of_both_subgroups() -> None:
    made = scenario(
        protocol=HCG, peers=4, seconds=1, rate=1, delay="50ms", local_delay="2ms", skew="0",
        layout={"subgroups": ["rt:2", "rt:2"]},
    )  # fmt: skip
    metrics = simulate(made).metrics
    assert metrics.latency_max_ns == 50 * MS + 2 * (2 * MS + 1)
    assert metrics.stuck == 0
