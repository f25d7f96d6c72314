"""Who is refused and why, as reported on both sides; strangers on the port cannot do anything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from typing import Any

import pytest
from live_groups import Ear, run, together, until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import antecede
from antecede.live.events import Life
from antecede.live.group import Group
from antecede.live.transport.frames import (
    MAX_BYTES,
    Greeting,
    Packets,
    Refusal,
    add_lengths,
    decode,
    encode,
    read_length,
)


def greeting(**changes: Any) -> Greeting:
    """Bo's greeting to Ana."""
    said: dict[str, Any] = {
        "version": 5,
        "group": "room",
        "protocol": "mbcp",
        "members": ["ana", "bo"],
        "me": "bo",
        "you": "ana",
        "lineage": [Life("0123456789abcdef", 0)],
        "known": [],
        "attempt": 1,
        "received": 0,
        "chain": bytes(16),
    }
    return Greeting(**{**said, **changes})


async def called(group: Group) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = str(group.address).rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def answer(reader: asyncio.StreamReader) -> Any:
    async with asyncio.timeout(10):
        return decode(await reader.readexactly(read_length(await reader.readexactly(4))))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"group": "hall"}, "it is of group 'hall', ana of 'room': set `group` alike"),
        ({"protocol": "timestamp"}, "it uses protocol timestamp, ana uses mbcp: set `protocol` alike"),
        (
            {"peers": ["cleo"]},
            "it lists other members: cleo there, nobody else at ana; list the same at both",
        ),
    ],
)
def test_a_mismatched_member_is_refused_and_both_sides_log_the_reason(
    changes: dict[str, Any], reason: str
) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            at_ana = Ear(ana)
            more = changes.get("peers", [])
            settings = {"group": "room", **changes, "peers": [f"ana@{ana.address}", *more]}
            async with antecede.join(me="bo", **settings) as bo:
                at_bo = Ear(bo)
                await until(lambda: at_ana.texts("refused") and at_bo.texts("refused"))
                assert at_ana.texts("refused")[0] == reason
                assert at_bo.texts("refused")[0] == f"ana refuses bo: {reason}"
                assert [each.member for each in at_bo.notices] == ["ana"] * len(at_bo.notices)
                assert at_ana.notices[0].member == "bo"
                assert not ana.connected
                assert not bo.connected

    run(test())


def test_calling_the_wrong_member_is_refused() -> None:
    """Ana believes that Bo is where Cleo is."""

    async def test() -> None:
        async with antecede.join("room", me="cleo", listen=":0", peers=["ana", "bo"]) as cleo:
            at_cleo = Ear(cleo)
            async with antecede.join("room", me="ana", peers=[f"bo@{cleo.address}", "cleo"]) as ana:
                at_ana = Ear(ana)
                await until(lambda: at_ana.texts("refused") and at_cleo.texts("refused"))
                assert at_cleo.texts("refused")[0] == "it calls bo, this is cleo"
                assert at_ana.texts("refused")[0] == "bo refuses ana: it calls bo, this is cleo"

    run(test())


def test_a_member_without_its_former_store_is_refused() -> None:
    """Without a store a member that was restarted knows nothing of what it had confirmed."""

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            at_ana = Ear(ana)
            async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]) as bo:
                await bo.broadcast("hello")
                await at_ana.has(1)
            async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]) as bo:
                at_bo = Ear(bo)
                await until(lambda: at_ana.texts("refused") and at_bo.texts("refused"))
                assert at_ana.texts("refused")[0].startswith("bo has another store than before")
                assert at_bo.texts("refused")[0].startswith("ana refuses bo: bo has another store")
                assert "new stores at every member" in at_ana.texts("refused")[0]
                assert "another process" not in at_ana.texts("refused")[0]

    run(test())


def test_a_second_process_with_the_name_of_a_connected_member_is_refused_as_such() -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            at_ana = Ear(ana)
            async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]):
                await until(lambda: ana.connected)
                async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]):
                    await until(lambda: at_ana.texts("refused"))
                    assert "another process is connected as bo: stop one" in at_ana.texts("refused")[0]

    run(test())


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (greeting(version=99), "bo speaks version 99 of the wire format, ana speaks 5: upgrade ana"),
        (
            greeting(version=3, versions=[3, 4]),
            "bo speaks version 3 to 4 of the wire format, ana speaks 5: upgrade bo",
        ),
        (greeting(me="eve"), "eve is not a partner of this member"),
        (greeting(me="ana"), "ana is not a partner of this member"),
        (greeting(received=7), "ana has an older store than before"),
        (greeting(received=-1), "bo has an older store than before"),
        (greeting(chain=bytes(15)), "ana has an older store than before"),
        (greeting(lineage=[]), "its greeting names no life of its sender"),
        (greeting(known=[Life("other", 0)]), "ana has another store than before"),
        (Packets(1, [b""]), "its first frame is not a greeting"),
    ],
)
def test_an_invalid_greeting_is_refused_with_a_reason(frame: Any, reason: str) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            ear = Ear(ana)
            reader, writer = await called(ana)
            writer.write(add_lengths([encode(frame)]))
            said = await answer(reader)
            assert isinstance(said, Refusal)
            assert said.reason.startswith(reason)
            await until(lambda: ear.texts("refused"))
            assert ear.texts("refused") == [said.reason]
            assert not ana.connected

    run(test())


def test_another_version_in_the_answer_is_refused() -> None:
    heard: list[Any] = []

    async def fake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await answer(reader))
        writer.write(add_lengths([encode(greeting(version=99, me="ana", you="bo"))]))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            heard.append(await answer(reader))
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(fake, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with antecede.join("room", me="bo", peers=[f"ana@127.0.0.1:{port}"]) as bo:
            ear = Ear(bo)
            await until(lambda: ear.texts("refused") and len(heard) > 1)
            assert isinstance(heard[0], Greeting)
            assert heard[1] == Refusal("ana speaks version 99 of the wire format, bo speaks 5: upgrade bo")
        server.close()

    run(test())


def hostile(chance: random.Random) -> list[bytes]:
    """Hostile input: noise, false lengths, truncated frames, and frames that no member would send."""
    frame = add_lengths([encode(greeting())])
    return [
        b"",
        b"GET / HTTP/1.1\r\nHost: ana\r\n\r\n",
        struct.pack(">I", MAX_BYTES + 1),
        struct.pack(">I", 0),
        struct.pack(">I", 2**32 - 1) + b"x" * 1000,
        struct.pack(">I", MAX_BYTES) + b"x" * 100_000,
        frame[: len(frame) // 2],
        frame[:-1] + b"\xc1",
        add_lengths([b"\x93" * 2000]),
        add_lengths([encode(Refusal("\x1b[2J" * 1000))]),
        add_lengths([encode(greeting(members=["x"] * 100_000))]),
        *(chance.randbytes(chance.randrange(1, 3000)) for _ in range(20)),
        *(add_lengths([chance.randbytes(chance.randrange(1, 300))]) for _ in range(20)),
    ]


def test_strangers_on_the_port_do_not_affect_members() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            at_ana, at_bo = Ear(ana), Ear(bo)
            await until(lambda: ana.connected and bo.connected)
            writers = []
            for number, data in enumerate(hostile(random.Random(1))):
                _, writer = await called(bo)
                writer.write(data)
                writers.append(writer)  # and then says nothing more
                await ana.broadcast(number)
                await bo.broadcast(number)
            count = len(writers)
            await at_ana.has(count)
            await at_bo.has(count)
            assert at_ana.bodies() == at_bo.bodies() == list(range(count))
            for writer in writers[::2]:
                writer.transport.abort()
            # They do not keep members out, either.
            bo.go_offline(0.1)
            await ana.broadcast("still here")
            await at_bo.has(count + 1)
            assert {each.kind for each in at_ana.notices} <= {"joined", "lost"}
            assert any("a frame of" in text for text in at_bo.texts("refused"))

    run(test())


def test_a_member_that_violates_the_protocol_is_disconnected() -> None:
    """Eve is in the group and sends garbage; Ana and Bo continue."""
    members = ["ana", "bo", "eve"]

    async def test() -> None:
        async with together(*members) as (ana, bo, eve):
            await eve.aclose()
            at_ana, at_bo = Ear(ana), Ear(bo)
            for attempt, body in enumerate((b"\x00", b"\x93\x01\x02\x03", b"x" * 1000), 1):
                reader, writer = await called(ana)
                # She has never talked to this group before, so this is her first store.
                said = greeting(me="eve", members=members, lineage=eve._core.lineage, attempt=100 + attempt)
                writer.write(add_lengths([encode(said)]))
                writer.write(add_lengths([encode(Packets(1, [body], bytes(16)))]))
                assert isinstance(await answer(reader), Greeting | Refusal)
                await ana.broadcast("a word")
                await bo.broadcast("a word")
            await until(lambda: len(at_ana.texts("refused")) >= 3)
            await at_ana.has(3)
            await at_bo.has(3)
            assert at_ana.bodies("bo") == at_bo.bodies("ana") == ["a word"] * 3
            assert "bo" in ana.connected

    run(test())


def test_strangers_on_the_web_port_do_not_affect_phones() -> None:
    async def test() -> None:
        async with (
            antecede.join(
                "room", me="sue", listen=":0", web=":0", protocol="freescale", peers=["phone behind sue"]
            ) as sue,
            antecede.join(
                "room", me="phone", behind="sue", protocol="freescale", peers=[f"sue@{sue.web_address}"]
            ) as phone,
        ):
            at_sue, at_phone = Ear(sue), Ear(phone)
            host, _, port = str(sue.web_address).removeprefix("ws://").rpartition(":")
            writers = []
            for number, data in enumerate(hostile(random.Random(2))[::3]):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                writers.append(writer)
                await sue.broadcast(number)
                await phone.broadcast(number)
            async with connect(str(sue.web_address)) as socket:
                await socket.send("text, which is no frame")
                with pytest.raises(ConnectionClosed):
                    while True:
                        await socket.recv()
            await at_sue.has(len(writers))
            await at_phone.has(len(writers))
            assert at_sue.bodies() == at_phone.bodies() == list(range(len(writers)))
            for writer in writers:
                writer.transport.abort()

    run(test())
