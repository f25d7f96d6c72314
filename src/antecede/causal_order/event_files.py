"""Tables of events in files: Parquet, JSON lines or CSV, recognised by their endings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from antecede.causal_order.request import OrderRequest
from antecede.errors import InputError

ENDINGS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv"}
_NAMES = {"parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}


class EventFiles(NamedTuple):
    """A file, or a folder of files, with a table of events."""

    path: Path
    format: str
    files: list[Path]
    partitioned: bool
    """Whether columns are in the names of folders, as in room=a."""


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
    files = [file for file in _visible_files(local) if file.suffix in ENDINGS]
    if not files:
        what = "no file in it ends" if local.is_dir() else "it does not end"
        raise InputError(f"{local} holds no events: {what} in {', '.join(ENDINGS)}")
    by_format = {ENDINGS[file.suffix]: file for file in reversed(files)}
    if len(by_format) > 1:
        present = " and ".join(f"{_NAMES[name]} ({file.name})" for name, file in sorted(by_format.items()))
        raise InputError(f"{local} holds {present}; events have one format: separate them into folders")
    if not any(file.stat().st_size for file in files):
        raise InputError(f"{local} holds no events: {files[0].name} is empty")
    (format_name,) = by_format
    if format_name == "csv":
        _refuse_other_headers(files)
    folders = {part for file in files for part in file.relative_to(local).parts[:-1]}
    return EventFiles(local, format_name, files, any("=" in part for part in folders))


def _visible_files(path: Path) -> list[Path]:
    """The regular files that Spark would read."""
    if not path.is_dir():
        return [path]

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}") from error

    files: list[Path] = []
    for parent, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files += [Path(parent) / name for name in names if not name.startswith((".", "_"))]
    return sorted(file for file in files if file.is_file())


def _refuse_other_headers(files: list[Path]) -> None:
    """Spark reads CSV by the places of columns, so all files must have the same header."""

    def header(file: Path) -> bytes:
        with file.open("rb") as lines:
            return lines.readline().strip()

    expected = header(files[0])
    for file in files[1:]:
        if file.stat().st_size and header(file) != expected:
            raise InputError(f"{file} has another header than {files[0].name}; all files need the same one")


def needs_split(name: str, request: OrderRequest) -> InputError:
    """The refusal of dependencies that are one text although ids are whole numbers."""
    return InputError(
        f"deps: column {name} is text, and {request.columns['id']} has whole numbers; if it holds several of "
        "them, give the text between two: --split ' '"
    )
