"""MBCP, the minimal broadcast causal protocol (paper 001): name only the immediate dependencies.

If every message is delivered after its immediate dependencies, then by transitivity it is delivered after its
whole causal past. So a message names, at most once for each peer, the messages with nothing between them and
itself. The sender's own previous message is not named, because sender order is kept anyway. Control
information: 0 to n - 1 pairs, 8 bytes each as the paper counts; this is the least that preserves causal
order.

`causes` is what this member's next message would depend on immediately. A delivery adds its message and
removes the message's own dependencies. That removal is described in the paper's example (4.2, step 4.v) and
missing from its Table 1. Without it causal order still holds, but messages name more than they must.

Several messages with no delivery in between may travel as one packet (`MessageBatch`), whose first message
names the dependencies of all. Drivers ask for that with `broadcast_all`.

Links need not be FIFO; memory O(n) and the held messages; a delivery costs O(pairs carried).
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.protocols.base import Delivery, Effects, Packet, Send
from antecede.protocols.flat import (
    DependencyPacket,
    Flat,
    FlatPacket,
    MessageBatch,
    StampedPacket,
    sorted_by_peer,
)
from antecede.protocols.limits import MAX_BATCH_MESSAGES

_NO_CAUSES: dict[int, int] = {}
"""The dependencies of all messages of a batch but the first. Never changed."""


class Mbcp(Flat):
    name: ClassVar[str] = "mbcp"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "only the immediate dependencies: the minimal broadcast"
    control: ClassVar[str] = "up to n − 1 pairs, the minimum"
    carries_immediate_dependencies: ClassVar[bool] = True
    packets: ClassVar[Any] = DependencyPacket | MessageBatch
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (DependencyPacket, MessageBatch)

    causes: dict[int, int] = msgspec.field(default_factory=dict)
    """The immediate dependencies of the next message."""

    def next_causes(self) -> dict[int, int]:
        return sorted_by_peer(self.causes)

    def stamp(self, seq: int, payload: bytes) -> DependencyPacket:
        causes, self.causes = self.causes, {}
        return DependencyPacket(payload, self.me, seq, sorted_by_peer(causes))

    def broadcast_all(self, payloads: list[bytes], now: int) -> Effects:
        to = self.others()
        if not 1 < len(payloads) <= MAX_BATCH_MESSAGES or not to:
            return super().broadcast_all(payloads, now)
        causes, self.causes = self.causes, {}
        packet = MessageBatch(payloads, self.me, self.delivered[self.me] + 1, sorted_by_peer(causes))
        self._record_own(packet.last)
        return Effects((Send(to, packet),), message=MessageId(self.me, packet.last))

    def on_delivered(self, packet: StampedPacket) -> None:
        if isinstance(packet, DependencyPacket):
            self._drop_causes(packet.causes)
        self.causes[packet.origin] = packet.seq

    def _drop_causes(self, named: dict[int, int]) -> None:
        """A delivered message depends on these. The next message depends on them through it, so they are no
        longer immediate."""
        causes = self.causes
        for peer, seq in named.items():
            if causes.get(peer) == seq:
                del causes[peer]

    def deliver(self, now: int) -> Delivery | None:
        holdback = self.holdback
        ready = holdback.ready
        if not ready or not isinstance(ready[0], MessageBatch):
            return super().deliver(now)
        # The first message of the batch that is not delivered yet. This is the inner loop of live groups, so
        # the batch is not split into packets.
        batch = ready[0]
        origin, payloads = batch.origin, batch.payloads
        seq = self.delivered[origin] + 1
        place = seq - batch.seq
        if place == len(payloads) - 1:
            del ready[0]
        self.delivered[origin] = seq
        named = _NO_CAUSES
        if not place:
            named = batch.causes
            self._drop_causes(named)
        self.causes[origin] = seq
        message = tuple.__new__(MessageId, (origin, seq))  # half the time of `MessageId(origin, seq)`
        if message in holdback.held:
            holdback.release(message, self._is_delivered)
        return Delivery(message, payloads[place], named)

    def begin(self, counts: dict[int, int], admission: MessageId) -> None:
        super().begin(counts, admission)
        self.causes = dict([admission])

    def stop_naming(self, peer: int) -> None:
        self.causes.pop(peer, None)

    def paper_bytes(self, packet: Packet) -> int:
        return 8 * len(packet.causes) if isinstance(packet, DependencyPacket | MessageBatch) else 0

    def paper_storage(self) -> int:
        """A clock entry for each peer, and the pairs that the next message would carry."""
        return 4 * self.size + 8 * len(self.causes)
