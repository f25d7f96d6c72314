"""Imports a log or graph of another program by the name of its format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antecede.errors import InputError
from antecede.trace.foreign.column_map import parse_dependency_map
from antecede.trace.foreign.dependency_writer import DependencyTableInfo, DependencyWriter
from antecede.trace.foreign.graph_sources import read_editing, read_git, read_table
from antecede.trace.foreign.shiviz import read_shiviz

FORMATS = ("shiviz", "editing", "dependencies", "git")


def import_path(
    form: str,
    path: Path,
    folder: Path,
    regex: str | None = None,
    strict: bool = False,
    max_bytes: int | None = None,
    delimiter: str | None = None,
    columns: Sequence[str] = (),
    name: str | None = None,
) -> DependencyTableInfo:
    """Read another program's file at `path`, and write a dependency table to `folder`.

    At most `max_bytes` of the file are read, counted after decompression. `columns` (--map) has the table's
    own names for the columns of `dependencies`, and `name` is what the user calls the file, if it is a copy.
    """
    if form not in FORMATS:
        raise InputError(f"no format '{form}'; there are {', '.join(FORMATS)}")
    for option, value in (("--regex", regex), ("--delimiter", delimiter)):
        if value is not None and form != "shiviz":
            raise InputError(f"{option} is for shiviz logs, not for {form}")
    if columns and form != "dependencies":
        raise InputError(f"--map is for tables of dependencies, not for {form}")
    into = DependencyWriter(name or str(path), form, strict)
    if form == "shiviz":
        read_shiviz(path, into, regex, max_bytes, delimiter)
    elif form == "editing":
        read_editing(path, into, max_bytes)
    elif form == "dependencies":
        read_table(path, into, max_bytes, parse_dependency_map(columns) if columns else None)
    else:
        read_git(path, into)
    return into.write(folder)
