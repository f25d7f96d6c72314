"""Messages that are sent in a row and go as one packet: all is as if each had gone alone."""

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


class Room:
    """Members, and every copy of a packet that is under way; a person decides what happens next."""

    def __init__(self, protocol: str) -> None:
        self.members = catalog.find(protocol).group(SIZE)
        self.under_way: list[tuple[int, int, Packet]] = []
        self.histories: list[list[Step]] = [[] for _ in range(SIZE)]

    def say(self, me: int, count: int) -> None:
        effects = self.members[me].broadcast_all([b"x"] * count, 0)
        assert effects.message is not None
        last = effects.message.seq
        self.histories[me] += [Step(Kind.SEND, MessageId(me, last - count + n)) for n in range(1, count + 1)]
        self.under_way += [(me, to, send.packet) for send in effects.sends for to in send.to]

    def carry(self, place: int, how: int) -> None:
        """`how` 0: as it is; 1: its messages alone, the last first; 2: the last alone, then all of it."""
        source, to, packet = self.under_way.pop(place % len(self.under_way))
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
        st.tuples(st.just("say"), st.integers(0, SIZE - 1), st.integers(1, 4)),
        st.tuples(st.just("carry"), st.integers(0, 30), st.integers(0, 2)),
        st.tuples(st.just("deliver"), st.integers(0, SIZE - 1), st.just(0)),
    ),
    max_size=40,
)


def happens(protocol: str, story: list[tuple[str, int, int]]) -> Room:
    room = Room(protocol)
    for what, which, number in story:
        if what == "say":
            room.say(which, number)
        elif what == "deliver":
            room.deliver(which)
        elif room.under_way:
            room.carry(which, number)
    while room.under_way:
        room.carry(0, 0)
    for me in range(SIZE):
        while room.deliver(me):
            pass
    return room


@pytest.mark.parametrize("protocol", ["mbcp", "timestamp-diff"])
@given(story=steps)
def test_runs_are_delivered_in_causal_order_however_they_come(
    protocol: str, story: list[tuple[str, int, int]]
) -> None:
    room = happens(protocol, story)
    verdict = judge(Execution(room.histories)).verdict
    assert verdict.clean, verdict
    assert all(member.waiting() == [] for member in room.members)


@given(story=steps)
def test_what_is_held_is_told_message_by_message(story: list[tuple[str, int, int]]) -> None:
    room = Room("mbcp")
    for what, which, number in story:
        if what == "say":
            room.say(which, number)
        elif what == "carry" and room.under_way:
            room.carry(which, number)
        for member in room.members:
            held = {wait.message for wait in member.waiting()}
            assert len(held) == len(member.waiting())
            assert isinstance(member, Mbcp)
            ready = {message for packet in member.holdback.ready for message in packet.message_ids()}
            there = {MessageId(origin, seq) for origin, seen in enumerate(member.received) for seq in seen}
            assert held | ready == there


def test_a_run_is_one_packet_that_names_the_causes_of_the_first() -> None:
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
def test_an_empty_run_and_one_that_is_too_long_are_no_packets(count: int) -> None:
    data = Mbcp.encode(MessageBatch([b""], 1, 1, {})).replace(
        b"\x91\xc4\x00", b"\xdc" + count.to_bytes(2) + b"\xc4\x00" * count
    )
    with pytest.raises(RemoteError, match=f"a batch of {count} messages"):
        Mbcp.decode(data)


@given(st.sets(st.integers(1, 40)), st.integers(1, 40), st.integers(0, 12))
def test_a_span_is_put_in_whole_or_not_at_all(there: set[int], first: int, more: int) -> None:
    window, span = BitWindow.from_numbers(there), set(range(first, first + more + 1))
    is_new = window.add_span(first, first + more)
    assert is_new == (not there & span)
    assert set(window) == (there | span if is_new else there)
