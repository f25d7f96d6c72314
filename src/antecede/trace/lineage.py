"""What an answer is based on, so that two people can compare: files, rows, runs, engine and version."""

from __future__ import annotations

from pathlib import Path

import msgspec

from antecede import __version__
from antecede.trace.bad_rows import BadRowKind, BadRows, FileRows
from antecede.units import count_of

_NAMED_FILES = 3
"""The number of files that the one-line lineage names."""


class Lineage(msgspec.Struct, frozen=True):
    """The inputs of an answer, and how they were judged."""

    source: str
    """The path as the user named it."""
    files: list[FileRows]
    rows_read: int
    rows_skipped: int
    """Rows that were read but not judged."""
    skipped: list[BadRowKind]
    """The reasons, with examples."""
    runs: int
    engine: str
    version: str
    """The version of Antecede."""
    unit: str = "row"
    """What is counted as rows: rows, records or operations."""
    groups: int | None = None
    """For `order`: the number of groups of the rows; None in a stream, which does not count them."""
    notes: list[str] = []
    """How the rows were read, where that may surprise a user."""


def lineage(
    bad: BadRows, runs: int, engine: str, groups: int | None = None, rows: int | None = None
) -> Lineage:
    """The lineage of an answer about the rows that `bad` has counted, or about `rows` if it has counted
    none."""
    files = bad.files_read()
    return Lineage(
        source=bad.source,
        files=files,
        rows_read=sum(file.rows or 0 for file in files) if rows is None else rows,
        rows_skipped=bad.rows_skipped,
        skipped=bad.skipped,
        runs=max(runs, bad.executions),
        engine=engine,
        version=__version__,
        unit=bad.unit,
        groups=groups,
        notes=bad.notes,
    )


def in_brief(found: Lineage) -> str:
    """The lineage in one line."""
    rows, files = count_of(found.rows_read, found.unit), _files(found)
    skipped = f", {found.rows_skipped:,} skipped" if found.rows_skipped else ""
    # A stream has counted rows, but not those of each file, and no groups.
    is_stream = any(file.rows is None and file.bytes is not None for file in found.files)
    shows_runs = found.runs > 1 or (found.groups is None and not is_stream)
    parts = [count_of(found.runs, "run")] if shows_runs else []
    parts += [count_of(found.groups, "group")] if found.groups is not None else []
    judged = f"{', '.join(parts)}; " if parts else ""
    place = "on Spark" if found.engine == "spark" else "in this process"
    return f"{rows} of {files}{skipped}; {judged}{place}; Antecede {found.version}"


def _files(found: Lineage) -> str:
    """The names of files if they are few; --json has all."""
    names = [each.file.removeprefix(f"{found.source}/") for each in found.files]
    names = [Path(name).name if Path(name).is_absolute() or name == found.source else name for name in names]
    if not names or len(names) > _NAMED_FILES:
        return count_of(len(names), "file")
    shown = [
        f"{name}, {each.version}" if each.version else name
        for name, each in zip(names, found.files, strict=True)
    ]
    return f"{count_of(len(names), 'file')} ({', '.join(shown)})"
