"""Imports a log or graph of another program by the name of its format."""

from __future__ import annotations

from pathlib import Path

from antecede.errors import InputError
from antecede.trace.foreign.dependency_writer import DependencyTableInfo, DependencyWriter
from antecede.trace.foreign.graph_sources import read_editing, read_git
from antecede.trace.foreign.shiviz import read_shiviz

FORMATS = ("shiviz", "editing", "git")


def import_path(
    form: str,
    path: Path,
    folder: Path,
    regex: str | None = None,
    strict: bool = False,
    max_bytes: int | None = None,
    delimiter: str | None = None,
    name: str | None = None,
) -> DependencyTableInfo:
    """Read another program's file at `path`, and write a dependency table to `folder`.

    At most `max_bytes` of the file are read, counted after decompression. `name` is what the user calls the
    file, if it is a copy.
    """
    if form not in FORMATS:
        raise InputError(f"no format '{form}'; there are {', '.join(FORMATS)}")
    for option, value in (("--regex", regex), ("--delimiter", delimiter)):
        if value is not None and form != "shiviz":
            raise InputError(f"{option} is for shiviz logs, not for {form}")
    into = DependencyWriter(name or str(path), form, strict)
    if form == "shiviz":
        into.runs = read_shiviz(path, into, regex, max_bytes, delimiter)
    elif form == "editing":
        read_editing(path, into, max_bytes)
    else:
        read_git(path, into)
    return into.write(folder)
