"""antecede verify: a protocol against the oracle, on random executions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.check import print_counter_example
from antecede.cli.options import Json, Seed, check_writable, folder
from antecede.errors import InputError, require

if TYPE_CHECKING:
    from antecede.check.changing.run import ChangingVerifyReport
    from antecede.check.schedule import ShownCounterExample
    from antecede.sim.verify import VerifyReport

_SMALL = 100
"""Runs up to which starting worker processes takes longer than it saves."""
_SHOWN_FAILURES = 3


@dataclass
class FailingRun:
    """A small run that fails, and what was written of it."""

    protocol: str
    example: ShownCounterExample
    files: list[str]


def verify(
    protocol: Annotated[
        str, typer.Argument(help="A protocol's name, all, or your own as module:Class or exec:COMMAND.")
    ],
    runs: Annotated[int, typer.Option(min=1, help="Random executions to check.")] = 1000,
    seed: Seed = 1,
    peers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Members of every group; by default 1 to 12.")
    ] = None,
    only: Annotated[int | None, typer.Option(min=0, help="Replay only this run of the seed.")] = None,
    export: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="Also write the trace of every run."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Worker processes; by default one per core.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder, metavar="FOLDER", help="Write a small run that fails: schedule and diagram."
        ),
    ] = None,
    membership: Annotated[
        bool, typer.Option("--membership", help="Members join, leave, crash, are removed and return.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a protocol with the oracle, on random small executions with wild delays.

    Passes (exit code 0) if every message is delivered exactly once, in causal order, and none stays held.
    If not, prints a small run that fails in the same way; `antecede check --replay` plays what --out writes.
    """
    from antecede.protocols.catalog import PROTOCOLS, as_file_name, find_protocol

    for folder_of_results in filter(None, (out, export)):
        check_writable(folder_of_results)
    if membership:
        if export or peers:
            raise InputError("verify: --membership draws its groups itself, and writes no traces")
        _verify_membership(protocol, runs, seed, only, jobs or os.cpu_count() or 1, out, as_json)
        return
    if export:
        require("antecede.trace", "sim")
    names = list(PROTOCOLS) if protocol == "all" else [protocol]
    for name in names:
        find_protocol(name)
    reports = []
    with show.progress() as progress:
        for name in names:
            target = export / as_file_name(name) if export else None
            for report in _verify(name, runs, seed, peers, only, target, jobs or os.cpu_count() or 1):
                progress(f"checking {report.protocol}", report.runs, runs)
            reports.append(report)
    if not as_json:
        _print_reports(reports, seed)
    with show.progress() as progress:
        progress("looking for a small run that fails", 0, 0)
        examples = [found for found in (_shrink(report, out) for report in reports) if found is not None]
    _finish(reports, seed, examples, as_json)


def _verify(
    protocol: str, runs: int, seed: int, peers: int | None, only: int | None, export: Path | None, jobs: int
) -> Iterator[VerifyReport]:
    from antecede.sim.verify import verify, verify_parallel

    if only is not None:
        return verify(protocol, 1, seed, peers, only, export)
    if jobs == 1 or runs <= _SMALL:
        return verify(protocol, runs, seed, peers, export=export)
    return verify_parallel(jobs, protocol, runs, seed, peers, export)


def _verify_membership(
    protocol: str, runs: int, seed: int, only: int | None, jobs: int, out: Path | None, as_json: bool
) -> None:
    from antecede.check.changing import run as changing
    from antecede.membership.catalog import CHANGING

    names = list(CHANGING) if protocol == "all" else [protocol]
    reports = []
    with show.progress() as progress:
        for name in names:
            if only is not None:
                steps = changing.verify_changing(name, 1, seed, only)
            elif jobs == 1 or runs <= _SMALL:
                steps = changing.verify_changing(name, runs, seed)
            else:
                steps = changing.verify_changing_parallel(jobs, name, runs, seed)
            for report in steps:
                progress(f"checking {name}", report.runs, runs)
            reports.append(report)
        examples = [
            FailingRun(report.protocol, *found)
            for report in reports
            if (found := changing.smallest_changing_failure(report, seed, out)) is not None
        ]
    if not as_json:
        _print_membership(reports, seed)
    _finish(reports, seed, examples, as_json)


def _finish(
    reports: Sequence[VerifyReport | ChangingVerifyReport],
    seed: int,
    examples: list[FailingRun],
    as_json: bool,
) -> None:
    """Show the runs that fail, and exit with 1 if there are any."""
    passed = all(report.passed for report in reports)
    if as_json:
        show.json({"seed": seed, "passed": passed, "protocols": reports, "counter_examples": examples})
    else:
        for each in examples:
            print_counter_example(each.protocol, each.example, each.files)
        shown = {each.protocol for each in examples}
        for report in reports:
            if not report.passed and report.protocol not in shown:
                show.line(f"No smaller run of {report.protocol} was found that fails in the same way.")
    if not passed:
        raise typer.Exit(1)


def _print_membership(reports: list[ChangingVerifyReport], seed: int) -> None:
    header = ["protocol", "runs", "deliveries", "joins", "leaves", "removals", "crashes", "returns", "moves"]
    header.append("failed")
    kinds = ("join", "leave", "remove", "crash", "return", "move")
    rows = [
        [
            report.protocol,
            *(f"{count:,}" for count in (report.runs, report.deliveries)),
            *(f"{report.changes.get(kind, 0):,}" for kind in kinds),
            f"{report.failed:,}",
        ]
        for report in reports
    ]
    show.table(None, header, rows)
    for report in reports:
        for failure in report.failures[:_SHOWN_FAILURES]:
            show.line(
                f"{report.protocol}, seed {seed}, run {failure.run} (--only {failure.run}): {failure.reason}"
            )


def _shrink(report: VerifyReport, out: Path | None) -> FailingRun | None:
    """A small run that fails as one of the first of a report does."""
    from antecede.check.failing_run import smallest_failure
    from antecede.check.run import show as show_example
    from antecede.check.run import write

    for failure in report.failures[:_SHOWN_FAILURES]:
        found = smallest_failure(failure.scenario)
        if found is not None:
            files = write(found, report.protocol, out) if out is not None else []
            return FailingRun(report.protocol, show_example(found), [str(file) for file in files])
    return None


def _print_reports(reports: list[VerifyReport], seed: int) -> None:
    header = ["protocol", "runs", "deliveries", "early", "stuck", "twice", "missing", "raised", "mean B"]
    header += ["max B"]
    rows = [
        [
            report.protocol,
            f"{report.runs:,}",
            f"{report.deliveries:,}",
            f"{report.violations:,}",
            f"{report.stuck:,}",
            f"{report.duplicates:,}",
            f"{report.missing:,}",
            f"{report.raised:,}",
            f"{report.control_bytes_mean:.1f}",
            f"{report.control_bytes_max:,}",
        ]
        for report in reports
    ]
    show.table(None, header, rows)
    show.line(
        show.styled(
            f"groups of up to {max(report.largest_group for report in reports)} members; early: deliveries "
            "before a cause; stuck: messages still held at the end; twice, missing: messages delivered twice "
            "or not at all; raised: runs in which the protocol raised an error; B: control bytes per message "
            "on the wire",
            "dim",
        )
    )
    for report in reports:
        if report.failed:
            line = f"{report.protocol} failed in {report.failed:,} of {report.runs:,} runs"
            show.line(line)
        for failure in report.failures[:_SHOWN_FAILURES]:
            line = f"  seed {seed}, run {failure.run} (--only {failure.run}): {failure.reason}"
            show.line(line)
