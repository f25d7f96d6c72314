"""A phone's core: it is behind one super peer at a time, and never a member of the view.

It has the shape of a member's core, so the same driver, journal, links and iterations run it. A phone has an
address for each time that it asks for a slot, and keeps it through a move, which neither loses nor duplicates
messages. If a super peer fails, its phones return elsewhere at another address: with a snapshot, and with the
messages that they had broadcast or delivered there and that others may lack.
"""

from __future__ import annotations

from typing import cast

from antecede.causality import MessageId
from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import (
    AttemptBegun,
    JoinAsked,
    LeaveAsked,
    MoveAsked,
    PartnerGone,
    Started,
    SuperPeersLost,
)
from antecede.live.changing.membership import MemberQueue
from antecede.live.changing.snapshots import inline_snapshot
from antecede.live.envelope import Body, unwrap, wrap
from antecede.live.events import PacketReceived
from antecede.live.headers import NOTHING, About
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.phone import Phone
from antecede.membership.site_packets import PhoneLeave, SitePacket
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, Effects, LocalError, Packet, RemoteError, Send
from antecede.protocols.freescale.packets import NumberAssignment

_TO_PHONES = (*SitePacket.__args__, NumberAssignment)


class PhoneQueue(MemberQueue):
    """Deliveries to the application of a phone, which has another origin at each super peer."""

    def __init__(self, name: str) -> None:
        super().__init__(-1)
        self._name = name
        self._untaken: set[MessageId] = set()

    def is_own(self, delivery: Delivery) -> bool:
        return unwrap(delivery.payload).author == self._name

    def begin(self, stream: int) -> None:
        super().begin(stream)
        self._untaken.clear()

    def add_own(self, delivery: Delivery) -> None:
        super().add_own(delivery)
        self._untaken.add(delivery.message)

    def take_own(self, delivery: Delivery) -> None:
        if delivery.message in self._untaken:  # except those that it broadcast before it returned
            self._untaken.discard(delivery.message)
            super().take_own(delivery)

    def resume(self, acked: int, attempts: int) -> None:
        super().resume(acked, attempts)
        self._untaken = {each.message for each in list(self.unacked)[attempts > 0 :] if self.is_own(each)}


class PhoneCore(ChangingCore):
    """The process of the phone `name`."""

    is_phone_core = has_phones = True

    def __init__(
        self, kind: type[ChangingFreescale], name: str, durable: bool = True, own: bool = True
    ) -> None:
        super().__init__(kind, name, durable, own)
        self.application = PhoneQueue(name)
        self.places: dict[str, str] = {}
        """By name, where super peers are called; others are called at the address that they have
        advertised."""
        self._handlers |= {MoveAsked: self._on_move_asked, SuperPeersLost: self._on_super_peers_lost}

    # Identity

    @property
    def process(self) -> ChangingFreescale:
        return cast("ChangingFreescale", self.member)

    @property
    def called(self) -> tuple[str, ...]:
        return (f"{self.name}~{self.me & 0xFFFF_FFFF:08x}", self.name)

    @property
    def phone(self) -> Phone:
        return cast("Phone", self.process.phone)

    def may_leave(self, now: int) -> bool:
        owes_keys = self.secrecy is not None and self.secrecy.owes_keys
        return self.is_started and self.phone.may_leave() and not owes_keys

    @property
    def hub(self) -> int:
        """The address of its super peer; -1 if it has none."""
        if self.phase not in (Phase.MEMBER, Phase.LEAVING) or self.phone.here is None:
            return -1
        return self.phone.here.hub

    @property
    def relied_on(self) -> set[int]:
        """The addresses of super peers that it cannot do without."""
        if self.phase == Phase.LEAVING:
            return {self.hub}
        if self.phase != Phase.MEMBER:
            return set()
        phone = self.phone
        places = [each.hub for each in (phone.here, phone.coming) if each is not None]
        return {*places, phone.contact} - {-1}

    @property
    def has_ended(self) -> bool:
        """Whether it has lost its slot, and can only return."""
        return self.phase == Phase.REMOVED

    @property
    def is_moving(self) -> bool:
        return bool(self.relied_on - {self.hub})

    @property
    def is_started(self) -> bool:
        return self.phase == Phase.MEMBER and self.phone.snapshot is None

    @property
    def snapshot(self) -> bytes | None:
        return inline_snapshot(self.phone.snapshot)

    @property
    def retained_bytes(self) -> int:
        return sum(len(each.entry.payload) for each in self.phone.retained) if self.members else 0

    @property
    def join_requests(self) -> list[int]:
        return []

    def link_to(self, address: int) -> int | None:
        """The link to a super peer, from the current address."""
        return self.find_link(self.address, address)

    def wanted_place(self, link: int) -> str:
        """The address to call for a link, if it leads to a super peer that it relies on or has packets to
        send. Empty if no call is needed."""
        if not self.members or link not in self.links or link in self.void:
            return ""
        relied_on = {self.phone.contact} if self.phase == Phase.JOINING else self.relied_on
        mine, theirs = self.links[link]
        is_wanted = (mine == self.address and theirs in relied_on) or self.outboxes[link].packets
        contact = self.greeted.get(theirs)
        return self.places.get(contact.name) or contact.at if is_wanted and contact is not None else ""

    # Forgetting

    def tidy(self, now: int, forget_after: int) -> None:
        """A phone keeps its links: it has few, and may come back to a super peer."""

    def _on_partner_gone(self, event: PartnerGone) -> None:
        """A super peer no longer knows this phone, which then looks for another one."""
        if event.link in self.links:
            self._log(event)
            self.void.add(event.link)

    # Joining, moving, leaving

    def new_identity(self, nonce: bytes, at: str) -> Contact:
        return Contact(self.name, nonce, is_phone=True)

    def create_outsider(self, address: int) -> ChangingFreescale:
        return cast("type[ChangingFreescale]", self.kind).phone_outside(address, 0)

    def _on_attempt(self, event: AttemptBegun) -> None:
        if not event.contact.is_phone:
            raise LocalError("a phone asks as a phone")
        before = self.members.get(self.address)
        super()._on_attempt(event)
        if before is not None:
            self.member.bring_back(before.make_backlog())

    def _on_join_asked(self, event: JoinAsked) -> None:
        mine, theirs = self.links[event.link]
        self._log(event)
        self._carry_out(mine, cast("ChangingFreescale", self.members[mine]).attach(theirs, event.time))

    def _on_move_asked(self, event: MoveAsked) -> None:
        mine, theirs = self.links[event.link]
        if mine != self.address or not self.phone.may_move(theirs):
            raise LocalError("a phone moves from its super peer to another, once at a time")
        self._log(event)
        self._carry_out(mine, self.process.move(theirs, event.time))

    def _on_super_peers_lost(self, event: SuperPeersLost) -> None:
        if self.phase not in (Phase.MEMBER, Phase.LEAVING):
            raise LocalError("only a phone that has a slot can give it up")
        self._log(event)
        phone, gone = self.phone, set(event.addresses)
        here, coming, contact = phone.here, phone.coming, phone.contact
        if coming is None and contact in gone and here is not None and contact != here.hub:
            phone.quit(contact)
        effects = self.process.give_up(gone, event.time)
        # In case it comes back: the super peer accepts everything sent before this, and then retires the
        # slot.
        left = [] if coming is None else [coming]
        left += [here] if here is not None and self.has_ended else []
        leaves = [Send((each.hub,), PhoneLeave(each.peer.sent)) for each in left if each.hub in gone]
        self._carry_out(self.address, Effects((*effects.sends, *leaves)))

    def _on_leave_asked(self, event: LeaveAsked) -> None:
        if not self.phone.may_leave():
            raise LocalError("a phone leaves when it has a slot and does not move")
        self._log(event)
        self._carry_out(self.address, self.process.detach(event.time))

    def _on_started(self, event: Started) -> None:
        self._log(event)
        self.process.take_snapshot()
        self._give_late(event.time)

    # Messages

    def wrap(self, body: Body, now: int = 0, about: About = NOTHING) -> bytes:
        place = self.phone.coming or self.phone.here
        follows = bool(self.causes) and place is not None and self.last_broadcast.origin == place.peer.me
        return wrap(body, follows, None, self.name, now, about)

    def give_own(self, delivery: Delivery) -> None:
        """The messages that this phone has brought back come first, here as everywhere."""
        if not self.phone.is_settling:
            super().give_own(delivery)

    def _on_packet(self, event: PacketReceived) -> None:
        super()._on_packet(event)
        self._give_late(event.time)

    def _give_late(self, now: int) -> None:
        """The messages that this phone has brought back have arrived: they precede what it has broadcast
        since, and what it broadcasts from now on."""
        if not self.is_started or not self.phone.is_settled:
            return
        late, self.phone.late, self.phone.is_settled = self.phone.late, [], False
        while self.delivers_own and self.poll(now):
            pass
        for entry in late if self.delivers_own else ():
            super().give_own(Delivery(entry.original, entry.payload, {}))

    def check_packet(self, link: int, packet: Packet, now: int) -> None:
        super().check_packet(link, packet, now)
        if not isinstance(packet, _TO_PHONES):
            raise RemoteError(f"it sends a {type(packet).__name__} to a phone")
