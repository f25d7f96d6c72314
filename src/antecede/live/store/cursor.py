"""The small file that changes with every message: the application's cursor, and the end of the durable log.

It is memory-mapped: writing it costs no system call, and it survives the process. It has three parts, each
with two slots that are written alternately with a checksum, so that a torn write leaves the previous value
intact.

- *cursor*: what the application has acknowledged, and how often the next message was yielded.
- *durable*: the last record of the log that is known to be durable. If the log ends before it, accepted
  messages are lost.
- *session*: whether the store was closed, and in which boot of the machine it was used. If the power may have
  failed since the last write, the cursor may be older than what the application has seen.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

from antecede.live.events import Cursor
from antecede.live.store.records import Link

_SLOT_BYTES = 64
"""Every slot is longer than its values and aligned, so that no disk sector ends within one."""
CURSOR_BYTES = 6 * _SLOT_BYTES


class _Slots:
    """Values in two slots of a buffer."""

    def __init__(self, buffer: bytearray | mmap.mmap, start: int, values: str) -> None:
        self._buffer = buffer
        self._values = struct.Struct("<Q" + values)
        self._slot = struct.Struct(f"<{self._values.size}sI")
        self._starts = (start, start + _SLOT_BYTES)
        self._turn = 0
        """A counter of writes; its parity determines the next slot."""

    def read(self) -> tuple[tuple[Any, ...] | None, bool]:
        """The latest values, or None if there are none; and whether both slots are intact."""
        found = [self._read(start) for start in self._starts]
        intact = [values for values in found if values is not None]
        if not intact:
            return None, False
        latest = max(intact)
        self._turn = latest[0] + 1
        return latest[1:], len(intact) == 2

    def _read(self, start: int) -> tuple[Any, ...] | None:
        data, checksum = self._slot.unpack_from(self._buffer, start)
        return self._values.unpack(data) if crc32(data) == checksum else None

    def write(self, *values: Any) -> None:
        turn = self._turn
        data = self._values.pack(turn, *values)
        self._slot.pack_into(self._buffer, self._starts[turn & 1], data, crc32(data))
        self._turn = turn + 1

    def write_both(self, *values: Any) -> None:
        """Write both slots, so that damage to one does not bring back an older value."""
        self.write(*values)
        self.write(*values)


class Session(NamedTuple):
    """How the store was last used."""

    closed: bool
    boot_id: bytes
    uncertain_until: int
    """Messages up to this position may have been yielded before a power failure."""


class CursorFile:
    """The mapped file."""

    def __init__(self, buffer: bytearray | mmap.mmap) -> None:
        self._cursor = _Slots(buffer, 0, "QI")
        self._durable = _Slots(buffer, 2 * _SLOT_BYTES, "Q16s")
        self._session = _Slots(buffer, 4 * _SLOT_BYTES, "?16sQ")

    @classmethod
    def new(cls) -> bytes:
        """The content of a new file."""
        buffer = bytearray(CURSOR_BYTES)
        file = cls(buffer)
        file.write_cursor(0, 0, both=True)
        file.write_durable(Link(), both=True)
        file.session = Session(True, b"", 0)
        return bytes(buffer)

    @classmethod
    def open(cls, buffer: bytearray | mmap.mmap) -> CursorFile | None:
        """Open a file's content; None if it is damaged beyond use."""
        if len(buffer) != CURSOR_BYTES:
            return None
        file = cls(buffer)
        parts = (file._cursor, file._durable, file._session)
        return file if all(part.read()[0] is not None for part in parts) else None

    def read_cursor(self) -> tuple[Cursor, bool]:
        """The cursor, and whether it is certainly the latest one written."""
        values, intact = self._cursor.read()
        return Cursor(*values or (0, 0)), intact

    def write_cursor(self, acked: int, attempts: int, both: bool = False) -> None:
        write = self._cursor.write_both if both else self._cursor.write
        write(acked, attempts)

    @property
    def move_cursor(self) -> Callable[[int, int], None]:
        """A fast `write_cursor` for callers that call it for every message."""
        return self._cursor.write

    @property
    def durable(self) -> Link:
        values, _ = self._durable.read()
        return Link(*values or ())

    def write_durable(self, link: Link, both: bool = False) -> None:
        write = self._durable.write_both if both else self._durable.write
        write(link.number, link.digest)

    @property
    def session(self) -> Session:
        values, _ = self._session.read()
        return Session(*values or (False, b"", 0))

    @session.setter
    def session(self, session: Session) -> None:
        self._session.write_both(*session)
