"""The three clocks of subgroups, packet by packet: who waits for what, and what gateways name."""

from __future__ import annotations

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import Effects, Send, Waiting
from antecede.protocols.hcg import Basic, GatewayPacket, Hcg, SubgroupLayout
from antecede.protocols.hcg.clocks import LinearClock
from antecede.protocols.hcg.packets import LinearAck, SubgroupPacket
from antecede.protocols.hcg.precedence import PrecedenceByTime, PrecedenceByVector
from antecede.protocols.limits import MAX_REMEMBERED


def local(effects: Effects) -> SubgroupPacket:
    (packet,) = [send.packet for send in effects.sends if isinstance(send.packet, SubgroupPacket)]
    return packet


def between(effects: Effects) -> list[GatewayPacket]:
    return [send.packet for send in effects.sends if isinstance(send.packet, GatewayPacket)]


def ids(member: Hcg, now: int = 0) -> list[tuple[int, int]]:
    delivered = []
    while (delivery := member.deliver(now)) is not None:
        delivered.append(tuple(delivery.message))
    return delivered  # type: ignore[return-value]


def rt(wait: int = 10, skew: int = 4) -> list[Hcg]:
    """rt:3 and vt:1."""
    return Hcg.with_layout(4, SubgroupLayout(["rt:3", "vt:1"], wait - skew - 1, skew))


def test_real_time_subgroups_wait_and_sort_by_time() -> None:
    _, one, two, _ = rt()
    late = SubgroupPacket(b"", 0, 1, 1, [7])
    assert two.receive(0, late, 8).wake_at == 17
    assert two.receive(0, late, 8).wake_at is None, "the alarm is set, and the packet here twice"
    assert two.receive(1, SubgroupPacket(b"", 1, 1, 1, [7]), 8).wake_at is None
    assert two.receive(1, SubgroupPacket(b"", 1, 3, 3, [9]), 9).wake_at is None
    assert two.receive(1, SubgroupPacket(b"", 1, 2, 2, [9]), 9).wake_at is None
    assert two.receive(0, SubgroupPacket(b"", 0, 2, 2, [4]), 10).wake_at == 14
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
        (Send((0, 2), SubgroupPacket(b"x", 1, 1, 1, [30])),), None, MessageId(1, 1)
    )


def test_a_real_clock_does_not_go_back() -> None:
    one = rt()[1]
    one.wake(50)
    assert local(one.broadcast(b"", 20)).stamp == [50]
    assert local(one.broadcast(b"", 60)).stamp == [60]
    assert local(one.broadcast(b"", 20)).stamp == [60]
    one.receive(2, SubgroupPacket(b"", 2, 1, 1, [64]), 20)
    assert one.wake(74) == Effects()
    assert one.wake(20) == Effects()
    assert ids(one) == [(2, 1)]


def test_a_real_time_gateway_numbers_in_order_and_names_messages_older_by_the_wait() -> None:
    gateway = rt()[0]
    assert gateway.broadcast(b"own", 5) == Effects(
        (Send((1, 2), SubgroupPacket(b"own", 0, 1, 1, [5])),), 15, MessageId(0, 1)
    )
    assert gateway.waiting() == [], "its own message is delivered, and only to be numbered"
    far = gateway.receive(3, GatewayPacket(b"far", 3, 1, 1, [0, 0], []), 8)
    assert far.sends == (Send((1, 2), SubgroupPacket(b"far", 3, 1, 2, [8])),)
    assert gateway.waiting() == [Waiting(MessageId(3, 1), None)]
    gateway.receive(1, SubgroupPacket(b"", 1, 1, 1, [14]), 14)
    gateway.receive(1, SubgroupPacket(b"", 1, 2, 2, [15]), 15)
    gateway.receive(2, SubgroupPacket(b"", 2, 1, 1, [17]), 17)
    assert ids(gateway) == []
    assert between(gateway.wake(17)) == []
    gateway.receive(2, SubgroupPacket(b"", 2, 2, 2, [18]), 18)
    assert ids(gateway) == [(3, 1)]
    sent = gateway.wake(28)
    assert [send.to for send in sent.sends] == [(3,)] * 4
    assert between(sent) == [
        GatewayPacket(b"", 1, 1, 2, [0, 0], []),
        GatewayPacket(b"", 1, 2, 3, [1, 0], []),
        GatewayPacket(b"", 2, 1, 4, [1, 0], []),
        GatewayPacket(b"", 2, 2, 5, [1, 1], []),
    ]
    assert ids(gateway) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_basic_names_everything() -> None:
    gateway = Basic.with_layout(4, SubgroupLayout(["rt:3", "vt:1"], 5, 4))[0]
    gateway.receive(1, SubgroupPacket(b"", 1, 1, 1, [5]), 5)
    gateway.receive(2, SubgroupPacket(b"", 2, 1, 1, [5]), 5)
    gateway.receive(3, GatewayPacket(b"", 3, 2, 2, [0, 0], []), 8)
    gateway.receive(3, GatewayPacket(b"", 3, 1, 1, [0, 0], []), 9)
    assert [packet.counts for packet in between(gateway.wake(15))] == [[0, 2], [1, 2]]
    assert gateway.wake(19) == Effects()
    assert gateway.precedence == PrecedenceByTime(10, [BitWindow(), BitWindow()]), "basic remembers nothing"


def test_a_gateway_on_real_time_remembers_only_messages_within_one_wait() -> None:
    gateway = rt()[0]
    for number in range(1, 101):
        gateway.receive(3, GatewayPacket(b"", 3, number, number, [0, 0], []), 7 * number)
        gateway.wake(7 * number)
        assert isinstance(gateway.precedence, PrecedenceByTime)
        assert len(gateway.precedence.recent) <= 2
        ids(gateway)
    assert gateway.unordered == [(1, 99), (1, 100)]
    assert gateway.last_forwarded == {3: 100}
    assert gateway.holdback.held == {}


def lt() -> list[Hcg]:
    """lt:3 and vt:1."""
    return Hcg.with_layout(4, SubgroupLayout(["lt:3", "vt:1"]))


def test_linear_time_waits_for_a_promise_of_every_member() -> None:
    _, one, two, _ = lt()
    assert local(two.broadcast(b"", 0)) == SubgroupPacket(b"", 2, 1, 1, [1])
    first = one.receive(2, SubgroupPacket(b"", 2, 1, 1, [1]), 0)
    assert first == Effects((Send((0, 2), LinearAck(0, 1)),))
    assert one.receive(2, SubgroupPacket(b"", 2, 1, 1, [1]), 0) == Effects()
    assert ids(one) == []
    assert one.waiting() == [Waiting(MessageId(2, 1), None)]
    one.receive(0, LinearAck(1, 5), 0)
    assert ids(one) == [], "a promise that holds after a packet that is not here"
    assert local(one.broadcast(b"", 0)).stamp == [2], "promises of others do not move one's own clock"
    assert one.receive(0, SubgroupPacket(b"", 0, 1, 1, [2]), 0) == Effects(), "one has promised as much"
    assert ids(one) == [(2, 1)]
    one.receive(2, LinearAck(1, 1), 0)
    assert ids(one) == []
    one.receive(2, LinearAck(1, 4), 0)
    one.receive(2, LinearAck(1, 3), 0)
    assert ids(one) == [(0, 1)]
    assert isinstance(one.clock, LinearClock)
    assert one.clock.promised == [5, 2, 4]
    assert one.clock.pending == [[], [], []]


def test_linear_time_sorts_by_stamp_sender_and_number() -> None:
    one = lt()[1]
    one.receive(2, SubgroupPacket(b"", 2, 2, 2, [4]), 0)
    one.receive(2, LinearAck(2, 9), 0)
    one.receive(0, SubgroupPacket(b"", 0, 1, 1, [4]), 0)
    one.receive(0, LinearAck(1, 9), 0)
    assert ids(one) == [], "its sender's previous packet is missing"
    one.receive(2, SubgroupPacket(b"", 2, 1, 1, [3]), 0)
    assert ids(one) == [(2, 1), (0, 1), (2, 2)]


def test_a_linear_time_gateway_names_messages_with_smaller_stamps() -> None:
    gateway = lt()[0]
    sent = gateway.receive(3, GatewayPacket(b"", 3, 1, 1, [0, 0], []), 0)
    assert sent.sends == (Send((1, 2), SubgroupPacket(b"", 3, 1, 1, [1])),)
    gateway.receive(1, SubgroupPacket(b"", 1, 1, 1, [1]), 0)
    gateway.receive(2, SubgroupPacket(b"", 2, 1, 1, [1]), 0)
    assert ids(gateway) == [(3, 1), (1, 1), (2, 1)]
    gateway.receive(1, SubgroupPacket(b"", 1, 2, 2, [2]), 0)
    last = gateway.receive(2, LinearAck(1, 2), 0)
    assert between(last) == [GatewayPacket(b"", 1, 2, 3, [2, 1], [])]


def vt() -> list[Hcg]:
    """vt:3 and rt:1."""
    return Hcg.with_layout(4, SubgroupLayout(["vt:3", "rt:1"]))


def test_vector_time_holds_messages_until_their_causes_are_delivered() -> None:
    gateway, one, two, _ = vt()
    first = local(gateway.broadcast(b"", 0))
    one.receive(0, first, 0)
    assert ids(one) == [(0, 1)]
    answer = local(one.broadcast(b"", 0))
    assert answer == SubgroupPacket(b"", 1, 1, 1, [1, 1, 0])
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
    gateway.receive(3, GatewayPacket(b"", 3, 1, 1, [0, 0], []), 0)
    assert gateway.waiting() == []
    assert ids(gateway) == [(3, 1)]
    assert gateway.broadcast(b"", 0).sends[0].packet == SubgroupPacket(b"", 0, 2, 3, [3, 0, 0])


def test_the_cause_awaited_by_a_gateway_packet_is_reported_as_unknown() -> None:
    one = vt()[1]
    one.receive(0, SubgroupPacket(b"", 3, 1, 1, [1, 0, 1]), 0)
    assert one.waiting() == [Waiting(MessageId(3, 1), None)]
    one.receive(2, SubgroupPacket(b"", 2, 1, 1, [0, 0, 1]), 0)
    assert ids(one) == [(2, 1), (3, 1)]


def test_a_vector_time_gateway_names_messages_covered_by_the_vector() -> None:
    gateway = vt()[0]
    for number in (1, 2):
        gateway.receive(3, GatewayPacket(b"", 3, number, number, [0, 0], []), 0)
    one = gateway.receive(1, SubgroupPacket(b"", 1, 1, 1, [1, 1, 0]), 0)
    two = gateway.receive(2, SubgroupPacket(b"", 2, 1, 1, [2, 0, 1]), 0)
    more = gateway.receive(1, SubgroupPacket(b"", 1, 2, 2, [1, 2, 1]), 0)
    assert between(one) == [GatewayPacket(b"", 1, 1, 1, [0, 1], [])]
    assert between(two) == [GatewayPacket(b"", 2, 1, 2, [0, 2], [])]
    assert between(more) == [GatewayPacket(b"", 1, 2, 3, [2, 1], [])], "what it counts, not what that counts"
    own = gateway.broadcast(b"", 0)
    assert between(own) == [GatewayPacket(b"", 0, 1, 4, [3, 2], [])]


def test_causes_beyond_a_gap_are_named_individually() -> None:
    gateway = Hcg.with_layout(4, SubgroupLayout(["vt:1", "vt:2", "vt:1"]))[0]
    gateway.receive(1, GatewayPacket(b"", 2, 1, 2, [0, 0, 0], []), 0)
    gateway.receive(1, GatewayPacket(b"", 2, 2, 4, [0, 0, 0], [(1, 2)]), 0)
    assert ids(gateway) == [(2, 1), (2, 2)]
    (packet,) = between(gateway.broadcast(b"", 0))
    assert packet == GatewayPacket(b"", 0, 1, 1, [0, 0, 0], [(1, 2), (1, 4)])
    assert gateway.paper_bytes(packet) == 4 * 6
    gateway.receive(1, GatewayPacket(b"", 1, 1, 1, [0, 0, 0], []), 0)
    assert between(gateway.broadcast(b"", 0)) == [GatewayPacket(b"", 0, 2, 2, [1, 2, 0], [(1, 4)])]


def test_a_gateway_waits_for_all_that_a_message_names() -> None:
    gateway = Hcg.with_layout(4, SubgroupLayout(["vt:1", "vt:2", "vt:1"]))[0]
    gateway.broadcast(b"", 0)
    counted = GatewayPacket(b"", 3, 1, 1, [1, 2, 0], [])
    single = GatewayPacket(b"", 3, 2, 2, [0, 0, 0], [(1, 4)])
    gateway.receive(3, counted, 0)
    gateway.receive(3, single, 0)
    gateway.receive(3, single, 0)
    assert gateway.waiting() == [
        Waiting(MessageId(3, 1), None),
        Waiting(MessageId(3, 2), MessageId(3, 1)),
    ]
    gateway.receive(1, GatewayPacket(b"", 1, 1, 2, [0, 0, 0], []), 0)
    assert ids(gateway) == [(1, 1)]
    gateway.receive(1, GatewayPacket(b"", 2, 1, 1, [0, 0, 0], []), 0)
    assert ids(gateway) == [(2, 1), (3, 1)]
    assert gateway.waiting() == [Waiting(MessageId(3, 2), None)]
    gateway.receive(1, GatewayPacket(b"", 2, 2, 4, [0, 0, 0], []), 0)
    assert ids(gateway) == [(2, 2), (3, 2)]
    assert gateway.receive(3, counted, 0) == Effects()
    assert gateway.waiting() == []


def test_the_vector_log_is_bounded_and_dropped_entries_precede_everything() -> None:
    past = PrecedenceByVector.create(3, 2)
    for number in range(1, MAX_REMEMBERED):
        packet = SubgroupPacket(b"", 9, number, number, [number, 0, 0])
        assert past.find_preceding(0, packet)[1] == BitWindow(number - 1)
        past.record(0, packet, 1, number)
    assert past.find_preceding(1, SubgroupPacket(b"", 1, 1, 1, [7, 1, 0])) == [BitWindow(), BitWindow(7)]
    assert past.preceding[2] == [BitWindow(), BitWindow()]
    past.record(
        0, SubgroupPacket(b"", 9, MAX_REMEMBERED, MAX_REMEMBERED, [MAX_REMEMBERED, 0, 0]), 1, MAX_REMEMBERED
    )
    half = MAX_REMEMBERED // 2
    assert [len(log) for log in past.log] == [half, 0, 0]
    assert past.find_preceding(2, SubgroupPacket(b"", 2, 1, 1, [3, 0, 1])) == [BitWindow(), BitWindow(half)]
    assert past.find_preceding(1, SubgroupPacket(b"", 1, 2, 2, [half + 4, 2, 0])) == [
        BitWindow(),
        BitWindow(half + 4),
    ]
    assert past.merged[1] == [half + 4, 0, 0]
    assert past.find_preceding(1, SubgroupPacket(b"", 1, 3, 3, [half + 2, 3, 0])) == [
        BitWindow(),
        BitWindow(half + 4),
    ]
    assert past.merged[1] == [half + 4, 0, 0]
    for number in range(MAX_REMEMBERED + 1, MAX_REMEMBERED + half + 1):
        past.record(0, SubgroupPacket(b"", 9, number, number, [number, 0, 0]), 1, number)
    assert past.dropped == [2 * half, 0, 0]
    assert past.find_preceding(2, SubgroupPacket(b"", 2, 2, 2, [0, 0, 2])) == [
        BitWindow(),
        BitWindow(2 * half),
    ]


def test_packet_sizes_as_the_paper_counts() -> None:
    member = vt()[1]
    assert member.paper_bytes(SubgroupPacket(b"", 1, 1, 1, [9])) == 4
    assert member.paper_bytes(SubgroupPacket(b"", 1, 1, 1, [1, 0, 0])) == 12
    assert member.paper_bytes(LinearAck(1, 1)) == 4
