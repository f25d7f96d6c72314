"""Helpers of live group tests: members over real sockets, ears that collect deliveries, and links that can be
cut individually."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

import antecede
from antecede.live.group import Group
from antecede.live.messages import Message, Notice

PATIENCE = 60.0
"""How long tests wait for an event, in seconds: generous, since short steps take long on a busy machine."""
MEMBER = Path(__file__).parent / "live_member.py"


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on its own event loop, with a time limit."""

    async def within() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await test

    asyncio.run(within())


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something to become true."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not within {PATIENCE} s: {what or condition}"
        await asyncio.sleep(0.01)


def be_impostors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members start with the keys of others, as only an impostor would."""
    monkeypatch.setattr("antecede.live.security.identity._refuse_keys_of_others", lambda *_: None)


@contextlib.asynccontextmanager
async def together(*names: str, **options: Any) -> AsyncIterator[list[Group]]:
    """Members that know each other, at ports the system chose; each later one dials the earlier ones."""
    joined: dict[str, Group] = {}
    async with contextlib.AsyncExitStack() as stack:
        for me in sorted(names, reverse=True):
            peers = [
                f"{name}@{joined[name].address}" if name in joined else name for name in names if name != me
            ]
            joining = antecede.join("room", me=me, listen=":0", peers=peers, **options)
            joined[me] = await stack.enter_async_context(joining)
        yield [joined[name] for name in names]


class Ear:
    """Collects the deliveries and events of a group."""

    def __init__(self, group: Group, listens: bool = True) -> None:
        self.group = group
        self.messages: list[Message] = []
        """The bodies of others' messages."""
        self.own: list[Message] = []
        self.notices: list[Notice] = []
        self._tasks = [asyncio.create_task(self._watch(group.events()))]
        if listens:
            self._tasks.append(asyncio.create_task(self._listen()))

    async def _listen(self) -> None:
        async for message in self.group:
            (self.own if message.own else self.messages).append(message)

    async def _watch(self, events: Any) -> None:
        async for notice in events:
            self.notices.append(notice)

    def bodies(self, origin: str | None = None) -> list[Any]:
        return [each.body for each in self.messages if origin in (None, each.origin)]

    def texts(self, kind: str) -> list[str]:
        return [notice.text for notice in self.notices if notice.kind == kind]

    async def has(self, count: int) -> None:
        await until(lambda: len(self.messages) >= count, f"{count} messages at {self.group.me}")

    @property
    def has_ended(self) -> bool:
        """Whether iteration and events have ended."""
        return self._tasks[-1].done()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def same(*groups: Group) -> None:
    """Until all have delivered the same."""
    await until(lambda: len({str(group.delivered()) for group in groups}) == 1, "the same everywhere")


class Relay:
    """A relay between a caller and its destination that can be cut, stalled and restored."""

    def __init__(self, to: str) -> None:
        self._host, _, port = to.rpartition(":")
        self._port = int(port)
        self._open = True
        self._flows = asyncio.Event()
        self._flows.set()
        self._pipes: set[asyncio.StreamWriter] = set()
        self.address = ""

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._called, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        self._open = False
        for writer in self._pipes:
            writer.transport.abort()

    def stall(self) -> None:
        """Stall: nothing arrives any more, and neither end notices."""
        self._flows.clear()

    def mend(self) -> None:
        self._open = True
        self._flows.set()

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        there_reader, there = await asyncio.open_connection(self._host, self._port)
        self._pipes |= {writer, there}
        await asyncio.gather(self._pipe(reader, there), self._pipe(there_reader, writer))
        self._pipes -= {writer, there}

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def process(
    settings: dict[str, Any], *does: str, broadcast: Sequence[Any] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A member in a process of its own, to be killed; see live_member.py for what it does."""
    made = await asyncio.create_subprocess_exec(
        sys.executable,
        str(MEMBER),
        json.dumps(settings, default=str),
        json.dumps(list(broadcast)),
        *does,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def lines(made: asyncio.subprocess.Process, count: int) -> list[str]:
    """The next `count` lines that a process prints."""
    assert made.stdout is not None
    async with asyncio.timeout(PATIENCE):
        found = [(await made.stdout.readline()).decode().strip() for _ in range(count)]
    assert all(found), f"it ended after {[line for line in found if line]}"
    return found
