"""Reading a store: every record is verified, and damage is reported with what is still readable.

It changes nothing in the folder, so it also serves `antecede store`, beside a running member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from antecede.errors import InputError
from antecede.live.events import Cursor, LogRecord
from antecede.live.store.cursor import CursorFile
from antecede.live.store.disk import LOCK, Disk
from antecede.live.store.records import (
    MAGIC,
    UNDECODABLE,
    Commit,
    Link,
    RecordView,
    StoredCheckpoint,
    checkpoint_key,
    decode_checkpoint,
    decode_commit,
    find_records,
    read_record,
)
from antecede.live.versions import STORE

CURSOR = "cursor"
UNFINISHED = ".tmp"
_NAME = re.compile(r"(checkpoint|log)-([1-9]\d{0,18})(\.tmp)?")
_STATE_FILE = re.compile(r"(in-[0-9a-f]{16}-)?(snapshot|received|history)-[0-9a-f-]+(\.tmp)?")
_MAGIC = re.compile(MAGIC.replace(b"%d", rb"(\d{1,9})"))


class Damage(msgspec.Struct, frozen=True):
    """What is wrong with a store."""

    file: str
    record: int
    """The number of the first record that is affected."""
    text: str


class DamageError(InputError):
    """A store whose checkpoint cannot be read."""

    def __init__(self, damage: Damage, message: str) -> None:
        super().__init__(message)
        self.damage = damage


class StoreContents(msgspec.Struct, kw_only=True):
    """The readable contents of a store."""

    version: int
    """The version of its format (`live/versions.py`)."""
    generation: int
    """N of `checkpoint-N` and `log-N`."""
    checkpoint: StoredCheckpoint
    commits: list[Commit]
    link: Link
    """The last record that was read."""
    checkpoint_bytes: int
    log_bytes: int
    """Bytes of the intact records."""
    rest_bytes: int = 0
    """Bytes after them: preallocated space, or an interrupted write."""
    is_torn: bool = False
    """Whether a write was interrupted before it was acknowledged, or is in progress."""
    damage: Damage | None = None
    beyond: list[Commit] = []
    """Intact records that follow a damaged one."""

    def records(self) -> Iterator[LogRecord]:
        for commit in self.commits:
            yield from commit.records

    @property
    def cursor(self) -> Cursor:
        """The application's cursor as of the last group commit."""
        last = self.commits[-1] if self.commits else self.checkpoint
        return Cursor(last.acked, last.attempts)


def generations(names: list[str], kind: str) -> list[int]:
    """The numbers of the complete files of a kind, in order."""
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(int(found[2]) for found in matches if found and found[1] == kind and not found[3])


def is_state_file(name: str) -> bool:
    """Whether a file of a store is not part of the journal, but a snapshot or a history."""
    return _STATE_FILE.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    return name in (LOCK, CURSOR) or _NAME.fullmatch(name) is not None


def read_store(disk: Disk, names: list[str], durable: Link | None) -> StoreContents:
    """The newest checkpoint and its log. `durable` is what the cursor's file says of the log, if it is
    readable. Raises an `InputError` if there is no readable checkpoint."""
    found = generations(names, "checkpoint")
    if not found:
        raise _unreadable(disk, "checkpoint", "it is missing")
    generation = found[-1]
    data = disk.read(f"checkpoint-{generation}")
    version, checkpoint, link = _read_checkpoint(disk, f"checkpoint-{generation}", data)
    log = disk.read(f"log-{generation}") if f"log-{generation}" in names else b""
    contents = StoreContents(
        version=version,
        generation=generation,
        checkpoint=checkpoint,
        commits=[],
        link=link,
        checkpoint_bytes=len(data),
        log_bytes=0,
    )
    _read_log(contents, f"log-{generation}", log, durable)
    return contents


def _read_checkpoint(disk: Disk, name: str, data: bytes) -> tuple[int, StoredCheckpoint, Link]:
    begin = _MAGIC.match(data)
    version = int(begin[1]) if begin else 0
    if begin and version not in STORE:
        other = "a newer" if version > max(STORE) else "an older"
        raise InputError(
            f"{disk.path} is a store of format {version}, and this Antecede reads {min(STORE)} to "
            f"{max(STORE)}: use {other} Antecede with it, or start with a new store"
        )
    record = read_record(memoryview(data), begin.end(), checkpoint_key(version)) if begin else None
    if record is None or record.end != len(data):
        raise _unreadable(disk, name, "it does not match its checksum")
    try:
        return version, decode_checkpoint(record.body), record.link
    except UNDECODABLE as error:
        raise _unreadable(disk, name, str(error)) from error


def _unreadable(disk: Disk, name: str, reason: str) -> DamageError:
    message = (
        f"{disk.path} is a damaged store: {name}: {reason}, so the state that the log follows is lost; "
        f"restore the latest copy of the store, or see what can be saved: antecede store check {disk.path}"
    )
    return DamageError(Damage(name, 0, reason), message)


def _read_log(contents: StoreContents, name: str, log: bytes, durable: Link | None) -> None:
    """Read records until one is damaged, or missing, or the log ends."""
    view = memoryview(log)
    _check_durable(contents, name, contents.link, durable)
    while contents.log_bytes < len(log) and contents.damage is None:
        record = read_record(view, contents.log_bytes, contents.checkpoint.key)
        if record is None:
            break
        if not record.follows(contents.link):
            expected = contents.link.number + 1
            text = f"record {record.link.number} is in the place of record {expected}"
            contents.damage = Damage(name, expected, text)
        else:
            _add_commit(contents, name, record)
            _check_durable(contents, name, record.link, durable)
    if contents.log_bytes < len(log) or contents.damage is not None:
        _examine_rest(contents, name, log)
    if contents.damage is None and durable is not None and durable.number > contents.link.number:
        expected = contents.link.number + 1
        text = f"the log ends before {_range(expected, durable.number)}, which had been accepted"
        if contents.is_torn:
            text = f"record {expected}, which had been accepted, does not match its checksum"
        contents.damage = Damage(name, expected, text)


def _check_durable(contents: StoreContents, name: str, link: Link, durable: Link | None) -> None:
    if durable is not None and link.number == durable.number and link != durable:
        text = f"record {link.number} is not the one that was accepted"
        contents.damage = Damage(name, link.number, text)


def _add_commit(contents: StoreContents, name: str, record: RecordView) -> None:
    try:
        contents.commits.append(decode_commit(record.body))
    except UNDECODABLE as error:
        contents.damage = Damage(name, record.link.number, f"record {record.link.number}: {error}")
        return
    contents.link, contents.log_bytes = record.link, record.end


def _examine_rest(contents: StoreContents, name: str, log: bytes) -> None:
    """Examine trailing bytes: they are an interrupted write, or damage if an intact record follows."""
    expected = contents.link.number + 1
    contents.rest_bytes = len(log) - contents.log_bytes
    if len(log.rstrip(b"\0")) <= contents.log_bytes:
        return  # preallocated space
    contents.is_torn = True
    for record in find_records(log, contents.log_bytes, contents.checkpoint.key):
        try:
            contents.beyond.append(decode_commit(record.body))
        except UNDECODABLE:
            continue
    if contents.damage is None and contents.beyond:
        text = f"record {expected} does not match its checksum, and records after it are intact"
        contents.damage = Damage(name, expected, text)


def _range(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


def damage_message(disk: Disk, contents: StoreContents, damage: Damage) -> str:
    """One sentence: what is damaged, what is lost, what can be saved."""
    first = contents.link.number - len(contents.commits)
    rest = f", and {len(contents.beyond)} after it" if contents.beyond else ""
    return (
        f"{disk.path} is a damaged store: {damage.file}: {damage.text}; "
        f"{_range(first, contents.link.number)} can be read{rest}; restore the latest copy of the store, "
        f"or see what can be saved: antecede store check {disk.path}"
    )


def read_cursor_file(disk: Disk, names: list[str]) -> CursorFile | None:
    """A copy of the cursor's file, for inspection; None if it is missing or damaged."""
    if CURSOR not in names:
        return None
    return CursorFile.open(bytearray(disk.read(CURSOR)))
