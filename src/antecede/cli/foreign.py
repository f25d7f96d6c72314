"""antecede import and antecede export: to and from what other programs write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Columns, Json, Strict, folder
from antecede.errors import require

if TYPE_CHECKING:
    from antecede.trace.foreign.dependency_writer import DependencyTableInfo


def import_(
    form: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="shiviz (GoVector and ShiViz logs with vector clocks), editing (editing traces as JSON or "
            ".json.gz), dependencies (CSV or Parquet: node,process,seq,parents) or git (the commits of a "
            "repository).",
        ),
    ],
    path: Annotated[Path, typer.Argument(help="The log, the file, or the repository.")],
    out: Annotated[
        Path, typer.Option(parser=folder, metavar="FOLDER", help="Where the dependency table goes.")
    ],
    regex: Annotated[
        str | None,
        typer.Option(
            help="For shiviz: how an event looks, with the groups host and clock, as in "
            r"'(?<host>\S*) (?<clock>{.*})\n(?<event>.*)'; known forms are found without it.",
        ),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Read another program's log or graph into a table of what depends on what, for antecede graph.

    It says nothing of deliveries, so there is nothing to audit. Tables of events are audited as they are:
    antecede audit --map.
    """
    require("antecede.trace", "sim")
    from antecede.trace.foreign.import_formats import import_path

    about = import_path(form, path, out, regex, strict)
    _imported(about, out, as_json)


def export(
    form: Annotated[
        str, typer.Argument(metavar="FORMAT", help="shiviz: every send and delivery with its vector clock.")
    ],
    trace: Annotated[Path, typer.Argument(help="A trace: a folder or a file, small enough to look at.")],
    out: Annotated[Path, typer.Option(parser=folder, metavar="FILE", help="Where the log goes.")],
    columns: Columns = None,
    strict: Strict = False,
    run: Annotated[str | None, typer.Option(help="Which run, if the trace has several.")] = None,
    as_json: Json = False,
) -> None:
    """Write a run as a log that ShiViz draws; antecede import shiviz reads it back."""
    require("antecede.trace", "sim")
    from antecede.errors import InputError
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.foreign.mapped_trace import mapped_trace
    from antecede.trace.foreign.shiviz_export import export_shiviz

    if form != "shiviz":
        raise InputError(f"no format '{form}' to write; there is shiviz")
    bad = BadRows(str(trace), strict)
    with mapped_trace(str(trace), columns or [], bad=bad) as ours:
        made = export_shiviz(Path(ours), out, run)
    if as_json:
        told = {name: getattr(made, name) for name in made.__struct_fields__}
        show.json(told | {"bad_rows": bad.rows, "bad": bad.found})
        return
    show.bad_rows(bad.found)
    show.out.print(f"{made.events:,} events of {made.processes:,} processes")
    show.out.print(
        f"For ShiViz, the log parsing regular expression is {made.regex}", markup=False, soft_wrap=True
    )
    show.out.print(f"Log: {made.file}", markup=False, soft_wrap=True)


def _imported(about: DependencyTableInfo, out: Path, as_json: bool) -> None:
    if as_json:
        show.json({"out": str(out), **{name: getattr(about, name) for name in about.__struct_fields__}})
        return
    rows = [
        ["nodes", f"{about.rows:,} of {about.processes:,} processes"],
        [
            "parents",
            f"{about.parents:,}, {about.parents_mean:.3f} a node, at most {about.parents_most:,}",
        ],
        ["", f"{about.parents_of_others:,} of another process"],
    ]
    show.table(None, ["", ""], rows, left=2)
    show.bad_rows(about.bad)
    show.out.print(f"Dependencies: {out}", soft_wrap=True, markup=False)
