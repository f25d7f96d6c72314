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
from antecede.protocols.freescale_packets import Ack, Across, Down, Echo, Up
from antecede.protocols.freescale_roles import External, Internal, Outside, Super, in_bytes


class FreeScale(Layout, frozen=True, forbid_unknown_fields=True):
    """Super peers are the first ranks, those behind them the next, in order; the others are external."""

    inside: list[int]
    """How many internal peers each super peer has."""
    form: Literal["corrected", "paper"] = "corrected"
    ack_every: int = 32
    """How many deliveries a silent internal peer takes before it says how far it is."""

    @classmethod
    def usual(cls, size: int) -> Self:
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

    def check(self, size: int) -> None:
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
        return self.homes(size)

    def homes(self, size: int) -> list[int]:
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
    packets: ClassVar[Any] = Up | Down | Echo | Across | Ack
    buffering: ClassVar[str] = "until its causes are delivered; at a super peer, until they passed"
    layout: ClassVar[Any] = FreeScale

    internal: ClassVar[type[Internal]] = Internal
    external: ClassVar[type[External]] = External
    super_peer: ClassVar[type[Super]] = Super
    outside: ClassVar[type[Outside]] = Outside

    role: Internal | External | Super

    @classmethod
    def group(cls, size: int) -> list[Self]:
        return cls.arranged(size, FreeScale.usual(size))

    @classmethod
    def arranged(cls, size: int, layout: FreeScale) -> list[Self]:
        """Super peers first, those behind them next, then the external peers."""
        layout.check(size)
        homes = layout.homes(size)
        supers = len(layout.inside)
        members = []
        for me in range(size):
            role: Internal | External | Super
            if homes[me] != me:
                role = cls.internal(me, homes[me], layout.ack_every)
            else:
                outside = cls.outside(me, supers, homes)
                if me >= supers:
                    role = cls.external(outside)
                else:
                    inside = [peer for peer in range(size) if homes[peer] == me and peer != me]
                    own = cls.internal(me, me, layout.ack_every)
                    role = cls.super_peer(outside, own, inside, layout.form == "paper")
            members.append(cls(me, size, role))
        return members

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return self.role.broadcast(payload)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if link == self.me:
            raise RemoteError("a packet from this peer itself")
        return Effects(tuple(self.role.receive(link, packet)))

    def deliver(self, now: int) -> Delivery | None:
        return self.role.deliver()

    def waiting(self) -> list[Waiting]:
        return self.role.waiting()

    def partners(self) -> tuple[int, ...]:
        return self.role.partners()

    def leaves(self) -> frozenset[int]:
        return frozenset(self.role.inside) if isinstance(self.role, Super) else frozenset()

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        """Only the external group's packets: behind a super peer all comes from it."""
        if isinstance(packet, Across) and not isinstance(self.role, Internal):
            homes = self.role.outside.homes
            return [(homes[packet.origin], packet)] if 0 <= packet.origin < len(homes) else []
        return []

    def paper_bytes(self, packet: Packet) -> int:
        """Bits from the first to the last that is set; 4 + 4 a pair; no identities, numbers or `last`."""
        if isinstance(packet, Up | Down):
            return in_bytes(packet.causes.span)
        if isinstance(packet, Across):
            rows = sum(4 + in_bytes(row.span) for row in packet.supers.values())
            return 8 * len(packet.peers) + rows + in_bytes(packet.translated.span)
        return 0

    def paper_storage(self) -> int:
        return self.role.paper_storage()

    def kind(self) -> str:
        return type(self.role).__name__.lower()
