"""Subgroups and gateways: they order what happened before, and each rule as paper 003 has it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest

from antecede.errors import InputError
from antecede.order import Judgement, MessageId, Window, judge
from antecede.protocols.base import Delivery, Effects, LocalError, Packet, RemoteError, Send, Waiting
from antecede.protocols.flat import MOST_AHEAD, Dependent
from antecede.protocols.hcg import Basic, Global, Hcg, Need, Subgroups
from antecede.protocols.hcg_clocks import (
    REMEMBERED,
    Ack,
    Covered,
    Linear,
    Local,
    Place,
    RealTime,
    Recent,
    Vector,
)
from antecede.sim.scenario import Scenario, scenario, simulate
from antecede.sim.verify import Histories, Report, verify
from antecede.sim.world import World

HCG, BASIC = "antecede.protocols.hcg:Hcg", "antecede.protocols.hcg:Basic"
MS = 1_000_000


def final(protocol: str, runs: int) -> Report:
    found = Report(protocol)
    for found in verify(protocol, runs, seed=7):
        if found.failed:
            break
    return found


@pytest.mark.parametrize("protocol", [HCG, BASIC])
def test_random_subgroups_keep_causal_order(protocol: str) -> None:
    found = final(protocol, 250)
    assert found.passed, found.failures


LAYOUTS = [
    ["rt:3", "rt:4", "rt:2"],
    ["lt:3", "lt:4", "lt:2"],
    ["vt:3", "vt:4", "vt:2"],
    ["rt:3", "lt:3", "vt:3"],
    ["vt:1", "rt:1", "lt:1", "rt:2", "lt:2", "vt:2"],
    ["lt:9"],
]


def loose(protocol: str, subgroups: Sequence[str], seed: int, **more: Any) -> Scenario:
    """Links that overtake and repeat, and clocks that differ by five times the longest local delay."""
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
    """A run: its judgement, what each message names between gateways, and whose numbers those are."""
    members, histories = made.members(), Histories(made)
    world = made.world(members, [histories])
    names: dict[MessageId, set[tuple[int, int]]] = {}
    numbers: dict[tuple[int, int], MessageId] = {}
    sites = made.arrangement().sites(made.peers)  # type: ignore[union-attr]

    def watched(source: int, to: Sequence[int], packet: Packet) -> None:
        if isinstance(packet, Global):
            (message,) = packet.carries()
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
    """(earlier, later): what gateways put in order, by what packets name and by the order of each origin."""
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
        judgement, names, numbers = run(loose(protocol, subgroups, seed))
        assert judgement.verdict.clean, [judgement.explain(each) for each in judgement.violations()]
        assert judgement.verdict.messages > 30
        if len(subgroups) > 1:
            assert happened(judgement) <= ordered(names, numbers)


@pytest.mark.parametrize(
    "subgroups",
    [["rt:3", "rt:4", "rt:2"], ["vt:3", "vt:4", "vt:2"], ["rt:3", "vt:3", "rt:1", "vt:1"]],
    ids=" ".join,
)
def test_on_real_time_and_vectors_what_is_ordered_is_what_happened_before(subgroups: list[str]) -> None:
    pairs = 0
    for seed in range(25):
        judgement, names, numbers = run(loose(HCG, subgroups, seed, reply=0.0))
        assert ordered(names, numbers) == happened(judgement)
        pairs += len(happened(judgement))
    assert pairs > 5000


class LargestNumberOnly(Hcg):
    """V as a largest number for each subgroup, and no more."""

    name: ClassVar[str] = "largest number"

    def _number(self, packet: Local, before: list[Window]) -> Global:
        return super()._number(packet, [Window(window.last) for window in before])


def test_a_largest_number_orders_more_than_happened_before() -> None:
    extra = 0
    for seed in range(5):
        made = loose(f"{__name__}:LargestNumberOnly", LAYOUTS[0], seed, reply=0.0)
        judgement, names, numbers = run(made)
        assert judgement.verdict.clean
        extra += len(ordered(names, numbers) - happened(judgement))
    assert extra > 0


class WhatBasicWouldName(Hcg):
    """hcg, noting what `basic` would name at the same moment."""

    name: ClassVar[str] = "both"
    noted: ClassVar[dict[MessageId, set[tuple[int, int]]]] = {}

    def _before(self, sender: Place, packet: Local) -> list[Window]:
        here = {(k, number) for k, window in enumerate(self.taken) for number in window}
        self.noted.setdefault(MessageId(packet.origin, packet.seq), here)
        before = super()._before(sender, packet)
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


def test_where_nothing_waits_at_a_gateway_two_runs_compare() -> None:
    """With one delay for all long links, `basic` holds nothing longer, so both runs are the same."""
    for subgroups in LAYOUTS[:4]:
        runs = [
            ordered(*run(loose(name, subgroups, 3, reply=0.0, delay="40ms", faults=()))[1:])
            for name in (HCG, BASIC)
        ]
        assert runs[0] < runs[1]


class Times(NamedTuple):
    """What a member on real time goes by."""

    clock: RealTime
    past: Recent
    longest_delay: int


class Variant(Hcg):
    """A copy with one rule as the paper has it, or as one might think."""

    @classmethod
    def _member(
        cls, me: int, size: int, gateways: list[int], subgroup: tuple[str, int], layout: Subgroups
    ) -> Any:
        member = super()._member(me, size, gateways, subgroup, layout)
        if isinstance(member.clock, RealTime) and isinstance(member.past, Recent):
            cls.change(Times(member.clock, member.past, layout.longest_delay))
        return member

    @classmethod
    def change(cls, of: Times) -> None:
        pass


class NoWait(Variant):
    name: ClassVar[str] = "no wait before delivery in real time"

    @classmethod
    def change(cls, of: Times) -> None:
        of.clock.patience = 0


class NoSkew(Variant):
    name: ClassVar[str] = "a wait that forgets that clocks differ"

    @classmethod
    def change(cls, of: Times) -> None:
        of.clock.patience = of.past.gap = of.longest_delay + 1


class MoreThanTheWait(Variant):
    name: ClassVar[str] = "later by more than the wait, instead of as much"

    @classmethod
    def change(cls, of: Times) -> None:
        of.past.gap += 1


class TwiceTheWait(Variant):
    name: ClassVar[str] = "twice the wait, between different processes"

    @classmethod
    def change(cls, of: Times) -> None:
        of.past.gap *= 2


class DatesBack(Variant):
    name: ClassVar[str] = "forwarded messages dated back, the wait unchanged"

    def _send_here(self, payload: bytes, origin: int, seq: int, now: int) -> Send:
        if not isinstance(self.clock, RealTime) or origin == self.me:
            return super()._send_here(payload, origin, seq, now)
        (time,) = self.clock.stamp(now)
        packet = Local(payload, origin, seq, self.clock.sent, [time - self.clock.patience])
        self.clock.take(0, packet)
        return self._to_subgroup(packet)


class SmallestStamp(Hcg):
    name: ClassVar[str] = "the number of the message with the smallest stamp"

    def _number(self, packet: Local, before: list[Window]) -> Global:
        return super()._number(packet, [Window(1 if window.last else 0) for window in before])


class EqualNumbers(Hcg):
    """One more than the largest among those that precede; the numbers are only told apart in `levels`."""

    name: ClassVar[str] = "equal numbers for concurrent messages"
    levels: ClassVar[dict[tuple[int, int], int]] = {}

    def _number(self, packet: Local, before: list[Window]) -> Global:
        counts = [max((self.levels[k, n] for n in window), default=0) for k, window in enumerate(before)]
        made = super()._number(packet, before)
        here = self._subgroup(self.me)
        self.levels[here, made.number] = counts[here] + 1
        return msgspec.structs.replace(made, counts=counts, beyond=[])

    def _is_met(self, need: Need) -> bool:
        if need.kind:
            return super()._is_met(need)
        return max((self.levels[need.who, n] for n in self.taken[need.who]), default=0) >= need.number


class NoOrderOfOrigins(Hcg):
    name: ClassVar[str] = "two messages of one sender within the wait are concurrent"

    def _needs(self, packet: Global) -> list[Need]:
        return super()._needs(packet)[:-1]


class CountsWhatArrived(Hcg):
    name: ClassVar[str] = "counts what has arrived"

    def _is_met(self, need: Need) -> bool:
        return super()._is_met(need) or (need.kind == 0 and self.arrived[need.who].base >= need.number)


class NamesNothingBeyond(Hcg):
    name: ClassVar[str] = "names nothing beyond a gap"

    def _number(self, packet: Local, before: list[Window]) -> Global:
        return super()._number(packet, [Window(window.base) for window in before])


class PromisesAtOnce(Hcg):
    name: ClassVar[str] = "acknowledgements that hold before what was sent before them is here"

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        return super().receive(link, Ack(0, packet.time) if isinstance(packet, Ack) else packet, now)


class GatewayFirst(Hcg):
    name: ClassVar[str] = "a gateway whose application gets forwarded messages at once"
    early: set[MessageId] = set()  # noqa: RUF012 (msgspec copies it)

    def _take(self, source: int, packet: Global, now: int) -> Send:
        send = super()._take(source, packet, now)
        assert isinstance(send.packet, Local)
        self.ready.append(send.packet)
        return send

    def deliver(self, now: int) -> Delivery | None:
        while (delivery := super().deliver(now)) is not None and delivery.message in self.early:
            pass
        if delivery is not None:
            self.early.add(delivery.message)
        return delivery


@pytest.mark.parametrize(
    "broken",
    [
        NoWait,
        NoSkew,
        MoreThanTheWait,
        TwiceTheWait,
        DatesBack,
        SmallestStamp,
        EqualNumbers,
        NoOrderOfOrigins,
        CountsWhatArrived,
        NamesNothingBeyond,
        PromisesAtOnce,
        GatewayFirst,
    ],
)
def test_each_rule_as_printed_or_as_one_might_think_breaks(broken: type[Hcg]) -> None:
    found = final(f"{__name__}:{broken.__name__}", 1500)
    assert found.violations > 0
    assert (found.raised, found.duplicates) == (0, 0)


class NoMoreThanTheSum(Variant):
    name: ClassVar[str] = "a wait of exactly the longest delay and the difference of clocks"

    @classmethod
    def change(cls, of: Times) -> None:
        of.clock.patience -= 1
        of.past.gap -= 1


def test_packets_of_the_same_instant_need_one_unit_more() -> None:
    late = [
        sum(
            run(loose(name, ["rt:5"], seed, delay="0", local_delay=None, skew=None))[
                0
            ].verdict.causal_deliveries
            for seed in range(5)
        )
        for name in (HCG, f"{__name__}:NoMoreThanTheSum")
    ]
    assert late[0] == 0 < late[1]


def test_layouts() -> None:
    assert Subgroups.usual(7) == Subgroups(["rt:7"], longest_delay=0, skew=0)
    assert Subgroups.usual(8).subgroups == ["rt:4", "lt:2", "vt:2"]
    assert Subgroups.usual(11).subgroups == ["rt:7", "lt:2", "vt:2"]
    picks = iter([1, 0, 0, 2, 2, 1])
    made = Subgroups.random(6, lambda _: next(picks))
    assert made.subgroups == ["rt:2", "vt:1", "lt:3"]
    assert made.sites(6) == [0, 0, 1, 2, 2, 2]
    assert made.bounded(7, 9) == Subgroups(["rt:2", "vt:1", "lt:3"], 7, 9)
    offered: list[int] = []
    Subgroups.random(4, lambda below: offered.append(below) or 0)  # type: ignore[func-returns-value]
    assert offered == [4, 3, 3, 3, 2, 3, 1, 3]
    members = Hcg.arranged(6, made.bounded(7, 9))
    assert [member.clock.me for member in members] == [0, 1, 0, 0, 1, 2]
    assert members[1].clock == RealTime(1, 2, patience=17, skew=9)
    assert members[1].past == Recent(17, [Window(), Window(), Window()])
    assert members[5].past == Recent(1, [Window(), Window(), Window()])
    assert [member.gateways for member in members] == [[0, 2, 3]] * 6
    assert [type(member.clock) for member in Hcg.group(8)] == [RealTime] * 4 + [Linear] * 2 + [Vector] * 2


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Subgroups(["rt:3"]), "subgroups has 3 members in all, not 4"),
        (Subgroups(["xt:4"]), "subgroups: 'xt:4' is not like rt:3"),
        (Subgroups(["rt:4", "vt:0"]), "subgroups: 'vt:0'"),
        (Subgroups(["rt:+4"]), "subgroups: 'rt:"),
        (Subgroups(["rt:²"]), "subgroups: 'rt:"),
        (Subgroups(["rt"]), "subgroups: 'rt'"),
        (Subgroups(["rt:4"], longest_delay=-1), "longest_delay"),
        (Subgroups(["rt:4"], skew=-1), "skew"),
    ],
)
def test_layouts_that_cannot_be(layout: Subgroups, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        Hcg.arranged(4, layout)


def test_a_scenario_says_what_is_wrong_with_its_layout() -> None:
    with pytest.raises(InputError, match="layout: subgroups has 3 members"):
        scenario(protocol=HCG, peers=4, layout={"subgroups": ["rt:3"]})


def local(effects: Effects) -> Local:
    (packet,) = [send.packet for send in effects.sends if isinstance(send.packet, Local)]
    return packet


def between(effects: Effects) -> list[Global]:
    return [send.packet for send in effects.sends if isinstance(send.packet, Global)]


def ids(member: Hcg, now: int = 0) -> list[tuple[int, int]]:
    taken = []
    while (delivery := member.deliver(now)) is not None:
        taken.append(tuple(delivery.message))
    return taken  # type: ignore[return-value]


def rt(patience: int = 10, skew: int = 4) -> list[Hcg]:
    """rt:3 and vt:1."""
    return Hcg.arranged(4, Subgroups(["rt:3", "vt:1"], patience - skew - 1, skew))


def test_real_time_waits_and_sorts() -> None:
    _, one, two, _ = rt()
    late = Local(b"", 0, 1, 1, [7])
    assert two.receive(0, late, 8).wake_at == 17
    assert two.receive(0, late, 8).wake_at is None, "the alarm is set, and the packet here twice"
    assert two.receive(1, Local(b"", 1, 1, 1, [7]), 8).wake_at is None
    assert two.receive(1, Local(b"", 1, 3, 3, [9]), 9).wake_at is None
    assert two.receive(1, Local(b"", 1, 2, 2, [9]), 9).wake_at is None
    assert two.receive(0, Local(b"", 0, 2, 2, [4]), 10).wake_at == 14
    held = [Waiting(MessageId(*each), None) for each in [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]]
    assert sorted(two.waiting(), key=lambda wait: wait.message) == held
    assert ids(two, 13) == []
    assert two.wake(13) == Effects(), "one that rings too early"
    assert two.wake(14).wake_at == 17
    assert ids(two, 14) == [(0, 2)]
    assert two.wake(17).wake_at == 19
    assert ids(two, 17) == [(0, 1), (1, 1)]
    assert two.wake(19) == Effects()
    assert ids(two, 19) == [(1, 2), (1, 3)]
    assert one.broadcast(b"x", 30) == Effects(
        (Send((0, 2), Local(b"x", 1, 1, 1, [30])),), None, MessageId(1, 1)
    )


def test_a_real_clock_does_not_go_back() -> None:
    one = rt()[1]
    one.wake(50)
    assert local(one.broadcast(b"", 20)).stamp == [50]
    assert local(one.broadcast(b"", 60)).stamp == [60]
    assert local(one.broadcast(b"", 20)).stamp == [60]
    one.receive(2, Local(b"", 2, 1, 1, [64]), 20)
    assert one.wake(74) == Effects()
    assert one.wake(20) == Effects()
    assert ids(one) == [(2, 1)]


def test_a_gateway_on_real_time_numbers_in_turn_and_names_what_is_a_wait_older() -> None:
    gateway = rt()[0]
    assert gateway.broadcast(b"own", 5) == Effects(
        (Send((1, 2), Local(b"own", 0, 1, 1, [5])),), 15, MessageId(0, 1)
    )
    assert gateway.waiting() == [], "its own message is delivered, and only to be numbered"
    far = gateway.receive(3, Global(b"far", 3, 1, 1, [0, 0], []), 8)
    assert far.sends == (Send((1, 2), Local(b"far", 3, 1, 2, [8])),)
    assert gateway.waiting() == [Waiting(MessageId(3, 1), None)]
    gateway.receive(1, Local(b"", 1, 1, 1, [14]), 14)
    gateway.receive(1, Local(b"", 1, 2, 2, [15]), 15)
    gateway.receive(2, Local(b"", 2, 1, 1, [17]), 17)
    assert ids(gateway) == []
    assert between(gateway.wake(17)) == []
    gateway.receive(2, Local(b"", 2, 2, 2, [18]), 18)
    assert ids(gateway) == [(3, 1)]
    sent = gateway.wake(28)
    assert [send.to for send in sent.sends] == [(3,)] * 4
    assert between(sent) == [
        Global(b"", 1, 1, 2, [0, 0], []),
        Global(b"", 1, 2, 3, [1, 0], []),
        Global(b"", 2, 1, 4, [1, 0], []),
        Global(b"", 2, 2, 5, [1, 1], []),
    ]
    assert ids(gateway) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_basic_names_everything() -> None:
    gateway = Basic.arranged(4, Subgroups(["rt:3", "vt:1"], 5, 4))[0]
    gateway.receive(1, Local(b"", 1, 1, 1, [5]), 5)
    gateway.receive(2, Local(b"", 2, 1, 1, [5]), 5)
    gateway.receive(3, Global(b"", 3, 2, 2, [0, 0], []), 8)
    gateway.receive(3, Global(b"", 3, 1, 1, [0, 0], []), 9)
    assert [packet.counts for packet in between(gateway.wake(15))] == [[0, 2], [1, 2]]
    assert gateway.wake(19) == Effects()
    assert gateway.past == Recent(10, [Window(), Window()]), "basic remembers nothing"


def test_what_a_gateway_remembers_by_times_is_what_lies_within_a_wait() -> None:
    gateway = rt()[0]
    for number in range(1, 101):
        gateway.receive(3, Global(b"", 3, number, number, [0, 0], []), 7 * number)
        gateway.wake(7 * number)
        assert isinstance(gateway.past, Recent)
        assert len(gateway.past.entries) <= 2
        ids(gateway)
    assert gateway.turns == [(1, 99), (1, 100)]
    assert gateway.last == {3: 100}
    assert gateway.holdback.held == {}


def lt() -> list[Hcg]:
    """lt:3 and vt:1."""
    return Hcg.arranged(4, Subgroups(["lt:3", "vt:1"]))


def test_linear_time_waits_for_everybodys_promise() -> None:
    _, one, two, _ = lt()
    assert local(two.broadcast(b"", 0)) == Local(b"", 2, 1, 1, [1])
    first = one.receive(2, Local(b"", 2, 1, 1, [1]), 0)
    assert first == Effects((Send((0, 2), Ack(0, 1)),))
    assert one.receive(2, Local(b"", 2, 1, 1, [1]), 0) == Effects()
    assert ids(one) == []
    assert one.waiting() == [Waiting(MessageId(2, 1), None)]
    one.receive(0, Ack(1, 5), 0)
    assert ids(one) == [], "a promise that holds after a packet that is not here"
    assert local(one.broadcast(b"", 0)).stamp == [2], "promises of others do not move one's own clock"
    assert one.receive(0, Local(b"", 0, 1, 1, [2]), 0) == Effects(), "one has promised as much"
    assert ids(one) == [(2, 1)]
    one.receive(2, Ack(1, 1), 0)
    assert ids(one) == []
    one.receive(2, Ack(1, 4), 0)
    one.receive(2, Ack(1, 3), 0)
    assert ids(one) == [(0, 1)]
    assert isinstance(one.clock, Linear)
    assert one.clock.promised == [5, 2, 4]
    assert one.clock.later == [[], [], []]


def test_linear_time_sorts_by_stamp_sender_and_number() -> None:
    one = lt()[1]
    one.receive(2, Local(b"", 2, 2, 2, [4]), 0)
    one.receive(2, Ack(2, 9), 0)
    one.receive(0, Local(b"", 0, 1, 1, [4]), 0)
    one.receive(0, Ack(1, 9), 0)
    assert ids(one) == [], "what comes before it is missing"
    one.receive(2, Local(b"", 2, 1, 1, [3]), 0)
    assert ids(one) == [(2, 1), (0, 1), (2, 2)]


def test_a_gateway_on_linear_time_names_what_is_stamped_less() -> None:
    gateway = lt()[0]
    sent = gateway.receive(3, Global(b"", 3, 1, 1, [0, 0], []), 0)
    assert sent.sends == (Send((1, 2), Local(b"", 3, 1, 1, [1])),)
    gateway.receive(1, Local(b"", 1, 1, 1, [1]), 0)
    gateway.receive(2, Local(b"", 2, 1, 1, [1]), 0)
    assert ids(gateway) == [(3, 1), (1, 1), (2, 1)]
    gateway.receive(1, Local(b"", 1, 2, 2, [2]), 0)
    last = gateway.receive(2, Ack(1, 2), 0)
    assert between(last) == [Global(b"", 1, 2, 3, [2, 1], [])]


def vt() -> list[Hcg]:
    """vt:3 and rt:1."""
    return Hcg.arranged(4, Subgroups(["vt:3", "rt:1"]))


def test_vectors_wait_for_what_they_count() -> None:
    gateway, one, two, _ = vt()
    first = local(gateway.broadcast(b"", 0))
    one.receive(0, first, 0)
    assert ids(one) == [(0, 1)]
    answer = local(one.broadcast(b"", 0))
    assert answer == Local(b"", 1, 1, 1, [1, 1, 0])
    more = local(one.broadcast(b"", 0))
    two.receive(1, more, 0)
    assert two.waiting() == [Waiting(MessageId(1, 2), MessageId(1, 1))]
    two.receive(1, answer, 0)
    two.receive(1, answer, 0)
    assert two.waiting() == [
        Waiting(MessageId(1, 2), MessageId(1, 1)),
        Waiting(MessageId(1, 1), None),
    ], "numbers of a gateway do not name a message"
    two.receive(0, first, 0)
    assert ids(two) == [(0, 1), (1, 1), (1, 2)]
    assert local(two.broadcast(b"", 0)).stamp == [1, 2, 1]
    gateway.receive(3, Global(b"", 3, 1, 1, [0, 0], []), 0)
    assert gateway.waiting() == []
    assert ids(gateway) == [(3, 1)]
    assert gateway.broadcast(b"", 0).sends[0].packet == Local(b"", 0, 2, 3, [3, 0, 0])


def test_a_gateways_packet_does_not_say_which_cause_it_waits_for() -> None:
    one = vt()[1]
    one.receive(0, Local(b"", 3, 1, 1, [1, 0, 1]), 0)
    assert one.waiting() == [Waiting(MessageId(3, 1), None)]
    one.receive(2, Local(b"", 2, 1, 1, [0, 0, 1]), 0)
    assert ids(one) == [(2, 1), (3, 1)]


def test_a_gateway_on_vectors_names_what_a_vector_counts() -> None:
    gateway = vt()[0]
    for number in (1, 2):
        gateway.receive(3, Global(b"", 3, number, number, [0, 0], []), 0)
    one = gateway.receive(1, Local(b"", 1, 1, 1, [1, 1, 0]), 0)
    two = gateway.receive(2, Local(b"", 2, 1, 1, [2, 0, 1]), 0)
    more = gateway.receive(1, Local(b"", 1, 2, 2, [1, 2, 1]), 0)
    assert between(one) == [Global(b"", 1, 1, 1, [0, 1], [])]
    assert between(two) == [Global(b"", 2, 1, 2, [0, 2], [])]
    assert between(more) == [Global(b"", 1, 2, 3, [2, 1], [])], "what it counts, not what that counts"
    own = gateway.broadcast(b"", 0)
    assert between(own) == [Global(b"", 0, 1, 4, [3, 2], [])]


def test_what_lies_beyond_a_gap_is_named_one_by_one() -> None:
    gateway = Hcg.arranged(4, Subgroups(["vt:1", "vt:2", "vt:1"]))[0]
    gateway.receive(1, Global(b"", 2, 1, 2, [0, 0, 0], []), 0)
    gateway.receive(1, Global(b"", 2, 2, 4, [0, 0, 0], [(1, 2)]), 0)
    assert ids(gateway) == [(2, 1), (2, 2)]
    (packet,) = between(gateway.broadcast(b"", 0))
    assert packet == Global(b"", 0, 1, 1, [0, 0, 0], [(1, 2), (1, 4)])
    assert gateway.paper_bytes(packet) == 4 * 6
    gateway.receive(1, Global(b"", 1, 1, 1, [0, 0, 0], []), 0)
    assert between(gateway.broadcast(b"", 0)) == [Global(b"", 0, 2, 2, [1, 2, 0], [(1, 4)])]


def test_a_gateway_waits_for_all_that_a_message_names() -> None:
    gateway = Hcg.arranged(4, Subgroups(["vt:1", "vt:2", "vt:1"]))[0]
    gateway.broadcast(b"", 0)
    counted = Global(b"", 3, 1, 1, [1, 2, 0], [])
    single = Global(b"", 3, 2, 2, [0, 0, 0], [(1, 4)])
    gateway.receive(3, counted, 0)
    gateway.receive(3, single, 0)
    gateway.receive(3, single, 0)
    assert gateway.waiting() == [
        Waiting(MessageId(3, 1), None),
        Waiting(MessageId(3, 2), MessageId(3, 1)),
    ]
    gateway.receive(1, Global(b"", 1, 1, 2, [0, 0, 0], []), 0)
    assert ids(gateway) == [(1, 1)]
    gateway.receive(1, Global(b"", 2, 1, 1, [0, 0, 0], []), 0)
    assert ids(gateway) == [(2, 1), (3, 1)]
    assert gateway.waiting() == [Waiting(MessageId(3, 2), None)]
    gateway.receive(1, Global(b"", 2, 2, 4, [0, 0, 0], []), 0)
    assert ids(gateway) == [(2, 2), (3, 2)]
    assert gateway.receive(3, counted, 0) == Effects()
    assert gateway.waiting() == []


def test_a_log_by_vectors_is_bounded_and_what_it_drops_precedes_everything() -> None:
    past = Covered.of(3, 2)
    for number in range(1, REMEMBERED):
        packet = Local(b"", 9, number, number, [number, 0, 0])
        assert past.reach(0, packet)[1] == Window(number - 1)
        past.remember(0, packet, 1, number)
    assert past.reach(1, Local(b"", 1, 1, 1, [7, 1, 0])) == [Window(), Window(7)]
    assert past.before[2] == [Window(), Window()]
    past.remember(0, Local(b"", 9, REMEMBERED, REMEMBERED, [REMEMBERED, 0, 0]), 1, REMEMBERED)
    half = REMEMBERED // 2
    assert [len(log) for log in past.log] == [half, 0, 0]
    assert past.reach(2, Local(b"", 2, 1, 1, [3, 0, 1])) == [Window(), Window(half)]
    assert past.reach(1, Local(b"", 1, 2, 2, [half + 4, 2, 0])) == [Window(), Window(half + 4)]
    assert past.walked[1] == [half + 4, 0, 0]
    assert past.reach(1, Local(b"", 1, 3, 3, [half + 2, 3, 0])) == [Window(), Window(half + 4)]
    assert past.walked[1] == [half + 4, 0, 0]
    for number in range(REMEMBERED + 1, REMEMBERED + half + 1):
        past.remember(0, Local(b"", 9, number, number, [number, 0, 0]), 1, number)
    assert past.dropped == [2 * half, 0, 0]
    assert past.reach(2, Local(b"", 2, 2, 2, [0, 0, 2])) == [Window(), Window(2 * half)]


def test_packets_on_the_wire() -> None:
    sent = [Local(b"", 1, 2, 3, [4]), Ack(5, 6), Global(b"", 1, 2, 3, [4], [(5, 6)])]
    wire = [[20, b"", 1, 2, 3, [4]], [21, 5, 6], [22, b"", 1, 2, 3, [4], [[5, 6]]]]
    assert [msgspec.msgpack.decode(Hcg.encode(packet)) for packet in sent] == wire
    assert [Hcg.decode(Hcg.encode(packet)) for packet in sent] == sent
    assert [packet.carries() for packet in sent] == [(MessageId(1, 2),), (), (MessageId(1, 2),)]


def test_bytes_as_the_paper_counts() -> None:
    member = vt()[1]
    assert member.paper_bytes(Local(b"", 1, 1, 1, [9])) == 4
    assert member.paper_bytes(Local(b"", 1, 1, 1, [1, 0, 0])) == 12
    assert member.paper_bytes(Ack(1, 1)) == 4


G, L = Global, Local


@pytest.mark.parametrize(
    ("subgroups", "me", "link", "packet"),
    [
        (["rt:3"], 0, 1, Dependent(b"", 1, 1, {})),
        (["rt:3"], 0, 3, L(b"", 3, 1, 1, [0])),
        (["rt:3", "rt:1"], 0, 3, L(b"", 3, 1, 1, [0])),
        (["rt:1", "rt:3"], 1, 0, L(b"", 0, 1, 1, [0])),
        (["rt:3"], 0, 0, L(b"", 0, 1, 1, [0])),
        (["rt:3"], 0, -1, L(b"", 2, 1, 1, [0])),
        (["rt:3"], 0, 1, L(b"", 2, 1, 1, [0])),
        (["rt:3", "rt:1"], 0, 1, L(b"", 3, 1, 1, [0])),
        (["rt:3", "rt:1"], 1, 0, L(b"", 2, 1, 1, [0])),
        (["rt:3", "rt:1"], 1, 0, L(b"", 4, 1, 1, [0])),
        (["rt:3", "rt:1"], 1, 0, L(b"", -1, 1, 1, [0])),
        (["rt:3", "rt:1"], 1, 0, L(b"", 3, 0, 1, [0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 2, [0])),
        (["rt:3"], 0, 1, L(b"", 1, 0, 0, [0])),
        (["rt:3"], 1, 0, L(b"", 0, 1, 0, [0])),
        (["rt:3"], 0, 1, L(b"", 1, MOST_AHEAD + 1, MOST_AHEAD + 1, [0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [0, 0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [101])),
        (["rt:3"], 0, 1, Ack(0, 1)),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [0])),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [1, 1])),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [MOST_AHEAD + 1])),
        (["lt:3"], 0, 1, Ack(0, 0)),
        (["lt:3"], 0, 1, Ack(0, MOST_AHEAD + 1)),
        (["lt:3"], 0, 1, Ack(-1, 1)),
        (["lt:3"], 0, 1, Ack(MOST_AHEAD + 1, 1)),
        (["lt:3"], 0, 3, Ack(0, 1)),
        (["lt:3"], 0, 0, Ack(0, 1)),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 2, 0])),
        (["vt:3"], 1, 0, L(b"", 0, 1, 0, [0, 0, 0])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [1, 1, 0])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1, -1])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1, MOST_AHEAD + 1])),
        (["vt:3"], 0, 1, Ack(0, 1)),
        (["rt:1", "rt:2", "rt:1"], 2, 0, G(b"", 0, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 2, G(b"", 2, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 0, G(b"", 0, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 3, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 3, G(b"", 4, 1, 1, [0, 0, 0], [])),
        (["rt:2", "rt:2", "rt:1"], 2, 0, G(b"", -1, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 0, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, MOST_AHEAD + 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 0, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, MOST_AHEAD + 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, -1, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 1, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [1, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, MOST_AHEAD + 1], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(3, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(-1, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(2, 0)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(1, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(0, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(2, MOST_AHEAD + 1)])),
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_correct_peer_sends_is_refused(
    subgroups: list[str], me: int, link: int, packet: Packet
) -> None:
    size = sum(int(each.partition(":")[2]) for each in subgroups)
    member = Hcg.arranged(size, Subgroups(subgroups, skew=100))[me]
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(link, packet, 0)
    assert member.save() == before


@pytest.mark.parametrize(
    ("subgroups", "me", "link", "packet"),
    [
        (["rt:3"], 0, 1, L(b"", 1, MOST_AHEAD, MOST_AHEAD, [0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [100])),
        (["rt:2", "rt:1"], 1, 0, L(b"", 2, 5, 1, [0])),
        (["rt:2", "rt:1"], 1, 0, L(b"", 0, 1, 5, [0])),
        (["rt:1", "rt:2"], 2, 1, L(b"", 0, 1, 1, [0])),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [MOST_AHEAD])),
        (["lt:3"], 0, 1, Ack(MOST_AHEAD, MOST_AHEAD)),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1, MOST_AHEAD])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 2, MOST_AHEAD, MOST_AHEAD, [0, 0, MOST_AHEAD], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 2, 1, 2, [0, 1, 0], [(2, MOST_AHEAD), (1, 1)])),
        (["rt:1", "rt:2", "rt:1"], 3, 1, G(b"", 2, 1, 1, [0, 0, 0], [(0, 1)])),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_just_possible_is_taken(subgroups: list[str], me: int, link: int, packet: Packet) -> None:
    size = sum(int(each.partition(":")[2]) for each in subgroups)
    member = Hcg.arranged(size, Subgroups(subgroups, skew=100))[me]
    before = member.save()
    member.receive(link, packet, 0)
    assert member.save() != before
    assert type(member).restore(member.save()) == member


def test_a_group_of_several_gateways_and_nobody_else() -> None:
    members = Hcg.arranged(3, Subgroups(["vt:1", "lt:1", "rt:1"], longest_delay=4))
    assert members[0].broadcast(b"", 0).sends == (Send((1, 2), Global(b"", 0, 1, 1, [0, 0, 0], [])),)
    assert members[1].broadcast(b"", 0).sends == (Send((0, 2), Global(b"", 1, 1, 1, [0, 0, 0], [])),)
    assert members[2].broadcast(b"", 0) == Effects((), 5, MessageId(2, 1))
    assert members[2].wake(5).sends == (Send((0, 1), Global(b"", 2, 1, 1, [0, 0, 0], [])),)


def test_the_whole_way_costs_the_waits_of_both_subgroups() -> None:
    made = scenario(
        protocol=HCG, peers=4, seconds=1, rate=1, delay="50ms", local_delay="2ms", skew="0",
        layout={"subgroups": ["rt:2", "rt:2"]},
    )  # fmt: skip
    metrics = simulate(made)
    assert metrics.latency_max_ns == 50 * MS + 2 * (2 * MS + 1)
    assert metrics.stuck == 0
