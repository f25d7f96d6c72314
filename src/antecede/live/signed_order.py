"""Causal order by what senders have signed.

A protocol orders messages by the control information of packets, which relays write anew and helpers could
change in a repair. The immediate dependencies of a message are also in its payload, and that is signed. So in
a group with signatures a message that the protocol delivers is held until those are delivered: for honest
relays they always are, and a lying one can delay messages, but not bring an effect before its cause.

Cost: O(immediate dependencies) a message.
"""

from __future__ import annotations

from antecede.live.envelope import named_causes
from antecede.protocols.base import Delivery


class SignedOrder:
    """What has been delivered, by origin, and messages that came before one of their causes."""

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.held: list[Delivery] = []

    def admit(self, delivery: Delivery) -> bool:
        """Whether a message may be delivered now; if not, it is held."""
        if self._is_in_order(delivery):
            return True
        self.held.append(delivery)
        return False

    def next(self) -> Delivery | None:
        """A message that was held and may be delivered now."""
        for index, delivery in enumerate(self.held):
            if self._is_in_order(delivery):
                return self.held.pop(index)
        return None

    def record(self, origin: int, seq: int) -> None:
        """A message is delivered."""
        self.counts[origin] = seq

    def _is_in_order(self, delivery: Delivery) -> bool:
        origin, seq = delivery.message
        counts = self.counts
        return seq == counts[origin] + 1 and all(
            counts[peer] >= count for peer, count in named_causes(delivery, len(counts)).items()
        )
