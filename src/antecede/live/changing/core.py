"""A member of a live group that changes, without clock, socket or disk: a `ChangingMember` and its links.

It has the shape of `live/core.py`, so the same driver, links and iterations run it: `step`, `ready`,
`advance`, and deliveries that are pulled. The member itself says what is stable and what is missing; here are
its links, its log and its application.

A process has an address for each of its attempts to join, and a member at each; packets travel on a link
between two addresses. One of the members is `member`, the current one; the others answer that nobody is
there.

Unlike with a fixed list, a delivery may send something: whoever delivers a removal reports what it holds.
Then the poll is logged at once, and its message is given to the application when that is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from antecede.causality import MessageId
from antecede.live.changing.events import (
    AttemptBegun,
    Declined,
    Founded,
    JoinAsked,
    LeaveAsked,
    LinkOpened,
    RemoveAsked,
    Reported,
    Sponsored,
    Started,
)
from antecede.live.changing.membership import MembershipCore
from antecede.live.changing.recovery import take_checkpoint
from antecede.live.changing.reporting import ReportSchedule
from antecede.live.envelope import Body, wrap
from antecede.live.events import (
    AckReceived,
    Broadcast,
    Delivered,
    DeliveryAcked,
    Event,
    LogRecord,
    Opened,
    PacketReceived,
    Parked,
    PartnerMet,
    Unparked,
)
from antecede.live.lineage import extend_lineage
from antecede.live.ready import Ready
from antecede.live.transport.frames import Packets
from antecede.live.transport.outbox import chain
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase, ViewChange
from antecede.protocols.base import Delivery, Effects, RemoteError


class ChangingCore(MembershipCore):
    """The process of the member `name`. `kind` is the protocol's class for groups that change."""

    def __init__(self, kind: type[ChangingMember], name: str, durable: bool = True, own: bool = True) -> None:
        super().__init__(kind, name)
        self.is_durable, self.delivers_own, self.is_traced = durable, own, False
        self.time = self.polls = 0
        """The last time in the log; how often a delivery was asked for, and that changed anything."""

        self.broadcasts = 0
        """How many messages the application has broadcast, as all incarnations together."""
        self.changes: list[ViewChange] = []
        """For the driver to take."""
        self.invalid: list[str] = []
        """What was wrong with messages that were not given to the application; for the driver to take."""
        self.reports = ReportSchedule()
        self.on_idle: Callable[[], None] | None = None
        """Called when somebody is to be admitted and the application asks for its next message."""

        self.is_replaying = False
        self._records: list[LogRecord] = []
        self._logged_polls = 0
        self._next_number, self._persisted = int(durable), 0
        self._arrived: dict[MessageId, int] = {}
        """For messages that are not delivered: the number of the `Ready` that makes their packet durable."""
        self._unblocking_number = 0
        """The same for whatever else may have unblocked held messages."""
        self._handlers = self._create_handlers()

    def _create_handlers(self) -> dict[type, Any]:
        return {
            Founded: self._on_founded,
            AttemptBegun: self._on_attempt,
            LinkOpened: self._on_link_opened,
            JoinAsked: self._on_join_asked,
            Sponsored: self._on_sponsored,
            Declined: self._on_declined,
            Started: self._on_started,
            Reported: self._on_reported,
            LeaveAsked: self._on_leave_asked,
            RemoveAsked: self._on_remove_asked,
            Broadcast: self._on_broadcast,
            PacketReceived: self._on_packet,
            AckReceived: self._on_ack,
            DeliveryAcked: self._on_delivery_acked,
            Parked: self._on_parked,
            Unparked: self._on_unparked,
            Opened: self._on_opened,
            PartnerMet: self._on_partner_met,
        }

    # What a driver calls

    def step(self, event: Event) -> None:
        """Something happened. A `RemoteError` leaves the member as it was."""
        handler = self._handlers.get(type(event))
        if handler is None:
            raise RemoteError(f"it sends a {type(event).__name__}, which groups that change do not have")
        handler(event)

    def broadcast(self, body: Body, now: int) -> MessageId:
        self._require_member()
        payload = wrap(body, self.own_is_cause, None)
        self.step(Broadcast([payload], now, self.delivers_own))
        return MessageId(self.me, self.member.order.delivered[self.me])

    @property
    def has_ready(self) -> bool:
        return bool(self._records or self.packets)

    def ready(self, checkpoint: bool = False) -> Ready:
        ready = Ready(
            number=self._next_number,
            records=() if checkpoint else self._records,
            checkpoint=take_checkpoint(self) if checkpoint else None,
            packets={
                link: Packets(self.sent[link] - len(bodies) + 1, bodies)
                for link, bodies in self.packets.items()
            },
            received=dict(self.received),
            received_chain=dict(self.received_chain),
            broadcasts=self.broadcasts,
            parked=self.application.parking,
        )
        if checkpoint:
            self._logged_polls = self.polls
        self._records, self.packets = [], {}
        self._next_number += self.is_durable
        return ready

    def advance(self, ready: Ready) -> None:
        """A `Ready` has been carried out."""
        self.durably_received.update(ready.received)
        self.durable_chain.update(ready.received_chain)
        if ready.number:
            self._persisted = ready.number
            self._arrived = {each: number for each, number in self._arrived.items() if number > ready.number}
        if ready.parked:
            self.application.finish_parking(ready.parked)

    @property
    def undelivered_bytes(self) -> int:
        return self.application.untaken_own_bytes

    # Broadcasting

    def _on_broadcast(self, event: Broadcast) -> None:
        self._require_member()
        self._log(event)
        member = self.member
        for payload in event.payloads:
            effects = member.broadcast(payload, event.time)
            self._carry_out(member.me, effects)
            self.broadcasts += 1
            self.own_is_cause = True
            if event.own and effects.message is not None:
                self.application.add_own(Delivery(effects.message, payload, None))
                self._numbers[self.application.delivered] = self._next_number
        self._after(member)

    # Receiving

    def _on_packet(self, event: PacketReceived) -> None:
        link, number, now = event.link, event.number, event.time
        before = self.received[link]
        if number != before + 1:
            if number <= before:
                return  # a duplicate
            raise RemoteError(f"packet {number} came after packet {before}")
        value = chain(self.received_chain[link], event.data)
        packet = self.kind.decode(event.data)
        self._log(event)
        self.received[link], self.received_chain[link] = number, value
        messages = packet.message_ids()
        if messages:
            self._arrived.update(dict.fromkeys(messages, self._next_number))
        else:
            self._unblocking_number = self._next_number
        mine, theirs = self.links[link]
        member = self.members[mine]
        was_member = member.phase == Phase.MEMBER
        try:
            effects = member.receive(theirs, packet, now)
        except RemoteError as error:
            self.rejected[link] = str(error)  # in the log as well: it may have had a part of its effect
            effects = Effects()
        if member.phase == Phase.MEMBER and not was_member:
            self._on_admitted(member, now)
        self._carry_out(mine, effects)
        self._after(member)

    def _on_opened(self, event: Opened) -> None:
        self._log(event)
        self.lineage = extend_lineage(self.lineage, event.id, self.broadcasts)

    def _on_partner_met(self, event: PartnerMet) -> None:
        self._log(event)
        self.partner_lineages[event.link] = event.lineage

    # Delivering

    def next_delivery(self, now: int, acks: bool) -> Delivery | None:
        """The application asks for a message: the one in flight again, unless this `acks` it.

        None if there is none that would be delivered again after a crash, and while somebody is to be
        admitted first.
        """
        queue = self.application
        if acks:
            queue.ack()
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
        queue.attempts += 1
        delivery = queue.unacked[0]
        if queue.attempts == 1 and delivery.message.origin == self.me:
            queue.take_own(delivery)
        return delivery

    def _deliver_one(self, now: int) -> bool:
        """Until there is a message for the application, or nothing more."""
        while not self.application.unacked:
            if not self.poll(now):
                return False
        return True

    def poll(self, now: int) -> bool:
        """Ask the member for a delivery; whether that has changed anything."""
        if self.phase != Phase.MEMBER:
            return False
        member = self.member
        before, count = member.deliveries, len(member.undelivered)
        try:
            delivery = member.deliver(now)
        except RemoteError as error:
            # Its content is none: it counts as delivered, here and at everyone.
            self.invalid.append(str(error))
            delivery = None
        if delivery is None and member.deliveries == before and len(member.undelivered) == count:
            return False
        self.polls += 1
        effects = member.pending_effects(now)
        is_simple = member.deliveries == before + 1 and not effects.sends
        if delivery is not None and is_simple and delivery.message not in member.originals:
            number = max(self._unblocking_number, self._arrived.pop(delivery.message, 0))
        else:
            self.log_polls(now)
            number = self._next_number
        if delivery is not None:
            self._deliver(delivery, number)
        self._carry_out(member.me, effects)
        self._after(member)
        return True

    def _deliver(self, delivery: Delivery, number: int) -> None:
        queue = self.application
        queue.delivered += 1
        queue.unacked.append(delivery)
        self._numbers[queue.delivered] = number
        if delivery.causes and delivery.causes.get(self.me) == self.member.order.delivered.get(self.me):
            self.own_is_cause = False

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

    # What every event leaves

    def _log(self, record: Any) -> None:
        if self.is_durable and not self.is_replaying:
            self.log_polls(record.time)
            self._records.append(record)
        self.time = max(self.time, record.time)

    def log_polls(self, now: int) -> None:
        """Record how often a delivery was asked for, if that has changed: what happens next depends on it."""
        if self.is_durable and not self.is_replaying and self.polls != self._logged_polls:
            self._records.append(Delivered(self.polls, now))
        self._logged_polls = self.polls

    def resume_polls(self, polls: int) -> None:
        self.polls = self._logged_polls = polls

    def _after(self, member: ChangingMember) -> None:
        """There is a link to every member of the view, and changes are noted."""
        changes = member.take_changes()
        if changes or member.phase == Phase.LEAVING:  # which learns of members that it never knew
            self.link_to_view(member)
        if member.me == self.address and not self.is_replaying:
            self.changes += changes


class Labels(Mapping[int, str]):
    """What applications call the incarnations that a core knows."""

    def __init__(self, core: ChangingCore) -> None:
        self._core = core

    def __getitem__(self, stream: int) -> str:
        return self._core.label(stream)

    def __iter__(self) -> Any:
        return iter(self._core.member.contacts)

    def __len__(self) -> int:
        return len(self._core.member.contacts)
