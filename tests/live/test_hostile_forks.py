"""A liar separates no honest members, escapes no proof, and what was noticed of it is not forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_group import Group, Macs, roster
from test_liars import ANA, BO, CLEO, EVE, Mesh

from antecede.live.envelope import wrap
from antecede.live.events import PacketReceived, RepairReceived
from antecede.live.seals import Seals, chain_value
from antecede.live.transport.frames import Evidence, Frame
from antecede.protocols.flat import DependencyPacket, MessageBatch
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.vcube import Bundle

# Causes that were made up


def sealed(seq: int, content: bytes, previous: bytes = bytes(32)) -> bytes:
    """A payload of Eve."""
    return Seals(Macs(EVE), 4).seal(EVE, seq, [content], previous, in_one_packet=True)[0]


@pytest.mark.parametrize("protocol", ["vcube", "vcube-agg"])
def test_a_cause_that_its_author_has_not_sent_does_not_cut_off_the_relay(protocol: str) -> None:
    """Bo forwards Eve's message to Ana, on whose third message it depends: only she knows better."""
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
def test_a_cause_that_its_author_has_not_sent_does_not_cut_off_who_supplies_it(protocol: str) -> None:
    """Ana has Eve's second message only, and asks Bo for the first."""
    mesh = Mesh(signed=True, protocol=protocol)
    ana, bo = mesh.nodes[ANA].core, mesh.nodes[BO]
    message = DependencyPacket(sealed(1, wrap("a lie", False, {})), EVE, 1, {ANA: 1000})
    ana.step(RepairReceived(BO, ana.protocol.encode(message), 0, [(EVE, 1, 1)]))
    bo.core.broadcast("from Bo", 0)
    mesh.rounds()
    assert mesh.nodes[ANA].heard == ["from Bo"]


@pytest.mark.parametrize("in_what_is_signed", [False, True])
def test_a_message_that_came_before_its_cause_is_as_durable_as_that(
    tmp_path: Path, in_what_is_signed: bool
) -> None:
    """It is delivered after Ana's own message. If that one can still be lost, a replay would lack it."""
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
    assert [delivery.message.origin for delivery in ana.core.unacked] == [EVE]


# Equivocation


def said_in_batches(word: str, sizes: list[int]) -> list[bytes]:
    """Eve's packets, of so many messages each."""
    seals, previous, seq, packets = Seals(Macs(EVE), 4), bytes(32), 1, []
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
    """Eve says this to one member, and nothing more."""
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
def test_statements_that_overlap_are_proof_wherever_they_begin(to_ana: list[int], to_bo: list[int]) -> None:
    """Eve tells Ana one thing and Bo another, in batches of different sizes."""
    mesh = Mesh(signed=True)
    say(mesh, ANA, said_in_batches("yes", to_ana))
    say(mesh, BO, said_in_batches("no", to_bo))
    say(mesh, CLEO, [])
    mesh.rounds(10)
    assert_proven(mesh)


@pytest.mark.parametrize("first", [ANA, BO])
def test_much_else_does_not_displace_the_proof(first: int) -> None:
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
