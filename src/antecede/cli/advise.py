"""antecede advise: what each protocol would have cost on a log's own workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from antecede.cli import show
from antecede.cli.options import Json, Master
from antecede.errors import InputError, require

if TYPE_CHECKING:
    from antecede.advise import Advice, Cost

_SHOWN_RUNS = 20
_SHOWN_NAMES = 4


def advise(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace as for audit; or a table of dependencies (node, process, parents): .csv, .parquet "
            "or a folder with dependencies.parquet."
        ),
    ],
    protocols: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these, with commas between them.")
    ] = None,
    internal: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Who is behind freescale's super peer: names with commas between them, or a file with one a "
            "line; by default those who send less than the average.",
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(help="What a packet takes, as for simulate; by default as the log shows, else 1-100ms."),
    ] = None,
    slower: Annotated[
        float,
        typer.Option(
            min=0, help="How much later than the quickest the recommended one may deliver, in percent."
        ),
    ] = 10.0,
    deliveries: Annotated[
        int, typer.Option(min=1, help="About how many deliveries to simulate for each protocol.")
    ] = 40_000,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="OURS=THEIRS,…", help="What our columns are called there, as for audit."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, local (in this process) or spark.")] = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """What would each protocol have cost on this very workload, and which one to take? See docs/advise.md.

    Control bytes follow from the log where they can; the rest is simulated on the log's own sends and delays.
    """
    require("antecede.trace", "sim")
    from antecede.advise import Request
    from antecede.advise.core import ADVISED_PROTOCOLS
    from antecede.advise.run import advise_path, parse_names
    from antecede.trace.foreign.mapped_trace import mapped_trace

    if deliveries > 100_000_000:
        raise InputError("deliveries: at most 100,000,000")
    asked = Request(
        protocols=parse_names(protocols) or ADVISED_PROTOCOLS,
        internal=parse_names(internal),
        delay=delay,
        deliveries=deliveries,
        slack=slower / 100,
    )
    with show.progress() as progress, mapped_trace(trace, columns or [], progress) as ours:
        found, chosen = advise_path(ours, asked, engine, master, progress)
    if as_json:
        show.json({"trace": trace, "engine": chosen, "runs": found})
    else:
        _tell(found)


def _tell(found: list[Advice]) -> None:
    for place, advice in enumerate(found[:_SHOWN_RUNS]):
        if place:
            show.out.print()
        _tell_one(advice)
    if len(found) > _SHOWN_RUNS:
        show.out.print(f"[dim]and {len(found) - _SHOWN_RUNS:,} runs more; --json has all[/]")


def _tell_one(advice: Advice) -> None:
    title = f"{escape(advice.run)}: {advice.messages:,} messages of {advice.processes:,} processes"
    header = ["protocol", "control B", "p99", "copies", "all links B", "stored B", "later by"]
    show.table(title, header, [_row(cost, cost.protocol == advice.recommended) for cost in advice.costs])
    for line in _notes(advice):
        show.out.print(f"[dim]{escape(line)}[/]", soft_wrap=True)
    show.out.print(f"\n{escape(advice.reason)}", soft_wrap=True)
    if advice.otherwise:
        show.out.print(escape(advice.otherwise), soft_wrap=True)


def _row(cost: Cost, best: bool) -> list[str]:
    from antecede.units import show as human

    cells = [
        cost.protocol,
        _figure(cost.control_bytes_mean, 1),
        _figure(cost.control_bytes_p99),
        _figure(cost.copies, 1),
        _figure(cost.link_bytes),
        _figure(cost.stored_bytes),
        "–" if cost.extra_delay_ns is None else human(cost.extra_delay_ns),
    ]
    return [f"[bold green]{cells[0]}[/]", *cells[1:]] if best else cells


def _figure(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _notes(advice: Advice) -> list[str]:
    from antecede.units import show as human

    exact = [cost.protocol for cost in advice.costs if cost.exact]
    some = advice.simulated_messages < advice.messages
    part = (
        f"the first {advice.simulated_messages:,} of {advice.messages:,} messages" if some else "all messages"
    )
    notes = [
        "control B, p99: of a message's packet as sent; copies, all links B: packets it makes, their control"
    ]
    notes.append(
        "stored B: what a member keeps, held messages included; later by: than a direct send, on average"
    )
    if exact:
        notes.append(f"from the log's own causal pasts, all messages: control B of {', '.join(exact)}")
    if advice.simulated_messages:
        notes.append(f"simulated on the log's sends, {part}: the rest")
    notes.append(f"a direct send takes {human(advice.delay_mean_ns)} on average ({advice.delay})")
    if advice.logged_control_bytes_mean is not None:
        notes.append(
            f"the log's own system sent {advice.logged_control_bytes_mean:,.1f} control bytes a message"
        )
    notes += [f"assumed: {each}" for each in advice.assumptions]
    if advice.split is not None:
        split = advice.split
        inside = ", ".join(split.internal[:_SHOWN_NAMES]) + (
            " …" if len(split.internal) > _SHOWN_NAMES else ""
        )
        notes.append(
            f"freescale: {split.super_peer} is the super peer, {len(split.internal):,} internal ({inside}), "
            f"{len(split.external):,} external: {split.why}"
        )
    return notes
