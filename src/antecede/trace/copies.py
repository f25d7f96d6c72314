"""Temporary copies of what readers cannot read in place: compressed files, and tables with tabs, of Delta or
Iceberg.

A copy has the name of its original, so that runs, reasons and messages name what the user knows; but what its
name ends in no longer says what it is. So readers ask here, by the copy's path, for the ending that does.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

COMPRESSED = {".gz", ".gzip", ".zst", ".zstd", ".bz2"}
"""Endings of compressed files."""


class _Copy(NamedTuple):
    original: Path
    suffix: str
    version: str | None


_copies: dict[Path, _Copy] = {}


def register_copy(copy: Path, original: Path, suffix: str, version: str | None = None) -> None:
    """Remember for the time of this process of what a file is a copy, and what it is: `.csv`, `.jsonl` …

    `version` says which state of the original was copied, if that has several.
    """
    for path in (copy, copy.resolve()):
        _copies[path] = _Copy(original, suffix, version)


def table_suffix(file: Path) -> str:
    """What the name of a table ends in, or would if it were no copy."""
    return _copies[file].suffix if file in _copies else file.suffix


def table_stem(file: Path) -> str:
    """The name of a table without its endings."""
    return Path(file.stem).stem if file in _copies and file.suffix in COMPRESSED else file.stem


def original_of(file: Path) -> Path:
    """What a file is a copy of; itself, if it is none."""
    return _copies[file].original if file in _copies else file


def version_of(file: Path) -> str | None:
    """Which state of its original a copy is of: `version 3` of a Delta table, `snapshot 7` of Iceberg."""
    return _copies[file].version if file in _copies else None
