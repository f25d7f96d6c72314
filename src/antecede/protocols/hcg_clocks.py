"""The three clocks of paper 003's subgroups, and what a gateway remembers by each of them.

A clock stamps what its member sends, takes what the others send, and gives out both in the subgroup's order,
which never puts a message before one of its causes:

- `RealTimeClock` sorts by (stamp, sender, number) and gives a message out once its own clock shows the stamp
  plus the longest local delay and the largest clock difference, and one unit, because at that very instant
  an arrival may still be to come. By then everything with a stamp as early is here. One number a message,
  no other packets.
- `LinearClock` is Lamport's queue: a message's turn comes when it has the smallest stamp and all others have
  promised to send none as small. Messages and acknowledgements are promises, and both say how many packets
  their sender had sent, so that a promise counts only once those are here: links need not be FIFO. Who has
  promised enough already need not acknowledge.
- `VectorClock` holds a message until it is its sender's next and what its vector counts has been given out.

`PrecedenceByTime` and `PrecedenceByVector` say which messages may precede one that leaves the subgroup. By
time, m1 may precede m if it is at least `gap` older: 1 in linear time, the whole wait in real time. Each
message is looked at once in order of time, and what is remembered is what lies
within one gap. By vector, m1 may precede m if m's vector counts it. Each message is looked at
once for each member; the oldest half of the last `MAX_REMEMBERED` messages of each sender is dropped when
there are as many, and taken to precede whatever comes: that orders too much, never too little.
"""

from __future__ import annotations

import abc
import heapq
from typing import ClassVar, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import HoldBackQueue, Packet, RemoteError
from antecede.protocols.flat import MessagePacket
from antecede.protocols.limits import MAX_AHEAD, MAX_REMEMBERED


class SubgroupPacket(MessagePacket, frozen=True, array_like=True, tag=20):
    """A message within a subgroup, sent there by its member or by the gateway that forwards it."""

    metric_name: ClassVar[str] = "local"

    seq: int
    number: int
    """Which of its sender's packets in the subgroup it is; a gateway's are its own and the forwarded ones."""
    stamp: list[int]
    """One time, or a vector of numbers, the sender's own included."""

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class LinearAck(Packet, frozen=True, array_like=True, tag=21):
    """A promise: after its first `sent` packets, its sender stamps none with `time` or less."""

    metric_name: ClassVar[str] = "ack"

    sent: int
    time: int


Place = int
"""A member's place in its subgroup; the gateway's is 0."""

Placed = tuple[Place, SubgroupPacket]
"""A packet and who sent it in the subgroup."""


class SubgroupClock(msgspec.Struct):
    """One member's side of its subgroup's order."""

    me: Place
    size: int
    arrived: list[BitWindow] = msgspec.field(default_factory=list)
    """The numbers of each member's packets that are here."""
    sent: int = 0

    def __post_init__(self) -> None:
        if not self.arrived:
            self.arrived = [BitWindow() for _ in range(self.size)]

    @abc.abstractmethod
    def stamp(self, now: int) -> list[int]:
        """For the next packet of this member, which counts as sent."""

    @abc.abstractmethod
    def file(self, sender: Place, packet: SubgroupPacket) -> None:
        """A packet that is new here."""

    @abc.abstractmethod
    def next(self) -> Placed | None:
        """The next packet in the order of the subgroup, if its turn has come."""

    @abc.abstractmethod
    def held(self) -> list[tuple[SubgroupPacket, tuple[Place, int] | None]]:
        """Whose turn has not come, and the packet it waits for where that is what it waits for."""

    def check(self, sender: Place, packet: SubgroupPacket, now: int) -> None:
        """A `RemoteError` if no correct member sends this."""
        if not 1 <= packet.number <= self.arrived[sender].base + MAX_AHEAD:
            raise RemoteError(f"a packet with number {packet.number} cannot be")
        if len(packet.stamp) != 1:
            raise RemoteError("a packet with a vector where there is one time")

    def take(self, sender: Place, packet: SubgroupPacket) -> None:
        if self.arrived[sender].add(packet.number):
            self.file(sender, packet)

    def acknowledged(self, sender: Place, ack: LinearAck) -> None:
        raise RemoteError("an acknowledgement where nobody waits for one")

    def owes(self) -> LinearAck | None:
        """What the others are to be told besides messages."""
        return None

    def pass_time(self, now: int) -> int | None:
        """It is `now`; when to be woken next."""
        return None


class RealTimeClock(SubgroupClock, tag="rt", kw_only=True):
    patience: int
    """How long after its stamp a message's turn comes."""
    skew: int
    now: int = 0
    queue: list[tuple[int, Place, int, SubgroupPacket]] = msgspec.field(default_factory=list)
    due: list[Placed] = msgspec.field(default_factory=list)
    alarm: int = 0
    """The last time asked for; there is one alarm at a time unless an earlier one is needed."""

    def stamp(self, now: int) -> list[int]:
        self.sent += 1
        self.now = max(self.now, now)
        return [self.now]

    def check(self, sender: Place, packet: SubgroupPacket, now: int) -> None:
        super().check(sender, packet, now)
        if packet.stamp[0] > max(self.now, now) + self.skew:
            raise RemoteError("a packet from a time that no clock may show yet")

    def file(self, sender: Place, packet: SubgroupPacket) -> None:
        heapq.heappush(self.queue, (packet.stamp[0], sender, packet.number, packet))

    def pass_time(self, now: int) -> int | None:
        self.now = max(self.now, now)
        while self.queue and self.queue[0][0] + self.patience <= self.now:
            _, sender, _, packet = heapq.heappop(self.queue)
            self.due.append((sender, packet))
        if not self.queue:
            return None
        turn = self.queue[0][0] + self.patience
        if self.now < self.alarm <= turn:
            return None
        self.alarm = turn
        return turn

    def next(self) -> Placed | None:
        return self.due.pop(0) if self.due else None

    def held(self) -> list[tuple[SubgroupPacket, tuple[Place, int] | None]]:
        return [(packet, None) for *_, packet in self.queue]


class LinearClock(SubgroupClock, tag="lt"):
    promised: list[int] = msgspec.field(default_factory=list)
    """From each member: no packet that is still to come is stamped so or less. One's own is the clock."""
    later: list[list[tuple[int, int]]] = msgspec.field(default_factory=list)
    """(count, time): promises of each member that hold once so many of its packets are here, as a heap."""
    told: int = 0
    """What the others know of one's own promise."""
    queue: list[tuple[int, Place, int, SubgroupPacket]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.promised:
            self.promised = [0] * self.size
            self.later = [[] for _ in range(self.size)]
        super().__post_init__()

    def stamp(self, now: int) -> list[int]:
        self.sent += 1
        self.told = self.promised[self.me] = self.promised[self.me] + 1
        return [self.told]

    def check(self, sender: Place, packet: SubgroupPacket, now: int) -> None:
        super().check(sender, packet, now)
        self._check_time(packet.stamp[0])

    def _check_time(self, time: int) -> None:
        if not 1 <= time <= self.promised[self.me] + MAX_AHEAD:
            raise RemoteError(f"a packet stamped {time} cannot be")

    def file(self, sender: Place, packet: SubgroupPacket) -> None:
        (time,) = packet.stamp
        heapq.heappush(self.queue, (time, sender, packet.number, packet))
        self.promised[self.me] = max(self.promised[self.me], time)
        self._promise(sender, packet.number, time)

    def acknowledged(self, sender: Place, ack: LinearAck) -> None:
        self._check_time(ack.time)
        if not 0 <= ack.sent <= self.arrived[sender].base + MAX_AHEAD:
            raise RemoteError(f"an acknowledgement after {ack.sent} packets cannot be")
        self._promise(sender, ack.sent, ack.time)

    def _promise(self, sender: Place, count: int, time: int) -> None:
        """Keep it until so many packets are here, and take all that hold by now."""
        later = self.later[sender]
        heapq.heappush(later, (count, time))
        while later and later[0][0] <= self.arrived[sender].base:
            self.promised[sender] = max(self.promised[sender], heapq.heappop(later)[1])

    def owes(self) -> LinearAck | None:
        if self.promised[self.me] == self.told:
            return None
        self.told = self.promised[self.me]
        return LinearAck(self.sent, self.told)

    def next(self) -> Placed | None:
        if not self.queue or self.queue[0][0] > min(self.promised):
            return None
        _, sender, _, packet = heapq.heappop(self.queue)
        return sender, packet

    def held(self) -> list[tuple[SubgroupPacket, tuple[Place, int] | None]]:
        return [(packet, None) for *_, packet in self.queue]


class VectorClock(SubgroupClock, tag="vt"):
    delivered: list[int] = msgspec.field(default_factory=list)
    holdback: HoldBackQueue[tuple[Place, int], Placed] = msgspec.field(default_factory=HoldBackQueue)

    def __post_init__(self) -> None:
        if not self.delivered:
            self.delivered = [0] * self.size
        super().__post_init__()

    def stamp(self, now: int) -> list[int]:
        self.sent += 1
        self.delivered[self.me] = self.sent
        return self.delivered.copy()

    def check(self, sender: Place, packet: SubgroupPacket, now: int) -> None:
        vector = packet.stamp
        if len(vector) != self.size or vector[sender] != packet.number or packet.number < 1:
            raise RemoteError("a packet with a vector that is not its sender's")
        if vector[self.me] > self.sent:
            raise RemoteError("a packet depends on messages that this peer has not sent")
        if not all(0 <= count <= self.delivered[place] + MAX_AHEAD for place, count in enumerate(vector)):
            raise RemoteError("a packet counts messages that cannot be")

    def file(self, sender: Place, packet: SubgroupPacket) -> None:
        unmet = [(place, count - (place == sender)) for place, count in enumerate(packet.stamp)]
        self.holdback.hold((sender, packet), unmet, self._is_delivered)

    def _is_delivered(self, key: tuple[Place, int]) -> bool:
        return self.delivered[key[0]] >= key[1]

    def next(self) -> Placed | None:
        if not self.holdback.ready:
            return None
        sender, packet = self.holdback.ready.pop(0)
        if sender != self.me:
            self.delivered[sender] = packet.number
            self.holdback.release((sender, packet.number), self._is_delivered)
        return sender, packet

    def held(self) -> list[tuple[SubgroupPacket, tuple[Place, int] | None]]:
        """What waits for what; not so for the gateway's packets, whose numbers say nothing of causes."""
        return [
            (packet, key if sender and key[0] else None) for (sender, packet), key in self.holdback.waiting()
        ]


class PrecedenceByTime(msgspec.Struct, tag="recent"):
    """By times: the messages of one gap, and for each subgroup those that precede whatever comes."""

    gap: int
    before: list[BitWindow]
    entries: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """(time, subgroup, number), in the order of time"""

    def reach(self, sender: Place, packet: SubgroupPacket) -> list[BitWindow]:
        """The numbers of each subgroup's messages that may precede this packet, the next in order."""
        passed = 0
        for time, subgroup, number in self.entries:
            if time + self.gap > packet.stamp[0]:
                break
            self.before[subgroup].add(number)
            passed += 1
        del self.entries[:passed]
        return self.before

    def remember(self, sender: Place, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        """The packet just reached is message `number` of a subgroup."""
        self.entries.append((packet.stamp[0], subgroup, number))


class PrecedenceByVector(msgspec.Struct, tag="covered"):
    """By vectors: the last messages of each sender, and how far each member is known to know them."""

    before: list[list[BitWindow]]
    """For each member."""
    walked: list[list[int]]
    """For each member, how many packets of each sender are in its `before`."""
    log: list[list[tuple[int, int]]]
    """(subgroup, number) of each sender's last packets."""
    dropped: list[int]
    """How many of each sender's packets are no longer in its log."""

    @classmethod
    def of(cls, size: int, subgroups: int) -> Self:
        return cls(
            [[BitWindow() for _ in range(subgroups)] for _ in range(size)],
            [[0] * size for _ in range(size)],
            [[] for _ in range(size)],
            [0] * size,
        )

    def reach(self, sender: Place, packet: SubgroupPacket) -> list[BitWindow]:
        for place, count in enumerate(packet.stamp):
            self._walk(sender, place, count)
        return self.before[sender]

    def _walk(self, member: Place, place: Place, count: int) -> None:
        """A member knows the first `count` packets of the one at a place, as far as they are known here."""
        dropped = self.dropped[place]
        known = min(count, dropped + len(self.log[place]))
        for at in range(self.walked[member][place], known):
            subgroup, number = self.log[place][at - dropped]
            self.before[member][subgroup].add(number)
        self.walked[member][place] = max(known, self.walked[member][place])

    def remember(self, sender: Place, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        log = self.log[sender]
        log.append((subgroup, number))
        if len(log) == MAX_REMEMBERED:
            half = MAX_REMEMBERED // 2
            for member in range(len(self.walked)):
                self._walk(member, sender, self.dropped[sender] + half)
            del log[:half]
            self.dropped[sender] += half
