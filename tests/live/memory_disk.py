"""A disk in memory: as fast as a simulation needs it, and with power failures.

A file's content is what was written; a power failure leaves what was synced, and any prefix of what was
appended since. The names of files are those of the last `sync_folder`, or later ones.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from antecede.errors import InputError


class MemoryFile:
    """Its content now, and as of the last sync."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = bytes(content)


class MemoryDisk:
    """Files in memory. `before` is called before each operation that changes something, and may raise."""

    def __init__(self, path: Path = Path("store"), boot: int = 1) -> None:
        self.path, self.boot = path, boot
        self.files: dict[str, MemoryFile] = {}
        self.durable_names: dict[str, MemoryFile] = {}
        self.before: Callable[[str, str], None] = lambda *_: None
        self.capacity: int | None = None
        """Bytes that fit; then writes fail halfway, as on a full disk."""
        self.is_locked = False

    # Called by a journal

    def lock(self) -> None:
        if self.is_locked:
            raise InputError(f"{self.path} is in use by another process")
        self.is_locked = True

    def names(self) -> list[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        return bytes(self._file(name).content)

    def write(self, name: str, data: bytes | bytearray) -> None:
        self.before("write", name)
        file = self.files[name] = self.files.get(name, MemoryFile())
        del file.content[:]
        self._add(file, data)

    def append(self, name: str, data: bytes | bytearray) -> None:
        self.before("append", name)
        self._add(self.files.setdefault(name, MemoryFile()), data)

    def _add(self, file: MemoryFile, data: bytes | bytearray) -> None:
        room = len(data)
        if self.capacity is not None:
            room = max(0, self.capacity - sum(len(each.content) for each in self.files.values()))
        file.content += data[:room]
        if room < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, name: str, size: int) -> None:
        self.before("truncate", name)
        del self._file(name).content[size:]

    def size(self, name: str) -> int:
        return len(self._file(name).content)

    def read_at(self, name: str, start: int, size: int) -> bytes:
        return bytes(self._file(name).content[start : start + size])

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        self.before("write_at", name)
        file = self.files.setdefault(name, MemoryFile())
        assert start <= len(file.content)
        del file.content[start : start + len(data)]
        rest = file.content[start:]
        del file.content[start:]
        self._add(file, data)
        file.content += rest

    def sync(self, name: str) -> None:
        self.before("sync", name)
        file = self._file(name)
        file.synced = bytes(file.content)

    def replace(self, name: str, new_name: str) -> None:
        self.before("replace", name)
        self.files[new_name] = self._file(name)
        del self.files[name]

    def remove(self, name: str) -> None:
        self.before("remove", name)
        self._file(name)
        del self.files[name]

    def sync_folder(self) -> None:
        self.before("sync_folder", "")
        self.durable_names = dict(self.files)

    def map(self, name: str) -> bytearray:
        return self._file(name).content

    def boot_id(self) -> bytes:
        return self.boot.to_bytes(16, "big") if self.boot else b""

    def close(self) -> None:
        self.is_locked = False

    def _file(self, name: str) -> MemoryFile:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return self.files[name]

    # Faults

    def killed(self) -> MemoryDisk:
        """After a process was killed: everything is there."""
        return self._copy(self.files, lambda file: bytes(file.content), self.boot)

    def after_power_failure(self, names_kept: bool, unsynced: float | None) -> MemoryDisk:
        """`names_kept`: files that were created, renamed or removed since the last `sync_folder` are.
        `unsynced`: the share of the data written since the last sync that survives; None: the file is as
        synced.
        """
        names = self.files if names_kept else self.durable_names

        def left(file: MemoryFile) -> bytes:
            if unsynced is None or file.content == file.synced:
                return file.synced
            if len(file.content) == len(file.synced):  # changed in place
                changed = int(unsynced * len(file.content))
                return bytes(file.content[:changed]) + file.synced[changed:]
            begin = len(file.synced) if file.content.startswith(file.synced) else 0
            return bytes(file.content[: begin + int(unsynced * (len(file.content) - begin))])

        return self._copy(names, left, self.boot + 1)

    def _copy(
        self, names: dict[str, MemoryFile], content: Callable[[MemoryFile], bytes], boot: int
    ) -> MemoryDisk:
        disk = MemoryDisk(self.path, boot)
        disk.files = {name: MemoryFile(content(file)) for name, file in names.items()}
        disk.durable_names = dict(disk.files)
        return disk
