"""The persistent state of a member, in a folder of its own.

The core is deterministic, so a member is its state at some moment (a *checkpoint*) and the events since (the
*log*). The log is written by group commit: one record, one write and one sync for everything that happened
during the last one. From time to time a new checkpoint replaces the log.

    lock           held while a process uses the store
    cursor         what changes with every message (`cursor.py`)
    checkpoint-N   the last checkpoint: one record
    log-N          the records since
    snapshot-, received-, history-    states for newcomers, and messages that are retained (`live/changing`)

Cost: a commit writes its own bytes. A checkpoint writes the whole state, with every packet that is unstable
or unacknowledged, and is due when the log is twice as long: 1.5 bytes are written for each byte logged.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from antecede.errors import InputError
from antecede.live.events import Cursor, LogRecord
from antecede.live.store.cursor import CURSOR_BYTES, CursorFile, Session
from antecede.live.store.disk import LOCK, Disk
from antecede.live.store.reader import (
    CURSOR,
    UNFINISHED,
    StoreContents,
    damage_message,
    generations,
    is_ours,
    is_state_file,
    read_cursor_file,
    read_store,
)
from antecede.live.store.records import (
    LATER_IDENTITY,
    MEMBERS_CHANGE,
    NO_DIGEST,
    Checkpoint,
    Commit,
    Link,
    StoredCheckpoint,
    StoredPacket,
    encode_checkpoint,
    encode_record,
)
from antecede.live.versions import CHANGING_STORE, FIXED_STORE

_MIN_LOG = 1 << 22
"""A checkpoint is due after this much log, and after twice the size of the last checkpoint."""


class Journal:
    """A member's store. It is created if it does not exist, and refused if it belongs to another member or is
    damaged.

    With `sync`, a commit is durable when `write` returns. Without, it survives the process, but a power
    failure may lose accepted messages: then the store, or the other members, refuse to continue.
    """

    def __init__(
        self,
        disk: Disk,
        identity: dict[str, Any],
        sync: bool = True,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.path, self._disk, self._sync = disk.path, disk, sync
        self._version = CHANGING_STORE if identity.get("members") == MEMBERS_CHANGE else FIXED_STORE
        self._is_migrated = True
        """Whether the checkpoint is of the current version: otherwise a new one is written first."""
        self._writing = threading.Lock()
        self._loaded: StoreContents | None = None
        disk.lock()
        try:
            names = disk.names()
            if not generations(names, "checkpoint"):
                self._create(names, identity, random_bytes)
                names = disk.names()
            self._open(names, identity)
        except BaseException:
            disk.close()
            raise

    def _create(
        self, names: list[str], identity: dict[str, Any], random_bytes: Callable[[int], bytes]
    ) -> None:
        """Create a new store. It exists once its checkpoint has its final name; an earlier attempt is
        replaced."""
        _validate_new(self._disk, names)
        left = read_cursor_file(self._disk, names)
        logs = [self._disk.read(f"log-{number}") for number in generations(names, "log")]
        if any(logs) or (left and left.durable.number):
            read_store(self._disk, names, None)  # it reports that the checkpoint is missing
        body = StoredCheckpoint(identity, random_bytes(8).hex(), random_bytes(16), 0, 0, Checkpoint(b"", []))
        data, _ = encode_checkpoint(Link(0, NO_DIGEST), self._version, body)
        self._disk.write(CURSOR, CursorFile.new())
        self._disk.sync(CURSOR)
        self._disk.sync_folder()  # otherwise a power failure could leave a checkpoint without a cursor
        self._write_generation(1, data)

    def _write_generation(self, generation: int, data: bytearray) -> None:
        """Write a checkpoint with an empty log, atomically: it exists once it has its final name."""
        name = f"checkpoint-{generation}"
        try:
            self._disk.write(name + UNFINISHED, data)
            self._disk.sync(name + UNFINISHED)
            self._disk.write(f"log-{generation}", b"")
            self._disk.replace(name + UNFINISHED, name)
            self._disk.sync_folder()
        except OSError:
            # Data that was not accepted must not reappear after a restart.
            for unaccepted in (name, name + UNFINISHED):
                with contextlib.suppress(OSError):
                    self._disk.remove(unaccepted)
            raise

    def _open(self, names: list[str], identity: dict[str, Any]) -> None:
        left = read_cursor_file(self._disk, names)
        contents = read_store(self._disk, names, left.durable if left else None)
        stored = contents.checkpoint
        _validate_identity(self._disk, stored.identity, identity)
        if contents.damage is not None:
            raise InputError(damage_message(self._disk, contents, contents.damage))
        if left is None:
            raise InputError(_bad_cursor(self._disk))
        self._is_migrated = contents.version == self._version
        self.store: str = stored.store
        self._identity, self._key = stored.identity, stored.key
        self._generation, self._link = contents.generation, contents.link
        self._checkpoint_bytes, self._log_bytes = contents.checkpoint_bytes, contents.log_bytes
        self._loaded = contents
        if contents.link != left.durable or contents.rest_bytes or self._log not in names:
            self._finish_write(names, contents)
        current = {LOCK, CURSOR, f"checkpoint-{contents.generation}", self._log}
        for name in filter(is_ours, sorted(set(names) - current)):
            self._disk.remove(name)
        self._open_cursor(contents)

    def _finish_write(self, names: list[str], contents: StoreContents) -> None:
        """The last process ended before it knew that its last write was durable: sync it, or truncate what is
        incomplete."""
        if self._log not in names:
            self._disk.write(self._log, b"")
        elif contents.rest_bytes:
            self._disk.truncate(self._log, contents.log_bytes)
        self._disk.sync(self._log)
        self._disk.sync_folder()

    def _open_cursor(self, contents: StoreContents) -> None:
        """Open the application's cursor: the later one of those in its file and in the log."""
        file = CursorFile.open(self._disk.map(CURSOR))
        if file is None:
            raise InputError(_bad_cursor(self._disk))
        cursor, is_latest = file.read_cursor()
        session, boot_id = file.session, self._disk.boot_id().ljust(16, b"\0")
        same_boot = any(boot_id) and session.boot_id == boot_id
        self._cursor_is_exact = session.closed or (same_boot and is_latest)
        self._cursor = max((one.acked, one.attempts) for one in (cursor, contents.cursor))
        self._cursor_file, self._write_cursor = file, file.move_cursor
        self._session = Session(False, boot_id, session.uncertain_until)
        file.write_cursor(*self._cursor, both=True)
        file.write_durable(self._link)
        # Durable before any message is yielded: until here, the file may say that the store was closed.
        file.session = self._session
        self._disk.sync(CURSOR)

    # Writing

    def write(self, records: Sequence[LogRecord], checkpoint: Checkpoint | None = None) -> None:
        """One group commit, atomically. A checkpoint replaces the log."""
        with self._writing:
            self._loaded = None
            cursor = self._cursor
            if checkpoint is not None:
                self._write_checkpoint(checkpoint, cursor)
            elif records and not self._is_migrated:
                raise OSError("a store of an earlier version begins with a checkpoint of this one")
            elif records:
                self._append(Commit(list(records), *cursor))

    def _append(self, commit: Commit) -> None:
        data, link = encode_record(self._link, self._key, commit)
        try:
            self._disk.append(self._log, data)
            if self._sync:
                self._disk.sync(self._log)
        except OSError:
            # Data that was not accepted must not reappear after a restart.
            with contextlib.suppress(OSError):
                self._disk.truncate(self._log, self._log_bytes)
            raise
        self._link = link
        self._log_bytes += len(data)
        self._cursor_file.write_durable(link)

    def _write_checkpoint(self, checkpoint: Checkpoint, cursor: tuple[int, int]) -> None:
        body = StoredCheckpoint(self._identity, self.store, self._key, *cursor, checkpoint)
        data, link = encode_checkpoint(self._link, self._version, body)
        self._write_generation(self._generation + 1, data)
        self._is_migrated = True
        old = (f"checkpoint-{self._generation}", self._log)
        self._generation += 1
        self._link, self._checkpoint_bytes, self._log_bytes = link, len(data), 0
        self._cursor_file.write_durable(link)
        for name in old:
            self._disk.remove(name)

    @property
    def _log(self) -> str:
        return f"log-{self._generation}"

    @property
    def checkpoint_is_due(self) -> bool:
        return not self._is_migrated or self._log_bytes > max(_MIN_LOG, 2 * self._checkpoint_bytes)

    # Reading

    def contents(self) -> StoreContents:
        """The contents of the store, verified."""
        with self._writing:
            if self._loaded is None:
                self._loaded = read_store(self._disk, self._disk.names(), self._link)
                if (damage := self._loaded.damage) is not None:
                    raise InputError(damage_message(self._disk, self._loaded, damage))
            return self._loaded

    def state(self) -> bytes:
        """The last checkpoint's state; empty before the first."""
        return self.contents().checkpoint.checkpoint.state

    def records(self) -> Iterator[LogRecord]:
        """The log since the checkpoint."""
        return self.contents().records()

    def packets(self) -> list[StoredPacket]:
        """Packets older than the checkpoint that were needed then."""
        return self.contents().checkpoint.checkpoint.packets

    def release(self) -> None:
        """Release the contents, which are no longer needed."""
        self._loaded = None

    @property
    def cursor(self) -> Cursor:
        """The application's progress."""
        return Cursor(*self._cursor)

    @cursor.setter
    def cursor(self, cursor: Cursor) -> None:
        self.move_cursor(cursor.acked, cursor.attempts)

    def move_cursor(self, acked: int, attempts: int) -> None:
        """Set the cursor without allocating a `Cursor`: it moves with every message."""
        self._cursor = acked, attempts
        self._write_cursor(acked, attempts)

    @property
    def cursor_is_exact(self) -> bool:
        """Whether the cursor was the last one written when this was opened: otherwise the power may have
        failed since."""
        return self._cursor_is_exact

    @property
    def uncertain_until(self) -> int:
        """Messages up to this position may have been yielded before a power failure, though the cursor does
        not say so."""
        return self._session.uncertain_until

    @uncertain_until.setter
    def uncertain_until(self, position: int) -> None:
        self._session = self._session._replace(uncertain_until=position)
        self._cursor_file.session = self._session
        self._disk.sync(CURSOR)

    @property
    def disk(self) -> Disk:
        """The disk, for the files beside the journal."""
        return self._disk

    def size(self) -> int:
        """Bytes of its files, without preallocated space."""
        return self._checkpoint_bytes + self._log_bytes + CURSOR_BYTES

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._cursor_file.write_cursor(*self._cursor, both=True)
            self._cursor_file.write_durable(self._link, both=True)
            self._disk.sync(CURSOR)
            self._cursor_file.session = self._session._replace(closed=True)
            self._disk.sync(CURSOR)
        self._disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _validate_new(disk: Disk, names: list[str]) -> None:
    foreign = sorted(name for name in names if not is_ours(name) and not is_state_file(name))
    if foreign:
        raise InputError(
            f"{disk.path} cannot be used as a store: it has something else in it ({foreign[0]}); "
            "name a folder of its own"
        )


def _bad_cursor(disk: Disk) -> str:
    return f"{disk.path / CURSOR} is missing or damaged: it says what was delivered already; restore it"


def _validate_identity(disk: Disk, stored: dict[str, Any], identity: dict[str, Any]) -> None:
    for name, value in identity.items():
        before = stored.get(name, LATER_IDENTITY.get(name))
        if before != value:
            raise InputError(f"{disk.path} {_describe_other(name, before, value)}")


def _describe_other(name: str, before: Any, value: Any) -> str:
    """Whose store it is, and what to do about it."""
    own = "give this member a store of its own"
    if name != "members":
        return f"is the store of another {name}: {before}, not {value}; {own}"
    if not isinstance(before, list):
        return f"belongs to a group whose members come and go, not to one with a fixed list; {own}"
    *others, last = map(str, before)
    names = f"{', '.join(others)} and {last}" if others else last
    if not isinstance(value, list):
        return f"belongs to a group with the fixed list {names}, not to one whose members come and go; {own}"
    return (
        f"belongs to the group of {names}; a fixed list of members cannot change: see 'Members that come and "
        "go', under Live groups in the documentation, or start over with new stores at every member"
    )
