"""Flooding on a deterministic overlay (paper 002): causal order from FIFO links alone.

A member that receives a message for the first time forwards it to all neighbours except the one it came from,
and only then delivers it. So causes travel ahead of their effects on every path of FIFO links, nothing is
ever held, and a message carries only its identity (4 bytes of sequence number as the paper counts).

The order of the two steps matters. The paper's Figure 2 delivers first; a reply that an application sends
inside its delivery then overtakes the message that it replies to. Here drivers carry out sends before they
ask for deliveries. Links must be reliable and FIFO, and may only be lost, not added (`pc` allows that).
Duplicates are recognised by the set of messages received, not by a counter.

A message crosses nearly every link, some twice: about n log2 n packets on a hypercube, against n - 1 for
the flat protocols. Time O(log n) a delivery, memory O(n).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.overlay.hypercube import hypercube
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    LinkRequirements,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.flat import MessagePacket
from antecede.protocols.limits import MAX_AHEAD


class FloodPacket(MessagePacket, frozen=True, array_like=True, tag=2):
    """A message with its identity and no other control information."""

    metric_name: ClassVar[str] = "flooded"

    seq: int

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class Flooding(Protocol):
    name: ClassVar[str] = "flooding"
    kernel: ClassVar[str] = "flooding"
    summary: ClassVar[str] = "its identity; FIFO links of a hypercube preserve the order"
    control: ClassVar[str] = "none"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=True)
    packets: ClassVar[Any] = FloodPacket
    buffering: ClassVar[str] = "never"
    membership: ClassVar[str] = "links may be lost"
    ignores_copies: ClassVar[bool] = True
    delivers_as_received: ClassVar[bool] = True

    neighbours: tuple[int, ...]
    sent: int = 0
    received: dict[int, BitWindow] = msgspec.field(default_factory=dict)
    ready: list[FloodPacket] = msgspec.field(default_factory=list)

    @classmethod
    def group(cls, size: int) -> list[Self]:
        """Members on the corners of a hypercube."""
        return cls.on_overlay(hypercube(size))

    @classmethod
    def on_overlay(cls, overlay: list[tuple[int, ...]]) -> list[Self]:
        """Members on any connected overlay: the neighbours of each."""
        return [cls(me, len(overlay), neighbours) for me, neighbours in enumerate(overlay)]

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self.sent += 1
        sends = self._send_to(self.neighbours, FloodPacket(payload, self.me, self.sent))
        return Effects(sends, message=MessageId(self.me, self.sent))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, FloodPacket) or not 0 <= packet.origin < self.size:
            raise RemoteError(f"not a message of one of the {self.size} peers")
        if packet.origin == self.me:
            if packet.seq > self.sent:
                raise RemoteError("a message of this peer that it has not sent")
            return NO_EFFECTS
        received = self.received.get(packet.origin, BitWindow())
        if not 1 <= packet.seq <= received.base + MAX_AHEAD:
            raise RemoteError(f"message number {packet.seq} of peer {packet.origin} is out of range")
        if not received.add(packet.seq):
            return NO_EFFECTS
        self.received[packet.origin] = received
        self.ready.append(packet)
        return Effects(self._send_to([peer for peer in self.neighbours if peer != link], packet))

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        is_known = message.origin == self.me or message.seq in self.received.get(message.origin, BitWindow())
        return () if is_known else self.neighbours

    @staticmethod
    def _send_to(peers: tuple[int, ...] | list[int], packet: FloodPacket) -> tuple[Send, ...]:
        return (Send(tuple(peers), packet),) if peers else ()

    def deliver(self, now: int) -> Delivery | None:
        if not self.ready:
            return None
        packet = self.ready.pop(0)
        return Delivery(MessageId(packet.origin, packet.seq), packet.payload)

    def waiting(self) -> list[Waiting]:
        return []

    def partners(self) -> tuple[int, ...]:
        return self.neighbours

    def paper_bytes(self, packet: Packet) -> int:
        return 4
