"""antecede sweep and report: a grid of simulations on Spark, and its HTML report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Json, Master, ResultFolder, folder
from antecede.errors import InputError, require

if TYPE_CHECKING:
    from antecede.sweep.run import SweepResult


def sweep(
    grid: Annotated[
        Path,
        typer.Argument(help="A TOML file with \\[run] and \\[grid]; see the page Sweeps."),
    ],
    out: ResultFolder = Path("antecede-sweep"),
    metrics_only: Annotated[
        bool, typer.Option("--metrics-only", help="Write no traces, and audit none.")
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Simulate every combination of a grid on Spark, audit the traces, write a report.

    A repeated sweep resumes: finished runs are not repeated. A failed run is reported; the others finish.
    """
    from antecede.sweep.grid import read_grid

    _check_folder(out)
    scenarios = read_grid(grid)
    require("antecede.spark", "spark")
    from antecede.sweep.run import GRID, run_study, write_report
    from antecede.trace.writer import write_whole

    with show.progress() as progress:
        traced = (lambda _: False) if metrics_only else (lambda _: True)
        outcome = run_study(out, scenarios, master=master, traced=traced, progress=progress)
    write_whole(out / GRID, grid.read_bytes())
    path = write_report(out, f"Sweep of {grid.name}", failed=outcome.failed)
    if as_json:
        document = {"summary": outcome.summary.to_pylist(), "failed": outcome.failed}
        document |= {"resumed": outcome.skipped, "repeated": outcome.repeated}
        show.json(document | {"report": str(path)})
    else:
        _print_outcome(outcome, path, str(grid))
    raise typer.Exit(0 if outcome.fine else 1)


def _check_folder(out: Path) -> None:
    """Refuse a folder with files that are not a sweep's."""
    if not out.is_dir() or (out / "runs").is_dir():
        return
    foreign = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    if foreign:
        raise InputError(
            f"{out} holds other files, such as {foreign[0]}; name an empty folder, or that of a sweep"
        )


def report(
    folder: Annotated[
        Path, typer.Argument(parser=folder, metavar="FOLDER", help="The folder of a sweep or of the demo.")
    ],
    title: Annotated[str, typer.Option(help="The heading of the report.")] = "A sweep of causal protocols",
    as_json: Json = False,
) -> None:
    """Write the HTML report of a finished sweep: one self-contained file."""
    require("antecede.spark", "spark")
    from antecede.sweep.run import write_report

    path = write_report(folder, title)
    if as_json:
        show.json({"report": str(path)})
    else:
        show.line(f"Report: {path}")


def _print_outcome(outcome: SweepResult, path: Path, title: str) -> None:
    from antecede.sweep import page

    summary = outcome.summary
    show.table(title, page.columns(summary), page.cells(summary))
    show.line(
        show.styled(
            "deliveries and violations: in all runs; wire B, paper B: control bytes per message, as sent and "
            "as the papers count; packets: per message",
            "dim",
        )
    )
    show.line()
    show.line(page.lead(summary, len(outcome.failed)))
    if outcome.skipped:
        show.note(f"{outcome.skipped} runs were finished before and not repeated.")
    for run, reason in outcome.repeated.items():
        show.line(f"run again: {run}: {reason}")
    for error, count in Counter(outcome.failed.values()).items():
        first = next(key for key, reason in outcome.failed.items() if reason == error)
        more = f" and {count - 1:,} more" if count > 1 else ""
        show.line(f"failed: {first}{more}: {error}")
    show.line(f"Report: {path}")
