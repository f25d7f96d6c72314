"""Folders whose Parquet files are not the whole truth: tables of Delta Lake and Apache Iceberg.

Their logs say which files count and which rows are deleted. Read as plain Parquet, deleted and replaced rows
would come back.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from antecede.errors import InputError

DELTA, ICEBERG, HUDI = "Delta Lake", "Apache Iceberg", "Apache Hudi"
_SUBFOLDERS = frozenset({"_delta_log", "metadata", ".hoodie"})
_METADATA = re.compile(r"v?(\d+)(?:-[0-9a-fA-F-]+)?(?:\.gz)?\.metadata\.json(?:\.gz)?")


def table_folder(path: Path) -> str | None:
    """What kind of table a folder is; None if it is none."""
    if (path / "_delta_log").is_dir():
        return DELTA
    if (path / "metadata").is_dir() and any((path / "metadata").glob("*.metadata.json*")):
        return ICEBERG
    return HUDI if (path / ".hoodie").is_dir() else None


def refuse_table_folder(folder: Path, subfolders: Collection[str]) -> None:
    """Refuse a folder with these subfolders if its files must not be read one by one."""
    if not _SUBFOLDERS.isdisjoint(subfolders) and (kind := table_folder(folder)):
        raise InputError(
            f"{folder} is a table of {kind}, whose files alone do not say which rows are deleted; "
            f"{'' if kind == HUDI else 'name that folder itself to antecede, or '}export it as Parquet"
        )


def iceberg_metadata(path: Path) -> Path:
    """The newest metadata file of an Iceberg table."""
    folder = path / "metadata"
    numbered = {int(found[1]): file for file in folder.iterdir() if (found := _METADATA.fullmatch(file.name))}
    if not numbered:
        raise InputError(f"{folder} has no metadata file with a version in its name")
    return numbered[max(numbered)]
