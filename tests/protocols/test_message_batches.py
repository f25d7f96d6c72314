"""Batches of messages in one packet are equivalent to the same messages sent one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import BitWindow, Execution, Kind, MessageId, Step, judge
from antecede.protocols import catalog
from antecede.protocols.base import Packet, RemoteError
from antecede.protocols.flat import DependencyPacket, MessageBatch
from antecede.protocols.limits import MAX_BATCH_MESSAGES
from antecede.protocols.mbcp import Mbcp

SIZE = 3


class ManualNetwork:
    """Members, and every copy of a packet in flight; the test decides what happens next."""

    def __init__(self, protocol: str) -> None:
        self.members = catalog.find_protocol(protocol).group(SIZE)
        self.in_flight: list[tuple[int, int, Packet]] = []
        self.histories: list[list[Step]] = [[] for _ in range(SIZE)]

    def broadcast(self, me: int, count: int) -> None:
        effects = self.members[me].broadcast_all([b"x"] * count, 0)
        assert effects.message is not None
        last = effects.message.seq
        self.histories[me] += [Step(Kind.SEND, MessageId(me, last - count + n)) for n in range(1, count + 1)]
        self.in_flight += [(me, to, send.packet) for send in effects.sends for to in send.to]

    def arrive(self, place: int, how: int) -> None:
        """`how` 0: as sent; 1: its messages one by one, the last first; 2: the last alone, then the whole
        batch twice."""
        source, to, packet = self.in_flight.pop(place % len(self.in_flight))
        parts: list[Packet] = [packet]
        if isinstance(packet, MessageBatch) and how:
            parts = [*reversed(packet.split())]
            parts = parts if how == 1 else [parts[0], packet, packet]
        for part in parts:
            member = self.members[to]
            assert member.receive(source, part, 0).sends == ()
            self.members[to] = type(member).restore(member.save())

    def deliver(self, me: int) -> bool:
        delivery = self.members[me].deliver(0)
        if delivery is not None:
            self.histories[me].append(Step(Kind.DELIVER, delivery.message))
        return delivery is not None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("broadcast"), st.integers(0, SIZE - 1), st.integers(1, 4)),
        st.tuples(st.just("arrive"), st.integers(0, 30), st.integers(0, 2)),
        st.tuples(st.just("deliver"), st.integers(0, SIZE - 1), st.just(0)),
    ),
    max_size=40,
)


def play(protocol: str, script: list[tuple[str, int, int]]) -> ManualNetwork:
    network = ManualNetwork(protocol)
    for what, which, number in script:
        if what == "broadcast":
            network.broadcast(which, number)
        elif what == "deliver":
            network.deliver(which)
        elif network.in_flight:
            network.arrive(which, number)
    while network.in_flight:
        network.arrive(0, 0)
    for me in range(SIZE):
        while network.deliver(me):
            pass
    return network


@pytest.mark.parametrize("protocol", ["mbcp", "timestamp-diff"])
@given(script=steps)
def test_batches_are_delivered_in_causal_order_in_any_arrival_order(
    protocol: str, script: list[tuple[str, int, int]]
) -> None:
    network = play(protocol, script)
    verdict = judge(Execution(network.histories)).verdict
    assert verdict.clean, verdict
    assert all(member.waiting() == [] for member in network.members)


@given(script=steps)
def test_waiting_reports_each_held_message_of_a_batch(script: list[tuple[str, int, int]]) -> None:
    network = ManualNetwork("mbcp")
    for what, which, number in script:
        if what == "broadcast":
            network.broadcast(which, number)
        elif what == "arrive" and network.in_flight:
            network.arrive(which, number)
        for member in network.members:
            held = {wait.message for wait in member.waiting()}
            assert len(held) == len(member.waiting()) == member.count_held()
            assert isinstance(member, Mbcp)
            ready = {message for packet in member.holdback.ready for message in packet.message_ids()}
            there = {MessageId(origin, seq) for origin, seen in member.received.items() for seq in seen}
            assert held | ready == there


def test_a_batch_is_one_packet_with_the_causes_of_its_first_message() -> None:
    ana, bo = Mbcp.group(2)
    (send,) = bo.broadcast(b"hello", 0).sends
    ana.receive(1, send.packet, 0)
    ana.deliver(0)
    effects = ana.broadcast_all([b"a", b"b", b"c"], 0)
    (send,) = effects.sends
    assert send.packet == MessageBatch([b"a", b"b", b"c"], 0, 1, {1: 1})
    assert effects.message == MessageId(0, 3)
    assert send.packet.split() == [
        DependencyPacket(b"a", 0, 1, {1: 1}),
        DependencyPacket(b"b", 0, 2, {}),
        DependencyPacket(b"c", 0, 3, {}),
    ]


@pytest.mark.parametrize("count", [0, MAX_BATCH_MESSAGES + 1])
def test_batches_that_are_empty_or_too_long_are_refused(count: int) -> None:
    data = Mbcp.encode(MessageBatch([b""], 1, 1, {})).replace(
        b"\x91\xc4\x00", b"\xdc" + count.to_bytes(2) + b"\xc4\x00" * count
    )
    with pytest.raises(RemoteError, match=f"a batch of {count} messages"):
        Mbcp.decode(data)


@given(st.sets(st.integers(1, 40)), st.integers(1, 40), st.integers(0, 12))
def test_a_span_is_added_as_a_whole_or_not_at_all(there: set[int], first: int, more: int) -> None:
    window, span = BitWindow.from_numbers(there), set(range(first, first + more + 1))
    is_new = window.add_span(first, first + more)
    assert is_new == (not there & span)
    assert set(window) == (there | span if is_new else there)
