"""antecede order and held: rows each after every row that they depend on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.markup import escape

from antecede.cli import show
from antecede.cli.options import Json, Master, folder
from antecede.errors import require

if TYPE_CHECKING:
    from antecede.causal_order.rules import Counts
    from antecede.causal_order.run import Example, Outcome

_SHOWN = 20
_MOST = 1000
_LONGEST = 60


def order(
    events: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A file or a folder of Parquet, JSON lines (.jsonl, .ndjson, .json) or .csv."
        ),
    ],
    out: Annotated[
        Path, typer.Option(parser=folder, metavar="OUT", help="Write Parquet into this folder, a new one.")
    ],
    group: Annotated[
        str | None, typer.Option(help="The column that parts rows which have nothing to do with each other.")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The column with a row's id.")] = None,
    deps: Annotated[
        str | None, typer.Option(help="The column with the ids of its causes: an array, or one id.")
    ] = None,
    origin: Annotated[
        str | None, typer.Option(help="The column that says whose row it is; with --seq, or with --clock.")
    ] = None,
    seq: Annotated[str | None, typer.Option(help="The column with its number among those.")] = None,
    clock: Annotated[
        str | None, typer.Option(help="The column with a vector clock, instead of --id or --seq and --deps.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Where causes leave a choice, the least of this column comes first.")
    ] = None,
    on_missing: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="What becomes of rows whose cause is not there: hold, release or quarantine them.",
        ),
    ] = "hold",
    timeout: Annotated[
        str, typer.Option(help="How long a row of a stream waits before that is done; as in 30s, 10m.")
    ] = "10m",
    horizon: Annotated[
        str, typer.Option(help="How long a stream remembers ids that are text, after they came out.")
    ] = "24h",
    split: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is between ids, where --deps is one text.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Refuse rows that cannot be read beforehand, or quarantine them."
        ),
    ] = True,
    stream: Annotated[
        bool, typer.Option("--stream", help="Go on with files as they appear in IN, until Ctrl-C.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Of a stream: end when the files that are there are done.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            parser=folder, metavar="FOLDER", help="A stream's checkpoint; by default OUT/_checkpoint."
        ),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Put rows into causal order: each after every row that it depends on, exactly once.

    OUT/outcome=ordered has them by group and causal_index; held and quarantined rows lie beside it, each with
    its reason. Say --id and --deps, or --origin, --seq and --deps, or --origin and --clock.

    The exit code is 0 also if rows are held or quarantined: they are counted and told, and --json has the
    counts. A stream that is run again goes on where it was; Ctrl-C ends it with exit code 130.

    See docs/how-to/order-a-stream.md; antecede held OUT shows what a stream holds.
    """
    if not stream and (once or checkpoint is not None):
        raise typer.BadParameter(f"{'--once' if once else '--checkpoint'} is for --stream")
    require("antecede.spark", "spark")
    from antecede.causal_order.run import CHECKPOINT, Asked, order_as_they_appear, order_files

    columns = {
        "group": group,
        "id": id_,
        "deps": deps,
        "origin": origin,
        "seq": seq,
        "clock": clock,
        "by": by,
    }
    asked = Asked(columns, on_missing, timeout, horizon, split, check)
    with show.progress() as progress:
        if stream:
            outcome = order_as_they_appear(events, out, asked, once, checkpoint, master, progress)
        else:
            outcome = order_files(events, out, asked, master, progress)
    kept = checkpoint or out / CHECKPOINT if stream else None
    if as_json:
        told = {"in": events, "out": str(out), "checkpoint": None if kept is None else str(kept)}
        show.json(told | msgspec.to_builtins(outcome.counts) | {"examples": outcome.examples})
    else:
        _tell(outcome, out, stream)
    if outcome.interrupted:
        raise typer.Exit(130)


def held(
    out: Annotated[
        Path, typer.Argument(parser=folder, metavar="OUT", help="A stream's folder, or its checkpoint.")
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST,
            show_default=False,
            help=f"How many rows to show; by default {_SHOWN}, with --json {_MOST:,}.",
        ),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Show what a stream of antecede order holds, and what for, as of its last batch; it may be running."""
    require("antecede.spark", "spark")
    from antecede.causal_order.run import held_by

    with show.progress() as progress:
        counts, rows = held_by(out, limit or (_MOST if as_json else _SHOWN), master, progress)
    if as_json:
        show.json({"out": str(out), **msgspec.to_builtins(counts), "held_rows": rows})
        return
    if not rows:
        show.out.print(f"nothing is held; {counts.rows:,} rows came in")
        return
    cells = [
        [
            escape(_brief(row.id)),
            escape(_brief(row.group or "")),
            escape(_listed(row.waits_for)),
            escape(_listed(row.missing)),
            f"{row.since:%Y-%m-%d %H:%M:%S}",
        ]
        for row in rows
    ]
    show.table(None, ["held", "group", "waits for", "of which never came", "since (UTC)"], cells, left=5)
    if counts.held > len(rows):
        show.out.print(f"[dim]and {counts.held - len(rows):,} more; --limit shows up to {_MOST:,}[/]")


def _tell(outcome: Outcome, out: Path, stream: bool) -> None:
    counts = outcome.counts
    show.table(None, ["", "rows"], _account(counts))
    for status, many in (("held", counts.held), ("quarantined", counts.quarantined)):
        examples = [_line(row) for row in outcome.examples if row.status == status]
        where = f"antecede held {out}" if stream and status == "held" else f"{out}/outcome={status}"
        for line in [f"{status}: {where}", *examples] if many else []:
            show.out.print(line, soft_wrap=True, markup=False)
    show.out.print(f"ordered: {out}/outcome=ordered", soft_wrap=True, markup=False)


def _line(row: Example) -> str:
    group = f" of {_brief(row.group)}" if row.group is not None else ""
    since = f", since {row.since:%Y-%m-%d %H:%M:%S} UTC" if row.since is not None else ""
    return f"• {_brief(row.id)}{group}: {row.reason}{since}"


def _account(counts: Counts) -> list[list[str]]:
    """Rows that came in, and what they came to; together that is as many."""
    whole = msgspec.to_builtins(counts)
    rows = {"in": whole.pop("rows"), "ordered": whole.pop("ordered")}
    rows |= {name: many for name, many in whole.items() if many}
    return [[name, f"{many:,}"] for name, many in rows.items()]


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _listed(names: list[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(map(_brief, names[:most])) + (f" and {more:,} more" if more > 0 else "")
