"""Writes a source as the tables that other packages read: dependencies for graphs, events for ordering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from antecede.errors import InputError
from antecede.sources.carried import carried_type
from antecede.sources.dependency_log import Extractor
from antecede.sources.event_table import EventTable
from antecede.sources.fields import Template
from antecede.sources.imported import READERS as READERS_OF_WHOLE_LOGS
from antecede.sources.read import Source, read_source
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.dependency_writer import DependencyTableInfo, DependencyWriter

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
            where = f"{source.preset.record_name} {row}"
            where = where if len(source.files) == 1 else f"{file}, {where}"
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
    rows, carried = 0, _carried(source)
    schema = Extractor(source.preset, bad, carried).schema
    with EventTable(file, schema, bad, source.file_names) as events:
        for table in read_source(source, bad, carried, max_bytes, progress):
            rows += table.num_rows
            events.write(table)
    if not rows:
        raise InputError(f"{source.name} has no record that could be taken{bad.first_example()}")


def _carried(source: Source) -> dict[str, pa.DataType]:
    """The types of what records carry, by their columns."""
    preset, files = source.preset, source.files
    if preset.reader in READERS_OF_WHOLE_LOGS:
        return {"payload": pa.string()}
    paths = [path for text in preset.payload if (path := Template(text).path) is not None]
    kinds = {"payload": carried_type(files, paths)} if preset.payload else {"payload": pa.string()}
    if preset.reader == "kafka":
        kinds |= {name: carried_type(files, [(name,)]) for name in ("key", "headers")}
    return kinds
