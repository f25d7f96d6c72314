"""The input of audit, graph, advise and order, whatever its format: as a table that they read."""

from __future__ import annotations

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
    from antecede.trace.bad_rows import BadRows

PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME|FILE",
        help="Read it as this format, or by a preset that you have saved; without it formats are recognised. "
        "antecede sources lists them.",
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
    """What a user names, as a path on this machine where it is not a URL for Spark.

    What is at http or https is downloaded for the time of the command. A URL is shown without its secrets.
    Without `spark`, the command reads only what is on this machine.
    """
    from antecede.sources.download import SCHEMES, download, without_secrets

    scheme, is_url, _ = path.partition("://")
    if not is_url:
        return path
    scheme = scheme.lower()
    if scheme == "file":
        return _path_of(path)
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


def _path_of(url: str) -> str:
    """The path that a URL of a file names."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InputError(f"{url} is a file of another machine; write file:///PATH for one of this machine")
    return unquote(parts.path)


def local_copy(path: str, separators: bool = True, max_bytes: int | None = None) -> str:
    """The path itself, or that of a temporary copy, if it is compressed or a table of Delta or Iceberg.

    The copy is removed when the command ends. It is shown to the user under its own name.
    """
    from antecede.sources.unpack import copy_for_readers, needs_copy

    scheme, is_url, rest = path.partition("://")
    local = Path(rest if is_url else path)
    if not path or (is_url and scheme != "file") or not needs_copy(local, separators):
        return path
    folder = TemporaryFolder("unpacked")
    get_current_context().call_on_close(folder.remove)
    copy = copy_for_readers(local, folder.path, separators, max_bytes)
    show.show_as(str(copy), show.as_named(path))
    return str(copy)


def source_at(
    path: str,
    columns: Sequence[str] | None,
    preset: str | None,
    max_bytes: int | None = None,
    separators: bool = True,
) -> tuple[str, Source | None]:
    """A path that can be read, and the source there: none if --map says what it is.

    Without `separators`, the user has said what separates the fields of a table.
    """
    from antecede.sources import find_source
    from antecede.trace.table_folders import table_folder

    if columns and preset is not None:
        raise InputError("--map and --preset both say what the columns are; give one of them")
    if table_folder(Path(path)):
        path = local_copy(path)
    source = None if columns else find_source(path, preset)
    if source is not None:
        source = source._replace(called=show.as_named(path))
    return (local_copy(path, separators, max_bytes) if source is None else path), source


@contextmanager
def readable_log(path: str, options: InputOptions, progress: Progress, bad: BadRows) -> Iterator[str]:
    """The path of a trace or dependency table of ours: `path` itself, or a temporary copy of the source."""
    from antecede.sources.read import dependency_table
    from antecede.temporary_folders import temporary_folder
    from antecede.trace.foreign.mapped_trace import mapped_trace

    columns = options.columns or []
    path = local_input(path, options.max_bytes)
    if options.preset is None and not columns and dependency_table(path) is not None:
        yield path
        return
    path, source = source_at(path, columns, options.preset, options.max_bytes)
    if source is None:
        with mapped_trace(path, columns, progress, bad, options.run_per_file) as ours:
            yield ours
        return
    from antecede.sources.tables import write_dependency_table

    with temporary_folder("source") as folder:
        table = folder / (source.path.resolve().name.split(".")[0] or "log")
        write_dependency_table(source, table, bad, progress, options.max_bytes)
        try:
            yield str(table)
        except InputError as error:
            raise InputError(str(error).replace(str(table), path)) from error


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
        yield path
        return
    from antecede.sources.changes import write_change_table
    from antecede.sources.tables import write_event_table
    from antecede.temporary_folders import temporary_folder

    write: Callable[..., None] = write_event_table
    if source.preset.reader == "debezium":
        request.merges, write = True, partial(write_change_table, without=request.without)
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
