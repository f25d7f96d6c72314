"""Helpers of changing group tests: members over real sockets, each with its application."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from live_groups import until

import antecede
from antecede.live.group import Group
from antecede.live.trial.ports import free_ports
from antecede.live.view import MemberChange

FOUNDERS = ("ana", "bo", "cy")


class Board:
    """An application: a list of bodies, which is also its snapshot."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.ids: list[antecede.MessageId] = []
        self.causes: dict[antecede.MessageId, tuple[antecede.MessageId, ...]] = {}
        self.restored: list[Any] | None = None
        self.changes: list[MemberChange] = []

    def dump(self) -> bytes:
        return json.dumps(self.bodies).encode()

    def load(self, state: bytes) -> None:
        self.bodies = json.loads(state)
        self.restored = list(self.bodies)


class Room:
    """Members in one process, each with a board as its application."""

    def __init__(self, folder: Path, founders: tuple[str, ...] = FOUNDERS) -> None:
        self.folder = folder
        self.ports = dict(zip(founders, free_ports(len(founders)), strict=True))
        self.founders = [f"{name}@127.0.0.1:{port}" for name, port in self.ports.items()]
        self.groups: dict[str, Group] = {}
        self.boards: dict[str, Board] = {}
        self.next_board: Board | None = None
        """The application of the next member to start, if it is not a plain board."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, name: str, reads: bool = True, **options: Any) -> Group:
        """Start a member; unless it `reads`, its messages are left to the test."""
        board, self.next_board = self.next_board or Board(), None
        if name in self.ports:
            options = {"founders": self.founders, "listen": f":{self.ports[name]}", **options}
        else:
            options = {"contact": self.founders[:1], "listen": ":0", **options}
        options = {"store": self.folder / name, "snapshot": board.dump, "restore": board.load, **options}
        joining = antecede.join("room", me=name, sync=False, **options)
        group = await joining
        self.groups[name], self.boards[name] = group, board
        if reads:
            self._tasks.append(asyncio.create_task(self._read(group, board)))
        self._tasks.append(asyncio.create_task(self._watch(group, board)))
        return group

    async def _read(self, group: Group, board: Board) -> None:
        async for message in group:
            if message.redelivered and message.body in board.bodies:
                continue
            board.bodies.append(message.body)
            board.ids.append(message.id)
            board.causes[message.id] = message.causes

    async def _watch(self, group: Group, board: Board) -> None:
        async for change in group.changes():
            board.changes.append(change)

    def kinds(self, at: str, name: str) -> list[str]:
        """The membership events one member reported about another."""
        return [change.kind for change in self.boards[at].changes if change.name == name]

    def listen(self, name: str, refused: list[str]) -> None:
        """Collect why a member refuses others."""

        async def collect() -> None:
            nonlocal refused
            async for event in self.groups[name].events():
                refused += [event.text] if event.kind == "refused" else []

        self._tasks.append(asyncio.create_task(collect()))

    async def stop(self, name: str) -> None:
        await self.groups.pop(name).aclose()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for group in self.groups.values():
            await group.aclose()

    async def agree(self, bodies: set[Any], *names: str) -> None:
        await until(lambda: all(set(self.boards[name].bodies) == bodies for name in names), f"{bodies}")
        assert all(len(self.boards[name].bodies) == len(bodies) for name in names)

    async def come_to_rest(self) -> None:
        """Wait until messages are stable and packets acknowledged, so that a copied store stays current."""
        await until(
            lambda: not any(each.unstable_bytes or each._core.has_unacked for each in self.groups.values()),
            "that nothing is under way",
        )

    async def agree_on_last(self, body: Any) -> None:
        """Wait until the named members have the same messages, this one included."""
        boards = self.boards.values()
        await until(lambda: all(body in board.bodies for board in boards), f"{body} everywhere")
        await until(lambda: len({json.dumps(sorted(board.bodies)) for board in boards}) == 1, "the same")

    async def have_view(self, *names: str) -> None:
        await until(
            lambda: all(self.groups[name].view.names == sorted(names) for name in names),
            f"the view {names}",
        )


@contextlib.asynccontextmanager
async def room(folder: Path, *names: str, **options: Any) -> AsyncIterator[Room]:
    """Start these members; the first three are always the founders."""
    created = Room(folder, names if len(names) > len(FOUNDERS) else FOUNDERS)
    try:
        await asyncio.gather(*(created.start(name, **options) for name in names))
        yield created
    finally:
        await created.close()
