"""Helpers of tests of `pc`: a network in which packets arrive when the test says so, and members to start
with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from antecede.protocols.base import Effects, Packet, Protocol, Send
from antecede.protocols.pc import Pc, Ping

LINE = [(1,), (0, 2), (1,)]
"""Peers 0 and 2 are connected through 1."""
PONG_TIMEOUT = Pc.pong_timeout


class ManualNetwork:
    """Members and the links between them; a packet arrives when the test says so."""

    def __init__(self, members: Sequence[Protocol]) -> None:
        self.members = members
        self.links: dict[tuple[int, int], list[Packet]] = {}
        self.delivered: list[str] = ["" for _ in members]
        self.wakes: list[tuple[int, int]] = []
        self.now = 0

    def do(self, peer: int, effects: Effects) -> None:
        for send in effects.sends:
            for to in send.to:
                self.links.setdefault((peer, to), []).append(send.packet)
        if effects.wake_at is not None:
            self.wakes.append((peer, effects.wake_at))
        while (delivery := self.members[peer].deliver(self.now)) is not None:
            self.delivered[peer] += delivery.payload.decode()

    def broadcast(self, peer: int, payloads: str) -> None:
        """Each letter is a message."""
        for letter in payloads:
            self.do(peer, self.members[peer].broadcast(letter.encode(), self.now))

    def open(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.do(here, self.members[here].link_opened(there, self.now))

    def close(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.links.pop((here, there), None)
            self.do(here, self.members[here].link_closed(there, self.now))

    def in_flight(self, source: int, to: int) -> list[Packet]:
        return self.links.get((source, to), [])

    def arrive(self, source: int, to: int) -> Packet:
        """The next packet on a link arrives."""
        packet = self.links[source, to].pop(0)
        self.do(to, self.members[to].receive(source, packet, self.now))
        return packet

    def flow(self, *links: tuple[int, int]) -> None:
        """Deliver everything in flight on these links and the packets that follow from it; without arguments,
        on all links."""
        while full := [wire for wire, packets in self.links.items() if packets and wire in (links or [wire])]:
            self.arrive(*full[0])

    def wake(self, peer: int, now: int) -> None:
        self.now = now
        self.do(peer, self.members[peer].wake(now))


def opened(**state: object) -> Pc:
    """Member 0 of a line of four that has sent "a" and opened a link to 2, with ping 1 in flight."""
    member = msgspec.structs.replace(Pc.on_overlay([(1,), (0, 2), (1, 3), (2,)])[0], **state)
    member.broadcast(b"a", 0)
    effects = member.link_opened(2, 10)
    assert effects == Effects((Send((1,), Ping(0, 2, 1)),), wake_at=10 + PONG_TIMEOUT)
    return member


class Bounded(Pc):
    max_buffered: ClassVar[int] = 3
