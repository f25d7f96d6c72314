"""Overlapping groups (paper 001, section 3.3): causal order across groups that share members.

The paper defines the relation that suffices, and gives no protocol. A message m' to group c' must name m to
group c if m happened before m' and no message between them went to c or to c'. One that went to c carries
the dependency for the members of c; one that went to c' carries it for the members of c'.

So a member keeps, for each (sender, group), the message that it may still have to name and the groups that
later messages have gone to since (`covered_by`). A message to c' names those that c' does not cover. After
that, what was sent to c' itself never has to be named again (`named` remembers it, so that an older message
does not bring it back), the others are covered by c' too, and the new message takes its place. A delivery
does the same with what the delivered message names.

With one group this is `mbcp`. In general messages carry a small superset of the relation, because no member
knows everything in between. A message is delivered once it is its sender's next in that group and
everything that it names in the receiver's groups is delivered. Links need not be FIFO. Control information:
up to one entry for each sender and group; memory the same, and the held messages; a delivery costs the
entries that its message carries.
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
"""A sender and a group, by rank and by index in the list of groups."""


class GroupPacket(MessagePacket, frozen=True, array_like=True, tag=5):
    """A message to one group, which names single messages to this and other groups."""

    metric_name: ClassVar[str] = "grouped"

    seq: int
    group: int
    previous: int
    """The sequence number of the sender's previous message to this group; 0 if this is the first."""
    causes: list[tuple[int, int, int]]
    """Dependencies, as (sender, group, sequence number)."""

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class PendingDependency(msgspec.Struct):
    """A message that may have to be named, and the groups for which a later message has done so."""

    seq: int
    covered_by: set[int]


class Multigroup(Protocol):
    name: ClassVar[str] = "multigroup"
    summary: ClassVar[str] = "immediate dependencies across groups that share members"
    control: ClassVar[str] = "up to one entry a sender and group"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = GroupPacket
    membership: ClassVar[str] = "nothing changes; groups may overlap"
    overlapping_groups: ClassVar[bool] = True
    relays: ClassVar[bool] = False
    symmetric: ClassVar[bool] = True

    groups: list[tuple[str, list[int]]]
    sent: int = 0
    last: dict[Source, int] = msgspec.field(default_factory=dict)
    """The last message delivered here of each sender in each group."""
    causes: dict[Source, PendingDependency] = msgspec.field(default_factory=dict)
    named: dict[Source, int] = msgspec.field(default_factory=dict)
    """The last message of each sender in each group that never has to be named again."""
    holdback: HoldBackQueue[tuple[int, int, int], GroupPacket] = msgspec.field(default_factory=HoldBackQueue)
    undelivered: set[MessageId] = msgspec.field(default_factory=set)
    """The messages received and not delivered yet."""

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
        index = self._group_index(group)
        self.sent += 1
        previous = self.last.get((self.me, index), 0)
        packet = GroupPacket(payload, self.me, self.sent, index, previous, self._uncovered(index))
        self._cover(index)
        self.last[self.me, index] = self.sent
        self.causes[self.me, index] = PendingDependency(self.sent, {index})
        to = tuple(peer for peer in self.groups[index][1] if peer != self.me)
        return Effects((Send(to, packet),) if to else (), message=MessageId(self.me, self.sent))

    def _group_index(self, group: str | None) -> int:
        for index, (name, members) in enumerate(self.groups):
            if (name == group or (group is None and len(self.groups) == 1)) and self.me in members:
                return index
        raise LocalError(f"peer {self.me} is in no group {group}")

    def _uncovered(self, index: int) -> list[tuple[int, int, int]]:
        """The dependencies that a message to a group must name: those that no earlier message to it has
        named."""
        return [
            (sender, group, cause.seq)
            for (sender, group), cause in self.causes.items()
            if index not in cause.covered_by
        ]

    def _cover(self, index: int) -> None:
        """A message to a group was sent: drop dependencies on that group; the message covers the others."""
        for source, cause in list(self.causes.items()):
            if source[1] == index:
                self._drop(source, cause.seq)
            else:
                cause.covered_by.add(index)

    def _drop(self, source: Source, seq: int) -> None:
        """Messages of a source up to `seq` never have to be named again."""
        self.named[source] = max(seq, self.named.get(source, 0))
        if source in self.causes and self.causes[source].seq <= seq:
            del self.causes[source]

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        valid = self._validate(packet)
        message = MessageId(valid.origin, valid.seq)
        if valid.seq <= self.last.get((valid.origin, valid.group), 0) or message in self.undelivered:
            return NO_EFFECTS
        self.undelivered.add(message)
        relevant = [cause for cause in valid.causes if self.me in self.groups[cause[1]][1]]
        dependencies = [*relevant, (valid.origin, valid.group, valid.previous)]
        self.holdback.hold(valid, dependencies, self._is_delivered)
        return NO_EFFECTS

    def _validate(self, packet: Packet) -> GroupPacket:
        if not isinstance(packet, GroupPacket):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        sources = [(packet.origin, packet.group), *((sender, group) for sender, group, _ in packet.causes)]
        for sender, group in sources:
            if not (0 <= group < len(self.groups) and sender in self.groups[group][1]):
                raise RemoteError(f"a packet names peer {sender} in group {group}, which it is not in")
        if packet.origin == self.me or self.me not in self.groups[packet.group][1]:
            raise RemoteError("a packet that is not addressed to this peer")
        numbers = [packet.seq, *(seq for _, _, seq in packet.causes)]
        if min(numbers) < 1 or not 0 <= packet.previous < packet.seq:
            raise RemoteError("a packet with numbers that no message has")
        if any(sender == self.me and seq > self.sent for sender, _, seq in packet.causes):
            raise RemoteError("a packet depends on messages that this peer has not sent")
        return packet

    def _is_delivered(self, dependency: tuple[int, int, int]) -> bool:
        sender, group, seq = dependency
        return self.last.get((sender, group), 0) >= seq

    def deliver(self, now: int) -> Delivery | None:
        if not self.holdback.ready:
            return None
        packet = self.holdback.ready.pop(0)
        message = MessageId(packet.origin, packet.seq)
        self.undelivered.discard(message)
        self.last[packet.origin, packet.group] = packet.seq
        self._update_causes(packet)
        self.holdback.release((packet.origin, packet.group, packet.seq), self._is_delivered)
        return Delivery(message, packet.payload)

    def _update_causes(self, packet: GroupPacket) -> None:
        for sender, group, seq in packet.causes:
            if group == packet.group:
                self._drop((sender, group), seq)
            else:
                self._cover_one((sender, group), seq, packet.group)
        self.causes[packet.origin, packet.group] = PendingDependency(packet.seq, set())

    def _cover_one(self, source: Source, seq: int, group: int) -> None:
        """A message to `group` has named message `seq` of another group."""
        pending = self.causes.get(source)
        if pending is not None and pending.seq == seq:
            pending.covered_by.add(group)
        elif seq > max(self.named.get(source, 0), pending.seq if pending else 0):
            self.causes[source] = PendingDependency(seq, {group})

    def waiting(self) -> list[Waiting]:
        return [
            Waiting(MessageId(packet.origin, packet.seq), MessageId(sender, seq))
            for packet, (sender, _, seq) in self.holdback.waiting()
        ]

    def paper_bytes(self, packet: Packet) -> int:
        return 8 * len(packet.causes) if isinstance(packet, GroupPacket) else 0
