"""The application's side of a core: the messages delivered to it, and how far it has processed them.

Deliveries have *positions*, from 1, in this member's delivery order. The application receives the first
unacked message, again after each restart, until it acknowledges or parks it. Its progress, the *cursor*, is
persisted before a message is yielded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import msgspec

from antecede.causality import MessageId
from antecede.live.events import Cursor, Parked
from antecede.live.stability import ENTRY_BYTES
from antecede.protocols.base import Delivery


class ParkedDelivery(msgspec.Struct, frozen=True):
    """A message that the application has parked."""

    delivery: Delivery
    attempts: int
    """How many times it was delivered."""
    reason: str
    time: int


class ApplicationQueue:
    """Deliveries to the application of member `me`."""

    past: Collection[MessageId] = ()
    """Messages of this queue that other members delivered before this member was admitted."""

    def __init__(self, me: int) -> None:
        self._me = me
        self.delivered = 0
        """How many messages were delivered: by the protocol, or broadcast by this member with the setting
        `own`."""
        self.unacked: deque[Delivery] = deque()
        """Delivered messages that the application has not acknowledged."""
        self.attempts = 0
        """How many times the first unacked message was yielded, by this process and its predecessors."""
        self.uncertain_until = 0
        """Messages up to this position may have been yielded before a power failure."""
        self.untaken_own_bytes = 0
        """Bytes of this member's own messages that were not yet yielded to its application."""
        self.parked: dict[int, ParkedDelivery] = {}
        """Parked messages, by position."""
        self.parked_bytes = 0
        self.parking = 0
        """The position of a message whose parking is not durable yet: until then nothing is delivered."""

    @property
    def acked(self) -> int:
        """How many messages the application has processed."""
        return self.delivered - len(self.unacked)

    @property
    def is_idle(self) -> bool:
        """Whether the application has processed everything that was delivered."""
        return not self.unacked

    @property
    def cursor(self) -> Cursor:
        """The application's progress as the journal records it, so that a restart resumes at the right
        message."""
        return Cursor(self.acked, self.attempts)

    @property
    def deliveries(self) -> int:
        """How many times the message in flight was delivered, as far as known."""
        if self.uncertain_until and self.acked < self.uncertain_until:
            return max(self.attempts, 2)
        return self.attempts

    def is_own(self, delivery: Delivery) -> bool:
        """Whether this member has broadcast a message itself."""
        return delivery.message[0] == self._me

    def add(self, delivery: Delivery) -> None:
        """A message is delivered."""
        self.delivered += 1
        self.unacked.append(delivery)

    def add_own(self, delivery: Delivery) -> None:
        """This member has broadcast a message, which is delivered to its own application too."""
        self.add(delivery)
        self.untaken_own_bytes += len(delivery.payload) + ENTRY_BYTES

    def take_own(self, delivery: Delivery) -> None:
        """One of this member's own messages is yielded to the application for the first time."""
        self.untaken_own_bytes -= len(delivery.payload) + ENTRY_BYTES

    def ack(self) -> None:
        """The application has processed the message in flight, if there is one."""
        if self.attempts and not self.parking:
            self.unacked.popleft()
            self.attempts = 0

    def park(self, event: Parked) -> None:
        """The application parks a message."""
        delivery = self.unacked[event.position - self.acked - 1]
        self.parked[event.position] = ParkedDelivery(delivery, event.attempts, event.reason, event.time)
        self.parked_bytes += len(delivery.payload) + ENTRY_BYTES
        self.parking = event.position

    def unpark(self, position: int) -> None:
        """The application has processed a parked message."""
        if (parked := self.parked.pop(position, None)) is not None:
            self.parked_bytes -= len(parked.delivery.payload) + ENTRY_BYTES

    def resume_parked(self, parked: Mapping[int, ParkedDelivery]) -> None:
        """Restore the messages that were parked before a restart."""
        self.parked = dict(parked)
        self.parked_bytes = sum(len(each.delivery.payload) + ENTRY_BYTES for each in parked.values())

    def finish_parking(self, position: int) -> None:
        """A message's parking is durable."""
        if position == self.parking:
            self.parking = 0
            self.ack()

    def resume(self, acked: int, attempts: int) -> None:
        """Restore the application's progress from before a restart."""
        while self.acked < acked:
            self.unacked.popleft()
        self.attempts, self.parking = attempts, 0
        untaken = list(self.unacked)[attempts > 0 :]
        own = [each for each in untaken if self.is_own(each)]
        self.untaken_own_bytes = sum(len(each.payload) + ENTRY_BYTES for each in own)
