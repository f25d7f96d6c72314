"""Temporary copies of files that readers cannot read in place: compressed ones, and tables with tabs.

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


_copies: dict[Path, _Copy] = {}


def register_copy(copy: Path, original: Path, suffix: str) -> None:
    """Remember for the time of this process of what a file is a copy, and what it is: `.csv`, `.jsonl` …"""
    for path in (copy, copy.resolve()):
        _copies[path] = _Copy(original, suffix)


def table_suffix(file: Path) -> str:
    """What the name of a table ends in, or would if it were no copy."""
    return _copies[file].suffix if file in _copies else file.suffix


def table_stem(file: Path) -> str:
    """The name of a table without its endings."""
    return Path(file.stem).stem if file in _copies and file.suffix in COMPRESSED else file.stem


def original_of(file: Path) -> Path:
    """What a file is a copy of; itself, if it is none."""
    return _copies[file].original if file in _copies else file
