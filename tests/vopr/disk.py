"""A simulated disk: it loses, tears, reorders and corrupts, is full for a while, and kills who uses it.

What is written is in the page cache: it survives the process and not the power. A power failure leaves, of
each sector that was written since the last sync, the old or the new content, and of the names that were
changed since the last `sync_folder` the first few changes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from antecede.errors import InputError

SECTOR = 64
"""Smaller than a real one, so that small files are torn too."""
Random = Callable[[], float]


class Killed(BaseException):
    """The process ends here. No cleanup of its own runs: every further operation raises this again."""


class SimulatedFile:
    __slots__ = ("content", "synced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = bytes(content)


class SimulatedDisk:
    """One member's folder, as one process sees it; `reopened` and `after_power_failure` give the next one."""

    def __init__(self, path: Path, boot: int = 1) -> None:
        self.path, self.boot = path, boot
        self.files: dict[str, SimulatedFile] = {}
        self._durable_names: dict[str, SimulatedFile] = {}
        self._changes: list[tuple[str, SimulatedFile | None]] = []
        """To names since the last `sync_folder`."""
        self.operations_left = -1
        """After so many operations the process is killed; never, if negative."""
        self.is_full = False
        self.is_dead = False

    # Called by a journal

    def lock(self) -> None:
        if self.is_dead:
            raise InputError(f"{self.path} is in use by another process")

    def names(self) -> list[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        return bytes(self._file(name).content)

    def write(self, name: str, data: bytes | bytearray) -> None:
        self._operate()
        file = self.files.get(name)
        if file is None:
            file = self._create(name)
        del file.content[:]
        self._add(file, data)

    def append(self, name: str, data: bytes | bytearray) -> None:
        self._operate()
        file = self.files.get(name)
        self._add(file if file is not None else self._create(name), data)

    def truncate(self, name: str, size: int) -> None:
        self._operate()
        del self._file(name).content[size:]

    def size(self, name: str) -> int:
        return len(self._file(name).content)

    def read_at(self, name: str, start: int, size: int) -> bytes:
        return bytes(self._file(name).content[start : start + size])

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        self._operate()
        file = self.files.get(name)
        if file is None:
            file = self._create(name)
        assert start <= len(file.content)
        del file.content[start : start + len(data)]
        rest = file.content[start:]
        del file.content[start:]
        self._add(file, data)
        file.content += rest

    def sync(self, name: str) -> None:
        self._operate()
        file = self._file(name)
        file.synced = bytes(file.content)

    def replace(self, name: str, new_name: str) -> None:
        self._operate()
        file = self.files[new_name] = self._file(name)
        del self.files[name]
        self._changes += [(new_name, file), (name, None)]

    def remove(self, name: str) -> None:
        self._operate()
        self._file(name)
        del self.files[name]
        self._changes.append((name, None))

    def sync_folder(self) -> None:
        self._operate()
        self._durable_names = dict(self.files)
        self._changes = []

    def map(self, name: str) -> bytearray:
        return self._file(name).content

    def boot_id(self) -> bytes:
        return self.boot.to_bytes(16, "big")

    def close(self) -> None:
        """The lock goes with the process."""

    def _operate(self) -> None:
        if self.operations_left >= 0:
            if self.operations_left == 0:
                self.is_dead = True
                raise Killed
            self.operations_left -= 1

    def _create(self, name: str) -> SimulatedFile:
        file = self.files[name] = SimulatedFile()
        self._changes.append((name, file))
        return file

    def _add(self, file: SimulatedFile, data: bytes | bytearray) -> None:
        if self.is_full and data:
            file.content += data[: len(data) // 2]
            raise OSError(errno.ENOSPC, "No space left on device")
        file.content += data

    def _file(self, name: str) -> SimulatedFile:
        file = self.files.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return file

    # Faults

    def reopened(self) -> SimulatedDisk:
        """The disk for the next process: all written data survives, synced or not."""
        disk = SimulatedDisk(self.path, self.boot)
        disk.files, disk._durable_names, disk._changes = self.files, self._durable_names, self._changes
        disk.is_full = self.is_full
        return disk

    def copy(self) -> SimulatedDisk:
        """Somebody copies the folder."""
        disk = SimulatedDisk(self.path, self.boot)
        disk.files = {name: SimulatedFile(bytes(file.content)) for name, file in self.files.items()}
        disk._durable_names = dict(disk.files)
        return disk

    def after_power_failure(self, random: Random) -> SimulatedDisk:
        names = dict(self._durable_names)
        for name, file in self._changes[: int(random() * (len(self._changes) + 1))]:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        disk = SimulatedDisk(self.path, self.boot + 1)
        disk.files = {name: SimulatedFile(_left_of(file, random)) for name, file in names.items()}
        disk._durable_names = dict(disk.files)
        return disk

    def corrupt(self, random: Random) -> str:
        """Flip a bit or zero a sector of the written data; returns which."""
        names = [name for name, file in self.files.items() if file.content]
        if not names:
            return "nothing"
        name = names[int(random() * len(names))]
        content = self.files[name].content
        place = int(random() * len(content))
        if random() < 0.5:
            content[place] ^= 1 << int(random() * 8)
            return f"bit flipped in byte {place} of {name}"
        start = place - place % SECTOR
        content[start : start + SECTOR] = bytes(len(content[start : start + SECTOR]))
        return f"bytes from {start} of {name} zeroed"


def _left_of(file: SimulatedFile, random: Random) -> bytes:
    """What a power failure leaves of a file: of each sector the old or the new content, zeros if it had
    none; the new length, a length between or the old one."""
    new, old = file.content, file.synced
    if new == old:
        return old
    mode = random()
    if mode < 0.2:
        return old
    if mode < 0.4:
        return bytes(new)
    shorter, longer = sorted((len(new), len(old)))
    length = shorter + int(random() * (longer - shorter + 1))
    left = bytearray()
    for start in range(0, length, SECTOR):
        end = min(start + SECTOR, length)
        part = (new if random() < 0.5 else old)[start:end]
        left += part + bytes(end - start - len(part))
    return bytes(left)
