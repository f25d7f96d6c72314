"""Subgroups on real time whose promised bounds may be broken: for links and clocks without guarantees.

With `RealTimeClock`, a packet that arrives later than promised, or that is stamped by a clock further off
than promised, is delivered in the wrong order. Here a message is delivered when its time has come, as there,
*and* every other member of the subgroup is known to send no packet with an earlier stamp any more. A packet
proves this for its sender, since links are FIFO; a member that has sent nothing for a while *confirms* how
far its clock has advanced, in one packet for everything that has arrived within a quarter of the longest
delay.

While the promises are kept, and links are faster than the promised worst case, confirmations arrive before
the time has come. So the clocks alone determine when a message is delivered and what may precede it, and a
message carries one time. If a promise is broken, or a member is away, messages are *held* until that member
confirms.

Why this is causal, whatever links and clocks do: members deliver in the order of stamps, and a member that
has delivered m1 stamps everything it sends afterwards later than m1 by the wait or more, by the same clock by
which it has waited. So the promises affect only speed, and the rule by which a gateway decides what precedes
a message (everything older by the wait) holds even if they are broken.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import BitWindow
from antecede.protocols.base import LinkRequirements, LocalError, RemoteError
from antecede.protocols.hcg.clocks import LinearClock, RealTimeClock, SubgroupClock, VectorClock
from antecede.protocols.hcg.layout import SubgroupLayout
from antecede.protocols.hcg.packets import LinearAck, LocalRank, SubgroupPacket
from antecede.protocols.hcg.protocol import Basic, Hcg

MAX_FUTURE = 3_600_000_000_000
"""How far a stamp may be ahead of this member's clock, in nanoseconds: more cannot be explained by a wrong
clock."""


class ConfirmedTimeClock(RealTimeClock, tag="confirmed", kw_only=True):
    """Sorts by (stamp, sender, number); next is what is due by this member's clock and confirmed by all."""

    pace: int
    """How long a received packet may remain unconfirmed."""
    confirmed: list[int] = msgspec.field(default_factory=list)
    """For each other member: no packet still to arrive from it is stamped this or less."""
    stamped: int = 0
    """The same for this member, as last told to the others."""
    unconfirmed: int = 0
    """The smallest stamp beyond that value that has arrived; 0 if there is none."""
    ack: LinearAck | None = None

    def __post_init__(self) -> None:
        if not self.confirmed:
            self.confirmed = [0] * self.size
        super().__post_init__()

    def stamp(self, now: int) -> list[int]:
        stamp = super().stamp(max(now, self.stamped + 1))
        self._tell(self.now)
        return stamp

    def _tell(self, time: int) -> None:
        """Tell the others that this member stamps nothing more with this time or less."""
        self.stamped = time
        if 0 < self.unconfirmed <= time:
            self.unconfirmed = min((each[0] for each in self.queue if each[0] > time), default=0)

    def validate(self, sender: LocalRank, packet: SubgroupPacket, now: int) -> None:
        SubgroupClock.validate(self, sender, packet, now)
        if packet.number != self.received[sender].base + 1 or packet.stamp[0] <= self.confirmed[sender]:
            raise RemoteError("a packet that its sender had confirmed not to send")
        if packet.stamp[0] > max(self.now, now) + MAX_FUTURE:
            raise RemoteError("its clock is ahead of this one by more than an hour")

    def enqueue(self, sender: LocalRank, packet: SubgroupPacket) -> None:
        super().enqueue(sender, packet)
        if sender != self.me:
            (stamp,) = packet.stamp
            self.confirmed[sender] = stamp
            if stamp > self.stamped and not 0 < self.unconfirmed <= stamp:
                self.unconfirmed = stamp

    def receive_ack(self, sender: LocalRank, ack: LinearAck) -> None:
        if ack.sent != self.received[sender].base:
            raise RemoteError(f"it confirms {ack.sent} packets, and {self.received[sender].base} are here")
        self.confirmed[sender] = max(self.confirmed[sender], ack.time)

    def pending_ack(self) -> LinearAck | None:
        ack, self.ack = self.ack, None
        return ack

    def advance_time(self, now: int) -> int | None:
        self.now = max(self.now, now)
        if self.unconfirmed and self.unconfirmed + self.pace <= self.now:
            self._tell(self.now)
            self.ack = LinearAck(self.sent, self.stamped)
        all_confirmed = self._all_confirmed()
        while self.queue and self._due_at() <= self.now and self.queue[0][0] <= all_confirmed:
            _, sender, _, packet = heapq.heappop(self.queue)
            self.due.append((sender, packet))
        times = [self.unconfirmed + self.pace] if self.unconfirmed else []
        if self.queue and self._due_at() > self.now:
            times.append(self._due_at())
        wake_at = min(times, default=0)
        if not times or self.now < self.wake_at <= wake_at:
            return None
        self.wake_at = wake_at
        return wake_at

    def _due_at(self) -> int:
        return self.queue[0][0] + self.wait

    def _all_confirmed(self) -> int:
        others = [time for rank, time in enumerate(self.confirmed) if rank != self.me]
        return min(others, default=self.now)

    def awaited(self, now: int) -> tuple[int, list[LocalRank]]:
        """Since when the next message is due, and which members have not confirmed it; (0, []) if none is
        overdue."""
        if not self.queue or self._due_at() > now:
            return 0, []
        stamp = self.queue[0][0]
        late = [rank for rank, time in enumerate(self.confirmed) if rank != self.me and time < stamp]
        return (self._due_at(), late) if late else (0, [])


class BoundedLayout(SubgroupLayout, frozen=True):
    """Subgroups, each with the bounds promised in it."""

    bounds: tuple[tuple[int, int], ...] = ()
    """For each subgroup, the longest delay and the largest difference between two clocks, in nanoseconds.
    Empty if they are the same for all."""

    def validate(self, size: int) -> None:
        super().validate(size)
        if self.bounds and (len(self.bounds) != len(self.subgroups) or min(map(min, self.bounds)) < 0):
            raise LocalError("bounds has two numbers for each subgroup, and none is negative")


class ConfirmedHcg(Hcg):
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=True)
    layout: ClassVar[Any] = BoundedLayout
    any_event_unblocks: ClassVar[bool] = True

    clock: ConfirmedTimeClock | LinearClock | VectorClock

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.with_layout(size, BoundedLayout.default(size))

    @classmethod
    def _create_member(
        cls, me: int, size: int, gateways: list[int], subgroup: tuple[str, int], layout: SubgroupLayout
    ) -> Self:
        bounds = getattr(layout, "bounds", ())
        if bounds:
            layout = layout.with_bounds(*bounds[bisect_right(gateways, me) - 1])
        return super()._create_member(me, size, gateways, subgroup, layout)

    @classmethod
    def _create_real_time(cls, rank: LocalRank, members: int, layout: SubgroupLayout) -> RealTimeClock:
        wait = layout.longest_delay + layout.skew + 1
        pace = layout.longest_delay // 4
        return ConfirmedTimeClock(rank, members, wait=wait, skew=layout.skew, pace=pace)

    def partners(self) -> tuple[int, ...]:
        """The others in its subgroup; of a gateway, also the other gateways."""
        first = self.me - self.clock.me
        inside = range(first, first + self.clock.size)
        return tuple(
            peer
            for peer in range(self.size)
            if peer != self.me and (peer in inside or (self._is_gateway and peer in self.gateways))
        )

    def role(self) -> str:
        return "gateway" if self._is_gateway else "local"


class ConfirmedBasic(ConfirmedHcg):
    name: ClassVar[str] = Basic.name
    summary: ClassVar[str] = Basic.summary

    def _find_preceding(self, sender: LocalRank, packet: SubgroupPacket) -> list[BitWindow]:
        return self.forwarded

    def _record(self, sender: LocalRank, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        pass
