"""Internal peers of a free-scale network; the application of a super peer is one too."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Delivery, Effects, HoldBackQueue, Packet, RemoteError, Send, Waiting
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    InternalAck,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.limits import MAX_AHEAD

RARE_REPORTS = 32
"""The most deliveries between two reports: with more, members that deliver fewer would never send one."""


def bytes_for(bits: int) -> int:
    """The bytes that so many bits take."""
    return (bits + 7) // 8


class InternalPeer(msgspec.Struct, tag="internal"):
    """Knows only its super peer and the numbers that the super peer assigns."""

    me: int
    super_peer: int
    ack_every: int
    sent: int = 0
    delivered: BitWindow = msgspec.field(default_factory=BitWindow)
    """The numbers delivered here, including those of its own messages as soon as they are assigned."""
    causes: set[int] = msgspec.field(default_factory=set)
    """The numbers that the next message depends on immediately."""
    holdback: HoldBackQueue[int, DownlinkPacket] = msgspec.field(default_factory=HoldBackQueue)
    undelivered: set[int] = msgspec.field(default_factory=set)
    """The numbers received and not delivered yet."""
    unreported: int = 0
    """Deliveries since the last report to the super peer."""

    def broadcast(self, payload: bytes) -> Effects:
        packet = self.create_packet(payload)
        return Effects((Send((self.super_peer,), packet),), message=packet.message_ids()[0])

    def create_packet(self, payload: bytes) -> UplinkPacket:
        self.sent += 1
        causes = OffsetBitmap.from_numbers(self.causes)
        self.causes.clear()
        self.unreported = 0
        return UplinkPacket(payload, self.me, self.sent, causes, self.delivered.base)

    def receive(self, link: int, packet: Packet) -> Iterator[Send]:
        if link != self.super_peer:
            raise RemoteError(f"a packet from peer {link}, not from super peer {self.super_peer}")
        if isinstance(packet, NumberAssignment):
            self.assign_number(packet)
        elif isinstance(packet, DownlinkPacket):
            self.accept(packet)
        else:
            raise RemoteError(f"an internal peer does not accept packets of type {type(packet).__name__}")
        if self.unreported >= self.ack_every:
            self.unreported = 0
            causes = OffsetBitmap.from_numbers(self.causes)
            yield Send((self.super_peer,), InternalAck(self.sent, self.delivered.base, causes))

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        """Only its reports, which may also respond to an assigned number."""
        return None if self.ack_every < RARE_REPORTS else ()

    def assign_number(self, packet: NumberAssignment) -> None:
        if not 1 <= packet.seq <= self.sent:
            raise RemoteError("a number for a message that this peer has not sent")
        self._validate_number(packet.number)
        self.delivered.add(packet.number)
        self.holdback.release(packet.number, self.delivered.__contains__)

    def accept(self, packet: DownlinkPacket) -> None:
        self._validate_number(packet.number)
        number, previous, causes = packet.number, packet.sender_previous, packet.causes.numbers()
        if packet.origin == self.me or packet.seq < 1:
            raise RemoteError("another peer sent a message in this peer's name")
        if not all(1 <= cause < number for cause in causes) or not 0 <= previous < number:
            raise RemoteError(f"message {number} depends on a later one")
        if number in self.delivered or number in self.undelivered:
            return
        self.undelivered.add(number)
        self.hold(packet)

    def hold(self, packet: DownlinkPacket) -> None:
        """Hold a message until what it depends on is delivered."""
        dependencies = [packet.sender_previous, *packet.causes.numbers()]
        self.holdback.hold(packet, dependencies, self.delivered.__contains__)

    def _validate_number(self, number: int) -> None:
        if not 1 <= number <= self.delivered.base + MAX_AHEAD:
            raise RemoteError(f"number {number} of the super peer is out of range")

    def deliver(self) -> Delivery | None:
        if not self.holdback.ready:
            return None
        packet = self.holdback.ready.pop(0)
        self.undelivered.discard(packet.number)
        self.delivered.add(packet.number)
        self.causes.difference_update(packet.causes.numbers())
        self.causes.discard(packet.sender_previous)
        self.causes.add(packet.number)
        self.unreported += 1
        self.holdback.release(packet.number, self.delivered.__contains__)
        return Delivery(packet.message_ids()[0], packet.payload)

    def partners(self) -> tuple[int, ...]:
        return (self.super_peer,)

    def paper_storage(self) -> int:
        """RV from the first bit cleared to the last set, DV from the first to the last set."""
        causes = OffsetBitmap.from_numbers(self.causes)
        return bytes_for(self.delivered.bits.bit_length()) + bytes_for(causes.span)

    def waiting(self) -> list[Waiting]:
        held = self.holdback.waiting()
        received = {packet.number: packet.message_ids()[0] for packet, _ in held}
        return [Waiting(packet.message_ids()[0], received.get(number)) for packet, number in held]
