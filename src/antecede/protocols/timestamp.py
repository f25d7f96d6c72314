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

from antecede.causality import MessageId
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
    packets: ClassVar[Any] = ClockPacket | DependencyPacket
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (ClockPacket, DependencyPacket)

    unnamed: set[int] = msgspec.field(default_factory=set)
    """In a group that changes: peers that are in the clock and no longer named."""

    def stamp(self, seq: int, payload: bytes) -> ClockPacket | DependencyPacket:
        if not self.is_open:
            return ClockPacket(payload, self.me, list(self.delivered.values()))
        return DependencyPacket(payload, self.me, seq, self.next_causes())

    def next_causes(self) -> dict[int, int]:
        # A clock of a group that changes has an entry for each peer, not one for each rank.
        left_out = {self.me, *self.unnamed}
        return {peer: n for peer, n in sorted(self.delivered.items()) if n and peer not in left_out}

    def drop_peer(self, peer: int) -> None:
        super().drop_peer(peer)
        self.unnamed.discard(peer)

    def stop_naming(self, peer: int) -> None:
        self.unnamed.add(peer)

    def paper_bytes(self, packet: Packet) -> int:
        return 4 * (1 + len(packet.causes)) if isinstance(packet, DependencyPacket) else 4 * self.size


class TimestampDiff(Flat):
    name: ClassVar[str] = "timestamp-diff"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "the entries of the vector clock that changed since the last message"
    control: ClassVar[str] = "up to n − 1 counts"

    changed: dict[int, int] = msgspec.field(default_factory=dict)
    """The entries of the clock that changed since the last message."""

    def next_causes(self) -> dict[int, int]:
        return sorted_by_peer(self.changed)

    def stamp(self, seq: int, payload: bytes) -> DependencyPacket:
        changed, self.changed = self.changed, {}
        return DependencyPacket(payload, self.me, seq, sorted_by_peer(changed))

    def on_delivered(self, packet: StampedPacket) -> None:
        self.changed[packet.origin] = packet.seq

    def begin(self, counts: dict[int, int], admission: MessageId) -> None:
        super().begin(counts, admission)
        self.changed = dict([admission])

    def stop_naming(self, peer: int) -> None:
        self.changed.pop(peer, None)

    def paper_bytes(self, packet: Packet) -> int:
        return 4 * (1 + len(packet.causes)) if isinstance(packet, DependencyPacket) else 0
