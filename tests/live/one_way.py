"""Three members, the third of which misses a message that the others have, by links that carry one way
only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from live_groups import until

import antecede
from antecede.live.group import Group
from antecede.live.trial.ports import free_ports


class OneWay:
    """Relays between three members, in which frames can be stalled, in one direction each. Neither end
    notices, as long as the silence is shorter than its time-out."""

    def __init__(self) -> None:
        self._flows = asyncio.Event()
        self._flows.set()
        self._servers: list[asyncio.Server] = []
        self._pipes: set[asyncio.StreamWriter] = set()

    def stall(self) -> None:
        self._flows.clear()

    def mend(self) -> None:
        self._flows.set()

    async def relay(self, to: str, stalls_to_caller: bool) -> str:
        """An address that leads to another one. `stall` stops what goes to the caller, or comes from it."""

        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = to.rpartition(":")
            try:
                there_reader, there = await asyncio.open_connection(host, int(port))
            except OSError:
                writer.transport.abort()
                return
            self._pipes |= {writer, there}
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(
                    self._pipe(reader, there, not stalls_to_caller),
                    self._pipe(there_reader, writer, stalls_to_caller),
                )

        server = await asyncio.start_server(called, "127.0.0.1", 0)
        self._servers.append(server)
        where, at = server.sockets[0].getsockname()
        return f"{where}:{at}"

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stalls: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if stalls:
                    await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._flows.set()
        for writer in self._pipes:
            writer.transport.abort()

    async def settings(self, changes: bool, names: tuple[str, str, str]) -> list[dict[str, Any]]:
        """Settings with which all links between the third member and the others lead through relays: once
        stalled, nothing arrives from the first, and the second receives nothing from the third."""
        ana, bo, cy = names
        ports = dict(zip(names, free_ports(3), strict=True))
        at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        to_ana = await self.relay(at[ana], stalls_to_caller=True)
        to_bo = await self.relay(at[bo], stalls_to_caller=False)
        found = []
        for me in names:
            known = {**at, ana: to_ana, bo: to_bo} if me == cy else {**at, cy: ""}
            listed = [f"{name}@{where}" if where else name for name, where in known.items()]
            members = (
                {"founders": listed} if changes else {"peers": [x for x in listed if x.split("@")[0] != me]}
            )
            listens = {} if me == cy else {"listen": f":{ports[me]}"}
            found.append({"me": me, "suspect_after": "300s", **listens, **members})
        return found

    @classmethod
    @contextlib.asynccontextmanager
    async def three(cls, folder: Path, changes: bool) -> AsyncIterator[tuple[Group, Group, Group, OneWay]]:
        """The three members in one process, connected."""
        cut = cls()
        settings = await cut.settings(changes, ("ana", "bo", "cy"))
        async with contextlib.AsyncExitStack() as stack:
            joining = [
                antecede.join("room", store=folder / each["me"], sync=False, **each) for each in settings
            ]
            groups = await asyncio.gather(*(stack.enter_async_context(each) for each in joining))
            await until(lambda: all(len(group.connected) == 2 for group in groups), "connections")
            ana, bo, cy = groups
            yield ana, bo, cy, cut
            cut.close()
