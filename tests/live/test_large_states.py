"""Newcomers with a large state: it is sent in chunks, across cuts and restarts, without blocking others."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from live_groups import run, until
from rooms import Board, Room, room

from antecede.errors import InputError
from antecede.live.changing import attempts, snapshots

MIB = 1 << 20


class LargeBoard(Board):
    """Its state has two parts: padding, which is never held in memory as a whole, and the bodies."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.digest = ""
        self.parts = self.longest = 0

    def dump_parts(self) -> Iterator[bytes]:
        block = hashlib.sha256(b"padding").digest() * (MIB // 32)
        for _ in range(self._size // MIB):
            yield block
        yield self.dump()

    async def load_parts(self, parts: Iterator[bytes]) -> None:
        last = b""
        for part in parts:
            self.parts += 1
            self.longest = max(self.longest, len(part))
            last = (last + part)[-MIB:]
        self.load(last[last.rindex(b"[") :])


async def start(group: Room, name: str, size: int = 64 * MIB, **options: Any) -> Any:
    """Start a member; a restarted one keeps its application's state."""
    board = LargeBoard(size)
    board.bodies = group.boards[name].bodies if name in group.boards else []
    group.next_board = board
    return await group.start(name, snapshot=board.dump_parts, restore=board.load_parts, **options)


def test_a_newcomer_without_a_store_is_told_to_use_one_for_a_large_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_IN_MEMORY", MIB)

    async def test() -> None:
        async with room(tmp_path) as group:
            await asyncio.gather(*(start(group, name, 16 * MIB) for name in ("ana", "bo", "cy")))
            reason = "dana cannot join: ana offers a state of .* bytes; 1,048,576 at most. Give dana a store"
            with pytest.raises(InputError, match=reason):
                await start(group, "dana", store=None)

    run(test())


def received(group: Room, name: str) -> int:
    """Bytes of a snapshot that have arrived."""
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in (group.folder / name).glob("received-*.tmp"))
    return 0


async def talk(group: Room, name: str, times: list[float]) -> None:
    """Broadcast repeatedly and record how long each message takes to reach the other application."""
    loop = asyncio.get_running_loop()
    for number in range(100_000):
        began = loop.time()
        await group.groups[name].broadcast(f"{name} {number}")
        await until(lambda: f"{name} {number}" in group.boards["bo"].bodies[-20:], "the delivery")  # noqa: B023
        times.append(loop.time() - began)
        await asyncio.sleep(0.01)


def test_a_large_state_transfer_survives_cuts_and_restarts_without_blocking_others(tmp_path: Path) -> None:
    async def test() -> None:
        group = Room(tmp_path)
        try:
            await asyncio.gather(*(start(group, name) for name in ("ana", "bo", "cy")))
            times: list[float] = []
            talking = asyncio.create_task(talk(group, "ana", times))
            await until(lambda: times, "the first message")
            tracemalloc.start()
            joining = asyncio.create_task(start(group, "dana"))
            at_cut = await fetch_until(group, 8 * MIB)
            assert at_cut < 64 * MIB
            joining.cancel()  # the newcomer is restarted
            await asyncio.gather(joining, return_exceptions=True)
            joining = asyncio.create_task(start(group, "dana"))
            at_restart = await fetch_until(group, at_cut + 8 * MIB)
            assert at_cut < at_restart < 64 * MIB
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
            await group.stop("ana")  # the sponsor is restarted
            await start(group, "ana")
            await joining
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            board = group.boards["dana"]
            assert isinstance(board, LargeBoard)
            assert board.parts >= 64
            assert board.longest <= snapshots.CHUNK
            await group.have_view("ana", "bo", "cy", "dana")
            await group.groups["cy"].broadcast("the last")
            await group.agree_on_last("the last")
            assert peak < 24 * MIB
            assert len(times) > 10
            assert sorted(times)[len(times) * 9 // 10] < 1.0
            await until(lambda: not list(tmp_path.glob("*/snapshot-*")), "the sponsor's file to go")
            assert not list(tmp_path.glob("*/received-*"))
        finally:
            await group.close()

    run(test())


async def fetch_until(group: Room, size: int) -> int:
    """Let dana fetch so much of its state from ana, and cut the link for a moment; how much there is then."""
    await until(lambda: received(group, "dana") > size, "a part of the state")
    connections = cast("Any", group.groups["ana"])._connections
    connections.cut_off({"dana"})
    await asyncio.sleep(0.2)
    connections.cut_off(())
    return received(group, "dana")


@pytest.mark.parametrize("stored", [True, False])
def test_two_newcomers_share_one_snapshot_of_bytes(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        state = os.urandom(3 * MIB)
        got: list[bytes] = []
        calls: list[int] = []
        options: dict[str, Any] = {} if stored else {"store": None}

        def dump() -> bytes:
            calls.append(1)
            return state

        async with room(tmp_path, "ana", "bo", "cy", snapshot=dump, **options) as group:
            await group.groups["bo"].broadcast("before")
            await group.agree({"before"}, "ana", "bo", "cy")
            both = [group.start(name, restore=got.append, **options) for name in ("dana", "eve")]
            await asyncio.gather(*both)
            assert got == [state, state]
            assert len(calls) <= 2
            await group.have_view("ana", "bo", "cy", "dana", "eve")
            await group.groups["dana"].broadcast("after")
            await until(lambda: all("after" in board.bodies for board in group.boards.values()), "the last")
            assert [message for message in group.boards["eve"].bodies if message != "after"] == []
            assert group.groups["eve"].view.start == {"bo": 1}

    run(test())


def test_a_sponsor_that_dies_before_the_state_is_complete_leaves_no_trace(tmp_path: Path) -> None:
    async def test() -> None:
        group = Room(tmp_path)
        try:
            await asyncio.gather(*(start(group, name, 32 * MIB) for name in ("ana", "bo", "cy")))
            contacts = [group.founders[0], group.founders[1]]
            joining = asyncio.create_task(start(group, "dana", contact=contacts))
            await until(lambda: received(group, "dana") > 4 * MIB, "a part of the state")
            await group.stop("ana")
            assert "dana" not in group.groups["bo"].view
            await joining
            names = ["ana", "bo", "cy", "dana"]
            await until(lambda: group.groups["bo"].view.names == names, "dana, once")
            kinds = [change.kind for change in group.boards["bo"].changes if change.name == "dana"]
            assert kinds == ["joined"]
        finally:
            await group.close()

    attempts_before = attempts._ATTEMPT_SECONDS, attempts._STATE_SECONDS
    attempts._ATTEMPT_SECONDS = attempts._STATE_SECONDS = 1.0
    try:
        run(test())
    finally:
        attempts._ATTEMPT_SECONDS, attempts._STATE_SECONDS = attempts_before


def test_a_snapshot_that_fails_halfway_admits_no_newcomer_and_affects_no_member(tmp_path: Path) -> None:
    def fail() -> Iterator[bytes]:
        yield b"a part"
        raise ValueError("the rest is lost")

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            cast("Any", group.groups["ana"])._sponsor.snapshot = fail
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await group.start("dana")
            await group.groups["ana"].broadcast("goes on")
            await group.agree_on_last("goes on")
            assert not list(tmp_path.glob("ana/snapshot-*"))

    run(test())
