"""Order across groups, for a member of one of them: the causes that messages name, and a hold-back queue.

A message *waits* here if its own group has delivered it, and the application has not received all the
messages of other groups that it names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import MessageId
from antecede.membership.backlog import BacklogEntry
from antecede.membership.group_packets import (
    Cause,
    Causes,
    RemovedMembers,
    decode_payload,
    encode_payload,
)
from antecede.membership.group_past import ProcessPast, Seat
from antecede.membership.group_waiting import NamedCause, WaitingIndex, WaitingMessage
from antecede.membership.member import ChangingMember
from antecede.membership.packets import ApplicationData, Content, Counts, Stream
from antecede.membership.progress import have_all_delivered
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, Effects, LocalError, Waiting
from antecede.protocols.mbcp import Mbcp

ONLY_GROUP = "all"
"""The name of the group, if there is one."""
_NEVER = 1 << 62
"""A number that no message has."""


class BroughtBack(Delivery, frozen=True, gc=False, kw_only=True):
    """A message that was lost with a removed member, and broadcast again."""

    copy: MessageId
    """The id under which it was rebroadcast."""


class GroupOrder(ChangingMember, kw_only=True):
    """Names messages of other groups, and holds messages that its group has delivered until the process has
    their causes."""

    ordering: ClassVar[type[Any]] = Mbcp

    order: Mbcp
    in_group: str = ONLY_GROUP
    past: ProcessPast = msgspec.field(default_factory=ProcessPast)
    elsewhere: list[Any] = msgspec.field(default_factory=list)
    """The members of the same process in other groups, and its other attempts to join this one."""
    held: dict[MessageId, WaitingMessage] = msgspec.field(default_factory=dict)
    behind: dict[MessageId, set[MessageId]] = msgspec.field(default_factory=dict)
    """For messages that its group has delivered: which of their immediate predecessors wait, or are
    themselves behind waiting messages."""

    # Creating members

    @classmethod
    def outsider_of(cls, group: str, me: int, size: int) -> Self:
        """A process that is not in a group."""
        member = cls.outsider(me, size)
        member.in_group = group
        return member

    @classmethod
    def founders_of(cls, groups: dict[str, list[int]], size: int) -> list[Self]:
        """The founders of each group. Each uses its address as the id of its stream."""
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
    def connect(members: Collection[GroupOrder], past: ProcessPast | None = None) -> None:
        """Make these the members of one process, which share one past: if none is given, the first's."""
        if past is None:
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
        removed = self.past.removed_to_name(self.in_group, self.stream)
        return super().broadcast(encode_payload(payload, across, removed), now)

    def _broadcast(self, content: Content, now: int) -> MessageId:
        if isinstance(content, ApplicationData) and content.original is not None:
            # A removed member broadcast it first. Its causes still count.
            named = decode_payload(content.payload)
            for group, causes in named.across.items():
                for stream, cause in causes.items():
                    self._add_past(group, stream, cause, set())
            self._hear_of_removed(named.removed, set())
            across = self.past.to_name(self.in_group, self.stream)
            removed = self.past.removed_to_name(self.in_group, self.stream)
            payload = encode_payload(named.payload, across, removed)
            content = msgspec.structs.replace(content, payload=payload)
        return super()._broadcast(content, now)

    def _send_own(self, effects: Effects) -> None:
        super()._send_own(effects)
        if self.held and effects.message is not None:
            self._index.put_behind(effects.message, self._index.ends())

    def _on_application(self, content: ApplicationData, message: MessageId, causes: Counts) -> None:
        """A message that this member has just broadcast."""
        if content.original is None:
            # Others may drop this copy of a message that was brought back, along with the causes that it
            # names.
            self.past.mark_named(self.in_group, self.stream)
        self._add_own(message)

    def _add_own(self, message: MessageId) -> None:
        stream, seq = message
        self.past.add(self.in_group, stream, Cause(seq, self._unstable_admissions(stream)), set())

    def _add_past(self, group: str, stream: Stream, cause: Cause, named_in: set[Seat]) -> None:
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
        while (admission := self.admissions.get(stream)) is not None and admission not in found:
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
            message = self._index.take_ready(self._has, self._first_lacking) if self.held else None
            if message is not None:
                return self._give(message, now)
            if not self._deliver_in_order(now):
                return None
        return None

    def _take(self, content: Content, delivery: Delivery, now: int) -> None:
        message, behind = delivery.message, self._waits_behind(delivery)
        if not isinstance(content, ApplicationData):
            self._apply(content, message, now)
            self._index.put_behind(message, behind)
        elif self._is_new(content.original):
            named = decode_payload(content.payload)
            shown = content.original or message
            is_ordered = self.in_group not in named.across
            self._index.put_behind(message, behind)
            self._hold(message, WaitingMessage(shown, named.payload, named.across, is_ordered))
            self._hear_of_removed(named.removed, self._all_know(content.original is not None))
        elif content.original is not None:  # otherwise it would be new
            first = self._index.add_copy(content.original, message)
            self._index.put_behind(message, behind if first is None else behind | {first})

    def _hold(self, message: MessageId, waiting: WaitingMessage) -> None:
        index = self._index  # it may be created here, from the messages held so far
        self.held[message] = waiting
        index.hold(message, waiting)

    def _hold_own_copy(self, message: MessageId, entry: BacklogEntry) -> None:
        """Hold it like any other: messages of other groups that depend on it must not be delivered before
        it."""
        payload = decode_payload(entry.payload).payload
        self._hold(message, WaitingMessage(entry.original, payload, {}, is_ordered=False))

    def _waits_behind(self, delivery: Delivery) -> set[MessageId]:
        """The immediate predecessors of this message that wait, or are themselves behind waiting messages."""
        if not self.held:
            return set()
        origin, seq = delivery.message
        causes = (delivery.causes or {}).items()
        return self._index.causes_that_wait([MessageId(origin, seq - 1), *map(MessageId._make, causes)])

    @property
    def _index(self) -> WaitingIndex:
        index: WaitingIndex | None = vars(self).get("index")
        if index is None:
            index = vars(self)["index"] = WaitingIndex(self.held, self.behind)
        return index

    def _give(self, message: MessageId, now: int) -> Delivery:
        """Deliver a message that has waited to the application."""
        held = self.held.pop(message)
        self._index.give(message, held)
        for group, causes in held.across.items():
            for stream, cause in causes.items() if group != self.in_group else ():
                self._add_past(group, stream, cause, self._all_know(held.message != message))
        self._add_own(message)
        self.is_stale = True
        self._update(now)
        if held.message == message:
            return Delivery(held.message, held.payload)
        return BroughtBack(held.message, held.payload, copy=message)

    @property
    def seat(self) -> Seat:
        return self.in_group, self.stream

    def _all_know(self, is_copy: bool) -> set[Seat]:
        """The seats in whose groups a message's causes count as named once it is delivered in this group.
        Others may drop a copy, so a copy names none."""
        return set() if is_copy else {self.seat}

    def waiting(self) -> list[Waiting]:
        return [
            *super().waiting(),
            *(Waiting(each.message, self._lacks(message, each)) for message, each in self.held.items()),
        ]

    def _lacks(self, message: MessageId, held: WaitingMessage) -> MessageId | None:
        lacking = self._first_lacking(held.across)
        if lacking is not None:
            return MessageId(lacking[1], lacking[2].seq)
        return self._index.first_before(message) if held.is_ordered else None

    def lacks_elsewhere(self, message: MessageId) -> NamedCause | None:
        """The message of another group that a message waits for."""
        held = self.held.get(message)
        lacking = None if held is None else self._first_lacking(held.across)
        return None if lacking is None or lacking[0] == self.in_group else lacking

    # Removed members

    def _end(self, stream: Stream, last: int) -> None:
        super()._end(stream, last)
        if stream in self.removals.removed:
            self.past.add_removed(self.in_group, stream, last, set())

    def _hear_of_removed(self, removed: RemovedMembers, named_in: set[Seat]) -> None:
        """The members of these groups no longer wait for the removed ones. So if this process is one of the
        removed, nothing more is delivered to it there: it might precede its deliveries in other groups."""
        for group, ends in removed.items():
            for stream, end in ends.items():
                self.past.add_removed(group, stream, end, set(named_in))
        for each in (self, *self.elsewhere):
            if each.in_group in removed:
                each._note_own_removal()

    def _note_own_removal(self) -> None:
        """Record whether this member was removed, or was admitted by a removed one, beyond the end of its
        stream."""
        ends = self.past.ends_of_removed(self.in_group)
        sponsors = self._whole_chain(self.stream).values()
        if self.is_member and (
            self.stream in ends or any(seq > ends.get(sponsor, seq) for sponsor, seq in sponsors)
        ):
            self.phase = Phase.REMOVED

    # Deliveries to the process

    def _member_in(self, group: str) -> GroupOrder | None:
        for each in (self, *self.elsewhere):
            if each.in_group == group and each.is_member:
                found: GroupOrder = each
                return found
        return None

    def _has_all(self, across: Causes) -> bool:
        return self._first_lacking(across) is None

    def _first_lacking(self, across: Causes) -> NamedCause | None:
        """The first of these causes that the process has to wait for."""
        for group, causes in across.items():
            for stream, cause in causes.items():
                if not self._has(group, stream, cause):
                    return group, stream, cause
        return None

    def _has(self, group: str, stream: Stream, cause: Cause) -> bool:
        """Whether the process need not wait for a message of another group."""
        member = self._member_in(group)
        if member is not None:
            return member._was_given(stream, cause)
        joining = [each for each in self.elsewhere if each.in_group == group and each.phase == Phase.JOINING]
        return all(each._will_start_with(stream, cause) for each in joining)

    def _was_given(self, stream: Stream, cause: Cause) -> bool:
        """Whether a message of this group was delivered to the application, or never will be."""
        first = self._index.first_of(stream) if self.held else None
        if first is not None and first <= cause.seq:
            return False
        return is_settled(stream, cause, self.order.delivered, self._end_of)

    def _given_to_all(self, stream: Stream) -> int:
        """The last message of a stream that was delivered to every application of this group."""
        counts = [
            min(each.delivered.get(stream, 0), each.waiting.get(stream, _NEVER) - 1)
            for each in self.progress.of(self._required())
        ]
        own = self.order.delivered.get(stream, 0)
        first = self._index.first_of(stream) if self.held else None
        return min([own, *counts] if first is None else [own, first - 1, *counts])

    def held_of(self, stream: Stream) -> int:
        """How many messages of a stream wait, not counting copies of others."""
        return self._index.count_of(stream) if self.held else 0

    def _waiting_streams(self) -> set[Stream]:
        return self._index.streams() if self.held else set()

    def _waiting_from(self) -> Counts:
        """The first waiting message of each stream; O(messages that wait), for reports."""
        found: Counts = {}
        for message, held in self.held.items():
            for origin, seq in (message, *held.copies):
                found[origin] = min(seq, found.get(origin, seq))
        return found


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
