"""`freescale` in a dynamic group: super peers and external peers are members; phones join, leave and move.

Any member may have phones; a member without phones is an external peer. There are two differences from a
fixed group. Links must be FIFO, as for all members. And other members deliver the messages of one super
peer's phones in the order in which it broadcasts them, even if they are concurrent. So one count describes
how much of a stream is delivered. Snapshots, stability and the ends of removed streams are based on such
counts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from antecede.membership.backlog import Backlog
from antecede.membership.hub import HubMember, SiteOrder
from antecede.membership.packets import MembershipPacket
from antecede.membership.phone import Phone
from antecede.membership.site_packets import SiteDownlink, SitePacket
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, Effects, LocalError, Packet, Waiting
from antecede.protocols.flat import DependencyPacket, MessageBatch
from antecede.protocols.freescale import Freescale
from antecede.protocols.freescale.internal import bytes_for
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, UplinkPacket


class ChangingFreescale(HubMember, kw_only=True):
    """A member or a phone."""

    name: ClassVar[str] = Freescale.name
    summary: ClassVar[str] = Freescale.summary
    control: ClassVar[str] = Freescale.control
    ordering: ClassVar[type[Any]] = SiteOrder
    packets: ClassVar[Any] = (
        SiteOrder.packets | MembershipPacket | SitePacket | UplinkPacket | NumberAssignment | InternalAck
    )

    is_linear: ClassVar[bool] = False
    """Whether phones name everything that they have delivered by its last number, rather than by single
    numbers."""

    order: SiteOrder
    phone: Phone | None = None

    @classmethod
    def phone_outside(cls, me: int, size: int) -> Self:
        """A phone that is not in the group."""
        process = cls.outsider(me, size)
        process.phone = Phone(me, cls.is_linear)
        return process

    def _phone(self) -> Phone:
        if self.phone is None:
            raise LocalError("only a phone can do that")
        return self.phone

    def _follow(self, effects: Effects) -> Effects:
        """Copy the phone's phase and stream to its process."""
        phone = self._phone()
        self.phase = phone.phase
        if phone.here is not None:
            self.stream = phone.here.peer.me
        return effects

    # A phone's driver

    def attach(self, hub: int, now: int) -> Effects:
        """Ask the super peer at an address for a slot."""
        phone = self._phone()
        phone.join(hub)
        return self._follow(phone.effects())

    def move(self, hub: int, now: int) -> Effects:
        """Move from one super peer to another."""
        phone = self._phone()
        phone.move(hub)
        return self._follow(phone.effects())

    def detach(self, now: int) -> Effects:
        """Leave the group."""
        phone = self._phone()
        phone.leave()
        return self._follow(phone.effects())

    def give_up(self, gone: set[int], now: int) -> Effects:
        """The super peers at these addresses were removed. If the phone relies on one of them, this
        incarnation ends, and the process returns as another one with its backlog."""
        phone = self._phone()
        phone.give_up(gone)
        return self._follow(phone.effects())

    def abandon(self, now: int) -> Effects:
        if self.phone is None:
            return super().abandon(now)
        if self.phone.phase == Phase.OUTSIDE:
            self.phone.phase = Phase.ENDED
        else:
            self.phone.give_up(set())  # it may have received a slot
        return self._follow(self.phone.effects())

    # Members and phones

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return super().broadcast(payload, now, group) if self.phone is None else self.phone.broadcast(payload)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if self.phone is None:
            return super().receive(link, packet, now)
        self.phone.receive(link, packet, self.speaks_with(link))
        return self._follow(self.phone.effects())

    def deliver(self, now: int) -> Delivery | None:
        if self.phone is None:
            return super().deliver(now)
        delivery = self.phone.deliver()
        self.deliveries += delivery is not None
        return delivery

    def pending_effects(self, now: int) -> Effects:
        return super().pending_effects(now) if self.phone is None else self.phone.effects()

    def waiting(self) -> list[Waiting]:
        return super().waiting() if self.phone is None else self.phone.waiting()

    def take_snapshot(self) -> bytes | None:
        if self.phone is None:
            return super().take_snapshot()
        snapshot, self.phone.snapshot = self.phone.snapshot, None
        return snapshot

    def make_backlog(self) -> Backlog:
        return super().make_backlog() if self.phone is None else self.phone.make_backlog()

    def bring_back(self, backlog: Backlog) -> None:
        if self.phone is None:
            super().bring_back(backlog)
        else:
            self.phone.brought = backlog

    def may_leave(self) -> bool:
        return super().may_leave() if self.phone is None else self.phone.may_leave()

    def paper_bytes(self, packet: Packet) -> int:
        if isinstance(packet, UplinkPacket | SiteDownlink):
            return 4 if self.is_linear else bytes_for(packet.causes.span)
        return super().paper_bytes(packet) if isinstance(packet, DependencyPacket | MessageBatch) else 0
