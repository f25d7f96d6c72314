"""Vector-timestamp broadcast, and its compressed form.

`timestamp` (the baseline of paper 002): a message carries its sender's vector clock, in which the sender's
own entry already counts the message. It is delivered once it is the sender's next and every other entry is
reached. Control information: n counts a message (4n bytes as the paper counts).

`timestamp-diff` (Birman's compression, used by paper 004): only the entries that changed since the sender's
previous message. Sender order is kept anyway, and whoever delivered the previous message has reached the
entries that did not change. At most n - 1 entries; on average, as many as peers whose messages were
delivered between two own messages; 4 bytes each as the paper counts.

Both: links need not be FIFO; memory O(n) and the held messages; a delivery costs O(n) for `timestamp`,
O(entries carried) for `timestamp-diff`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.protocols.base import Packet
from antecede.protocols.flat import (
    ClockPacket,
    DependencyPacket,
    Flat,
    FlatPacket,
    StampedPacket,
    sorted_by_peer,
)


class Timestamp(Flat):
    name: ClassVar[str] = "timestamp"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "the sender's whole vector clock on every message"
    control: ClassVar[str] = "n counts"
    packets: ClassVar[Any] = ClockPacket
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (ClockPacket,)

    def stamp(self, seq: int, payload: bytes) -> ClockPacket:
        return ClockPacket(payload, self.me, self.delivered.copy())

    def paper_bytes(self, packet: Packet) -> int:
        return 4 * self.size


class TimestampDiff(Flat):
    name: ClassVar[str] = "timestamp-diff"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "the entries of the vector clock that changed since the last message"
    control: ClassVar[str] = "up to n − 1 counts"

    changed: dict[int, int] = msgspec.field(default_factory=dict)
    """The entries of the clock that changed since the last message."""

    def stamp(self, seq: int, payload: bytes) -> DependencyPacket:
        changed, self.changed = self.changed, {}
        return DependencyPacket(payload, self.me, seq, sorted_by_peer(changed))

    def on_delivered(self, packet: StampedPacket) -> None:
        self.changed[packet.origin] = packet.seq

    def paper_bytes(self, packet: Packet) -> int:
        return 4 * (1 + len(packet.causes)) if isinstance(packet, DependencyPacket) else 0
