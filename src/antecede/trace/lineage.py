"""What an answer is based on, so that two people can compare: files, rows, runs, engine and version."""

from __future__ import annotations

import msgspec

from antecede import __version__
from antecede.trace.bad_rows import BadRowKind, BadRows, FileRows


class Lineage(msgspec.Struct, frozen=True):
    """What was read and how it was judged."""

    source: str
    """As the user named it."""
    files: list[FileRows]
    rows_read: int
    rows_skipped: int
    """Rows that were read and not judged."""
    skipped: list[BadRowKind]
    """Why, with examples."""
    runs: int
    engine: str
    version: str
    """Of Antecede."""


def lineage(bad: BadRows, runs: int, engine: str) -> Lineage:
    """The lineage of an answer about what `bad` has counted the rows of."""
    files = bad.files_read()
    return Lineage(
        source=bad.source,
        files=files,
        rows_read=sum(file.rows for file in files),
        rows_skipped=bad.rows_skipped,
        skipped=bad.skipped,
        runs=runs,
        engine=engine,
        version=__version__,
    )


def in_brief(found: Lineage) -> str:
    """The lineage in one line."""
    files = "1 file" if len(found.files) == 1 else f"{len(found.files):,} files"
    skipped = f", {found.rows_skipped:,} skipped" if found.rows_skipped else ""
    runs = "1 run" if found.runs == 1 else f"{found.runs:,} runs"
    place = "on Spark" if found.engine == "spark" else "in this process"
    return f"{found.rows_read:,} rows of {files}{skipped}; {runs}; {place}; Antecede {found.version}"
