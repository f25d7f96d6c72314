"""A member's store: what it refuses, what it never overwrites, and what is left after a kill or a power
failure at any step, a full disk, or a damaged byte."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import fuzz_stores
import msgspec
import pytest
from core_group import Group, roster
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_disk import MemoryDisk

from antecede.errors import InputError
from antecede.live.core import Core
from antecede.live.events import Broadcast, Cursor, LogRecord, PacketReceived, TimerFired
from antecede.live.recovery import restore
from antecede.live.store import journal as journal_module
from antecede.live.store import records
from antecede.live.store.cursor import CursorFile
from antecede.live.store.disk import Disk, FileDisk
from antecede.live.store.journal import Journal
from antecede.live.store.records import Checkpoint, Commit, Link, StoredPacket

WHO = {"group": "friends", "me": "ana", "protocol": "mbcp"}


def opened(disk: Disk | Path, who: Mapping[str, object] = WHO, sync: bool = False) -> Journal:
    return Journal(FileDisk(disk) if isinstance(disk, Path) else disk, dict(who), sync=sync)


def made(path: Path) -> Path:
    with opened(path) as journal:
        journal.write([TimerFired(1)])
        journal.cursor = Cursor(3, 1)
    return path


def left(disk: Disk | Path) -> tuple[Cursor, list[LogRecord], str]:
    with opened(disk) as journal:
        return journal.cursor, list(journal.records()), journal.store


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}


# What is refused


@pytest.mark.parametrize("changed", [{"group": "foes"}, {"me": "bo"}, {"protocol": "pc"}, {"more": 1}])
def test_the_store_of_another_is_refused_and_stays_as_it_is(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    path = made(tmp_path / "store")
    before = files(path)
    with pytest.raises(InputError, match=next(iter(changed))):
        opened(path, {**WHO, **changed})
    assert files(path) == before


@pytest.mark.parametrize(("later", "which"), [(1, "a newer"), (-1, "an older")])
def test_a_store_of_another_version_is_refused_and_stays_as_it_is(
    tmp_path: Path, later: int, which: str
) -> None:
    path = made(tmp_path / "store")
    file = path / "checkpoint-1"
    mine, other = (records.MAGIC % version for version in (records.VERSION, records.VERSION + later))
    file.write_bytes(file.read_bytes().replace(mine, other))
    before = files(path)
    with pytest.raises(InputError, match=f"use {which} Antecede"):
        opened(path)
    assert files(path) == before


@pytest.mark.parametrize("content", [b"", b"xy", b"SQLite format 3\0" + bytes(5000)])
def test_a_file_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"letter\.txt cannot be used as a store: it is a file"):
        opened(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_of_something_else_or_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"something else in it \(file\)"):
        opened(tmp_path)
    with pytest.raises(InputError, match="store"):
        opened(tmp_path / "file" / "store")


def test_what_others_put_beside_a_store_s_files_stays(tmp_path: Path) -> None:
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


def test_a_store_works_where_there_is_no_fcntl(tmp_path: Path) -> None:
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
            print(error)

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["1", f"{tmp_path / 'store'} is in use by another process"], ran.stderr


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


def test_checkpoints_are_due_by_what_they_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much log as checkpoint, packets included: at most half as much is written again."""
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


def test_two_threads_write_and_neither_is_in_the_other_s_way(tmp_path: Path) -> None:
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


# Kills, power failures and full disks


class StopError(Exception):
    """The process is killed, or the power fails, here."""


def life(disk: MemoryDisk, accepted: list[int], sync: bool = True) -> None:
    """Open a store, or go on with it; a member that logs numbers, now and then with a checkpoint. `accepted`
    has those whose commit returned."""
    journal = opened(disk, sync=sync)  # and not closed by an exception: the process is gone
    state = msgspec.msgpack.decode(journal.state() or b"\x90", type=list[int])
    had = state + [record.time for record in journal.records()]
    assert had[: len(accepted)] == accepted
    assert len(had) <= len(accepted) + 1
    accepted[:] = had
    for step in range(5):
        number = len(accepted) + 1
        if step == 3:
            journal.write([], Checkpoint(msgspec.msgpack.encode([*accepted, number]), []))
        else:
            journal.write([TimerFired(number)])
        accepted.append(number)
        journal.cursor = Cursor(number, 0)
    journal.close()


def stop_at(operation: int) -> Callable[[str, str], None]:
    passed = [0]

    def before(*_: str) -> None:
        passed[0] += 1
        if passed[0] > operation:
            raise StopError

    return before


def test_what_was_accepted_is_there_after_a_kill_or_a_power_failure_at_any_operation() -> None:
    operation, cases = 0, 0
    while True:
        disk, accepted = MemoryDisk(), list[int]()
        life(disk, accepted)
        disk.before = stop_at(operation)
        try:
            life(disk, accepted)
        except StopError:
            disk.before = lambda *_: None
        else:
            break
        later = [disk.killed()] + [
            disk.after_power_failure(names, share)
            for names in (False, True)
            for share in (None, 0.0, 0.3, 0.7, 1.0)
        ]
        for after in later:
            cases += 1
            survivors = list(accepted)
            life(after, survivors)
            life(after, survivors)
        operation += 1
    assert operation > 15
    assert cases == 11 * operation


def test_a_kill_at_any_operation_of_making_a_store_leaves_one_that_can_be_used() -> None:
    for operation in range(9):
        disk = MemoryDisk()
        disk.before = stop_at(operation)
        with pytest.raises(StopError):
            life(disk, [])
        for after in (disk.killed(), *(disk.after_power_failure(names, 0.5) for names in (False, True))):
            survivors: list[int] = []
            life(after, survivors)
            assert survivors == [1, 2, 3, 4, 5]


@settings(max_examples=300)
@given(
    stops=st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from([None, 0.0, 0.4, 1.0]))),
    kills=st.integers(0, 255),
)
def test_a_store_survives_any_number_of_failures(
    stops: list[tuple[int, bool, float | None]], kills: int
) -> None:
    disk, accepted = MemoryDisk(), list[int]()
    for turn, (operation, names, share) in enumerate(stops):
        disk.before = stop_at(operation)
        try:
            life(disk, accepted)
            disk.before = lambda *_: None
        except StopError:
            disk = disk.killed() if kills >> turn % 8 & 1 else disk.after_power_failure(names, share)
    life(disk, accepted)


@pytest.mark.parametrize("sync", [True, False])
def test_a_full_disk_loses_nothing_and_what_was_not_accepted_does_not_come_back(sync: bool) -> None:
    disk, accepted = MemoryDisk(), list[int]()
    life(disk, accepted, sync)
    full = sum(len(file.content) for file in disk.files.values())
    for room in range(0, 400, 3):
        disk.capacity = full + room
        before = list(accepted)
        with contextlib.suppress(OSError):
            life(disk, accepted, sync)
        disk = disk.killed()
        with opened(disk) as journal:
            state = msgspec.msgpack.decode(journal.state(), type=list[int])
            assert state + [record.time for record in journal.records()] == accepted
        assert accepted[: len(before)] == before
        full = sum(len(file.content) for file in disk.files.values())


# The cursor


def test_the_cursor_survives_a_kill_at_once_and_a_power_failure_to_within_a_commit() -> None:
    disk = MemoryDisk()
    journal = opened(disk, sync=True)
    journal.cursor = Cursor(1, 0)
    journal.write([TimerFired(1)])
    journal.cursor = Cursor(2, 1)
    with opened(disk.killed()) as after:
        assert (after.cursor, after.cursor_is_exact) == (Cursor(2, 1), True)
    for names in (False, True):
        with opened(disk.after_power_failure(names, None)) as after:
            assert (after.cursor, after.cursor_is_exact) == (Cursor(1, 0), False)


def test_a_store_that_was_closed_or_killed_in_the_same_boot_has_an_exact_cursor() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    disk.boot += 1
    with opened(disk) as journal:
        assert journal.cursor_is_exact
    journal = opened(disk)
    assert opened(disk.killed()).cursor_is_exact
    rebooted = disk.killed()
    rebooted.boot += 1
    assert not opened(rebooted).cursor_is_exact
    # Where the boot is not known, a kill could have been a power failure.
    unknown = disk.killed()
    unknown.boot = 0
    assert not opened(unknown).cursor_is_exact


def test_the_power_may_have_failed_since_a_store_was_opened_again() -> None:
    """It says so durably before anything is yielded: its last page on disk may be from its opening."""
    disk = MemoryDisk()
    opened(disk).close()
    journal = opened(disk)
    journal.cursor = Cursor(7, 1)
    with opened(disk.after_power_failure(True, None)) as after:
        assert not after.cursor_is_exact


def test_a_write_of_the_cursor_that_is_torn_anywhere_leaves_the_one_before() -> None:
    buffer = bytearray(CursorFile.new())
    file = CursorFile(buffer)
    for number in range(1, 20):
        before = bytes(buffer)
        old, _ = file.read_cursor()
        file.write_cursor(Cursor(number, number % 3))
        for place in range(len(buffer) + 1):
            torn = CursorFile.open(bytearray(buffer[:place] + before[place:]))
            assert torn is not None
            cursor, is_latest = torn.read_cursor()
            assert cursor in (old, Cursor(number, number % 3))
            assert is_latest or cursor == old


@pytest.mark.parametrize("content", [None, b"", b"1234567", bytes(384)])
def test_a_store_without_its_cursor_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """To start from 0 would deliver everything again."""
    path = made(tmp_path / "store")
    (path / "cursor").unlink()
    if content is not None:
        (path / "cursor").write_bytes(content)
    with pytest.raises(InputError, match="cursor is missing or damaged"):
        opened(path)
    assert (path / "cursor").exists() == (content is not None)


@pytest.mark.parametrize("missing", ["checkpoint-1", "log-1"])
def test_a_store_without_one_of_its_files_is_refused(tmp_path: Path, missing: str) -> None:
    path = made(tmp_path / "store")
    (path / missing).unlink()
    with pytest.raises(InputError, match=f"damaged store.*antecede store check {path}"):
        opened(path)


# Damage


def closed_store() -> tuple[MemoryDisk, tuple[Cursor, list[LogRecord], bytes]]:
    disk = MemoryDisk()
    with opened(disk) as journal:
        journal.write([TimerFired(1)])
        journal.write([], Checkpoint(b"state", [StoredPacket(b"packet", [(1, 1)])]))
        journal.write([Broadcast([b"one"], 1)])
        journal.write([TimerFired(2), TimerFired(3)])
        journal.cursor = Cursor(4, 1)
        journal.write([TimerFired(4)])
    return disk, content(disk.killed())


def content(disk: MemoryDisk) -> tuple[Cursor, list[LogRecord], bytes]:
    with opened(disk) as journal:
        return journal.cursor, list(journal.records()), journal.state()


def test_every_flipped_bit_is_detected_or_harmless() -> None:
    disk, before = closed_store()
    detected = harmless = 0
    for name, file in disk.files.items():
        for place in range(len(file.content)):
            for bit in range(8):
                damaged = disk.killed()
                damaged.files[name].content[place] ^= 1 << bit
                if name == "cursor":  # which has everything twice
                    assert content(damaged) == before, (place, bit)
                    harmless += 1
                else:
                    with pytest.raises(InputError, match=r"damaged store|store of format"):
                        content(damaged)
                    detected += 1
    assert detected > 2_000
    assert harmless == 8 * len(disk.files["cursor"].content)


def test_every_truncation_is_detected() -> None:
    disk, before = closed_store()
    for name, file in disk.files.items():
        for size in range(len(file.content)):
            damaged = disk.killed()
            damaged.truncate(name, size)
            with pytest.raises(InputError, match="store"):
                content(damaged)
    assert content(disk) == before


def test_a_write_that_was_interrupted_is_cut_off() -> None:
    disk, before = closed_store()
    log = max(name for name in disk.files if name.startswith("log"))
    journal = opened(disk)
    unacked, _ = records.encode_record(journal._link, journal._key, Commit([TimerFired(9)], 9, 0))
    journal.close()
    for size in range(1, len(unacked)):
        torn = disk.killed()
        torn.append(log, unacked[:size])
        assert content(torn) == before
        assert len(torn.files[log].content) == len(disk.files[log].content)
    whole = disk.killed()
    whole.append(log, unacked)
    assert content(whole)[1] == [*before[1], TimerFired(9)]


@pytest.mark.parametrize("rest", [bytes(5000), bytes(60) + b"torn" + bytes(60)])
def test_room_that_a_killed_process_left_is_not_damage(tmp_path: Path, rest: bytes) -> None:
    path = made(tmp_path / "store")
    before = left(path)
    size = (path / "log-1").stat().st_size
    with (path / "log-1").open("ab") as log:
        log.write(rest)
    assert left(path) == before
    assert (path / "log-1").stat().st_size == size


def test_a_killed_process_leaves_zeros_after_its_log(tmp_path: Path) -> None:
    path = made(tmp_path / "store")
    with opened(path) as journal:
        journal.write([TimerFired(5)])
        shutil.copytree(path, tmp_path / "copy")
    assert (tmp_path / "copy" / "log-1").stat().st_size > (path / "log-1").stat().st_size
    assert left(tmp_path / "copy") == left(path)


def test_a_body_that_looks_like_a_record_does_not_make_an_interrupted_write_damage() -> None:
    """Others choose the bodies; a record that they could make would keep this member from starting."""
    disk, before = closed_store()
    log = max(name for name in disk.files if name.startswith("log"))
    forged, _ = records.encode_record(Link(9, bytes(16)), b"", Commit([TimerFired(9)], 9, 0))
    torn = disk.killed()
    torn.append(log, b"torn" + forged)
    assert content(torn) == before


def test_records_that_are_missing_exchanged_or_of_another_store_are_detected() -> None:
    disk, _ = closed_store()
    log = max(name for name in disk.files if name.startswith("log"))
    view, parts, start = disk.read(log), list[bytes](), 0
    with opened(disk.killed()) as journal:
        key = journal._key
    while (record := records.read_record(memoryview(view), start, key)) is not None:
        parts.append(view[record.start : record.end])
        start = record.end
    assert len(parts) == 3
    other, _ = closed_store()
    one, two, three = parts
    for wrong in ([one, three], [two, one, three], [two, three], [one, one, two, three], [other.read(log)]):
        damaged = disk.killed()
        damaged.write(log, b"".join(wrong))
        with pytest.raises(InputError, match="damaged store"):
            content(damaged)


def test_the_message_says_what_is_damaged_and_what_can_be_saved() -> None:
    disk, _ = closed_store()
    damaged = disk.killed()
    log = max(name for name in damaged.files if name.startswith("log"))
    damaged.files[log].content[60] ^= 1
    with pytest.raises(InputError) as raised:
        content(damaged)
    text = str(raised.value)
    for part in ("log-2", "record 4", "record 3 can be read, and 2 after it", "antecede store check store"):
        assert part in text


def damaged(tmp_path: Path, change: Callable[[Journal], None]) -> None:
    """Restore a member whose store is intact, but says what cannot be."""
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
    change(peer.journal)
    peer.disk.close()
    with Journal(peer.disk, {"group": "test", "me": "m1"}, sync=False) as journal:
        restore(Core(group.roster.create_protocol("m1")), journal)


def packet(*packets: StoredPacket) -> Callable[[Journal], None]:
    return lambda journal: journal.write([], Checkpoint(journal.state(), list(packets)))


@pytest.mark.parametrize(
    "change",
    [
        lambda journal: journal.write([], Checkpoint(b"nonsense", [])),
        lambda journal: journal.write([], Checkpoint(journal.state()[:20], [])),
        lambda journal: journal.write([PacketReceived(0, 9, b"", 1)]),
        lambda journal: journal.write([PacketReceived(9, 1, b"", 1)]),
        lambda journal: journal.write([PacketReceived(0, 4, b"nonsense", 1)]),
        lambda journal: setattr(journal, "cursor", Cursor(99, 0)),
        packet(StoredPacket(b"", [(9, 1)])),
        packet(StoredPacket(b"", [], [(9, 1, 1)])),
    ],
)
def test_a_store_that_says_what_cannot_be_is_refused_in_words(
    tmp_path: Path, change: Callable[[Journal], None]
) -> None:
    with pytest.raises(InputError, match="store"):
        damaged(tmp_path, change)


def test_fuzzed_stores_are_refused_or_say_the_same() -> None:
    """A second of it; `python tests/live/fuzz_stores.py SECONDS` does more."""
    counts = fuzz_stores.run(1.0, seed=1)
    assert counts["refused"]


@given(data=st.binary(max_size=300), name=st.sampled_from(["checkpoint-1", "log-1", "cursor"]))
def test_no_content_of_a_file_raises_anything_but_a_refusal(data: bytes, name: str) -> None:
    disk = MemoryDisk()
    opened(disk).close()
    disk.write(name, data)
    with contextlib.suppress(InputError):
        opened(disk).close()


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=8))
def test_no_checkpoint_with_a_right_checksum_raises_anything_but_a_refusal(body: object) -> None:
    disk = MemoryDisk()
    opened(disk).close()
    try:
        data, _ = records.encode_record(Link(), b"", body, records.MAGIC % records.VERSION)
    except OverflowError:
        return
    disk.write("checkpoint-1", data)
    with pytest.raises(InputError, match="store"):
        opened(disk)
