"""Deliveries of a process in a dynamic group, and its log.

Unlike with a fixed list of members, a delivery may send packets: delivering a removal sends a report of what
is held. Such a poll is logged at once, and its message is yielded when the record is durable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from antecede.causality import MessageId
from antecede.live.addressing import is_for
from antecede.live.changing.backfill import BackfillCore
from antecede.live.changing.causes import Causes, causes_of, follow
from antecede.live.changing.readability import Readability
from antecede.live.changing.reporting import ReportSchedule
from antecede.live.changing.trace_rows import TraceRows
from antecede.live.envelope import PHONE_ORIGINS, unwrap
from antecede.live.events import Delivered, DeliveryAcked, LogRecord, Parked, Unparked
from antecede.live.trace_rows import DELIVER, TraceBuffer
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, RemoteError

if TYPE_CHECKING:
    from antecede.live.changing.secrecy import Secrecy

_NOT_IN_GROUP = (Phase.OUTSIDE, Phase.JOINING, Phase.REMOVED)


class DeliveringCore(BackfillCore):
    """Records are logged in batches, one per `Ready`. A message is yielded when everything it depends on is
    durable."""

    has_phones = False
    """Whether the group may have phones. Then applications see no causes: phones exchange bits instead."""

    secrecy: Secrecy | None = None
    """Set in a group that is encrypted end to end."""

    def __init__(self, kind: type[ChangingMember], name: str, durable: bool, traced: bool) -> None:
        super().__init__(kind, name)
        self.is_durable, self.is_traced = durable, traced
        self.trace = TraceBuffer(0 if durable else sys.maxsize)
        self.trace_rows = TraceRows(self, self.trace)
        self.time = self.polls = 0
        """The last time in the log, and the number of polls that changed anything."""
        self.invalid: list[str] = []
        """Why messages were not yielded to the application; to be taken by the driver."""
        self.reports = ReportSchedule()
        self.on_idle: Callable[[], None] | None = None
        """Called when a process is to be admitted and the application asks for its next message."""
        self._records: list[LogRecord] = []
        self._logged_polls = 0
        self._next_number, self._persisted = int(durable), 0
        self._arrived: dict[MessageId, int] = {}
        """For undelivered messages: the number of the `Ready` that makes their packet durable."""
        self._unblocking_number = 0
        """The same for anything else that may have unblocked held messages."""

    def next_delivery(self, now: int, acks: bool) -> Delivery | None:
        """The application asks for a message: the one in flight again, unless this call `acks` it.

        None if there is no message that a replay after a crash would deliver again, and while a process is to
        be admitted first.
        """
        queue = self.application
        if acks:
            queue.ack()
        while (delivery := self._next(now)) is not None:
            if self._waits_for_key(delivery):
                if not self.poll(now):
                    return None
            elif self._is_for_others(delivery):
                queue.attempts = 1
                if queue.is_own(delivery):
                    queue.take_own(delivery)
                queue.ack()
            else:
                break
        if delivery is None:
            return None
        queue.attempts += 1
        if queue.attempts == 1 and queue.is_own(delivery):
            queue.take_own(delivery)
        return delivery

    def _is_for_others(self, delivery: Delivery) -> bool:
        queue = self.application
        if self.secrecy is not None and self.secrecy.readability(delivery) is Readability.SKIP:
            return True
        return not (queue.attempts or queue.is_own(delivery) or is_for(delivery.payload, self.called))

    def _waits_for_key(self, delivery: Delivery) -> bool:
        return self.secrecy is not None and self.secrecy.readability(delivery) is Readability.WAIT

    def _next(self, now: int) -> Delivery | None:
        """The next message for the application, if it may be yielded now."""
        queue = self.application
        if not queue.attempts and self.phase in _NOT_IN_GROUP:
            return None  # this process is about to become another member
        if self.takes_snapshot:
            return None  # the snapshot must not contain part of what follows
        if not queue.unacked:
            if self.on_idle is not None and self.may_sponsor:
                self.on_idle()
            is_paused = self.wants_snapshot and not self.member.undelivered
            if is_paused or not self.is_started or not self._deliver_one(now):
                return None
        position = queue.acked + 1
        if self.is_durable and (queue.parking or self._numbers.get(position, 0) > self._persisted):
            return None
        self._numbers.pop(position, None)
        return queue.unacked[0]

    def _deliver_one(self, now: int) -> bool:
        """Deliver until there is a message for the application, or nothing more is deliverable."""
        while not self.application.unacked:
            if not self.poll(now):
                return False
        return True

    def poll(self, now: int) -> bool:
        """Ask the member for a delivery; returns whether anything has changed."""
        if self.phase != Phase.MEMBER:
            return False
        if self.has_backfill:
            self._deliver_backfill()
            return True
        member = self.member
        before, count = member.deliveries, len(member.undelivered)
        try:
            delivery = member.deliver(now)
        except RemoteError as error:
            # Its content is invalid: every member counts it as delivered and skips it.
            self.invalid.append(str(error))
            delivery = None
        if delivery is None and member.deliveries == before and len(member.undelivered) == count:
            return False
        self.polls += 1
        effects = member.pending_effects(now)
        is_simple = member.deliveries == before + 1 and not effects.sends
        if delivery is not None and is_simple and delivery.message not in member.originals:
            number = max(self._unblocking_number, self._take_arrived(delivery.message))
        else:
            self.log_polls(now)
            number = self._next_number
        self._carry_out(member.me, effects)
        self._after(member)
        if delivery is not None:
            self._deliver(delivery, number, now)
        return True

    def _deliver_backfill(self) -> None:
        """Deliver a message of the backfill, which the welcome has made durable."""
        self.polls += 1
        queue, delivery = self.application, self.take_backfill()
        if not self.has_phones:
            follow(self.causes, delivery.message, delivery.causes or {})
        queue.add(delivery)
        self._numbers[queue.delivered] = self._unblocking_number
        if self.secrecy is not None:
            self.secrecy.observe(delivery)

    def _take_arrived(self, message: MessageId) -> int:
        """The number of the `Ready` that makes a message durable, or a later one."""
        if message in self._arrived:
            return self._arrived.pop(message)
        # A message of another super peer's phone arrived under another id.
        return max(self._arrived.values(), default=0) if message.origin >= PHONE_ORIGINS else 0

    def _deliver(self, delivery: Delivery, number: int, now: int) -> None:
        if not self.has_phones and delivery.message in self.member.originals:
            self.labels.learn_author(delivery.message.origin, unwrap(delivery.payload).author)
        if self.is_traced:
            self.trace_rows.add(DELIVER, delivery.message, now)
        named: Causes = {}
        if not self.has_phones:
            order, is_copy = self.member.order, delivery.message in self.member.originals
            named = causes_of(delivery, is_copy, order.carries_immediate_dependencies)
            follow(self.causes, delivery.message, named)
            if len(self.causes) > 2 * len(order.delivered):  # nothing was broadcast for a while
                self.causes = {peer: seq for peer, seq in self.causes.items() if peer in order.delivered}
        if named is not delivery.causes:
            delivery = Delivery(delivery.message, delivery.payload, named)
        queue = self.application
        queue.add(delivery)
        self.reports.bytes += len(delivery.payload)
        self._numbers[queue.delivered] = number
        self.add_to_history(delivery, now)
        if self.secrecy is not None:
            self.secrecy.observe(delivery)

    def _on_delivery_acked(self, event: DeliveryAcked) -> None:
        self.application.ack()

    def _on_parked(self, event: Parked) -> None:
        self._log(event)
        self.application.park(event)
        if not self.is_durable:
            self.application.finish_parking(event.position)

    def _on_unparked(self, event: Unparked) -> None:
        self._log(event)
        self.application.unpark(event.position)

    # The log

    def _log(self, record: Any) -> None:
        if self.is_durable and not self.is_replaying:
            self.log_polls(record.time)
            self._records.append(record)
        self.time = max(self.time, record.time)

    def log_polls(self, now: int) -> None:
        """Record the number of polls, if it has changed: replay depends on it."""
        if self.is_durable and not self.is_replaying and self.polls != self._logged_polls:
            self._records.append(Delivered(self.polls, now))
        self._logged_polls = self.polls

    def resume_polls(self, polls: int) -> None:
        self.polls = self._logged_polls = polls

    def log_deliveries(self, now: int) -> None:
        """Make rows of the trace durable; the driver calls it as with a fixed list."""
        self.log_polls(now)
