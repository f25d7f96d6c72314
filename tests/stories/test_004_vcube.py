"""Paper 004, section 4.4: the two worked examples of aggregation at node 4 of a cube of eight."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.protocols.base import Effects
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.vcube import Bundle, VcubeAgg


def node_4() -> VcubeAgg:
    return VcubeAgg.group(8)[4]


def forwarded(member: VcubeAgg, link: int, *messages: DependencyPacket) -> dict[int, list[str]]:
    """What a member forwards when messages arrive from `link`, by destination."""
    sent: dict[int, list[str]] = {}
    effects: Effects = member.receive(link, Bundle(list(messages)), 0)
    for send in effects.sends:
        (to,) = send.to
        sent.setdefault(to, []).append("+".join(f"{m.origin}:{m.seq}" for m in send.packet.message_ids()))
    while member.deliver(0):
        pass
    return sent


M2_1 = DependencyPacket(b"", 2, 1, {})
M2_2 = DependencyPacket(b"", 2, 2, {})
M2_3 = DependencyPacket(b"", 2, 3, {})


def test_first_example_aggregates_three_messages_of_node_2_and_one_of_node_0() -> None:
    """All have arrived but m2^2: only m2^1 goes to 5, and m0^1 to 6; when it arrives, the rest go
    together."""
    m0_1 = DependencyPacket(b"", 0, 1, {2: 3})
    node = node_4()
    assert forwarded(node, 6, M2_1) == {5: ["2:1"]}
    assert forwarded(node, 6, M2_3) == {}
    assert forwarded(node, 0, m0_1) == {6: ["0:1"]}
    assert node.received[2].base == 1
    assert list(node.delivered.values()) == [0, 0, 1, 0, 0, 0, 0, 0]
    (bundle,) = forwarded(node, 6, M2_2)[5]
    assert sorted(bundle.split("+")) == ["0:1", "2:2", "2:3"]
    assert node.received[2].base == 3
    assert list(node.delivered.values()) == [1, 0, 3, 0, 0, 0, 0, 0]
    assert node.forwarding == {}


def test_second_example_sends_nothing_to_node_6_twice() -> None:
    m0_1, m0_2 = DependencyPacket(b"", 0, 1, {2: 1}), DependencyPacket(b"", 0, 2, {})
    node = node_4()
    assert forwarded(node, 0, m0_1) == {6: ["0:1"]}
    assert forwarded(node, 0, m0_2) == {6: ["0:2"]}
    assert set(node.forwarding) == {MessageId(0, 1), MessageId(0, 2)}
    sent = forwarded(node, 6, M2_1)
    assert list(sent) == [5]
    assert sorted(sent[5][0].split("+")) == ["0:1", "0:2", "2:1"]
    assert node.forwarding == {}


def test_packets_are_split_at_the_mtu_and_a_large_message_travels_alone() -> None:
    node = node_4()
    large = DependencyPacket(bytes(2000), 0, 1, {2: 1})
    assert forwarded(node, 0, large) == {6: ["0:1"]}
    assert sorted(forwarded(node, 6, M2_1)[5]) == ["0:1", "2:1"]


def test_packets_are_filled_up_to_the_mtu() -> None:
    node = node_4()
    messages = [
        DependencyPacket(bytes(size), 0, seq, {}) for seq, size in enumerate((700, 700, 700, 1480, 10, 9), 1)
    ]
    parts = [[message.seq for message in part] for part in node._split(messages)]
    assert parts == [[1, 2], [3], [4], [5, 6]]
    first = DependencyPacket(bytes(700), 0, 1, {})
    framing = len(node.encode(DependencyPacket(bytes(700), 0, 2, {}))) - 700
    exact = DependencyPacket(bytes(node.mtu - len(node.encode(first)) - framing), 0, 2, {})
    assert len(node.encode(first)) + len(node.encode(exact)) == node.mtu
    assert node._split([first, exact]) == [[first, exact]]
