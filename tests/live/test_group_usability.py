"""Behaviour visible to developers and operators: time-outs, cancellations, reports."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, run, together, until

import antecede
from antecede.live.group import Group
from antecede.live.messages import MessageId
from antecede.protocols.base import LocalError


def test_a_drain_that_takes_too_long_leaves_the_group_usable() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            await ana.broadcast("one")
            with pytest.raises(TimeoutError):
                await ana.drain(timeout=0.05)
            assert ana.state == "open"
            draining = asyncio.create_task(ana.drain())
            await until(lambda: ana.state == "draining")
            with pytest.raises(LocalError, match="draining"):
                await ana.broadcast("not now")
            draining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await draining
            await ana.broadcast("two")
            ear = Ear(bo)
            await ana.drain(timeout=10)
            assert ear.bodies() == ["one", "two"]

    run(test())


def test_a_drain_ends_when_the_group_is_closed() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, _):
            await ana.broadcast("one")
            draining = asyncio.create_task(ana.drain())
            await until(lambda: ana.state == "draining")
            await ana.aclose()
            with pytest.raises(LocalError, match="closed"):
                await draining
            assert ana.state == "closed"

    run(test())


@pytest.mark.parametrize("stored", [False, True])
def test_a_broadcast_cancelled_while_waiting_for_room_is_not_made(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        store: dict[str, Any] = {"store": tmp_path / "store"} if stored else {}
        async with antecede.join("room", me="ana", peers=["bo"], limit=1_000, **store) as ana:
            ear = Ear(ana)
            accepted = []
            with contextlib.suppress(TimeoutError):
                while True:
                    accepted.append(await ana.broadcast("x" * 500, timeout=0.1))
            waiting = asyncio.create_task(ana.broadcast("cancelled"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert ana.delivered()["ana"] == len(accepted)
            await until(lambda: len(ear.own) == len(accepted))
            with pytest.raises(TimeoutError):
                await ana.broadcast("still no room", timeout=0.05)

    run(test())


def test_a_broadcast_cancelled_while_the_store_is_written_is_delivered_if_it_was_accepted(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"me": "ana", "peers": [], "store": tmp_path / "store"}
        async with antecede.join("room", **settings) as ana:
            ear = Ear(ana)
            for number in range(50):
                waiting = asyncio.create_task(ana.broadcast(number))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
            last = await ana.broadcast("the last")
            await until(lambda: ear.own and ear.own[-1].id == last)
            bodies = [each.body for each in ear.own]
            assert [each.id for each in ear.own] == [MessageId("ana", n + 1) for n in range(len(bodies))]
            assert bodies[:-1] == sorted(set(bodies[:-1]))
            assert ana.delivered()["ana"] == last.seq == len(bodies)

    run(test())


def test_abandoned_event_listeners_are_removed() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            kept = ana.events()
            for _ in range(100):
                ana.events()
            async for _ in ana.events():  # at least: bo joined
                break
            gc.collect()
            assert ana._observers.count == 1
            bo.go_offline(0.0)
            await until(lambda: not bo.connected or ana.connected)
            notices = [await anext(kept), await anext(kept)]
            assert "joined" in [notice.kind for notice in notices]
            closed = ana.events()
            await closed.aclose()  # type: ignore[attr-defined]
            assert [notice async for notice in closed] == []

    run(test())


class HalfOpen:
    """A relay to an address that can lose the caller without the other end noticing."""

    def __init__(self, to: str) -> None:
        self._host, _, port = to.rpartition(":")
        self._port = int(port)
        self._callers: list[asyncio.StreamWriter] = []
        self._others: list[asyncio.StreamWriter] = []
        self.address = ""

    async def __aenter__(self) -> HalfOpen:
        self._server = await asyncio.start_server(self._called, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._callers + self._others:
            writer.transport.abort()

    def lose_callers(self) -> None:
        for writer in self._callers:
            writer.transport.abort()

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection(self._host, self._port)
        self._callers.append(writer)
        self._others.append(there)
        await asyncio.gather(_pipe(reader, there), _pipe(there_reader, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while data := await reader.read(65536):
            writer.write(data)


def test_a_member_joins_once_though_a_second_connection_replaces_the_first() -> None:
    async def test() -> None:
        async with (
            antecede.join("room", me="bo", listen=":0", peers=["ana"]) as bo,
            HalfOpen(str(bo.address)) as way,
            antecede.join("room", me="ana", peers=[f"bo@{way.address}"]) as ana,
        ):
            at_bo, at_ana = Ear(bo), Ear(ana)
            await until(lambda: ana.connected and bo.connected)
            for number in range(3):
                way.lose_callers()
                await until(lambda number=number: len(at_ana.texts("lost")) > number)  # type: ignore[misc]
                await until(lambda: ana.connected)
                await ana.broadcast(number)
                await at_bo.has(number + 1)
            assert bo.counts["connections"] == 4
            assert not at_bo.texts("lost")
            assert len(at_bo.texts("joined")) <= 1  # it may have joined before anybody listened

    run(test())


@contextlib.asynccontextmanager
async def _phone_behind_sue() -> AsyncIterator[tuple[Group, Group, Group]]:
    common: dict[str, Any] = {"group": "room", "protocol": "freescale"}
    async with contextlib.AsyncExitStack() as stack:
        sue = await stack.enter_async_context(
            antecede.join(me="sue", listen=":0", web=":0", peers=["phone behind sue", "eve"], **common)
        )
        eve = await stack.enter_async_context(
            antecede.join(me="eve", peers=[f"sue@{sue.address}", "phone behind sue"], **common)
        )
        phone = await stack.enter_async_context(
            antecede.join(me="phone", behind="sue", peers=[f"sue@{sue.web_address}", "eve"], **common)
        )
        yield sue, eve, phone


def test_messages_stuck_for_a_phone_whose_super_peer_is_gone_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with _phone_behind_sue() as (sue, eve, phone):
            ears = [Ear(sue), Ear(eve), Ear(phone)]
            await until(lambda: len(sue.connected) == 2)
            await eve.broadcast("hello")
            await ears[2].has(1)
            assert not eve.problems()
            sue.go_offline(3600.0)
            await eve.broadcast("is anybody there?")
            await until(eve.problems)
            (problem,) = eve.problems()
            assert (problem.kind, problem.member) == ("unreachable", "phone")
            assert problem.text.startswith("phone cannot be reached: the super peer sue is not connected")
            await until(lambda: ears[1].texts("unreachable"))
            sue.go_offline(0.0)
            await ears[2].has(2)
            await until(lambda: not eve.problems())
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        of_eve = [text for text in warnings if "phone cannot be reached" in text]
        assert [text.split(":")[0] for text in of_eve] == ["unreachable", "over"]

    run(test())


def test_a_refused_member_is_a_problem_until_it_is_accepted() -> None:
    async def test() -> None:
        async with antecede.join("room", me="bo", listen=":0", peers=["ana"]) as bo:
            address = f"bo@{bo.address}"
            async with antecede.join("room", me="ana", peers=[address], protocol="timestamp") as ana:
                await until(lambda: ana.problems() and bo.problems())
                for group, other in ((ana, "bo"), (bo, "ana")):
                    (problem,) = group.problems()
                    assert (problem.kind, problem.member) == ("refused", other)
                    assert "timestamp" in problem.text
            async with antecede.join("room", me="ana", peers=[address]):
                await until(lambda: bo.connected)
                assert not bo.problems()

    run(test())
