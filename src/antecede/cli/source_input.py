"""The input of audit, graph, advise and order, whatever its format: as a table that they read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer
from typer.main import get_current_context  # type: ignore[attr-defined]

from antecede.cli import show
from antecede.cli.options import Columns, MaxBytes, RunPerFile, Strict
from antecede.errors import InputError
from antecede.temporary_folders import TemporaryFolder

if TYPE_CHECKING:
    from antecede.causal_order.request import OrderRequest
    from antecede.sources import Source
    from antecede.sources.preset import Preset
    from antecede.trace.bad_rows import BadRows

PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME|FILE",
        help="The format of the input, or a file with your own preset; by default the format is "
        "recognised. antecede sources lists the formats.",
    ),
]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How audit, graph and advise read a log."""

    columns: Columns = None
    run_per_file: RunPerFile = False
    preset: PresetName = None
    strict: Strict = False
    max_bytes: MaxBytes = None


def local_input(path: str, max_bytes: int | None = None, spark: bool = True) -> str:
    """The user's input as a path on this machine, unless it is a URL for Spark.

    Files at http or https URLs are downloaded for the duration of the command. A URL is shown without its
    secrets. Without `spark`, the command reads only local files.
    """
    from antecede.sources.download import SCHEMES, download, without_secrets

    scheme, is_url, _ = path.partition("://")
    scheme = scheme.lower()
    if not is_url or scheme == "file":
        local = _path_of(path) if is_url else path
        _refuse_unreadable(Path(local))
        return local
    show.show_as(path, without_secrets(path))
    if scheme not in SCHEMES:
        if spark:
            return path
        raise InputError(
            f"{path} is read by Spark only, and this command reads local files; copy it here first"
        )
    folder = TemporaryFolder("download")
    get_current_context().call_on_close(folder.remove)
    with show.progress() as progress:
        file = str(download(path, folder.path, max_bytes, progress))
    show.show_as(file, without_secrets(path))
    return file


def _refuse_unreadable(path: Path) -> None:
    """Refuse files that this user may not read, before searching them."""
    try:
        needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
        readable = not path.exists() or os.access(path, needed)
    except PermissionError:
        raise InputError(f"{path} is in a folder that you may not read; ask for permission") from None
    if not readable:
        raise InputError(f"you may not read {path}; ask for permission")


def _path_of(url: str) -> str:
    """The path that a URL of a file names."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InputError(f"{url} is a file of another machine; write file:///PATH for one of this machine")
    return unquote(parts.path)


def local_copy(path: str, separators: bool = True, max_bytes: int | None = None) -> str:
    """The path itself, or that of a temporary copy if the input is compressed or a Delta or Iceberg table.

    The copy is removed when the command ends. It is shown under the user's name for the original.
    """
    from antecede.sources.unpack import TABLE_COPY, copy_for_readers, needs_copy
    from antecede.trace.table_folders import table_folder

    scheme, is_url, rest = path.partition("://")
    local = Path(rest if is_url else path)
    if not path or (is_url and scheme != "file") or not needs_copy(local, separators):
        return path
    folder = TemporaryFolder("unpacked")
    get_current_context().call_on_close(folder.remove)
    copy = copy_for_readers(local, folder.path, separators, max_bytes)
    if table_folder(local):
        # The single file of its copy is the whole table.
        show.show_as(str(copy / TABLE_COPY), show.as_named(path))
    show.show_as(str(copy), show.as_named(path))
    return str(copy)


def trace_at(path: str, columns: Sequence[str] | None, max_bytes: int | None) -> str:
    """The user's input as a local path, for commands that show deliveries, which other formats have not."""
    from antecede.sources import find_source

    path = local_copy(local_input(path, max_bytes, spark=False), max_bytes=max_bytes)
    source = None if columns else find_source(path)
    if source is not None:
        raise InputError(
            f"{path} ({source.preset.name}) says what depends on what, but not who delivered what and in "
            "which order, which this command shows; antecede audit, graph, advise and order read it"
        )
    if not columns:
        _refuse_other_formats(path)
    return table_by_content(path, columns, max_bytes)


def table_by_content(path: str, columns: Sequence[str] | None, max_bytes: int | None) -> str:
    """A table that --map describes, registered by its content, or a copy of it if it is a JSON array.

    In a folder, files are taken by their names, unless no name is that of a table.
    """
    from antecede.sources.by_content import name_by_content
    from antecede.trace.copies import table_suffix
    from antecede.trace.reader import TRACE_SUFFIXES

    folder = Path(path)
    if not columns or "://" in path:
        return path
    if not folder.is_dir():
        return _by_content(path, _names_of_columns(columns), ",", max_bytes)
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    if not any(table_suffix(file) in TRACE_SUFFIXES for file in files):
        for file in files:
            name_by_content(file, _names_of_columns(columns), ",")
    return path


def _names_of_columns(columns: Sequence[str]) -> list[str]:
    from antecede.trace.foreign.column_map import parse_column_map

    return [theirs for theirs in parse_column_map(columns).columns.values() if theirs]


def _by_content(path: str, columns: Sequence[str], separator: str, max_bytes: int | None) -> str:
    """The path of a table, registered by its content; a folder is one by the names of its files."""
    from antecede.sources.by_content import as_json_lines, name_by_content

    file = Path(path)
    if not file.is_file():
        return path
    name_by_content(file, columns, separator)
    folder = TemporaryFolder("unpacked")
    get_current_context().call_on_close(folder.remove)
    copy = as_json_lines(file, folder.path, max_bytes)
    if copy is None:
        return path
    show.show_as(str(copy), show.as_named(path))
    return str(copy)


def source_at(
    path: str,
    columns: Sequence[str] | None,
    preset: str | None,
    max_bytes: int | None = None,
    separators: bool = True,
) -> tuple[str, Source | None]:
    """A path that can be read, and the source there: none if --map says which columns of events it has.

    Without `separators`, the user has said what separates the fields of a table.
    """
    from antecede.sources import find_source
    from antecede.sources.read import mapped_dependencies
    from antecede.sources.unpack import holds_packed_parquet
    from antecede.trace.foreign.column_map import names_dependencies, parse_dependency_map
    from antecede.trace.table_folders import table_folder

    if columns and preset is not None:
        raise InputError("--map and --preset both say what the columns are; give one of them")
    if preset is not None:
        preset_named(preset)
    if "://" not in path and (table_folder(Path(path)) or holds_packed_parquet(Path(path))):
        path = local_copy(path, separators, max_bytes)
    if columns and names_dependencies(columns):
        source: Source | None = mapped_dependencies(path, parse_dependency_map(columns))
    else:
        source = None if columns else find_source(path, preset)
    if source is not None:
        source = source._replace(called=show.as_named(path))
    elif not columns:
        _refuse_other_formats(path)
    return (local_copy(path, separators, max_bytes) if source is None else path), source


def preset_named(name: str) -> Preset:
    """The preset with this name or in this file; the error for an unknown name lists all names."""
    from antecede.sources import PRESETS, find_preset
    from antecede.transactions.formats import PRESETS as HISTORIES

    if name in HISTORIES:
        raise InputError(
            f"{name} is a format of histories of transactions, which only audit reads, and has no preset "
            "to change; see Transaction histories in the documentation"
        )
    try:
        return find_preset(name)
    except InputError as error:
        if not str(error).startswith("no preset"):
            raise
        raise InputError(
            f"no preset '{name}'; there are {', '.join(PRESETS)}, for audit also {', '.join(HISTORIES)}, or "
            "give a file that antecede sources NAME > FILE has written"
        ) from None


def _refuse_other_formats(path: str) -> None:
    """Refuse an empty file, and a history of transactions, each with an explanation."""
    from antecede.trace.foreign.open_files import read_head
    from antecede.transactions.formats import recognise_path

    if "://" in path or not Path(path).exists():
        return
    if Path(path).is_file() and not read_head(Path(path), 1):
        raise InputError(f"{path} is empty")
    if recognise_path(Path(path)) is not None:
        raise InputError(
            f"{path} is a history of transactions, which only audit reads; "
            "see Transaction histories in the documentation"
        )


def refuse_run_per_file(source: Source) -> None:
    """Refuse --run-per-file for a source without deliveries, whose files are one log."""
    raise InputError(
        f"--run-per-file is for logs with deliveries; {source.name} is {source.preset.name}, of which all "
        "files are one log"
    )


@contextmanager
def readable_log(path: str, options: InputOptions, progress: Progress, bad: BadRows) -> Iterator[str]:
    """The path of a trace or dependency table of ours: `path` itself, or a temporary copy of the source."""
    from antecede.temporary_folders import temporary_folder
    from antecede.trace.dependencies import is_imported
    from antecede.trace.foreign.mapped_trace import mapped_trace

    columns = options.columns or []
    path = local_input(path, options.max_bytes)
    if options.preset is None and not columns and is_imported(Path(path)):
        yield path
        return
    path, source = source_at(path, columns, options.preset, options.max_bytes)
    if source is None:
        path = table_by_content(path, columns, options.max_bytes)
        with mapped_trace(path, columns, progress, bad, options.run_per_file) as ours:
            yield ours
        return
    if options.run_per_file:
        refuse_run_per_file(source)
    from antecede.sources.tables import write_dependency_table

    with temporary_folder("source") as folder:
        table = folder / (source.path.resolve().name.split(".")[0] or "log")
        write_dependency_table(source, table, bad, progress, options.max_bytes)
        try:
            yield str(table)
        except InputError as error:
            raise InputError(str(error).replace(str(table), path)) from error


def _read_as_asked(source: Source, request: OrderRequest) -> Source:
    """The source in the encoding and with the separator that the user has named; its copy needs neither
    option."""
    from antecede.sources.read import read_as

    encoding, separator = request.encoding or "", request.separator.replace(",", "")
    request.csv.validate()
    request.encoding, request.separator = None, ","
    return read_as(source, encoding, separator)


@contextmanager
def orderable_events(
    path: str,
    request: OrderRequest,
    preset: str | None,
    max_bytes: int | None,
    progress: Progress,
    bad: BadRows,
) -> Iterator[str]:
    """The path of a table of events: `path` itself, or a temporary copy of the source.

    A source is one if --preset names it, or if no option says which columns there are; then `request` gets
    the columns of the copy. Of records that no cause orders, the one with the lower time comes first. Topics
    of Debezium are merged.
    """
    named = any(request.columns[role] for role in ("id", "deps", "origin", "seq", "clock"))
    if named and preset is not None:
        raise InputError("--preset says which columns there are; leave out --id, --deps, --origin, --clock")
    path = local_input(path, max_bytes)
    separators = request.separator == "," and request.encoding is None
    path, source = source_at(path, ["named"] if named else None, preset, max_bytes, separators)
    if source is None:
        columns = [name for role, name in request.columns.items() if name is not None]
        yield _by_content(path, columns, request.separator, max_bytes)
        return
    from antecede.sources.changes import write_change_table
    from antecede.sources.tables import write_event_table
    from antecede.temporary_folders import temporary_folder

    source = _read_as_asked(source, request)
    write: Callable[..., None] = write_event_table
    if source.preset.reader == "debezium":
        request.merges, snapshot_of = True, request.merge.snapshot_of
        write = partial(write_change_table, without=request.without, snapshot_of=snapshot_of)
        request.columns |= {"origin": "topic", "seq": "offset"}
    else:
        request.columns |= {"id": "id", "deps": "causes", "by": request.columns["by"] or "time"}
    with temporary_folder("source") as folder:
        file = folder / "events.parquet"
        write(source, file, bad, progress, max_bytes)
        try:
            yield str(file)
        except InputError as error:
            raise InputError(str(error).replace(str(file), path)) from error
