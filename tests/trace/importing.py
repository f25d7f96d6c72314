"""Imports in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from antecede.sources import find_source
from antecede.sources.tables import write_dependency_table
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import DEPENDENCIES
from antecede.trace.foreign.dependency_writer import DependencyTableInfo, read_table_info
from antecede.trace.foreign.import_formats import import_path


def import_as(form: str, path: Path, folder: Path, **options: Any) -> DependencyTableInfo:
    """Import a file by the name of its format, as the command does."""
    if form != "dependencies":
        return import_path(form, path, folder, **options)
    source = find_source(str(path), form)
    assert source is not None
    bad = BadRows(str(path), options.pop("strict", False))
    return write_dependency_table(source, folder, bad, **options)


def imported(form: str, path: Path, **options: Any) -> tuple[DependencyTableInfo, list[dict[str, Any]]]:
    """What an import returns and the rows it writes, which must have parents first."""
    folder = path.parent / f"{path.name}.imported"
    about = import_as(form, path, folder, **options)
    assert read_table_info(folder) == about
    rows = pq.read_table(folder / DEPENDENCIES).to_pylist()
    seen: set[str] = set()
    for row in rows:
        assert seen.issuperset(row["parents"])
        assert row["node"] not in seen
        seen.add(row["node"])
    assert len(rows) == about.rows
    return about, rows


def wrote(folder: Path, content: str | bytes, name: str = "it") -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name
