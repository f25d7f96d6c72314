"""A member of a dynamic group, without clock, socket or disk.

Changes are causally ordered messages. A member's *view* is a function of the messages that it has delivered:
admitted, minus left, minus removed. There is no coordinator, and nobody stops broadcasting.

The member wraps a protocol of a fixed group (`order`), which keeps causal order among streams and is notified
of the view. Links must be reliable and FIFO. A driver treats a member like any other protocol. In addition it

- passes `join`, `leave`, `remove`, `suspect` and `trust`, and calls `report` now and then;
- when a process asks to be admitted (`requests`), calls `sponsor` with the application's state;
- gives the application `take_snapshot()` of a new member before anything else is delivered to it;
- sends what `pending_effects` returns after each delivery, and may look at `changes`.
"""

from __future__ import annotations

import contextlib
from typing import Self

from antecede.causality import MessageId
from antecede.membership.leaving import LeavingMember
from antecede.membership.packets import (
    AdmitMember,
    ApplicationData,
    Content,
    ControlPacket,
    Departure,
    Disowning,
    Expulsion,
    Farewell,
    FetchReply,
    FetchRequest,
    FlushReport,
    JoinRequest,
    NobodyHere,
    ProgressReport,
    Removal,
    RemovedNotice,
    Stream,
    VersionRequired,
    Welcome,
    decode_content,
    is_sent_directly,
)
from antecede.membership.senders import check_sender
from antecede.membership.state import Phase
from antecede.membership.view_flooding import UNNUMBERED, LinkRequest, UnnumberedPacket
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    LocalError,
    Packet,
    RemoteError,
    Send,
    Waiting,
)

_NAMING = (ProgressReport, LinkRequest, UnnumberedPacket)
"""Packets that name their sender, which the receiver may not know by its address yet."""


class ChangingMember(LeavingMember, kw_only=True):
    """A member as drivers see it."""

    # Creating members

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.founders(size, size)

    @classmethod
    def founders(cls, founders: int, size: int) -> list[Self]:
        """The processes at `size` addresses, of which the first are members from the start."""
        members = [cls.founder(me, list(range(founders)), size) for me in range(founders)]
        return members + [cls.outsider(me, size) for me in range(founders, size)]

    @classmethod
    def founder(cls, me: Stream, addresses: list[int], size: int) -> Self:
        """One of the first members, which are at these addresses."""
        member = cls(
            me=addresses[me],
            size=size,
            stream=me,
            addresses=dict(enumerate(addresses)),
            stream_at={address: stream for stream, address in enumerate(addresses)},
            order=cls.ordering(me, len(addresses), is_open=True),
        )
        member._announce_view()
        return member

    @classmethod
    def outsider(cls, me: int, size: int) -> Self:
        """A process that is not a member."""
        order = cls.ordering(0, 1, is_open=True)
        return cls(me=me, size=size, phase=Phase.OUTSIDE, stream=-1, addresses={}, order=order)

    # What the application does

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        if not self.is_member:
            raise LocalError("only a member can broadcast")
        content = ApplicationData(payload)
        message = self._broadcast(content, now)
        self._on_application(content, message, {})
        return self._effects(message)

    def remove(self, stream: Stream, now: int) -> Effects:
        """Remove a member from the group. If that member has left, it is down: do not wait for its last
        packets. If this member has left itself, the other is down: do not wait until it has everything."""
        if self.phase == Phase.LEAVING:
            self.ended.add(stream)
            self._go_if_possible()
        elif self.is_member and (stream in self.addresses or stream in self.progress.coming):
            if stream in self.addresses:
                self._remove(stream, now)
            else:
                self._stop_waiting_for(stream)
            self._update(now)
        return self._effects()

    def suspect(self, stream: Stream, now: int) -> Effects:
        """A member is suspected: prefer others where that is possible."""
        if self.is_member and stream in self.addresses:
            self._send_again(self.order.suspect(stream))
        return self._effects()

    def trust(self, stream: Stream, now: int) -> Effects:
        """A suspected member is up after all."""
        items = self.order.trust(stream)
        if self.is_member:
            self._send_again(items)
        return self._effects()

    def take_snapshot(self) -> bytes | None:
        """The state for the application of a new member, once."""
        snapshot, self.snapshot = self.snapshot, None
        return snapshot

    # Delivering

    def deliver(self, now: int) -> Delivery | None:
        """The next message for the application. Membership messages before it take effect."""
        while self.is_member and not self.undelivered:
            if not self._deliver_in_order(now):
                return None
        return self.undelivered.pop(0) if self.is_member and self.undelivered else None

    def _deliver_in_order(self, now: int) -> bool:
        """Take the next message from the protocol; returns whether there was one."""
        delivery = self.order.deliver(now)
        if delivery is None:
            return False
        self.deliveries += 1
        origin, seq = delivery.message
        if seq != UNNUMBERED:
            self.unstable[origin][seq].place = self.deliveries
            if self.newcomers:
                self._forward_to_newcomers(delivery.message)
        self._take(decode_content(delivery.payload), delivery, now)
        self._update(now)
        return True

    def _take(self, content: Content, delivery: Delivery, now: int) -> None:
        """The protocol has delivered a message."""
        if not isinstance(content, ApplicationData):
            self._apply(content, delivery.message, now)
        elif content.original is not None and content.original.origin in self.addresses:
            # A member that brings back a message of a stream has delivered the removal of that stream's
            # member.
            raise RemoteError("a copy of a message whose author is a member")
        elif self._is_new(content.original):
            message, _ = self._identify(content, delivery.message)
            self.undelivered.append(Delivery(message, content.payload, delivery.causes))
            self._on_application(content, delivery.message, delivery.causes or {})

    def pending_effects(self, now: int) -> Effects:
        """The packets to send as a consequence of deliveries."""
        return self._effects() if self.outbox else NO_EFFECTS

    def _apply(self, content: Content, message: MessageId, now: int) -> None:
        match content:
            case AdmitMember():
                self._on_admission(content, message, now)
            case Departure():
                self._on_departure(content, message)
            case Removal():
                self._on_removal(content, message, now)
            case FlushReport():
                self.removals.flushes[message.origin] = content
                self.removals.hear(message.origin, content.cuts)
            case Disowning():
                self._on_disowning(content.stream, message)
            case ApplicationData() | Expulsion():
                pass  # super peers know of slots

    def waiting(self) -> list[Waiting]:
        held: list[Waiting] = self.order.waiting()
        return held

    # Receiving

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        """A packet from the process at an address, in any phase."""
        if isinstance(packet, Welcome):
            self._on_welcome(link, packet, now)
            before, self.before_welcome = self.before_welcome, []
            for source, data in before:
                early = self.decode(data)
                with contextlib.suppress(RemoteError):  # a lie by one does not suppress packets from others
                    if self.sealer.accepts(early):
                        self._receive_as_member(source, early, now)
        elif self.is_member or self.phase == Phase.LEAVING:
            self._receive_as_member(link, packet, now)
        elif self.phase == Phase.JOINING:
            self.before_welcome.append((link, self.encode(packet)))
        elif self._has_gone() and isinstance(packet, ProgressReport) and packet.has_left:
            self._answer_leaver(link)
        elif not isinstance(packet, NobodyHere | RemovedNotice | JoinRequest):
            self._answer_nobody(link)
        if self.is_member:
            self._update(now)
        return self._effects()

    def _receive_as_member(self, link: int, packet: Packet, now: int) -> None:
        if isinstance(packet, JoinRequest):
            if self.is_member and packet.address == link and self.speaks_with(link) >= self.requires:
                self.requests.append(link)
            return
        if isinstance(packet, VersionRequired):
            self._on_version_required(link, packet)
            return
        if isinstance(packet, RemovedNotice):
            self._on_removed_notice(link, packet)
            return
        check_sender(self.stream_at, self.addresses, link, packet)
        source = packet.member if isinstance(packet, _NAMING) else self.stream_at.get(link)
        if source is not None and (source in self.removals.removed or source in self.tombstones):
            end = self.ends.get(source, self.tombstones.get(source))
            if end is not None:
                self._send(link, self._answer_removed(source, end, packet))
        elif isinstance(packet, UnnumberedPacket):
            self._receive_unnumbered(packet, now)
        elif isinstance(packet, self.order.control_packets):
            if source in self.addresses:
                self._on_link_packet(source, packet)
            elif isinstance(packet, LinkRequest) and packet.member not in self.ends:
                if self.phase == Phase.LEAVING:
                    self._answer_stranger(link, packet)
                else:
                    self.early_requests[packet.member] = self.encode(packet)
                    self._refuse_void()
        elif self.phase == Phase.LEAVING:
            self._receive_after_leaving(link, packet, now)
        elif isinstance(packet, ControlPacket):
            self._receive_control(link, source, packet, now)
        else:
            self._receive_packet(link, source, packet, now)

    def _receive_unnumbered(self, packet: UnnumberedPacket, now: int) -> None:
        if not is_sent_directly(decode_content(packet.payload)):
            raise RemoteError("a message without a number that is not a report on removed streams")
        if not self.is_member or packet.member in self.ends:
            return
        is_known = packet.member in self.order.delivered
        if not is_known and any(map(self._is_beyond, map(MessageId._make, packet.causes.items()))):
            # Also if that stream is forgotten: no report waits for a forgotten one.
            self._refuse_stranger(packet.member)
        else:
            self.order.receive_directly(packet, now)
        if not is_known:
            self._refuse_void()

    def _answer_stranger(self, link: int, request: LinkRequest) -> None:
        """This member has left, and will never know the requester. If the requester was never admitted, the
        messages that it is missing may be stable, so that nobody retains them."""
        if any(map(self._is_beyond, request.admissions.values())):
            self._send(link, RemovedNotice(request.member, 0))
        else:
            self._supply_link(link, request)

    def _answer_removed(self, stream: Stream, end: int, packet: Packet) -> Packet:
        """A removed member that had left before, and has lost no messages, need not return."""
        if isinstance(packet, ProgressReport) and packet.has_left and packet.delivered.get(stream, 0) <= end:
            return self._confirmation(stream)
        return RemovedNotice(stream, end)

    def _receive_control(self, link: int, source: Stream | None, packet: ControlPacket, now: int) -> None:
        match packet:
            case ProgressReport():
                self._on_progress(link, packet)
            case FetchRequest():
                self._on_fetch(link, packet)
            case FetchReply():
                if source is not None and source in self.addresses:
                    self._on_fetched(source, packet, now)
            case NobodyHere():
                self._on_nobody(link, packet, now)
            case Farewell():
                self._on_farewell(packet.member)
            case _:
                pass  # it arrived too late

    def _on_progress(self, link: int, report: ProgressReport) -> None:
        member = report.member
        if report.has_left and (member in self.ends or self._is_forgotten(report)):
            self._send(link, self._confirmation(member))  # perhaps again: others may have ended since
            if member not in self.ends:
                for table in (self.early, self.early_requests, self.progress.pending):
                    table.pop(member, None)  # it did not know; every member has these messages
            return
        self.progress.receive(report)
        self.heard[member] = report.delivered
        if member not in self.order.delivered and any(map(self._is_beyond, report.admissions.values())):
            self._refuse_void()
        if member in self.addresses:
            self.removals.hear(member, report.closed)

    def _is_forgotten(self, report: ProgressReport) -> bool:
        """Whether the sender of a report was a member here and is forgotten. If not, it is not known yet."""
        delivered, member, seq = self.order.delivered, report.member, 0
        while member not in delivered:
            if member not in report.admissions:
                return True  # every member has known it
            member, seq = report.admissions[member]
            if member in self.tombstones:
                return seq <= self.tombstones[member]
            # If its sponsor is forgotten too, so is the message that admitted it.
        return bool(0 < seq <= delivered[member])

    # After each event

    def _update(self, now: int) -> None:
        if self.progress.pending:
            self.is_stale |= self.progress.apply(self.order.delivered, self.ends, self.admissions)
        if self.removals.removed:
            self._close_removed()
            if not self.is_member:
                return
        if self.is_stale:
            self._find_stable()
        if self.backlog.entries or self.backlog.admissions:
            self._rebroadcast_lost(now)
        if self.may_agree:
            self._agree()

    def report(self, now: int) -> Effects:
        """Report to others what is delivered here, and request messages that have been missing since the last
        report."""
        if self.is_member:
            report = self._report()
            if to := self._other_addresses():
                self.outbox.append(Send(to, report))
            self.progress.announced |= report.done
            self.is_stale = True
            self._fetch_lacking()
            if self.order.relays:
                self._drop_early()
            self._update(now)
        elif self.phase == Phase.LEAVING:
            # To everybody: awaited members may be down, and others know whether they were removed.
            others = tuple(sorted(self.addresses[each] for each in self.addresses if each != self.stream))
            self.outbox.append(Send(others, self._report()))
        return self._effects()

    def paper_bytes(self, packet: Packet) -> int:
        return 0 if isinstance(packet, ControlPacket) else int(self.order.paper_bytes(packet))
