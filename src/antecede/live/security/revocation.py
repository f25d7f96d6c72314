"""Revoked names, certificates and tokens: the file `revoked` in a member's folder of keys.

Each line is a member's name, the serial number of a certificate in hexadecimal, or the id of a token; text
after a # is a comment. The file is reloaded when it changes, while the member runs.
"""

from __future__ import annotations

import re
from pathlib import Path

from antecede.live.operations.logs import Log
from antecede.protocols.base import RemoteError

REVOKED = "revoked"
_ENTRY = re.compile(r"[^\s@/\\,]{1,128}")


def read_entries(data: bytes) -> tuple[list[str], list[int]]:
    """The entries of such a file, and the numbers of its invalid lines."""
    entries, bad = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        entry = line.decode("utf-8", "surrogateescape").partition("#")[0].strip()
        if not entry:
            continue
        if _ENTRY.fullmatch(entry) and entry.isprintable():
            entries.append(entry)
        else:
            bad.append(number)
    return entries, bad


def normalize_id(text: str) -> str:
    """The canonical form of a serial number or token id: OpenSSL shows AB:CD, others 0xabcd or abcd.

    >>> normalize_id("0A:BC") == normalize_id("abc")
    True
    """
    return text.lower().removeprefix("0x").replace(":", "").lstrip("0")


class Revocations:
    """The current revocations in the file. Checking whether it has changed costs one `stat`."""

    def __init__(self, path: Path, log: Log) -> None:
        self._path, self._log = path, log
        self._version: tuple[int, ...] | None = None
        self._names: frozenset[str] = frozenset()
        self._ids: frozenset[str] = frozenset()
        self.refresh()

    def refresh(self) -> bool:
        """Reload the file if it has changed, and return whether it has."""
        version: tuple[int, ...] | None
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
        except FileNotFoundError:
            version = None
        except OSError as error:
            version = (-1, error.errno or 0)
        if version == self._version:
            return False
        self._version = version
        try:
            entries, bad = read_entries(self._path.read_bytes() if version is not None else b"")
        except OSError as error:
            # Earlier revocations remain: making the file unreadable must not admit anybody.
            self._log.warning("keys: %s: %s; what was revoked before stays so", self._path, error.strerror)
            return False
        for number in bad:
            self._log.warning(
                "keys: %s, line %d: not a name, a serial number or a token's id; the other lines apply",
                self._path,
                number,
            )
        self._names = frozenset(entries)
        self._ids = frozenset(filter(None, map(normalize_id, entries)))
        return True

    def check(self, name: str, number: str, kind: str) -> None:
        """Raise if a name, or its certificate or token of this number, is revoked."""
        if name in self._names:
            raise RemoteError(f"{name} was revoked")
        if normalize_id(number) in self._ids:
            raise RemoteError(f"its {kind} was revoked")
