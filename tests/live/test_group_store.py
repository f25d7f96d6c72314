"""The guarantee of a store: despite kills, full disks and failures, no accepted message is lost or
duplicated."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, lines, process, run, until
from stores import SOCKET

import antecede
from antecede.errors import InputError, StoreError
from antecede.live.group import Group
from antecede.live.messages import MessageId
from antecede.live.store.disk import FileDisk


def ana(folder: Path, **options: Any) -> dict[str, Any]:
    """Ana has a store and is dialled by Bo."""
    return {"group": "room", "me": "ana", "peers": ["bo"], "store": str(folder / "ana.db"), **options}


def bo(folder: Path, at: Group | str, **options: Any) -> dict[str, Any]:
    where = at if isinstance(at, str) else at.address
    return {"group": "room", "me": "bo", "peers": [f"ana@{where}"], "store": str(folder / "bo.db"), **options}


def test_accepted_messages_survive_their_sender(tmp_path: Path) -> None:
    async def test() -> None:
        async with process(ana(tmp_path, listen=":0"), broadcast=list(range(2000))) as made:
            await lines(made, 30)
            made.kill()
        async with (
            antecede.join(**ana(tmp_path, listen=":0")) as first,
            antecede.join(**bo(tmp_path, first)) as second,
        ):
            accepted = first.delivered()["ana"]
            assert accepted >= 30
            last = await first.broadcast("and on")
            assert last == MessageId("ana", accepted + 1)
            ear = Ear(second)
            await ear.has(accepted + 1)
            assert ear.bodies() == [*range(accepted), "and on"]
            assert [each.seq for each in ear.messages] == list(range(1, accepted + 2))
            await first.drain()

    run(test())


@pytest.mark.parametrize("does", [("take", "3"), ("take", "3", "ack")])
def test_only_the_message_in_flight_is_redelivered(tmp_path: Path, does: tuple[str, ...]) -> None:
    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0", own=False)) as first:
            for number in range(1, 6):
                await first.broadcast(number)
            async with process(bo(tmp_path, first), *does) as made:
                took = await lines(made, 4 if "ack" in does else 3)
                assert took[:3] == [f"took ana:{number} first" for number in (1, 2, 3)]
                made.kill()
            async with antecede.join(**bo(tmp_path, first)) as second:
                ear = Ear(second)
                rest = [(4, False), (5, False)] if "ack" in does else [(3, True), (4, False), (5, False)]
                await ear.has(len(rest))
                assert [(each.seq, each.redelivered) for each in ear.messages] == rest
                # A reply is after all of them, whichever of them were before the kill.
                await second.broadcast("thanks")
                assert (await anext(first)).causes == (MessageId("ana", 5),)

    run(test())


def test_a_message_is_redelivered_until_it_is_acked(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0")) as first:
            await first.broadcast("hard to digest")
            for again in ("first", "again", "again"):
                async with process(bo(tmp_path, first), "take", "1") as made:
                    assert await lines(made, 1) == [f"took ana:1 {again}"]
                    made.kill()

    run(test())


def test_an_exception_leaves_the_message_in_flight(tmp_path: Path) -> None:
    """The message was not processed: leaving by an exception counts like a crash."""

    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0")) as first:
            await first.broadcast("poison")
            await first.broadcast("wholesome")
            with pytest.raises(ZeroDivisionError):
                async with antecede.join(**bo(tmp_path, first)) as second:
                    async for message in second:
                        assert message.body == "poison"
                        raise ZeroDivisionError
            async with antecede.join(**bo(tmp_path, first)) as second:
                message = await anext(second)
                assert (message.body, message.redelivered) == ("poison", True)
                message = await anext(second)
                assert (message.body, message.redelivered) == ("wholesome", False)
                second.ack(message)
            await first.broadcast("dessert")
            async with antecede.join(**bo(tmp_path, first)) as second:
                assert (await anext(second)).body == "dessert"

    run(test())


@pytest.mark.parametrize("what", ["ready", "changes_since"])
def test_an_internal_error_ends_the_group_with_the_reason(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that died in silence would leave broadcasts waiting for ever."""

    def fail(*_: object) -> None:
        raise ValueError("cannot be")

    async def test() -> None:
        async with (
            antecede.join("room", me="ana", peers=["bo"], listen=":0", store=tmp_path / "a.db") as ana,
            antecede.join("room", me="bo", peers=[f"ana@{ana.address}"]),
        ):
            await until(lambda: ana.connected)
            monkeypatch.setattr(ana._core if what == "ready" else ana._core.stability, what, fail)
            with pytest.raises(StoreError, match="cannot be"):
                while True:
                    await ana.broadcast("word")

    run(test())


def test_a_broadcast_that_waits_while_a_write_fails_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may = threading.Event(), threading.Event()

    def fail(*_: object) -> None:
        began.set()
        may.wait(10)
        raise OSError("the disk is gone")

    async def test() -> None:
        async with antecede.join("room", me="ana", peers=["bo"], store=tmp_path / "a.db") as ana:
            monkeypatch.setattr(ana._journal, "write", fail)
            broadcasts = [asyncio.create_task(ana.broadcast("before"))]
            await until(began.is_set)
            broadcasts.append(asyncio.create_task(ana.broadcast("while it is written")))
            await until(lambda: ana._driver._waiters)
            leaving = asyncio.create_task(ana.aclose())
            await until(lambda: ana._driver._is_closing)
            may.set()
            await leaving
            errors = await asyncio.gather(*broadcasts, return_exceptions=True)
            assert all(isinstance(each, StoreError) and "the disk is gone" in str(each) for each in errors)

    run(test())


def test_a_full_disk_stops_the_member_without_losing_accepted_messages(tmp_path: Path) -> None:
    async def test() -> None:
        most = ("times", "200", "most", "2000000")
        async with process(ana(tmp_path, listen=":0"), *most, broadcast=["x" * 10_000]) as made:
            printed: list[str] = []
            while not printed or printed[-1].startswith("accepted"):
                printed += await lines(made, 1)
            assert printed[-1].startswith(f"StoreError: {tmp_path / 'ana.db'}: ")
            assert "the member stops" in printed[-1]
            made.kill()
        accepted = len(printed) - 1
        assert 10 < accepted < 200
        async with (
            antecede.join(**ana(tmp_path, listen=":0")) as first,
            antecede.join(**bo(tmp_path, first)) as second,
        ):
            assert first.delivered()["ana"] == accepted
            ear = Ear(second)
            await ear.has(accepted)
            assert [each.seq for each in ear.messages] == list(range(1, accepted + 1))

    run(test())


async def _spoil(group: Group) -> None:
    """From now on the log cannot be written, as on a disk that was mounted anew."""
    assert group._journal is not None
    disk = group._journal._disk
    assert isinstance(disk, FileDisk)
    for name, log in disk._logs.items():
        read_only = os.open(disk.path / name, os.O_RDONLY)
        os.dup2(read_only, log.descriptor)
        os.close(read_only)
    disk._open = disk.truncate = _refuse  # type: ignore[method-assign, assignment]


def _refuse(*_: object) -> int:
    raise OSError(errno.EROFS, "Read-only file system")


def test_a_failing_store_ends_the_group_and_its_connections(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0")) as first:
            ear = Ear(first)
            with pytest.raises(StoreError, match=r"Read-only file system|Bad file descriptor"):
                async with antecede.join(**bo(tmp_path, first)) as second:
                    await second.broadcast("accepted")
                    await ear.has(1)
                    watcher, watched = second.events(), []
                    await _spoil(second)
                    with pytest.raises(StoreError, match=r"Read-only file system|Bad file descriptor"):
                        await second.broadcast("not accepted")
                    with pytest.raises(StoreError):
                        await second.broadcast("nor this")
                    with pytest.raises(StoreError):
                        await second.drain()
                    await anext(second)
            watched = [notice.kind async for notice in watcher]
            assert "store" in watched
            await until(lambda: not first.connected, "the connection is closed")
            async with antecede.join(**bo(tmp_path, first)) as second:
                assert second.delivered()["bo"] == 1
                assert (await second.broadcast("accepted, too")).seq == 2
                await ear.has(2)
            assert ear.bodies() == ["accepted", "accepted, too"]

    run(test())


def test_nothing_is_written_after_a_failed_write(tmp_path: Path) -> None:
    """Input that arrives while a write fails must not be written on its own, or positions would be wrong."""

    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0")) as first:
            await first.broadcast("accepted")
            journal, begun, followed = first._journal, threading.Event(), threading.Event()
            assert journal is not None
            write = journal.write

            def fails_once(*_: Any) -> None:
                journal.write = write  # type: ignore[method-assign]
                begun.set()
                followed.wait(10)
                raise OSError(errno.ENOSPC, "the disk is full")

            journal.write = fails_once  # type: ignore[method-assign, assignment]
            failing = asyncio.create_task(first.broadcast("fails"))
            await until(begun.is_set)
            following = asyncio.create_task(first.broadcast("follows"))
            await until(lambda: first._core.has_ready, "it waits for the next write")
            followed.set()
            for each in (failing, following):
                with pytest.raises(StoreError, match="disk is full"):
                    await each
        async with antecede.join(**ana(tmp_path, listen=":0")) as first:
            assert first.delivered()["ana"] == 1

    run(test())


def test_a_store_that_fails_during_the_handshake_stops_the_member(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0")) as first:
            ear = Ear(first, listens=False)
            await _spoil(first)
            async with antecede.join(**bo(tmp_path, first)):
                with pytest.raises(StoreError, match=r"Read-only file system|Bad file descriptor"):
                    await anext(first)
            assert len(ear.texts("store")) == 1

    run(test())


def _reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileDisk, "boot_id", lambda _: b"another boot")


def test_after_a_power_failure_every_possibly_delivered_message_is_marked_redelivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has the log, which was synced, and the cursor as it was when the store was opened."""

    async def test() -> None:
        async with antecede.join(**ana(tmp_path, listen=":0", own=False)) as first:
            for number in range(1, 6):
                await first.broadcast(number)
            async with antecede.join(**bo(tmp_path, first)) as second:
                cursor = (tmp_path / "bo.db" / "cursor").read_bytes()
                async for message in second:
                    assert not message.redelivered
                    if message.seq == 4:
                        break
                await until(lambda: second._core.stability.received[0].base == 5)
                shutil.copytree(tmp_path / "bo.db", tmp_path / "failed" / "bo.db", ignore=SOCKET)
        (tmp_path / "failed" / "bo.db" / "cursor").write_bytes(cursor)
        _reboot(monkeypatch)
        async with (
            antecede.join(**ana(tmp_path, listen=":0", own=False)) as first,
            antecede.join(**bo(tmp_path / "failed", first)) as second,
        ):
            ear = Ear(second)
            await first.broadcast(6)
            await until(lambda: 6 in ear.bodies())
            marks = {each.seq: each.redelivered for each in ear.messages}
            assert not marks.pop(6)
            assert set(range(2, 6)) <= marks.keys()
            assert all(marks.values())

    run(test())


def test_a_store_that_cannot_be_used_is_refused_with_its_name(tmp_path: Path) -> None:
    async def join(**options: Any) -> None:
        async with antecede.join(**{**ana(tmp_path), **options}):
            pass

    async def refused(reason: str, **options: Any) -> None:
        with pytest.raises(InputError, match=reason):
            await join(**options)

    async def test() -> None:
        await join()
        (tmp_path / "file").write_text("a file")
        (tmp_path / "text.db").write_text("this is no store " * 100)
        await refused(r"file", store=tmp_path / "file" / "ana.db")
        await refused(r"text\.db cannot be used as a store: it is a file", store=tmp_path / "text.db")
        await refused("cannot be used as a store: it has something else in it", store=tmp_path)
        await refused(r"/proc/ana\.db", store="/proc/ana.db")
        await refused("store of another group: room, not hall", group="hall")
        await refused("store of another member: ana, not eve", me="eve")
        await refused("store of another protocol: mbcp, not timestamp", protocol="timestamp")
        await refused("the group of ana and bo; a fixed list of members cannot change", peers=["bo", "cleo"])
        async with antecede.join(**ana(tmp_path)):
            await refused("in use by another process")
        (tmp_path / "ana.db" / "cursor").unlink()
        await refused(r"ana\.db/cursor is missing")

    run(test())


def _copy(store: Path, to: Path) -> None:
    shutil.copytree(store, to / store.name, ignore=SOCKET)


@pytest.mark.parametrize("who_spoke", ["ana", "bo"])
def test_an_older_copy_of_a_store_is_refused_by_its_name(tmp_path: Path, who_spoke: str) -> None:
    """Bo's store is an older copy; whether he lost sent or received messages, he must act."""

    async def test() -> None:
        where = {"listen": ":0"}
        async with antecede.join(**ana(tmp_path, **where)) as first:
            at_ana = Ear(first)
            async with antecede.join(**bo(tmp_path, first)) as second:
                await first.broadcast("early")
                assert (await anext(second)).body == "early"
                await second.broadcast("early, too")
                await at_ana.has(1)
                await first.drain()
        _copy(tmp_path / "bo.db", tmp_path / "before")
        async with antecede.join(**ana(tmp_path, **where)) as first:
            at_ana = Ear(first)
            async with antecede.join(**bo(tmp_path, first)) as second:
                at_bo = Ear(second)
                await (first if who_spoke == "ana" else second).broadcast("late")
                await (at_bo if who_spoke == "ana" else at_ana).has(1)
                await (first if who_spoke == "ana" else second).drain()
            async with antecede.join(**bo(tmp_path / "before", first)) as second:
                at_bo = Ear(second)
                await until(lambda: at_bo.texts("refused") and at_ana.texts("refused"))
                for ear in (at_ana, at_bo):
                    text = ear.texts("refused")[0].removeprefix("ana refuses bo: ")
                    assert text.startswith("bo has an older store than before")
                assert not first.connected

    run(test())
