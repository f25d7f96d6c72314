"""Tables of events in files: Parquet, JSON lines or CSV, recognised by their endings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from antecede.errors import InputError
from antecede.trace.copies import table_suffix
from antecede.trace.table_folders import refuse_table_folder

ENDINGS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv"}
_NAMES = {"parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}


class EventFiles(NamedTuple):
    """A file, or a folder of files, with a table of events."""

    path: Path
    format: str
    files: list[Path]
    """The files that are not empty."""

    @property
    def folder(self) -> Path:
        """Where names of folders begin to be columns, as in room=a."""
        return self.path if self.path.is_dir() else self.path.parent


def find_event_files(path: str) -> EventFiles:
    """The files at `path`, all of one format."""
    if not path:
        raise InputError("no events are named")
    if "://" in path:
        raise InputError(
            f"{path} is a URL; order reads local or commonly mounted files. In a program, causal_order takes "
            "whatever Spark reads: docs/how-to/order-a-stream.md"
        )
    local = Path(path)
    if not local.exists():
        raise InputError(f"{local} does not exist")
    files = [file for file in _visible_files(local) if table_suffix(file) in ENDINGS]
    if not files:
        what = "no file in it ends" if local.is_dir() else "it does not end"
        raise InputError(f"{local} holds no events: {what} in {', '.join(ENDINGS)}")
    by_format = {ENDINGS[table_suffix(file)]: file for file in reversed(files)}
    if len(by_format) > 1:
        present = " and ".join(f"{_NAMES[name]} ({file.name})" for name, file in sorted(by_format.items()))
        raise InputError(f"{local} holds {present}; events have one format: separate them into folders")
    filled = [file for file in files if file.stat().st_size]
    if not filled:
        raise InputError(f"{local} holds no events: {files[0].name} is empty")
    (format_name,) = by_format
    return EventFiles(local, format_name, filled)


def files_of_stream(checkpoint: Path) -> list[str]:
    """The files that a stream has read, by the log that Spark's file source keeps in its checkpoint.

    The log has one file per batch: a version, and then one entry per line. Every tenth file is `compact` and
    contains all earlier entries.
    """
    paths: dict[str, None] = {}
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            path = msgspec.json.decode(line)["path"]
            paths[unquote(path.removeprefix("file:")).replace("///", "/", 1)] = None
    return sorted(paths)


def _visible_files(path: Path) -> list[Path]:
    """The regular files that Spark would read."""
    if not path.is_dir():
        return [path]

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}") from error

    files: list[Path] = []
    for parent, folders, names in os.walk(path, onerror=refuse):
        refuse_table_folder(Path(parent), folders)
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files += [Path(parent) / name for name in names if not name.startswith((".", "_"))]
    return sorted(file for file in files if file.is_file())
