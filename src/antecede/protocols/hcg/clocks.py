"""The three clocks of subgroups.

A clock stamps what its member sends, receives what the others send, and yields both in the order of the
subgroup, which never puts a message before one of its causes:

- `RealTimeClock` sorts by (stamp, sender, number). A message is next once the member's own clock shows the
  stamp plus the wait: the longest local delay, the largest clock difference, and one unit more, because at
  that very instant a packet may still arrive. By then every packet with an earlier stamp is here. One
  number a message, no other packets.
- `LinearClock` is Lamport's queue. A message is next when it has the smallest stamp and all others have
  promised to send none as small. Messages and acknowledgements are promises. Both say how many packets
  their sender had sent before, and a promise counts only once those are here, so links need not be FIFO. A
  member that has promised enough already does not acknowledge.
- `VectorClock` holds a message until it is its sender's next and everything that its vector counts has been
  yielded.
"""

from __future__ import annotations

import abc
import heapq

import msgspec

from antecede.causality import BitWindow
from antecede.protocols.base import HoldBackQueue, RemoteError
from antecede.protocols.hcg.packets import LinearAck, LocalRank, SubgroupPacket
from antecede.protocols.limits import MAX_AHEAD

SentPacket = tuple[LocalRank, SubgroupPacket]
"""A packet, and who sent it in the subgroup."""

PacketNumber = tuple[LocalRank, int]
"""A member of the subgroup, and the number of one of its packets."""


class SubgroupClock(msgspec.Struct):
    """One member's view of the order of its subgroup."""

    me: LocalRank
    size: int
    received: list[BitWindow] = msgspec.field(default_factory=list)
    """The numbers of each member's packets that have arrived."""
    sent: int = 0

    def __post_init__(self) -> None:
        if not self.received:
            self.received = [BitWindow() for _ in range(self.size)]

    @abc.abstractmethod
    def stamp(self, now: int) -> list[int]:
        """The stamp of this member's next packet, which then counts as sent."""

    @abc.abstractmethod
    def enqueue(self, sender: LocalRank, packet: SubgroupPacket) -> None:
        """Hold a packet that was not received before."""

    @abc.abstractmethod
    def next_in_order(self) -> SentPacket | None:
        """The next packet in the order of the subgroup, if it is known to be next."""

    @abc.abstractmethod
    def held(self) -> list[tuple[SubgroupPacket, PacketNumber | None]]:
        """The held packets, each with the packet that it waits for, if it waits for one."""

    def validate(self, sender: LocalRank, packet: SubgroupPacket, now: int) -> None:
        """Raise a `RemoteError` if no correct member sends this."""
        if not 1 <= packet.number <= self.received[sender].base + MAX_AHEAD:
            raise RemoteError(f"packet number {packet.number} is out of range")
        if len(packet.stamp) != 1:
            raise RemoteError("a packet is stamped with a vector, not with one time")

    def receive(self, sender: LocalRank, packet: SubgroupPacket) -> None:
        if self.received[sender].add(packet.number):
            self.enqueue(sender, packet)

    def receive_ack(self, sender: LocalRank, ack: LinearAck) -> None:
        raise RemoteError("an acknowledgement in a subgroup that does not use them")

    def pending_ack(self) -> LinearAck | None:
        """The acknowledgement to send to the others, if one is due."""
        return None

    def advance_time(self, now: int) -> int | None:
        """The time is `now`. Returns when to be woken next."""
        return None


class RealTimeClock(SubgroupClock, tag="rt", kw_only=True):
    wait: int
    """How long after its stamp a message is next."""
    skew: int
    now: int = 0
    queue: list[tuple[int, LocalRank, int, SubgroupPacket]] = msgspec.field(default_factory=list)
    due: list[SentPacket] = msgspec.field(default_factory=list)
    wake_at: int = 0
    """The last time requested. There is one timer at a time, unless an earlier one is needed."""

    def stamp(self, now: int) -> list[int]:
        self.sent += 1
        self.now = max(self.now, now)
        return [self.now]

    def validate(self, sender: LocalRank, packet: SubgroupPacket, now: int) -> None:
        super().validate(sender, packet, now)
        if packet.stamp[0] > max(self.now, now) + self.skew:
            raise RemoteError("a packet is stamped with a time that no clock can show yet")

    def enqueue(self, sender: LocalRank, packet: SubgroupPacket) -> None:
        heapq.heappush(self.queue, (packet.stamp[0], sender, packet.number, packet))

    def advance_time(self, now: int) -> int | None:
        self.now = max(self.now, now)
        while self.queue and self.queue[0][0] + self.wait <= self.now:
            _, sender, _, packet = heapq.heappop(self.queue)
            self.due.append((sender, packet))
        if not self.queue:
            return None
        next_due = self.queue[0][0] + self.wait
        if self.now < self.wake_at <= next_due:
            return None
        self.wake_at = next_due
        return next_due

    def next_in_order(self) -> SentPacket | None:
        return self.due.pop(0) if self.due else None

    def held(self) -> list[tuple[SubgroupPacket, PacketNumber | None]]:
        return [(packet, None) for *_, packet in self.queue]


class LinearClock(SubgroupClock, tag="lt"):
    promised: list[int] = msgspec.field(default_factory=list)
    """For each member, a bound: no packet still to arrive from it is stamped this or less. Its own entry is
    the clock."""
    pending: list[list[tuple[int, int]]] = msgspec.field(default_factory=list)
    """For each member a heap of (count, time): promises that hold once so many of its packets are here."""
    announced: int = 0
    """The last of its own promises that was sent to the others."""
    queue: list[tuple[int, LocalRank, int, SubgroupPacket]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.promised:
            self.promised = [0] * self.size
            self.pending = [[] for _ in range(self.size)]
        super().__post_init__()

    def stamp(self, now: int) -> list[int]:
        self.sent += 1
        self.announced = self.promised[self.me] = self.promised[self.me] + 1
        return [self.announced]

    def validate(self, sender: LocalRank, packet: SubgroupPacket, now: int) -> None:
        super().validate(sender, packet, now)
        self._validate_time(packet.stamp[0])

    def _validate_time(self, time: int) -> None:
        if not 1 <= time <= self.promised[self.me] + MAX_AHEAD:
            raise RemoteError(f"linear time {time} is out of range")

    def enqueue(self, sender: LocalRank, packet: SubgroupPacket) -> None:
        (time,) = packet.stamp
        heapq.heappush(self.queue, (time, sender, packet.number, packet))
        self.promised[self.me] = max(self.promised[self.me], time)
        self._add_promise(sender, packet.number, time)

    def receive_ack(self, sender: LocalRank, ack: LinearAck) -> None:
        self._validate_time(ack.time)
        if not 0 <= ack.sent <= self.received[sender].base + MAX_AHEAD:
            raise RemoteError(f"an acknowledgement after {ack.sent} packets is out of range")
        self._add_promise(sender, ack.sent, ack.time)

    def _add_promise(self, sender: LocalRank, count: int, time: int) -> None:
        """Add a promise that holds after `count` packets, and apply all that hold by now."""
        pending = self.pending[sender]
        heapq.heappush(pending, (count, time))
        while pending and pending[0][0] <= self.received[sender].base:
            self.promised[sender] = max(self.promised[sender], heapq.heappop(pending)[1])

    def pending_ack(self) -> LinearAck | None:
        if self.promised[self.me] == self.announced:
            return None
        self.announced = self.promised[self.me]
        return LinearAck(self.sent, self.announced)

    def next_in_order(self) -> SentPacket | None:
        if not self.queue or self.queue[0][0] > min(self.promised):
            return None
        _, sender, _, packet = heapq.heappop(self.queue)
        return sender, packet

    def held(self) -> list[tuple[SubgroupPacket, PacketNumber | None]]:
        return [(packet, None) for *_, packet in self.queue]


class VectorClock(SubgroupClock, tag="vt"):
    delivered: list[int] = msgspec.field(default_factory=list)
    holdback: HoldBackQueue[PacketNumber, SentPacket] = msgspec.field(default_factory=HoldBackQueue)

    def __post_init__(self) -> None:
        if not self.delivered:
            self.delivered = [0] * self.size
        super().__post_init__()

    def stamp(self, now: int) -> list[int]:
        self.sent += 1
        self.delivered[self.me] = self.sent
        return self.delivered.copy()

    def validate(self, sender: LocalRank, packet: SubgroupPacket, now: int) -> None:
        vector = packet.stamp
        if len(vector) != self.size or vector[sender] != packet.number or packet.number < 1:
            raise RemoteError("a packet is stamped with a vector that is not its sender's")
        if vector[self.me] > self.sent:
            raise RemoteError("a packet depends on messages that this peer has not sent")
        if not all(0 <= count <= self.delivered[rank] + MAX_AHEAD for rank, count in enumerate(vector)):
            raise RemoteError("a packet is stamped with counts that are out of range")

    def enqueue(self, sender: LocalRank, packet: SubgroupPacket) -> None:
        unmet = [(rank, count - (rank == sender)) for rank, count in enumerate(packet.stamp)]
        self.holdback.hold((sender, packet), unmet, self._is_delivered)

    def _is_delivered(self, key: PacketNumber) -> bool:
        return self.delivered[key[0]] >= key[1]

    def next_in_order(self) -> SentPacket | None:
        if not self.holdback.ready:
            return None
        sender, packet = self.holdback.ready.pop(0)
        if sender != self.me:
            self.delivered[sender] = packet.number
            self.holdback.release((sender, packet.number), self._is_delivered)
        return sender, packet

    def held(self) -> list[tuple[SubgroupPacket, PacketNumber | None]]:
        """Without the packet waited for if the gateway is involved: its numbers are not sequence numbers."""
        return [
            (packet, key if sender and key[0] else None) for (sender, packet), key in self.holdback.waiting()
        ]
