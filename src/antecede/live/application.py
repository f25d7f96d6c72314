"""The application's side of a core: what was delivered to it, and what it has done with that.

Deliveries have *positions*, from 1, in the order in which this member delivers. The application is given the
first that it has not acknowledged, again and again until it acknowledges it or puts it aside. How far it is,
the *cursor*, is persisted before it is given a message.
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
    """A message that the application has put aside."""

    delivery: Delivery
    attempts: int
    """How many times it was delivered."""
    reason: str
    time: int


class ApplicationQueue:
    """Deliveries to the application of member `me`."""

    past: Collection[MessageId] = ()
    """Those of the messages below that were delivered elsewhere before this member was admitted."""

    def __init__(self, me: int) -> None:
        self._me = me
        self.delivered = 0
        """How many messages are delivered: by the protocol, or broadcast here by a member with `own`."""
        self.unacked: deque[Delivery] = deque()
        """Those of them that the application has not acknowledged."""
        self.attempts = 0
        """How many times the application was given the first of them, by this process and those before."""
        self.uncertain_until = 0
        """Messages up to this position may have been yielded before a power failure."""
        self.untaken_own_bytes = 0
        """Bytes of this member's own messages that its application has not been given."""
        self.parked: dict[int, ParkedDelivery] = {}
        """Messages that the application has put aside, by position."""
        self.parked_bytes = 0
        self.parking = 0
        """The position of one that is not put aside durably yet: nothing is delivered meanwhile."""

    @property
    def acked(self) -> int:
        """How many messages the application has processed."""
        return self.delivered - len(self.unacked)

    @property
    def is_idle(self) -> bool:
        """Whether the application has processed all that was delivered."""
        return not self.unacked

    @property
    def cursor(self) -> Cursor:
        """What the journal must say of the application, so that a restart delivers the right message next."""
        return Cursor(self.acked, self.attempts)

    @property
    def deliveries(self) -> int:
        """How many times the message in flight was delivered, as far as that is known."""
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
        """This member has broadcast a message that is delivered to its own application too."""
        self.add(delivery)
        self.untaken_own_bytes += len(delivery.payload) + ENTRY_BYTES

    def take_own(self, delivery: Delivery) -> None:
        """The application is given one of this member's own messages for the first time."""
        self.untaken_own_bytes -= len(delivery.payload) + ENTRY_BYTES

    def ack(self) -> None:
        """The application has processed the message in flight, if there is one."""
        if self.attempts and not self.parking:
            self.unacked.popleft()
            self.attempts = 0

    def park(self, event: Parked) -> None:
        """The application puts a message aside."""
        delivery = self.unacked[event.position - self.acked - 1]
        self.parked[event.position] = ParkedDelivery(delivery, event.attempts, event.reason, event.time)
        self.parked_bytes += len(delivery.payload) + ENTRY_BYTES
        self.parking = event.position

    def unpark(self, position: int) -> None:
        """The application has processed a message that it had put aside."""
        if (parked := self.parked.pop(position, None)) is not None:
            self.parked_bytes -= len(parked.delivery.payload) + ENTRY_BYTES

    def resume_parked(self, parked: Mapping[int, ParkedDelivery]) -> None:
        """These were put aside before a restart."""
        self.parked = dict(parked)
        self.parked_bytes = sum(len(each.delivery.payload) + ENTRY_BYTES for each in parked.values())

    def finish_parking(self, position: int) -> None:
        """A message is put aside durably."""
        if position == self.parking:
            self.parking = 0
            self.ack()

    def resume(self, acked: int, attempts: int) -> None:
        """The application was here before a restart."""
        while self.acked < acked:
            self.unacked.popleft()
        self.attempts, self.parking = attempts, 0
        untaken = list(self.unacked)[attempts > 0 :]
        own = [each for each in untaken if self.is_own(each)]
        self.untaken_own_bytes = sum(len(each.payload) + ENTRY_BYTES for each in own)
