"""The files of one group in the store of a process that is in several groups."""

from __future__ import annotations

from hashlib import sha256

from antecede.live.store.disk import Files


class GroupFiles:
    """Snapshots and histories, under names that include their group."""

    def __init__(self, files: Files, group: str) -> None:
        self._files = files
        self._prefix = f"in-{sha256(group.encode()).hexdigest()[:16]}-"

    def names(self) -> list[str]:
        prefix = self._prefix
        return [each.removeprefix(prefix) for each in self._files.names() if each.startswith(prefix)]

    def size(self, name: str) -> int:
        return self._files.size(self._prefix + name)

    def read_at(self, name: str, start: int, size: int) -> bytes:
        return self._files.read_at(self._prefix + name, start, size)

    def write_at(self, name: str, start: int, data: bytes | bytearray) -> None:
        self._files.write_at(self._prefix + name, start, data)

    def truncate(self, name: str, size: int) -> None:
        self._files.truncate(self._prefix + name, size)

    def sync(self, name: str) -> None:
        self._files.sync(self._prefix + name)

    def replace(self, name: str, new_name: str) -> None:
        self._files.replace(self._prefix + name, self._prefix + new_name)

    def remove(self, name: str) -> None:
        self._files.remove(self._prefix + name)

    def sync_folder(self) -> None:
        self._files.sync_folder()
