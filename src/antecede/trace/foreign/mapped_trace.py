"""A table of events with other column names (`--map`) as a trace of ours, for the time of one command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from antecede.errors import InputError
from antecede.temporary_folders import temporary_folder
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.column_map import names_dependencies


@contextmanager
def mapped_trace(
    path: str,
    columns: Sequence[str],
    progress: Callable[[str, int, int], None] = lambda *_: None,
    bad: BadRows | None = None,
    run_per_file: bool = False,
) -> Iterator[str]:
    """The path of a trace with our columns: `path` itself, or a temporary copy if --map names columns.

    `bad` counts the rows that cannot be read and are not in the copy; without it they raise an error. The
    files of a folder are one run, or with `run_per_file` a run each, where no column says otherwise.
    """
    if not columns and run_per_file:
        raise InputError("--run-per-file is for tables that are read with --map; a trace names its runs")
    if not columns and not _has_other_times(path):
        yield path
    elif names_dependencies(columns):
        raise InputError(f"{path}: --map names a table of dependencies, which has no deliveries")
    else:
        yield from _converted(path, columns, progress, bad, run_per_file)


def _has_other_times(path: str) -> bool:
    """Whether a trace under our own names has times that are not integers, such as timestamps."""
    from pathlib import Path

    import pyarrow as pa

    from antecede.trace.reader import open_any_parquet, trace_files
    from antecede.trace.schema import REQUIRED

    if "://" in path or not Path(path).exists():
        return False
    try:
        first = next((file for file in trace_files(Path(path)) if file.suffix == ".parquet"), None)
        columns = open_any_parquet(first).schema_arrow if first is not None else pa.schema([])
    except InputError:  # The reader of the trace reports what is wrong with it.
        return False
    if columns.names.count("time") != 1 or not {*REQUIRED} <= {*columns.names}:
        return False
    return not pa.types.is_integer(columns.field("time").type)


def _converted(
    path: str,
    columns: Sequence[str],
    progress: Callable[[str, int, int], None],
    bad: BadRows | None,
    run_per_file: bool,
) -> Iterator[str]:
    from pathlib import Path

    from antecede.trace.foreign.column_map import parse_column_map
    from antecede.trace.foreign.to_trace import convert_to_trace
    from antecede.trace.reader import trace_files
    from antecede.trace.writer import write_parts

    mapping = parse_column_map(columns, run_per_file)
    scheme, is_url, rest = path.partition("://")
    if is_url and scheme != "file":
        raise InputError(f"{path}: --map is for local files; copy it here first")
    if not path:
        raise InputError("no trace is named")
    local = Path(rest if is_url else path)
    files = trace_files(local)
    with temporary_folder("trace") as folder:
        progress("reading", 0, 0)
        write_parts(folder, convert_to_trace(local, files, mapping, bad))
        try:
            yield str(folder)
        except InputError as error:
            raise InputError(str(error).replace(str(folder), path)) from error
