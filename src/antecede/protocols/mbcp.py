"""MBCP, the minimal broadcast causal protocol (paper 001): name only the immediate dependencies.

If every message is delivered after those it immediately depends on, then by transitivity it is
delivered after its whole causal past. So a message names, for each peer at most once, the messages
with nothing between them and itself; the sender's own previous message goes without saying,
because order from one sender is kept. Control information: 0 to n - 1 pairs, 8 bytes each as the
paper counts, and it is the least that can keep causal order.

`causes` is the set of messages that this member's next message would depend on immediately. A
delivery puts its message in and takes out what it depends on itself: that step is described by the
paper's example (4.2, step 4.v) and missing from its Table 1. Without it order still holds, but
messages name more than they must.

Messages that are sent in a row, with nothing delivered in between, may go as one packet (`MessageBatch`): the
first names what all depend on. A driver that has several at hand asks for it (`broadcast_all`).

Links need not be FIFO; memory O(n) and the held messages; a delivery costs O(pairs carried).
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.protocols.base import Effects, Packet, Send
from antecede.protocols.flat import (
    DependencyPacket,
    Flat,
    FlatPacket,
    MessageBatch,
    StampedPacket,
    other_peers,
    sorted_by_peer,
)
from antecede.protocols.limits import MAX_BATCH_MESSAGES


class Mbcp(Flat):
    name: ClassVar[str] = "mbcp"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "only the immediate dependencies: the minimal broadcast"
    control: ClassVar[str] = "up to n − 1 pairs, the least"
    carries_immediate_dependencies: ClassVar[bool] = True
    packets: ClassVar[Any] = DependencyPacket | MessageBatch
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (DependencyPacket, MessageBatch)

    causes: dict[int, int] = msgspec.field(default_factory=dict)

    def stamp(self, seq: int, payload: bytes) -> DependencyPacket:
        named, self.causes = self.causes, {}
        return DependencyPacket(payload, self.me, seq, sorted_by_peer(named))

    def broadcast_all(self, payloads: list[bytes], now: int) -> Effects:
        if not 1 < len(payloads) <= MAX_BATCH_MESSAGES or self.size == 1:
            return super().broadcast_all(payloads, now)
        named, self.causes = self.causes, {}
        packet = MessageBatch(payloads, self.me, self.delivered[self.me] + 1, sorted_by_peer(named))
        self.delivered[self.me] = packet.last
        send = Send(other_peers(self.me, self.size), packet)
        return Effects((send,), message=MessageId(self.me, packet.last))

    def on_delivered(self, packet: StampedPacket) -> None:
        causes = self.causes
        if isinstance(packet, DependencyPacket):
            # Whoever depends on a message depends on its causes through it: no need to name them.
            for peer, seq in packet.causes.items():
                if causes.get(peer) == seq:
                    del causes[peer]
        causes[packet.origin] = packet.seq

    def paper_bytes(self, packet: Packet) -> int:
        return 8 * len(packet.causes) if isinstance(packet, DependencyPacket | MessageBatch) else 0

    def paper_storage(self) -> int:
        """A clock entry a peer and the pairs that the next message would carry."""
        return 4 * self.size + 8 * len(self.causes)
