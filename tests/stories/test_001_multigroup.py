"""Paper 001, section 3.3.3: two messages to one channel, one to a second, one to a third."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.protocols.multigroup import GroupPacket, Multigroup

P1, P2, P3, P4, P5 = range(5)
CHANNELS = {"ch1": (P1, P2, P4, P5), "ch2": (P2, P3), "ch3": (P3, P4)}


def sent(member: Multigroup, channel: str) -> GroupPacket:
    effects = member.broadcast(b"", 0, channel)
    packet = effects.sends[0].packet
    assert isinstance(packet, GroupPacket)
    return packet


def receive(member: Multigroup, packet: GroupPacket) -> list[MessageId]:
    member.receive(packet.origin, packet, 0)
    delivered = []
    while delivery := member.deliver(0):
        delivered.append(delivery.message)
    return delivered


def named(packet: GroupPacket) -> set[MessageId]:
    return {MessageId(sender, seq) for sender, _, seq in packet.causes}


def test_section_3_3_3_m4_and_m5_name_and_await_the_printed_messages() -> None:
    p = Multigroup.with_groups(CHANNELS, 5)
    m1 = sent(p[P5], "ch1")
    for peer in (P1, P4):
        receive(p[peer], m1)
    m2, m3 = sent(p[P1], "ch1"), sent(p[P5], "ch1")
    for packet in (m2, m3):
        receive(p[P4], packet)
    m4 = sent(p[P4], "ch3")
    assert named(m4) == {MessageId(P1, 1), MessageId(P5, 2)}

    assert receive(p[P3], m4) == [MessageId(P4, 1)], "p3 is not in ch1 and does not wait for it"
    m5 = sent(p[P3], "ch2")
    assert named(m5) == {MessageId(P1, 1), MessageId(P5, 2), MessageId(P4, 1)}

    assert receive(p[P2], m5) == []
    assert receive(p[P2], m3) == []
    assert receive(p[P2], m2) == []
    assert {wait.cause for wait in p[P2].waiting()} >= {MessageId(P5, 1)}
    order = receive(p[P2], m1)
    assert order[0] == MessageId(P5, 1)
    assert order[-1] == MessageId(P3, 1)
    assert set(order[1:3]) == {MessageId(P1, 1), MessageId(P5, 2)}
