"""A wrong address is not silent: one line in the log names the member, the address and the reason."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from live_groups import run, until

import antecede
from antecede.live.operations.logs import Log
from antecede.live.transport.reachability import Unreached, describe
from antecede.live.trial.ports import free_ports


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@contextlib.asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[int]:
    """The port of a foreign server that answers with these bytes, or reads in silence."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(100)
            if answer is not None:
                writer.write(answer)
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


def test_a_connection_failure_is_logged_after_a_while_and_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "antecede.live")
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    unreached = Unreached(Log("room", "ana"))
    unreached.calling("bo")
    unreached.failed("bo", ":1", "connection refused")
    assert not caplog.records
    now += 5.5
    for _ in range(250):  # a host that alternates between two states
        for reason in ("connection refused", "it did not answer"):
            unreached.failed("bo", ":1", reason)
        now += 0.2
    unreached.failed("bo", ":2", "connection refused")  # its other address
    lines = [f"bo is not reachable at {at}: connection refused; still trying" for at in (":1", ":2")]
    assert warnings_in(caplog) == lines
    now += 11.0
    for _ in range(2):
        unreached.failed("bo", ":1", "it did not answer")
    lines.append("bo is not reachable at :1: it did not answer; still trying")
    assert warnings_in(caplog) == lines
    unreached.reached("bo")
    unreached.reached("bo")
    assert caplog.messages[3:] == ["bo is reached"]
    unreached.failed("bo", ":1", "connection refused")
    assert len(caplog.records) == 4
    now += 5.5
    unreached.failed("bo", ":1", "connection refused")
    assert warnings_in(caplog)[3:] == lines[:1]


def test_a_contact_that_cannot_be_reached_is_named_once_with_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "antecede.live")
    (port,) = free_ports(1)
    line = f"bo is not reachable at 127.0.0.1:{port}: connection refused; still trying"

    async def test() -> None:
        contact = f"bo@127.0.0.1:{port}"
        joining = asyncio.ensure_future(_join(me="ana", listen=":0", contact=contact))
        await until(lambda: line in warnings_in(caplog), "the line")
        await asyncio.sleep(1.0)
        joining.cancel()

    run(test())
    assert caplog.messages == [line]


def test_super_peers_that_cannot_be_reached_are_named_once_with_their_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "antecede.live")
    ports = free_ports(2)
    places = [f"{name}@127.0.0.1:{port}" for name, port in zip(("ana", "bo"), ports, strict=True)]
    lines = {
        f"{name} is not reachable at {at}: connection refused; still trying"
        for name, _, at in (place.partition("@") for place in places)
    }

    async def test() -> None:
        joining = asyncio.ensure_future(_join(me="pia", super_peers=places))
        await until(lambda: lines <= {*warnings_in(caplog)}, "the lines")
        await asyncio.sleep(1.0)
        joining.cancel()

    run(test())
    assert sorted(caplog.messages) == sorted(lines)


async def _join(**options: Any) -> antecede.Group:
    return await antecede.join("room", **options)


def test_a_refused_connection_to_a_member_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    line = f"bo is not reachable at 127.0.0.1:{port}: connection refused; still trying"

    async def test() -> None:
        async with antecede.join("room", me="ana", peers=[f"bo@127.0.0.1:{port}"]) as ana:
            await until(lambda: line in warnings_in(caplog), "the line")
            async with antecede.join("room", me="bo", listen=f":{port}", peers=["ana"]):
                await until(lambda: ana.connected, "a connection")

    run(test())
    assert warnings_in(caplog).count(line) == 1


def test_members_starting_one_after_the_other_log_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)

    async def test() -> None:
        async with antecede.join("room", me="ana", peers=[f"bo@127.0.0.1:{port}"]) as ana:
            await asyncio.sleep(0.5)
            async with antecede.join("room", me="bo", listen=f":{port}", peers=["ana"]):
                await until(lambda: ana.connected, "a connection")

    run(test())
    assert not warnings_in(caplog)


def test_a_foreign_server_at_a_member_s_address_is_reported_as_such(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        line = "refused bo: it sends text ('HTTP...'), so it is not a member"
        async with server(answer) as port, antecede.join("room", me="ana", peers=[f"bo@127.0.0.1:{port}"]):
            await until(lambda: line in warnings_in(caplog), "the line")

    run(test())


def test_a_server_that_does_not_greet_is_named_as_such(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antecede.live.transport.connections._GREETING_SECONDS", 0.5)

    async def test() -> None:
        why = "what answers there does not greet as a member"
        async with server(None) as port, antecede.join("room", me="ana", peers=[f"bo@127.0.0.1:{port}"]):
            line = f"bo is not reachable at 127.0.0.1:{port}: {why}; still trying"
            await until(lambda: line in warnings_in(caplog), "the line")

    run(test())


def test_a_founder_logs_which_founders_it_cannot_reach(caplog: pytest.LogCaptureFixture) -> None:
    ports = free_ports(2)
    founders = [f"{name}@127.0.0.1:{port}" for name, port in zip(("ana", "bo"), ports, strict=True)]
    line = f"bo is not reachable at 127.0.0.1:{ports[1]}: connection refused; still trying"

    async def test() -> None:
        async def start(me: str, port: int) -> antecede.Group:
            return await antecede.join("room", me=me, listen=f":{port}", founders=founders)

        starting = asyncio.create_task(start("ana", ports[0]))
        await until(lambda: line in warnings_in(caplog), "the line")
        groups = await asyncio.gather(starting, start("bo", ports[1]))
        await groups[1].aclose()
        await until(lambda: warnings_in(caplog).count(line) == 2, "the line of a member")
        await groups[0].aclose()

    run(test())


def test_the_operating_system_s_error_message_is_shown() -> None:
    async def fail(host: str, port: int) -> str:
        try:
            await asyncio.open_connection(host, port)
        except OSError as error:
            return describe(error)
        return ""

    (port,) = free_ports(1)
    refused = os.strerror(errno.ECONNREFUSED).lower()
    assert asyncio.run(fail("127.0.0.1", port)) == refused
    each = f"[Errno {errno.ECONNREFUSED}] Connect call failed ('::1', 1)"
    assert describe(OSError(f"Multiple exceptions: {each}, {each}")) == refused
    assert "name" in describe(socket.gaierror(-2, "Name or service not known")).lower()
