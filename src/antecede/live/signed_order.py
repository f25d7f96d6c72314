"""Causal order by signed causes.

A protocol orders messages by control information in packets, which relays rewrite and helpers could change in
a repair. The immediate dependencies of a message are also in its payload, which is signed. So in a group with
signatures a message that the protocol delivers is held until those are delivered. With honest relays they
always are; a malicious one can delay messages, but not deliver an effect before its cause.

Cost: O(immediate dependencies) per message, however many are held.
"""

from __future__ import annotations

from collections.abc import Iterable

from antecede.causality import MessageId
from antecede.live.envelope import named_causes
from antecede.protocols.base import Delivery, HoldBackQueue, Waiting

_Dependency = tuple[int, int]
"""An origin and a sequence number."""


class SignedOrder:
    """What has been delivered, by origin, and a hold-back queue of messages that arrived before one of their
    causes."""

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.last_awaited = [0] * size
        """For each origin, the last message that any held message has waited for so far."""
        self._queue: HoldBackQueue[_Dependency, Delivery] = HoldBackQueue()
        self.length = 0
        """How many messages are held."""

    def admit(self, delivery: Delivery) -> bool:
        """Whether a message may be delivered now; if not, it is held."""
        unmet = self._unmet(delivery)
        if unmet:
            self._hold(delivery, unmet)
        return not unmet

    def next(self) -> Delivery | None:
        """A held message that may be delivered now."""
        if not self._queue.ready:
            return None
        self.length -= 1
        return self._queue.ready.pop()

    def record(self, origin: int, seq: int) -> None:
        """An origin's messages up to this one are delivered."""
        before, self.counts[origin] = self.counts[origin], seq
        if self._queue.held:
            for delivered in range(before + 1, seq + 1):
                self._queue.release((origin, delivered), self._is_met)

    def awaits(self, origin: int, first: int, last: int) -> bool:
        """Whether a held message waits for one of these messages."""
        held = self._queue.held
        return bool(held) and any((origin, seq) in held for seq in range(first, last + 1))

    def waiting(self) -> list[Waiting]:
        """The held messages, and what each waits for."""
        return [Waiting(delivery.message, MessageId(*cause)) for delivery, cause in self._queue.waiting()]

    def count_held(self) -> int:
        return self.length - len(self._queue.ready)

    def held(self) -> list[Delivery]:
        return [*self._queue.ready, *(delivery for delivery, _ in self._queue.waiting())]

    def restore(self, counts: list[int], held: Iterable[Delivery]) -> None:
        """Restore the state from before a restart."""
        self.counts = counts
        for delivery in held:
            self._hold(delivery, self._unmet(delivery))

    def _hold(self, delivery: Delivery, unmet: list[_Dependency]) -> None:
        for origin, seq in unmet:
            self.last_awaited[origin] = max(seq, self.last_awaited[origin])
        self._queue.hold_unmet(delivery, unmet)
        self.length += 1

    def _unmet(self, delivery: Delivery) -> list[_Dependency]:
        (origin, seq), counts = delivery.message, self.counts
        causes = named_causes(delivery, len(counts))
        unmet = [cause for cause in causes.items() if counts[cause[0]] < cause[1]]
        if counts[origin] < seq - 1:
            unmet.append((origin, seq - 1))
        return unmet

    def _is_met(self, dependency: _Dependency) -> bool:
        origin, seq = dependency
        return self.counts[origin] >= seq
