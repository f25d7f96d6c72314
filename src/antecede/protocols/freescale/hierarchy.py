"""Super peers of several levels: internal groups that contain super peers (paper 000's future work).

An inner super peer is an internal peer of the one above it and the super peer of those below it: an
`InternalPeer` and a `SuperPeer`, with translations between them. To the level below, everything above is one
super peer, which numbers messages as the level above does. To the level above, everything below is one
internal peer: its messages follow each other in the order in which the inner super peer passes them on, even
if they are concurrent, and name what is above. So what a message carries depends on its own level alone,
and a super peer has a row of bits for each super peer of the highest level, whatever lies below these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Delivery, Effects, Layout, LocalError, Packet, RemoteError, Send, Waiting
from antecede.protocols.freescale.external import ExternalInbox, ExternalPeer
from antecede.protocols.freescale.internal import RARE_REPORTS, InternalPeer
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    InternalAck,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.freescale.protocol import Freescale
from antecede.protocols.freescale.super_peer import SuperPeer

NOBODY = -1
"""Above the super peers of the highest level."""
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
        """So many super peers of the highest level; each super peer has `inside` peers below it, which are
        super peers too down to the lowest of `levels`."""
        above, last = [NOBODY] * groups, list(range(groups))
        for _ in range(levels):
            below = [each for each in last for _ in range(inside)]
            last = list(range(len(above), len(above) + len(below)))
            above += below
        return cls(above)

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        highest = 1 + pick(min(3, size))
        reach = 1 + pick(6)  # how far up or down: chains or broad trees
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
        """How many super peers the highest level has."""
        return next((rank for rank, each in enumerate(self.above) if each != NOBODY), len(self.above))

    def sites(self, size: int) -> list[int]:
        return [rank if each == NOBODY else each for rank, each in enumerate(self.above)]

    def represented_by(self, rank: int, others: int) -> list[int]:
        """For the peers below `rank` it represents them, for all others `others`, or the highest of them."""
        found: list[int] = []
        for each, above in enumerate(self.above):
            if each == rank or (above != NOBODY and found[above] == rank):
                found.append(rank)
            elif others == NOBODY:
                found.append(each if above == NOBODY else found[above])
            else:
                found.append(others)
        return found


class InnerSuperPeer(msgspec.Struct, tag="inner"):
    """A super peer of a lower level."""

    hub: SuperPeer
    """To those below, and its own application."""
    up: InternalPeer
    """To the super peer above. Its `causes` are not used: each message has its own."""
    ack_every: int
    passed_on: dict[int, int] = msgspec.field(default_factory=dict)
    """Messages sent up that have no number there yet: the number here, by their sequence number."""
    sent_up: list[int] = msgspec.field(default_factory=list)
    """The numbers here of messages from below, of those that somebody below may lack."""
    numbers: dict[int, int] = msgspec.field(default_factory=dict)
    """For messages from below: the number here, by the number above."""
    named: set[int] = msgspec.field(default_factory=set)
    """The numbers above that a message sent up has named. Later ones follow it, and need not."""
    unreported: int = 0

    @property
    def above(self) -> int:
        return self.up.super_peer

    def broadcast(self, payload: bytes) -> Effects:
        effects = self.hub.broadcast(payload)
        return Effects(tuple(self._pass_up(effects.sends)), message=effects.message)

    def receive(self, link: int, packet: Packet) -> Iterator[Send]:
        if link != self.above:
            yield from self._pass_up(self.hub.receive(link, packet))
            return
        if isinstance(packet, NumberAssignment):
            self._note_number(packet)
        yield from self.up.receive(link, packet)
        while self.up.holdback.ready:
            yield from self._pass_down(self.up.holdback.ready[0])
        if self.unreported >= self.ack_every:
            self.unreported = 0
            yield Send((self.above,), InternalAck(self.up.sent, self._never_named(), OffsetBitmap()))

    def _note_number(self, packet: NumberAssignment) -> None:
        number = self.passed_on.pop(packet.seq, None)
        if number is not None:  # else a copy
            self.numbers[packet.number] = number
            self.hub.inbox.delivered_numbers.setdefault(self.above, BitWindow()).add(packet.number)

    def _pass_down(self, packet: DownlinkPacket) -> Iterator[Send]:
        """A message from above goes to the hub as one of the only other super peer that it knows."""
        self.up.deliver()
        self.up.causes.clear()
        self.unreported += 1
        causes, own = set(packet.causes.numbers()), self.numbers
        last = max((own[each] for each in causes & own.keys()), default=0)
        # Above, a message from here stands for those that were passed on before it.
        before = [number for number in self.sent_up if number <= last]
        supers = {
            self.above: OffsetBitmap.from_numbers(causes - own.keys()),
            self.up.me: OffsetBitmap.from_numbers(before),
        }
        external = ExternalPacket(
            packet.payload,
            packet.origin,
            packet.seq,
            packet.number,
            packet.sender_previous,
            packet.number - 1,
            {},
            {peer: numbers for peer, numbers in supers.items() if numbers.span},
            OffsetBitmap(),
        )
        yield from self._pass_up(self.hub.receive(self.above, external))

    def _pass_up(self, sends: Iterable[Send]) -> Iterator[Send]:
        for send in sends:
            if isinstance(send.packet, ExternalPacket):
                yield Send((self.above,), self._translate(send.packet))
            else:
                yield send

    def _translate(self, packet: ExternalPacket) -> UplinkPacket:
        """A message from below as one of this internal peer. It follows those that were passed on before, and
        so whatever it names of them."""
        causes = set(packet.supers.get(self.above, OffsetBitmap()).numbers()) - self.named
        never_named = self._never_named()
        self.named |= causes
        self.up.sent += 1
        self.passed_on[self.up.sent] = packet.number
        self.sent_up.append(packet.number)
        self.unreported = 0
        payload = with_author(packet.payload, packet.origin, packet.seq)
        numbers = OffsetBitmap.from_numbers(causes)
        return UplinkPacket(payload, self.up.me, self.up.sent, numbers, never_named)

    def _never_named(self) -> int:
        """The numbers up to this one are delivered here, and nobody below will name them again."""
        in_use = {number for peer, number in self.hub.table.values() if peer == self.above}
        self.named &= in_use
        done = self.hub.cleaned_up_to
        self.sent_up = [number for number in self.sent_up if number > done]
        self.numbers = {above: number for above, number in self.numbers.items() if number > done}
        # Messages from below are not in the table; whoever is below may lack them all the same.
        return min(self.up.delivered.base, min({*in_use, *self.numbers}, default=_NEVER) - 1)

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        return None

    def deliver(self) -> Delivery | None:
        return self.hub.deliver()

    def waiting(self) -> list[Waiting]:
        return [*self.up.waiting(), *self.hub.waiting()]

    def partners(self) -> tuple[int, ...]:
        return tuple(sorted({*self.hub.inside, self.above}))

    def paper_storage(self) -> int:
        return self.hub.paper_storage() + self.up.paper_storage()


class Hierarchy(Freescale):
    """`freescale` with super peers of several levels, and without external peers."""

    name: ClassVar[str] = "hierarchy"
    summary: ClassVar[str] = "as freescale, with super peers of several levels"
    control: ClassVar[str] = "one row of bits in a group; a row a super peer on the highest level"
    layout: ClassVar[Any] = HierarchyLayout
    inner_peer: ClassVar[type[InnerSuperPeer]] = InnerSuperPeer

    peer: InternalPeer | ExternalPeer | SuperPeer | InnerSuperPeer  # type: ignore[assignment]

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.with_layout(size, HierarchyLayout.default(size))

    @classmethod
    def with_layout(cls, size: int, layout: Any) -> list[Self]:
        layout.validate(size)
        return [cls(me, size, cls._create(me, layout)) for me in range(size)]

    @classmethod
    def _create(cls, me: int, layout: HierarchyLayout) -> InternalPeer | SuperPeer | InnerSuperPeer:
        above, ack_every = layout.above[me], layout.ack_every
        inside = [rank for rank, each in enumerate(layout.above) if each == me]
        if above == NOBODY:
            inbox = cls.external_inbox(me, layout.highest, layout.represented_by(me, NOBODY))
            return cls.super_peer(inbox, cls.internal_peer(me, me, ack_every), inside, paper_form=False)
        if not inside:
            return cls.internal_peer(me, above, ack_every)
        inbox = ExternalInbox(me, len(layout.above), layout.represented_by(me, above))
        hub = cls.super_peer(inbox, cls.internal_peer(me, me, ack_every), inside, paper_form=False)
        return cls.inner_peer(hub, cls.internal_peer(me, above, _NEVER), ack_every)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return self.peer.broadcast(_OWN + payload)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        for payloads in packet.payloads_by_span():
            for payload in payloads:
                split_author(payload)  # what cannot be delivered is refused at once
        return super().receive(link, packet, now)

    def deliver(self, now: int) -> Delivery | None:
        delivery = self.peer.deliver()
        return None if delivery is None else original(delivery)

    @classmethod
    def control_bytes(cls, packet: Packet) -> int:
        """Who has broadcast a message travels with its payload, and is not of the application."""
        payloads = [payload for each in packet.payloads_by_span() for payload in each]
        authors = sum(len(payload) - len(split_author(payload)[2]) for payload in payloads)
        return super().control_bytes(packet) + authors

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        return []


# Who has broadcast a message, if that is not the one in whose name it was passed on

_OWN, _PASSED_ON = b"\x00", b"\x01"
_author = msgspec.msgpack.Decoder(tuple[int, int, bytes])


def with_author(payload: bytes, origin: int, seq: int) -> bytes:
    """A payload that is passed on, with its first origin and number."""
    if payload[:1] == _PASSED_ON:
        return payload
    return _PASSED_ON + msgspec.msgpack.encode((origin, seq, payload[1:]))


def split_author(payload: bytes) -> tuple[int, int, bytes]:
    """Who has broadcast a message first, its number there, and what the application sees of it."""
    if payload[:1] == _OWN:
        return 0, 0, payload[1:]
    try:
        return _author.decode(payload[1:])
    except msgspec.DecodeError as error:
        raise RemoteError(f"a message without its author: {error}") from error


def original(delivery: Delivery) -> Delivery:
    """A delivery under the id that its message was broadcast with."""
    origin, seq, payload = split_author(delivery.payload)
    message = MessageId(origin, seq) if delivery.payload[:1] == _PASSED_ON else delivery.message
    return Delivery(message, payload)
