"""What tests of `pc` share: a room where packets move when the story says so, and members to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from antecede.protocols.base import Effects, Packet, Protocol, Send
from antecede.protocols.pc import Pc, Ping

LINE = [(1,), (0, 2), (1,)]
"""0 and 2 hear of each other through 1."""
PONG_TIMEOUT = Pc.pong_timeout


class Room:
    """Members and the wires between them; a packet moves when the story says so."""

    def __init__(self, members: Sequence[Protocol]) -> None:
        self.members = members
        self.wires: dict[tuple[int, int], list[Packet]] = {}
        self.heard: list[str] = ["" for _ in members]
        self.wakes: list[tuple[int, int]] = []
        self.now = 0

    def do(self, peer: int, effects: Effects) -> None:
        for send in effects.sends:
            for to in send.to:
                self.wires.setdefault((peer, to), []).append(send.packet)
        if effects.wake_at is not None:
            self.wakes.append((peer, effects.wake_at))
        while (delivery := self.members[peer].deliver(self.now)) is not None:
            self.heard[peer] += delivery.payload.decode()

    def say(self, peer: int, words: str) -> None:
        for word in words:
            self.do(peer, self.members[peer].broadcast(word.encode(), self.now))

    def open(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.do(here, self.members[here].link_opened(there, self.now))

    def close(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.wires.pop((here, there), None)
            self.do(here, self.members[here].link_closed(there, self.now))

    def under_way(self, source: int, to: int) -> list[Packet]:
        return self.wires.get((source, to), [])

    def carry(self, source: int, to: int) -> Packet:
        """The next packet on a wire arrives."""
        packet = self.wires[source, to].pop(0)
        self.do(to, self.members[to].receive(source, packet, self.now))
        return packet

    def flow(self, *wires: tuple[int, int]) -> None:
        """Everything arrives that is on these wires, and then on all others too if none is named."""
        while full := [wire for wire, packets in self.wires.items() if packets and wire in (wires or [wire])]:
            self.carry(*full[0])

    def wake(self, peer: int, now: int) -> None:
        self.now = now
        self.do(peer, self.members[peer].wake(now))


def opened(**state: object) -> Pc:
    """Member 0 of a line of four that has said "a" and opened a link to 2, which ping 1 asks about."""
    member = msgspec.structs.replace(Pc.on_overlay([(1,), (0, 2), (1, 3), (2,)])[0], **state)
    member.broadcast(b"a", 0)
    effects = member.link_opened(2, 10)
    assert effects == Effects((Send((1,), Ping(0, 2, 1)),), wake_at=10 + PONG_TIMEOUT)
    return member


class Bounded(Pc):
    max_buffered: ClassVar[int] = 3
