"""Temporary copies of inputs that cannot be read in place: compressed files, tab-separated tables, Delta and
Iceberg tables.

A copy has the name of its original, so that runs, reasons and messages use the name that the user knows; but
the ending of that name no longer indicates the format. So readers look up the right ending here, by the
copy's path.
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
    """The ending of a table's name, or the ending it would have if it were not a copy."""
    return _copies[file].suffix if file in _copies else file.suffix


def table_stem(file: Path) -> str:
    """The name of a table without its endings."""
    return Path(file.stem).stem if file in _copies and file.suffix in COMPRESSED else file.stem


def original_of(file: Path) -> Path:
    """The original of a copy; the file itself, if it is not a copy."""
    return _copies[file].original if file in _copies else file


def version_of(file: Path) -> str | None:
    """The state of the original that was copied: `version 3` of a Delta table, `snapshot 7` of Iceberg."""
    return _copies[file].version if file in _copies else None
