"""Free-scale networks (paper 000): phones behind a super peer, servers in a mesh, dependencies as bits.

An external peer talks to everybody in the external group and names its immediate dependencies by pairs, as
`mbcp` does. A super peer is in the external group too, and has internal peers behind it that talk to it
alone. It numbers everything that goes by, whatever its origin, so that an internal peer names what its
message depends on by bits in one row of numbers. Between the two the super peer translates: what came from
outside under another's number has a line in its table.

An internal peer delivers when the same sender's last message and all named numbers are there. An external
peer delivers when pairs and bits are covered and, from a peer, when it is its next; order from one internal
peer travels as `last`. A super peer passes a message in under the same condition.

What we changed from the paper, and the counter-example that forced it, is in docs/protocols/freescale.md:
a table entry is forgotten only after every internal peer has said that it will not name it again (piggybacked
on messages; a silent peer says so after every `ack_every` deliveries); outside, one number says which of the
super peer's numbers never come (`previous`) where the paper sends a bit for each; `last` is a number where
the paper sets a bit far back. `form: paper` brings the paper's own form back, because its figures include it.

Links need not be FIFO. Control information: inside, bits between the first and the last immediate
dependency, at most as many as messages were under way, and O(1) numbers; outside, a pair for each external
peer and one row of bits for each super peer named. Memory: inside, a window of bits; outside, O(external
group) and such windows; a super peer also its table, which is as long as the slowest internal peer is
behind. A delivery costs the entries that its message names. An internal message makes one packet up, one
down for each internal peer and one for each of the external group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

from antecede.protocols.base import (
    Delivery,
    Effects,
    Layout,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Waiting,
)
from antecede.protocols.freescale_packets import (
    DownlinkPacket,
    ExternalPacket,
    InternalAck,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.freescale_roles import ExternalInbox, ExternalPeer, InternalPeer, SuperPeer, in_bytes


class FreescaleLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """Super peers are the first ranks, those behind them the next, in order; the others are external."""

    inside: list[int]
    """How many internal peers each super peer has."""
    form: Literal["corrected", "paper"] = "corrected"
    ack_every: int = 32
    """How many deliveries a silent internal peer takes before it says how far it is."""

    @classmethod
    def default(cls, size: int) -> Self:
        """One super peer; half of the others are behind it."""
        return cls([(size - 1) // 2])

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        inside: list[int] = []
        room = size
        for _ in range(pick(5)):
            if room:
                inside.append(pick(room))
                room -= 1 + inside[-1]
        return cls(inside, "paper" if pick(5) == 0 else "corrected", ack_every=[1, 3, 32][pick(3)])

    def validate(self, size: int) -> None:
        if min(self.inside, default=0) < 0:
            raise LocalError("inside: a super peer cannot have fewer than 0 internal peers")
        if self.ack_every < 1:
            raise LocalError("ack_every: at least 1")
        if len(self.inside) + sum(self.inside) > size:
            raise LocalError(
                f"inside: {len(self.inside)} super peers and {sum(self.inside)} internal peers "
                f"are more than the {size} of the group"
            )

    def sites(self, size: int) -> list[int]:
        return self.representatives(size)

    def representatives(self, size: int) -> list[int]:
        """For each rank who stands for it in the external group: its super peer, or itself."""
        behind = [relay for relay, inside in enumerate(self.inside) for _ in range(inside)]
        supers = len(self.inside)
        return [*range(supers), *behind, *range(supers + len(behind), size)]


class Freescale(Protocol):
    name: ClassVar[str] = "freescale"
    kernel: ClassVar[str] = "freescale"
    summary: ClassVar[str] = "immediate dependencies, as bits behind a super peer and as pairs outside"
    control: ClassVar[str] = "inside one row of bits; outside up to a pair a peer and a row a super peer"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = UplinkPacket | DownlinkPacket | NumberAssignment | ExternalPacket | InternalAck
    buffering: ClassVar[str] = "until its causes are delivered; at a super peer, until they passed"
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
        """Super peers first, those behind them next, then the external peers."""
        layout.validate(size)
        homes = layout.representatives(size)
        supers = len(layout.inside)
        members = []
        for me in range(size):
            peer: InternalPeer | ExternalPeer | SuperPeer
            if homes[me] != me:
                peer = cls.internal_peer(me, homes[me], layout.ack_every)
            else:
                outside = cls.external_inbox(me, supers, homes)
                if me >= supers:
                    peer = cls.external_peer(outside)
                else:
                    inside = [rank for rank in range(size) if homes[rank] == me and rank != me]
                    own = cls.internal_peer(me, me, layout.ack_every)
                    peer = cls.super_peer(outside, own, inside, layout.form == "paper")
            members.append(cls(me, size, peer))
        return members

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return self.peer.broadcast(payload)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if link == self.me:
            raise RemoteError("a packet from this peer itself")
        return Effects(tuple(self.peer.receive(link, packet)))

    def deliver(self, now: int) -> Delivery | None:
        return self.peer.deliver()

    def waiting(self) -> list[Waiting]:
        return self.peer.waiting()

    def partners(self) -> tuple[int, ...]:
        return self.peer.partners()

    def leaf_peers(self) -> frozenset[int]:
        return frozenset(self.peer.inside) if isinstance(self.peer, SuperPeer) else frozenset()

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        """Only the external group's packets: behind a super peer all comes from it."""
        if isinstance(packet, ExternalPacket) and not isinstance(self.peer, InternalPeer):
            homes = self.peer.outside.homes
            return [(homes[packet.origin], packet)] if 0 <= packet.origin < len(homes) else []
        return []

    def paper_bytes(self, packet: Packet) -> int:
        """Bits from the first to the last that is set; 4 + 4 a pair; no identities, numbers or `last`."""
        if isinstance(packet, UplinkPacket | DownlinkPacket):
            return in_bytes(packet.causes.span)
        if isinstance(packet, ExternalPacket):
            rows = sum(4 + in_bytes(row.span) for row in packet.supers.values())
            return 8 * len(packet.peers) + rows + in_bytes(packet.translated.span)
        return 0

    def paper_storage(self) -> int:
        return self.peer.paper_storage()

    def role(self) -> str:
        return str(self.peer.__struct_config__.tag)
