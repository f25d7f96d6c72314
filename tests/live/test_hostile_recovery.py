"""Accepted messages can be replayed and proven, whatever others sent and whichever keys changed."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from core_group import Macs, Peer, roster
from live_groups import Ear, run, until
from stores import SOCKET
from test_liars import ANA, BO, EVE, Mesh

import antecede
from antecede.live.envelope import wrap
from antecede.live.events import Life, Opened
from antecede.live.seals import Seals, Statement
from antecede.live.security.keys import make_keys, new_secret, renew, revoke
from antecede.live.stability import Row
from antecede.live.transport.frames import Evidence, Greeting, Nack, Packets, Progress
from antecede.live.transport.links import Links
from antecede.live.transport.outbox import CHAIN_START, chain
from antecede.protocols.base import RemoteError
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.mbcp import Mbcp

# The log


def test_a_quota_does_not_apply_when_replaying_accepted_messages(tmp_path: Path) -> None:
    """Everything was delivered, which the replay learns only at its end."""

    async def test() -> None:
        common: Any = {"group": "room", "sync": False, "limit": 1 << 20, "own": False}
        bo: Any = {"me": "bo", "listen": ":0", "peers": ["ana"]}
        async with (
            antecede.join(**common, **bo, store=tmp_path / "bo") as second,
            antecede.join(**common, me="ana", peers=[f"bo@{second.address}"]) as first,
        ):
            ear = Ear(second)
            for number in range(45_000):
                await first.broadcast(number)
            await until(lambda: len(ear.messages) == 45_000)
            shutil.copytree(tmp_path / "bo", tmp_path / "killed", ignore=SOCKET)
            await ear.stop()
        async with antecede.join(**common, **bo, store=tmp_path / "killed") as second:
            assert second.delivered()["ana"] == 45_000

    run(test())


def test_an_undetected_equivocation_does_not_corrupt_the_store(tmp_path: Path) -> None:
    """Eve's statements evict those that would have revealed it; the replay does not have them."""
    ana = Peer(roster("mbcp", 3), 0, tmp_path, own=False, sync=False, signed=True)
    eve = Seals(Macs(2))

    def sealed(seq: int, body: str, previous: bytes) -> bytes:
        (payload,) = eve.seal(2, seq, [wrap(body, True, {})], previous, in_one_packet=True)
        return Mbcp.encode(DependencyPacket(payload, 2, seq, {}))

    def statement(seq: int) -> Statement:
        eve.seal(2, seq, [b""], bytes(32), in_one_packet=True)
        return eve.statements(2)[-1]

    link = Links(ana.core, Counter()).by_peer[2]
    one, two = sealed(1, "yes", bytes(32)), sealed(2, "after a first message that was no", b"x" * 32)
    link.receive(Packets(1, [one], CHAIN_START), 0.0, 0)
    for begin in range(1_000, 1_512, 64):  # more than are remembered
        link.receive(Evidence(2, [statement(begin + 2 * number) for number in range(32)]), 0.0, 0)
    link.receive(Packets(2, [two], chain(CHAIN_START, one)), 0.0, 0)
    ana.flush()
    ana.kill()
    ana.start()
    assert ana.core.received[2] == 2


def test_a_message_held_for_a_signed_cause_does_not_change_the_replay(
    tmp_path: Path,
) -> None:
    """The protocol delivers it, and Ana's later broadcasts name it as a cause; her application does not get
    it."""
    ana = Peer(roster("mbcp", 3), 0, tmp_path, own=False, sync=False, signed=True)
    (payload,) = Seals(Macs(2)).seal(2, 1, [wrap("a lie", False, {1: 1})], bytes(32), in_one_packet=True)
    link = Links(ana.core, Counter()).by_peer[2]
    packet = Mbcp.encode(DependencyPacket(payload, 2, 1, {}))
    link.receive(Packets(1, [packet], CHAIN_START), 0.0, 0)
    ana.flush()
    assert not ana.take(1)
    ana.broadcast("hello", 2)
    ana.flush()
    before = ana.core.outboxes[1].chain[1]
    ana.kill()
    ana.start()
    assert ana.core.outboxes[1].chain[1] == before


def test_statements_a_power_failure_may_undo_are_not_sent_as_evidence(tmp_path: Path) -> None:
    """Otherwise an honest member that signs another message in its place would count as a liar."""
    ana, bo = (Peer(roster("mbcp", 3), rank, tmp_path, own=False, sync=True, signed=True) for rank in (0, 1))
    ana.core.step(Opened("life", 0))
    ana.core.broadcast("one", 0)
    ana.flush()
    links = Links(ana.core, Counter())
    for peer, name in ((1, "m1"), (2, "m2")):
        life = [Life(name, 0)]
        greeting = Greeting(5, "test", "mbcp", [], name, "m0", life, [], 1, 0, CHAIN_START, True)
        links.by_peer[peer].open(greeting, 0.0)
    counts = {0: (1, b"a lie ..")}
    lie = Row(2, counts, Seals(Macs(2)).sign_progress(2, counts))
    links.by_peer[2].receive(Progress([lie]), 0.0, 0)
    ana.core.broadcast("two", 0)
    ana.take_ready(checkpoint=False)
    links.gossip(0, 0)
    shown = [frame for frame in links.by_peer[2].take_frames(0.0) if isinstance(frame, Evidence)]
    assert shown
    ana.kill(power=0)
    ana.start()
    ana.core.broadcast("another one", 0)
    ana.flush()
    at_bo = Links(bo.core, Counter()).by_peer[0]
    for frame in shown:
        at_bo.receive(frame, 0.0, 0)
    at_bo.receive(Packets(1, ana.core.outboxes[1].after(0, 1 << 20, 100), CHAIN_START), 0.0, 0)
    assert not bo.core.equivocators


# Keys that change


def test_restarts_with_a_shared_secret_do_not_fill_the_list_of_certificates(tmp_path: Path) -> None:
    """Each start issues a new one for the same key."""
    new_secret(tmp_path / "secret")
    common: Any = {"group": "room", "secret": tmp_path / "secret", "sync": False, "own": False}

    async def test() -> None:
        ana: Any = {"me": "ana", "listen": ":0", "peers": ["bo"], "store": tmp_path / "ana"}
        async with antecede.join(**common, **ana) as first:
            for number in range(4):
                bo: Any = {"me": "bo", "peers": [f"ana@{first.address}"], "store": tmp_path / "bo"}
                async with antecede.join(**common, **bo) as second:
                    await second.broadcast(number)
                    assert (await anext(first)).body == number
                    assert first._core.signatures is not None
                    assert len(first._core.signatures.certificates) == 2

    run(test())


def test_a_new_secret_does_not_separate_members_that_remember_the_old_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        new_secret(tmp_path / name)

    async def test() -> None:
        def ana(secret: str) -> Any:
            store = tmp_path / "ana"
            return antecede.join(
                "room", me="ana", listen=":0", peers=["bo"], store=store, secret=tmp_path / secret, own=False
            )

        def bo(secret: str, at: str | None) -> Any:
            store = tmp_path / "bo"
            return antecede.join("room", me="bo", peers=[f"ana@{at}"], store=store, secret=tmp_path / secret)

        async with ana("old") as first, bo("old", first.address) as second:
            await second.broadcast("one")
            assert (await anext(first)).body == "one"
        async with bo("old", "127.0.0.1:1") as second:
            await second.broadcast("two, while Ana is away")
        async with ana("new") as first, bo("new", first.address):
            ear = Ear(first)
            await until(lambda: "two, while Ana is away" in ear.bodies(), f"{ear.texts('refused')[-2:]}")

    run(test())


def test_messages_accepted_under_a_replaced_key_can_still_be_proven(tmp_path: Path) -> None:
    """A member's own certificate is in its log."""
    keys = tmp_path / "keys"
    make_keys(keys, "room", ["ana", "bo"], [], 1, {}, [])

    async def test() -> None:
        bo: Any = {"me": "bo", "keys": keys / "bo"}
        async with antecede.join("room", **bo, peers=["ana@127.0.0.1:1"], store=tmp_path / "bo") as second:
            await second.broadcast("accepted")
            shutil.copytree(tmp_path / "bo", tmp_path / "killed", ignore=SOCKET)
        revoke(keys, "bo")
        renew(keys, "bo", 1)
        async with (
            antecede.join("room", me="ana", listen=":0", peers=["bo"], keys=keys / "ana") as first,
            antecede.join("room", **bo, peers=[f"ana@{first.address}"], store=tmp_path / "killed"),
        ):
            ear = Ear(first)
            await until(lambda: ear.bodies() == ["accepted"])

    run(test())


def test_a_running_member_signs_with_its_renewed_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, "room", ["ana", "bo"], [], 1, {}, [])

    async def test() -> None:
        async with (
            antecede.join("room", me="ana", listen=":0", peers=["bo"], keys=keys / "ana") as first,
            antecede.join("room", me="bo", peers=[f"ana@{first.address}"], keys=keys / "bo") as second,
        ):
            before = cast("Any", second)._security.signing_certificate
            renew(keys, "bo", 1)
            await until(lambda: cast("Any", second)._security.signing_certificate != before)
            ear = Ear(first)
            await second.broadcast("by my new key")
            await until(lambda: ear.bodies() == ["by my new key"])

    run(test())


# Memory and time


def test_nacks_do_not_pile_up_for_a_partner_that_does_not_read() -> None:
    link = Mesh(signed=False).nodes[ANA].links.by_peer[EVE]
    link.take_frames(0.0)
    for _ in range(1_000):
        link.receive(Packets(1 << 60, [], b""), 0.0, 0)
    assert [type(frame) for frame in link.take_frames(0.0)] == [Nack]


def test_counts_that_wait_for_comparison_are_bounded() -> None:
    ana = Mesh(signed=False).nodes[ANA]
    for number in range(1_000):
        row = Row(EVE, {BO: ((1 << 40) + number, bytes(8))})
        ana.links.by_peer[EVE].receive(Progress([row]), 0.0, 0)
    assert len(ana.core.stability._pending[BO]) <= 8


def test_a_greeting_with_endless_lives_is_refused() -> None:
    mesh = Mesh(signed=False)
    greeting = mesh.nodes[EVE].greeter.compose(ANA)
    long = msgspec.structs.replace(greeting, lineage=[Life(f"{number}", 0) for number in range(33)])
    with pytest.raises(RemoteError, match="lists more than 32 lives"):
        mesh.nodes[ANA].greeter.check_resumable(EVE, long)
