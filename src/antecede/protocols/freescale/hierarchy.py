"""Super peers of several levels: internal groups that contain super peers (paper 000's future work).

An inner super peer is an internal peer of the super peer above it and the super peer of the peers below it,
and translates between the two sequences of numbers. To the level below, everything from above looks like
messages from outside. To the level above, everything below looks like one internal peer: its messages follow
each other in the order in which the inner super peer passes them up, even if they are concurrent, and name
messages of the upper level. So the control information of a message depends on its own level alone, and a
super peer of the highest level has a row of bits for each other one, whatever lies below them. A message
keeps its id on all levels.

On the upper level, only the last of the messages from below is named, since these follow each other. On the
lower level they do not. So a message that names one of them on its way down waits for everything up to that
number: one number, not a row of bits, which would be as long as the lag of the slowest peer below.

Time per message: the entries that it names, and O(log n) for n numbers that some peer below may still need.
Memory of an inner super peer: its table, and as much again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import (
    Delivery,
    HoldBackQueue,
    Layout,
    LocalError,
    Packet,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.freescale.external import ExternalInbox
from antecede.protocols.freescale.internal import RARE_REPORTS, InternalPeer
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    FollowingPacket,
    InternalAck,
    NumberAssignment,
    PassedUpPacket,
    UplinkPacket,
)
from antecede.protocols.freescale.protocol import Freescale
from antecede.protocols.freescale.super_peer import SuperPeer

NOBODY = -1
"""Marks the super peers of the highest level, which have none above."""
_NEVER = 1 << 62


class HierarchyLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """The lowest ranks are the super peers of the highest level."""

    above: list[int]
    """For each rank its super peer, which has a lower rank; -1 for those of the highest level."""
    ack_every: int = RARE_REPORTS

    @classmethod
    def default(cls, size: int) -> Self:
        """One super peer, with two below it, with two below each, and so on."""
        return cls([(rank - 1) // 2 if rank else NOBODY for rank in range(size)])

    @classmethod
    def regular(cls, groups: int, inside: int, levels: int) -> Self:
        """This many super peers of the highest level; each super peer has `inside` peers below it, which are
        super peers too, down to the lowest of `levels`."""
        above, last = [NOBODY] * groups, list(range(groups))
        for _ in range(levels):
            below = [each for each in last for _ in range(inside)]
            last = list(range(len(above), len(above) + len(below)))
            above += below
        return cls(above)

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        highest = 1 + pick(min(3, size))
        reach = 1 + pick(6)  # How far up or down the super peers are chosen: chains or broad trees.
        above = [NOBODY] * highest + [max(0, rank - 1 - pick(reach)) for rank in range(highest, size)]
        return cls(above, ack_every=[1, 3, 32][pick(3)])

    def validate(self, size: int) -> None:
        if len(self.above) != size:
            raise LocalError(f"above: it has {len(self.above)} ranks, and the group {size}")
        if any(not NOBODY <= each < rank for rank, each in enumerate(self.above)):
            raise LocalError("above: a peer's super peer has a lower rank; -1 for the highest level")
        if any(each == NOBODY for each in self.above[self.highest :]):
            raise LocalError("above: the lowest ranks are the super peers of the highest level")
        if self.ack_every < 1:
            raise LocalError("ack_every: must be at least 1")

    @property
    def highest(self) -> int:
        """The number of super peers of the highest level."""
        return next((rank for rank, each in enumerate(self.above) if each != NOBODY), len(self.above))

    def sites(self, size: int) -> list[int]:
        return [rank if each == NOBODY else each for rank, each in enumerate(self.above)]

    def highest_above(self) -> list[int]:
        """For each rank the super peer of the highest level that it is below, or itself."""
        found: list[int] = []
        for rank, above in enumerate(self.above):
            found.append(rank if above == NOBODY else found[above])
        return found

    def below(self, rank: int) -> dict[int, int]:
        """For each peer below this one, the internal peer through which it is reached."""
        found: dict[int, int] = {}
        for each, above in enumerate(self.above):
            if above == rank:
                found[each] = each
            elif above in found:
                found[each] = found[above]
        return found


class LowerPeer(InternalPeer, tag="internal"):
    """An internal peer whose super peer may be an inner one."""

    holdback: HoldBackQueue[int, DownlinkPacket | FollowingPacket] = msgspec.field(
        default_factory=HoldBackQueue
    )
    following: list[tuple[int, int, FollowingPacket]] = msgspec.field(default_factory=list)
    """A heap of the messages that wait for everything up to a number: that number, and the message's own."""

    def accept(self, packet: DownlinkPacket) -> None:
        if isinstance(packet, FollowingPacket) and not 0 <= packet.follows < packet.number:
            raise RemoteError(f"message {packet.number} follows all up to {packet.follows}")
        super().accept(packet)

    def hold(self, packet: DownlinkPacket) -> None:
        if isinstance(packet, FollowingPacket) and packet.follows > self.delivered.base:
            heappush(self.following, (packet.follows, packet.number, packet))
        else:
            super().hold(packet)

    def assign_number(self, packet: NumberAssignment) -> None:
        super().assign_number(packet)
        self._release_following()

    def deliver(self) -> Delivery | None:
        delivery = super().deliver()
        if delivery is not None:
            self._release_following()
        return delivery

    def _release_following(self) -> None:
        while self.following and self.following[0][0] <= self.delivered.base:
            super().hold(heappop(self.following)[2])

    def waiting(self) -> list[Waiting]:
        # The number alone does not say which of the earlier messages comes next.
        return super().waiting() + [Waiting(each.message_ids()[0], None) for _, _, each in self.following]


class UpperSuperPeer(SuperPeer, tag="super"):
    """A super peer whose internal peers may be super peers too."""

    application: LowerPeer
    out_of_order: dict[int, dict[int, UplinkPacket | PassedUpPacket]] = msgspec.field(default_factory=dict)
    below: dict[int, int] = msgspec.field(default_factory=dict)
    """For each peer below, the internal peer through which it is reached."""

    def _inside(self, origin: int) -> int:
        return self.below.get(origin, origin)

    def members_behind(self) -> dict[int, frozenset[int]]:
        found: dict[int, set[int]] = {peer: set() for peer in self.inside}
        for member, peer in self.below.items():
            found[peer].add(member)
        return {peer: frozenset(members) for peer, members in found.items()}


class InnerSuperPeer(UpperSuperPeer, tag="inner", kw_only=True):
    """A super peer behind another one. It has no external group, so its inbox stays empty."""

    up: LowerPeer
    """Packets to the super peer above. Its `causes` are not used: each message has its own."""
    ack_every: int
    passed_up: dict[int, int] = msgspec.field(default_factory=dict)
    """Messages passed up that have no number above yet: their number here, by position."""
    own_numbers: dict[int, int] = msgspec.field(default_factory=dict)
    """For messages from below: their number here, by their number above."""
    unfinished: list[int] = msgspec.field(default_factory=list)
    """A heap of the numbers above that some peer below may lack or name; the first of them certainly is."""
    named: set[int] = msgspec.field(default_factory=set)
    """The numbers above that a message passed up has named. Later messages follow it and need not name
    them."""
    unreported: int = 0

    @property
    def above(self) -> int:
        return self.up.super_peer

    def receive(self, link: int, packet: Packet) -> Iterator[Send]:
        if link in self.inside:
            yield from super().receive(link, packet)
            return
        if isinstance(packet, DownlinkPacket) and self._is_mine(packet.origin):
            raise RemoteError(f"message {packet.seq} of peer {packet.origin}, which is below this one")
        yield from self.up.receive(link, packet)
        if isinstance(packet, NumberAssignment):
            self._note_number(packet)
        while self.up.holdback.ready:
            yield from self._pass_down(self.up.holdback.ready[0])
        if self.unreported >= self.ack_every:
            self.unreported = 0
            yield Send((self.above,), InternalAck(self.up.sent, self._never_named(), OffsetBitmap()))

    def _is_mine(self, origin: int) -> bool:
        return origin == self.up.me or origin in self.below

    def _note_number(self, packet: NumberAssignment) -> None:
        number = self.passed_up.pop(packet.seq, None)
        if number is not None:  # Otherwise it is a copy.
            self.own_numbers[packet.number] = number
            heappush(self.unfinished, packet.number)

    def _pass_down(self, packet: DownlinkPacket) -> Iterator[Send]:
        """A message from above gets the next number here."""
        self.up.deliver()
        self.up.causes.clear()
        self.unreported += 1
        above = packet.causes.numbers()
        follows = self._follows(packet)
        causes = {number for each in above if (number := self.assigned.get((self.above, each)))}
        previous = self.assigned.get((self.above, packet.sender_previous), 0)
        self._assign_number((self.above, packet.number))
        heappush(self.unfinished, packet.number)
        fields = packet.payload, packet.origin, packet.seq, self.number, previous
        row = OffsetBitmap.from_numbers(causes)
        down = FollowingPacket(*fields, row, follows) if follows else DownlinkPacket(*fields, row)
        yield from self._send_inside(down)

    def _follows(self, packet: DownlinkPacket) -> int:
        """The number here up to which a message from above follows everything: above, a message from here
        stands for all messages passed up before it."""
        if isinstance(packet, FollowingPacket):
            return self.number  # Every message that it follows there has a number here.
        numbers = (self.own_numbers.get(each, 0) for each in packet.causes.numbers())
        last = max(numbers, default=0)
        return last if last > self.cleaned_up_to else 0

    def _send_outside(self, down: DownlinkPacket) -> Iterator[Send]:
        """Send a message from below as the next one of this internal peer: it follows those passed up before,
        and so all messages from there that it names."""
        entries = (self.table.get(number) for number in down.causes.numbers())
        causes = {entry[1] for entry in entries if entry is not None} - self.named
        done = self._never_named()
        self.named |= causes
        self.up.sent += 1
        self.passed_up[self.up.sent] = down.number
        self.unreported = 0
        row = OffsetBitmap.from_numbers(causes)
        packet = PassedUpPacket(down.payload, down.origin, down.seq, row, done, self.up.sent)
        yield Send((self.above,), packet)

    def _never_named(self) -> int:
        """Numbers up to this one are delivered here, and no peer below lacks them or will name them."""
        while self.unfinished and self._is_finished(self.unfinished[0]):
            number = heappop(self.unfinished)
            self.own_numbers.pop(number, None)
            self.named.discard(number)
        first = self.unfinished[0] if self.unfinished else _NEVER
        return min(self.up.delivered.base, first - 1)

    def _is_finished(self, above: int) -> bool:
        # Messages from below are not in the table, but other peers below may still lack them.
        own = self.own_numbers.get(above)
        return own <= self.cleaned_up_to if own is not None else (self.above, above) not in self.assigned

    def waiting(self) -> list[Waiting]:
        return [*self.up.waiting(), *super().waiting()]

    def partners(self) -> tuple[int, ...]:
        return tuple(sorted({*self.inside, self.above}))

    def paper_storage(self) -> int:
        return super().paper_storage() + self.up.paper_storage()


class Hierarchy(Freescale):
    """`freescale` with super peers of several levels, and without external peers."""

    summary: ClassVar[str] = "as freescale, with super peers of several levels"
    control: ClassVar[str] = "one row of bits in a group; a row a super peer on the highest level"
    packets: ClassVar[Any] = Freescale.packets | PassedUpPacket | FollowingPacket
    names_causes: ClassVar[bool] = False
    layout: ClassVar[Any] = HierarchyLayout
    internal_peer: ClassVar[type[LowerPeer]] = LowerPeer
    super_peer: ClassVar[type[UpperSuperPeer]] = UpperSuperPeer
    inner_peer: ClassVar[type[InnerSuperPeer]] = InnerSuperPeer

    peer: LowerPeer | UpperSuperPeer | InnerSuperPeer

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.with_layout(size, HierarchyLayout.default(size))

    @classmethod
    def with_layout(cls, size: int, layout: Any) -> list[Self]:
        layout.validate(size)
        return [cls(me, size, cls._create(me, layout)) for me in range(size)]

    @classmethod
    def _create(cls, me: int, layout: HierarchyLayout) -> LowerPeer | UpperSuperPeer | InnerSuperPeer:
        above, ack_every, below = layout.above[me], layout.ack_every, layout.below(me)
        inside = [rank for rank, each in enumerate(layout.above) if each == me]
        application = cls.internal_peer(me, me, ack_every)
        if above == NOBODY:
            inbox = cls.external_inbox(me, layout.highest, layout.highest_above())
            return cls.super_peer(inbox, application, inside, paper_form=False, below=below)
        if not inside:
            return cls.internal_peer(me, above, ack_every)
        up = cls.internal_peer(me, above, _NEVER)
        none = ExternalInbox(me, 0, [])
        return cls.inner_peer(none, application, inside, False, below=below, up=up, ack_every=ack_every)

    def paper_bytes_with_last(self, packet: DownlinkPacket, last: int) -> int:
        return self.paper_bytes(packet)  # It is for external peers only.

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        return None

    def upstream(self) -> int | None:
        return self.peer.above if isinstance(self.peer, InnerSuperPeer) else super().upstream()

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        """As in `freescale`; an inner super peer is an internal peer here."""
        return [] if isinstance(self.peer, InnerSuperPeer) else super().on_repair(packet)
