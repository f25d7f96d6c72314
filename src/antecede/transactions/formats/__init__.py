"""Formats of histories: one module each, with `NAME`, `recognise(head)` and `read(path, max_bytes)`.

`recognise` takes the first bytes of a file and returns the format's name, or None if it is something else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from antecede.errors import InputError
from antecede.trace.foreign.open_files import open_bytes
from antecede.transactions.formats import awdit, cobra, dbcop, dbcop_json, jepsen, plume
from antecede.transactions.history import History

HEAD_BYTES = 4096
"""Bytes that are enough to recognise a format."""


class _Format(NamedTuple):
    recognise: Callable[[bytes], str | None]
    read: Callable[[Path, int | None], History]


_READERS = [
    _Format(plume.recognise, plume.read),
    _Format(awdit.recognise, awdit.read),
    _Format(cobra.recognise, cobra.read),
    _Format(dbcop.recognise, dbcop.read),
    _Format(dbcop_json.recognise, dbcop_json.read),
    _Format(jepsen.recognise, jepsen.read),
]
PRESETS = ("plume", "dbcop", "cobra", "awdit", "jepsen")
"""The names by which a user chooses a format."""
_HISTORIES = ("history.bincode", "history.edn", "history.json")
"""The file with the whole history in a folder of dbcop, and in one in which Jepsen stores a test."""


def recognise(head: bytes) -> str | None:
    """The format of a file that begins with `head`; None if it is no history."""
    return next((name for known in _READERS if (name := known.recognise(head))), None)


def recognise_path(path: Path) -> str | None:
    """The format of a file or of a folder with one history; None if it is no history."""
    files = history_files(path)
    if not files:
        return None
    with open_bytes(files[0]) as stream:
        return recognise(stream.read(HEAD_BYTES))


def history_files(path: Path) -> list[Path]:
    """The files of a history: the file itself, or the files that dbcop, Jepsen or cobra write to a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    return [path / name for name in _HISTORIES if (path / name).is_file()][:1] or cobra.logs_of(path)


def read_history(path: str | Path, preset: str | None = None, max_bytes: int | None = None) -> History:
    """Read a history; its format is recognised by content, or named."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if preset is not None and preset not in PRESETS:
        raise InputError(f"{preset!r} is no format of histories; known are {', '.join(PRESETS)}")
    files = history_files(path)
    if not files:
        raise InputError(
            f"{path} has neither history.bincode (dbcop), history.edn or history.json (Jepsen) nor .log "
            "files (cobra)"
        )
    with open_bytes(files[0], max_bytes) as stream:
        head = stream.read(HEAD_BYTES)
    for known in _READERS:
        if (found := known.recognise(head)) and preset in (None, found):
            return known.read(path if path.is_file() else _whole(path, files), max_bytes)
    if preset is None:
        raise InputError(
            f"{path} is no history in a known format ({', '.join(PRESETS)}); name it with --preset"
        )
    readers = {"plume": plume.read, "awdit": awdit.read, "cobra": cobra.read, "dbcop": dbcop.read}
    readers["jepsen"] = jepsen.read
    return readers[preset](path if path.is_file() else _whole(path, files), max_bytes)


def _whole(path: Path, files: list[Path]) -> Path:
    """The input that a reader takes: the single file of dbcop or Jepsen, the folder of cobra."""
    return files[0] if files[0].name in _HISTORIES else path
