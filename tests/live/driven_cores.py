"""Cores of a group that changes, driven by hand: every `Ready` is carried out at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from memory_disk import MemoryDisk

from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import AttemptBegun, Founded, JoinAsked, LinkOpened, Sponsored, Started
from antecede.live.changing.recovery import restore
from antecede.live.envelope import origin_in
from antecede.live.events import CertificateLearned, PacketReceived
from antecede.live.ready import send_and_advance
from antecede.live.store.journal import Journal
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.member import ChangingMember
from vopr.changing.signing import NameKeyring

ANA, BO, EVE = Contact("ana"), Contact("bo"), Contact("eve")
CY, CY_AGAIN = Contact("cy", bytes(8)), Contact("cy", b"afterwds")
NAMES = ("ana", "bo", "eve", "cy")


class Driven:
    """A core with a journal whose every `Ready` is carried out at once."""

    def __init__(
        self,
        name: str,
        disk: MemoryDisk | None = None,
        kind: type[ChangingMember] = ChangingMbcp,
        is_signed: bool = False,
    ) -> None:
        self.core = ChangingCore(kind, name)
        self.is_signed = is_signed
        if is_signed:
            self.core.use_signatures(NameKeyring(self.core))
        self.disk = disk or MemoryDisk(Path(name))
        self.journal = Journal(self.disk, {"member": name}, sync=False)
        self.given: list[str] = []
        """The ids of the delivered messages, as the application sees them."""
        self.core.files = self.disk
        restore(self.core, self.journal)
        for each in NAMES if is_signed else ():
            self.step(CertificateLearned(b"certificate of " + each.encode(), 0))

    def step(self, event: Any) -> None:
        self.core.step(event)
        self.carry_out()

    def carry_out(self) -> None:
        ready = self.core.ready()
        if ready.history is not None:
            ready.history.write()
        self.journal.write(ready.records)
        send_and_advance(cast("Any", self.core), ready)

    def read(self) -> list[Any]:
        bodies = []
        while (delivery := self.core.next_delivery(0, acks=True)) is not None:
            bodies.append(delivery.message)
            self.given.append(f"{origin_in(delivery, self.core.labels)}:{delivery.message.seq}")
            self.carry_out()
        self.carry_out()
        self.journal.cursor = self.core.application.cursor
        return bodies

    def link_to(self, contact: Contact) -> int:
        return self.core.open_link(self.core.address, contact, 0)

    def state(self) -> tuple[Any, ...]:
        """All that a restart must bring back."""
        core = self.core
        members = {address: member.save() for address, member in core.members.items()}
        boxes = {link: (box.last, box.chain[box.last]) for link, box in core.outboxes.items()}
        return members, boxes, core.received, core.polls, core.application.cursor, core.links

    def restarted(self) -> Driven:
        self.disk.is_locked = False
        return Driven(self.core.name, self.disk, self.core.kind, self.is_signed)


def exchange(*cores: Driven) -> None:
    """Exchange packets until nothing more is sent."""
    by_address = {address: each for each in cores for address in each.core.members}
    moved = True
    while moved:
        moved = False
        for each in cores:
            for link, (mine, theirs) in list(each.core.links.items()):
                other = by_address.get(theirs)
                if other is None:
                    continue
                back = other.core.open_link(theirs, each.core.identities[mine], 0)
                for number, data in list(each.core.outboxes[link].packets.items()):
                    if number > other.core.received[back]:
                        moved = True
                        other.step(PacketReceived(back, number, data, 0))
            each.read()


def founders() -> tuple[Driven, Driven]:
    ana, bo = found(ANA, BO)
    return ana, bo


def found(*contacts: Contact, is_signed: bool = False) -> list[Driven]:
    members = [Driven(each.name, is_signed=is_signed) for each in contacts]
    for each in members:
        each.step(Founded(list(contacts), 0))
    return members


def joined(ana: Driven, *others: Driven) -> Driven:
    cy = Driven("cy", is_signed=ana.is_signed)
    ask(cy, CY, ana, *others)
    exchange(ana, *others, cy)
    assert cy.core.snapshot == b"state"
    cy.step(Started(0))
    return cy


def ask(cy: Driven, contact: Contact, sponsor: Driven, *others: Driven) -> None:
    """Ask for admission; the sponsor admits, but its welcome has not arrived yet."""
    cy.step(AttemptBegun(contact, 0))
    at = sponsor.core.identity
    cy.step(LinkOpened(contact.address, at, 0))
    sponsor.step(LinkOpened(at.address, contact, 0))
    cy.step(JoinAsked(cy.link_to(at), 0))
    exchange(sponsor, *others, cy)
    assert sponsor.core.may_sponsor
    sponsor.step(Sponsored(contact.address, b"state", 0))
