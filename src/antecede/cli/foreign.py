"""antecede import and antecede export: logs of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Columns, Json, MaxBytes, RunName, Strict, folder
from antecede.cli.source_input import local_input, trace_at
from antecede.errors import InputError, require
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.sources import Source
    from antecede.trace.foreign.dependency_writer import DependencyTableInfo


def import_log(
    format_: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="shiviz (GoVector and ShiViz logs with vector clocks), editing (editing traces as JSON or "
            ".json.gz), dependencies (CSV or Parquet: node,process,seq,parents), git (the commits of a "
            "repository), a preset of antecede sources, or a file with one.",
        ),
    ],
    path: Annotated[str, typer.Argument(help="The log, the file, or the repository.")],
    out: Annotated[
        Path, typer.Option(parser=folder, metavar="FOLDER", help="Folder for the dependency table.")
    ],
    regex: Annotated[
        str | None,
        typer.Option(
            help="For shiviz: the pattern of an event with the groups host and clock, as in "
            r"'(?<host>\S*) (?<clock>{.*})\n(?<event>.*)'; known patterns are detected.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="For shiviz: the pattern between executions, with the group trace for a label; by default "
            "'^=== (?<trace>.*) ===$'. With nothing, the log is one execution.",
        ),
    ] = None,
    max_bytes: MaxBytes = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="OURS=THEIRS,…", help="For dependencies: the table's names of our columns."
        ),
    ] = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Convert another program's log to a table of dependencies, for antecede graph.

    The table has no deliveries. To audit a table of events, use antecede audit --map; the formats that
    antecede sources lists need no import.
    """
    require("antecede.trace", "sim")
    from antecede.trace.foreign.import_formats import FORMATS, import_path

    path = local_input(path, max_bytes, spark=False)
    if columns and format_ != "dependencies":
        raise InputError(f"--map is for tables of dependencies, not for {format_}")
    if format_ in FORMATS:
        about = import_path(
            format_, Path(path), out, regex, strict, max_bytes, delimiter, show.as_named(path)
        )
    else:
        about = _import_source(format_, path, out, regex or delimiter, columns, strict, max_bytes)
    _print_imported(about, out, as_json)


def _import_source(
    preset: str,
    path: str,
    out: Path,
    shiviz: str | None,
    columns: list[str] | None,
    strict: bool,
    max_bytes: int | None,
) -> DependencyTableInfo:
    from antecede.sources import PRESETS, find_source
    from antecede.sources.read import mapped_dependencies
    from antecede.sources.tables import write_dependency_table
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.foreign.column_map import parse_dependency_map
    from antecede.trace.foreign.import_formats import FORMATS

    if preset not in PRESETS and not Path(preset).is_file():
        raise InputError(f"no format '{preset}'; there are {', '.join(dict.fromkeys([*FORMATS, *PRESETS]))}")
    if shiviz is not None:
        raise InputError(f"--regex and --delimiter are for shiviz logs, not for {preset}")
    if columns:
        source: Source | None = mapped_dependencies(path, parse_dependency_map(columns))
    else:
        source = find_source(path, preset)
    assert source is not None  # a preset is named  # noqa: S101
    source = source._replace(called=show.as_named(path))
    return write_dependency_table(source, out, BadRows(path, strict), max_bytes=max_bytes)


def export_log(
    format_: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="shiviz: every send and delivery with its vector clock. perfetto: tracks and slices, and "
            "arrows for immediate dependencies, as JSON.",
        ),
    ],
    trace: Annotated[str, typer.Argument(help="A small trace: a folder or a file, compressed or not.")],
    out: Annotated[Path, typer.Option(parser=folder, metavar="FILE", help="File for the log.")],
    columns: Columns = None,
    strict: Strict = False,
    run: RunName = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Write a run as a log for ShiViz or Perfetto; antecede import shiviz reads the former back.

    For larger runs, use antecede explore.
    """
    require("antecede.trace", "sim")
    from antecede.graph.perfetto import PerfettoExport, export_perfetto
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.foreign.mapped_trace import mapped_trace
    from antecede.trace.foreign.shiviz_export import ShivizExport, export_shiviz

    if format_ not in ("shiviz", "perfetto"):
        raise InputError(f"no format '{format_}' to export; choose shiviz or perfetto")
    trace = trace_at(trace, columns, max_bytes)
    bad = BadRows(trace, strict)
    with mapped_trace(trace, columns or [], bad=bad) as ours:
        exported: ShivizExport | PerfettoExport = (
            export_shiviz(Path(ours), out, run)
            if format_ == "shiviz"
            else export_perfetto(Path(ours), out, run)
        )
    if as_json:
        document = {name: getattr(exported, name) for name in exported.__struct_fields__}
        show.json(document | {"bad_rows": bad.rows, "bad": bad.kinds})
        return
    show.bad_rows(bad.kinds)
    show.line(f"{exported.events:,} events of {exported.processes:,} processes")
    if isinstance(exported, ShivizExport):
        show.line(f"In ShiViz, set the log parsing regular expression to {exported.regex}")
    else:
        show.line(f"{count_of(exported.flows, 'arrow')}, for immediate dependencies between processes")
    show.line(f"Log: {exported.file}")


def _print_imported(about: DependencyTableInfo, out: Path, as_json: bool) -> None:
    if as_json:
        show.json({"out": str(out), **{name: getattr(about, name) for name in about.__struct_fields__}})
        return
    rows = [
        ["nodes", f"{about.rows:,} of {about.processes:,} processes in {count_of(about.runs, 'run')}"],
        [
            "parents",
            f"{about.parents:,}, {about.parents_mean:.3f} per node, at most {about.parents_most:,}",
        ],
        ["", f"{about.parents_of_others:,} of another process"],
    ]
    show.table(None, ["", ""], rows, left=2)
    show.bad_rows(about.bad)
    show.line(f"Dependencies: {out}")
