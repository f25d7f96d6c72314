"""antecede reproduce: the papers' experiments again, every published number beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from antecede.cli import show
from antecede.cli.options import Json, Master, folder
from antecede.errors import require

if TYPE_CHECKING:
    from antecede.papers.paper import Scale
    from antecede.papers.scoreboard_page import Reproduction
    from antecede.sweep.run import SweepResult

_PAPERS = (
    "By default all. 000: Evropeytsev, López Domínguez, Pomares Hernández, Perez Cruz: An Efficient Causal "
    "Group Communication Protocol for Free Scale Peer-to-Peer Networks, 2016. "
    "001: Pomares Hernández, Fanchon, Drira: The Immediate Dependency Relation: An Optimal Way to Ensure "
    "Causal Group Communication, 2004. "
    "002: Friedman, Manor: Causal Ordering in Deterministic Overlay Networks, 2004. "
    "003: Kawanami, Enokido, Takizawa: Communication Protocol for Heterogeneous Group. "
    "004: de Araujo, Arantes, Duarte Júnior, Rodrigues, Sens: A Communication-Efficient Causal Broadcast "
    "Protocol, 2018."
)


def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(metavar="PAPER", help=_PAPERS),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="The papers' own sizes (some 40 minutes of CPU time) or small ones (minutes).",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder,
            metavar="FOLDER",
            help="Folder for runs, tables and the report; by default antecede-quick (--full: antecede-full).",
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the scoreboard as Markdown.")
    ] = None,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Run nothing; only score and draw the finished runs in the folder."),
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Repeat the papers' experiments; compare every published number with ours.

    Writes a page for each paper's authors, and an index of these pages. Resumes where it stopped. Exit code 1
    if a run failed or an audit found a violation. Needs the extra \\[spark].
    """
    target = out or Path("antecede-full" if full else "antecede-quick")
    require("antecede.spark", "spark")
    from antecede.cli.doctor import describe_machine
    from antecede.papers import reproduce as study
    from antecede.papers.scoreboard_page import markdown as as_markdown
    from antecede.sweep.run import REPORT

    scale: Scale = "full" if full else "quick"
    with show.progress() as progress:
        reproduction, outcome = study.reproduce(target, papers or [], scale, master, finished, progress)
    if markdown is not None:
        markdown.write_text(as_markdown(reproduction, describe_machine(), scale), encoding="utf-8")
    report = target / REPORT
    if as_json:
        document = {"scale": scale, **msgspec.to_builtins(reproduction), "failed": outcome.failed}
        show.json(document | {"report": str(report)})
    else:
        _print_scoreboard(reproduction, outcome, report, scale)
    raise typer.Exit(0 if outcome.fine else 1)


def _print_scoreboard(reproduction: Reproduction, outcome: SweepResult, report: Path, scale: Scale) -> None:
    from antecede.papers.scoreboard_page import HEADER, SMALL, cells, tally

    if scale == "quick":
        show.line(show.styled(SMALL, "bold"))
        show.line()
    for paper in dict.fromkeys(row.paper for row in reproduction.scoreboard):
        rows = [cells(row)[:6] for row in reproduction.scoreboard if row.paper == paper]
        show.table(f"paper {paper}", HEADER[:6], rows)
        show.line()
    show.line(reproduction.audited)
    show.line(tally(reproduction.scoreboard))
    for run, error in list(outcome.failed.items())[:3]:
        show.line(f"failed: {run}: {error}")
    show.line(f"Report, with a page for each paper: {report}")
