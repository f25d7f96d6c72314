"""What one member can make another hold, verify, send and repeat is bounded and affects no third member."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from core_group import Macs, Peer, roster
from live_groups import Ear, run, until
from test_liars import ANA, BO, CLEO, EVE, Mesh

import antecede
from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.live.envelope import wrap
from antecede.live.events import PacketReceived
from antecede.live.operations.metrics import health
from antecede.live.seals import Seals
from antecede.live.stability import Row
from antecede.live.transport.frames import (
    Evidence,
    Frame,
    Heartbeat,
    Nack,
    Packets,
    Progress,
    RepairReply,
    decode,
    encode,
)
from antecede.live.transport.outbox import CHAIN_START, chain
from antecede.protocols.base import RemoteError, Waiting
from antecede.protocols.flat import DependencyPacket, MessageBatch
from antecede.protocols.freescale.packets import ExternalPacket, InternalAck
from antecede.protocols.mbcp import Mbcp


def steps(action: Callable[[], object]) -> int:
    """How many lines of Python something executes: what it costs, whatever else the machine does."""
    lines, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


# Held messages


@pytest.mark.parametrize("protocol", ["mbcp", "timestamp", "timestamp-diff", "depseq"])
def test_a_frame_costs_the_same_however_much_is_held(protocol: str) -> None:
    """Eve's messages depend on one of Cleo's that never arrives; then Eve and Cleo leave."""
    costs = []
    for count in (10, 500):
        mesh = Mesh(signed=False, protocol=protocol)
        ana, eve = mesh.nodes[ANA], mesh.nodes[EVE]
        mesh.cut = {(CLEO, ANA), (EVE, CLEO), (EVE, BO), (BO, ANA), (ANA, EVE)}
        mesh.nodes[CLEO].core.broadcast("for Eve only", 0)
        mesh.rounds(2)
        for number in range(count):
            eve.core.broadcast(number, 0)
            eve.flush()
        mesh.rounds(2)
        assert len(ana.core.protocol.waiting()) == ana.core.count_held() == count
        for gone in (EVE, CLEO):
            ana.links.by_peer[gone].close()
        link = ana.links.by_peer[BO]

        def hear(mesh: Mesh = mesh, link: Any = link) -> None:
            now = int(mesh.now * 1e9) + 10**9
            link.receive(Heartbeat(), mesh.now, now)
            assert mesh.nodes[ANA].links.ask_for_held(link, now) == [(CLEO, 1, 1)]

        costs.append(steps(hear))
    assert costs[0] == costs[1]


def test_a_packet_without_messages_costs_the_same_however_much_is_held(tmp_path: Path) -> None:
    """At a super peer with a store: a phone reports, while messages of a server wait for another server."""
    costs = []
    for count in (10, 500):
        relay = Peer(roster("freescale", 4, layout=4), 0, tmp_path / f"{count}", False, False, False)
        for seq in range(1, count + 1):
            numbers = seq, seq, 0, seq - 1
            packet = ExternalPacket(b"", 2, *numbers, {3: 1_000_000}, {}, OffsetBitmap())
            relay.core.step(PacketReceived(2, seq, relay.core.protocol.encode(packet), 0))
        assert len(relay.core.protocol.waiting()) == count
        report = PacketReceived(1, 1, relay.core.protocol.encode(InternalAck(0, 0, OffsetBitmap())), 0)
        costs.append(steps(lambda relay=relay, report=report: relay.core.step(report)))  # type: ignore[misc]
    assert costs[0] == costs[1]


def test_messages_held_for_signed_causes_are_reported_and_repaired() -> None:
    """Bo answers Ana. Eve, who supplies his answer to Cleo, omits its cause; Ana is gone."""
    mesh = Mesh(signed=True)
    mesh.cut = {(ANA, CLEO), (BO, CLEO), (EVE, CLEO)}
    mesh.nodes[ANA].core.broadcast("a question", 0)
    mesh.rounds(2)
    mesh.nodes[BO].core.broadcast("the answer", 0)
    mesh.rounds(2)
    cleo = mesh.nodes[CLEO]
    (packet,) = mesh.nodes[EVE].core.repair.reply([(BO, 1, 1)])
    answer = Mbcp.decode(packet)
    assert isinstance(answer, DependencyPacket)
    cleo.links.by_peer[EVE].ask([(BO, 1, 1)])
    altered = Mbcp.encode(DependencyPacket(answer.payload, BO, 1, {}))
    cleo.links.by_peer[EVE].receive(RepairReply(1, [altered]), 0.0, 0)
    cleo.listen()
    assert cleo.core.waiting() == [Waiting(MessageId(BO, 1), MessageId(ANA, 1))]
    assert cleo.core.count_held() == 1
    cleo.links.by_peer[ANA].close()
    assert cleo.links.ask_for_held(cleo.links.by_peer[BO], 10**9) == [(ANA, 1, 1)]


# Quotas


def carry(mesh: Mesh, source: int, to: int) -> list[Frame]:
    """Frames from one to the other arrive; errors are not caught."""
    frames = mesh.nodes[source].links.by_peer[to].take_frames(mesh.now)
    for frame in frames:
        mesh.nodes[to].links.by_peer[source].receive(decode(encode(frame)), mesh.now, int(mesh.now * 1e9))
    return frames


def test_a_sender_with_a_greater_limit_than_the_receiver_is_paused_and_not_cut_off() -> None:
    """Bo broadcasts more than Ana has room for while her application is busy."""
    mesh = Mesh(signed=False)
    ana, bo = mesh.nodes[ANA], mesh.nodes[BO]
    for number in range(500):
        bo.core.broadcast(f"{number:1000}", 0)
        bo.flush()
    kinds: list[type] = []
    for _ in range(50):
        mesh.now += 1.0
        bo.links.gossip(int(mesh.now * 1e9), 0)
        kinds += [type(frame) for frame in carry(mesh, BO, ANA)]
        carry(mesh, ANA, BO)
    assert ana.core.stability.undelivered_bytes < 250_000
    assert kinds.count(Packets) < 10, "he does not repeat what she does not take"
    ana.listen()
    mesh.rounds(30)
    assert [int(body) for body in ana.heard] == list(range(500))
    assert all(link.is_open for node in mesh.nodes for link in node.links.by_peer.values())


def test_a_paused_member_can_still_supply_the_missing_causes() -> None:
    """Eve answers a message of Cleo, at length; Ana hears nothing of Cleo."""
    mesh = Mesh(signed=False)
    mesh.cut = {(CLEO, ANA), (BO, ANA)}
    mesh.nodes[CLEO].core.broadcast("a question", 0)
    mesh.nodes[CLEO].flush()
    carry(mesh, CLEO, EVE)
    ana, eve = mesh.nodes[ANA], mesh.nodes[EVE]
    eve.listen()
    for number in range(200):
        eve.core.broadcast(f"{number:1000}", 0)
        eve.flush()
    while carry(mesh, EVE, ANA):
        carry(mesh, ANA, EVE)
    ana.listen()
    assert (ana.heard, ana.links.by_peer[EVE].full_of) == ([], EVE)
    mesh.rounds(30)
    assert ana.heard[0] == "a question"
    assert [int(body) for body in ana.heard[1:]] == list(range(200))


def test_packets_beyond_a_pause_are_dropped() -> None:
    mesh = Mesh(signed=False)
    link, core = mesh.nodes[ANA].links.by_peer[EVE], mesh.nodes[ANA].core
    waits = [
        Mbcp.encode(DependencyPacket(wrap("x" * 1_000, False, None), EVE, seq, {CLEO: 1_000_000}))
        for seq in range(1, 1_001)
    ]
    value = CHAIN_START
    for number, packet in enumerate(waits, 1):
        link.receive(Packets(number, [packet], value), 0.0, 0)
        value = chain(value, packet)
    assert core.stability.undelivered_bytes < 200_000
    assert Nack not in [type(frame) for frame in link.take_frames(0.0)]
    mesh.nodes[BO].core.broadcast("still here", 0)
    mesh.rounds()
    assert mesh.nodes[ANA].heard == ["still here"]


def test_repaired_messages_count_against_the_quota_but_gaps_are_filled() -> None:
    """Eve is gone; Bo supplies her messages, which are held for ever: all but the first."""
    mesh = Mesh(signed=False)
    ana = mesh.nodes[ANA]
    core, link = ana.core, ana.links.by_peer[BO]
    ana.links.by_peer[EVE].close()

    def supply(seq: int) -> None:
        packet = DependencyPacket(wrap("x" * 1_000, False, None), EVE, seq, {CLEO: 1_000_000})
        link.ask([(EVE, seq, seq)])
        link.receive(RepairReply(link._last_request, [Mbcp.encode(packet)]), 0.0, 0)

    for seq in range(2, 1_000):
        supply(seq)
    waiting = core.stability.undelivered_bytes
    assert 100_000 < waiting < 102_000
    supply(1)
    assert core.stability.undelivered_bytes > waiting
    assert core.stability.received[EVE].base > 80
    for seq in range(core.stability.received[EVE].base + 1, 1_000):
        supply(seq)
    assert core.stability.undelivered_bytes < 104_000


def test_a_paused_member_is_a_problem_until_its_messages_are_delivered() -> None:
    """Over real sockets: Bo's application sleeps, and Ana may have more under way than Bo has room for."""

    async def test() -> None:
        async with (
            antecede.join("room", me="bo", listen=":0", peers=["ana"], limit=1 << 20, own=False) as bo,
            antecede.join("room", me="ana", peers=[f"bo@{bo.address}"], own=False) as ana,
        ):
            ear = Ear(bo, listens=False)
            for _ in range(600):
                await ana.broadcast("x" * 10_000)
            await until(bo.problems)
            (problem,) = bo.problems()
            assert (problem.kind, problem.member) == ("paused", "ana")
            assert "bytes of ana wait here" in problem.text
            for _ in range(600):
                await anext(bo)
            await until(lambda: not bo.problems())
            assert not ear.texts("refused")
            assert not ear.texts("lost")

    run(test())


def test_metrics_cost_the_same_however_many_messages_are_held() -> None:
    """Over real sockets: Eve's messages wait for Cleo, who has never been there."""

    async def test() -> None:
        names = ["bo", "cleo", "eve"]
        costs = []
        for batches in (2, 20):
            async with (
                antecede.join("room", me="ana", listen=":0", peers=names, own=False) as ana,
                antecede.join("room", me="eve", peers=[f"ana@{ana.address}", "bo", "cleo"], own=False) as eve,
            ):
                for number in range(batches):
                    batch = MessageBatch(
                        [b""] * 1_024, EVE, 1_024 * number + 1, {CLEO: 1} if not number else {}
                    )
                    eve._core.outboxes[ANA].extend(number + 1, [Mbcp.encode(batch)])
                eve._connections.wake()
                await until(lambda: ana.held == 1_024 * batches)  # noqa: B023
                assert ana._inspection.held_seconds() < 60
                costs.append(steps(lambda: health(ana)) + steps(ana._inspection.held_seconds))
        assert costs[0] == costs[1]

    run(test())


# Evidence


def test_evidence_without_end_is_not_verified() -> None:
    """Eve signs as many statements as she likes; none contradicts another, and each has to be verified."""
    ana, seals = Mesh(signed=True).nodes[ANA], Seals(Macs(EVE))
    verified = 0

    class CountingMacs(Macs):
        def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
            nonlocal verified
            verified += 1
            return super().signer(member, statement, signature)

    assert ana.core.seals is not None
    ana.core.seals._signatures = CountingMacs(ANA)
    for number in range(200):
        for seq in range(64 * number, 64 * number + 64, 2):
            seals.seal(EVE, seq + 10, [b""], bytes(32), in_one_packet=True)
        ana.links.by_peer[EVE].receive(Evidence(EVE, seals.statements(EVE)[-32:]), 1.0, 0)
    assert 0 < verified <= 512
    ana.links.by_peer[EVE].receive(Evidence(EVE, seals.statements(EVE)[-32:]), 60.0, 0)
    assert 512 < verified <= 544
    with pytest.raises(RemoteError, match="256 statements; 32 at most"):
        ana.links.by_peer[EVE].receive(Evidence(EVE, seals.statements(EVE)), 120.0, 0)


def test_a_false_progress_report_is_answered_only_to_its_sender() -> None:
    """Eve repeatedly reports chain values that no other member has."""
    mesh = Mesh(signed=True)
    for number in range(300):
        for member in (ANA, BO, CLEO):
            mesh.nodes[member].core.broadcast(number, 0)
            mesh.nodes[member].flush()
    mesh.cut = {(EVE, ANA), (EVE, BO), (EVE, CLEO)}
    mesh.rounds(4)
    links = mesh.nodes[ANA].links
    for link in links.by_peer.values():
        link.take_frames(mesh.now)
    received, sent = 0, dict.fromkeys(links.by_peer, 0)
    for count in range(1, 51):
        counts = dict.fromkeys((ANA, BO, CLEO), (count, b"not so ."))
        lie = Progress([Row(EVE, counts, Seals(Macs(EVE)).sign_progress(EVE, counts))])
        received += len(encode(lie))
        links.by_peer[EVE].receive(lie, mesh.now, 0)
        links.gossip(0, 10**18)
        for peer, link in links.by_peer.items():
            shown = [frame for frame in link.take_frames(mesh.now) if isinstance(frame, Evidence)]
            sent[peer] += sum(len(encode(frame)) for frame in shown)
    assert sent[BO] == sent[CLEO] == 0
    assert 0 < sent[EVE] < 10 * received


def test_a_proof_is_sent_once_on_each_connection() -> None:
    mesh = Mesh(signed=True)
    ana = mesh.nodes[ANA]
    statements = []
    for word in (b"yes", b"no"):
        seals = Seals(Macs(EVE))
        seals.seal(EVE, 1, [word], bytes(32), in_one_packet=True)
        statements += seals.statements(EVE)
    ana.links.by_peer[EVE].receive(Evidence(EVE, statements), 0.0, 0)
    assert list(ana.core.equivocators) == [EVE]
    for _ in range(2):
        mesh.connect(ANA, BO)
        proofs: list[Frame] = []
        for _ in range(10):
            ana.links.gossip(0, 10**18)
            proofs += [f for f in ana.links.by_peer[BO].take_frames(0.0) if isinstance(f, Evidence)]
        assert proofs == [Evidence(EVE, statements)]
