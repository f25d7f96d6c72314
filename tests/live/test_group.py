"""What a live group promises to an application: real sockets, real loops, nothing pretended."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, Relay, run, same, together, until

import antecede
from antecede import causality
from antecede.errors import InputError
from antecede.live.group import Group
from antecede.live.messages import MessageId
from antecede.live.settings import FaultInjection
from antecede.protocols.base import LocalError
from antecede.protocols.catalog import PROTOCOLS

BODIES: list[Any] = [
    b"", b"\x00\xff" * 1000, "", "Grüße, 世界 🙂", "a\x00b", None, True, 0, -(2**70), 2**64, 0.1, [], {},
    {"nested": [1, 2.5, None, {"deeper": ["ß", False]}], "": ""},
]  # fmt: skip


def test_bodies_are_delivered_as_they_were_broadcast() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            for body in BODIES:
                await ana.broadcast(body)
            ear = Ear(bo)
            await ear.has(len(BODIES))
            assert [(type(body), body) for body in ear.bodies()] == [(type(body), body) for body in BODIES]
            assert [each.id for each in ear.messages] == [MessageId("ana", n + 1) for n in range(len(BODIES))]
            assert not any(each.redelivered for each in ear.messages)

    run(test())


@pytest.mark.parametrize("body", [{1, 2}.__iter__(), "\ud800", {"a": object()}])
def test_an_unsupported_body_is_refused_and_leaves_no_gap(body: Any) -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            with pytest.raises(InputError, match=r"^body"):
                await ana.broadcast(body)
            assert (await ana.broadcast("fine")).seq == 1
            assert (await anext(bo)).body == "fine"

    run(test())


@pytest.mark.parametrize(
    "body",
    ["a" * 9_000_000, b"a" * 9_000_000, "€" * 6_000_000, {"a": "€" * 6_000_000}, bytearray(17_000_000)],
)
def test_a_body_that_no_link_could_carry_is_refused(body: Any) -> None:
    """Whatever its type: once accepted, it would be sent and refused for ever and block everything after
    it."""

    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            with pytest.raises(InputError, match=r"^body: "):
                await ana.broadcast(body)
            await ana.broadcast("€" * 2_700_000)
            assert len((await anext(bo)).body) == 2_700_000

    run(test())


def test_a_reply_is_delivered_after_its_question_and_names_it_as_cause() -> None:
    async def test() -> None:
        async with together("ana", "bo", "cleo") as (ana, bo, cleo):
            ear = Ear(cleo)
            question = await ana.broadcast("shall we?")
            heard = await anext(bo)
            assert (heard.id, heard.origin, heard.seq, heard.causes) == (question, "ana", 1, ())
            await bo.broadcast("yes!")
            await bo.broadcast("at eight")
            await ear.has(3)
            assert [(str(each.id), [str(c) for c in each.causes]) for each in ear.messages] == [
                ("ana:1", []),
                ("bo:1", ["ana:1"]),
                ("bo:2", ["bo:1"]),
            ]
            assert cleo.delivered() == {"ana": 1, "bo": 2, "cleo": 0}

    run(test())


async def _conversation(
    groups: list[Group], count: int, seed: int
) -> dict[str, list[tuple[MessageId, tuple[MessageId, ...]]]]:
    """Every member broadcasts at random; returns the deliveries of each, in order."""
    seen: dict[str, list[tuple[MessageId, tuple[MessageId, ...]]]] = {group.me: [] for group in groups}
    chance = random.Random(seed)

    async def listen(group: Group) -> None:
        async for message in group:
            seen[group.me].append((message.id, message.causes))

    async def talk(group: Group) -> None:
        for _ in range(count):
            await asyncio.sleep(chance.random() / 50)
            await group.broadcast("a word")

    ears = [asyncio.create_task(listen(group)) for group in groups]
    await asyncio.gather(*map(talk, groups))
    await asyncio.gather(*(group.drain() for group in groups))
    await same(*groups)
    await until(lambda: all(len(mine) >= count * len(groups) for mine in seen.values()), "own messages")
    for ear in ears:
        ear.cancel()
    return seen


def _check(seen: dict[str, list[tuple[MessageId, tuple[MessageId, ...]]]], each: int) -> None:
    everything = {MessageId(name, number) for name in seen for number in range(1, each + 1)}
    for me, mine in seen.items():
        assert len(mine) == len(everything)
        there: set[MessageId] = set()
        for message, causes in mine:
            assert there.issuperset(causes), f"{me} has {message} before {set(causes) - there}"
            there.add(message)
        assert there == everything


LIVE = [name for name, kind in PROTOCOLS.items() if not kind.overlapping_groups]


@pytest.mark.parametrize("protocol", LIVE)
def test_random_conversations_are_causally_ordered_with_every_protocol(protocol: str) -> None:
    """Over links that are slow, break and lose frames, each message once, and never before its causes."""

    async def test() -> None:
        rough = FaultInjection(delay="0ms-30ms", cut_every="300ms", loss=0.02)
        async with together("ana", "bo", "cleo", "dan", protocol=protocol, faults=rough) as groups:
            _check(await _conversation(groups, 15, seed=1), 15)

    run(test())


def test_two_tasks_cannot_iterate() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            first = asyncio.create_task(anext(bo))
            await asyncio.sleep(0)
            with pytest.raises(LocalError, match="two tasks iterate"):
                await anext(bo)
            await ana.broadcast("to the first")
            assert (await first).body == "to the first"
            ear = Ear(bo)
            await until(lambda: ear.messages)
            with pytest.raises(LocalError, match="two tasks iterate"):
                await anext(bo)
            await ana.broadcast("to the loop, which goes on")
            await ear.has(2)

    run(test())


def test_a_cancelled_request_loses_nothing() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            heard = []
            for number in range(50):
                await ana.broadcast(number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.0005 * (number % 5)):
                        message = await anext(bo)
                        heard.append(message.body)
                        bo.ack(message)
            ear = Ear(bo)
            await ear.has(50 - len(heard))
            assert heard + ear.bodies() == list(range(50))

    run(test())


def test_drain_waits_for_every_member_and_accepts_nothing_more() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            await ana.broadcast("one")
            draining = asyncio.create_task(ana.drain())
            await until(lambda: ana.unstable_bytes and bo.connected)
            with pytest.raises(LocalError, match="draining"):
                await ana.broadcast("two")
            assert not draining.done()
            await anext(bo)
            await draining
            assert ana.unstable_bytes == 0

    run(test())


def test_a_member_reports_its_progress_when_it_leaves() -> None:
    """Otherwise they would wait for ever for its confirmation of their last messages."""

    async def leave(group: Group) -> None:
        ear = Ear(group)
        await group.broadcast("goodbye")
        await ear.has(1)
        await group.drain()
        await group.aclose()

    async def test() -> None:
        for _ in range(20):
            async with together("ana", "bo") as (ana, bo):
                await asyncio.gather(leave(ana), leave(bo))

    run(test())


def test_closing_ends_iteration_and_events() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            ear = Ear(ana)
            watcher = ana.events()
            await ana.aclose()
            await ana.aclose()
            assert [message async for message in ana] == []
            assert "store" not in [notice.kind async for notice in watcher]
            assert [notice async for notice in ana.events()] == []
            with pytest.raises(LocalError, match="closed"):
                await ana.broadcast("too late")
            with pytest.raises(LocalError, match="closed"):
                await ana.drain()
            assert ear.messages == []
            await until(lambda: not bo.connected)

    run(test())


def test_a_cut_connection_loses_and_duplicates_nothing() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            at_ana, at_bo = Ear(ana), Ear(bo)
            await until(lambda: ana.connected and bo.connected)
            for number in range(300):
                if number % 100 == 50:
                    bo.go_offline(0.1)
                await ana.broadcast(number)
                await bo.broadcast(number)
            await at_ana.has(300)
            await at_bo.has(300)
            assert at_ana.bodies() == at_bo.bodies() == list(range(300))
            assert at_ana.texts("lost")
            await until(lambda: at_ana.notices[-1].kind == "joined")

    run(test())


def test_waiting_names_the_missing_cause_its_holders_and_since_when(caplog: pytest.LogCaptureFixture) -> None:
    """Ana's message is under way between her and Cleo; Bo's answer to it has arrived."""
    caplog.set_level("INFO", "antecede.live")

    async def test() -> None:
        async with (
            antecede.join("room", me="cleo", listen=":0", peers=["ana", "bo"]) as cleo,
            Relay(str(cleo.address)) as relay,
            antecede.join("room", me="bo", listen=":0", peers=["ana", f"cleo@{cleo.address}"]) as bo,
            antecede.join("room", me="ana", peers=[f"bo@{bo.address}", f"cleo@{relay.address}"]) as ana,
        ):
            ear = Ear(cleo)
            await until(lambda: len(cleo.connected) == len(bo.connected) == 2)
            relay.stall()
            assert cleo.waiting() == []
            await ana.broadcast("shall we?")
            await anext(bo)
            await bo.broadcast("yes!")
            await until(cleo.waiting)
            (held,) = cleo.waiting()
            assert (held.id, held.cause) == (MessageId("bo", 1), MessageId("ana", 1))
            assert held.since == pytest.approx(time.time(), abs=10)
            await until(lambda: not cleo.waiting() or cleo.waiting()[0].holders == ("ana", "bo"))
            # Bo repairs Ana's message, since Ana cannot supply it.
            await ear.has(2)
            assert ear.bodies() == ["shall we?", "yes!"]
            assert cleo.waiting() == []
            assert "ana:1 to 1, asked of bo" in ear.texts("gap")
            assert ear.texts("recovered") == ["ana:1 from bo"]
            assert {each.member for each in ear.notices if each.kind in ("gap", "recovered")} == {"ana"}
            # The link recovers, and the repaired message is not delivered twice.
            relay.mend()
            await ana.broadcast("good")
            await ear.has(3)
            assert ear.bodies() == ["shall we?", "yes!", "good"]
            repaired = [record for record in caplog.records if "was missing" in record.message]
            assert [vars(each)["message_id"] for each in repaired] == ["ana:1"]
            about = [vars(repaired[0])[name] for name in ("group", "member", "peer")]
            assert about == ["room", "cleo", "bo"]

    run(test())


def test_a_lasting_cut_between_two_members_does_not_delay_the_messages_of_others() -> None:
    """Ana and Bo have no connection. What depends on their messages is not held until repair loses patience,
    which takes a second: there is nothing to wait for."""

    async def test() -> None:
        async with (
            antecede.join("room", me="cleo", listen=":0", peers=["ana", "bo"]) as cleo,
            antecede.join("room", me="bo", peers=["ana", f"cleo@{cleo.address}"]) as bo,
            antecede.join("room", me="ana", peers=["bo", f"cleo@{cleo.address}"]) as ana,
        ):
            at_ana, at_bo, at_cleo = (Ear(group) for group in (ana, bo, cleo))
            await until(lambda: len(cleo.connected) == 2)
            # Each round needs one repair at Ana and one at Bo, one after the other: with patience, a second.
            for number in range(20):
                await ana.broadcast(number)
                await until(lambda number=number: len(at_cleo.bodies("ana")) > number)  # type: ignore[misc]
                await cleo.broadcast(number)
                await until(lambda number=number: len(at_bo.bodies("cleo")) > number)  # type: ignore[misc]
                await bo.broadcast(number)
                await until(lambda number=number: len(at_ana.bodies("bo")) > number)  # type: ignore[misc]
            assert at_bo.bodies("ana") == at_ana.bodies("bo") == list(range(20))

    run(test())


def test_a_message_received_by_one_member_before_its_sender_died_reaches_all() -> None:
    async def test() -> None:
        async with (
            antecede.join("room", me="cleo", listen=":0", peers=["ana", "bo"]) as cleo,
            antecede.join("room", me="bo", listen=":0", peers=["ana", f"cleo@{cleo.address}"]) as bo,
        ):
            at_bo, at_cleo = Ear(bo), Ear(cleo)
            nowhere = "127.0.0.1:1"
            async with antecede.join("room", me="ana", peers=[f"bo@{bo.address}", f"cleo@{nowhere}"]) as ana:
                for number in range(20):
                    await ana.broadcast(number)
                await at_bo.has(20)
            await at_cleo.has(20)
            assert at_bo.bodies() == at_cleo.bodies() == list(range(20))
            assert len(at_cleo.texts("recovered")) == 20

    run(test())


@pytest.mark.parametrize("stored", [False, True])
def test_a_group_of_one_is_never_full(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        options: dict[str, Any] = {"store": tmp_path / "store"} if stored else {}
        async with antecede.join("room", me="ana", peers=[], limit=50, own=False, **options) as ana:
            await asyncio.gather(*[ana.broadcast(b"." * 100) for _ in range(5)])
            assert ana.delivered() == {"ana": 5}

    run(test())


def test_a_broadcast_just_before_leaving_is_sent() -> None:
    """Also without a store, and if there is no time between them and leaving."""

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            ear = Ear(ana)
            async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]) as bo:
                await until(lambda: ana.connected and bo.connected)
                for number in range(100):
                    await bo.broadcast(number)
            await ear.has(100)

    run(test())


def test_a_trace_does_not_hold_up_a_group_in_memory(tmp_path: Path) -> None:
    async def test() -> None:
        async with together("ana", "bo", trace=tmp_path / "trace") as (ana, bo):
            await until(lambda: ana.connected and bo.connected)
            message = await ana.broadcast("x")
            await until(lambda: bo._core.stability.received[0].base)
            assert bo._core.is_persisted(causality.MessageId(0, message.seq))
            assert (await anext(bo)).id == message

    run(test())


def test_at_the_limit_a_broadcast_waits_for_absent_members() -> None:
    async def test() -> None:
        async with together("ana", "bo", "cleo", limit=20_000) as (ana, bo, cleo):
            ears = [Ear(group) for group in (ana, bo, cleo)]
            await until(lambda: len(ana.connected) == 2)
            cleo.go_offline(3600.0)
            done = 0

            async def talk() -> None:
                nonlocal done
                for number in range(60):
                    await ana.broadcast(str(number) * 500)
                    done += 1

            talking = asyncio.create_task(talk())
            await until(lambda: ears[0].texts("full"), "full")
            (full,) = [each for each in ears[0].notices if each.kind == "full"]
            assert full.member == "cleo"
            assert "cleo lags" in full.text
            assert not cleo.connected
            assert 0 < done < 60
            with pytest.raises(TimeoutError):
                await ana.broadcast("never", timeout=0.05)
            assert ana.unstable_bytes < 25_000
            cleo.go_offline(0.0)  # it may come back
            await talking
            await until(lambda: ears[0].texts("room"), "room")
            await ears[1].has(60)
            await ears[2].has(60)
            assert ears[1].bodies() == ears[2].bodies() == [str(number) * 500 for number in range(60)]

    run(test())


def test_going_offline_ends_a_handshake_under_way() -> None:
    async def test() -> None:
        async with antecede.join("room", me="bo", listen=":0", peers=["ana"]) as bo:
            handshake = bo._connections._handshake
            accept = handshake.accept

            async def go_offline_meanwhile(*arguments: Any) -> int:
                peer: int = await accept(*arguments)
                handshake.accept = accept
                bo.go_offline(1.0)
                began.append(asyncio.get_running_loop().time())
                return peer

            began: list[float] = []
            handshake.accept = go_offline_meanwhile
            async with antecede.join("room", me="ana", peers=[f"bo@{bo.address}"]):
                await until(lambda: bo.connected)
                assert asyncio.get_running_loop().time() - began[0] >= 1.0

    run(test())


def test_a_member_that_does_not_consume_may_still_broadcast() -> None:
    """The limit is for what others lack: nobody else could make that room."""

    async def test() -> None:
        async with (
            antecede.join("room", me="bo", listen=":0", peers=["ana"], limit=10_000) as bo,
            antecede.join("room", me="ana", peers=[f"bo@{bo.address}"]) as ana,
        ):
            for number in range(30):
                await ana.broadcast(str(number) * 1000)
            await until(lambda: bo.unstable_bytes > 30_000)
            async with asyncio.timeout(5):
                await bo.broadcast("at last")

    run(test())


def test_replying_to_everything_is_not_blocked_by_undelivered_messages() -> None:
    """One loop listens and answers: it must not wait for room that only its own listening frees."""

    async def test() -> None:
        async with (
            antecede.join("room", me="cleo", listen=":0", peers=["ana", "bo"], limit=20_000) as cleo,
            antecede.join(
                "room", me="bo", listen=":0", peers=["ana", f"cleo@{cleo.address}"], limit=20_000
            ) as bo,
            antecede.join(
                "room", me="ana", limit=20_000, peers=[f"bo@{bo.address}", f"cleo@{cleo.address}"]
            ) as ana,
        ):
            for group in (bo, cleo):
                for _ in range(15):
                    await group.broadcast("x" * 1000)
            await until(lambda: ana.unstable_bytes > 30_000)
            answered = 0

            async def answer() -> None:
                nonlocal answered
                async for message in ana:
                    if not message.own:
                        await ana.broadcast("ok")
                        answered += 1

            answering, ears = asyncio.create_task(answer()), [Ear(bo), Ear(cleo)]
            for ear in ears:
                await ear.has(30 + 15)
            assert answered == 30
            answering.cancel()

    run(test())


def test_a_super_peer_a_phone_and_an_external_peer_exchange_messages() -> None:
    """The phone has no port: it dials its super peer by WebSocket, which relays everything both ways."""

    async def test() -> None:
        common: dict[str, Any] = {"protocol": "freescale"}
        async with (
            antecede.join(
                "room", me="sue", listen=":0", web=":0", peers=["phone behind sue", "eve"], **common
            ) as sue,
            antecede.join(
                "room", me="eve", peers=[f"sue@{sue.address}", "phone behind sue"], **common
            ) as eve,
            antecede.join(
                "room", me="phone", behind="sue", peers=[f"sue@{sue.web_address}", "eve"], **common
            ) as phone,
        ):
            assert str(sue.web_address).startswith("ws://127.0.0.1:")
            groups = [sue, eve, phone]
            await until(lambda: set(sue.connected) == {"phone", "eve"})
            await until(lambda: eve.connected == phone.connected == ("sue",))
            phone.go_offline(0.3)
            _check(await _conversation(groups, 20, seed=2), 20)

    run(test())
