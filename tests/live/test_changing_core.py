"""The core of a group that changes, driven by hand: what hostile members cannot do, and exact replay."""

from __future__ import annotations

import contextlib
import random
from hashlib import sha256

import msgspec
import pytest
from driven_cores import ANA, BO, CY, CY_AGAIN, EVE, Driven, exchange, found, founders, joined

from antecede.live.changing.contact import Contact, decode_contact, encode_contact
from antecede.live.changing.events import (
    AttemptBegun,
    JoinAsked,
    LeaveAsked,
    LinkOpened,
    Reported,
    Sponsored,
)
from antecede.live.changing.greeting import GoneError, MemberGreeter
from antecede.live.changing.snapshots import SnapshotTransfer, WelcomeState, encode_state, received_name
from antecede.live.events import PacketReceived
from antecede.live.transport.greeter import StaleGreetingError
from antecede.live.transport.outbox import CHAIN_START
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.state import Phase
from antecede.protocols.base import RemoteError
from antecede.protocols.flat import DependencyPacket


def test_a_newcomer_is_in_every_view_and_named_by_its_label() -> None:
    ana, bo = founders()
    ana.core.broadcast(b"before", 0)
    ana.carry_out()
    exchange(ana, bo)
    cy = joined(ana, bo)
    cy.core.broadcast(b"after", 0)
    cy.carry_out()
    exchange(ana, bo, cy)
    for each in (ana, bo, cy):
        labels = sorted(map(each.core.label, each.core.member.view))
        assert labels == ["ana", "bo", "cy~00000000"]
    assert bo.core.application.delivered == 2
    assert cy.core.application.delivered == 1


def test_a_restart_brings_back_everything_at_any_moment_of_an_admission() -> None:
    ana, bo = founders()
    cy = joined(ana, bo)
    for each in (ana, bo, cy):
        assert each.restarted().state() == each.state()
    ana.step(Reported(0))
    exchange(ana, bo, cy)
    for each in (ana, bo, cy):
        assert each.restarted().state() == each.state()


@pytest.mark.parametrize("seed", range(4))
def test_packets_with_errors_leave_a_member_that_a_restart_brings_back(seed: int) -> None:
    """Each packet arrives changed as well, on the same link. Nothing but a `RemoteError` is raised."""
    draw = random.Random(seed)
    ana, bo = founders()
    cy = joined(ana, bo)
    for each in (ana, bo, cy):
        each.core.broadcast(b"x", 0)
        each.step(Reported(0))
    link = ana.link_to(BO)
    packets = [
        data for each in (bo, cy) for box in each.core.outboxes.values() for data in box.packets.values()
    ]
    rejected = 0
    for data in packets * 5:
        wrong = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 4))):
            wrong[draw.randrange(len(wrong))] = draw.choice(
                (0, 1, 0x7F, 0x80, 0xC0, 0xFF, draw.randrange(256))
            )
        try:
            ana.step(PacketReceived(link, ana.core.received[link] + 1, bytes(wrong), 0))
        except RemoteError:
            rejected += 1
        rejected += ana.core.rejected.pop(link, None) is not None
        ana.read()
        if ana.core.phase != Phase.MEMBER:
            break
        if draw.random() < 0.2:
            ana.step(Reported(0))
    assert rejected
    assert ana.restarted().state() == ana.state()


def test_a_message_without_content_is_not_delivered() -> None:
    ana, bo = founders()
    link = ana.link_to(BO)
    poison = ChangingMbcp.encode(DependencyPacket(b"\x01no content", 1, 1, {}))
    ana.step(PacketReceived(link, 1, poison, 0))
    bo.core.broadcast(b"x", 0)
    ana.step(PacketReceived(link, 2, ChangingMbcp.encode(DependencyPacket(b"\x00y", 1, 2, {})), 0))
    assert [message.seq for message in ana.read()] == [2]
    assert ana.core.invalid
    assert ana.restarted().state() == ana.state()


@pytest.mark.parametrize(
    "contact",
    [Contact("a b"), Contact("x~y"), Contact("", b""), Contact("ok", b"123"), Contact("ok", b"", "nowhere")],
)
def test_malformed_contacts_are_refused(contact: Contact) -> None:
    with pytest.raises(RemoteError, match="not a contact"):
        decode_contact(encode_contact(contact))
    with contextlib.suppress(RemoteError):
        decode_contact(encode_contact(contact)[:-1])


def test_a_handshake_answer_after_the_link_was_forgotten_is_rejected_as_stale() -> None:
    """The caller remembers packets that the other has forgotten; its next call states that."""
    ana, bo = founders()
    cy = joined(ana, bo)
    there, here = MemberGreeter(bo.core, "room"), MemberGreeter(cy.core, "room")
    link = cy.link_to(BO)
    made_later = here.call(CY.address, link, "")
    late = msgspec.structs.replace(made_later, received=0, chain=CHAIN_START)  # as before the first packet
    bo.core.drop_link(bo.link_to(CY))
    answer = there.call(BO.address, there.find_link(late, 0, None), "")
    with pytest.raises(StaleGreetingError):
        here.find_link(answer, 0, late)
    with pytest.raises(GoneError):
        there.find_link(made_later, 0, None)


def test_an_answer_to_a_call_made_before_received_packets_were_durable_is_rejected() -> None:
    """The other side forgets the link right after sending its last packets."""
    ana, bo = founders()
    there, here = MemberGreeter(bo.core, "room"), MemberGreeter(ana.core, "room")
    bo.core.broadcast(b"x", 0)
    bo.carry_out()
    link, back = ana.link_to(BO), bo.link_to(ANA)
    ana.core.step(PacketReceived(link, 1, bo.core.outboxes[back].packets[1], 0))
    too_early = here.call(ANA.address, link, "")
    assert too_early.is_blank
    bo.core.drop_link(back)
    answer = there.call(BO.address, there.find_link(too_early, 0, None), "")
    with pytest.raises(StaleGreetingError):
        here.find_link(answer, 0, too_early)
    ana.carry_out()
    with pytest.raises(GoneError):
        there.find_link(here.call(ANA.address, link, ""), 0, None)


def test_a_welcome_whose_snapshot_was_discarded_ends_that_join_attempt() -> None:
    """The sponsor was down, so the newcomer began to fetch a snapshot elsewhere; it keeps only one."""
    ana, bo = founders()
    cy = Driven("cy")
    cy.step(AttemptBegun(CY, 0))
    cy.step(LinkOpened(CY.address, ANA, 0))
    ana.step(LinkOpened(ANA.address, CY, 0))
    cy.step(JoinAsked(cy.link_to(ANA), 0))
    exchange(ana, bo, cy)
    state = SnapshotTransfer(sha256(b"state").digest(), 5, False, 0, {})
    fetched = received_name(CY.address, state.digest)
    cy.disk.write(fetched, b"state")
    cy.step(AttemptBegun(CY_AGAIN, 0))
    cy.core.begin_fetch(SnapshotTransfer(sha256(b"other").digest(), 5, False, 0, {}))
    assert fetched not in cy.disk.names()
    ana.step(Sponsored(CY.address, None, 0, encode_state(WelcomeState(state, 0, []))))
    assert len(ana.core.member.view) == 3
    exchange(ana, bo, cy)
    assert cy.core.members[CY.address].phase == Phase.ENDED
    assert cy.core.identity == CY_AGAIN
    for each in (ana, bo):
        assert sorted(map(each.core.label, each.core.member.view)) == ["ana", "bo"]
    assert cy.restarted().state() == cy.state()


def test_a_founder_without_remembered_packets_is_known_until_forgotten() -> None:
    """Its last packet was accepted but never acknowledged, and nothing came back. Resending everything would
    speak for a member that nobody knows."""
    ana, bo, eve = found(ANA, BO, EVE)
    exchange(ana, bo, eve)
    blank = msgspec.structs.replace(
        MemberGreeter(eve.core, "room").call(EVE.address, eve.link_to(ANA), ""),
        received=0,
        chain=CHAIN_START,
        acked=0,
    )
    eve.step(LeaveAsked(0))
    exchange(ana, bo, eve)
    cy = joined(ana, bo)  # which knows that the founder has left, and not where it was
    assert len(cy.core.member.order.delivered) == 4
    there = msgspec.structs.replace(blank, you=CY.address)
    assert cy.core.links[MemberGreeter(cy.core, "room").find_link(there, 0, None)] == (
        CY.address,
        EVE.address,
    )
    for _ in range(4):
        for each in (ana, bo, cy):
            each.step(Reported(0))
        exchange(ana, bo, cy)
    for each, address in ((ana, ANA.address), (bo, BO.address)):
        with pytest.raises(GoneError) as gone:
            MemberGreeter(each.core, "room").find_link(msgspec.structs.replace(blank, you=address), 0, None)
        assert gone.value.answer.is_forgotten
    newcomer = msgspec.structs.replace(blank, contact=CY_AGAIN)
    assert MemberGreeter(ana.core, "room").find_link(newcomer, 0, None) in ana.core.links
