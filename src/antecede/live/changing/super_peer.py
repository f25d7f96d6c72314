"""A member that may have phones: the additions to its core.

Phones may send only phones' packets, and members only members'. Which of them is at the other end of a link
is known since it greeted, because an address never changes from one to the other.
"""

from __future__ import annotations

from typing import cast

from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Declined, Expelled, Sponsored, StabilityTold
from antecede.live.envelope import Body, unwrap, wrap
from antecede.live.headers import NOTHING, About
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.site_packets import (
    MoveRequest,
    PhoneArrival,
    PhoneJoin,
    PhoneLeave,
    PhoneRefused,
    ReleaseRequest,
    SitePacket,
)
from antecede.membership.state import Phase
from antecede.protocols.base import Effects, LocalError, Packet, RemoteError, Send
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, UplinkPacket

_FROM_PHONES = (
    PhoneJoin,
    MoveRequest,
    ReleaseRequest,
    PhoneArrival,
    PhoneLeave,
    UplinkPacket,
    InternalAck,
)
_OF_SITES = (*SitePacket.__args__, UplinkPacket, InternalAck, NumberAssignment)
TELL_STABLE = 1_000_000_000
"""Minimum interval between announcements of stability to phones, in nanoseconds."""
MAX_AWAY_BYTES = 1 << 22
"""Bytes retained for a disconnected phone, or of broadcasts by a returned phone whose backlog has not
arrived, before the phone is expelled; it then returns with a snapshot."""


class SuperPeerCore(ChangingCore):
    """The process of a member of a group with phones."""

    has_phones = True

    def __init__(
        self, kind: type[ChangingFreescale], name: str, durable: bool = True, own: bool = True
    ) -> None:
        super().__init__(kind, name, durable, own)
        self._handlers |= {Expelled: self._on_expelled, StabilityTold: self._on_stability_told}
        self._told_at = 0

    def wrap(self, body: Body, now: int = 0, about: About = NOTHING) -> bytes:
        # Phones do not know the members, so the message itself names its author.
        return wrap(body, bool(self.causes), None, self.identity.label, now, about)

    @property
    def hub(self) -> ChangingFreescale:
        return cast("ChangingFreescale", self.member)

    # Phones

    @property
    def phones(self) -> dict[int, str]:
        """By address, the names of the phones that have a slot here, or are about to."""
        if not self.members:
            return {}
        site = self.hub.site
        return {each: self.greeted[each].name for each in (*site.slots, *site.coming) if each in self.greeted}

    def is_phone(self, link: int) -> bool:
        contact = self.greeted.get(self.links[link][1])
        return contact is not None and contact.is_phone

    def overdue_phones(self) -> list[int]:
        """The addresses of phones for which, or from which, too many bytes are retained."""
        found = []
        for address in self.phones:
            link = self.find_link(self.address, address)
            waiting = [*self.outboxes[link].packets.values()] if link is not None else []
            waiting += self.hub.site.delayed.get(address, [])
            if sum(map(len, waiting)) > MAX_AWAY_BYTES:
                found.append(address)
        return found

    def _is_spare(self, link: int) -> bool:
        """A phone's link may be dropped when the phone has no slot and has acknowledged everything."""
        if not self.is_phone(link):
            return super()._is_spare(link)
        mine, theirs = self.links[link]
        is_done = not self.outboxes[link].packets and link not in self.packets
        return mine == self.address and is_done and not self._has_asked(theirs)

    # Receiving

    def check_packet(self, link: int, packet: Packet, now: int) -> None:
        super().check_packet(link, packet, now)
        if not self.is_phone(link):
            if isinstance(packet, _OF_SITES):
                raise RemoteError(f"it sends a {type(packet).__name__}, and is no phone")
            return
        if not isinstance(packet, _FROM_PHONES):
            raise RemoteError(f"it sends a {type(packet).__name__}, and is a phone")
        address = self.links[link][1]
        if isinstance(packet, PhoneJoin) and self._has_asked(address):
            raise RemoteError("it asks for a slot twice")
        if isinstance(packet, UplinkPacket) and unwrap(packet.payload).author != self.greeted[address].name:
            raise RemoteError("it broadcasts under another name than its own")

    def _has_asked(self, address: int) -> bool:
        site = self.hub.site
        is_waiting = any(each == address for each, _ in site.requests)
        return is_waiting or address in site.slots or address in site.coming

    # Admitting and expelling

    @property
    def join_requests(self) -> list[int]:
        if not self.is_started or self.has_backfill or self.snapshot_from is not None:
            return []
        return [*super().join_requests, *(address for address, _ in self.hub.site.requests)]

    def _on_sponsored(self, event: Sponsored) -> None:
        if not any(address == event.address for address, _ in self.hub.site.requests):
            super()._on_sponsored(event)
            return
        snapshot = self._encode_sponsored(event)
        self._log(event)
        self._carry_out(self.address, self.hub.admit_phone(event.address, snapshot, event.time))
        self._after(self.member)

    def _on_declined(self, event: Declined) -> None:
        super()._on_declined(event)
        site = self.hub.site
        if any(address == event.address for address, _ in site.requests):
            site.requests = [each for each in site.requests if each[0] != event.address]
            self._carry_out(self.address, Effects((Send((event.address,), PhoneRefused()),)))

    def may_leave(self, now: int) -> bool:
        """A member leaves only when its phones have moved, including any that arrived since it was last
        asked."""
        if self.phase == Phase.MEMBER:
            for address in self.phones:
                self.step(Expelled(address, now))
            for address, _ in list(self.hub.site.requests):
                self.step(Declined(address, now))
        return super().may_leave(now)

    def _on_expelled(self, event: Expelled) -> None:
        if event.address not in self.phones:
            raise LocalError("no phone at that address has a slot here")
        self._log(event)
        self._carry_out(self.address, self.hub.expel(event.address, event.time))
        self._after(self.member)

    # Periodic work

    def tells_stable(self, now: int) -> bool:
        """Whether to announce stability to phones, or expelled phones to members; the announcement is then
        considered sent."""
        if not self.members or now - self._told_at < TELL_STABLE:
            return False
        if not (self.hub.has_stable() or self.hub.owes_expulsions()):
            return False
        self._told_at = now
        return True

    def _on_stability_told(self, event: StabilityTold) -> None:
        self._log(event)
        self._carry_out(self.address, self.hub.announce_expelled(event.time))
        self._carry_out(self.address, self.hub.tell_stable(event.time))
        self._after(self.member)
