"""What a member must not forget, in one SQLite file.

The core is deterministic, so a member is its state at some moment (a *checkpoint*) and the events since
(the *log*). The log is written by group commit: one transaction for all that happened while the last one
was under way. Now and then a new checkpoint takes the log's place. Beside them are packets older than the
checkpoint that a partner has not acknowledged, or that may be needed for repair.

The application's cursor changes with every message, so it is not in the database but in eight bytes of a
file beside it, mapped into memory: writing it costs no system call, and it survives the process. After a
power failure it may be as old as the last group commit.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from antecede.errors import InputError
from antecede.live.events import Cursor, LogRecord
from antecede.protocols.base import Span

VERSION = 4
_APPLICATION = 0x416E7465  # "Ante": marks the file as ours
_CURSOR = struct.Struct("<q")
_MAX_WAL = 1 << 23
_PAGE = 1 << 15
"""Records are written as blobs of many; with the usual pages of 4 kB a megabyte takes three times as long."""
_SPARE_PAGES = 512
"""So many free pages are kept for reuse; of more, each checkpoint returns some to the file system."""
_PAGES_RETURNED = 256
_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE log (id INTEGER PRIMARY KEY, records BLOB);
CREATE TABLE packets (id INTEGER PRIMARY KEY, retention BLOB, packets BLOB);
CREATE TABLE trace (first INTEGER PRIMARY KEY, rows BLOB);
"""


class StoredPacket(msgspec.Struct, array_like=True):
    """A packet that outlives the log, and why it is needed."""

    data: bytes
    sent: list[tuple[int, int]] = []
    """Links, and its numbers there: until they are acknowledged."""
    spans: list[Span] = []
    """Messages in it: until they are stable."""


class Retention(msgspec.Struct, frozen=True, array_like=True):
    """What must have happened before packets that were stored together can be deleted."""

    acked: dict[int, int]
    stable: dict[int, int]

    @classmethod
    def of(cls, packets: list[StoredPacket]) -> Self:
        acked: dict[int, int] = {}
        stable: dict[int, int] = {}
        for packet in packets:
            for link, number in packet.sent:
                acked[link] = max(number, acked.get(link, 0))
            for origin, _, last in packet.spans:
                stable[origin] = max(last, stable.get(origin, 0))
        return cls(acked, stable)

    def is_over(self, acked: dict[int, int], stable: list[int]) -> bool:
        return all(number <= acked[link] for link, number in self.acked.items()) and all(
            seq <= stable[origin] for origin, seq in self.stable.items()
        )


class Checkpoint(msgspec.Struct, frozen=True):
    """A member's whole state, and what has changed in the tables beside it since the last one."""

    state: bytes
    packets: list[StoredPacket]
    acked: dict[int, int]
    """Up to which number each partner has acknowledged packets."""
    stable: list[int]
    """Up to which sequence number each origin's messages are stable."""
    trace: tuple[int, bytes] | None
    """Rows of the trace and the index of the first."""


_encoder = msgspec.msgpack.Encoder()
_records: msgspec.msgpack.Decoder[list[LogRecord]] = msgspec.msgpack.Decoder(list[LogRecord])
_packets = msgspec.msgpack.Decoder(list[StoredPacket])
_retention = msgspec.msgpack.Decoder(Retention)


class Journal:
    """A member's store; created if it does not exist, refused if it is another's."""

    def __init__(self, path: str | Path, identity: dict[str, Any], sync: bool = True) -> None:
        self.path = Path(path)
        self._lock = _lock(self.path)
        self._in_transaction = threading.Lock()
        try:
            self._open(identity, sync)
        except sqlite3.DatabaseError as error:
            self._lock.close()
            raise InputError(f"{self.path} cannot be used as a store: {error}") from error
        except BaseException:
            self._lock.close()
            raise

    def _open(self, identity: dict[str, Any], sync: bool) -> None:
        self._database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            empty = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            new = empty and self._database.execute("PRAGMA application_id").fetchone() == (0,)
            if not new:
                self._validate(identity)
            if new:
                self._database.execute(f"PRAGMA page_size = {_PAGE}")
                self._database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(f"PRAGMA journal_size_limit = {_MAX_WAL}")
            self._database.execute(f"PRAGMA wal_autocheckpoint = {_MAX_WAL // _PAGE}")
            self._database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            self._cursor = _map_cursor(self.path.with_name(self.path.name + "-cursor"), new)
            if new:
                self._create(identity)
            self.store = self._about("store").decode()
            self._retained = self._load_retained()
        except BaseException:
            self._database.close()
            raise

    def _create(self, identity: dict[str, Any]) -> None:
        with self._transaction():
            for statement in _TABLES.split(";"):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._database.execute(f"PRAGMA user_version = {VERSION}")
            self._set_about("identity", msgspec.json.encode(identity))
            self._set_about("store", secrets.token_hex(8).encode())

    def _validate(self, identity: dict[str, Any]) -> None:
        (application,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise InputError(
                f"{self.path} is the database of something else; give the store a file of its own"
            )
        if version != VERSION:
            other = "a newer" if version > VERSION else "an older"
            raise InputError(
                f"{self.path} is a store of format {version}, and this Antecede reads {VERSION}: "
                f"use {other} Antecede with it, or start with a new store"
            )
        try:
            mine = msgspec.json.decode(self._about("identity"), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path} does not say which member it belongs to: {error}") from error
        for name, value in identity.items():
            if mine.get(name) != value:
                raise InputError(
                    f"{self.path} is the store of another {name}: {mine.get(name)}, not {value}; "
                    "give this member a store of its own"
                )

    def _about(self, key: str) -> bytes:
        for (value,) in self._read("SELECT value FROM about WHERE key = ?", key):
            return bytes(value)
        return b""

    def _read(self, query: str, *values: str) -> Iterator[Any]:
        try:
            yield from self._database.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path} is a damaged store: {error}") from error

    def _set_about(self, key: str, value: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._in_transaction:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def write(self, records: Sequence[LogRecord], checkpoint: Checkpoint | None = None) -> int:
        """All of it or nothing; returns the bytes added to the log. A checkpoint takes the log's place."""
        retained, log_bytes = self._retained, 0
        with self._transaction():
            if records:
                # One blob for the whole group: a row for each record costs ten times as much.
                blob = _encoder.encode(records)
                log_bytes = len(blob)
                self._database.execute("INSERT INTO log (records) VALUES (?)", (blob,))
            if checkpoint is not None:
                retained = self._replace(checkpoint)
        if checkpoint is not None:
            self._retained = retained
            with self._in_transaction:
                (spare,) = self._database.execute("PRAGMA freelist_count").fetchone()
                if spare > _SPARE_PAGES:
                    self._database.execute(f"PRAGMA incremental_vacuum({_PAGES_RETURNED})").fetchall()
        return log_bytes

    def _replace(self, checkpoint: Checkpoint) -> dict[int, Retention]:
        """Write a checkpoint; which stored packets are needed from now on."""
        execute = self._database.execute
        self._set_about("state", checkpoint.state)
        execute("DELETE FROM log")
        retained = {}
        for key, retention in self._retained.items():
            if retention.is_over(checkpoint.acked, checkpoint.stable):
                execute("DELETE FROM packets WHERE id = ?", (key,))
            else:
                retained[key] = retention
        if checkpoint.packets:
            retention = Retention.of(checkpoint.packets)
            row = (_encoder.encode(retention), _encoder.encode(checkpoint.packets))
            key = execute("INSERT INTO packets (retention, packets) VALUES (?, ?)", row).lastrowid or 0
            retained[key] = retention
        if checkpoint.trace is not None:
            execute("INSERT OR REPLACE INTO trace VALUES (?, ?)", checkpoint.trace)
        return retained

    def _load_retained(self) -> dict[int, Retention]:
        try:
            rows = list(self._read("SELECT id, retention FROM packets"))
            return {key: _retention.decode(retention) for key, retention in rows}
        except msgspec.DecodeError as error:
            raise InputError(f"{self.path} is a damaged store: {error}") from error

    def remember(self, link: int, store: str) -> None:
        """Remember a partner's store: with another one it would have lost what it had acknowledged."""
        with self._transaction():
            self._set_about(f"partner {link}", store.encode())

    def remembered(self, link: int) -> str:
        return self._about(f"partner {link}").decode()

    def state(self) -> bytes:
        """The last checkpoint's state; empty before the first."""
        return self._about("state")

    def records(self) -> Iterator[LogRecord]:
        """The log since the checkpoint."""
        for (blob,) in self._read("SELECT records FROM log ORDER BY id"):
            yield from _records.decode(blob)

    def packets(self) -> Iterator[StoredPacket]:
        """Packets older than the checkpoint; some may not be needed any more."""
        for (blob,) in self._read("SELECT packets FROM packets ORDER BY id"):
            yield from _packets.decode(blob)

    def trace(self) -> list[tuple[int, bytes]]:
        """Rows of the trace that are not in its folder yet, each with the index of the first."""
        return list(self._read("SELECT first, rows FROM trace ORDER BY first"))

    def forget_trace(self, before: int) -> None:
        """Rows before this index are in the folder."""
        with self._transaction():
            self._database.execute("DELETE FROM trace WHERE first < ?", (before,))

    @property
    def cursor(self) -> Cursor:
        """How far the application is; one number, so that it changes at once."""
        acked, in_flight = divmod(int(_CURSOR.unpack_from(self._cursor)[0]), 2)
        return Cursor(acked, bool(in_flight))

    @cursor.setter
    def cursor(self, cursor: Cursor) -> None:
        _CURSOR.pack_into(self._cursor, 0, 2 * cursor.acked + cursor.in_flight)

    def size(self) -> int:
        """Bytes on disk."""
        names = ("", "-wal", "-shm", "-cursor")
        files = (self.path.with_name(self.path.name + name) for name in names)
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        self._cursor.flush()
        self._cursor.close()
        self._database.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(path: Path) -> IO[bytes]:
    """Two processes with one store would overwrite each other."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + "-lock").open("ab")
    except OSError as error:
        raise InputError(f"store: {error.filename}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise InputError(f"{path} is in use by another process") from error
    return lock


def _map_cursor(path: Path, new: bool) -> mmap.mmap:
    if new:
        with path.open("wb") as file:
            file.write(_CURSOR.pack(0))
            file.flush()
            os.fsync(file.fileno())
    elif not path.exists() or path.stat().st_size != _CURSOR.size:
        raise InputError(f"{path} is missing or damaged: it says what was delivered already; restore it")
    handle = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(handle, _CURSOR.size)
    finally:
        os.close(handle)
