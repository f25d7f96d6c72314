"""The protocol interface on free-scale networks: every member is an internal, an external or a super peer."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from antecede.causality import MessageId
from antecede.protocols.base import (
    Delivery,
    Effects,
    LinkRequirements,
    Packet,
    Protocol,
    RemoteError,
    Waiting,
)
from antecede.protocols.freescale.external import ExternalInbox, ExternalPeer
from antecede.protocols.freescale.internal import InternalPeer, bytes_for
from antecede.protocols.freescale.layout import FreescaleLayout
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    InternalAck,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.freescale.super_peer import SuperPeer


class Freescale(Protocol):
    name: ClassVar[str] = "freescale"
    kernel: ClassVar[str] = "freescale"
    summary: ClassVar[str] = "immediate dependencies, as bits behind a super peer and as pairs outside"
    control: ClassVar[str] = "inside one row of bits; outside up to a pair a peer and a row a super peer"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = UplinkPacket | DownlinkPacket | NumberAssignment | ExternalPacket | InternalAck
    buffering: ClassVar[str] = "until its causes are delivered; at a super peer, until they are forwarded"
    layout: ClassVar[Any] = FreescaleLayout

    internal_peer: ClassVar[type[InternalPeer]] = InternalPeer
    external_peer: ClassVar[type[ExternalPeer]] = ExternalPeer
    super_peer: ClassVar[type[SuperPeer]] = SuperPeer
    external_inbox: ClassVar[type[ExternalInbox]] = ExternalInbox

    peer: InternalPeer | ExternalPeer | SuperPeer

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.with_layout(size, FreescaleLayout.default(size))

    @classmethod
    def with_layout(cls, size: int, layout: FreescaleLayout) -> list[Self]:
        """All members: first the super peers, then their internal peers, then the external peers."""
        layout.validate(size)
        representatives = layout.representatives(size)
        return [cls(me, size, cls._create_peer(me, layout, representatives)) for me in range(size)]

    @classmethod
    def _create_peer(
        cls, me: int, layout: FreescaleLayout, representatives: list[int]
    ) -> InternalPeer | ExternalPeer | SuperPeer:
        super_peers = len(layout.inside)
        if representatives[me] != me:
            return cls.internal_peer(me, representatives[me], layout.ack_every)
        inbox = cls.external_inbox(me, super_peers, representatives)
        if me >= super_peers:
            return cls.external_peer(inbox)
        inside = [peer for peer, home in enumerate(representatives) if home == me and peer != me]
        application = cls.internal_peer(me, me, layout.ack_every)
        return cls.super_peer(inbox, application, inside, layout.form == "paper")

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return self.peer.broadcast(payload)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if link == self.me:
            raise RemoteError("a packet from this peer itself")
        return Effects(tuple(self.peer.receive(link, packet)))

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        return self.peer.may_forward(message)

    def deliver(self, now: int) -> Delivery | None:
        return self.peer.deliver()

    def waiting(self) -> list[Waiting]:
        return self.peer.waiting()

    def partners(self) -> tuple[int, ...]:
        return self.peer.partners()

    def members_behind(self) -> dict[int, frozenset[int]]:
        return self.peer.members_behind() if isinstance(self.peer, SuperPeer) else {}

    def upstream(self) -> int | None:
        return self.peer.super_peer if isinstance(self.peer, InternalPeer) else None

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        """Only packets of the external group: an internal peer receives everything from its super peer."""
        if isinstance(packet, ExternalPacket) and not isinstance(self.peer, InternalPeer):
            representatives = self.peer.inbox.representatives
            if 0 <= packet.origin < len(representatives):
                return [(representatives[packet.origin], packet)]
        return []

    def paper_bytes(self, packet: Packet) -> int:
        """Bits from the first to the last set; 4 + 4 bytes a pair; no identities, numbers or previous
        ones."""
        if isinstance(packet, UplinkPacket | DownlinkPacket):
            return bytes_for(packet.causes.span)
        if isinstance(packet, ExternalPacket):
            rows = sum(4 + bytes_for(bitmap.span) for bitmap in packet.supers.values())
            return 8 * len(packet.peers) + rows + bytes_for(packet.translated.span)
        return 0

    def paper_bytes_with_last(self, packet: DownlinkPacket, last: int) -> int:
        """The same, with the number of a sender's last message counted as one of the bits, if it is in the
        external group. The paper always sends this number; we leave it out where no peer can wait for it any
        more."""
        numbers = list(packet.causes.numbers())
        if last and isinstance(self.peer, SuperPeer):
            inbox, origin = self.peer.inbox, packet.origin
            if origin >= inbox.super_peers and inbox.representatives[origin] == origin:
                numbers.append(last)
        return bytes_for(max(numbers) - min(numbers) + 1) if numbers else 0

    def paper_storage(self) -> int:
        return self.peer.paper_storage()

    def role(self) -> str:
        """The role: internal, external or super."""
        return str(self.peer.__struct_config__.tag)
