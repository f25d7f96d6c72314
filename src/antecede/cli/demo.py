"""antecede demo: a guided run through what Antecede does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from antecede.cli import show
from antecede.cli.options import Json, ResultFolder
from antecede.errors import require
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.demo.plan import DemoPlan
    from antecede.demo.planted import FoundFault
    from antecede.demo.run import DemoResult, LiveRun, SystemRuns
    from antecede.demo.stream import OrderedStream
    from antecede.sweep.run import Progress

Found = TypeVar("Found")


def demo(out: ResultFolder = Path("antecede-demo"), as_json: Json = False) -> None:
    """A guided run: simulate, audit, order a stream, find a planted fault, kill live processes.

    Takes a minute or two on an embedded Spark, and ends with a page that shows everything. A repeated demo
    reuses its simulations. Exit code 1 if any verdict is not the expected one.
    """
    require("antecede.spark", "spark")
    from antecede.demo.plan import PLAN

    guide(out, PLAN, as_json)


def guide(out: Path, plan: DemoPlan, as_json: bool) -> None:
    """Run a plan step by step, and print what each step found."""
    from antecede.demo.run import DemoResult, open_demo
    from antecede.trace.reader import read_trace

    def step(work: Callable[[Progress], Found], tell: Callable[[Found], None]) -> Found:
        with show.progress() as progress:
            found = work(progress)
        if not as_json:
            tell(found)
        return found

    began = time.monotonic()
    with ExitStack() as stack:
        with show.progress() as progress:
            steps = stack.enter_context(open_demo(out, plan, progress))
        systems = step(steps.simulate, _tell_systems)
        stream = step(steps.order, _tell_stream)
        planted = step(steps.find_planted, _tell_planted)
        live = step(steps.kill, _tell_live)
    result = DemoResult(systems, stream, planted, live, round(time.monotonic() - began, 1))
    events = [] if live.verdict is None else read_trace(steps.live_trace).to_pylist()
    finish(out, result, events, as_json)


def finish(out: Path, result: DemoResult, live_events: Sequence[dict[str, Any]], as_json: bool) -> NoReturn:
    """Write the page, print where it is, and exit with 0 if all verdicts are as they must be."""
    from antecede.demo.page import demo_page
    from antecede.demo.run import as_document, write_result

    page = write_result(out, result, demo_page(result, live_events))
    if as_json:
        show.json(as_document(result) | {"page": str(page)})
    else:
        _tell_next(page, result.seconds)
    for sentence in result.wrong:
        show.err.print(f"demo: {sentence}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(1 if result.wrong else 0)


def _title(title: str, seconds: float, wrong: str) -> None:
    mark = show.styled("WRONG", "red") if wrong else show.styled("ok", "green")
    show.line(show.styled(title, "bold"), "  ", mark, show.styled(f"  {seconds:.0f} s", "dim"))


def _tell_systems(found: SystemRuns) -> None:
    _title("1. Five systems of five papers, simulated and audited on Spark", found.seconds, found.wrong)
    rows = [
        [
            run.protocol, run.title, f"{run.peers:,}", f"{run.messages:,}", f"{run.deliveries:,}",
            f"{run.control_bytes:.0f}", f"{run.held_share:.0%}", run.engine,
            "not judged" if run.violations is None else f"{run.violations:,}",
        ]
        for run in found.runs
    ]  # fmt: skip
    header = ["protocol", "", "peers", "messages", "deliveries", "control B", "held", "engine", "violations"]
    show.table(None, header, rows, left=2)
    again = f" ({found.resumed} of {len(found.runs)} runs are from an earlier demo)" if found.resumed else ""
    show.line(
        f"{found.deliveries:,} deliveries, each once and after everything that happened before it.{again}"
    )
    show.line()


def _tell_stream(found: OrderedStream) -> None:
    _title("2. A shuffled stream, put in causal order", found.seconds, found.wrong)
    show.line(
        f"{found.rows:,} rows in {found.files} micro-batches; {found.early:,} arrived before a cause, and "
        f"{found.held:,} were held. {found.ordered:,} were emitted, each once and after its causes."
    )
    show.line()


def _tell_planted(found: FoundFault) -> None:
    fault = found.planted
    _title("3. A planted fault, found by the audit", found.seconds, found.wrong)
    show.line(
        f"Planted in {found.deliveries:,} deliveries: {fault.process} delivers {fault.effect} before its "
        f"cause {fault.cause}."
    )
    sentence = f" {found.finding.text}" if found.finding else ""
    show.line(f"The audit found {count_of(found.violations, 'violation')}.{sentence}")
    show.line()


def _tell_live(found: LiveRun) -> None:
    _title("4. Three live processes, killed with SIGKILL", found.seconds, found.wrong)
    outcome = found.trial
    accepted = sum(member.accepted for member in outcome.members)
    delivered = sum(member.delivered for member in outcome.members)
    show.line(
        f"{outcome.kills} kills; {accepted:,} messages accepted, {delivered:,} deliveries at "
        f"{len(outcome.members)} members. "
        f"{found.wrong or 'Nothing was lost or repeated; the trace is clean'}."
    )
    show.line()


def _tell_next(page: Path, seconds: float) -> None:
    from antecede.demo.page import NEXT

    show.line(show.styled("5. Where to go next", "bold"))
    for step in NEXT:
        show.line(f"{step.user}: {step.read}")
        show.note(f"  {step.commands[0]}")
    show.line()
    show.line(f"Done in {seconds:.0f} s. Open the page with all results: {page}")
