"""A process's memberships in its group, past and present: it joins, admits, removes and leaves.

A process has an address for each of its attempts to join, and a member at each. The first welcome counts; at
its other addresses it answers that nobody is there.
"""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import Any

import msgspec

from antecede.causality import MessageId
from antecede.live.application import ApplicationQueue
from antecede.live.changing.causes import Causes
from antecede.live.changing.contact import Contact, contact_in, encode_contact
from antecede.live.changing.events import (
    Abandoned,
    AttemptBegun,
    Declined,
    Founded,
    JoinAsked,
    LeaveAsked,
    LinkOpened,
    RemoveAsked,
    Reported,
    RoutesChanged,
    Sponsored,
    Started,
)
from antecede.live.changing.labels import Labels
from antecede.live.changing.links import LinkTable
from antecede.live.changing.report_deltas import REPORT_REQUEST, ReportDelta, ReportRequest, encode_report
from antecede.live.changing.snapshots import encode_inline, inline_snapshot
from antecede.live.envelope import with_author
from antecede.live.versions import AUTHORS_SINCE, CHANGING_WIRE
from antecede.membership.backlog import Backlog
from antecede.membership.member import ChangingMember
from antecede.membership.packets import HistoryRequest, NobodyHere, ProgressReport, Stream
from antecede.membership.sealing import NO_SEALS, Sealer
from antecede.membership.state import Phase
from antecede.protocols.base import Effects, LocalError, RemoteError, Send

MAX_SNAPSHOT = 1 << 23
"""Bytes of a snapshot in a welcome, which is one packet, and so one frame."""
_MAX_RETAINED = 1 << 22
"""Nobody is admitted while the welcome would have to contain more retained bytes than this."""
_MAX_ATTEMPTS = 4
"""Requests for admission that may be open at a time; older ones are given up."""


class MemberQueue(ApplicationQueue):
    """Deliveries to the application of a process that is one member after another."""

    def __init__(self, me: int) -> None:
        super().__init__(me)
        self.past: set[MessageId] = set()

    def ack(self) -> None:
        if self.past and self.attempts and not self.parking:
            self.past.discard(self.unacked[0].message)
        super().ack()

    def resume(self, acked: int, attempts: int) -> None:
        super().resume(acked, attempts)
        self.past &= {each.message for each in self.unacked}

    def belong_to(self, stream: Stream) -> None:
        self._me = stream

    def begin(self, stream: Stream) -> None:
        """The process is another member from now on. Deliveries that are not processed are in the snapshot
        that the new member starts with, or are delivered again."""
        self._me = stream
        self.unacked.clear()
        self.past.clear()
        self.attempts = self.untaken_own_bytes = 0


class MembershipCore(LinkTable, abc.ABC):
    """The part of a core that concerns membership."""

    sealing: Sealer = NO_SEALS

    def __init__(self, kind: type[ChangingMember], name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        self.speaks = 1
        """The greatest version of the wire format that this process speaks."""
        self.members: dict[int, ChangingMember] = {}
        """By address, each member that this process has been or has asked to become."""
        self.address = -1
        """The current address; -1 before the first."""
        self.identities: dict[int, Contact] = {}
        """The identity of this process at each of its addresses."""
        self.labels = Labels(self)
        self.since: dict[Stream, int] = {}
        """By stream, when members were admitted, as seen here."""
        self.application = MemberQueue(-1)
        self._numbers: dict[int, int] = {}
        """By position, for deliveries not yet given to the application: the number of the `Ready` that makes
        them durable."""
        self.causes: Causes = {}
        """The application's messages that its next one directly depends on."""

    @abc.abstractmethod
    def step(self, event: Any) -> None: ...

    @abc.abstractmethod
    def _log(self, record: Any) -> None: ...

    @abc.abstractmethod
    def _after(self, member: ChangingMember) -> None:
        """Called after a member has changed."""

    # Identities

    @property
    def member(self) -> ChangingMember:
        return self.members[self.address]

    @property
    def phase(self) -> Phase:
        return self.members[self.address].phase if self.members else Phase.OUTSIDE

    @property
    def me(self) -> Stream:
        return self.member.stream

    @property
    def identity(self) -> Contact:
        """The identity of this process at its current address."""
        return self.identities[self.address]

    @property
    def called(self) -> tuple[str, ...]:
        """The names of this process: the label of its incarnation, and its plain name."""
        return (self.identity.label, self.name)

    @property
    def brings_back(self) -> bool:
        """Whether this member has returned, and has not yet rebroadcast all messages that may be lost. New
        broadcasts of its application must follow these."""
        return self.phase == Phase.MEMBER and bool(self.member.backlog.entries)

    @property
    def is_started(self) -> bool:
        """Whether messages may be delivered to the application: it has restored its snapshot, if there is
        one."""
        return self.phase == Phase.MEMBER and self.member.snapshot is None

    @property
    def snapshot(self) -> bytes | None:
        """The state that a new member's application starts with; None if its sponsor has sent none."""
        return inline_snapshot(self.member.snapshot)

    def contact_of(self, stream: Stream) -> Contact | None:
        """The contact of a stream's owner, as its sponsor has written it."""
        return contact_in(self.member.contacts.get(stream, b""))

    def known_members(self) -> tuple[list[Contact], list[Contact]]:
        """The members of the last view that this process was in, and the others that it knew: some of those
        have left, but are remembered since they may return."""
        view: dict[Contact, None] = {}
        others: dict[Contact, None] = {}
        for member in reversed(self.members.values()):
            for stream, data in member.contacts.items():
                contact, address = contact_in(data), member.addresses.get(stream)
                if contact is not None and stream != member.stream:
                    here = self.greeted.get(address, contact) if address is not None else contact
                    (others if address is None else view)[here] = None
        return list(view), [each for each in others if each not in view]

    def partner_name(self, link: int) -> str:
        """The name at the other end of a link; empty if it is not known."""
        theirs = self.links[link][1]
        greeted, stream = self.greeted.get(theirs), self.member.stream_at.get(theirs)
        contact = self.contact_of(stream) if greeted is None and stream is not None else greeted
        return contact.name if contact is not None else ""

    def label(self, stream: Stream) -> str:
        """The application's name for an incarnation."""
        return self.labels[stream]

    def wanted_place(self, link: int) -> str:
        """The address to call for a link, if it leads to a member of the view or has packets to send. Empty
        if no call is needed."""
        if not self.members or link not in self.links or link in self.void:
            return ""
        member, (mine, theirs) = self.member, self.links[link]
        stream = member.stream_at.get(theirs)
        if stream is not None and member.addresses.get(stream) != theirs:
            stream = stream if stream in member.progress.coming else None  # a departed member
        if stream is None and member.phase == Phase.LEAVING:  # it may learn of members only now
            stream = next((each for each, place in member.addresses.items() if place == theirs), None)
        is_in_view = stream is not None and member.phase in (Phase.MEMBER, Phase.LEAVING)
        if not (is_in_view and mine == self.address) and not self.outboxes[link].packets:
            return ""
        if (greeted := self.greeted.get(theirs)) is not None and greeted.at:
            return greeted.at
        contact = None if stream is None else self.contact_of(stream)
        return contact.at if contact is not None and contact.address == theirs else ""

    def open_link(self, mine: int, contact: Contact, now: int) -> int:
        """The link to a process that has greeted."""
        link = self.find_link(mine, contact.address)
        if link is None or self.greeted.get(contact.address) != contact:
            self.step(LinkOpened(mine, contact, now))
            link = self._link_numbers[mine, contact.address]
        return link

    @property
    def retained_bytes(self) -> int:
        """Bytes of messages that others may lack, or that are held; O(messages)."""
        entries = (entry for table in self.member.unstable.values() for entry in table.values())
        return sum(len(entry.packet) for entry in entries)

    def _require_member(self) -> None:
        if self.phase != Phase.MEMBER:
            raise LocalError("only a member can do that")

    def _carry_out(self, mine: int, effects: Effects) -> None:
        for send in effects.sends:
            if type(send.packet) is ProgressReport:
                self._send_report([self._link_to(mine, to) for to in send.to], send.packet)
                continue
            data = self.kind.encode(send.packet)
            for to in send.to:
                self.enqueue(self._link_to(mine, to), data)

    def _send_report(self, links: list[int], report: ProgressReport) -> None:
        """Send the changes since the last report on each link; on most links they are the same."""
        encoded: dict[int, bytes] = {}
        for link in links:
            last = self.reported.get(link)
            data = encoded.get(id(last))
            if data is None:
                data = encoded[id(last)] = encode_report(last, report)
            self.enqueue(link, data)
            if self.version_with(link) >= ReportDelta.since:
                self.reported[link] = report

    def drop_link(self, link: int) -> None:
        mine, theirs = self.links[link]
        super().drop_link(link)
        if mine in self.members:
            self.members[mine].part_with(theirs)

    @property
    def wire_versions(self) -> list[int]:
        """The wire versions that this process speaks."""
        return [version for version in CHANGING_WIRE if version <= self.speaks]

    def version_with(self, link: int) -> int:
        """The wire version to use on a link, as negotiated in its greetings."""
        mine, theirs = self.links[link]
        return self.members[mine].speaks_with(theirs)

    def _link_to(self, mine: int, theirs: int) -> int:
        """The link between two addresses, created if necessary."""
        link = self.find_link(mine, theirs)
        if link is None:
            link = self.add_link(mine, theirs)
            if theirs not in self.members[mine].stream_at:
                self.strangers.add(link)
        return link

    def link_to_view(self, member: ChangingMember) -> None:
        for address in member.addresses.values():
            if address != member.me:
                self.strangers.discard(self.add_link(member.me, address))

    # Becoming a member

    def _on_founded(self, event: Founded) -> None:
        if self.members:
            raise LocalError("this process has a part in the group already")
        self._log(event)
        founders = sorted(event.founders, key=lambda each: each.name)
        me = [each.name for each in founders].index(self.name)
        member = self.create_founder(me, [each.address for each in founders])
        member.forwards = event.forwards
        member.use_sealer(self.sealing)
        member.contacts = {stream: encode_contact(each) for stream, each in enumerate(founders)}
        member.speaks = self.speaks
        self.members[member.me] = member
        self.address, self.identities[member.me] = member.me, founders[me]
        self.application.begin(me)
        self.link_to_view(member)

    def _on_attempt(self, event: AttemptBegun) -> None:
        if self.phase in (Phase.MEMBER, Phase.LEAVING):
            raise LocalError("a member does not ask to be one")
        self._log(event)
        before, contact = self.members.get(self.address), event.contact
        fresh = self.create_outsider(contact.address)
        fresh.forwards = event.forwards
        fresh.speaks = self.speaks
        fresh.use_sealer(self.sealing)
        if before is not None and before.phase == Phase.REMOVED:
            fresh.bring_back(self._name_authors(before.make_backlog()))
        elif before is not None:
            fresh.bring_back(before.backlog)
        self.members[fresh.me] = fresh
        self.address, self.identities[fresh.me] = fresh.me, contact
        waiting = [each for each in self.members.values() if each.phase == Phase.JOINING]
        for each in waiting[:-_MAX_ATTEMPTS]:
            self._abandon(each, event.time)

    def _name_authors(self, backlog: Backlog) -> Backlog:
        """Add the original authors' labels: others may never have known an incarnation whose message is
        brought back, if its admission was lost with its sponsor."""
        if self.speaks < AUTHORS_SINCE:
            return backlog
        entries = []
        for entry in backlog.entries:
            origin = entry.original.origin
            author = self.identity if origin == self.me else self.contact_of(origin)
            payload = entry.payload if author is None else with_author(entry.payload, author.label)
            entries.append(msgspec.structs.replace(entry, payload=payload))
        return Backlog(entries, backlog.admissions, backlog.awaited)

    def _on_abandoned(self, event: Abandoned) -> None:
        self._log(event)
        member = self.members[event.address]
        self._abandon(member, event.time)
        self._after(member)

    def _abandon(self, member: ChangingMember, now: int) -> None:
        """Give up an address, and notify the contact that was asked for admission."""
        effects = member.abandon(now)
        self._carry_out(member.me, effects)
        told = {address for send in effects.sends for address in send.to}
        nobody = self.kind.encode(NobodyHere(False))
        for link, (mine, theirs) in self.links.items():
            if mine == member.me and theirs not in told and self.sent[link]:
                self.enqueue(link, nobody)

    def new_identity(self, nonce: bytes, at: str) -> Contact:
        """The identity of this process in its next attempt."""
        return Contact(self.name, nonce, at)

    def create_founder(self, me: Stream, addresses: list[int]) -> ChangingMember:
        return self.kind.founder(me, addresses, 0)

    def create_outsider(self, address: int) -> ChangingMember:
        return self.kind.outsider(address, 0)

    def _on_link_opened(self, event: LinkOpened) -> None:
        theirs = event.contact.address
        if event.mine not in self.members or theirs in self.members:
            raise RemoteError("it is not for an address of this member")
        self._log(event)
        self._link_to(event.mine, theirs)
        self.greeted[theirs] = event.contact

    def _on_join_asked(self, event: JoinAsked) -> None:
        mine, theirs = self.links[event.link]
        self._log(event)
        member = self.members[mine]
        effects = member.join(theirs, event.time)
        if event.history and member.speaks_with(theirs) >= HistoryRequest.since:
            effects = Effects(tuple(Send(send.to, HistoryRequest(mine)) for send in effects.sends))
        self._carry_out(mine, effects)

    def _on_admitted(self, member: ChangingMember, now: int) -> None:
        """The first welcome counts; the other addresses are given up."""
        self.address = member.me
        self.application.begin(member.stream)
        self._numbers.clear()
        self.causes = {}
        for other in self.members.values():
            if other is not member and other.phase in (Phase.JOINING, Phase.OUTSIDE):
                self._abandon(other, now)

    def _on_started(self, event: Started) -> None:
        self._log(event)
        self.member.take_snapshot()

    # Admitting, removing, leaving

    @property
    def join_requests(self) -> list[int]:
        """The addresses of processes that this member is to admit."""
        return self.member.requests if self.is_started else []

    @property
    def wants_snapshot(self) -> bool:
        """Whether a process is to be admitted before the next delivery."""
        return bool(self.join_requests) and self.retained_bytes <= _MAX_RETAINED

    @property
    def may_sponsor(self) -> bool:
        """Whether the application is between two deliveries, and has processed everything that counts as
        delivered."""
        return self.wants_snapshot and self.application.is_idle and not self.member.undelivered

    def _on_declined(self, event: Declined) -> None:
        self._log(event)
        self.member.requests = [each for each in self.member.requests if each != event.address]

    def _on_sponsored(self, event: Sponsored) -> None:
        snapshot = self._encode_sponsored(event)
        self._log(event)
        contact = self.greeted.get(event.address)
        member = self.member
        effects = member.sponsor(
            event.address, snapshot, event.time, encode_contact(contact) if contact else b""
        )
        self._carry_out(member.me, effects)
        self._after(member)

    def _encode_sponsored(self, event: Sponsored) -> bytes:
        """The encoded state that the welcome contains."""
        if event.snapshot is not None and len(event.snapshot) > MAX_SNAPSHOT:
            raise LocalError(f"a snapshot of {len(event.snapshot):,} bytes; {MAX_SNAPSHOT:,} at most")
        return encode_inline(event.snapshot)

    def _on_reported(self, event: Reported) -> None:
        self._log(event)
        member = self.member
        self._carry_out(member.me, member.report(event.time))
        if event.asks:
            links = [self._link_to(member.me, at) for at in member.addresses.values() if at != member.me]
            for link in links:
                if self.version_with(link) >= ReportRequest.since:
                    self.enqueue(link, REPORT_REQUEST)
        self._after(member)

    def _on_leave_asked(self, event: LeaveAsked) -> None:
        if not self.member.may_leave():
            raise LocalError("a member leaves when the removals that it takes part in are complete")
        self._log(event)
        self._carry_out(self.address, self.member.leave(event.time))
        self._after(self.member)

    def _on_remove_asked(self, event: RemoveAsked) -> None:
        self._require_member()
        if event.stream == self.me:
            raise LocalError("a member does not remove itself; it leaves")
        self._log(event)
        self._carry_out(self.address, self.member.remove(event.stream, event.time))
        self._after(self.member)

    # Suspected members

    def route_around(self, suspected: Collection[Stream], now: int) -> None:
        """Called periodically: forwarding avoids suspected members. It affects which packets are sent, so it
        is logged."""
        if self.phase != Phase.MEMBER or not self.kind.reroutes:
            return
        order = self.member.order
        down = set(order.audience).intersection(suspected)
        if down != order.suspected:
            self.step(RoutesChanged(sorted(down - order.suspected), sorted(order.suspected - down), now))

    def _on_routes_changed(self, event: RoutesChanged) -> None:
        self._log(event)
        member = self.member
        for stream in event.trusted:  # first, as they may replace the suspected ones
            self._carry_out(member.me, member.trust(stream, event.time))
        for stream in event.suspected:
            self._carry_out(member.me, member.suspect(stream, event.time))
        self._after(member)
