"""A member's file: what it refuses, what it never overwrites, and what is left after a kill at any step."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from core_group import Group, roster

from antecede.errors import InputError
from antecede.live.core import Core
from antecede.live.events import Broadcast, Cursor, LogRecord, PacketReceived, TimerFired
from antecede.live.recovery import restore
from antecede.live.store import journal as journal_module
from antecede.live.store.journal import Checkpoint, Journal, StoredPacket

WHO = {"group": "friends", "me": "ana", "protocol": "mbcp"}


def made(path: Path) -> Path:
    with Journal(path, WHO, sync=False) as journal:
        journal.write([TimerFired(1)])
        journal.cursor = Cursor(3, True)
    return path


def left(path: Path) -> tuple[Cursor, list[LogRecord], str]:
    with Journal(path, WHO, sync=False) as journal:
        return journal.cursor, list(journal.records()), journal.store


@pytest.mark.parametrize("changed", [{"group": "foes"}, {"me": "bo"}, {"protocol": "pc"}, {"more": 1}])
def test_the_store_of_another_is_refused_and_stays_as_it_is(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    path = made(tmp_path / "store")
    before = left(path)
    with pytest.raises(InputError, match=next(iter(changed))):
        Journal(path, {**WHO, **changed}, sync=False)
    assert left(path) == before


@pytest.mark.parametrize(("later", "which"), [(1, "a newer"), (-1, "an older")])
def test_a_store_of_another_version_is_refused_and_stays_as_it_is(
    tmp_path: Path, later: int, which: str
) -> None:
    path = made(tmp_path / "store")
    with sqlite3.connect(path) as base:
        base.execute(f"PRAGMA user_version = {journal_module.VERSION + later}")
    base.close()
    bytes_before = path.read_bytes()
    with pytest.raises(InputError, match=f"use {which} Antecede"):
        Journal(path, WHO, sync=False)
    assert path.read_bytes() == bytes_before


@pytest.mark.parametrize("tables", ["CREATE TABLE photos (id INTEGER)", "PRAGMA application_id = 77"])
def test_a_database_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, tables: str) -> None:
    path = tmp_path / "photos.sqlite"
    with sqlite3.connect(path) as base:
        base.execute(tables)
    base.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="something else"):
        Journal(path, WHO)
    assert path.read_bytes() == before
    assert not path.with_name("photos.sqlite-cursor").exists()


@pytest.mark.parametrize("content", [b"xy", b"not a database" * 1000, b"SQLite format 3\0", bytes(5000)])
def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"letter\.txt"):
        Journal(path, WHO)
    assert path.read_bytes() == content
    assert not path.with_name("letter.txt-cursor").exists()


def test_a_folder_or_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "store"):
        with pytest.raises(InputError, match="store"):
            Journal(path, WHO)


def test_a_store_in_use_is_refused_by_the_same_and_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    code = f"from antecede.live.store.journal import Journal; Journal({str(path)!r}, {WHO!r})"
    with Journal(path, WHO, sync=False) as journal:
        with pytest.raises(InputError, match="in use"):
            Journal(path, WHO, sync=False)
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "in use" in other.stderr
        journal.write([TimerFired(1)])
    assert len(left(path)[1]) == 1


def test_a_refusal_leaves_the_store_free_for_its_owner(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    for _ in range(3):
        with pytest.raises(InputError):
            Journal(path, {**WHO, "me": "bo"}, sync=False)
    left(path)


def test_a_kill_at_any_step_of_making_a_store_leaves_one_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk as it is before each statement and each file, not tidied up."""
    steps: list[Path] = []
    here = tmp_path / "made"

    def photograph(*_: object) -> None:
        steps.append(tmp_path / f"step-{len(steps)}")
        shutil.copytree(here, steps[-1])

    connect, map_cursor = sqlite3.connect, journal_module._map_cursor

    def watched(*args: object, **more: object) -> sqlite3.Connection:
        photograph()
        base = connect(*args, **more)  # type: ignore[call-overload]
        base.set_trace_callback(photograph)
        assert isinstance(base, sqlite3.Connection)
        return base

    def watched_map(path: Path, new: bool) -> object:
        photograph()
        mapped = map_cursor(path, new)
        photograph()
        return mapped

    monkeypatch.setattr(sqlite3, "connect", watched)
    monkeypatch.setattr(journal_module, "_map_cursor", watched_map)
    Journal(here / "store", WHO, sync=False).close()
    monkeypatch.undo()
    assert len(steps) > 15
    for step in steps:
        for _ in range(2):
            with Journal(step / "store", WHO, sync=False) as journal:
                assert (journal.state(), journal.cursor.in_flight, len(journal.store)) == (b"", False, 16)
                assert list(journal.records()) == []
                journal.cursor = Cursor(2, False)
        assert left(step / "store")[0] == Cursor(2, False)


def test_a_group_commit_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    before = left(path)
    wrong = PacketReceived(0, 1 << 70, b"", 1)  # more than can be written down
    packets = [StoredPacket(b"", [(0, 1)]), StoredPacket(b"", [], [(0, 1, 1 << 70)])]
    with Journal(path, WHO, sync=False) as journal:
        with pytest.raises(OverflowError):
            journal.write([TimerFired(2), wrong])
        with pytest.raises(OverflowError):
            journal.write([], Checkpoint(b"new", packets, {}, [], None))
        assert (journal.state(), list(journal.packets())) == (b"", [])
    assert left(path) == before


@pytest.mark.parametrize("content", [None, b"", b"1234567", b"123456789"])
def test_a_store_without_its_cursor_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """To start from 0 would deliver everything again."""
    path = made(tmp_path / "store")
    beside = path.with_name("store-cursor")
    beside.unlink()
    if content is not None:
        beside.write_bytes(content)
    with pytest.raises(InputError, match="store-cursor"):
        Journal(path, WHO, sync=False)
    assert beside.exists() == (content is not None)


def damaged(tmp_path: Path, statement: str, *values: object) -> None:
    """Restore a member whose store somebody wrote into."""
    group = Group(roster("mbcp", 2), tmp_path)
    for rank in (0, 1):
        group.broadcast(rank)
        group.peers[rank].flush(checkpoint=True)
        group.broadcast(rank)
        group.peers[rank].flush()
    group.carry(0, 1)
    peer = group.peers[1]
    peer.flush()
    while peer.take(1):
        pass
    identity = {"group": "test", "me": "m1"}
    path = peer.journal.path
    group.close()
    with sqlite3.connect(path) as base:
        base.execute(statement, values)
    base.close()
    with Journal(path, identity, sync=False) as journal:
        restore(Core(group.roster.create_protocol("m1")), journal)


def encoded(*records: LogRecord) -> bytes:
    return msgspec.msgpack.encode(records)


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE about SET value = ? WHERE key = 'state'", b"nonsense"),
        ("UPDATE about SET value = substr(value, 1, ?) WHERE key = 'state'", 20),
        ("UPDATE about SET value = ? WHERE key = 'identity'", b"{"),
        ("UPDATE about SET value = ? WHERE key = 'identity'", b"[]"),
        ("UPDATE about SET value = ? WHERE key = 'identity'", b'{"me": "\xff"}'),
        ("DELETE FROM about WHERE key = ?", "identity"),
        ("DROP TABLE IF EXISTS about", None),
        ("DROP TABLE log", None),
        ("DELETE FROM log WHERE id > ?", 0),
        ("UPDATE log SET records = ?", b"nonsense"),
        ("UPDATE log SET records = ?", encoded(PacketReceived(0, 9, b"", 1))),
        ("UPDATE log SET records = ?", encoded(PacketReceived(9, 1, b"", 1))),
        ("UPDATE log SET records = ?", encoded(PacketReceived(0, 2, b"nonsense", 1))),
        ("UPDATE packets SET packets = ?", b"nonsense"),
        ("UPDATE packets SET packets = ?", msgspec.msgpack.encode([StoredPacket(b"", [(9, 1)])])),
        ("UPDATE packets SET packets = ?", msgspec.msgpack.encode([StoredPacket(b"", [], [(9, 1, 1)])])),
        ("UPDATE packets SET retention = ?", b"nonsense"),
    ],
)
def test_a_damaged_store_is_refused_in_words(tmp_path: Path, statement: str, value: object) -> None:
    with pytest.raises(InputError, match="store"):
        damaged(tmp_path, statement, *([] if value is None else [value]))


def test_the_size_of_a_store_is_that_of_its_files(tmp_path: Path) -> None:
    with Journal(tmp_path / "store", WHO, sync=False) as journal:
        before = journal.size()
        journal.write([Broadcast([bytes(100_000)], 1)])
        assert journal.size() > before + 100_000
    files = sum(file.stat().st_size for file in tmp_path.iterdir() if "lock" not in file.name)
    with Journal(tmp_path / "store", WHO, sync=False) as journal:
        assert journal.size() >= files


def test_two_threads_write_and_neither_is_in_the_other_s_way(tmp_path: Path) -> None:
    """The loop remembers a partner while the store's thread gives pages back."""
    with Journal(tmp_path / "store", WHO, sync=False) as journal:
        errors: list[Exception] = []

        def write() -> None:
            try:
                for _ in range(3):
                    for _ in range(8):
                        journal.write([PacketReceived(0, 1, bytes(4_000_000), 1)])
                    journal.write([], Checkpoint(b"state", [], {}, [], None))
            except sqlite3.Error as error:
                errors.append(error)

        writing = threading.Thread(target=write)
        writing.start()
        count = 0
        while writing.is_alive():
            count += 1
            journal.remember(1, f"{count}")
        writing.join()
        assert errors == []
        assert (journal.remembered(1), journal.state()) == (f"{count}", b"state")
