"""The input of audit, graph, advise and order, whatever its format: as a table that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.errors import InputError

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


def source_at(path: str, columns: Sequence[str] | None, preset: str | None) -> Source | None:
    """The source at a path: not if --map says what it is."""
    from antecede.sources import find_source

    if columns and preset is not None:
        raise InputError("--map and --preset both say what the columns are; give one of them")
    return None if columns else find_source(path, preset)


@contextmanager
def readable_log(
    path: str,
    columns: Sequence[str] | None,
    preset: str | None,
    progress: Progress,
    bad: BadRows,
    run_per_file: bool = False,
) -> Iterator[str]:
    """The path of a trace or dependency table of ours: `path` itself, or a temporary copy of the source."""
    from antecede.temporary_folders import temporary_folder
    from antecede.trace.foreign.mapped_trace import mapped_trace

    source = source_at(path, columns, preset)
    if source is None:
        with mapped_trace(path, columns or [], progress, bad, run_per_file) as ours:
            yield ours
        return
    from antecede.sources.tables import write_dependency_table

    with temporary_folder("source") as folder:
        table = folder / (source.path.resolve().name.split(".")[0] or "log")
        write_dependency_table(source, table, bad, progress)
        try:
            yield str(table)
        except InputError as error:
            raise InputError(str(error).replace(str(table), path)) from error


@contextmanager
def orderable_events(
    path: str, request: OrderRequest, preset: str | None, progress: Progress, bad: BadRows
) -> Iterator[str]:
    """The path of a table of events: `path` itself, or a temporary copy of the source.

    A source is one if --preset names it, or if no option says which columns there are; then `request` gets
    the columns of the copy. Of records that no cause orders, the one with the lower time comes first.
    """
    named = any(request.columns[role] for role in ("id", "deps", "origin", "seq", "clock"))
    if named and preset is not None:
        raise InputError("--preset says which columns there are; leave out --id, --deps, --origin, --clock")
    source = None if named else source_at(path, None, preset)
    if source is None:
        yield path
        return
    from antecede.sources.tables import write_event_table
    from antecede.temporary_folders import temporary_folder

    request.columns |= {"id": "id", "deps": "causes", "by": request.columns["by"] or "time"}
    with temporary_folder("source") as folder:
        file = folder / "events.parquet"
        write_event_table(source, file, bad, progress)
        try:
            yield str(file)
        except InputError as error:
            raise InputError(str(error).replace(str(file), path)) from error
