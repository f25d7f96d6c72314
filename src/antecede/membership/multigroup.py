"""`multigroup` in changing groups: causal order across groups that share processes.

A process has one member in each of its groups. In its group a member is one of `mbcp`, and everything about
members happens there: no group waits for another. What it delivers then waits here, until the process has
been given the messages of other groups that it names. So a group agrees on where a removed stream ends
whatever happens in other groups. A named message that is lost with a removed member is not waited for, nor
is one of a group that the process is not in.

- A process that joins says what it knows of in that group. Its sponsor waits until it has been given that.
- The sponsor says what it knows of in other groups. The process starts once its members there have been given
  that. Until then it delivers nothing that follows what the snapshot may lack.
- It joins one group at a time: two snapshots might each lack a cause of the other.
- Members report what waits. A stream is forgotten when nothing of it waits anywhere; then members tell their
  other groups, where it is not named any more.

A driver creates the members of a process, says so with `connect`, and after each call of one calls `refresh`
of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import MessageId
from antecede.membership.backlog import BacklogEntry, Fate
from antecede.membership.group_packets import (
    Cause,
    Causes,
    GroupJoinRequest,
    GroupSnapshot,
    decode_payload,
    decode_snapshot,
    encode_payload,
)
from antecede.membership.group_past import ProcessPast
from antecede.membership.member import ChangingMember
from antecede.membership.packets import (
    ApplicationData,
    Content,
    Counts,
    GroupReport,
    JoinRequest,
    MembershipPacket,
    ProgressReport,
    Stream,
    Welcome,
    decode_content,
)
from antecede.membership.progress import KnownProgress, have_all_delivered
from antecede.membership.state import Phase
from antecede.protocols.base import NO_EFFECTS, Delivery, Effects, LocalError, Packet, Waiting
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import Multigroup

ONLY_GROUP = "all"
"""The name of the group, if there is one."""


_NEVER = 1 << 62
"""A number that no message has."""


class WaitingMessage(msgspec.Struct):
    """A message that its group has delivered, and that waits for others."""

    message: MessageId
    """As the application knows it."""
    payload: bytes
    across: Causes
    behind: set[MessageId]
    """The messages of its group that waited before it, and precede it. Its group orders it also after what
    waited where it was broadcast, and therefore does not precede it; then it names what does."""
    copies: list[MessageId] = msgspec.field(default_factory=list)
    """The same message, broadcast again by others."""


class ChangingMultigroup(ChangingMember, kw_only=True):
    """The member of a process in one of its groups."""

    name: ClassVar[str] = Multigroup.name
    summary: ClassVar[str] = Multigroup.summary
    control: ClassVar[str] = "up to one entry a stream and group"
    ordering: ClassVar[type[Any]] = Mbcp
    packets: ClassVar[Any] = Mbcp.packets | MembershipPacket | GroupJoinRequest | GroupReport

    order: Mbcp
    in_group: str = ONLY_GROUP
    past: ProcessPast = msgspec.field(default_factory=ProcessPast)
    elsewhere: list[Any] = msgspec.field(default_factory=list)
    """The members of the same process in other groups, and its other attempts to join this one."""
    held: dict[MessageId, WaitingMessage] = msgspec.field(default_factory=dict)
    behind: dict[MessageId, set[MessageId]] = msgspec.field(default_factory=dict)
    """For messages that its group has delivered: those before them that wait."""
    known: dict[Stream, Cause] = msgspec.field(default_factory=dict)
    """While it joins: what the process knew of in this group when it asked."""
    welcome: tuple[int, bytes] | None = None
    """While it waits to start: from where, and the packet."""
    asking: dict[int, dict[Stream, Cause]] = msgspec.field(default_factory=dict)
    """Who asks to be admitted, and what this member must have been given before."""
    reported_gone: list[tuple[Stream, int, dict[str, frozenset[Stream]]]] = msgspec.field(
        default_factory=list
    )
    """Who says that streams of other groups are gone, after which of its messages."""
    to_report: dict[str, set[Stream]] = msgspec.field(default_factory=dict)

    # Creating members

    @classmethod
    def outsider_of(cls, group: str, me: int, size: int) -> Self:
        """A process that is not in a group."""
        member = cls.outsider(me, size)
        member.in_group = group
        return member

    @classmethod
    def founders_of(cls, groups: dict[str, list[int]], size: int) -> list[Self]:
        """The founders of each group. Each has an address and, as long as there is no other, its stream."""
        members = []
        for group, addresses in groups.items():
            streams = {each: each for each in sorted(addresses)}
            for me in streams:
                order = cls.ordering(me, 0, is_open=True, delivered=dict.fromkeys(streams, 0))
                for stream in streams:
                    order.add_peer(stream)
                member = cls(
                    me=me,
                    size=size,
                    stream=me,
                    addresses=dict(streams),
                    stream_at=dict(streams),
                    order=order,
                    in_group=group,
                )
                member._announce_view()
                members.append(member)
        return members

    @staticmethod
    def connect(members: Collection[ChangingMultigroup]) -> None:
        """These are the members of one process, which have one past."""
        past = next((each.past for each in members), ProcessPast())
        for each in members:
            each.past = past
            each.elsewhere = [other for other in members if other is not each]

    def save(self) -> bytes:
        elsewhere, self.elsewhere = self.elsewhere, []
        try:
            return super().save()
        finally:
            self.elsewhere = elsewhere

    # What the application does

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        if group is not None and group != self.in_group:
            raise LocalError(f"this is a member of group {self.in_group}, not of {group}")
        across = self.past.to_name(self.in_group, self.stream)
        if self.held:
            across[self.in_group] = self.past.of(self.in_group)
        return super().broadcast(encode_payload(payload, across), now)

    def _broadcast(self, content: Content, now: int) -> MessageId:
        if isinstance(content, ApplicationData) and content.original is not None:
            # It was broadcast first by a member that was removed. What it names still counts.
            payload, across = decode_payload(content.payload)
            for group, causes in across.items():
                for stream, cause in causes.items():
                    self._add_past(group, stream, cause, set())
            across = self.past.to_name(self.in_group, self.stream)
            content = msgspec.structs.replace(content, payload=encode_payload(payload, across))
        message = super()._broadcast(content, now)
        if self.held:
            self.behind[message] = set(self.held)
        return message

    def _on_application(self, content: ApplicationData, message: MessageId, causes: Counts) -> None:
        """A message that this member has just broadcast."""
        self.past.mark_named(self.in_group, self.stream)
        self._add_own(message)

    def _add_own(self, message: MessageId) -> None:
        stream, seq = message
        self.past.add(self.in_group, stream, Cause(seq, self._unstable_admissions(stream)), set())

    def _add_past(self, group: str, stream: Stream, cause: Cause, named_in: set[Stream]) -> None:
        member = self._member_in(group)
        if member is not None:
            delivered = member.order.delivered.get(stream)
            if delivered is None:
                return  # forgotten, or never admitted
            if delivered < cause.seq:
                cause = Cause(delivered, cause.admissions)  # the rest is lost
            if cause.seq <= member._given_to_all(stream):
                return
        self.past.add(group, stream, cause, named_in)

    def _unstable_admissions(self, stream: Stream) -> tuple[MessageId, ...]:
        """See `Cause`."""
        found: list[MessageId] = []
        while (admission := self.admissions.get(stream)) is not None:
            sponsor, seq = admission
            others = self.progress.of(self._required())
            if sponsor not in self.order.delivered or have_all_delivered(sponsor, seq, others):
                break
            found.append(admission)
            stream = sponsor
        return tuple(found)

    # Delivering

    def deliver(self, now: int) -> Delivery | None:
        while self.is_member:
            if self.undelivered:
                delivery = self.undelivered.pop(0)
                return Delivery(delivery.message, decode_payload(delivery.payload)[0])
            for message, held in self.held.items():
                if not held.behind & self.held.keys() and self._has_all(held.across):
                    return self._give(message, now)
            if not self._deliver_in_order(now):
                return None
        return None

    def _take(self, content: Content, delivery: Delivery, now: int) -> None:
        message, behind = delivery.message, self._waits_behind(delivery)
        if not isinstance(content, ApplicationData):
            self._apply(content, message, now)
        elif self._is_new(content.original):
            payload, across = decode_payload(content.payload)
            waits_for = set() if self.in_group in across else behind
            self.held[message] = WaitingMessage(content.original or message, payload, across, waits_for)
        else:
            for first, held in self.held.items():
                if held.message == content.original:
                    held.copies.append(message)
                    behind = behind | {first}
        if behind:
            self.behind[message] = behind

    def _waits_behind(self, delivery: Delivery) -> set[MessageId]:
        """The messages before this one that wait."""
        if not self.held:
            self.behind.clear()
            return set()
        origin, seq = delivery.message
        found: set[MessageId] = set()
        for cause in [MessageId(origin, seq - 1), *map(MessageId._make, (delivery.causes or {}).items())]:
            if cause in self.held:
                found.add(cause)
            found |= self.behind.get(cause, set()) & self.held.keys()
        return found

    def _give(self, message: MessageId, now: int) -> Delivery:
        """A message that has waited is for the application."""
        held = self.held.pop(message)
        for group, causes in held.across.items():
            for stream, cause in causes.items() if group != self.in_group else ():
                self._add_past(group, stream, cause, {self.stream})
        self._add_own(message)
        self.is_stale = True
        self._update(now)
        return Delivery(held.message, held.payload)

    def waiting(self) -> list[Waiting]:
        return [
            *super().waiting(),
            *(Waiting(each.message, self._lacks(each)) for each in self.held.values()),
        ]

    def _lacks(self, held: WaitingMessage) -> MessageId | None:
        for group, causes in held.across.items():
            for stream, cause in causes.items():
                if not self._has(group, stream, cause):
                    return MessageId(stream, cause.seq)
        return next(iter(held.behind & self.held.keys()), None)

    # What the process has been given

    def _member_in(self, group: str) -> ChangingMultigroup | None:
        for each in (self, *self.elsewhere):
            if each.in_group == group and each.is_member:
                found: ChangingMultigroup = each
                return found
        return None

    def _has_all(self, across: Causes) -> bool:
        return all(
            self._has(group, stream, cause)
            for group, causes in across.items()
            for stream, cause in causes.items()
        )

    def _has(self, group: str, stream: Stream, cause: Cause) -> bool:
        """Whether the process need not wait for a message of another group."""
        member = self._member_in(group)
        if member is not None:
            return member._was_given(stream, cause)
        joining = [each for each in self.elsewhere if each.in_group == group and each.phase == Phase.JOINING]
        return all(each._will_start_with(stream, cause) for each in joining)

    def _was_given(self, stream: Stream, cause: Cause) -> bool:
        """Whether the application has been given a message of this group, or never will be."""
        for message, held in self.held.items():
            for origin, seq in (message, *held.copies):
                if origin == stream and seq <= cause.seq:
                    return False
        return is_settled(stream, cause, self.order.delivered, self._end_of)

    def _will_start_with(self, stream: Stream, cause: Cause) -> bool:
        """Whether a message is in the snapshot that this process waits for."""
        if self.welcome is None:
            return stream in self.known and cause.seq <= self.known[stream].seq
        welcome = self.decode(self.welcome[1])
        if not isinstance(welcome, Welcome):
            raise LocalError("what waits is not a welcome")

        def end_of(each: Stream) -> int | None:
            end = welcome.cuts.get(each)
            if end is not None and welcome.delivered.get(each, 0) >= end:
                return end
            return welcome.tombstones.get(each)

        return is_settled(stream, cause, welcome.delivered, end_of)

    def _given_to_all(self, stream: Stream) -> int:
        """The last message of a stream that every application of this group has been given."""
        counts = [
            min(each.delivered.get(stream, 0), each.waiting.get(stream, _NEVER) - 1)
            for each in self.progress.of(self._required())
        ]
        own = self.order.delivered.get(stream, 0)
        return min([own, self._waiting_from().get(stream, _NEVER) - 1, *counts])

    # Joining

    def join(self, contact: int, now: int) -> Effects:
        for each in self.elsewhere:
            if each.phase == Phase.JOINING and each.in_group != self.in_group:
                raise LocalError(f"a process joins one group at a time, and waits for group {each.in_group}")
            if each.is_member and each.in_group == self.in_group:
                raise LocalError(f"the process is in group {self.in_group}")
        super().join(contact, now)
        self.outbox.clear()
        self.known = self.past.of(self.in_group)
        self._send(contact, GroupJoinRequest(self.me, self.known))
        return self._effects()

    def abandon(self, now: int) -> Effects:
        effects = super().abandon(now)
        if self.welcome is not None:
            self._answer_nobody(self.welcome[0])
            self.welcome = None
        return Effects((*effects.sends, *self._effects().sends))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if isinstance(packet, Welcome) and self.phase == Phase.JOINING and self.welcome is None:
            decode_snapshot(packet.snapshot)
            self.welcome = link, self.encode(packet)
            for each in self.elsewhere:
                if each.phase == Phase.JOINING:
                    each.outbox += each.abandon(now).sends  # another attempt
            self._start(now)
            return self._effects()
        return super().receive(link, packet, now)

    def refresh(self, now: int) -> Effects:
        """The process was given a message in another of its groups, or is not in it any more."""
        if self.phase == Phase.JOINING:
            self._start(now)
        elif self.is_member:
            self._update(now)
        return self._effects()

    def _start(self, now: int) -> None:
        """Become a member, if the process has been given all that precedes the snapshot."""
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
        for member, counts in start.waiting.items():
            if member in self.progress.known:
                self.progress.known[member].waiting = dict(counts)
        self.past.forget_streams_but({each.stream for each in (self, *self.elsewhere) if each.is_member})

    def _receive_as_member(self, link: int, packet: Packet, now: int) -> None:
        if isinstance(packet, JoinRequest):
            if self.is_member and packet.address == link:
                self.asking[link] = dict(packet.past) if isinstance(packet, GroupJoinRequest) else {}
            return
        super()._receive_as_member(link, packet, now)

    def _consider_requests(self) -> None:
        for address, past in self.asking.items():
            if address not in self.requests and self._may_admit(past):
                self.requests.append(address)

    def _may_admit(self, past: dict[Stream, Cause]) -> bool:
        """What counts as delivered here must be what the application has, with all that the process knows."""
        return not self.held and all(self._was_given(stream, cause) for stream, cause in past.items())

    def sponsor(self, address: int, snapshot: bytes, now: int, contact: bytes = b"") -> Effects:
        if not self._may_admit(self.asking.get(address, {})):
            self.requests = [each for each in self.requests if each != address]
            return NO_EFFECTS
        self.asking.pop(address, None)
        waiting = {member: known.waiting for member, known in self.progress.known.items() if known.waiting}
        past, across = self.past.of(self.in_group), self.past.without(self.in_group)
        start = GroupSnapshot(snapshot, past, across, waiting)
        return super().sponsor(address, msgspec.msgpack.encode(start), now, contact)

    # Leaving and returning

    def may_leave(self) -> bool:
        return super().may_leave() and not self.held

    def _fate(self, entry: BacklogEntry) -> Fate:
        """What is brought back is given to the application at once, after what precedes it."""
        found = super()._fate(entry)
        if found is Fate.LOST and (self.held or not self._has_all(decode_payload(entry.payload)[1])):
            return Fate.OPEN
        return found

    # Reports

    def _update(self, now: int) -> None:
        super()._update(now)
        if self.reported_gone:
            self._hear_of_gone()
        if self.asking and self.is_member:
            self._consider_requests()

    def _waiting_from(self) -> Counts:
        found: Counts = {}
        for message, held in self.held.items():
            for origin, seq in (message, *held.copies):
                found[origin] = min(seq, found.get(origin, seq))
        return found

    def _report(self, forgotten: Collection[Stream] = ()) -> ProgressReport:
        plain = super()._report(forgotten)
        gone = {group: frozenset(streams) for group, streams in self.to_report.items()}
        fields = {name: getattr(plain, name) for name in plain.__struct_fields__}
        return GroupReport(**fields, waiting=self._waiting_from(), gone=gone)

    def _known(self) -> dict[Stream, ProgressReport]:
        return super()._known() | {self.stream: super()._report()}

    def report(self, now: int) -> Effects:
        effects = super().report(now)
        if self.is_member:
            self.to_report = {}
        return effects

    def _on_progress(self, link: int, report: ProgressReport) -> None:
        super()._on_progress(link, report)
        if isinstance(report, GroupReport) and report.gone:
            self.reported_gone.append((report.member, report.delivered.get(report.member, 0), report.gone))

    def _find_stable(self) -> None:
        super()._find_stable()
        for stream, cause in self.past.of(self.in_group).items():
            if stream not in self.order.delivered or cause.seq <= self._given_to_all(stream):
                self.past.drop(self.in_group, stream)

    def _finished(self, others: list[KnownProgress]) -> Counts:
        """What waits somewhere is still needed."""
        waiting = set().union(self._waiting_from(), *(each.waiting for each in others))
        return {stream: end for stream, end in self._closed().items() if stream not in waiting}

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        for each in self.elsewhere:
            each.to_report.setdefault(self.in_group, set()).add(stream)

    def _hear_of_gone(self) -> None:
        """Take effect after what was broadcast before it, which may name these streams."""
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
        return sum(map(len, decode_payload(content.payload)[1].values()))


def is_settled(stream: Stream, cause: Cause, delivered: Counts, end_of: Any) -> bool:
    """Whether a message is delivered, or never will be: it lies beyond the end of its stream, or its sender
    was never admitted, or is forgotten."""
    seq = cause.seq
    for admission in (*cause.admissions, None):
        if end_of(stream) is not None:
            return True
        if stream in delivered:
            return delivered[stream] >= seq
        if admission is None:
            return True
        stream, seq = admission
    return True
