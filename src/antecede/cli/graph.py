"""antecede graph: the immediate dependencies of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import AnalysisEngine, Json, Master, folder
from antecede.cli.source_input import InputOptions, readable_log
from antecede.errors import require
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.graph.core import GraphFigures

_SHOWN_RUNS = 50
_SHOWN_COUNTS = 12
_SHOWN_BUSIEST = 5


def graph(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace as for audit, or a table of dependencies (node, process, parents): .csv, .parquet "
            "or a folder with dependencies.parquet."
        ),
    ],
    reading: InputOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder, metavar="FOLDER", help="Write edges.parquet and summary.json to this folder."
        ),
    ] = None,
    exact_width: Annotated[
        int, typer.Option(min=0, help="Compute the largest antichain of runs with fewer messages than this.")
    ] = 50_000,
    engine: AnalysisEngine = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Show the immediate-dependency graph: its edges, depth and width.

    The page Dependency graphs of the documentation explains the figures.
    """
    require("antecede.trace", "sim")
    from antecede.graph.run import graph_path
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.lineage import lineage

    bad = BadRows(trace, reading.strict)
    with (
        show.progress() as progress,
        readable_log(trace, reading, progress, bad) as ours,
    ):
        runs, chosen = graph_path(ours, out, engine, master, progress, exact_width, bad)
    if as_json:
        document = {"trace": trace, "engine": chosen, "out": str(out) if out else None, "runs": runs}
        read = {"bad_rows": bad.rows, "bad": bad.kinds, "lineage": lineage(bad, len(runs), chosen)}
        show.json(document | read)
        return
    show.bad_rows(bad.kinds)
    if len(runs) == 1:
        show.table(runs[0].run, ["", ""], _rows_of_one(runs[0]), left=2)
    else:
        _print_several(runs)
    show.lineage(lineage(bad, len(runs), chosen))
    if out:
        show.line(f"Graph: {out}")


def _print_several(runs: list[GraphFigures]) -> None:
    header = ["run", "processes", "messages", "dependencies", "mean", "most", "depth", "frontier", "width"]
    rows = [
        [
            run.run,
            *(f"{count:,}" for count in (run.processes, run.messages, run.dependencies)),
            f"{run.dependencies_mean:.2f}",
            *(f"{count:,}" for count in (run.dependencies_most, run.depth, run.frontier)),
            "" if run.antichain is None else f"{run.antichain:,}",
        ]
        for run in runs[:_SHOWN_RUNS]
    ]
    show.table(None, header, rows)
    if len(runs) > _SHOWN_RUNS:
        show.note(f"and {len(runs) - _SHOWN_RUNS:,} more runs; --json shows all")


def _rows_of_one(run: GraphFigures) -> list[list[str]]:
    rows = [["messages", f"{run.messages:,} of {count_of(run.processes, 'process')}"]]
    if run.stated is not None:
        rows.append(["stated dependencies", f"{run.stated:,}, at most {run.stated_most:,} per message"])
    rows += [
        ["immediate dependencies", f"{run.dependencies:,}"],
        ["  per message", f"{run.dependencies_mean:.3f} on average, at most {run.dependencies_most:,}"],
    ]
    histogram = list(run.dependencies_histogram.items())
    for degree, messages in histogram[:_SHOWN_COUNTS]:
        rows.append([f"  {degree:,}", f"{count_of(messages, 'message')} ({messages / run.messages:.1%})"])
    if rest := sum(messages for _, messages in histogram[_SHOWN_COUNTS:]):
        rows.append(["  more", f"{count_of(rest, 'message')} ({rest / run.messages:.1%})"])
    antichain = (
        "not computed: too many messages" if run.antichain is None else count_of(run.antichain, "message")
    )
    rows += [
        ["longest chain", count_of(run.depth, "message")],
        ["largest frontier", count_of(run.frontier, "message")],
        ["largest antichain", antichain],
    ]
    if run.busiest:
        busiest = run.busiest[:_SHOWN_BUSIEST]
        names = ", ".join(f"{node.message} ({node.effects:,})" for node in busiest)
        rows.append(["most immediate effects", names])
    return rows
