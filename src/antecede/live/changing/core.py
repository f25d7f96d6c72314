"""A member of a dynamic live group, without clock, socket or disk: a `ChangingMember` and its links.

It has the shape of `live/core.py`, so the same driver, links and iterations run it: `step`, `ready`,
`advance`, and deliveries that are pulled. The member itself knows what is stable and what is missing; the
core adds its links, its log and its application.

A process has an address for each of its attempts to join, and a member at each; packets travel on a link
between two addresses. One of these members is current (`member`); the others answer that nobody is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from antecede.causality import MessageId
from antecede.live.changing.causes import Causes, split_own
from antecede.live.changing.delivering import DeliveringCore
from antecede.live.changing.events import (
    Abandoned,
    Aged,
    AttemptBegun,
    Declined,
    Dropped,
    Founded,
    JoinAsked,
    LeaveAsked,
    LinkOpened,
    PartnerGone,
    ReadingBegun,
    ReadingKeyMade,
    RemoveAsked,
    Reported,
    RoutesChanged,
    Signed,
    Sponsored,
    Started,
    TransferBegun,
)
from antecede.live.changing.history import HistoryBatch
from antecede.live.changing.recovery import take_checkpoint
from antecede.live.changing.report_deltas import ReportRequest, apply_delta, decode, is_ours
from antecede.live.changing.seals import LiarLinks, StreamSeals, StreamSignatures
from antecede.live.changing.secret_messages import is_about_keys
from antecede.live.envelope import Body, wrap
from antecede.live.events import (
    AckReceived,
    Broadcast,
    CertificateLearned,
    DeliveryAcked,
    Equivocated,
    Event,
    KeyStarted,
    Opened,
    PacketReceived,
    Parked,
    PartnerMet,
    Unparked,
)
from antecede.live.headers import NOTHING, About
from antecede.live.lineage import extend_lineage
from antecede.live.ready import Ready
from antecede.live.seals import RevokedKeyError
from antecede.live.trace_rows import (
    SEND,
)
from antecede.live.transport.frames import Packets
from antecede.live.transport.outbox import chain, is_skipped, skip
from antecede.membership.member import ChangingMember
from antecede.membership.packets import ProgressReport
from antecede.membership.state import Phase, ViewChange
from antecede.protocols.base import Delivery, Effects, LocalError, Packet, RemoteError

if TYPE_CHECKING:
    from antecede.live.changing.secrecy import Secrecy

_DEPARTURES = ("leave", "remove", "disown")
_MANY_MEMBERS = 1 << 63
"""Stream ids and the number of a member's certificates are not bounded."""


class ChangingCore(DeliveringCore):
    """The process of the member `name`. `kind` is the protocol's class for dynamic groups."""

    is_phone_core = False

    def __init__(
        self,
        kind: type[ChangingMember],
        name: str,
        durable: bool = True,
        own: bool = True,
        traced: bool = False,
    ) -> None:
        super().__init__(kind, name, durable, traced)
        self.delivers_own = own
        self.sealing: StreamSeals = StreamSeals(self)
        self.statements = self.receiver = self.sealing
        self.equivocators = LiarLinks(self)
        self.broadcasts = 0
        """How many messages the application has broadcast, over all incarnations."""
        self.last_broadcast = MessageId(-1, 0)
        self.changes: list[ViewChange] = []
        """To be taken by the driver."""
        self._saved: set[int] = set()
        """The part of `replayed` that becomes unnecessary with the checkpoint being written."""
        self._handlers = self._create_handlers()

    def _create_handlers(self) -> dict[type, Any]:
        return {
            Founded: self._on_founded,
            AttemptBegun: self._on_attempt,
            Abandoned: self._on_abandoned,
            LinkOpened: self._on_link_opened,
            JoinAsked: self._on_join_asked,
            Sponsored: self._on_sponsored,
            TransferBegun: self._on_transfer_begun,
            Declined: self._on_declined,
            ReadingKeyMade: self._on_reading,
            ReadingBegun: self._on_reading,
            Started: self._on_started,
            Reported: self._on_reported,
            LeaveAsked: self._on_leave_asked,
            RemoveAsked: self._on_remove_asked,
            RoutesChanged: self._on_routes_changed,
            PartnerGone: self._on_partner_gone,
            Dropped: self._on_dropped,
            Aged: self._on_aged,
            Broadcast: self._on_broadcast,
            PacketReceived: self._on_packet,
            AckReceived: self._on_ack,
            DeliveryAcked: self._on_delivery_acked,
            Parked: self._on_parked,
            Unparked: self._on_unparked,
            Opened: self._on_opened,
            PartnerMet: self._on_partner_met,
            Signed: self.sealing.on_signed,
            KeyStarted: self.sealing.on_key_started,
            CertificateLearned: self._on_certificate,
            Equivocated: self._on_equivocated,
        }

    def use_signatures(self, signatures: StreamSignatures) -> None:
        """Sign what this process broadcasts, and accept only signed messages from others."""
        self.signatures, self.size = signatures, _MANY_MEMBERS
        self.sealing.use(signatures)

    # Called by a driver

    def step(self, event: Event) -> None:
        """Handle an event. A `RemoteError` leaves the member as it was."""
        handler = self._handlers.get(type(event))
        if handler is None:
            raise RemoteError(f"it sends a {type(event).__name__}, which dynamic groups do not use")
        handler(event)
        if self.secrecy is not None:
            self.secrecy.note(event)

    def may_leave(self, now: int) -> bool:
        """Whether this member may leave now, as it has been asked to."""
        owes_keys = self.secrecy is not None and self.secrecy.owes_keys
        return self.phase == Phase.MEMBER and self.member.may_leave() and not owes_keys

    def broadcast(self, body: Body, now: int, about: About = NOTHING) -> MessageId:
        self._require_member()
        if self.secrecy is not None and about.seal is None:
            while self.delivers_own and self._has_own_copies and self.poll(now):
                pass  # as in `_on_broadcast`; must precede the choice of recipients
            about = self.secrecy.encrypting(about)
        self.step(Broadcast([self.wrap(body, now, about)], now, self.delivers_own))
        return self.last_broadcast

    def wrap(self, body: Body, now: int = 0, about: About = NOTHING) -> bytes:
        order = self.member.order
        known = order.delivered
        follows, causes = split_own(self.causes, self.me, known[self.me] + 1, known)
        named: Causes | None = causes
        if order.carries_immediate_dependencies and named == order.causes:
            named = None  # the packet names them
        return wrap(body, follows, named, "", now, about)

    def _own_causes(self, before: Causes, seq: int) -> Causes:
        return {} if self.has_phones else split_own(before, self.me, seq, self.member.order.delivered)[1]

    @property
    def pending_number(self) -> int:
        """The number of the `Ready` that will make durable all that has happened so far."""
        return self._next_number

    def is_persisted(self, number: int) -> bool:
        return self._persisted >= number or not self.is_durable

    @property
    def has_ready(self) -> bool:
        has_history = bool(self.members) and self.keeps_history and self.history.has_unwritten
        return bool(self._records or self.packets) or has_history

    def ready(self, checkpoint: bool = False) -> Ready:
        batch = self._take_history(checkpoint)
        if self.is_traced or batch is not None:
            self.log_polls(self.time)  # so that a replay yields all rows and all of the history up to here
        if self.is_traced:
            self.trace_rows.forget_names()
        ready = Ready(
            number=self._next_number,
            records=() if checkpoint else [*self.sealing.take_unlogged(self.time), *self._records],
            checkpoint=take_checkpoint(self) if checkpoint else None,
            packets={
                link: Packets(self.sent[link] - len(bodies) + 1, bodies)
                for link, bodies in self.packets.items()
            },
            received={link: self.received[link] for link in self.arrivals},
            received_chain={link: self.received_chain[link] for link in self.arrivals},
            broadcasts=self.broadcasts,
            parked=self.application.parking,
            trace_length=self.trace.length,
            history=batch,
        )
        if checkpoint:
            self._logged_polls = self.polls
            self.reported.clear()
            self._saved = self.replayed - ({self.address} if self.has_backfill else set())
            self.sealing.take_unlogged(self.time)  # the checkpoint contains them
        self._records, self.packets, self.arrivals = [], {}, set()
        self._next_number += self.is_durable
        return ready

    def advance(self, ready: Ready) -> None:
        """A `Ready` has been carried out."""
        if ready.history is not None:
            if not self.is_durable:
                ready.history.write()
            ready.history.confirm()
        if ready.checkpoint is not None:
            self.replayed -= self._saved
        for link in self.links.keys() & ready.received.keys():
            self.durably_received[link] = ready.received[link]
            self.durable_chain[link] = ready.received_chain[link]
        self.trace.durable = max(self.trace.durable, ready.trace_length)
        self.touched.update(self.links.keys() & {*ready.packets, *ready.received})
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
        member = self.member
        while event.own and self._has_own_copies and self.poll(event.time):
            pass  # messages that this member has brought back precede its new ones, here and everywhere
        self._log(event)
        for payload in event.payloads:
            effects = member.broadcast(payload, event.time)
            before, self.causes = self.causes, {}
            self.last_broadcast = origin, seq = cast("MessageId", effects.message)
            if self.is_traced:
                packet = next((send.packet for send in effects.sends), None)
                control = 0 if packet is None else len(self.kind.encode(packet)) - len(payload)
                self.trace_rows.add(
                    SEND, self.last_broadcast, event.time, control, len(payload), causes=before
                )
            self._carry_out(member.me, effects)
            self.broadcasts += not is_about_keys(payload)
            self.causes[origin] = seq
            named = self._own_causes(before, seq)
            delivery = Delivery(self.last_broadcast, payload, named)
            self.add_to_history(delivery, event.time)
            if self.secrecy is not None:
                self.secrecy.observe(delivery, is_own=True)
            if event.own:
                self.give_own(delivery)
        self._after(member)

    def give_own(self, delivery: Delivery) -> None:
        """Deliver one of this member's own messages to the application."""
        self.application.add_own(delivery)
        self._numbers[self.application.delivered] = self._next_number

    @property
    def _has_own_copies(self) -> bool:
        """Whether messages that this member has brought back are not delivered here yet."""
        return bool(self.member.undelivered)

    def _take_history(self, checkpoint: bool) -> HistoryBatch | None:
        """What is to be written before the journal; made durable if the checkpoint discards the records
        behind it."""
        if not self.members:
            return None
        batch = self.history.take_batch(self.is_durable and (checkpoint or self._syncs_history))
        self._syncs_history = False
        return batch

    # Receiving

    def _on_packet(self, event: PacketReceived) -> None:
        link, number, now = event.link, event.number, event.time
        if link not in self.links:
            return  # the link was dropped because of a previous packet
        before = self.received[link]
        if number != before + 1:
            if number <= before:
                return  # a duplicate
            raise RemoteError(f"packet {number} came after packet {before}")
        value = chain(self.received_chain[link], event.data)
        if is_skipped(event.data):
            self._log(event)
            self._note_packet(link, number, value)
            return
        packet = self._decode(link, event.data)
        try:
            self.check_packet(link, packet, now)
        except RevokedKeyError:
            # The member that forwards it accepted it before it could know. Record the packet without its
            # messages.
            self.step(PacketReceived(link, number, skip(value), now))
            return
        if self.lacks_state(link, packet):
            self.step(Abandoned(self.links[link][0], now))  # so greetings are answered that nobody is there
        self._log(event)
        self._note_request(link, packet)
        self._note_packet(link, number, value)
        if isinstance(packet, ReportRequest):
            self.reports.is_asked = True
            return
        if isinstance(packet, ProgressReport):
            self._hear_report(link, packet)
        messages = packet.message_ids()
        if messages and self.is_durable:
            self._arrived.update(dict.fromkeys(messages, self._next_number))
        else:
            self._unblocking_number = self._next_number
        mine, theirs = self.links[link]
        member = self.members[mine]
        if self.is_traced and member.phase == Phase.MEMBER and mine == self.address:
            self.trace_rows.add_received(messages, theirs, now)
        was_member = member.phase == Phase.MEMBER
        try:
            effects = member.receive(theirs, packet, now)
        except RemoteError as error:
            self.rejected[link] = str(error)  # logged as well: part of the packet may have taken effect
            effects = Effects()
        if member.phase == Phase.MEMBER and not was_member:
            self._on_admitted(member, now)
        self._carry_out(mine, effects)
        self._after(member)

    def _hear_report(self, link: int, report: ProgressReport) -> None:
        self.reports.hear(self.reports_heard.get(link), report)
        self.reports_heard[link] = report

    def _decode(self, link: int, data: bytes) -> Packet:
        if not is_ours(data):
            return self.kind.decode(data)
        packet = decode(data)
        if isinstance(packet, ReportRequest):
            return packet
        return apply_delta(self.reports_heard.get(link), packet)

    def _note_packet(self, link: int, number: int, value: bytes) -> None:
        self.received[link], self.received_chain[link] = number, value
        if self.is_durable:
            self.arrivals.add(link)
        else:
            self.durably_received[link], self.durable_chain[link] = number, value

    def check_packet(self, link: int, packet: Packet, now: int) -> None:
        """Raise a `RemoteError` if the other end may not send this packet."""
        if packet.since > self.speaks:
            raise RemoteError(
                f"it sends a {type(packet).__name__} of version {packet.since} of the wire format, "
                f"and {self.name} speaks {self.speaks}"
            )
        self.sealing.check(link, packet, now)

    def _on_certificate(self, event: CertificateLearned) -> None:
        if self.sealing.learn(event.certificate):
            self._log(event)

    def _on_equivocated(self, event: Equivocated) -> None:
        self._log(event)
        self.sealing.liars[event.origin] = event.statements

    def _on_opened(self, event: Opened) -> None:
        self._log(event)
        for record in self.sealing.own_certificates(event.time):
            self._log(record)
        self.lineage = extend_lineage(self.lineage, event.id, self.broadcasts)
        self.speaks = event.speaks
        for member in self.members.values():
            member.speaks = event.speaks

    def _on_partner_met(self, event: PartnerMet) -> None:
        self._log(event)
        self.partner_lineages[event.link] = event.lineage
        self.void.discard(event.link)  # a process answers there after all
        mine, theirs = self.links[event.link]
        self._carry_out(mine, self.members[mine].meet(theirs, event.version))

    def _tell_secrecy(self, change: ViewChange, secrecy: Secrecy) -> None:
        contact = self.contact_of(change.member)
        address = 0 if contact is None else contact.address
        if change.kind == "admit":
            secrecy.note_admission(address)
        else:
            secrecy.note_change(address if change.kind in _DEPARTURES else 0)

    def _on_reading(self, event: ReadingKeyMade | ReadingBegun) -> None:
        if self.secrecy is None:
            raise LocalError("this group is not encrypted")
        self._log(event)
        self.secrecy.begin(event)

    # After every event

    def _after(self, member: ChangingMember) -> None:
        """Open links to all members of the view, and record its changes."""
        changes = member.take_changes()
        if changes or member.phase == Phase.LEAVING:  # which may learn of members it never knew
            self.link_to_view(member)
            self.touched.update(self.received)
        if member.me == self.address:
            if changes or member.forgets != self.forgets:
                self.sealing.follow(member)
            self.drop_links_of_forgotten(member)
            if self.transfers or self.wants_history:
                self._forget_requests(member)
            for change in changes:
                if change.kind == "admit":
                    self.since[change.member] = self.time
                if self.secrecy is not None:
                    self._tell_secrecy(change, self.secrecy)
                if self.is_traced:
                    self.trace_rows.add_change(change, self.time)
            if len(self.since) > 2 * len(member.addresses):
                self.since = {each: since for each, since in self.since.items() if each in member.addresses}
            if not self.is_replaying:
                self.changes += changes
