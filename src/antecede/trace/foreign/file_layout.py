"""What the path of a file says about its rows: their run, and the values of Hive partitions.

Programs split one log into many files: one for each host, for each day, for each task that wrote it. So all
files at one path are one run by default; only a column or the user says otherwise.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from antecede.trace.copies import table_stem

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def default_run(path: Path, file: Path, run_per_file: bool) -> str:
    """The run of a file's rows if no column names it: the path that the user named, or the file within it."""
    if path == file:
        return table_stem(file)
    if run_per_file:
        return file.relative_to(path).with_name(table_stem(file)).as_posix()
    return path.resolve().name


def partition_values(path: Path, file: Path) -> dict[str, str | None]:
    """The columns that folders between `path` and the file name, as in `date=2024-05-01/part-0.parquet`.

    Spark and Hive write values percent-encoded, and a null under a name of its own.
    """
    values: dict[str, str | None] = {}
    for folder in file.relative_to(path).parts[:-1]:
        name, equals, value = folder.partition("=")
        if equals and name:
            values[unquote(name)] = None if value == _NULL_PARTITION else unquote(value)
    return values
