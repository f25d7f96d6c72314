"""A member's store after a kill or a power failure at any step, and on a full disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_disk import MemoryDisk
from stores import made, opened

from antecede.errors import InputError
from antecede.live.events import Cursor, TimerFired
from antecede.live.store.cursor import CursorFile
from antecede.live.store.records import Checkpoint


class StopError(Exception):
    """The process is killed, or the power fails, here."""


def life(disk: MemoryDisk, accepted: list[int], sync: bool = True) -> None:
    """Open a store or resume it; a member that logs numbers, with occasional checkpoints. `accepted` has
    those whose commit returned."""
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


def test_accepted_records_survive_a_kill_or_power_failure_at_any_operation() -> None:
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
def test_a_full_disk_loses_no_accepted_record_and_revives_no_refused_one(sync: bool) -> None:
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


def test_the_cursor_is_exact_after_a_kill_and_a_commit_behind_after_a_power_failure() -> None:
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


def test_the_cursor_is_inexact_after_a_power_failure_following_a_reopen() -> None:
    """The store records this durably before anything is yielded: its last page on disk may date from its
    opening."""
    disk = MemoryDisk()
    opened(disk).close()
    journal = opened(disk)
    journal.cursor = Cursor(7, 1)
    with opened(disk.after_power_failure(True, None)) as after:
        assert not after.cursor_is_exact


def test_a_torn_cursor_write_leaves_the_previous_cursor() -> None:
    buffer = bytearray(CursorFile.new())
    file = CursorFile(buffer)
    for number in range(1, 20):
        before = bytes(buffer)
        old, _ = file.read_cursor()
        file.write_cursor(number, number % 3)
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
