"""Writes a source as the tables that other packages read: dependencies for graphs, events for ordering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from antecede.errors import InputError
from antecede.sources.dependency_log import SCHEMA
from antecede.sources.read import Source, read_source
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.dependency_writer import DependencyTableInfo, DependencyWriter
from antecede.trace.parquet_files import parquet_writer

Progress = Callable[[str, int, int], None]


def write_dependency_table(
    source: Source,
    folder: Path,
    bad: BadRows,
    progress: Progress = lambda *_: None,
    max_bytes: int | None = None,
) -> DependencyTableInfo:
    """Write a dependency table; records without a sequence number are counted in the order of the files."""
    into = DependencyWriter(source.name, source.preset.name, bad=bad)
    counts = Counter[str]()
    columns = ("id", "process", "seq", "causes", "file", "row")
    for table in read_source(source, bad, max_bytes=max_bytes, progress=progress):
        for name, process, seq, causes, file, row in zip(
            *(table.column(each).to_pylist() for each in columns), strict=True
        ):
            counts[process] += 1
            where = f"row {row}" if len(source.files) == 1 else f"{file}, row {row}"
            into.add(name, process, counts[process] if seq is None else seq, causes, where)
    return into.write(folder)


def write_event_table(
    source: Source,
    file: Path,
    bad: BadRows,
    progress: Progress = lambda *_: None,
    max_bytes: int | None = None,
) -> None:
    """Write the dependency log itself, with what the records carry, as Parquet."""
    rows = 0
    with parquet_writer(file, SCHEMA) as writer:
        for table in read_source(source, bad, with_payload=True, max_bytes=max_bytes, progress=progress):
            rows += table.num_rows
            writer.write_table(table)
    if not rows:
        raise InputError(f"{source.name} has no record that could be taken{bad.first_example()}")
