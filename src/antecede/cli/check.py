"""antecede check: every schedule of a small group."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Json, folder
from antecede.errors import InputError

if TYPE_CHECKING:
    from antecede.check.run import CheckReport


@dataclass
class BoundOptions:
    """How much is explored."""

    peers: Annotated[int, typer.Option(min=1, max=8, help="Members of the group.")] = 3
    messages: Annotated[int, typer.Option(min=1, max=8, help="Messages that each broadcasts.")] = 1
    losses: Annotated[int, typer.Option(min=0, max=9, help="Packets that may be lost.")] = 0
    duplicates: Annotated[int, typer.Option(min=0, max=9, help="Packets that may arrive twice.")] = 0
    crashes: Annotated[
        int, typer.Option(min=0, max=9, help="Times that a process may crash and start from what it saved.")
    ] = 0
    link_changes: Annotated[
        int, typer.Option(min=0, max=9, help="Links that may open or close, for protocols that allow it.")
    ] = 0


def check(
    bounded: BoundOptions,
    protocol: Annotated[
        str | None,
        typer.Argument(help="A protocol's name, all, or your own as module:Class or exec:COMMAND."),
    ] = None,
    max_states: Annotated[int, typer.Option(min=1, help="Stop after so many states.")] = 10_000_000,
    reduce: Annotated[
        bool, typer.Option("--reduce/--no-reduce", help="Leave out schedules that cannot matter.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="Write counter-examples: schedule and diagram."),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play the schedule of a counter-example step by step.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Explore on a Spark cluster (spark://…, yarn); --out has what was explored."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a protocol in every schedule of a small group.

    Explores all orders in which members broadcast, packets arrive, messages are delivered and faults happen.
    Passes (exit code 0) if every message is delivered exactly once, in causal order, none stays held, and
    what is held waits for a message that happened before it. If not, prints the smallest schedule that fails.
    """
    if replay is not None:
        _replay(replay, as_json)
        return
    if protocol is None:
        raise InputError("name a protocol, all, or a schedule with --replay")
    from antecede.check.bounds import Bounds
    from antecede.check.run import check as run_check
    from antecede.protocols.catalog import PROTOCOLS, find_protocol

    bounds = Bounds(**asdict(bounded))
    kinds = {name: find_protocol(name) for name in (PROTOCOLS if protocol == "all" else [protocol])}
    reports = []
    with show.progress() as progress:
        for name, kind in kinds.items():
            for report in run_check(kind, name, bounds, max_states, reduce, reduce, out, master):
                progress(f"checking {name}: depth {report.depth}", report.states, 0)
            reports.append(report)
    passed = all(report.passed for report in reports)
    if as_json:
        show.json({"passed": passed, "protocols": reports})
    else:
        _print(reports)
    if not passed:
        raise typer.Exit(1)


def _print(reports: list[CheckReport]) -> None:
    header = ["protocol", "verdict", "states", "transitions", "depth", "ends", "process states", "CPU s"]
    rows = [
        [
            report.protocol,
            _verdict(report),
            f"{report.states:,}",
            f"{report.transitions:,}",
            f"{report.depth}",
            f"{report.ends:,}",
            f"{report.process_states:,}",
            f"{report.cpu_seconds:.1f}",
        ]
        for report in reports
    ]
    show.table(None, header, rows, left=2)
    for report in reports:
        if not report.passed:
            _print_failure(report)


def _verdict(report: CheckReport) -> str:
    if not report.passed:
        return "fails"
    return "holds" if report.complete else "holds so far"


def _print_failure(report: CheckReport) -> None:
    from antecede.check.schedule import columns

    found = report.counter_example
    if found is None:
        show.line(f"{report.protocol} fails. {report.violation}")
        return
    show.line()
    show.line(f"{report.protocol} fails with {found.messages} messages at {found.peers} processes:")
    for line in columns(found.steps, found.peers):
        show.line(line)
    show.line(f"{found.process}: {found.violation}")
    for line in (*found.why, *report.files):
        show.line(line)


def _replay(path: Path, as_json: bool) -> None:
    from antecede.check.replay import read_schedule, replay

    steps = list(replay(read_schedule(path)))
    violation = steps[-1].violation if steps else None
    if as_json:
        show.json({"passed": violation is None, "steps": steps})
    else:
        for number, step in enumerate(steps, 1):
            where = f"{step.shown.process} " if step.shown.process else ""
            show.line(f"{number:4}  {where}{step.shown.text}")
            for held in step.held:
                show.note(f"      {held}")
        if violation is None:
            show.line("Nothing is wrong at its end.")
        else:
            show.line(f"p{violation.process}: {violation.text}")
    if violation is not None:
        raise typer.Exit(1)
