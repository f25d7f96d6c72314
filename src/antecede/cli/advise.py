"""antecede advise: the cost of every protocol on a log's own workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import AnalysisEngine, Json, Master
from antecede.cli.source_input import InputOptions, readable_log
from antecede.errors import InputError, require

if TYPE_CHECKING:
    from rich.text import Text

    from antecede.advise import Advice, Cost, Request
    from antecede.advise.results import FreescaleRoles

_SHOWN_RUNS = 20
_SHOWN_NAMES = 4
_MAX_DELIVERIES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class AdviceOptions:
    """What to compare, and on which assumptions."""

    protocols: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these protocols, separated by commas.")
    ] = None
    internal: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Processes behind freescale's super peer: names separated by commas, or a file with one "
            "per line; by default those that send less than the average.",
        ),
    ] = None
    delay: Annotated[
        str | None,
        typer.Option(
            help="Packet delay, as for simulate; by default measured from the log, otherwise 1-100ms."
        ),
    ] = None
    slower: Annotated[
        float,
        typer.Option(
            min=0, help="How much later than the fastest the recommended protocol may deliver, in percent."
        ),
    ] = 10.0
    deliveries: Annotated[
        int, typer.Option(min=1, help="Approximate number of deliveries to simulate per protocol.")
    ] = 40_000

    def request(self) -> Request:
        """Validate the options as a request."""
        from antecede.advise import Request
        from antecede.advise.core import ADVISED_PROTOCOLS
        from antecede.advise.run import parse_names

        if self.deliveries > _MAX_DELIVERIES:
            raise InputError(f"deliveries: at most {_MAX_DELIVERIES:,}")
        return Request(
            protocols=parse_names(self.protocols) or ADVISED_PROTOCOLS,
            internal=parse_names(self.internal),
            delay=self.delay,
            deliveries=self.deliveries,
            slack=self.slower / 100,
        )


def advise(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace as for audit, or a table of dependencies (node, process, parents): .csv, .parquet "
            "or a folder with dependencies.parquet."
        ),
    ],
    options: AdviceOptions,
    reading: InputOptions,
    engine: AnalysisEngine = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Compare the cost of every protocol on a log's workload and recommend one.

    Control bytes are derived from the log where possible; the rest is simulated on its sends and delays.
    The page Advice of the documentation explains the figures.
    """
    require("antecede.trace", "sim")
    from antecede.advise.run import advise_path
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.lineage import lineage

    request = options.request()
    bad = BadRows(trace, reading.strict)
    with (
        show.progress() as progress,
        readable_log(trace, reading, progress, bad) as ours,
    ):
        runs, chosen = advise_path(ours, request, engine, master, progress, bad)
    if as_json:
        document = {"trace": trace, "engine": chosen, "runs": runs}
        read = {"bad_rows": bad.rows, "bad": bad.kinds, "lineage": lineage(bad, len(runs), chosen)}
        show.json(document | read)
    else:
        show.bad_rows(bad.kinds)
        _print_runs(runs)
        show.lineage(lineage(bad, len(runs), chosen))


def _print_runs(runs: list[Advice]) -> None:
    for number, advice in enumerate(runs[:_SHOWN_RUNS]):
        if number:
            show.line()
        _print_advice(advice)
    if len(runs) > _SHOWN_RUNS:
        show.note(f"and {len(runs) - _SHOWN_RUNS:,} more runs; --json shows all")


def _print_advice(advice: Advice) -> None:
    title = f"{advice.run}: {advice.messages:,} messages of {advice.processes:,} processes"
    header = ["protocol", "control B", "p99", "copies", "all links B", "stored B", "later by"]
    show.table(title, header, [_row(cost, cost.protocol == advice.recommended) for cost in advice.costs])
    for line in _notes(advice):
        show.note(line)
    show.line()
    show.line(advice.reason)
    if advice.otherwise:
        show.line(advice.otherwise)


def _row(cost: Cost, best: bool) -> list[str | Text]:
    from antecede.units import format_duration

    cells: list[str | Text] = [
        cost.protocol,
        _figure(cost.control_bytes_mean, 1),
        _figure(cost.control_bytes_p99),
        _figure(cost.copies, 1),
        _figure(cost.link_bytes),
        _figure(cost.stored_bytes),
        "–" if cost.extra_delay_ns is None else format_duration(cost.extra_delay_ns),
    ]
    return [show.styled(cost.protocol, "bold green"), *cells[1:]] if best else cells


def _figure(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _notes(advice: Advice) -> list[str]:
    from antecede.units import format_duration

    notes = [
        "control B, p99: control bytes of a message as first sent; copies, all links B: packets per message "
        "and their control bytes",
        "stored B: state of a member, held messages included; later by: mean delay beyond a direct send",
    ]
    exact = [cost.protocol for cost in advice.costs if cost.exact]
    if exact:
        notes.append(f"derived from the log's causal pasts, all messages: control B of {', '.join(exact)}")
    if advice.simulated_messages:
        part = "all messages"
        if advice.simulated_messages < advice.messages:
            part = f"the first {advice.simulated_messages:,} of {advice.messages:,} messages"
        notes.append(f"simulated on the log's sends, {part}: the rest")
    notes.append(f"a direct send takes {format_duration(advice.delay_mean_ns)} on average ({advice.delay})")
    if advice.logged_control_bytes_mean is not None:
        logged = f"{advice.logged_control_bytes_mean:,.1f}"
        notes.append(f"the logged system itself sent {logged} control bytes per message")
    notes += [f"assumed: {assumption}" for assumption in advice.assumptions]
    if advice.split is not None:
        notes.append(_split_note(advice.split))
    return notes


def _split_note(split: FreescaleRoles) -> str:
    more = " …" if len(split.internal) > _SHOWN_NAMES else ""
    internal = ", ".join(split.internal[:_SHOWN_NAMES]) + more
    return (
        f"freescale: {split.super_peer} is the super peer, {len(split.internal):,} internal ({internal}), "
        f"{len(split.external):,} external: {split.why}"
    )
