"""What strangers can do at a member's ports before authenticating: nothing that affects others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import MEMBER, PATIENCE, Ear, lines, run, until
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedError, InvalidStatus

import antecede
from antecede.live.group import Group
from antecede.live.transport.admission import Admission, capacity_for, source_of
from antecede.live.transport.frames import Heartbeat, Refusal, add_lengths, encode
from antecede.live.trial.ports import free_ports

FLOOD = Path(__file__).parent / "flood.py"
PER_SECOND = 3_000
TLS = "1603010200"
"""The first bytes of a client that wants to use TLS."""


@contextlib.asynccontextmanager
async def flood(where: str | None, message: str, sources: int) -> AsyncIterator[None]:
    """A stranger that opens thousands of connections a second; see flood.py."""
    host, _, port = str(where).rpartition("/")[2].rpartition(":")
    arguments = [host, port, str(PER_SECOND), str(3 * PATIENCE), message, str(sources)]
    stranger = await asyncio.create_subprocess_exec(
        sys.executable, str(FLOOD), *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        await lines(stranger, 1)
        await asyncio.sleep(1)
        yield
        assert stranger.returncode is None, "the flood had ended before"
    finally:
        stranger.kill()
        await stranger.wait()


@pytest.mark.parametrize(
    ("message", "sources"),
    [("", 0), ("", 1), ("", 5_000), (TLS, 1)],
    ids=["silent, the member's own address", "silent", "silent, many addresses", "talking"],
)
def test_a_member_connects_while_a_stranger_floods(message: str, sources: int) -> None:
    """Connecting once took more than a minute, as long as the flood lasted."""

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            joining = antecede.join("room", me="bo", peers=[f"ana@{ana.address}"])
            async with flood(ana.address, message, sources), joining as bo:
                await until(lambda: ana.connected and bo.connected)
                await bo.broadcast("here I am")
                assert (await anext(ana)).body == "here I am"
                await until(lambda: ana.counts["rejected too many"] > 100)

    run(test())


@pytest.mark.parametrize("is_listed", [False, True], ids=["was here before", "is listed in peers"])
def test_a_known_address_is_admitted_despite_many_talking_strangers(is_listed: bool) -> None:
    async def test() -> None:
        where = "@127.0.0.1:9" if is_listed else ""
        async with (
            antecede.join("room", me="ana", listen=":0", peers=[f"bo{where}"]) as ana,
            antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]) as bo,
        ):
            if not is_listed:
                await until(lambda: ana.connected and bo.connected)
            bo.go_offline(2)
            await until(lambda: not ana.connected)
            async with flood(ana.address, TLS, 5_000):
                await until(lambda: ana.connected and bo.connected)

    run(test())


def test_a_phone_connects_while_strangers_flood_the_web_port() -> None:
    async def test() -> None:
        common: Any = {"protocol": "freescale"}
        async with antecede.join(
            "room", me="sue", listen=":0", web=":0", peers=["phone behind sue"], **common
        ) as sue:
            peers = [f"sue@{sue.web_address}"]
            joining = antecede.join("room", me="phone", behind="sue", peers=peers, **common)
            async with flood(sue.web_address, b"GET".hex(), 1), joining as phone:
                await until(lambda: sue.connected and phone.connected)

    run(test())


def test_silent_connections_do_not_keep_a_member_out() -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            silent = [await call(ana) for _ in range(capacity_for(2))]
            async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]) as bo:
                await until(lambda: ana.connected and bo.connected)
            assert ana.counts["rejected too many"] >= 1
            for _, writer in silent:
                writer.close()

    run(test())


async def call(group: Group) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = str(group.address).rpartition(":")
    return await asyncio.open_connection(host, int(port))


def test_strangers_do_not_exhaust_the_files_of_a_member(tmp_path: Path) -> None:
    """1,000 idle connections to the port of metrics stopped a member, which could not open its trace."""
    allowed = 160

    async def test() -> None:
        port, metrics = free_ports(2)
        settings = {
            "group": "room",
            "me": "ana",
            "listen": f"127.0.0.1:{port}",
            "metrics": f"127.0.0.1:{metrics}",
            "peers": ["bo"],
            "store": str(tmp_path / "ana.db"),
            "trace": str(tmp_path / "trace"),
        }
        ana = await asyncio.create_subprocess_exec(
            sys.executable,
            str(MEMBER),
            json.dumps(settings),
            json.dumps(["before"]),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed)),
        )
        silent = []
        try:
            async with antecede.join("room", me="bo", peers=[f"ana@127.0.0.1:{port}"]) as bo:
                assert (await anext(bo)).body == "before"
                ports = (port, metrics) * (2 * allowed)
                silent += [await asyncio.open_connection("127.0.0.1", where) for where in ports]
                assert open_files(ana.pid) < allowed - 20
                for number in range(300):
                    await bo.broadcast(number)
                # Connected members continue, the port answers, and a trace is written.
                assert b'"state":"open"' in await get(metrics, b"/health")
                await until(lambda: list((tmp_path / "trace").rglob("*.parquet")))
        finally:
            for _, writer in silent:
                writer.transport.abort()
            ana.kill()
            await ana.wait()

    run(test())


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def get(port: int, path: bytes) -> bytes:
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        found = await reader.read()
        writer.close()
    return found


def test_a_long_greeting_is_refused_before_it_is_read() -> None:
    """A member once read up to 16 MiB from any stranger."""

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            ear = Ear(ana)
            reader, writer = await call(ana)
            writer.write((100_000).to_bytes(4, "big"))  # and not one byte of the greeting itself
            with contextlib.suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), PATIENCE)
            await until(lambda: ear.texts("refused"))
            assert ear.texts("refused")[0].startswith("a frame of 100000 bytes; the longest is 1")
            writer.close()

    run(test())


def test_a_long_answer_to_a_greeting_is_refused_before_it_is_read() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((100_000).to_bytes(4, "big"))
        await reader.read()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, antecede.join("room", me="bo", peers=[f"ana@127.0.0.1:{port}"]) as bo:
            ear = Ear(bo)
            await until(lambda: ear.texts("refused"))
            assert ear.texts("refused")[0].startswith("a frame of 100000 bytes; the longest is 1")

    run(test())


@contextlib.asynccontextmanager
async def web_member(**more: Any) -> AsyncIterator[Group]:
    async with antecede.join(
        "room", me="sue", listen=":0", web=":0", protocol="freescale", peers=["phone behind sue"], **more
    ) as sue:
        yield sue


def test_websocket_limits_the_length_of_a_greeting_but_not_of_a_message() -> None:
    async def test() -> None:
        async with web_member() as sue:
            for size, reason in ((20_000, "1009"), (10_000_000, "no close frame received")):
                async with connect(str(sue.web_address), max_size=None) as stranger:
                    with pytest.raises(ConnectionClosedError, match=reason):
                        await stranger.send(b"x" * size)
                        await stranger.recv()
            peers = [f"sue@{sue.web_address}"]
            async with antecede.join(
                "room", me="phone", behind="sue", protocol="freescale", peers=peers
            ) as phone:
                await phone.broadcast(b"x" * 2_000_000)
                assert len((await anext(sue)).body) == 2_000_000
                await sue.broadcast(b"x" * 2_000_000)
                assert len((await anext(phone)).body) == 2_000_000

    run(test())


async def upgraded(sue: Group) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket whose frames are written by hand."""
    host, _, port = str(sue.web_address).rpartition("/")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b"101" in await reader.readline()
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def greeting_of_a_phone() -> bytes:
    """The greeting of a real phone."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(connection: ServerConnection) -> None:
        message = await connection.recv(decode=False)
        if not heard.done():
            heard.set_result(message)

    async with serve(listen, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        peers = [f"sue@ws://127.0.0.1:{port}"]
        async with antecede.join("room", me="phone", behind="sue", protocol="freescale", peers=peers):
            return await heard


@pytest.mark.parametrize(
    "frame",
    [b"\x89\xfd0000" + b"x" * 125, b"\x00\x800000", b"\x8a\x800000"],
    ids=["pings", "empty fragments", "pongs"],
)
def test_frames_without_a_greeting_are_cut_off(frame: bytes) -> None:
    """Each is short, and none counts towards the length of a message."""

    async def test() -> None:
        async with web_member() as sue:
            _, writer = await upgraded(sue)
            sent, beginning = 0, b"\x02\x800000" if frame[:1] == b"\x00" else b""
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionError):
                    writer.write(beginning)
                    while not writer.is_closing():
                        writer.write(frame * 20)
                        await writer.drain()
                        sent += 20 * len(frame)
                        await asyncio.sleep(0.001)
            assert sent < 1_000_000
            writer.close()

    run(test())


async def greeted(sue: Group) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A phone that is connected, and whose frames are written by hand."""
    greeting = await greeting_of_a_phone()
    reader, writer = await upgraded(sue)
    writer.write(b"\x82\xfe" + len(greeting).to_bytes(2, "big") + bytes(4) + greeting)
    await until(lambda: sue.connected)
    return reader, writer


def test_a_phone_that_sends_fragments_without_end_is_cut_off() -> None:
    """Empty fragments: the length of the message is not the problem."""

    async def test() -> None:
        async with web_member() as sue:
            _, writer = await greeted(sue)
            writer.write(b"\x02\x800000" + b"\x00\x800000" * 5_000)
            await until(lambda: not sue.connected)
            writer.transport.abort()

    run(test())


def test_a_phone_flooding_short_frames_does_not_starve_others() -> None:
    """40,000 pings in one write once blocked everything else for two seconds."""
    pings = 40_000

    async def test() -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with web_member() as sue:
            reader, writer = await greeted(sue)
            await reader.readuntil(b"\x82")
            writer.write(b"\x89\x800000" * pings)
            counting = asyncio.create_task(count_turns())
            answers = 0
            async with asyncio.timeout(2 * PATIENCE):
                while answers < pings:
                    answers += (await reader.read(1 << 20)).count(b"\x8a\x00")
            counting.cancel()
            assert sue.connected
            assert turns >= 25
            writer.transport.abort()

    run(test())


async def greeting_of_bo() -> bytes:
    """The greeting of a real member, with its length prefix."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(4)
        greeting = head + await reader.readexactly(int.from_bytes(head, "big"))
        if not heard.done():
            heard.set_result(greeting)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, antecede.join("room", me="bo", peers=[f"ana@127.0.0.1:{port}"]):
        return await heard


def test_a_member_flooding_short_frames_does_not_starve_others() -> None:
    """40,000 received frames were once processed without yielding."""
    heartbeats = 40_000

    async def test() -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        greeting = await greeting_of_bo()
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            _, writer = await call(ana)
            writer.write(greeting)
            await until(lambda: ana.connected)
            counting = asyncio.create_task(count_turns())
            last = add_lengths([encode(Refusal("that is all"))])
            writer.write(add_lengths([encode(Heartbeat())]) * heartbeats + last)
            await until(lambda: not ana.connected)
            counting.cancel()
            assert turns > heartbeats // 100
            writer.transport.abort()

    run(test())


@pytest.mark.parametrize(
    ("origin", "is_accepted"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("http://127.0.0.1:3000", True),
        ("https://app.example", True),
        ("https://APP.example/", True),
        ("https://evil.example", False),
        ("http://app.example", False),
        ("https://app.example.evil.example", False),
        ("http://localhost.evil.example", False),
        ("null", False),
        ("http://[", False),
        ("http://10.0.0.9", False),
    ],
)
def test_web_pages_of_others_are_refused(origin: str | None, is_accepted: bool) -> None:
    async def test() -> None:
        async with web_member(web_origins=["https://app.example"]) as sue:
            headers = {"Origin": origin} if origin is not None else {}
            # Under the name of a stranger that resolves to this machine, the host is that of the origin.
            headers["Host"] = (origin or "localhost").rpartition("/")[2] or "x"
            request = connect(str(sue.web_address), additional_headers=headers)
            if is_accepted:
                async with request:
                    return
            with pytest.raises(InvalidStatus) as refusal:
                await request
            assert refusal.value.response.status_code == 403
            assert b"see its setting web_origins" in bytes(refusal.value.response.body or b"")

    run(test())


@pytest.mark.parametrize("port", ["metrics", "web"])
def test_an_endless_request_is_cut_off(port: str) -> None:
    async def test() -> None:
        (metrics,) = free_ports(1)
        async with web_member(metrics=f"127.0.0.1:{metrics}") as sue:
            where = metrics if port == "metrics" else int(str(sue.web_address).rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", where)
            sent = 0
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionError):
                    writer.write(b"GET / HTTP/1.1\r\n")
                    while not reader.at_eof():
                        writer.write(b"X-Header: " + b"x" * 4_000 + b"\r\n")
                        await writer.drain()
                        sent += 4_000
                        await asyncio.sleep(0.001)
            assert sent < 10_000_000
            writer.close()

    run(test())


def test_strangers_have_a_bounded_share_and_a_source_with_many_loses_its_own() -> None:
    closed: Counter[str] = Counter()
    admission = Admission(64, ["10.0.0.1"], Counter())
    begun = 0
    for number in range(20_000):
        pending = admission.connected(f"10.1.{number >> 8}.{number & 255}", lambda: None)
        begun += pending is not None and admission.may_begin(pending)
    assert admission.size <= 64
    assert begun < 1_000
    admission.close_all()

    def connect_from(source: str) -> None:
        assert admission.connected(source, lambda: closed.update([source]))

    for source in ("10.0.0.1", "192.0.2.1"):
        connect_from(source)
    for _ in range(1_000):
        connect_from("192.0.2.2")
    assert closed.keys() == {"192.0.2.2"}
    assert admission.size <= 64


def test_members_that_all_connect_at_once_do_not_displace_each_other() -> None:
    """As when a super peer restarts, and all its phones come back by one proxy."""
    closed: list[int] = []
    admission = Admission(64, [], Counter())
    shaking = []
    for number in range(48):
        pending = admission.connected("192.0.2.1", lambda number=number: closed.append(number))  # type: ignore[misc]
        assert pending is not None
        assert admission.may_begin(pending)
        shaking.append(pending)
    assert admission.connected("192.0.2.1", lambda: None) is None
    assert not closed
    # A token is returned on authentication, so far more than the limit per second may connect.
    for pending in shaking:
        admission.authenticated(pending)
    for _ in range(1_000):
        another = admission.connected("192.0.2.1", lambda: None)
        assert another is not None
        assert admission.may_begin(another)
        admission.authenticated(another)


def test_a_source_is_an_ipv4_address_or_an_ipv6_64_prefix() -> None:
    assert source_of(("10.0.0.7", 1)) == source_of(("::ffff:10.0.0.7", 2, 0, 0)) == "10.0.0.7"
    assert source_of(("2001:db8:1:2::7", 1, 0, 0)) == source_of(("2001:db8:1:2:ffff::9", 1, 0, 0))
    assert source_of(("2001:db8:1:2::7", 1, 0, 0)) != source_of(("2001:db8:1:3::7", 1, 0, 0))


def test_the_log_is_not_flooded_by_refusals(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            host, _, port = str(ana.address).rpartition(":")
            for number in range(1, 60):
                source = (f"127.66.1.{number}", 0)
                _, writer = await asyncio.open_connection(host, int(port), local_addr=source)
                writer.write(add_lengths([b"\xff" * 10]))
                writer.close()
            await until(lambda: ana.counts["rejected greeting"] >= 40)

    run(test())
    refusals = [record for record in caplog.records if record.getMessage().startswith("refused")]
    assert 1 <= len(refusals) <= 25


@pytest.mark.parametrize("message", ["", b"GET /health HTTP/1.1\r\n".hex()], ids=["silent", "talking"])
def test_health_is_answered_while_strangers_flood_the_port(message: str) -> None:
    async def test() -> None:
        (metrics,) = free_ports(1)
        where = f"127.0.0.1:{metrics}"
        async with (
            antecede.join("room", me="ana", metrics=where, peers=["bo"]),
            flood(where, message, 5_000),
        ):
            assert b'"state":"open"' in await get(metrics, b"/health")

    run(test())


def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antecede.live.transport.admission.DEADLINE_SECONDS", 0.5)

    async def test() -> None:
        (metrics,) = free_ports(1)
        async with antecede.join(
            "room", me="ana", listen=":0", metrics=f"127.0.0.1:{metrics}", peers=["bo"]
        ) as ana:
            for where, data in ((ana.address, b""), (ana.address, b"\x00"), (f"127.0.0.1:{metrics}", b"")):
                host, _, port = str(where).rpartition(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                async with asyncio.timeout(PATIENCE):
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b""
                writer.close()

    run(test())


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """As on Windows, where the loop has no add_reader."""

    def add_reader(self, *_: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


def test_a_member_listens_where_add_reader_and_file_limits_are_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            silent = [await call(ana) for _ in range(300)]
            await asyncio.sleep(2.5)  # they do not shake hands, and may be displaced
            async with antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]) as bo:
                await until(lambda: ana.connected and bo.connected)
            for _, writer in silent:
                writer.transport.abort()

    with asyncio.Runner(loop_factory=LoopWithoutReaders) as runner:
        runner.run(test())
