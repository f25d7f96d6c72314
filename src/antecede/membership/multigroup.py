"""`multigroup` in dynamic groups: causal order across groups that share processes.

A process has one member in each of its groups. Inside its group a member runs `mbcp`, and joins, departures
and removals happen there: no group waits for another. A message that its group has delivered then waits, in
`GroupOrder`, until the messages of other groups that it names were delivered to the process. So a group
agrees on the end of a removed stream whatever happens in other groups. A process does not wait for a named
message that is lost with a removed member, nor for one of a group that it is not in.

- A process that joins sends its sponsor the messages of that group of which it knows. The sponsor admits it
  once it has been given all of them.
- The sponsor sends the messages of other groups of which it knows. The process starts once its members there
  have been given all of them. Until then it delivers nothing that may depend on messages that the snapshot
  lacks.
- It joins one group at a time, since two snapshots might each lack a cause of the other.
- Sponsors may wait for each other, or all be gone. So a process that has waited for long continues in its
  other groups, and asks for a snapshot that has everything on which these deliveries depend. It refuses a
  snapshot that lacks some of that, and asks again at another address, as if there had been no answer.
- Removals are announced in the other groups, so that a removed process that does not know it learns of it.
- Members report which messages wait. A stream is forgotten when none of its messages waits anywhere. Then its
  members tell their other groups, which no longer name it.

A driver creates the members of a process and passes them to `connect`. After each call to one of them it
calls `refresh` of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

from antecede.membership.backlog import BacklogEntry, Fate
from antecede.membership.group_order import GroupOrder, is_settled
from antecede.membership.group_packets import (
    Cause,
    GroupJoinRequest,
    GroupSnapshot,
    RemovedMembers,
    decode_payload,
    decode_snapshot,
)
from antecede.membership.packets import (
    ApplicationData,
    Counts,
    GroupReport,
    JoinRequest,
    MembershipPacket,
    NobodyHere,
    ProgressReport,
    RemovedNotice,
    Stream,
    Welcome,
    decode_content,
    in_order,
)
from antecede.membership.progress import KnownProgress
from antecede.membership.state import Phase
from antecede.protocols.base import NO_EFFECTS, Effects, LocalError, Packet
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import Multigroup

_PATIENCE = 3
"""After how many reports by other members of the process an attempt to join is abandoned for a later one."""


class ChangingMultigroup(GroupOrder, kw_only=True):
    """The member of a process in one of its groups."""

    name: ClassVar[str] = Multigroup.name
    summary: ClassVar[str] = Multigroup.summary
    control: ClassVar[str] = "up to one entry a stream and group"
    packets: ClassVar[Any] = Mbcp.packets | MembershipPacket | GroupJoinRequest | GroupReport

    known: dict[Stream, Cause] = msgspec.field(default_factory=dict)
    """While it joins: the messages of this group that the process knew of when it asked. The snapshot must
    contain them."""
    contact: int = -1
    """While it joins: the contact that it has asked."""
    is_late: bool = False
    """While it joins: whether another member of the process has reported since it asked."""
    waited: int = 0
    """While it joins: how often other members of the process have reported since it asked."""
    has_refused: bool = False
    """Whether it has refused a snapshot; there will be no other at this address."""
    welcome: tuple[int, bytes] | None = None
    """While it waits to start: the address from which the welcome came, and the packet."""
    asking: dict[int, dict[Stream, Cause]] = msgspec.field(default_factory=dict)
    """By address: the processes that ask for admission, and the messages that must be delivered here
    before."""
    reported_gone: list[tuple[Stream, int, dict[str, frozenset[Stream]]]] = msgspec.field(
        default_factory=list
    )
    """Reports that streams of other groups are forgotten: the sender, the last message that it had broadcast
    before, and the streams."""
    to_report: dict[str, set[Stream]] = msgspec.field(default_factory=dict)

    # Joining

    def join(self, contact: int, now: int) -> Effects:
        for each in self.elsewhere:
            if each.phase == Phase.JOINING and each.in_group != self.in_group:
                raise LocalError(f"a process joins one group at a time, and waits for group {each.in_group}")
            if each.is_member and each.in_group == self.in_group:
                raise LocalError(f"the process is in group {self.in_group}")
        super().join(contact, now)
        self.outbox.clear()
        self.known, self.contact = self.past.of(self.in_group), contact
        self._ask()
        return self._effects()

    def _ask(self) -> None:
        removed = self.past.ends_of_removed(self.in_group)
        self._send(self.contact, GroupJoinRequest(self.me, self.known, removed))

    def _go_on_elsewhere(self) -> None:
        """While it joins: if there is no answer for long, stop holding messages of other groups."""
        if self.phase != Phase.JOINING or self.welcome is not None or self.has_refused:
            return
        self.waited += 1
        if not self.is_late:
            self.is_late = True
            return
        if self.waited > _PATIENCE and self._has_asked_again():
            # Its sponsor may be gone. The other members wait for its flush report on that, and the contacts
            # that it has asked since then wait for them.
            self.outbox += self.abandon(0).sends
            return
        before = self.known
        for each in self.elsewhere:
            for held in each.held.values():
                for stream, cause in held.across.get(self.in_group, {}).items():
                    if stream not in self.known or self.known[stream].seq < cause.seq:
                        self.known = self.known | {stream: cause}
        if self.known is not before:
            self._ask()

    def _has_asked_again(self) -> bool:
        others = (each for each in self.elsewhere if each.in_group == self.in_group and not each.has_refused)
        return any(each.phase == Phase.JOINING and each.waited < self.waited for each in others)

    def abandon(self, now: int) -> Effects:
        effects = super().abandon(now)
        if self.welcome is not None:
            self._answer_nobody(self.welcome[0])
            self.welcome = None
        return Effects((*effects.sends, *self._effects().sends))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if self.has_refused and self.phase == Phase.JOINING:
            if not isinstance(packet, NobodyHere | RemovedNotice | JoinRequest):
                self._answer_nobody(link)
            return self._effects()
        if isinstance(packet, Welcome) and self.phase == Phase.JOINING and self.welcome is None:
            decode_snapshot(packet.snapshot)
            if not self._has_what_is_known(packet):
                self._refuse(link)
                return self._effects()
            self.welcome = link, self.encode(packet)
            for each in self.elsewhere:
                if each.phase == Phase.JOINING and each.in_group == self.in_group:
                    each.outbox += each.abandon(now).sends  # another attempt
            self._start(now)
            return self._effects()
        return super().receive(link, packet, now)

    def _refuse(self, link: int) -> None:
        """This address is given up. All who take it for a member's are notified at once: its sponsor may be
        removed, and others would wait for its flush report."""
        self.has_refused = True
        for each in sorted({link, *(source for source, _ in self.before_welcome)}):
            self._answer_nobody(each)
        self.before_welcome = []

    def refresh(self, now: int) -> Effects:
        """A message was delivered to the process in another of its groups, or it is no longer in that
        group."""
        if self.phase == Phase.JOINING:
            self._start(now)
        elif self.is_member:
            self._update(now)
        return self._effects()

    def _start(self, now: int) -> None:
        """Become a member, if everything that precedes the snapshot was delivered to the process."""
        if self.welcome is None:
            return
        link, data = self.welcome
        welcome = self.decode(data)
        if not isinstance(welcome, Welcome):
            raise LocalError("what waits is not a welcome")
        start = decode_snapshot(welcome.snapshot)
        if not self._has_all(start.across):
            return
        self.welcome, self.known = None, {}
        for group, causes in {**start.across, self.in_group: start.past}.items():
            for stream, cause in causes.items():
                self._add_past(group, stream, cause, set())
        welcome = msgspec.structs.replace(welcome, snapshot=start.state)
        self.outbox += super().receive(link, welcome, now).sends
        self.past.forget_seats_but({each.seat for each in (self, *self.elsewhere) if each.is_member})
        self._hear_of_removed(start.removed, set())
        self._note_own_removal()

    def _receive_as_member(self, link: int, packet: Packet, now: int) -> None:
        if isinstance(packet, JoinRequest):
            if isinstance(packet, GroupJoinRequest) and packet.removed:
                self._hear_of_removed({self.in_group: packet.removed}, set())
            if self.is_member and packet.address == link and link not in self.stream_at:
                self.asking[link] = dict(packet.past) if isinstance(packet, GroupJoinRequest) else {}
            return
        super()._receive_as_member(link, packet, now)

    def _consider_requests(self) -> None:
        for address, past in self.asking.items():
            if address not in self.requests and self._may_admit(past):
                self.requests.append(address)

    def _may_admit(self, past: dict[Stream, Cause]) -> bool:
        """Whether the application has everything that counts as delivered here, and everything that the
        process knows of."""
        return not self.held and all(self._was_given(stream, cause) for stream, cause in past.items())

    def sponsor(self, address: int, snapshot: bytes, now: int, contact: bytes = b"") -> Effects:
        if not self._may_admit(self.asking.get(address, {})):
            self.requests = [each for each in self.requests if each != address]
            return NO_EFFECTS
        self.asking.pop(address, None)
        past, across = self.past.of(self.in_group), self.past.without(self.in_group)
        removed = {group: self.past.ends_of_removed(group) for group in self.past.removed}
        start = GroupSnapshot(snapshot, past, across, removed)
        return super().sponsor(address, msgspec.msgpack.encode(start), now, contact)

    def _will_start_with(self, stream: Stream, cause: Cause) -> bool:
        """Whether a message is in the snapshot that this process waits for."""
        if self.welcome is None:
            is_known = stream in self.known and cause.seq <= self.known[stream].seq
            return is_known or self.has_refused
        welcome = self.decode(self.welcome[1])
        if not isinstance(welcome, Welcome):
            raise LocalError("what waits is not a welcome")
        return _starts_with(welcome, stream, cause)

    def _has_what_is_known(self, welcome: Welcome) -> bool:
        known = self.past.of(self.in_group)
        return all(_starts_with(welcome, stream, cause) for stream, cause in known.items())

    # Leaving and returning

    def may_leave(self) -> bool:
        return super().may_leave() and not self.held

    def _fate(self, entry: BacklogEntry) -> Fate:
        """A message that is brought back is delivered to the application after its predecessors, and waits
        for nothing."""
        found = super()._fate(entry)
        if found is Fate.LOST:
            is_waiting = len(self.held) > self.held_of(self.stream)  # more than own copies
            if is_waiting or not self._has_all(decode_payload(entry.payload).across):
                return Fate.OPEN
        return found

    # Reports

    def _update(self, now: int) -> None:
        super()._update(now)
        if self.reported_gone:
            self._hear_of_gone()
        if self.asking and self.is_member:
            self._consider_requests()

    def _report(self, forgotten: Collection[Stream] = ()) -> ProgressReport:
        ordinary = super()._report(forgotten)
        gone = {group: in_order(streams) for group, streams in self.to_report.items()}
        removed = {group: self.past.ends_of_removed(group) for group in self.past.removed} if gone else {}
        return _group_report(ordinary, self._waiting_from(), gone, removed)

    def _known(self) -> dict[Stream, ProgressReport]:
        """Include what waits at others: a new member must know from the start that it is not delivered
        there."""
        known = super()._known()
        for member, each in self.progress.known.items():
            if each.waiting:
                known[member] = _group_report(known[member], each.waiting)
        return known

    def report(self, now: int) -> Effects:
        effects = super().report(now)
        if self.is_member:
            self.to_report = {}
            for each in self.elsewhere:
                each._go_on_elsewhere()
        return effects

    def _on_progress(self, link: int, report: ProgressReport) -> None:
        super()._on_progress(link, report)
        if isinstance(report, GroupReport) and report.removed:
            self._hear_of_removed(report.removed, set())
        if isinstance(report, GroupReport) and report.gone:
            self.reported_gone.append((report.member, report.delivered.get(report.member, 0), report.gone))

    def _find_stable(self) -> None:
        super()._find_stable()
        for stream, cause in self.past.of(self.in_group).items():
            if stream not in self.order.delivered or cause.seq <= self._given_to_all(stream):
                self.past.drop(self.in_group, stream)

    def _finished(self, others: list[KnownProgress]) -> Counts:
        """Messages that wait somewhere are still needed."""
        waiting = self._waiting_streams().union(*(each.waiting for each in others))
        return {stream: end for stream, end in self._closed().items() if stream not in waiting}

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        for each in self.elsewhere:
            each.to_report.setdefault(self.in_group, set()).add(stream)

    def _hear_of_gone(self) -> None:
        """Apply these reports after everything that was broadcast before them, which may name the streams."""
        left = []
        for member, sent, gone in self.reported_gone:
            if member in self.progress.pending or not self._was_given(member, Cause(sent)):
                left.append((member, sent, gone))
                continue
            for group, streams in gone.items():
                if self._member_in(group) is None:
                    for stream in streams:
                        if self.past.drop(group, stream):
                            for each in (self, *self.elsewhere):
                                each.to_report.setdefault(group, set()).add(stream)
        self.reported_gone = left

    def paper_bytes(self, packet: Packet) -> int:
        if not isinstance(packet, DependencyPacket):
            return super().paper_bytes(packet)
        return super().paper_bytes(packet) + 8 * self._count_named(packet)

    def _count_named(self, packet: DependencyPacket) -> int:
        content = decode_content(packet.payload)
        if not isinstance(content, ApplicationData):
            return 0
        named = decode_payload(content.payload)
        names = sum(map(len, named.across.values()))
        return names + sum(map(len, named.removed.values()))


def _group_report(
    ordinary: ProgressReport,
    waiting: Counts,
    gone: dict[str, frozenset[Stream]] | None = None,
    removed: RemovedMembers | None = None,
) -> GroupReport:
    fields = {name: getattr(ordinary, name) for name in ordinary.__struct_fields__}
    return GroupReport(**fields, waiting=waiting, gone=gone or {}, removed=removed or {})


def _starts_with(welcome: Welcome, stream: Stream, cause: Cause) -> bool:
    """Whether a message is in the snapshot of a welcome, or will never be delivered to anybody."""

    def end_of(each: Stream) -> int | None:
        end = welcome.cuts.get(each)
        if end is not None and welcome.delivered.get(each, 0) >= end:
            return end
        return welcome.tombstones.get(each)

    return is_settled(stream, cause, welcome.delivered, end_of)
