"""Messages that were broadcast in a row and may go as one packet, before the protocol sees them."""

from __future__ import annotations

from antecede.live.events import Broadcast
from antecede.protocols.limits import MAX_BATCH_MESSAGES

_MAX_BATCH = MAX_BATCH_MESSAGES
_MAX_BATCH_BYTES = 1 << 15
"""At most so much of what is broadcast in a row goes into one packet; a longer message goes alone."""


class StagedBroadcasts:
    """Payloads of one's own messages, with nothing delivered in between."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.bytes = 0
        self.causes: dict[int, int] = {}
        """Of the first: each later one depends on the one before it."""
        self._time = 0

    def has_room(self, payload: bytes) -> bool:
        return len(self.payloads) < _MAX_BATCH and self.bytes + len(payload) <= _MAX_BATCH_BYTES

    def add(self, payload: bytes, causes: dict[int, int], now: int) -> None:
        if not self.payloads:
            self._time, self.causes = now, causes
        self.payloads.append(payload)
        self.bytes += len(payload)

    def take(self) -> Broadcast:
        """All of them as one event."""
        payloads, self.payloads, self.bytes = self.payloads, [], 0
        return Broadcast(payloads, self._time)
