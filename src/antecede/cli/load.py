"""antecede load: throughput and latency of a live group on this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antecede.cli import show
from antecede.cli.options import Json
from antecede.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from antecede.live.trial.load import LoadResult


def load(
    size: Annotated[int, typer.Argument(min=2, max=64, metavar="N", help="Processes to start.")] = 4,
    protocol: Annotated[str, typer.Option(help="The protocol; antecede protocols lists them.")] = "mbcp",
    messages: Annotated[
        int, typer.Option(min=1, help="Messages to send, by all senders together.")
    ] = 100_000,
    payload: Annotated[int, typer.Option("--bytes", min=8, max=1_000_000, help="Bytes per message.")] = 100,
    senders: Annotated[int | None, typer.Option(min=1, help="Members that send; by default all.")] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages per second of all senders together; 0 is full speed.")
    ] = 0.0,
    durable: Annotated[
        bool, typer.Option("--store/--no-store", help="Keep messages in a store, or in memory only.")
    ] = True,
    sync: Annotated[
        bool, typer.Option("--sync/--no-sync", help="Wait for the disk, or for the operating system only.")
    ] = True,
    security: Annotated[
        Literal["none", "tls", "signed"],
        typer.Option(help="Encrypt links by a shared secret; sign messages too."),
    ] = "none",
    own: Annotated[
        bool, typer.Option("--own/--no-own", help="Deliver messages to their senders too; not measured.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Measure throughput and latency of N real processes on this machine.

    Latency is measured from the time at which a message was due, so with --rate a pause counts against
    every message that waited (no coordinated omission).
    """
    from antecede.live.trial.cluster import TrialPlan
    from antecede.live.trial.load import drive

    senders = size if senders is None else senders
    if senders > size:
        raise typer.BadParameter(f"--senders {senders}: there are {size} members")
    plan = TrialPlan(
        size=size, protocol=protocol, messages=messages, payload=payload, sync=sync, security=security
    )
    with temporary_folder("load") as work, show.err.status("starting") as status:
        result = asyncio.run(drive(plan, work, rate, senders, durable, status.update, own))
    if as_json:
        show.json(result)
        return
    kept = {"none": "", "tls": ", encrypted", "signed": ", encrypted and signed"}[security]
    place = "in memory" if not durable else "on disk" if sync else "in the operating system"
    _print_result(
        f"{size} processes, {protocol}, {messages:,} messages of {payload} bytes, {place}{kept}", result
    )


def _print_result(title: str, result: LoadResult) -> None:
    rows = [
        ["deliveries per second at each member", f"{result.deliveries_a_second:,.0f}"],
        ["latency, median", f"{result.p50_ms:,.1f} ms"],
        ["latency, 99th percentile", f"{result.p99_ms:,.1f} ms"],
        ["latency, maximum", f"{result.most_ms:,.1f} ms"],
        ["bytes on the wire per delivery, body excluded", f"{result.control_bytes:,.1f}"],
        ["CPU seconds of all members", f"{result.cpu_seconds:,.1f}"],
        ["memory of the largest member", f"{result.memory_mb:,.0f} MB"],
    ]
    show.table(title, ["", ""], rows)
