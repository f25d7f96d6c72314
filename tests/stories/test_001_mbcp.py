"""Paper 001, section 4.2: the worked example of MBCP, value by value."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.protocols.base import Packet, Waiting
from antecede.protocols.mbcp import Mbcp

P1, P2, P3, P4, P5 = range(5)


def group() -> list[Mbcp]:
    return [Mbcp(me, 5) for me in range(5)]


def sent(member: Mbcp) -> Packet:
    return member.broadcast(b"", 0).sends[0].packet


def receive(member: Mbcp, packet: Packet) -> list[MessageId]:
    member.receive(0, packet, 0)
    delivered = []
    while delivery := member.deliver(0):
        delivered.append(delivery.message)
    return delivered


def test_section_4_2_two_concurrent_messages_and_one_after_both() -> None:
    """Figure 4c: m1 from p1; m2 from p3 and m3 from p4, concurrent, after it; then m4 from p2."""
    members = group()
    m1 = sent(members[P1])
    for peer in (P2, P3, P4, P5):
        receive(members[peer], m1)
    m2, m3 = sent(members[P3]), sent(members[P4])
    for peer in (P2, P5):
        receive(members[peer], m2)
        receive(members[peer], m3)

    assert members[P5].causes == {P3: 1, P4: 1}
    assert list(members[P5].delivered.values()) == [1, 0, 1, 1, 0]

    m4 = sent(members[P2])
    assert members[P2].delivered[P2] == 1
    assert m4.causes == {P3: 1, P4: 1}  # type: ignore[attr-defined]
    assert members[P2].causes == {}

    assert receive(members[P5], m4) == [MessageId(P2, 1)]
    assert list(members[P5].delivered.values()) == [1, 1, 1, 1, 0]
    assert members[P5].causes == {P2: 1}


def test_a_held_message_names_the_overtaken_cause() -> None:
    members = group()
    m1 = sent(members[P1])
    receive(members[P2], m1)
    m2 = sent(members[P2])
    assert receive(members[P3], m2) == []
    assert members[P3].waiting() == [Waiting(MessageId(P2, 1), MessageId(P1, 1))]
    assert receive(members[P3], m1) == [MessageId(P1, 1), MessageId(P2, 1)]
    assert members[P3].waiting() == []


def test_a_reply_depends_only_on_delivered_messages() -> None:
    """Two messages are ready; only the one that was delivered is a cause of the reply."""
    members = group()
    for packet in (sent(members[P1]), sent(members[P2])):
        members[P3].receive(0, packet, 0)
    assert members[P3].deliver(0) is not None
    assert sent(members[P3]).causes == {P1: 1}  # type: ignore[attr-defined]
