"""Paper 000, section 3.1.4: every vector and every table entry that it prints.

Super peer 1 has internal peers P(i)1 and P(i)2 behind it; P(e)2 and P(e)3 are external. Here they are ranks
0 (the super peer), 1 and 2 (internal), 3 and 4 (external). Bit vectors are written as the paper writes them,
from bit 1 on: 001 is {3}.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import Effects, Packet
from antecede.protocols.freescale import Freescale, FreescaleLayout
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    NumberAssignment,
    UplinkPacket,
)

SP1, PI1, PI2, PE2, PE3 = range(5)


def bits(numbers: Iterable[int]) -> str:
    included = set(numbers)
    return "".join("01"[number in included] for number in range(1, max(included, default=0) + 1))


def solid(window: BitWindow) -> str:
    return bits(window)


class Scene:
    """The scenario up to the diffusion of m3: m1 is from P(e)3, and m2, from P(e)2, depends on it."""

    def __init__(self, form: Any) -> None:
        self.peers = Freescale.with_layout(5, FreescaleLayout([2], form))
        self.m1 = self.send(PE3)
        self.give(PE2, PE3, self.m1)
        m1_inside = self.give(SP1, PE3, self.m1).sends[0].packet
        self.m2 = self.send(PE2)
        m2_inside = self.give(SP1, PE2, self.m2).sends[0].packet
        for peer in (PI1, PI2):
            self.give(peer, SP1, m1_inside)
            self.give(peer, SP1, m2_inside)

    def role(self, peer: int) -> Any:
        return self.peers[peer].peer

    def send(self, peer: int) -> Any:
        return self.peers[peer].broadcast(b"Data", 0).sends[0].packet

    def give(self, to: int, link: int, packet: Packet) -> Effects:
        effects = self.peers[to].receive(link, packet, 0)
        self.delivered = []
        while (delivery := self.peers[to].deliver(0)) is not None:
            self.delivered.append(delivery.message)
        return effects

    def clock(self, peer: int) -> tuple[str | int, int, int]:
        """VTx: of the super peer an integer at itself and bits elsewhere; integers of the external peers."""
        role = self.role(peer)
        counts = role.inbox.delivered_counts
        mine = role.number if peer == SP1 else solid(role.inbox.delivered_numbers.get(SP1, BitWindow()))
        own = {PE2: self.role(PE2).sent, PE3: self.role(PE3).sent}
        return (mine, *(own[e] if e == peer else counts.get(e, 0) for e in (PE2, PE3)))

    def table(self, peer: int) -> list[tuple[int, int]]:
        """TT at one place: pairs (in, out)."""
        return [(theirs, number) for number, (ext, theirs) in self.role(SP1).table.items() if ext == peer]


def test_every_value_of_section_3_1_4_in_the_papers_form() -> None:
    scene = Scene("paper")
    give, send, role = scene.give, scene.send, scene.role

    # Initially: P(i)2 has m1 and m2, and depends on m2 alone.
    assert solid(role(PI2).delivered) == "11"
    assert bits(role(PI2).causes) == "01"
    assert scene.clock(SP1) == (2, 1, 1)
    assert scene.table(PE2) == [(1, 2)]
    assert scene.table(PE3) == [(1, 1)]
    assert bits(role(SP1).never_sent) == "11"

    # Diffusion of m3 at P(i)2: m3 = (2, 1, 0, 01, Data), and DV is cleared.
    m3: UplinkPacket = send(PI2)
    assert (m3.origin, m3.seq, bits(m3.causes.numbers()), m3.payload) == (PI2, 1, "01", b"Data")
    assert bits(role(PI2).causes) == ""

    # Reception of m3 at Sp1: VTx = (3, 1, 1), LR[2] = <1, 3>, sent on as number 3 with Last 0.
    down, echo, to_externals = give(SP1, PI2, m3).sends
    m3_inside = down.packet
    assert isinstance(m3_inside, DownlinkPacket)
    assert (m3_inside.number, m3_inside.sender_previous, bits(m3_inside.causes.numbers())) == (3, 0, "01")
    assert scene.clock(SP1) == (3, 1, 1)
    assert role(SP1).last_internal[PI2] == (1, 3)
    assert {to for send in (down, echo) for to in send.to} == {PI1, PI2}

    # Transformation: I_m = 11, I is emptied, m(e)3 = (1, 3, <2, 1>, 11, Data).
    m3_outside = to_externals.packet
    assert isinstance(m3_outside, ExternalPacket)
    assert (m3_outside.number, m3_outside.peers, m3_outside.supers) == (3, {PE2: 1}, {})
    assert bits(m3_outside.translated.numbers()) == "11"
    assert role(SP1).never_sent == set()
    assert set(to_externals.to) == {PE2, PE3}

    # Reception of m(e)3 at P(e)3: the clock takes I, VTx = (11, 0, 1); <2, 1> is not there: held.
    give(PE3, SP1, m3_outside)
    assert scene.clock(PE3) == ("11", 0, 1)
    assert scene.delivered == []
    (held,) = scene.peers[PE3].waiting()
    assert (held.message, held.cause) == (MessageId(PI2, 1), MessageId(PE2, 1))

    # Reception of m2 at P(e)3: delivered, and m(e)3 after it; VTx = (111, 1, 1), CI = <1, 001>.
    assert scene.m2.peers == {PE3: 1}
    give(PE3, PE2, scene.m2)
    assert scene.delivered == [MessageId(PE2, 1), MessageId(PI2, 1)]
    assert scene.clock(PE3) == ("111", 1, 1)
    assert role(PE3).peer_causes == {}
    assert bits(role(PE3).super_causes[SP1]) == "001"

    # Diffusion of m4 at P(e)2, which has delivered m(e)3: VTx = (111, 2, 1), m4 = (2, 2, <1, 001>, {}, Data).
    give(PE2, SP1, m3_outside)
    m4: ExternalPacket = send(PE2)
    assert scene.clock(PE2) == ("111", 2, 1)
    assert (m4.origin, m4.number, m4.peers) == (PE2, 2, {})
    assert {peer: bits(row.numbers()) for peer, row in m4.supers.items()} == {SP1: "001"}
    assert bits(m4.translated.numbers()) == ""
    assert (role(PE2).peer_causes, role(PE2).super_causes) == ({}, {})

    # Reception of m4 at P(e)3: delivered; VTx = (111, 2, 1), CI = <2, 2>.
    give(PE3, PE2, m4)
    assert scene.delivered == [MessageId(PE2, 2)]
    assert scene.clock(PE3) == ("111", 2, 1)
    assert (role(PE3).peer_causes, bits(role(PE3).super_causes[SP1])) == ({PE2: 2}, "")

    # Reception of m4 at Sp1: VTx = (4, 2, 1); m(i)4 = (0, 4, 2, 001, Data).
    (down,) = give(SP1, PE2, m4).sends
    m4_inside = down.packet
    assert isinstance(m4_inside, DownlinkPacket)
    assert scene.clock(SP1) == (4, 2, 1)
    assert (m4_inside.number, m4_inside.sender_previous, bits(m4_inside.causes.numbers())) == (4, 2, "001")
    assert scene.table(PE2) == [(1, 2), (2, 4)]
    assert bits(role(SP1).never_sent) == "0001"

    # Reception of m(i)4 at P(i)2, which knows the number of its own m3: RV = 1111, DV = 0001.
    assert isinstance(echo.packet, NumberAssignment)
    give(PI2, SP1, echo.packet)
    assert solid(role(PI2).delivered) == "111"
    give(PI2, SP1, m4_inside)
    assert scene.delivered == [MessageId(PE2, 2)]
    assert solid(role(PI2).delivered) == "1111"
    assert bits(role(PI2).causes) == "0001"

    # Reception of m(i)4 at P(i)1: 001 is not in RV = 11: held. Then m(i)3: RV = 111, DV = 001, and m(i)4
    # follows: RV = 1111, DV = 0001.
    assert solid(role(PI1).delivered) == "11"
    give(PI1, SP1, m4_inside)
    assert scene.delivered == []
    scene.peers[PI1].receive(SP1, m3_inside, 0)
    first = scene.peers[PI1].deliver(0)
    assert first is not None
    assert first.message == MessageId(PI2, 1)
    assert solid(role(PI1).delivered) == "111"
    assert bits(role(PI1).causes) == "001"
    second = scene.peers[PI1].deliver(0)
    assert second is not None
    assert second.message == MessageId(PE2, 2)
    assert solid(role(PI1).delivered) == "1111"
    assert bits(role(PI1).causes) == "0001"


def test_the_corrected_form_is_equivalent_without_the_bits() -> None:
    scene = Scene("corrected")
    _, _, to_externals = scene.give(SP1, PI2, scene.send(PI2)).sends
    m3_outside = to_externals.packet
    assert isinstance(m3_outside, ExternalPacket)
    assert (m3_outside.number, m3_outside.relay_previous, m3_outside.peers) == (3, 0, {PE2: 1})
    assert m3_outside.translated.span == 0
    scene.give(PE3, SP1, m3_outside)
    assert scene.clock(PE3) == ("11", 0, 1)
    scene.give(PE3, PE2, scene.m2)
    assert scene.clock(PE3) == ("111", 1, 1)
    assert scene.delivered == [MessageId(PE2, 1), MessageId(PI2, 1)]


@pytest.mark.parametrize("form", ["paper", "corrected"])
def test_a_reply_is_held_until_the_number_of_its_cause_is_known(form: str) -> None:
    """An internal peer is told the number of its own message; a reply to it names that number."""
    scene = Scene(form)
    _, echo, to_externals = scene.give(SP1, PI2, scene.send(PI2)).sends
    scene.give(PE2, SP1, to_externals.packet)
    (answer,) = scene.give(SP1, PE2, scene.send(PE2)).sends
    scene.give(PI2, SP1, answer.packet)
    assert scene.delivered == []
    (held,) = scene.peers[PI2].waiting()
    assert (held.message, held.cause) == (MessageId(PE2, 2), None)
    scene.give(PI2, SP1, echo.packet)
    assert scene.delivered == [MessageId(PE2, 2)]
