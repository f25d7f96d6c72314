"""A member's store with a damaged byte: detected, refused, or harmless."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import fuzz_stores
import pytest
from core_group import Group, roster
from hypothesis import given
from hypothesis import strategies as st
from memory_disk import MemoryDisk
from stores import left, made, opened

from antecede.errors import InputError
from antecede.live.core import Core
from antecede.live.events import Broadcast, Cursor, LogRecord, PacketReceived, TimerFired
from antecede.live.recovery import restore
from antecede.live.store import records
from antecede.live.store.journal import Journal
from antecede.live.store.records import Checkpoint, Commit, Link, StoredPacket
from antecede.live.versions import FIXED_STORE


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
                if name == "cursor":  # which contains everything twice
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
def test_preallocated_space_left_by_a_killed_process_is_not_damage(tmp_path: Path, rest: bytes) -> None:
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
    """Others choose the bodies; a forged record in one could keep this member from starting."""
    disk, before = closed_store()
    log = max(name for name in disk.files if name.startswith("log"))
    forged, _ = records.encode_record(Link(9, bytes(16)), b"", Commit([TimerFired(9)], 9, 0))
    torn = disk.killed()
    torn.append(log, b"torn" + forged)
    assert content(torn) == before


def test_missing_swapped_or_foreign_records_are_detected() -> None:
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


def test_the_error_states_what_is_damaged_and_what_can_be_saved() -> None:
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
    """Restore a member whose store is intact but has impossible content."""
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
def test_an_intact_store_with_impossible_content_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[Journal], None]
) -> None:
    with pytest.raises(InputError, match="store"):
        damaged(tmp_path, change)


def test_fuzzed_stores_are_refused_or_have_unchanged_content() -> None:
    """A second of it; `python tests/live/fuzz_stores.py SECONDS` does more."""
    counts = fuzz_stores.run(1.0, seed=1)
    assert counts["refused"]


@given(data=st.binary(max_size=300), name=st.sampled_from(["checkpoint-1", "log-1", "cursor"]))
def test_arbitrary_file_content_raises_nothing_but_input_errors(data: bytes, name: str) -> None:
    disk = MemoryDisk()
    opened(disk).close()
    disk.write(name, data)
    with contextlib.suppress(InputError):
        opened(disk).close()


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=8))
def test_arbitrary_checkpoints_with_valid_checksums_raise_nothing_but_input_errors(body: object) -> None:
    disk = MemoryDisk()
    opened(disk).close()
    try:
        data, _ = records.encode_record(Link(), b"", body, records.MAGIC % FIXED_STORE)
    except OverflowError:
        return
    disk.write("checkpoint-1", data)
    with pytest.raises(InputError, match="store"):
        opened(disk)
