"""A liar cannot partition honest members or escape proof, and its detected lies stay recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from core_group import Group, Macs, Peer, roster
from live_groups import Ear, run, until
from stores import SOCKET
from test_liars import ANA, BO, CLEO, EVE, Mesh

import antecede
from antecede.live.core import Core
from antecede.live.envelope import decode_body, unwrap, wrap
from antecede.live.events import PacketReceived, ProgressReceived, RepairReceived
from antecede.live.operations.metrics import health
from antecede.live.seals import Seals, chain_value
from antecede.live.stability import Row
from antecede.live.transport.frames import Evidence, Frame
from antecede.protocols.base import Delivery
from antecede.protocols.flat import DependencyPacket, MessageBatch
from antecede.protocols.flooding import Flooding, FloodPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.vcube import Bundle

# Fabricated causes


def sealed(seq: int, content: bytes, previous: bytes = bytes(32)) -> bytes:
    """A payload of Eve."""
    return Seals(Macs(EVE)).seal(EVE, seq, [content], previous, in_one_packet=True)[0]


@pytest.mark.parametrize("protocol", ["vcube", "vcube-agg"])
def test_a_relay_is_not_disconnected_for_a_forwarded_false_cause(protocol: str) -> None:
    """Bo forwards Eve's message to Ana. It names Ana's third message, which only she knows does not exist."""
    mesh = Mesh(signed=True, protocol=protocol)
    mesh.cut = {(EVE, BO), (EVE, CLEO)}  # she relays nothing
    ana, bo = mesh.nodes[ANA], mesh.nodes[BO]
    message = DependencyPacket(sealed(1, wrap("a lie", False, {})), EVE, 1, {ANA: 3})
    packet = message if protocol == "vcube" else Bundle([message])
    data = bo.core.protocol.encode(packet)
    bo.core.step(PacketReceived(EVE, bo.core.received[EVE] + 1, data, 0))
    bo.core.broadcast("from Bo", 0)
    ana.core.broadcast("from Ana", 0)
    mesh.rounds(10)
    assert ana.links.by_peer[BO].is_open
    assert (ana.heard, bo.heard) == (["from Bo"], ["from Ana"])
    for _ in range(2):
        ana.core.broadcast("from Ana", 0)
    mesh.rounds(10)
    assert (ana.heard[1:], bo.heard[1:]) == (["a lie"], ["from Ana", "from Ana", "a lie"])


@pytest.mark.parametrize("protocol", ["mbcp", "timestamp-diff"])
def test_a_repairing_member_is_not_disconnected_for_a_false_cause_it_supplies(protocol: str) -> None:
    """Ana has Eve's second message only, and asks Bo for the first."""
    mesh = Mesh(signed=True, protocol=protocol)
    ana, bo = mesh.nodes[ANA].core, mesh.nodes[BO]
    message = DependencyPacket(sealed(1, wrap("a lie", False, {})), EVE, 1, {ANA: 1000})
    ana.step(RepairReceived(BO, ana.protocol.encode(message), 0, [(EVE, 1, 1)]))
    bo.core.broadcast("from Bo", 0)
    mesh.rounds()
    assert mesh.nodes[ANA].heard == ["from Bo"]


@pytest.mark.parametrize("in_what_is_signed", [False, True])
def test_a_message_delivered_after_an_own_cause_is_no_more_durable_than_that_cause(
    tmp_path: Path, in_what_is_signed: bool
) -> None:
    """It is delivered after Ana's own message. While that can still be lost, a replay could lack it."""
    group = Group(roster("mbcp", 4), tmp_path, signed=True)
    ana = group.peers[ANA]
    causes = {ANA: 1}
    content = wrap("early", False, causes if in_what_is_signed else {})
    packet = DependencyPacket(sealed(1, content), EVE, 1, {} if in_what_is_signed else causes)
    ana.core.step(PacketReceived(EVE, 1, ana.core.protocol.encode(packet), 0))
    ana.flush()
    assert not ana.take(0)
    ana.broadcast("from Ana", 0)
    ana.take_ready(checkpoint=False)
    assert not ana.take(0)
    ana.kill()
    ana.revive()
    assert not ana.take(0)
    ana.broadcast("from Ana", 0)
    ana.flush()
    assert ana.take(0)
    ana.kill()
    ana.revive()
    assert [delivery.message.origin for delivery in ana.core.application.unacked] == [EVE]


# Equivocation


def said_in_batches(word: str, sizes: list[int]) -> list[bytes]:
    """Eve's packets, of so many messages each."""
    seals, previous, seq, packets = Seals(Macs(EVE)), bytes(32), 1, []
    for size in sizes:
        contents = [wrap(f"{word} {number}", number > 1, {}) for number in range(seq, seq + size)]
        packets.append(
            Mbcp.encode(MessageBatch(seals.seal(EVE, seq, contents, previous, True), EVE, seq, {}))
        )
        for content in contents:
            previous = chain_value(previous, content)
        seq += size
    return packets


def say(mesh: Mesh, to: int, packets: list[bytes]) -> None:
    """Eve sends these packets to one member, and nothing more."""
    node = mesh.nodes[to]
    for packet in packets:
        node.core.step(PacketReceived(EVE, node.core.received[EVE] + 1, packet, 0))
    for link in (node.links.by_peer[EVE], mesh.nodes[EVE].links.by_peer[to]):
        link.close()


def assert_proven(mesh: Mesh) -> None:
    assert mesh.nodes[ANA].heard[:1] != mesh.nodes[BO].heard[:1]
    assert [list(mesh.nodes[honest].core.equivocators) for honest in (ANA, BO, CLEO)] == [[EVE]] * 3


@pytest.mark.parametrize(
    ("to_ana", "to_bo"),
    [([2] * 270, [1] + [2] * 269), ([3], [1]), ([1], [3]), ([1, 3, 1], [5]), ([2, 2], [3])],
)
def test_overlapping_signed_statements_prove_equivocation_wherever_they_begin(
    to_ana: list[int], to_bo: list[int]
) -> None:
    """Eve tells Ana one thing and Bo another, in batches of different sizes."""
    mesh = Mesh(signed=True)
    say(mesh, ANA, said_in_batches("yes", to_ana))
    say(mesh, BO, said_in_batches("no", to_bo))
    say(mesh, CLEO, [])
    mesh.rounds(10)
    assert_proven(mesh)


@pytest.mark.parametrize("first", [ANA, BO])
def test_many_other_statements_do_not_displace_the_proof_of_equivocation(first: int) -> None:
    """Eve tells Bo one message only, and Ana another one and then hundreds."""
    mesh = Mesh(signed=True)
    say(mesh, first, said_in_batches("yes", [1] * 400))
    say(mesh, ANA + BO - first, said_in_batches("no", [1]))
    say(mesh, CLEO, [])
    mesh.rounds(10)
    assert_proven(mesh)


def test_evidence_is_shown_again_if_a_connection_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(signed=True)
    carry = mesh.carry

    def carry_no_evidence(source: int, to: int, frame: Frame) -> None:
        if not isinstance(frame, Evidence):
            carry(source, to, frame)

    monkeypatch.setattr(mesh, "carry", carry_no_evidence)
    say(mesh, ANA, said_in_batches("yes", [1]))
    say(mesh, BO, said_in_batches("no", [1]))
    say(mesh, CLEO, [])
    mesh.rounds(10)
    assert all(mesh.nodes[honest].core.stability.divergences for honest in (ANA, BO))
    monkeypatch.undo()
    for one, other in ((ANA, BO), (ANA, CLEO), (BO, CLEO)):
        mesh.connect(one, other)
    mesh.rounds(10)
    assert_proven(mesh)


# Forks


def bo_with_five_messages_of_ana(folder: Path) -> Peer:
    group = Group(roster("mbcp", 3), folder)
    group.connect_all()
    group.cut(ANA, CLEO)
    group.cut(BO, CLEO)
    for _ in range(5):
        group.broadcast(ANA)
    bo = group.peers[BO]
    group.peers[ANA].flush()
    group.carry(ANA, BO)
    bo.flush()
    while bo.take(0):
        pass
    bo.ack()
    return bo


def restart(peer: Peer, how: str) -> None:
    peer.flush(checkpoint=how != "killed")
    peer.kill(sudden=how == "killed")
    peer.start()


OTHER_MESSAGES = [Row(CLEO, {ANA: (2, b"othermsg")})]
"""Cleo has met a copy of Ana: she has two of her messages, and the second is another one."""


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("is_reported_before", [True, False])
def test_a_fork_is_noticed_for_good_whatever_restarts(
    tmp_path: Path, how: str, is_reported_before: bool
) -> None:
    bo = bo_with_five_messages_of_ana(tmp_path)
    if is_reported_before:
        bo.core.step(ProgressReceived(CLEO, OTHER_MESSAGES))
        assert bo.core.has_ready
    for _ in range(2):
        restart(bo, how)
        assert bool(bo.core.stability.divergences) == is_reported_before
    bo.core.step(ProgressReceived(CLEO, OTHER_MESSAGES))
    assert bo.core.stability.divergences == {(CLEO, ANA): (CLEO, ANA, 0, 2)}
    assert bo.core.stability.matrix_clock[CLEO][ANA] == 0


def test_a_fork_falsely_reported_by_a_third_member_is_cleared(tmp_path: Path) -> None:
    """Without signatures, any member may claim a fork of one that is not connected."""
    bo = bo_with_five_messages_of_ana(tmp_path)
    bo.core.step(ProgressReceived(ANA, OTHER_MESSAGES))
    assert bo.core.stability.divergences
    restart(bo, "stopped")
    bo.core.step(ProgressReceived(ANA, OTHER_MESSAGES))
    bo.core.step(ProgressReceived(CLEO, [Row(CLEO, {ANA: (3, bo.core.stability.history[ANA][3][:8])})]))
    assert bo.core.stability.divergences == {}


def test_a_fork_is_listed_as_a_problem_until_it_is_resolved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bo has met one Ana and Cleo the other; Bo reports it in /health, even after a restart."""

    def forks(group: antecede.Group) -> list[str]:
        return [each["text"] for each in json.loads(health(group)[1])["problems"] if each["kind"] == "forked"]

    async def test() -> None:
        async with antecede.join("room", me="cleo", peers=["ana", "bo"], listen=":0") as cleo:
            at_cleo = Ear(cleo)
            bo: dict[str, Any] = {"group": "room", "me": "bo", "listen": ":0", "store": tmp_path / "bo"}
            ana: dict[str, Any] = {"group": "room", "me": "ana"}
            async with antecede.join(**bo, peers=["ana", "cleo"]) as second:
                at_bo, peers = Ear(second), [f"bo@{second.address}", "cleo"]
                async with antecede.join(**ana, peers=peers, store=tmp_path / "ana") as first:
                    await first.broadcast("the same")
                    await until(lambda: at_bo.bodies() == ["the same"])
                    shutil.copytree(tmp_path / "ana", tmp_path / "copy", ignore=SOCKET)
                    await first.broadcast("for Bo")
                    await until(lambda: len(at_bo.bodies()) == 2)
                await at_bo.stop()
            peers = ["bo", f"cleo@{cleo.address}"]
            async with antecede.join(**ana, peers=peers, store=tmp_path / "copy") as other:
                await other.broadcast("for Cleo")
                await until(lambda: len(at_cleo.bodies()) == 2)
            async with antecede.join(**bo, peers=["ana", f"cleo@{cleo.address}"]) as second:
                await until(lambda: any("differ here and at cleo" in text for text in forks(second)))
                await until(lambda: forks(cleo))
                assert forks(second)[0].startswith("messages of ana after ana:")
                assert {each.member for each in second.problems()} == {"ana"}
            await at_cleo.stop()
        caplog.clear()
        async with antecede.join(**bo, peers=["ana", "cleo"]) as second:
            assert forks(second)
        assert {each.levelname for each in caplog.records if "forked" in each.getMessage()} == {"WARNING"}

    run(test())


class BothVersions(Mbcp):
    """Delivers what two processes with one store have broadcast under one id."""

    name: ClassVar[str] = "both versions"

    def deliver(self, now: int) -> Delivery | None:
        delivery = super().deliver(now)
        if delivery is not None and delivery.payload.endswith(b"first"):
            other = DependencyPacket(wrap(b"second", False, None), *delivery.message, {})
            self.holdback.ready.insert(0, other)
        return delivery


def test_an_application_is_delivered_one_message_per_id() -> None:
    """`freescale` delivers both, since members have numbers of their own for messages there."""
    sender, core = Mbcp(0, 2), Core(BothVersions(1, 2), durable=False)
    for number, body in enumerate([b"first", b"next"], 1):
        (send,) = sender.broadcast(wrap(body, False, None), 0).sends
        core.step(PacketReceived(0, number, sender.encode(send.packet), 0))
    given = []
    while (delivery := core.next_delivery(0, acks=True)) is not None:
        given.append(decode_body(unwrap(delivery.payload)))
    assert given == [b"first", b"next"]


def test_an_out_of_order_message_is_delivered_once_before_and_after_a_restart(tmp_path: Path) -> None:
    """Where links alone keep the order, a partner that breaks it must not have messages dropped."""
    group = Group(roster("flooding", 2), tmp_path)
    bo = group.peers[1]
    given = []
    for number, seq in enumerate([3, 1, 3, 1, 2, 2, 4], 1):
        packet = Flooding.encode(FloodPacket(wrap("x", False, None), 0, seq))
        bo.core.step(PacketReceived(0, number, packet, number))
        bo.flush()
        while bo.take(number):
            given.append(bo.seen[-1].seq)
            bo.ack()
        if number == 2:
            bo.kill()
            bo.revive()
    assert given == [3, 1, 2, 4]
    assert bo.core.stability.out_of_order == {}
    group.close()
