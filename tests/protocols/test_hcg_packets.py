"""Layouts and packets of subgroups: what is sent, what is refused, and what is just accepted."""

from __future__ import annotations

import msgspec
import pytest

from antecede.causality import BitWindow, MessageId
from antecede.errors import InputError
from antecede.protocols.base import Effects, LocalError, Packet, RemoteError, Send
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.hcg import GatewayPacket, Hcg, SubgroupLayout
from antecede.protocols.hcg.clocks import LinearClock, RealTimeClock, VectorClock
from antecede.protocols.hcg.packets import LinearAck, SubgroupPacket
from antecede.protocols.hcg.precedence import PrecedenceByTime
from antecede.protocols.limits import MAX_AHEAD
from antecede.sim.scenario import scenario

HCG = "antecede.protocols.hcg:Hcg"


def test_default_random_and_bounded_subgroup_layouts() -> None:
    assert SubgroupLayout.default(7) == SubgroupLayout(["rt:7"], longest_delay=0, skew=0)
    assert SubgroupLayout.default(8).subgroups == ["rt:4", "lt:2", "vt:2"]
    assert SubgroupLayout.default(11).subgroups == ["rt:7", "lt:2", "vt:2"]
    picks = iter([1, 0, 0, 2, 2, 1])
    made = SubgroupLayout.random(6, lambda _: next(picks))
    assert made.subgroups == ["rt:2", "vt:1", "lt:3"]
    assert made.sites(6) == [0, 0, 1, 2, 2, 2]
    assert made.with_bounds(7, 9) == SubgroupLayout(["rt:2", "vt:1", "lt:3"], 7, 9)
    offered: list[int] = []
    SubgroupLayout.random(4, lambda below: offered.append(below) or 0)  # type: ignore[func-returns-value]
    assert offered == [4, 3, 3, 3, 2, 3, 1, 3]
    members = Hcg.with_layout(6, made.with_bounds(7, 9))
    assert [member.clock.me for member in members] == [0, 1, 0, 0, 1, 2]
    assert members[1].clock == RealTimeClock(1, 2, wait=17, skew=9)
    assert members[1].precedence == PrecedenceByTime(17, [BitWindow(), BitWindow(), BitWindow()])
    assert members[5].precedence == PrecedenceByTime(1, [BitWindow(), BitWindow(), BitWindow()])
    assert [member.gateways for member in members] == [[0, 2, 3]] * 6
    assert [type(member.clock) for member in Hcg.group(8)] == [RealTimeClock] * 4 + [LinearClock] * 2 + [
        VectorClock
    ] * 2


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (SubgroupLayout(["rt:3"]), "subgroups has 3 members in all, not 4"),
        (SubgroupLayout(["xt:4"]), "subgroups: 'xt:4' is not like rt:3"),
        (SubgroupLayout(["rt:4", "vt:0"]), "subgroups: 'vt:0'"),
        (SubgroupLayout(["rt:+4"]), "subgroups: 'rt:"),
        (SubgroupLayout(["rt:²"]), "subgroups: 'rt:"),
        (SubgroupLayout(["rt"]), "subgroups: 'rt'"),
        (SubgroupLayout(["rt:4"], longest_delay=-1), "longest_delay"),
        (SubgroupLayout(["rt:4"], skew=-1), "skew"),
    ],
)
def test_invalid_layouts_are_refused(layout: SubgroupLayout, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        Hcg.with_layout(4, layout)


def test_a_scenario_with_an_invalid_layout_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="layout: subgroups has 3 members"):
        scenario(protocol=HCG, peers=4, layout={"subgroups": ["rt:3"]})


def test_packets_on_the_wire() -> None:
    sent = [SubgroupPacket(b"", 1, 2, 3, [4]), LinearAck(5, 6), GatewayPacket(b"", 1, 2, 3, [4], [(5, 6)])]
    wire = [[20, b"", 1, 2, 3, [4]], [21, 5, 6], [22, b"", 1, 2, 3, [4], [[5, 6]]]]
    assert [msgspec.msgpack.decode(Hcg.encode(packet)) for packet in sent] == wire
    assert [Hcg.decode(Hcg.encode(packet)) for packet in sent] == sent
    assert [packet.message_ids() for packet in sent] == [(MessageId(1, 2),), (), (MessageId(1, 2),)]


G, L = GatewayPacket, SubgroupPacket


@pytest.mark.parametrize(
    ("subgroups", "me", "link", "packet"),
    [
        (["rt:3"], 0, 1, DependencyPacket(b"", 1, 1, {})),
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
        (["rt:3"], 0, 1, L(b"", 1, MAX_AHEAD + 1, MAX_AHEAD + 1, [0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [0, 0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [101])),
        (["rt:3"], 0, 1, LinearAck(0, 1)),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [0])),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [1, 1])),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [MAX_AHEAD + 1])),
        (["lt:3"], 0, 1, LinearAck(0, 0)),
        (["lt:3"], 0, 1, LinearAck(0, MAX_AHEAD + 1)),
        (["lt:3"], 0, 1, LinearAck(-1, 1)),
        (["lt:3"], 0, 1, LinearAck(MAX_AHEAD + 1, 1)),
        (["lt:3"], 0, 3, LinearAck(0, 1)),
        (["lt:3"], 0, 0, LinearAck(0, 1)),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 2, 0])),
        (["vt:3"], 1, 0, L(b"", 0, 1, 0, [0, 0, 0])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [1, 1, 0])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1, -1])),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1, MAX_AHEAD + 1])),
        (["vt:3"], 0, 1, LinearAck(0, 1)),
        (["rt:1", "rt:2", "rt:1"], 2, 0, G(b"", 0, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 2, G(b"", 2, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 0, G(b"", 0, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 3, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 3, G(b"", 4, 1, 1, [0, 0, 0], [])),
        (["rt:2", "rt:2", "rt:1"], 2, 0, G(b"", -1, 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 0, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, MAX_AHEAD + 1, 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 0, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, MAX_AHEAD + 1, [0, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, -1, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 1, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [1, 0, 0], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, MAX_AHEAD + 1], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(3, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(-1, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(2, 0)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(1, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(0, 1)])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 1, 1, 1, [0, 0, 0], [(2, MAX_AHEAD + 1)])),
    ],
    ids=repr,
)  # fmt: skip
def test_packets_no_correct_peer_sends_are_refused(
    subgroups: list[str], me: int, link: int, packet: Packet
) -> None:
    size = sum(int(each.partition(":")[2]) for each in subgroups)
    member = Hcg.with_layout(size, SubgroupLayout(subgroups, skew=100))[me]
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(link, packet, 0)
    assert member.save() == before


@pytest.mark.parametrize(
    ("subgroups", "me", "link", "packet"),
    [
        (["rt:3"], 0, 1, L(b"", 1, MAX_AHEAD, MAX_AHEAD, [0])),
        (["rt:3"], 0, 1, L(b"", 1, 1, 1, [100])),
        (["rt:2", "rt:1"], 1, 0, L(b"", 2, 5, 1, [0])),
        (["rt:2", "rt:1"], 1, 0, L(b"", 0, 1, 5, [0])),
        (["rt:1", "rt:2"], 2, 1, L(b"", 0, 1, 1, [0])),
        (["lt:3"], 0, 1, L(b"", 1, 1, 1, [MAX_AHEAD])),
        (["lt:3"], 0, 1, LinearAck(MAX_AHEAD, MAX_AHEAD)),
        (["vt:3"], 0, 1, L(b"", 1, 1, 1, [0, 1, MAX_AHEAD])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 2, MAX_AHEAD, MAX_AHEAD, [0, 0, MAX_AHEAD], [])),
        (["rt:1", "rt:2", "rt:1"], 0, 1, G(b"", 2, 1, 2, [0, 1, 0], [(2, MAX_AHEAD), (1, 1)])),
        (["rt:1", "rt:2", "rt:1"], 3, 1, G(b"", 2, 1, 1, [0, 0, 0], [(0, 1)])),
    ],
    ids=repr,
)  # fmt: skip
def test_values_at_the_limit_are_accepted(subgroups: list[str], me: int, link: int, packet: Packet) -> None:
    size = sum(int(each.partition(":")[2]) for each in subgroups)
    member = Hcg.with_layout(size, SubgroupLayout(subgroups, skew=100))[me]
    before = member.save()
    member.receive(link, packet, 0)
    assert member.save() != before
    assert type(member).restore(member.save()) == member


def test_a_group_of_gateways_only() -> None:
    members = Hcg.with_layout(3, SubgroupLayout(["vt:1", "lt:1", "rt:1"], longest_delay=4))
    assert members[0].broadcast(b"", 0).sends == (Send((1, 2), GatewayPacket(b"", 0, 1, 1, [0, 0, 0], [])),)
    assert members[1].broadcast(b"", 0).sends == (Send((0, 2), GatewayPacket(b"", 1, 1, 1, [0, 0, 0], [])),)
    assert members[2].broadcast(b"", 0) == Effects((), 5, MessageId(2, 1))
    assert members[2].wake(5).sends == (Send((0, 1), GatewayPacket(b"", 2, 1, 1, [0, 0, 0], [])),)
