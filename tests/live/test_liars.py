"""Lying members: forged, equivocating and unsolicited messages have no effect."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from core_group import LIVE, Macs
from live_groups import Ear, run, together, until

import antecede
from antecede.live.core import Core
from antecede.live.envelope import decode_body, unwrap, wrap
from antecede.live.events import Opened, PacketReceived
from antecede.live.ready import send_and_advance
from antecede.live.security.keys import new_secret
from antecede.live.settings import Roster, Settings
from antecede.live.stability import Row
from antecede.live.transport.frames import (
    Evidence,
    Frame,
    Packets,
    Progress,
    RepairReply,
    RepairRequest,
    decode,
    encode,
)
from antecede.live.transport.greeter import Greeter
from antecede.live.transport.links import Links
from antecede.live.validation import MAX_GAP
from antecede.protocols.base import RemoteError
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.flooding import FloodPacket
from antecede.protocols.mbcp import Mbcp

NAMES = ["ana", "bo", "cleo", "eve"]
ANA, BO, CLEO, EVE = range(4)


class Node:
    """A member without store and sockets."""

    def __init__(self, me: int, signed: bool, protocol: str) -> None:
        others = [name for name in NAMES if name != NAMES[me]]
        self.settings = Settings.create(group="room", me=NAMES[me], peers=others, protocol=protocol)
        roster: Roster = self.settings.roster()
        signatures = Macs(me) if signed else None
        self.core = Core(roster.create_protocol(NAMES[me]), durable=False, signatures=signatures)
        self.core.step(Opened(NAMES[me], 0))
        self.core.stability.max_undelivered = 100_000
        self.links = Links(self.core, Counter())
        self.greeter = Greeter(self.settings, roster, self.core)
        self.heard: list[Any] = []

    def flush(self) -> None:
        send_and_advance(self.core, self.core.ready())

    def listen(self) -> None:
        while (delivery := self.core.next_delivery(0, acks=True)) is not None:
            self.heard.append(decode_body(unwrap(delivery.payload)))


class Mesh:
    """All of them, connected to each other; frames are carried one round at a time."""

    def __init__(self, signed: bool, protocol: str = "mbcp") -> None:
        self.nodes = [Node(me, signed, protocol) for me in range(4)]
        self.now = 0.0
        self.cut: set[tuple[int, int]] = set()
        for one in self.nodes:
            for peer in one.core.partners:
                if one.core.me < peer:
                    self.connect(one.core.me, peer)

    def connect(self, one: int, other: int) -> None:
        first, second = self.nodes[one], self.nodes[other]
        greetings = first.greeter.compose(other), second.greeter.compose(one)
        for node, peer, greeting in ((first, other, greetings[1]), (second, one, greetings[0])):
            node.greeter.find_partner(greeting, peer)
            node.greeter.check_resumable(peer, greeting)
            node.greeter.accept(peer, greeting, 0)
            node.links.by_peer[peer].open(greeting, self.now)

    def rounds(self, count: int = 6) -> None:
        for _ in range(count):
            self.now += 0.2
            for node in self.nodes:
                node.flush()
                node.listen()
                node.links.gossip(int(self.now * 1e9), 0)
                for peer, link in node.links.by_peer.items():
                    if link.is_open and (node.core.me, peer) not in self.cut:
                        for frame in link.take_frames(self.now):
                            self.carry(node.core.me, peer, frame)

    def carry(self, source: int, to: int, frame: Frame) -> None:
        link = self.nodes[to].links.by_peer[source]
        try:
            link.receive(decode(encode(frame)), self.now, int(self.now * 1e9))
        except RemoteError:
            link.close()
            self.nodes[source].links.by_peer[to].close()


@pytest.fixture(params=[False, True], ids=["unsigned", "signed"])
def mesh(request: pytest.FixtureRequest) -> Mesh:
    return Mesh(request.param)


def forged(origin: int, seq: int, body: str) -> bytes:
    return Mbcp.encode(DependencyPacket(wrap(body, False, {}), origin, seq, {}))


def test_honest_members_accept_each_other_s_messages(mesh: Mesh) -> None:
    for node in mesh.nodes:
        for word in "one", "two", "three":
            node.core.broadcast(word, 0)
    mesh.rounds()
    assert [len(node.heard) for node in mesh.nodes] == [9, 9, 9, 9]
    assert [node.core.stability.unstable_bytes for node in mesh.nodes] == [0, 0, 0, 0]


def test_a_message_in_anothers_name_is_refused(mesh: Mesh) -> None:
    """By Eve, who is a member, on her own link."""
    ana = mesh.nodes[ANA]
    number = ana.core.received[EVE] + 1
    with pytest.raises(RemoteError, match="it sends a message of member 1 as its own"):
        ana.core.step(PacketReceived(EVE, number, forged(BO, 1, "I resign"), 0))
    mesh.rounds()
    assert ana.heard == []


def test_an_unsolicited_repair_is_refused(mesh: Mesh) -> None:
    link = mesh.nodes[ANA].links.by_peer[EVE]
    with pytest.raises(RemoteError, match="a repair that nobody has asked for"):
        link.receive(RepairReply(1, [forged(BO, 1, "I resign")]), 0.0, 0)


def test_a_repair_of_messages_not_requested_is_refused(mesh: Mesh) -> None:
    link = mesh.nodes[ANA].links.by_peer[EVE]
    link.ask([(BO, 1, 5)])
    with pytest.raises(RemoteError, match="messages that nobody has asked it for"):
        link.receive(RepairReply(1, [forged(CLEO, 1, "I resign")]), 0.0, 0)


def test_a_forged_repair_is_refused_where_messages_are_signed() -> None:
    mesh = Mesh(signed=True)
    link = mesh.nodes[ANA].links.by_peer[EVE]
    for attempt, payload in enumerate((b"", b"\0", wrap("I resign", False, {}), bytes(200) + b"\1"), 1):
        link.ask([(BO, 1, 5)])
        packet = Mbcp.encode(DependencyPacket(payload, BO, 1, {}))
        with pytest.raises(RemoteError, match="messages of member 1 with"):
            link.receive(RepairReply(attempt, [packet]), 0.0, 0)
    mesh.rounds()
    assert mesh.nodes[ANA].heard == []


def test_a_repair_with_altered_causes_does_not_change_the_order() -> None:
    """Bo answers Ana. Eve, who supplies his answer to Cleo, omits its cause."""
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
    assert answer.causes == {ANA: 1}
    cleo.links.by_peer[EVE].ask([(BO, 1, 1)])
    altered = Mbcp.encode(DependencyPacket(answer.payload, BO, 1, {}))
    cleo.links.by_peer[EVE].receive(RepairReply(1, [altered]), 0.0, 0)
    cleo.listen()
    assert cleo.heard == []
    mesh.cut.clear()
    mesh.rounds(10)
    assert cleo.heard == ["a question", "the answer"]


def test_a_relayed_message_is_proven_by_its_origin() -> None:
    """In forwarding protocols the neighbour need not be the author."""
    mesh = Mesh(signed=True, protocol="flooding")
    mesh.nodes[BO].core.broadcast("from me", 0)
    mesh.rounds(8)
    assert [node.heard for node in mesh.nodes] == [["from me"], [], ["from me"], ["from me"]]
    ana = mesh.nodes[ANA].core
    peer = ana.partners[-1]
    packet = ana.protocol.encode(FloodPacket(wrap("I resign", False, {}), 3 - peer, 1))
    with pytest.raises(RemoteError, match="without its signature"):
        ana.step(PacketReceived(peer, ana.received[peer] + 1, packet, 0))


@pytest.mark.parametrize("signed", [False, True])
def test_a_false_report_of_another_s_progress_does_not_release_messages(signed: bool) -> None:
    mesh = Mesh(signed)
    mesh.cut = {(ANA, BO), (BO, CLEO), (BO, EVE), (BO, ANA)}
    ana = mesh.nodes[ANA]
    for number in range(600):
        ana.core.broadcast(number, 0)
    mesh.rounds()
    value = ana.core.stability.history[ANA][600][:8]
    lie = Progress([Row(BO, {ANA: (600, value)}, bytes(64))])
    with contextlib.suppress(RemoteError):
        ana.links.by_peer[EVE].receive(lie, 0.0, 0)
    assert ana.core.stability.stable[ANA] == 0
    assert len(ana.core.outboxes[BO].packets) > 0
    mesh.cut.clear()
    mesh.rounds(30)
    assert mesh.nodes[BO].heard == list(range(600))


def test_counts_pass_through_others_if_their_member_has_signed_them() -> None:
    """Ana and Bo cannot reach each other for good, and yet learn what the other has."""
    mesh = Mesh(signed=True)
    mesh.cut = {(ANA, BO), (BO, ANA)}
    mesh.nodes[ANA].core.broadcast("to all", 0)
    mesh.rounds(30)
    assert mesh.nodes[BO].heard == ["to all"]
    assert mesh.nodes[ANA].core.stability.unstable_bytes == 0


def test_equivocation_is_proven_to_all_and_its_author_refused() -> None:
    """Eve tells Ana one thing and Bo another, under the same id."""
    mesh, twin = Mesh(signed=True), Mesh(signed=True).nodes[EVE]
    eve = mesh.nodes[EVE]
    eve.core.broadcast("yes", 0)
    twin.core.broadcast("no", 0)
    for node in (eve, twin):
        node.flush()
    eve.core.outboxes[BO] = twin.core.outboxes[BO]
    eve.links.by_peer[BO]._box = twin.core.outboxes[BO]
    mesh.rounds(10)
    assert (mesh.nodes[ANA].heard, mesh.nodes[BO].heard) == (["yes"], ["no"])
    for honest in (ANA, BO, CLEO):
        node = mesh.nodes[honest]
        assert list(node.core.equivocators) == [EVE]
        assert not node.links.by_peer[EVE].is_open
        with pytest.raises(
            RemoteError, match="eve has signed different messages under the same ids, from eve:1"
        ):
            node.greeter.find_partner(eve.greeter.compose(honest), EVE)
    mesh.nodes[ANA].core.broadcast("let us go on", 0)
    mesh.rounds(10)
    assert [mesh.nodes[honest].heard[-1] for honest in (BO, CLEO)] == ["let us go on"] * 2


def test_evidence_cannot_be_faked() -> None:
    mesh = Mesh(signed=True)
    for node in mesh.nodes:
        node.core.broadcast("true", 0)
    mesh.rounds()
    seals = mesh.nodes[ANA].core.seals
    assert seals is not None
    (statement,) = seals.statements(BO)
    fake = type(statement)(statement.first, statement.last, statement.previous, bytes(32), bytes(64))
    with pytest.raises(RemoteError, match="a signature that is not its own"):
        mesh.nodes[ANA].links.by_peer[EVE].receive(Evidence(BO, [statement, fake]), 0.0, 0)
    assert mesh.nodes[ANA].core.equivocators == {}


# Exhaustion


def requests(*spans: Sequence[int]) -> RepairRequest:
    return RepairRequest(1, [tuple(span) for span in spans])  # type: ignore[misc]


def test_unread_repair_replies_do_not_pile_up(mesh: Mesh) -> None:
    ana = mesh.nodes[ANA]
    for number in range(100):
        ana.core.broadcast(f"{number}" * 1000, 0)
    ana.flush()
    link = ana.links.by_peer[EVE]
    link.take_frames(0.0)
    for _ in range(1_000):
        link.receive(requests((ANA, 1, 100)), 0.0, 0)
    replies = [frame for _ in range(10) for frame in link.take_frames(1.0) if isinstance(frame, RepairReply)]
    assert len(replies) == 1


@pytest.mark.parametrize(
    "request_",
    [requests(*[(0, 1, 1)] * 100_000), requests((0, 1, 1 << 40)), requests(*[(0, 1, 9_000)] * 4)],
)
def test_requests_that_cost_much_are_refused(mesh: Mesh, request_: RepairRequest) -> None:
    with pytest.raises(RemoteError, match="it asks for more than"):
        mesh.nodes[ANA].links.by_peer[EVE].receive(request_, 0.0, 0)


def test_numbers_far_behind_a_gap_are_refused(mesh: Mesh) -> None:
    ana = mesh.nodes[ANA].core
    with pytest.raises(RemoteError, match="cannot exist"):
        ana.step(PacketReceived(EVE, ana.received[EVE] + 1, forged(EVE, MAX_GAP + 1, "far"), 0))


def test_a_frame_of_too_many_packets_is_refused(mesh: Mesh) -> None:
    with pytest.raises(RemoteError, match="at most"):
        mesh.nodes[ANA].links.by_peer[EVE].receive(Packets(1, [b""] * 5_000, bytes(16)), 0.0, 0)


def test_messages_on_a_cause_that_never_arrives_block_only_their_sender() -> None:
    mesh = Mesh(signed=False)
    ana, bo = mesh.nodes[ANA].core, mesh.nodes[BO]
    with pytest.raises(RemoteError, match="bytes of member 3 are not delivered yet"):
        for seq in range(1, 1_000):
            packet = DependencyPacket(wrap("x" * 1_000, False, None), EVE, seq, {CLEO: 1_000_000})
            ana.step(PacketReceived(EVE, ana.received[EVE] + 1, Mbcp.encode(packet), 0))
    assert ana.stability.undelivered_bytes < 200_000
    bo.core.broadcast("still here", 0)
    mesh.rounds()
    assert mesh.nodes[ANA].heard == ["still here"]


# With real keys


@pytest.mark.parametrize("protocol", [each for each in LIVE if each != "hierarchy"])
def test_every_protocol_signs(protocol: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    new_secret(secret)

    async def test() -> None:
        async with together("ana", "bo", "cleo", "dan", protocol=protocol, secret=secret) as groups:
            ears = [Ear(group) for group in groups]
            for group in groups:
                await group.broadcast(f"I am {group.me}")
            for ear in ears:
                await ear.has(3)
            await until(lambda: all(group.unstable_bytes == 0 for group in groups), "stable")
            assert all(group._core.seals is not None for group in groups)

    run(test())


def test_members_that_do_not_all_sign_refuse_each_other(tmp_path: Path) -> None:
    new_secret(tmp_path / "secret")
    common: Any = {"group": "room", "secret": tmp_path / "secret"}

    async def test() -> None:
        async with (
            antecede.join(**common, me="ana", listen=":0", peers=["bo"], sign=False) as ana,
            antecede.join(**common, me="bo", peers=[f"ana@{ana.address}"]) as bo,
        ):
            at_ana, at_bo = Ear(ana), Ear(bo)
            text = "it requires that messages are signed, and ana does not sign: set `sign` alike"
            await until(lambda: text in at_ana.texts("refused"))
            await until(lambda: any(text in each for each in at_bo.texts("refused")))

    run(test())


def test_a_message_can_be_proven_after_a_restart_without_its_author(tmp_path: Path) -> None:
    """Certificates are in the store: Cleo can prove what Ana said though Ana is gone."""
    new_secret(tmp_path / "secret")
    common: Any = {"group": "room", "secret": tmp_path / "secret", "own": False}

    async def test() -> None:
        cleo: Any = {"me": "cleo", "listen": ":0", "store": tmp_path / "cleo.db"}
        async with antecede.join(**common, **cleo, peers=["ana", "bo"]) as first:
            ear = Ear(first)
            async with antecede.join(**common, me="ana", peers=["bo", f"cleo@{first.address}"]) as ana:
                await ana.broadcast("my last words")
                await ear.has(1)
                await ear.stop()
        async with (
            antecede.join(**common, **cleo, peers=["ana", "bo"]) as first,
            antecede.join(**common, me="bo", peers=["ana", f"cleo@{first.address}"]) as bo,
        ):
            assert (await anext(bo)).body == "my last words"

    run(test())
