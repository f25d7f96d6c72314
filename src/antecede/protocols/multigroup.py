"""Overlapping groups (paper 001, section 3.3): causal order across groups that share members.

The paper defines the relation that suffices and gives no protocol. (m, c) must be named by (m', c') if m
happened before m' and no message between them went to c or to c': if one went to c, it carries the
dependency for those who are in c; if one went to c', for those who are in c'.

So a member keeps what it may still have to name, under (sender, group): the message and the groups that
messages after it have gone to since (`covered`). A message to c' names what c' does not cover. Then what
was sent to c' itself is done with for good (`done` remembers it, lest an older message bring it back),
everything else is covered by c' too, and the new message takes its place. A delivery does the same with
what the delivered message names.

With one group this is `mbcp`. In general what is carried is a small superset of the relation, because
nobody knows all that lies between. Delivery: the sender's next in that group, and everything named that
was sent to a group one is in. Links need not be FIFO. Control information: up to one entry for each
sender and group; memory the same, and the held messages; a delivery costs the entries it carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import MessageId
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    HoldBackQueue,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.flat import MessagePacket

Source = tuple[int, int]
"""A sender and a group, by rank and by place in the list of groups."""


class GroupPacket(MessagePacket, frozen=True, array_like=True, tag=5):
    """A message to one group, naming single messages to this and other groups."""

    metric_name: ClassVar[str] = "grouped"

    seq: int
    group: int
    previous: int
    """The number of the sender's message to this group before this one; 0 if it is the first."""
    causes: list[tuple[int, int, int]]
    """(sender, group, number)"""

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class PendingDependency(msgspec.Struct):
    """A message that may have to be named, and the groups that have been told of it already."""

    seq: int
    covered: set[int]


class Multigroup(Protocol):
    name: ClassVar[str] = "multigroup"
    summary: ClassVar[str] = "immediate dependencies across groups that share members"
    control: ClassVar[str] = "up to one entry a sender and group"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = GroupPacket
    membership: ClassVar[str] = "fixed; groups may overlap"
    overlapping_groups: ClassVar[bool] = True

    groups: list[tuple[str, list[int]]]
    sent: int = 0
    last: dict[Source, int] = msgspec.field(default_factory=dict)
    """The number of the last message delivered here of each sender in each group."""
    causes: dict[Source, PendingDependency] = msgspec.field(default_factory=dict)
    done: dict[Source, int] = msgspec.field(default_factory=dict)
    """The last number of each sender in each group that need never be named again."""
    holdback: HoldBackQueue[tuple[int, int, int], GroupPacket] = msgspec.field(default_factory=HoldBackQueue)
    arrived: set[MessageId] = msgspec.field(default_factory=set)
    """What is here and not delivered yet."""

    @classmethod
    def group(cls, size: int) -> list[Self]:
        """One group of everybody, in which this is `mbcp`."""
        return cls.with_groups({"all": range(size)}, size)

    @classmethod
    def with_groups(cls, groups: Mapping[str, Sequence[int]], size: int) -> list[Self]:
        """Members of groups that may overlap."""
        listed = [(name, sorted(members)) for name, members in groups.items()]
        return [cls(me, size, listed) for me in range(size)]

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        place = self._place(group)
        self.sent += 1
        packet = GroupPacket(
            payload, self.me, self.sent, place, self.last.get((self.me, place), 0), self._named(place)
        )
        self._cover(place)
        self.last[self.me, place] = self.sent
        self.causes[self.me, place] = PendingDependency(self.sent, {place})
        to = tuple(peer for peer in self.groups[place][1] if peer != self.me)
        return Effects((Send(to, packet),) if to else (), message=MessageId(self.me, self.sent))

    def _place(self, group: str | None) -> int:
        for place, (name, members) in enumerate(self.groups):
            if (name == group or (group is None and len(self.groups) == 1)) and self.me in members:
                return place
        raise LocalError(f"peer {self.me} is in no group {group}")

    def _named(self, place: int) -> list[tuple[int, int, int]]:
        """What a message to a group must name: whatever the group has not been told of."""
        return [
            (sender, group, cause.seq)
            for (sender, group), cause in self.causes.items()
            if place not in cause.covered
        ]

    def _cover(self, place: int) -> None:
        """A message to a group has been sent: what went to that group is done with, the rest covered."""
        for source, cause in list(self.causes.items()):
            if source[1] == place:
                self._finish(source, cause.seq)
            else:
                cause.covered.add(place)

    def _finish(self, source: Source, seq: int) -> None:
        self.done[source] = max(seq, self.done.get(source, 0))
        if source in self.causes and self.causes[source].seq <= seq:
            del self.causes[source]

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        sound = self._validate(packet)
        message = MessageId(sound.origin, sound.seq)
        if sound.seq <= self.last.get((sound.origin, sound.group), 0) or message in self.arrived:
            return NO_EFFECTS
        self.arrived.add(message)
        mine = [cause for cause in sound.causes if self.me in self.groups[cause[1]][1]]
        unmet = [*mine, (sound.origin, sound.group, sound.previous)]
        self.holdback.hold(sound, unmet, self._is_delivered)
        return NO_EFFECTS

    def _validate(self, packet: Packet) -> GroupPacket:
        if not isinstance(packet, GroupPacket):
            raise RemoteError(f"{self.name} has no packet {type(packet).__name__}")
        sources = [(packet.origin, packet.group), *((sender, group) for sender, group, _ in packet.causes)]
        for sender, group in sources:
            if not (0 <= group < len(self.groups) and sender in self.groups[group][1]):
                raise RemoteError(f"a packet speaks of peer {sender} in group {group}, who is not in it")
        if packet.origin == self.me or self.me not in self.groups[packet.group][1]:
            raise RemoteError("a packet that this peer should not get")
        numbers = [packet.seq, *(seq for _, _, seq in packet.causes)]
        if min(numbers) < 1 or not 0 <= packet.previous < packet.seq:
            raise RemoteError("a packet with numbers that no message has")
        if any(sender == self.me and seq > self.sent for sender, _, seq in packet.causes):
            raise RemoteError("a packet depends on messages that this peer has not sent")
        return packet

    def _is_delivered(self, named: tuple[int, int, int]) -> bool:
        sender, group, seq = named
        return self.last.get((sender, group), 0) >= seq

    def deliver(self, now: int) -> Delivery | None:
        if not self.holdback.ready:
            return None
        packet = self.holdback.ready.pop(0)
        message = MessageId(packet.origin, packet.seq)
        self.arrived.discard(message)
        self.last[packet.origin, packet.group] = packet.seq
        self._learn(packet)
        self.holdback.release((packet.origin, packet.group, packet.seq), self._is_delivered)
        return Delivery(message, packet.payload)

    def _learn(self, packet: GroupPacket) -> None:
        for sender, group, seq in packet.causes:
            if group == packet.group:
                self._finish((sender, group), seq)
            else:
                self._told((sender, group), seq, packet.group)
        self.causes[packet.origin, packet.group] = PendingDependency(packet.seq, set())

    def _told(self, source: Source, seq: int, group: int) -> None:
        """A message to `group` has named another: that group has been told of it."""
        known = self.causes.get(source)
        if known is not None and known.seq == seq:
            known.covered.add(group)
        elif seq > max(self.done.get(source, 0), known.seq if known else 0):
            self.causes[source] = PendingDependency(seq, {group})

    def waiting(self) -> list[Waiting]:
        return [
            Waiting(MessageId(packet.origin, packet.seq), MessageId(sender, seq))
            for packet, (sender, _, seq) in self.holdback.waiting()
        ]

    def paper_bytes(self, packet: Packet) -> int:
        return 8 * len(packet.causes) if isinstance(packet, GroupPacket) else 0
