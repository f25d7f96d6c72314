"""What a lying member of a signed, changing group cannot make the others believe.

Eve is a founder like Ana and Bo, with her own key, and sends arbitrary packets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from driven_cores import ANA, BO, CY, CY_AGAIN, EVE, Driven, ask, exchange, found, joined

from antecede.causality import MessageId
from antecede.live.changing.contact import Contact, encode_contact
from antecede.live.changing.digests import DigestExchange
from antecede.live.changing.events import RemoveAsked, Reported
from antecede.live.changing.seals import message_value
from antecede.live.envelope import body_in, wrap
from antecede.live.events import PacketReceived
from antecede.live.seals import EquivocationError, Seals
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.packets import (
    AdmitMember,
    ApplicationData,
    Content,
    Disowning,
    FetchReply,
    ProgressReport,
    SealedWelcome,
    admitted_stream,
    encode_content,
)
from antecede.membership.sealing import add_seal, split_seal
from antecede.membership.state import Phase
from antecede.protocols.base import Packet, RemoteError
from antecede.protocols.flat import DependencyPacket
from vopr.changing.signing import NameKeyring

STREAM = {"ana": 0, "bo": 1, "eve": 2}
START = bytes(32)
LIE = ApplicationData(wrap("a lie", False, None))


def signed(
    by: Driven, content: Content, message: tuple[int, int], previous: bytes = START, **causes: int
) -> DependencyPacket:
    """A message signed by this member, in the name of any member."""
    origin, seq = message
    named = {STREAM[name]: count for name, count in causes.items()}
    payload = encode_content(content)
    value = message_value(previous, payload, named)
    signature = Seals(NameKeyring(by.core)).sign(origin, seq, seq, previous, value).signature
    return DependencyPacket(add_seal(payload, previous + signature), origin, seq, named)


def send(to: Driven, by: Contact, packet: Packet) -> None:
    link = to.link_to(by)
    to.step(PacketReceived(link, to.core.received[link] + 1, ChangingMbcp.encode(packet), 0))
    to.core.rejected.pop(link, None)


def refused(to: Driven, by: Contact, packet: Packet, why: str) -> None:
    """The packet is refused, and the member's state is unchanged."""
    before = to.state()
    with pytest.raises(RemoteError, match=why):
        send(to, by, packet)
    assert to.state() == before
    assert to.restarted().state() == before


def broadcast(by: Driven, body: str) -> DependencyPacket:
    """Broadcast a message; returns the packet that carries it, which has not arrived yet."""
    by.core.broadcast(body, 0)
    by.carry_out()
    box = next(iter(by.core.outboxes.values()))
    packet = ChangingMbcp.decode(box.packets[box.last])
    assert isinstance(packet, DependencyPacket)
    return packet


def bodies(of: Driven) -> list[Any]:
    found = []
    while (delivery := of.core.next_delivery(0, acks=True)) is not None:
        found.append(body_in(delivery.payload))
        of.carry_out()
    of.carry_out()
    return found


def reply(*packets: Packet) -> FetchReply:
    return FetchReply([ChangingMbcp.encode(each) for each in packets])


@pytest.fixture
def three() -> list[Driven]:
    return found(ANA, BO, EVE, is_signed=True)


def test_messages_in_the_name_of_another_are_refused(three: list[Driven]) -> None:
    ana, _, eve = three
    lie = signed(eve, LIE, (STREAM["bo"], 1))
    refused(ana, EVE, lie, "a message of another member")
    refused(ana, EVE, reply(lie), "a signature that is not its own")
    refused(ana, EVE, reply(msgspec.structs.replace(lie, payload=encode_content(LIE))), "without the sign")
    send(ana, EVE, signed(eve, ApplicationData(wrap("true", False, None)), (STREAM["eve"], 1)))
    assert bodies(ana) == ["true"]


def test_a_repaired_message_cannot_be_altered_by_its_supplier(three: list[Driven]) -> None:
    ana, bo, _ = three
    first, second = broadcast(bo, "first"), broadcast(bo, "second")
    content, seal = split_seal(first.payload)
    changed = msgspec.structs.replace(first, payload=add_seal(content + b"!", seal))
    refused(ana, EVE, reply(changed), "a signature that is not its own")
    earlier = msgspec.structs.replace(first, causes={STREAM["eve"]: 9})  # it would wait for ever
    refused(ana, EVE, reply(earlier), "a signature that is not its own")
    exchanged = msgspec.structs.replace(first, payload=second.payload)
    refused(ana, EVE, reply(exchanged), "a signature that is not its own")
    send(ana, EVE, reply(first, second))
    assert bodies(ana) == ["first", "second"]


def welcome_of(sponsor: Driven, newcomer: Contact) -> tuple[SealedWelcome, int]:
    link = sponsor.link_to(newcomer)
    packets = sponsor.core.outboxes[link].packets
    (number,) = [
        each for each, data in packets.items() if isinstance(ChangingMbcp.decode(data), SealedWelcome)
    ]
    welcome = ChangingMbcp.decode(packets[number])
    assert isinstance(welcome, SealedWelcome)
    return welcome, number


def _adds_a_message(welcome: SealedWelcome, eve: Driven) -> dict[str, Any]:
    lie = ChangingMbcp.encode(signed(eve, LIE, (STREAM["bo"], 2)))
    return {"messages": [*welcome.messages, lie]}


def _renames(welcome: SealedWelcome, eve: Driven) -> dict[str, Any]:
    return {"contacts": {**welcome.contacts, STREAM["bo"]: encode_contact(EVE)}}


def _counts_more(welcome: SealedWelcome, eve: Driven) -> dict[str, Any]:
    return {"delivered": {**welcome.delivered, STREAM["bo"]: 7}}


def _states(welcome: SealedWelcome, eve: Driven) -> dict[str, Any]:
    return {"statements": {**welcome.statements, STREAM["bo"]: welcome.statements[STREAM["ana"]]}}


def _reports(welcome: SealedWelcome, eve: Driven) -> dict[str, Any]:
    report = ProgressReport(STREAM["bo"], {welcome.stream: 3}, {}, frozenset())
    return {"progress": {**welcome.progress, STREAM["bo"]: report}}


@pytest.mark.parametrize("change", [_adds_a_message, _renames, _counts_more, _states, _reports])
def test_a_welcome_that_lies_is_refused_and_the_newcomer_asks_another(
    three: list[Driven], change: Callable[[SealedWelcome, Driven], dict[str, Any]]
) -> None:
    ana, bo, eve = three
    for each in (ana, bo):
        broadcast(each, f"from {each.core.name}")
    exchange(ana, bo, eve)
    cy = Driven("cy", is_signed=True)
    ask(cy, CY, eve, ana, bo)
    welcome, number = welcome_of(eve, CY)
    link = cy.link_to(EVE)
    lie = ChangingMbcp.encode(msgspec.structs.replace(welcome, **change(welcome, eve)))
    with pytest.raises(RemoteError):
        cy.step(PacketReceived(link, number, lie, 0))
    assert not cy.core.is_started
    ask(cy, CY_AGAIN, ana, bo)
    exchange(ana, bo, cy)
    assert cy.core.snapshot == b"state"
    assert cy.core.sealing.latest.keys() >= {STREAM["ana"], STREAM["bo"]}


def test_an_honest_welcome_is_verifiable(three: list[Driven]) -> None:
    ana, bo, eve = three
    broadcast(bo, "before")
    exchange(ana, bo, eve)
    cy = joined(ana, bo, eve)
    assert cy.core.sealing.latest[STREAM["bo"]] == ana.core.sealing.latest[STREAM["bo"]]
    broadcast(cy, "from cy")
    exchange(ana, bo, eve, cy)
    for each in (ana, bo, eve, cy):
        each.step(Reported(0))
        exchange(ana, bo, eve, cy)
        assert each.restarted().state() == each.state()


def test_an_admission_that_binds_no_name_to_its_stream_is_refused(three: list[Driven]) -> None:
    ana, _, eve = three
    message = STREAM["eve"], 1
    stream = admitted_stream(CY.address, MessageId(*message))
    contact = encode_contact(CY)
    lies = [
        AdmitMember(stream + 1, CY.address, {}, contact),
        AdmitMember(stream, CY.address + 1, {}, contact),
        AdmitMember(stream, CY.address, {}, encode_contact(BO)),
        AdmitMember(STREAM["bo"], BO.address, {}, encode_contact(BO)),
    ]
    for each in lies:
        refused(ana, EVE, signed(eve, each, message), "does not bind a name")
    refused(ana, EVE, signed(eve, AdmitMember(stream, CY.address, {}), message), "not a contact")


def test_a_signature_of_a_former_incarnation_does_not_count(three: list[Driven]) -> None:
    ana, bo, eve = three
    cy = joined(ana, bo, eve)
    old = broadcast(cy, "once")
    exchange(ana, bo, eve, cy)
    former = cy.core.me
    ana.step(RemoveAsked(former, 0))
    exchange(ana, bo, eve, cy)
    assert cy.core.phase == Phase.REMOVED
    ask(cy, CY_AGAIN, ana, bo, eve)
    exchange(ana, bo, eve, cy)
    assert cy.core.me != former
    refused(bo, EVE, reply(msgspec.structs.replace(old, origin=cy.core.me)), "signature that is not its own")


def test_equivocation_is_detected_and_each_member_retains_one_message(three: list[Driven]) -> None:
    ana, bo, eve = three
    message = STREAM["eve"], 1
    one, other = (signed(eve, ApplicationData(wrap(text, False, None)), message) for text in ("one", "other"))
    send(ana, EVE, one)
    send(bo, EVE, other)
    assert (bodies(ana), bodies(bo)) == (["one"], ["other"])
    exchanges = {each.core.name: DigestExchange(each.core) for each in (ana, bo)}
    links = [ana.link_to(BO)]
    assert exchanges["ana"].due(0.0, links) == []  # its state is too recent to be compared
    ((_, digests),) = exchanges["ana"].due(1.0, links)
    (evidence,) = exchanges["bo"].compare(bo.link_to(ANA), digests)  # type: ignore[arg-type]
    with pytest.raises(EquivocationError) as proof:
        ana.core.sealing.examine(evidence.origin, evidence.statements)
    ana.core.sealing.report_equivocation(proof.value, 0)
    ana.carry_out()
    ((_, shown),) = exchanges["ana"].due(1.5, links)
    assert shown.statements == ana.core.sealing.liars[STREAM["eve"]]  # type: ignore[union-attr]
    with pytest.raises(EquivocationError):
        bo.core.sealing.examine(shown.origin, shown.statements)  # type: ignore[union-attr]
    with pytest.raises(RemoteError, match="eve has signed different messages under the same ids"):
        ana.core.sealing.check_honest(STREAM["eve"])
    assert ana.link_to(EVE) in ana.core.equivocators
    assert ana.restarted().core.sealing.liars == ana.core.sealing.liars
    send(ana, BO, reply(other))  # it also arrives by another path, and changes nothing
    assert bodies(ana) == []


def test_a_member_contradicting_itself_on_its_link_is_refused_and_remembered(three: list[Driven]) -> None:
    ana, _, eve = three
    first = signed(eve, LIE, (STREAM["eve"], 1))
    send(ana, EVE, first)
    with pytest.raises(RemoteError, match="different messages under the same ids"):
        send(ana, EVE, signed(eve, LIE, (STREAM["eve"], 2), b"not what came before".ljust(32)))
    assert STREAM["eve"] in ana.core.sealing.liars


def test_progress_reported_for_another_member_is_ignored(three: list[Driven]) -> None:
    ana, bo, _ = three
    broadcast(ana, "unstable")
    send(ana, EVE, ProgressReport(STREAM["bo"], {STREAM["ana"]: 1}, {}, frozenset()))
    send(ana, EVE, ProgressReport(STREAM["eve"], {STREAM["ana"]: 1}, {}, frozenset()))
    assert ana.core.member.unstable
    send(ana, BO, bo.core.member._report())
    assert ana.core.member.unstable
    assert ana.restarted().state() == ana.state()


def test_copies_and_disownings_of_a_present_member_are_ignored(three: list[Driven]) -> None:
    ana, bo, eve = three
    broadcast(bo, "true")
    exchange(ana, bo, eve)
    bodies(ana)
    copy = ApplicationData(wrap("a lie", False, None), MessageId(STREAM["bo"], 2))
    send(ana, EVE, signed(eve, copy, (STREAM["eve"], 1)))
    value = ana.core.sealing.latest[STREAM["eve"]].value
    send(ana, EVE, signed(eve, Disowning(STREAM["bo"]), (STREAM["eve"], 2), value))
    assert bodies(ana) == []
    assert len(ana.core.invalid) == 2
    broadcast(bo, "second")
    exchange(ana, bo)
    assert ana.core.member.order.delivered[STREAM["bo"]] == 2


def test_a_restart_with_another_key_repeats_the_signatures_of_before(three: list[Driven]) -> None:
    ana, bo, eve = three
    for each in (ana, bo, eve):
        broadcast(each, each.core.name)
    exchange(ana, bo, eve)
    before = ana.state()
    ana.disk.is_locked = False
    again = Driven.__new__(Driven)

    class Replaced(NameKeyring):
        def sign(self, statement: bytes) -> bytes:
            raise AssertionError("nothing is signed in a replay")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("driven_cores.NameKeyring", Replaced)
        again.__init__("ana", ana.disk, is_signed=True)  # type: ignore[misc]
    assert again.state() == before
