"""A member's store: what it refuses, and what it never overwrites."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from memory_disk import MemoryDisk
from stores import WHO, files, left, made, opened

from antecede.errors import InputError
from antecede.live import versions
from antecede.live.events import Broadcast, Cursor, PacketReceived, TimerFired
from antecede.live.store import journal as journal_module
from antecede.live.store import records
from antecede.live.store.records import Checkpoint, StoredPacket

# What is refused


@pytest.mark.parametrize("changed", [{"group": "foes"}, {"me": "bo"}, {"protocol": "pc"}, {"more": 1}])
def test_the_store_of_another_member_is_refused_and_left_unchanged(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    path = made(tmp_path / "store")
    before = files(path)
    with pytest.raises(InputError, match=next(iter(changed))):
        opened(path, {**WHO, **changed})
    assert files(path) == before


@pytest.mark.parametrize(
    ("version", "which"), [(max(versions.STORE) + 1, "a newer"), (min(versions.STORE) - 1, "an older")]
)
def test_a_store_of_another_version_is_refused_and_left_unchanged(
    tmp_path: Path, version: int, which: str
) -> None:
    path = made(tmp_path / "store")
    file = path / "checkpoint-1"
    mine, other = (records.MAGIC % each for each in (versions.FIXED_STORE, version))
    file.write_bytes(file.read_bytes().replace(mine, other))
    before = files(path)
    with pytest.raises(InputError, match=f"use {which} Antecede"):
        opened(path)
    assert files(path) == before


@pytest.mark.parametrize("content", [b"", b"xy", b"SQLite format 3\0" + bytes(5000)])
def test_a_file_in_place_of_a_store_is_refused_and_left_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"letter\.txt cannot be used as a store: it is a file"):
        opened(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_foreign_folder_or_an_impossible_path_is_refused_as_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"something else in it \(file\)"):
        opened(tmp_path)
    with pytest.raises(InputError, match="store"):
        opened(tmp_path / "file" / "store")


def test_foreign_files_in_a_store_folder_are_left_alone(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    (path / "README").write_text("ana's")
    assert left(path)[1] == [TimerFired(1)]
    assert (path / "README").read_text() == "ana's"


def test_a_store_in_use_is_refused_by_the_same_and_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    code = (
        "from antecede.live.store.disk import FileDisk; from antecede.live.store.journal import Journal; "
        f"Journal(FileDisk({str(path)!r}), {WHO!r})"
    )
    with opened(path) as journal:
        with pytest.raises(InputError, match="in use"):
            opened(path)
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "in use" in other.stderr
        journal.write([TimerFired(1)])
    assert len(left(path)[1]) == 1


def test_a_refusal_leaves_the_store_free_for_its_owner(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    for _ in range(3):
        with pytest.raises(InputError):
            opened(path, {**WHO, "me": "bo"})
    left(path)


def test_only_the_owner_can_read_a_store(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = made(tmp_path / "deep" / "store")
        with opened(path) as journal:
            journal.write([], Checkpoint(b"state", []))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert len(list(path.iterdir())) == 4
    for file in path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_store_works_without_fcntl(tmp_path: Path) -> None:
    """As on Windows, which has msvcrt instead; here a stand-in that locks by a file."""
    code = f"""
import asyncio, os, sys, types
sys.modules["fcntl"] = None
sys.modules["resource"] = None
locked = set()
def locking(descriptor, mode, count):
    key = os.fstat(descriptor).st_ino
    if key in locked:
        raise OSError("locked")
    locked.add(key)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
import antecede
from antecede.errors import InputError

async def main():
    async with antecede.join("room", me="ana", peers=["bo"], store={str(tmp_path / "store")!r}) as group:
        print((await group.broadcast("hello")).seq)
        try:
            await antecede.join("room", me="ana", peers=["bo"], store={str(tmp_path / "store")!r})
        except InputError as error:
            print(error, error.__cause__)

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    sentence = f"{tmp_path / 'store'} is in use by another process"
    assert ran.stdout.splitlines() == ["1", f"{sentence} None"], ran.stderr


# What is written


def test_a_group_commit_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    before = left(path)
    wrong = PacketReceived(0, 1 << 70, b"", 1)  # more than can be written down
    packets = [StoredPacket(b"", [(0, 1)]), StoredPacket(b"", [], [(0, 1, 1 << 70)])]
    with opened(path) as journal:
        with pytest.raises(OverflowError):
            journal.write([TimerFired(2), wrong])
        with pytest.raises(OverflowError):
            journal.write([], Checkpoint(b"new", packets))
        assert (journal.state(), list(journal.packets())) == (b"", [])
    assert left(path) == before


def test_a_checkpoint_takes_the_place_of_the_log(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    with opened(path) as journal:
        journal.write([], Checkpoint(b"state", [StoredPacket(b"packet", [(1, 1)])]))
        journal.write([TimerFired(2)])
    with opened(path) as journal:
        assert journal.state() == b"state"
        assert list(journal.records()) == [TimerFired(2)]
        assert [packet.data for packet in journal.packets()] == [b"packet"]
        assert journal.cursor == Cursor(3, 1)
    assert sorted(files(path)) == ["checkpoint-2", "cursor", "log-2"]


def test_checkpoints_are_due_in_proportion_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due at twice as much log as checkpoint, packets included: checkpoints add at most half to the
    writes."""
    monkeypatch.setattr(journal_module, "_MIN_LOG", 100)
    disk, written, logged = MemoryDisk(tmp_path), 0, 0
    with opened(disk) as journal:
        for number in range(2_000):
            packets = [StoredPacket(bytes(5_000), [(0, 1)])] if number > 1_000 else []
            if journal.checkpoint_is_due:
                journal.write([], Checkpoint(b"state", packets))
                written += len(disk.files[f"checkpoint-{journal._generation}"].content)
            before = journal.size()
            journal.write([TimerFired(number)])
            logged += journal.size() - before
    assert 0 < written <= 0.6 * logged


def test_the_size_of_a_store_is_that_of_its_files(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as journal:
        before = journal.size()
        journal.write([Broadcast([bytes(100_000)], 1)])
        assert journal.size() > before + 100_000
        size = journal.size()
    assert size == sum(map(len, files(tmp_path / "store").values()))


def test_the_cursor_and_the_log_are_written_concurrently_by_two_threads(tmp_path: Path) -> None:
    """The loop moves the cursor while the store's thread writes."""
    with opened(tmp_path / "store") as journal:
        errors: list[Exception] = []

        def write() -> None:
            try:
                for _ in range(3):
                    for _ in range(8):
                        journal.write([PacketReceived(0, 1, bytes(1_000_000), 1)])
                    journal.write([], Checkpoint(b"state", []))
            except OSError as error:
                errors.append(error)

        writing = threading.Thread(target=write)
        writing.start()
        count = 0
        while writing.is_alive():
            count += 1
            journal.cursor = Cursor(count, 0)
        writing.join()
        assert errors == []
    with opened(tmp_path / "store") as journal:
        assert (journal.cursor, journal.state()) == (Cursor(count, 0), b"state")
