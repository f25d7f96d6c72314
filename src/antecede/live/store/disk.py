"""The folder of a store, behind an interface that is narrow enough to simulate.

A journal accesses its files only through a `Disk`. Written data is certain to survive a power failure only
after `sync`; the creation, renaming or removal of a file, only after `sync_folder`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from antecede.durability import sync_data, sync_file, sync_folder
from antecede.errors import InputError

LOCK = "lock"
_GROWTH = 1 << 18
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Disk(Protocol):
    """One folder of files, which belongs to one store. Errors are `OSError`s, a missing file is a
    `FileNotFoundError`."""

    path: Path
    """The store's name in messages."""

    def lock(self) -> None:
        """Lock out other processes until `close`; an `InputError` if another one has the lock."""

    def names(self) -> list[str]:
        """The names of all files in the folder."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes | bytearray) -> None:
        """Create a file, or replace what it contains; not atomic."""

    def append(self, name: str, data: bytes | bytearray) -> None:
        """Append to a file. If that fails, a part may have been written. After a kill or a power failure,
        zeros may follow the appended data."""

    def truncate(self, name: str, size: int) -> None: ...

    def size(self, name: str) -> int: ...

    def read_at(self, name: str, start: int, size: int) -> bytes:
        """A part of a file; shorter at its end."""

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        """Write a part of a file, which is created if it does not exist; not beyond its end. No zeros follow
        it, even after a kill."""

    def sync(self, name: str) -> None:
        """Return once the file's content is durable."""

    def replace(self, name: str, new_name: str) -> None:
        """Rename a file, atomically, over any other of that name."""

    def remove(self, name: str) -> None: ...

    def sync_folder(self) -> None:
        """Return once the names of all files are durable."""

    def map(self, name: str) -> bytearray | mmap.mmap:
        """A small file's content, shared with the file: other processes and a restart of this one see changes
        at once, and they are durable after `sync`."""

    def boot_id(self) -> bytes:
        """Different after each boot of the machine; empty if unknown."""

    def close(self) -> None: ...


class Files(Protocol):
    """The part of a `Disk` that snapshots and histories need."""

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read_at(self, name: str, start: int, size: int) -> bytes: ...

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None: ...

    def truncate(self, name: str, size: int) -> None: ...

    def sync(self, name: str) -> None: ...

    def replace(self, name: str, new_name: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_folder(self) -> None: ...


class FileDisk:
    """A real folder. Only its owner can read it (0700), and the files in it (0600)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        self._logs: dict[str, _GrowingFile] = {}
        """Files open for appending."""
        self._maps: dict[str, mmap.mmap] = {}
        if self.path.exists() and not self.path.is_dir():
            raise InputError(
                f"{self.path} cannot be used as a store: it is a file, and a store is a folder"
                f"{_sqlite_hint(self.path)}; name another path"
            )

    def lock(self) -> None:
        try:
            _make_folder(self.path)
            lock = self._open(LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise InputError(f"store: {error.filename}: {error.strerror}") from error
        try:
            _lock_function()(lock)
        except OSError:
            os.close(lock)
            raise InputError(f"{self.path} is in use by another process") from None
        self._lock = lock

    def names(self) -> list[str]:
        return [file.name for file in self.path.iterdir()]

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes | bytearray) -> None:
        descriptor = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def append(self, name: str, data: bytes | bytearray) -> None:
        if name not in self._logs:
            self._logs[name] = _GrowingFile(self._open(name, os.O_RDWR | os.O_CREAT))
        self._logs[name].append(data)

    def truncate(self, name: str, size: int) -> None:
        self._close_log(name)
        os.truncate(self.path / name, size)

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def read_at(self, name: str, start: int, size: int) -> bytes:
        descriptor = os.open(self.path / name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            os.lseek(descriptor, start, os.SEEK_SET)
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        descriptor = self._open(name, os.O_WRONLY | os.O_CREAT)
        try:
            os.lseek(descriptor, start, os.SEEK_SET)
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def sync(self, name: str) -> None:
        if (mapped := self._maps.get(name)) is not None:
            mapped.flush()
        elif (log := self._logs.get(name)) is not None:
            sync_data(log.descriptor)
        else:
            sync_file(self.path / name)

    def replace(self, name: str, new_name: str) -> None:
        (self.path / name).replace(self.path / new_name)

    def remove(self, name: str) -> None:
        self._close_log(name)
        (self.path / name).unlink()

    def sync_folder(self) -> None:
        sync_folder(self.path)

    def map(self, name: str) -> mmap.mmap:
        descriptor = self._open(name, os.O_RDWR)
        try:
            self._maps[name] = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        return self._maps[name]

    def boot_id(self) -> bytes:
        try:
            return bytes.fromhex(Path(_BOOT_ID).read_text().strip().replace("-", ""))
        except (OSError, ValueError):
            return b""

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()
        self._maps = {}
        for name in list(self._logs):
            self._close_log(name)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _close_log(self, name: str) -> None:
        if (log := self._logs.pop(name, None)) is not None:
            log.close()

    def _open(self, name: str, flags: int) -> int:
        return os.open(self.path / name, flags | getattr(os, "O_BINARY", 0), 0o600)


class MemoryFiles:
    """The files of a member without a store, as far as snapshots and histories need a `Disk`."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}

    def names(self) -> list[str]:
        return list(self._files)

    def size(self, name: str) -> int:
        return len(self._files[name])

    def read_at(self, name: str, start: int, size: int) -> bytes:
        return bytes(memoryview(self._files[name])[start : start + size])

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        self._files.setdefault(name, bytearray())[start : start + len(data)] = data

    def truncate(self, name: str, size: int) -> None:
        del self._files[name][size:]

    def sync(self, name: str) -> None:
        """There is nothing to wait for."""

    def replace(self, name: str, new_name: str) -> None:
        self._files[new_name] = self._files.pop(name)

    def remove(self, name: str) -> None:
        del self._files[name]

    def sync_folder(self) -> None:
        """There is nothing to wait for."""


class ViewedFiles(MemoryFiles):
    """The files of a store under inspection: changes stay in memory."""

    def __init__(self, disk: Files) -> None:
        super().__init__()
        self._disk, self._hidden = disk, set[str]()

    def names(self) -> list[str]:
        return sorted({*self._disk.names(), *super().names()} - self._hidden)

    def size(self, name: str) -> int:
        return super().size(name) if name in self._files else self._disk.size(name)

    def read_at(self, name: str, start: int, size: int) -> bytes:
        if name in self._files:
            return super().read_at(name, start, size)
        return self._disk.read_at(name, start, size)

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        self._copy(name)
        super().write_at(name, start, data)

    def truncate(self, name: str, size: int) -> None:
        self._copy(name)
        super().truncate(name, size)

    def remove(self, name: str) -> None:
        self._files.pop(name, None)
        self._hidden.add(name)

    def _copy(self, name: str) -> None:
        if name not in self._files:
            size = self._disk.size(name) if name in self.names() else 0
            self._files[name] = bytearray(self._disk.read_at(name, 0, size) if size else b"")
        self._hidden.discard(name)


def _make_folder(path: Path) -> None:
    """Create the folder durably: a power failure that removes it would lose the store with everything
    accepted."""
    if path.is_dir():
        return
    absolute = path.absolute()
    missing = [folder for folder in (absolute, *absolute.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in missing:
        sync_folder(folder.parent)


class _GrowingFile:
    """A file that is extended by zeros in advance: a sync after an append within it need not write a new
    length, which takes as long again on a journaling file system. Remaining zeros are truncated when it is
    closed; after a kill the reader recognises them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._end = self._size = os.lseek(descriptor, 0, os.SEEK_END)

    def append(self, data: bytes | bytearray) -> None:
        needed = self._end + len(data)
        if needed > self._size:
            # If the disk has no room for zeros, the data may still fit.
            with contextlib.suppress(OSError):
                _write_all(self.descriptor, bytes(needed - self._end + _GROWTH))
            self._size = max(needed, os.lseek(self.descriptor, 0, os.SEEK_END))
            os.lseek(self.descriptor, self._end, os.SEEK_SET)
        _write_all(self.descriptor, data)
        self._end = needed

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, self._end)
        os.close(self.descriptor)


def _write_all(descriptor: int, data: bytes | bytearray) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _lock_function() -> Callable[[int], None]:
    """The platform's way to lock a file for one process."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        windows: Any = msvcrt
        return lambda descriptor: windows.locking(descriptor, windows.LK_NBLCK, 1)
    return lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sqlite_hint(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(15) == b"SQLite format 3":
            return " (this is one of format 4 or older, if it is a store)"
    return ""
