"""What a member must not forget, in one SQLite file.

A protocol is deterministic, so a member is what it was at some moment (its *image*) and what has been asked
of it since (the *log*). The log is written in groups, one transaction for all that came while the last one
was under way; nothing that follows from a row leaves the member before the row is written. Now and then a
new image takes the log's place. Beside them are the packets that a partner has not confirmed, or that may
have to be handed on to members that lack them, as far as they are older than the image.

How many messages the application has taken is a number that changes with every message, so it is not in the
database but in eight bytes of a file beside it that is mapped into memory: writing it costs no system call,
and it outlives the process. After a power failure it may be as old as the last group of rows.
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
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, Self

import msgspec

from antecede.errors import InputError
from antecede.protocols.base import Span

VERSION = 2
_APPLICATION = 0x416E7465  # "Ante": how the file says whose it is
_TAKEN = struct.Struct("<q")
_MAX_WAL = 1 << 23
_PAGE = 1 << 15
"""Rows go in as blobs of many; with pages of the usual 4 kB writing a megabyte takes three times as long."""
_SPARE_PAGES = 512
"""So many empty pages stay for what comes next; of more, some go back to the file system with an image."""
_PAGES_BACK = 256
_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE log (place INTEGER PRIMARY KEY, rows BLOB);
CREATE TABLE packets (place INTEGER PRIMARY KEY, until BLOB, packets BLOB);
CREATE TABLE events (first INTEGER PRIMARY KEY, data BLOB);
"""


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that was asked of a member."""

    kind: Literal["broadcast", "receive", "handed", "wake"]
    link: int
    """Whose packet it is; -1 if it is none."""
    number: int
    """The packet's number on its link; 0 if it has none."""
    taken: int
    """How many messages the protocol had been asked for by then."""
    time: int
    data: bytes


class Stored(msgspec.Struct, array_like=True):
    """A packet, and what it is stored for."""

    data: bytes
    sent: list[tuple[int, int]] = []
    """Links and its numbers there."""
    spans: list[Span] = []
    """Messages in it that are not stable."""


class Until(msgspec.Struct, frozen=True, array_like=True):
    """What must have happened before packets that were stored together can go."""

    confirmed: dict[int, int]
    stable: dict[int, int]

    @classmethod
    def of(cls, packets: list[Stored]) -> Self:
        confirmed: dict[int, int] = {}
        stable: dict[int, int] = {}
        for packet in packets:
            for link, number in packet.sent:
                confirmed[link] = max(number, confirmed.get(link, 0))
            for origin, _, last in packet.spans:
                stable[origin] = max(last, stable.get(origin, 0))
        return cls(confirmed, stable)

    def has_come(self, confirmed: dict[int, int], stable: list[int]) -> bool:
        return all(number <= confirmed[link] for link, number in self.confirmed.items()) and all(
            seq <= stable[origin] for origin, seq in self.stable.items()
        )


_encoder = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(list[Row])
_packets = msgspec.msgpack.Decoder(list[Stored])
_until = msgspec.msgpack.Decoder(Until)


class Changes(msgspec.Struct):
    """A new image, and what of the tables beside it has changed since the last one."""

    image: bytes
    packets: list[Stored]
    confirmed: dict[int, int]
    """Up to which number each partner has confirmed."""
    stable: list[int]
    """Up to which number everybody has each origin's messages."""
    events: tuple[int, bytes] | None


class Journal:
    """A member's file; made if it is not there, refused if it is another's."""

    def __init__(self, path: str | Path, identity: dict[str, Any], sync: bool = True) -> None:
        self.path = Path(path)
        self._lock = _locked(self.path)
        self._turn = threading.Lock()
        try:
            self._open(identity, sync)
        except sqlite3.DatabaseError as error:
            self._lock.close()
            raise InputError(f"{self.path} cannot be used as a store: {error}") from error
        except BaseException:
            self._lock.close()
            raise

    def _open(self, identity: dict[str, Any], sync: bool) -> None:
        self._base = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            empty = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            new = empty and self._base.execute("PRAGMA application_id").fetchone() == (0,)
            if not new:
                self._refuse_foreign(identity)
            if new:
                self._base.execute(f"PRAGMA page_size = {_PAGE}")
                self._base.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute(f"PRAGMA journal_size_limit = {_MAX_WAL}")
            self._base.execute(f"PRAGMA wal_autocheckpoint = {_MAX_WAL // _PAGE}")
            self._base.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            self._taken = _mapped(self.path.with_name(self.path.name + "-taken"), new)
            if new:
                self._make(identity)
            self.store = self._about("store").decode()
            self._needed = self._load_needed()
        except BaseException:
            self._base.close()
            raise

    def _make(self, identity: dict[str, Any]) -> None:
        with self._transaction():
            for statement in _TABLES.split(";"):
                self._base.execute(statement)
            self._base.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._base.execute(f"PRAGMA user_version = {VERSION}")
            self._tell("identity", msgspec.json.encode(identity))
            self._tell("store", secrets.token_hex(8).encode())

    def _refuse_foreign(self, identity: dict[str, Any]) -> None:
        (application,) = self._base.execute("PRAGMA application_id").fetchone()
        (version,) = self._base.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise InputError(f"{self.path} is a database of something else; a store needs a file of its own")
        if version != VERSION:
            other = "a newer" if version > VERSION else "an older"
            raise InputError(
                f"{self.path} is a store of version {version}, and this Antecede knows {VERSION}: "
                f"use {other} Antecede with it, or begin with a new store"
            )
        try:
            mine = msgspec.json.decode(self._about("identity"), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path} does not say whose store it is: {error}") from error
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
            yield from self._base.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path} is damaged as a store: {error}") from error

    def _tell(self, key: str, value: bytes) -> None:
        self._base.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._turn:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def write(self, rows: list[Row], changes: Changes | None = None) -> None:
        """All of it or nothing. With a new image there are no rows: the image has seen them."""
        needed = self._needed
        with self._transaction():
            if rows:
                # One blob for all that is written together: a row each costs ten times as much.
                self._base.execute("INSERT INTO log (rows) VALUES (?)", (_encoder.encode(rows),))
            if changes is not None:
                needed = self._replace(changes)
        if changes is not None:
            self._needed = needed
            with self._turn:  # a transaction cannot end while it goes on
                (spare,) = self._base.execute("PRAGMA freelist_count").fetchone()
                if spare > _SPARE_PAGES:
                    self._base.execute(f"PRAGMA incremental_vacuum({_PAGES_BACK})").fetchall()

    def _replace(self, changes: Changes) -> dict[int, Until]:
        """Write the image; which packets are needed from now on."""
        run = self._base.execute
        self._tell("image", changes.image)
        run("DELETE FROM log")
        needed = {}
        for place, until in self._needed.items():
            if until.has_come(changes.confirmed, changes.stable):
                run("DELETE FROM packets WHERE place = ?", (place,))
            else:
                needed[place] = until
        if changes.packets:
            until = Until.of(changes.packets)
            row = (_encoder.encode(until), _encoder.encode(changes.packets))
            place = run("INSERT INTO packets (until, packets) VALUES (?, ?)", row).lastrowid or 0
            needed[place] = until
        if changes.events is not None:
            run("INSERT OR REPLACE INTO events VALUES (?, ?)", changes.events)
        return needed

    def _load_needed(self) -> dict[int, Until]:
        try:
            found = list(self._read("SELECT place, until FROM packets"))
            return {place: _until.decode(until) for place, until in found}
        except msgspec.DecodeError as error:
            raise InputError(f"{self.path} is damaged as a store: {error}") from error

    def remember(self, link: int, store: str) -> None:
        """Which store a partner has: with another one it would have nothing of what was said."""
        with self._transaction():
            self._tell(f"partner {link}", store.encode())

    def remembered(self, link: int) -> str:
        return self._about(f"partner {link}").decode()

    def image(self) -> bytes:
        """The last image; empty before there is one."""
        return self._about("image")

    def rows(self) -> Iterator[Row]:
        """What came after the image."""
        for (data,) in self._read("SELECT rows FROM log ORDER BY place"):
            yield from _rows.decode(data)

    def packets(self) -> Iterator[Stored]:
        """Those that the image has sent or kept; some may not be needed any more."""
        for (data,) in self._read("SELECT packets FROM packets ORDER BY place"):
            yield from _packets.decode(data)

    def events(self) -> list[tuple[int, bytes]]:
        """Parts of the trace that are not in its folder yet."""
        return list(self._read("SELECT first, data FROM events ORDER BY first"))

    def forget_events(self, before: int) -> None:
        """They are in the folder."""
        with self._transaction():
            self._base.execute("DELETE FROM events WHERE first < ?", (before,))

    @property
    def taken(self) -> int:
        """Twice the number of messages that are final, and one more if another is in hand."""
        return int(_TAKEN.unpack_from(self._taken)[0])

    @taken.setter
    def taken(self, value: int) -> None:
        _TAKEN.pack_into(self._taken, 0, value)

    def size(self) -> int:
        """Bytes on disk."""
        names = ("", "-wal", "-shm", "-taken")
        files = (self.path.with_name(self.path.name + name) for name in names)
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        self._taken.flush()
        self._taken.close()
        self._base.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _locked(path: Path) -> IO[bytes]:
    """Two processes with one store would each undo what the other does."""
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


def _mapped(path: Path, new: bool) -> mmap.mmap:
    if new:
        with path.open("wb") as file:
            file.write(_TAKEN.pack(0))
            file.flush()
            os.fsync(file.fileno())
    elif not path.exists() or path.stat().st_size != _TAKEN.size:
        raise InputError(f"{path} is missing or damaged: it says what was already delivered; restore it")
    handle = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(handle, _TAKEN.size)
    finally:
        os.close(handle)
