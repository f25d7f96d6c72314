"""Live groups whose members come and go, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import PATIENCE, free_ports, run, until

import antecede
from antecede.errors import InputError
from antecede.live.changing.group import ChangingLiveGroup
from antecede.live.changing.joining import join_changing
from antecede.live.changing.view import MemberChange
from antecede.live.store.disk import FileDisk
from antecede.live.store.inspection import StoreInspection
from antecede.live.transport import links
from antecede.protocols.base import LocalError


class Board:
    """An application: a list of bodies, which is also its snapshot."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.restored: list[Any] | None = None
        self.changes: list[MemberChange] = []

    def dump(self) -> bytes:
        return json.dumps(self.bodies).encode()

    def load(self, state: bytes) -> None:
        self.bodies = json.loads(state)
        self.restored = list(self.bodies)


class Room:
    """Members in one process, each with its board."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(("ana", "bo", "cy"), free_ports(3), strict=True))
        self.founders = [f"{name}@127.0.0.1:{port}" for name, port in self.ports.items()]
        self.groups: dict[str, ChangingLiveGroup] = {}
        self.boards: dict[str, Board] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, name: str, **options: Any) -> ChangingLiveGroup:
        board = self.boards[name] = Board()
        if name in self.ports:
            options = {"founders": self.founders, "listen": f":{self.ports[name]}", **options}
        else:
            options = {"contact": self.founders[:1], "listen": ":0", **options}
        options.setdefault("store", self.folder / name)
        joining = join_changing(
            "room", me=name, snapshot=board.dump, restore=board.load, sync=False, **options
        )
        group = self.groups[name] = await joining
        self._tasks.append(asyncio.create_task(self._read(group, board)))
        self._tasks.append(asyncio.create_task(self._watch(group, board)))
        return group

    async def _read(self, group: ChangingLiveGroup, board: Board) -> None:
        async for message in group:
            board.bodies.append(message.body)

    async def _watch(self, group: ChangingLiveGroup, board: Board) -> None:
        async for change in group.changes():
            board.changes.append(change)

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

    async def have_view(self, *names: str) -> None:
        await until(
            lambda: all(self.groups[name].view.names == sorted(names) for name in names),
            f"the view {names}",
        )


@contextlib.asynccontextmanager
async def room(folder: Path, *names: str, **options: Any) -> AsyncIterator[Room]:
    created = Room(folder)
    try:
        await asyncio.gather(*(created.start(name, **options) for name in names))
        yield created
    finally:
        await created.close()


@pytest.mark.parametrize("stored", [True, False])
def test_a_fourth_member_joins_leaves_and_nobody_waits_for_it(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        options: dict[str, Any] = {} if stored else {"store": None}
        async with room(tmp_path, "ana", "bo", "cy", **options) as group:
            for name in ("ana", "bo", "cy"):
                await group.groups[name].broadcast(f"from {name}")
            before = {"from ana", "from bo", "from cy"}
            await group.agree(before, "ana", "bo", "cy")
            dana = await group.start("dana", **options)
            assert set(group.boards["dana"].restored or []) <= before
            await group.have_view("ana", "bo", "cy", "dana")
            assert dana.me.startswith("dana~")
            assert dana.view.members[dana.me].connected
            sent = await dana.broadcast({"from": "dana"})
            assert sent.origin == dana.me
            await group.groups["bo"].broadcast("after dana")
            boards = group.boards.values()
            await until(lambda: all(len(board.bodies) == 5 for board in boards), "all five everywhere")
            assert all(board.bodies.count({"from": "dana"}) == 1 for board in boards)
            await dana.leave(timeout=PATIENCE)
            del group.groups["dana"]
            await group.have_view("ana", "bo", "cy")
            await group.groups["cy"].broadcast("without dana")
            await until(lambda: "without dana" in group.boards["ana"].bodies, "the last message")
            kinds = [change.kind for change in group.boards["bo"].changes if change.name == "dana"]
            assert kinds == ["joined", "left"]
            with pytest.raises(LocalError, match="closed"):
                await dana.broadcast("too late")

    run(test())


def test_members_go_on_from_their_stores_and_a_dead_one_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            await group.stop("dana")
            await group.groups["ana"].broadcast("while dana is away")
            await group.start("dana")
            await until(lambda: group.boards["dana"].bodies == ["while dana is away"], "what it missed")
            await group.stop("cy")
            await group.groups["dana"].remove("cy")
            await group.have_view("ana", "bo", "dana")
            await group.groups["dana"].broadcast("three are left")
            two = [group.boards[name].bodies for name in ("ana", "bo")]
            await until(lambda: all("three are left" in bodies for bodies in two), "the last message")
            await until(
                lambda: [each.kind for each in group.boards["ana"].changes[-2:]] == ["removing", "removed"],
                f"the removal: {group.boards['ana'].changes}",
            )

    run(test())


def test_a_member_that_was_removed_wrongly_returns_with_what_it_had_accepted(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.groups["ana"].broadcast("before")
            await group.agree({"before"}, "ana", "bo", "cy")
            for name in ("ana", "bo"):
                await group.stop(name)
            await group.groups["cy"].broadcast("nobody else has this")
            await group.stop("cy")
            for name in ("ana", "bo"):
                await group.start(name)
            await group.groups["ana"].remove("cy")
            await group.have_view("ana", "bo")
            cy = await group.start("cy")
            with pytest.raises(LocalError, match="was removed"):
                while True:
                    await cy.broadcast("is it a member?")
                    await asyncio.sleep(0.05)
            await group.stop("cy")
            cy = await group.start("cy")
            assert cy.me.startswith("cy~")
            await group.have_view("ana", "bo", "cy")
            boards = [board.bodies for board in group.boards.values()]
            await until(lambda: all("nobody else has this" in each for each in boards), "what it had")
            assert all(each.count("nobody else has this") == 1 for each in boards)

    run(test())


def test_who_is_silent_is_suspected_and_trusted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HEARTBEAT_SECONDS", 0.15)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            view = group.groups["ana"].view
            assert [member.suspected for member in view] == [None, None, None]
            await until(lambda: all(each.connected for each in group.groups["ana"].view), "connections")
            await group.stop("cy")
            await until(lambda: group.groups["ana"].view.members["cy"].suspected, "the suspicion")
            assert group.groups["ana"].view.members["bo"].suspected is None
            await group.start("cy")
            await until(lambda: not group.groups["ana"].view.members["cy"].suspected, "trust")
            kinds = [change.kind for change in group.boards["ana"].changes if change.name == "cy"]
            assert kinds == ["suspected", "trusted"]

    run(test())


def test_only_who_has_the_secret_is_admitted(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("correct horse battery staple\n")
    wrong.write_text("incorrect horse battery staple\n")
    for file in (right, wrong):
        file.chmod(0o600)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", secret=right) as group:
            await group.groups["bo"].broadcast("inside")
            await group.agree({"inside"}, "ana", "bo", "cy")
            await group.start("dana", secret=right)
            await group.have_view("ana", "bo", "cy", "dana")
            for options in ({"secret": wrong}, {}):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await group.start("eve", store=None, **options)
            assert group.groups["ana"].view.names == ["ana", "bo", "cy", "dana"]

    run(test())


def test_a_snapshot_that_fails_does_not_stop_the_sponsor(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            group.groups["ana"]._snapshot = lambda: bytes([1, 2, 300])
            contacts = group.founders[:2]
            starting = asyncio.create_task(group.start("dana", contact=contacts))
            await until(lambda: len(group.groups["ana"]._core.greeted) > 2, "the request")
            await group.groups["bo"].broadcast("it goes on")
            await group.agree({"it goes on"}, "ana", "bo", "cy")
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    run(test())


def test_a_store_of_a_changing_group_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with join_changing("room", me="ana", founders=["ana"], store=tmp_path / "ana") as group:
            await group.broadcast("x")

    run(test())
    with pytest.raises(InputError, match="is of a group that changes"):
        StoreInspection(FileDisk(tmp_path / "ana"))
    with pytest.raises(InputError, match="is the store of another members"):
        run(_join_fixed(tmp_path / "ana"))


async def _join_fixed(store: Path) -> None:
    async with antecede.join("room", me="ana", peers=["bo"], store=store):
        pass


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the founders, or whom to ask"):
        join_changing("room", me="ana")
    with pytest.raises(InputError, match="ana is not among them"):
        join_changing("room", me="ana", founders=["bo", "cy"])
    with pytest.raises(InputError, match="separates a name"):
        join_changing("room", me="a~b", contact="bo@:7000")
    with pytest.raises(InputError, match="mbcp so far"):
        join_changing("room", me="ana", contact="bo@:7000", protocol="pc")
