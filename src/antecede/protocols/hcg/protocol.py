"""Members and gateways of HCG, and the paper's baseline `basic`."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import (
    Delivery,
    Effects,
    HoldBackQueue,
    LinkRequirements,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.hcg.clocks import LinearClock, PacketNumber, RealTimeClock, VectorClock
from antecede.protocols.hcg.layout import SubgroupLayout
from antecede.protocols.hcg.packets import GatewayPacket, LinearAck, LocalRank, SubgroupPacket
from antecede.protocols.hcg.precedence import PrecedenceByTime, PrecedenceByVector
from antecede.protocols.limits import MAX_AHEAD


class GatewayDependency(NamedTuple):
    """What a message from another gateway waits for."""

    kind: int
    source: int
    """A subgroup; for `_OWN_PREVIOUS`, a peer."""
    number: int


_ALL_UP_TO, _SINGLE, _OWN_PREVIOUS = range(3)


class Hcg(Protocol):
    name: ClassVar[str] = "hcg"
    kernel: ClassVar[str] = "hcg"
    summary: ClassVar[str] = "subgroups on real, linear or vector clocks, joined by gateways"
    control: ClassVar[str] = "1 time or s counts in a subgroup of s, k counts between k gateways"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False, bounded_delays=True)
    packets: ClassVar[Any] = SubgroupPacket | LinearAck | GatewayPacket
    buffering: ClassVar[str] = "until its time has come, all have acknowledged, or its causes are delivered"
    layout: ClassVar[Any] = SubgroupLayout

    gateways: list[int]
    """The first peer of each subgroup."""
    clock: RealTimeClock | LinearClock | VectorClock
    precedence: PrecedenceByTime | PrecedenceByVector
    """At a gateway, what may precede a message."""
    received: list[BitWindow]
    """At a gateway, the numbers received from each subgroup."""
    forwarded: list[BitWindow]
    """At a gateway, the numbers of each subgroup forwarded to this one; of this subgroup, those assigned."""
    last_forwarded: dict[int, int] = msgspec.field(default_factory=dict)
    """At a gateway, the last message of each peer of another subgroup that was forwarded."""
    holdback: HoldBackQueue[GatewayDependency, tuple[int, GatewayPacket]] = msgspec.field(
        default_factory=HoldBackQueue
    )
    sent: int = 0
    unordered: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """At a gateway, (subgroup, number) of messages that it forwarded and that the order of its subgroup has
    not reached yet."""
    ready: list[SubgroupPacket] = msgspec.field(default_factory=list)
    """At a gateway, the messages that its own application is to deliver."""

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.with_layout(size, SubgroupLayout.default(size))

    @classmethod
    def with_layout(cls, size: int, layout: SubgroupLayout) -> list[Self]:
        """All members of a group with these subgroups."""
        layout.validate(size)
        subgroups = layout.parse()
        gateways = list(accumulate((members for _, members in subgroups[:-1]), initial=0))
        return [
            cls._create_member(me, size, gateways, subgroups[site], layout)
            for me, site in enumerate(layout.sites(size))
        ]

    @classmethod
    def _create_member(
        cls, me: int, size: int, gateways: list[int], subgroup: tuple[str, int], layout: SubgroupLayout
    ) -> Self:
        kind, members = subgroup
        rank = me - gateways[bisect_right(gateways, me) - 1]
        preceding, received, forwarded = ([BitWindow() for _ in gateways] for _ in range(3))
        clock: RealTimeClock | LinearClock | VectorClock
        precedence: PrecedenceByTime | PrecedenceByVector
        if kind == "rt":
            clock = cls._create_real_time(rank, members, layout)
            precedence = PrecedenceByTime(clock.wait, preceding)
        elif kind == "lt":
            clock, precedence = LinearClock(rank, members), PrecedenceByTime(1, preceding)
        else:
            clock = VectorClock(rank, members)
            precedence = PrecedenceByVector.create(members, len(gateways))
        return cls(me, size, gateways, clock, precedence, received, forwarded)

    @classmethod
    def _create_real_time(cls, rank: LocalRank, members: int, layout: SubgroupLayout) -> RealTimeClock:
        wait = layout.longest_delay + layout.skew + 1
        return RealTimeClock(rank, members, wait=wait, skew=layout.skew)

    def _subgroup(self, peer: int) -> int:
        return bisect_right(self.gateways, peer) - 1

    @property
    def _is_gateway(self) -> bool:
        return self.clock.me == 0

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self.sent += 1
        send = self._send_in_subgroup(payload, self.me, self.sent, now)
        return self._effects(now, [send], MessageId(self.me, self.sent))

    def _send_in_subgroup(self, payload: bytes, origin: int, seq: int, now: int) -> Send:
        """Send a message in this member's subgroup; a gateway orders its own packets with all others."""
        stamp = self.clock.stamp(now)
        packet = SubgroupPacket(payload, origin, seq, self.clock.sent, stamp)
        if self._is_gateway:
            self.clock.receive(0, packet)
        return self._to_subgroup(packet)

    def _to_subgroup(self, packet: Packet) -> Send:
        first = self.me - self.clock.me
        return Send(tuple(peer for peer in range(first, first + self.clock.size) if peer != self.me), packet)

    def _effects(self, now: int, sends: list[Send], message: MessageId | None = None) -> Effects:
        """The effects of time passing and of packets just received."""
        wake_at = self.clock.advance_time(now)
        if (ack := self.clock.pending_ack()) is not None:
            sends.append(self._to_subgroup(ack))
        if self._is_gateway:
            sends += self._process_in_order()
        return Effects(tuple(send for send in sends if send.to), wake_at, message)

    def wake(self, now: int) -> Effects:
        return self._effects(now, [])

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        sends: list[Send] = []
        if isinstance(packet, GatewayPacket):
            sends += self._receive_from_gateway(self._validate(link, packet), packet, now)
        elif isinstance(packet, SubgroupPacket):
            sender = self._local_rank(link)
            self._validate_origin(link, packet)
            self.clock.validate(sender, packet, now)
            self.clock.receive(sender, packet)
        elif isinstance(packet, LinearAck):
            self.clock.receive_ack(self._local_rank(link), packet)
        else:
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        return self._effects(now, sends)

    def _local_rank(self, link: int) -> LocalRank:
        rank = link - (self.me - self.clock.me)
        if not 0 <= rank < self.clock.size or link == self.me:
            raise RemoteError(f"a packet from peer {link}, which is not another member of the subgroup")
        return rank

    def _validate_origin(self, link: int, packet: SubgroupPacket) -> None:
        """Members send their own messages in a subgroup; a gateway also those of other subgroups."""
        if not 0 <= packet.origin < self.size or packet.seq < 1:
            raise RemoteError(f"message number {packet.seq} of peer {packet.origin} is out of range")
        if packet.origin == link:
            if link not in self.gateways and packet.seq != packet.number:
                raise RemoteError("a packet number that is not its message's sequence number")
        elif link not in self.gateways or self._subgroup(packet.origin) == self._subgroup(self.me):
            raise RemoteError(f"peer {link} sends a message of peer {packet.origin}")

    def _validate(self, link: int, packet: GatewayPacket) -> int:
        """The subgroup that a packet from another gateway comes from."""
        if not self._is_gateway or link not in self.gateways or link == self.me:
            raise RemoteError(f"a packet between gateways, from peer {link} to peer {self.me}")
        source = self._subgroup(link)
        if not 0 <= packet.origin < self.size or self._subgroup(packet.origin) != source:
            raise RemoteError(f"peer {link} sends a message of peer {packet.origin}")
        if not 1 <= packet.seq <= self.last_forwarded.get(packet.origin, 0) + MAX_AHEAD:
            raise RemoteError(f"message number {packet.seq} of peer {packet.origin} is out of range")
        if not 1 <= packet.number <= self.forwarded[source].base + MAX_AHEAD:
            raise RemoteError(f"number {packet.number} of a gateway is out of range")
        if len(packet.counts) != len(self.gateways) or min(packet.counts) < 0:
            raise RemoteError(f"a packet with counts of {len(packet.counts)} subgroups")
        for subgroup, number in [*enumerate(packet.counts), *packet.beyond]:
            self._validate_dependency(source, packet, subgroup, number)
        if any(number < 1 for _, number in packet.beyond):
            raise RemoteError("a packet depends on a number below 1")
        return source

    def _validate_dependency(self, source: int, packet: GatewayPacket, subgroup: int, number: int) -> None:
        here = self._subgroup(self.me)
        if not 0 <= subgroup < len(self.gateways):
            raise RemoteError(f"a packet depends on subgroup {subgroup}, which does not exist")
        if subgroup == source and number >= packet.number:
            raise RemoteError("a packet depends on itself or on later ones")
        if subgroup == here and number > self.forwarded[here].base:
            raise RemoteError("a packet depends on messages that this peer has not sent")
        if number > self.forwarded[subgroup].base + MAX_AHEAD:
            raise RemoteError(f"a packet depends on number {number} of a gateway, which is out of range")

    def _receive_from_gateway(self, source: int, packet: GatewayPacket, now: int) -> list[Send]:
        if not self.received[source].add(packet.number):
            return []
        self.holdback.hold((source, packet), self._dependencies(packet), self._is_met)
        sends = []
        while self.holdback.ready:
            sends.append(self._forward(*self.holdback.ready.pop(0), now))
        return sends

    def _dependencies(self, packet: GatewayPacket) -> list[GatewayDependency]:
        return [
            *(GatewayDependency(_ALL_UP_TO, subgroup, count) for subgroup, count in enumerate(packet.counts)),
            *(GatewayDependency(_SINGLE, subgroup, number) for subgroup, number in packet.beyond),
            GatewayDependency(_OWN_PREVIOUS, packet.origin, packet.seq - 1),
        ]

    def _is_met(self, dependency: GatewayDependency) -> bool:
        kind, source, number = dependency
        if kind == _OWN_PREVIOUS:
            return self.last_forwarded.get(source, 0) >= number
        if kind == _SINGLE:
            return number in self.forwarded[source]
        return self.forwarded[source].base >= number

    def _forward(self, source: int, packet: GatewayPacket, now: int) -> Send:
        """Everything that a message names has been forwarded: send it in this subgroup too."""
        forwarded = self.forwarded[source]
        before = forwarded.base
        forwarded.add(packet.number)
        self.last_forwarded[packet.origin] = packet.seq
        self.unordered.append((source, packet.number))
        self.holdback.release(GatewayDependency(_OWN_PREVIOUS, packet.origin, packet.seq), self._is_met)
        self.holdback.release(GatewayDependency(_SINGLE, source, packet.number), self._is_met)
        for count in range(before + 1, forwarded.base + 1):
            self.holdback.release(GatewayDependency(_ALL_UP_TO, source, count), self._is_met)
        return self._send_in_subgroup(packet.payload, packet.origin, packet.seq, now)

    def _process_in_order(self) -> list[Send]:
        """At a gateway: the next message in the subgroup's order, for its application and the other
        gateways."""
        sends = []
        here = self._subgroup(self.me)
        while (following := self.clock.next_in_order()) is not None:
            sender, packet = following
            if packet.origin != self.me:
                self.ready.append(packet)
            preceding = self._find_preceding(sender, packet)
            if self._subgroup(packet.origin) == here:
                numbered = self._assign_number(packet, preceding)
                self._record(sender, packet, here, numbered.number)
                sends.append(Send(tuple(peer for peer in self.gateways if peer != self.me), numbered))
            else:
                self._record(sender, packet, *self.unordered.pop(0))
        return sends

    def _find_preceding(self, sender: LocalRank, packet: SubgroupPacket) -> list[BitWindow]:
        """For each subgroup, the numbers of the messages that may precede the packet that is next."""
        return self.precedence.find_preceding(sender, packet)

    def _record(self, sender: LocalRank, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        self.precedence.record(sender, packet, subgroup, number)

    def _assign_number(self, packet: SubgroupPacket, preceding: list[BitWindow]) -> GatewayPacket:
        counts = [window.base for window in preceding]
        beyond = [
            (subgroup, number)
            for subgroup, window in enumerate(preceding)
            for number in range(window.base + 1, window.last + 1)
            if number in window
        ]
        assigned = self.forwarded[self._subgroup(self.me)]
        number = assigned.base + 1
        assigned.add(number)
        return GatewayPacket(packet.payload, packet.origin, packet.seq, number, counts, beyond)

    def deliver(self, now: int) -> Delivery | None:
        packet = self._next_ready()
        return None if packet is None else Delivery(MessageId(packet.origin, packet.seq), packet.payload)

    def _next_ready(self) -> SubgroupPacket | None:
        if self._is_gateway:
            return self.ready.pop(0) if self.ready else None
        following = self.clock.next_in_order()
        return None if following is None else following[1]

    def waiting(self) -> list[Waiting]:
        held = [
            Waiting(MessageId(packet.origin, packet.seq), self._message_with(key))
            for packet, key in self.clock.held()
            if packet.origin != self.me
        ]
        return held + [
            Waiting(MessageId(packet.origin, packet.seq), _awaited_message(dependency))
            for (_, packet), dependency in self.holdback.waiting()
        ]

    def _message_with(self, key: PacketNumber | None) -> MessageId | None:
        return None if key is None else MessageId(self.me - self.clock.me + key[0], key[1])

    def paper_bytes(self, packet: Packet) -> int:
        """4 bytes for each time and each number of a vector, the gateway's own number included."""
        if isinstance(packet, GatewayPacket):
            return 4 * (1 + len(packet.counts) + len(packet.beyond))
        return 4 * len(packet.stamp) if isinstance(packet, SubgroupPacket) else 4


def _awaited_message(dependency: GatewayDependency) -> MessageId | None:
    return MessageId(dependency.source, dependency.number) if dependency.kind == _OWN_PREVIOUS else None


class Basic(Hcg):
    name: ClassVar[str] = "basic"
    kernel: ClassVar[str] = "hcg"
    summary: ClassVar[str] = "as hcg, but a message follows all that its gateway had before it"

    def _find_preceding(self, sender: LocalRank, packet: SubgroupPacket) -> list[BitWindow]:
        return self.forwarded

    def _record(self, sender: LocalRank, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        pass
