"""HCG (paper 003): subgroups on real, linear and vector clocks, joined by gateways; and the paper's baseline.

Within a subgroup, messages are ordered by whatever clock its members share (`hcg_clocks`). The first member
of each subgroup is its gateway. In the order of the subgroup, a gateway gives its members' messages numbers
and passes them on to the other gateways, each with what may precede it there: a number for each subgroup, up
to which all do. A gateway takes a message from another when all that it names was taken, and its origin's
previous message; then it sends it in its own subgroup as a message of its own, stamped with its own clock.

`hcg`: m1 may precede m, and is named, if m's stamp says so: in real time if m is as much later as everybody
waits for m1; in linear time if it is later; by vectors if m's counts m1. `basic` (the paper's B) names
everything the gateway had by then.

Why this is causal: if m1 was delivered where m was sent, then m's stamp says so, so m names m1 or follows it
in its origin's order. Hence every gateway takes m after m1, or had numbered m1 before m could come. Either
way its clock has m1 behind it when it stamps m, and the order of the subgroup keeps it so for all members.

Corrected from the paper (the tests show each rule as printed to fail):
- it delivers in real time without waiting; the wait is the longest local delay plus the largest clock
  difference. With it, "as much later as the wait" is exact, and replaces its thresholds (more than the
  delay, twice the delay between different processes), which miss causes;
- it gives concurrent messages equal numbers, taken from the smallest stamp; nobody can tell from those how
  many messages to wait for. Here every message has its own number;
- two messages of one sender within the clock difference are not concurrent: its order is always kept;
- dating forwarded messages back is left out: it needs a longer wait, and means nothing for linear clocks.
And found in putting it together:
- the wait is one unit longer than that sum, for packets that come at the very same instant;
- a gateway's own application gets forwarded messages in their turn, like all others, and its messages are
  numbered in theirs. If it got them at once, what it sends within the wait would not name them;
- a gateway takes messages of another out of order if they are concurrent, so "the largest number among
  those that precede m" counts some that do not. What lies beyond a gap is named one by one;
- what counts is what was taken, not what has arrived.
Then, if every timer rings in time, `hcg` on real-time and vector clocks orders at the gateways exactly what
happened before, except what is sent in answer to one of several messages that are delivered at one instant.

Links need not be FIFO; those within a real-time subgroup, and its clocks, must keep to their bounds. Control
information: within a subgroup of s one time (RT, LT) or s numbers (VT), and up to s² acknowledgements a
message (LT); between k gateways k numbers, and one for each message taken beyond a gap. A delivery costs
O(log held) (RT), O(s) for each acknowledgement (LT), O(s) (VT); at a gateway O(k + s) more. Memory: what is
held, O(s) a member, and at a gateway O(k + n), by vectors O(ks + s²), and what the clocks remember.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import (
    Delivery,
    Effects,
    HoldBackQueue,
    Layout,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.flat import MessagePacket
from antecede.protocols.hcg_clocks import (
    LinearAck,
    LinearClock,
    Place,
    PrecedenceByTime,
    PrecedenceByVector,
    RealTimeClock,
    SubgroupPacket,
    VectorClock,
)
from antecede.protocols.limits import MAX_AHEAD

CLOCKS = ("rt", "lt", "vt")


class SubgroupLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """The clock and the number of members of each subgroup; the first of each is its gateway."""

    subgroups: list[str]
    """Like rt:3, lt:4 or vt:2: real time, linear time or vectors."""
    longest_delay: int = 0
    """Within a subgroup, in ns."""
    skew: int = 0
    """The largest difference between two clocks, in ns."""

    @classmethod
    def default(cls, size: int) -> Self:
        """Half on real time, a quarter each on linear and vector clocks; small groups all on real time."""
        quarter = size // 4
        half = size - 2 * quarter
        if size < 8:
            return cls([f"rt:{size}"])
        return cls([f"rt:{half}", f"lt:{quarter}", f"vt:{quarter}"])

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        made = []
        while size:
            members = 1 + pick(size)
            made.append(f"{CLOCKS[pick(len(CLOCKS))]}:{members}")
            size -= members
        return cls(made)

    def validate(self, size: int) -> None:
        if min(self.longest_delay, self.skew) < 0:
            raise LocalError("longest_delay and skew cannot be negative")
        members = sum(count for _, count in self.parsed())
        if members != size:
            raise LocalError(f"subgroups has {members} members in all, not {size}")

    def parsed(self) -> list[tuple[str, int]]:
        """The clock and the size of each subgroup."""
        found = []
        for text in self.subgroups:
            clock, _, members = text.partition(":")
            if clock not in CLOCKS or not (members.isascii() and members.isdigit() and int(members)):
                raise LocalError(f"subgroups: '{text}' is not like rt:3, lt:4 or vt:2")
            found.append((clock, int(members)))
        return found

    def sites(self, size: int) -> list[int]:
        return [site for site, (_, members) in enumerate(self.parsed()) for _ in range(members)]

    def with_bounds(self, longest_delay: int, skew: int) -> Self:
        return msgspec.structs.replace(self, longest_delay=longest_delay, skew=skew)


class GatewayPacket(MessagePacket, frozen=True, array_like=True, tag=22):
    """A message between gateways."""

    metric_name: ClassVar[str] = "global"

    seq: int
    number: int
    """Its gateway's."""
    counts: list[int]
    """For each subgroup: the messages up to this number may precede it."""
    beyond: list[tuple[int, int]]
    """(subgroup, number): single messages above those that may precede it too."""

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class GatewayDependency(NamedTuple):
    """What a message from another gateway waits for."""

    kind: int
    who: int
    """A subgroup; a peer if it is a peer's own message that is waited for."""
    number: int


_ALL_UP_TO, _ONE, _PEERS_OWN = range(3)


class Hcg(Protocol):
    name: ClassVar[str] = "hcg"
    kernel: ClassVar[str] = "hcg"
    summary: ClassVar[str] = "subgroups on real, linear or vector clocks, joined by gateways"
    control: ClassVar[str] = "1 time or s counts in a subgroup of s, k counts between k gateways"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False, bounded_delays=True)
    packets: ClassVar[Any] = SubgroupPacket | LinearAck | GatewayPacket
    buffering: ClassVar[str] = "until its time has come, or all have acknowledged, or its causes are there"
    layout: ClassVar[Any] = SubgroupLayout

    gateways: list[int]
    """The first peer of each subgroup."""
    clock: RealTimeClock | LinearClock | VectorClock
    past: PrecedenceByTime | PrecedenceByVector
    """What a gateway remembers to say what may precede a message."""
    arrived: list[BitWindow]
    """At a gateway, the numbers from each subgroup that are here."""
    taken: list[BitWindow]
    """Those that are sent on in this subgroup; of this subgroup, those numbered."""
    last: dict[int, int] = msgspec.field(default_factory=dict)
    """The last message taken of each peer of another subgroup."""
    holdback: HoldBackQueue[GatewayDependency, tuple[int, GatewayPacket]] = msgspec.field(
        default_factory=HoldBackQueue
    )
    sent: int = 0
    turns: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(subgroup, number) of what a gateway sent on and whose turn has not come."""
    ready: list[SubgroupPacket] = msgspec.field(default_factory=list)

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.with_layout(size, SubgroupLayout.default(size))

    @classmethod
    def with_layout(cls, size: int, layout: SubgroupLayout) -> list[Self]:
        """All members of a group, in these subgroups."""
        layout.validate(size)
        parsed = layout.parsed()
        gateways = list(accumulate((members for _, members in parsed[:-1]), initial=0))
        return [
            cls._member(me, size, gateways, parsed[site], layout)
            for me, site in enumerate(layout.sites(size))
        ]

    @classmethod
    def _member(
        cls, me: int, size: int, gateways: list[int], subgroup: tuple[str, int], layout: SubgroupLayout
    ) -> Self:
        kind, members = subgroup
        place = me - gateways[bisect_right(gateways, me) - 1]
        before, arrived, taken = ([BitWindow() for _ in gateways] for _ in range(3))
        clock: RealTimeClock | LinearClock | VectorClock
        past: PrecedenceByTime | PrecedenceByVector
        if kind == "rt":
            patience = layout.longest_delay + layout.skew + 1
            clock = RealTimeClock(place, members, patience=patience, skew=layout.skew)
            past = PrecedenceByTime(patience, before)
        elif kind == "lt":
            clock, past = LinearClock(place, members), PrecedenceByTime(1, before)
        else:
            clock, past = VectorClock(place, members), PrecedenceByVector.of(members, len(gateways))
        return cls(me, size, gateways, clock, past, arrived, taken)

    def _subgroup(self, peer: int) -> int:
        return bisect_right(self.gateways, peer) - 1

    @property
    def _is_gateway(self) -> bool:
        return self.clock.me == 0

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self.sent += 1
        out = [self._send_here(payload, self.me, self.sent, now)]
        return self._effects(now, out, MessageId(self.me, self.sent))

    def _send_here(self, payload: bytes, origin: int, seq: int, now: int) -> Send:
        """Send a message in one's own subgroup; a gateway's take their turn there with all others."""
        stamp = self.clock.stamp(now)
        packet = SubgroupPacket(payload, origin, seq, self.clock.sent, stamp)
        if self._is_gateway:
            self.clock.take(0, packet)
        return self._to_subgroup(packet)

    def _to_subgroup(self, packet: Packet) -> Send:
        first = self.me - self.clock.me
        return Send(tuple(peer for peer in range(first, first + self.clock.size) if peer != self.me), packet)

    def _effects(self, now: int, out: list[Send], message: MessageId | None = None) -> Effects:
        wake_at = self.clock.pass_time(now)
        if (ack := self.clock.owes()) is not None:
            out.append(self._to_subgroup(ack))
        if self._is_gateway:
            out += self._turns_come()
        return Effects(tuple(send for send in out if send.to), wake_at, message)

    def wake(self, now: int) -> Effects:
        return self._effects(now, [])

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        out: list[Send] = []
        if isinstance(packet, GatewayPacket):
            out += self._from_gateway(self._validate(link, packet), packet, now)
        elif isinstance(packet, SubgroupPacket):
            sender = self._neighbour(link)
            self._check_origin(link, packet)
            self.clock.check(sender, packet, now)
            self.clock.take(sender, packet)
        elif isinstance(packet, LinearAck):
            self.clock.acknowledged(self._neighbour(link), packet)
        else:
            raise RemoteError(f"{self.name} has no packet {type(packet).__name__}")
        return self._effects(now, out)

    def _neighbour(self, link: int) -> Place:
        place = link - (self.me - self.clock.me)
        if not 0 <= place < self.clock.size or link == self.me:
            raise RemoteError(f"a packet from peer {link}, who is no other member of the subgroup")
        return place

    def _check_origin(self, link: int, packet: SubgroupPacket) -> None:
        """Members send their own messages in a subgroup; a gateway also those of other subgroups."""
        if not 0 <= packet.origin < self.size or packet.seq < 1:
            raise RemoteError(f"message number {packet.seq} of peer {packet.origin} cannot be")
        if packet.origin == link:
            if link not in self.gateways and packet.seq != packet.number:
                raise RemoteError("a packet with a number that is not its message's")
        elif link not in self.gateways or self._subgroup(packet.origin) == self._subgroup(self.me):
            raise RemoteError(f"peer {link} sends a message of peer {packet.origin}")

    def _validate(self, link: int, packet: GatewayPacket) -> int:
        """The subgroup that a packet from another gateway comes from."""
        if not self._is_gateway or link not in self.gateways or link == self.me:
            raise RemoteError(f"a packet between gateways, from peer {link} to peer {self.me}")
        source = self._subgroup(link)
        if not 0 <= packet.origin < self.size or self._subgroup(packet.origin) != source:
            raise RemoteError(f"peer {link} sends a message of peer {packet.origin}")
        if not 1 <= packet.seq <= self.last.get(packet.origin, 0) + MAX_AHEAD:
            raise RemoteError(f"message number {packet.seq} of peer {packet.origin} cannot be")
        if not 1 <= packet.number <= self.taken[source].base + MAX_AHEAD:
            raise RemoteError(f"number {packet.number} of a gateway cannot be")
        if len(packet.counts) != len(self.gateways) or min(packet.counts) < 0:
            raise RemoteError(f"a packet counts the messages of {len(packet.counts)} subgroups")
        here = self._subgroup(self.me)
        for subgroup, number in [*enumerate(packet.counts), *packet.beyond]:
            if not 0 <= subgroup < len(self.gateways):
                raise RemoteError(f"a packet names subgroup {subgroup}, which is not there")
            if subgroup == source and number >= packet.number:
                raise RemoteError("a packet depends on itself or on later ones")
            if subgroup == here and number > self.taken[here].base:
                raise RemoteError("a packet depends on messages that this peer has not sent")
            if number > self.taken[subgroup].base + MAX_AHEAD:
                raise RemoteError(f"a packet names number {number} of a gateway, which cannot be")
        if any(number < 1 for _, number in packet.beyond):
            raise RemoteError("a packet names a number that no message has")
        return source

    def _from_gateway(self, source: int, packet: GatewayPacket, now: int) -> list[Send]:
        if not self.arrived[source].add(packet.number):
            return []
        self.holdback.hold((source, packet), self._needs(packet), self._is_met)
        out = []
        while self.holdback.ready:
            out.append(self._accept(*self.holdback.ready.pop(0), now))
        return out

    def _needs(self, packet: GatewayPacket) -> list[GatewayDependency]:
        return [
            *(GatewayDependency(_ALL_UP_TO, subgroup, count) for subgroup, count in enumerate(packet.counts)),
            *(GatewayDependency(_ONE, subgroup, number) for subgroup, number in packet.beyond),
            GatewayDependency(_PEERS_OWN, packet.origin, packet.seq - 1),
        ]

    def _is_met(self, need: GatewayDependency) -> bool:
        if need.kind == _PEERS_OWN:
            return self.last.get(need.who, 0) >= need.number
        if need.kind == _ONE:
            return need.number in self.taken[need.who]
        return self.taken[need.who].base >= need.number

    def _accept(self, source: int, packet: GatewayPacket, now: int) -> Send:
        """All that a message names is taken: send it on in this subgroup."""
        taken = self.taken[source]
        before = taken.base
        taken.add(packet.number)
        self.last[packet.origin] = packet.seq
        self.turns.append((source, packet.number))
        self.holdback.release(GatewayDependency(_PEERS_OWN, packet.origin, packet.seq), self._is_met)
        self.holdback.release(GatewayDependency(_ONE, source, packet.number), self._is_met)
        for count in range(before + 1, taken.base + 1):
            self.holdback.release(GatewayDependency(_ALL_UP_TO, source, count), self._is_met)
        return self._send_here(packet.payload, packet.origin, packet.seq, now)

    def _turns_come(self) -> list[Send]:
        """At a gateway: what comes out of the subgroup's order, for the application and the others."""
        out = []
        here = self._subgroup(self.me)
        while (placed := self.clock.next()) is not None:
            sender, packet = placed
            if packet.origin != self.me:
                self.ready.append(packet)
            before = self._before(sender, packet)
            if self._subgroup(packet.origin) == here:
                numbered = self._number(packet, before)
                self._remember(sender, packet, here, numbered.number)
                out.append(Send(tuple(peer for peer in self.gateways if peer != self.me), numbered))
            else:
                self._remember(sender, packet, *self.turns.pop(0))
        return out

    def _before(self, sender: Place, packet: SubgroupPacket) -> list[BitWindow]:
        """The numbers of each subgroup's messages that may precede a packet whose turn has come."""
        return self.past.reach(sender, packet)

    def _remember(self, sender: Place, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        self.past.remember(sender, packet, subgroup, number)

    def _number(self, packet: SubgroupPacket, before: list[BitWindow]) -> GatewayPacket:
        counts = [window.base for window in before]
        beyond = [
            (subgroup, number)
            for subgroup, window in enumerate(before)
            for number in range(window.base + 1, window.last + 1)
            if number in window
        ]
        mine = self.taken[self._subgroup(self.me)]
        number = mine.base + 1
        mine.add(number)
        return GatewayPacket(packet.payload, packet.origin, packet.seq, number, counts, beyond)

    def deliver(self, now: int) -> Delivery | None:
        packet = self._next_ready()
        return None if packet is None else Delivery(MessageId(packet.origin, packet.seq), packet.payload)

    def _next_ready(self) -> SubgroupPacket | None:
        if self._is_gateway:
            return self.ready.pop(0) if self.ready else None
        placed = self.clock.next()
        return None if placed is None else placed[1]

    def waiting(self) -> list[Waiting]:
        held = [
            Waiting(MessageId(packet.origin, packet.seq), self._named_by(key))
            for packet, key in self.clock.held()
            if packet.origin != self.me
        ]
        return held + [
            Waiting(MessageId(packet.origin, packet.seq), _message(need))
            for (_, packet), need in self.holdback.waiting()
        ]

    def _named_by(self, key: tuple[Place, int] | None) -> MessageId | None:
        return None if key is None else MessageId(self.me - self.clock.me + key[0], key[1])

    def paper_bytes(self, packet: Packet) -> int:
        """4 bytes for each time and each number of a vector, the gateway's own number among them."""
        if isinstance(packet, GatewayPacket):
            return 4 * (1 + len(packet.counts) + len(packet.beyond))
        return 4 * len(packet.stamp) if isinstance(packet, SubgroupPacket) else 4


def _message(need: GatewayDependency) -> MessageId | None:
    return MessageId(need.who, need.number) if need.kind == _PEERS_OWN else None


class Basic(Hcg):
    name: ClassVar[str] = "basic"
    kernel: ClassVar[str] = "hcg"
    summary: ClassVar[str] = "as hcg, but a message follows all that its gateway had before it"

    def _before(self, sender: Place, packet: SubgroupPacket) -> list[BitWindow]:
        return self.taken

    def _remember(self, sender: Place, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        pass
