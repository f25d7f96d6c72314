"""Messages that a returning member brings back have the ids everywhere that its application was given."""

from __future__ import annotations

from driven_cores import ANA, BO, CY, CY_AGAIN, EVE, Driven, ask, exchange, found

from antecede.live.changing.contact import Contact
from antecede.live.changing.events import RemoveAsked, Reported, Started
from antecede.live.events import Opened
from antecede.live.versions import CHANGING_WIRE
from antecede.membership.state import Phase

DI = Contact("di")


def settle(*members: Driven) -> None:
    for _ in range(4):
        for each in members:
            if each.core.phase == Phase.MEMBER:
                each.step(Reported(0))
        exchange(*members)


def until(member: Driven, phase: Phase, *others: Driven) -> None:
    while member.core.phase != phase:
        settle(member, *others)


def test_a_message_of_a_member_whose_admission_is_lost_keeps_its_id() -> None:
    """Its sponsor is removed as it admits it; nobody else ever hears of that incarnation."""
    members = found(ANA, BO, DI, EVE)
    for each in members:
        each.step(Opened("life", 0, max(CHANGING_WIRE)))
    ana, bo, di, eve = members
    cy = Driven("cy")
    cy.step(Opened("life", 0, max(CHANGING_WIRE)))
    ask(cy, CY, eve)
    exchange(eve, cy)
    cy.step(Started(0))
    cy.core.broadcast("nobody else has this", 0)
    cy.carry_out()
    ana.step(RemoveAsked(eve.core.me, 0))
    settle(ana, bo, di)
    assert eve.core.me not in ana.core.member.addresses
    until(cy, Phase.REMOVED, *members)
    ask(cy, CY_AGAIN, ana, bo, di)
    until(cy, Phase.MEMBER, ana, bo, di)
    cy.step(Started(0))
    settle(ana, bo, di, cy)
    assert [each.given for each in (ana, bo, di)] == [[f"{CY.label}:1"]] * 3
    assert cy.given == [f"{CY.label}:1"] * 2
