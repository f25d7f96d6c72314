"""antecede order and held: files in causal order, and the rows that a stream holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from antecede.cli import show
from antecede.cli.options import AnalysisEngine, Json, Master, MaxBytes, folder
from antecede.cli.source_input import PresetName, orderable_events
from antecede.errors import require
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.causal_order.merge import MergeRules
    from antecede.causal_order.missing_causes import MissingId, MissingIds
    from antecede.causal_order.request import Example, OrderRequest, OrderResult
    from antecede.causal_order.rules import RowCounts

_Events = Annotated[
    str,
    typer.Argument(
        metavar="IN", help="A file or a folder of Parquet, JSON lines (.jsonl, .ndjson, .json) or .csv."
    ),
]
_Out = Annotated[
    Path,
    typer.Option(
        parser=folder, metavar="OUT", help="Write Parquet into this folder, which must be new or empty."
    ),
]
_Checkpoint = Annotated[
    Path | None,
    typer.Option(parser=folder, metavar="FOLDER", help="A stream's checkpoint; by default OUT/_checkpoint."),
]
_Once = Annotated[
    bool,
    typer.Option(
        "--once",
        help="With --stream: stop after the files that exist now, when no row waits for a --timeout.",
    ),
]
_DEFAULT_LIMIT = 20
_MAX_LIMIT = 1000
_MAX_TEXT = 60
_SHOWN_CAUSES = 5


@dataclass(frozen=True, kw_only=True)
class CausalOrderOptions:
    """Which columns state the causes of a row, and what to do if one is missing."""

    group: Annotated[str | None, typer.Option(help="The column that separates independent groups.")] = None
    id_: Annotated[str | None, typer.Option("--id", help="The column with a row's id.")] = None
    deps: Annotated[
        str | None,
        typer.Option(
            help="The column with the ids of its causes: an array or one id; for a text with several, "
            "--split names the separator."
        ),
    ] = None
    origin: Annotated[
        str | None, typer.Option(help="The column with a row's origin; with --seq, or with --clock.")
    ] = None
    seq: Annotated[str | None, typer.Option(help="The column with its number at that origin.")] = None
    clock: Annotated[
        str | None, typer.Option(help="The column with a vector clock, instead of --id or --seq and --deps.")
    ] = None
    by: Annotated[
        str | None,
        typer.Option(help="Where dependencies leave a choice, the least value of this column comes first."),
    ] = None
    on_missing: Annotated[
        str,
        typer.Option(
            metavar="RULE", help="The rule for rows with a missing cause: hold, release or quarantine."
        ),
    ] = "hold"
    timeout: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="How long a row in a stream waits for a missing cause, with --on-missing release or "
            "quarantine: 30s, 10m (the default).",
        ),
    ] = None
    horizon: Annotated[
        str, typer.Option(help="How long a stream remembers text ids after emitting their rows.")
    ] = "24h"
    split: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The separator of ids, if --deps is a text with several: --split ' ' for 'b a'.",
        ),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse rows that cannot be read or have no id, instead of quarantining them."
        ),
    ] = False
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="DDL",
            help="Types of CSV and JSON columns, as in 'n int, at timestamp'; other CSV columns are text.",
        ),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            help="The encoding of CSV, such as latin-1; by default UTF-8, or that of a byte-order mark."
        ),
    ] = None
    separator: Annotated[str, typer.Option(help="The separator of CSV fields.")] = ","
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="For Debezium: a table whose topic is not in the input, as named in the "
            "transaction topic; transactions are complete without its events. May be "
            "repeated.",
        ),
    ] = None
    snapshot_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="For Debezium: a topic that begins with a snapshot; transactions wait for its "
            "last row. May be repeated.",
        ),
    ] = None
    offsets: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="For Debezium streams: consecutive if records may come in any order; increasing "
            "if offsets have gaps and each partition is in order.",
        ),
    ] = "consecutive"

    def request(self, merges: bool) -> OrderRequest:
        from antecede.causal_order.request import DEFAULT_TIMEOUT, OrderRequest

        roles = ("group", "id_", "deps", "origin", "seq", "clock", "by")
        columns = {role.rstrip("_"): getattr(self, role) for role in roles}
        rules = (self.on_missing, self.timeout or DEFAULT_TIMEOUT, self.horizon, self.split, self.strict)
        reading = (self.schema, self.encoding, self.separator)
        return OrderRequest(columns, *rules, *reading, merges, self._merge_rules(), self.without or [])

    def _merge_rules(self) -> MergeRules:
        from antecede.causal_order.merge import MergeRules

        if self.offsets not in ("consecutive", "increasing"):
            raise typer.BadParameter(f"--offsets: {self.offsets!r} is neither consecutive nor increasing")
        return MergeRules(self.offsets == "consecutive", snapshot_of=self.snapshot_of or [])


def order(
    events: _Events,
    out: _Out,
    options: CausalOrderOptions,
    preset: PresetName = None,
    max_bytes: MaxBytes = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Continue with files as they appear in IN, until Ctrl-C.")
    ] = False,
    once: _Once = False,
    checkpoint: _Checkpoint = None,
    engine: AnalysisEngine = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Put rows into causal order: each exactly once, after every row it depends on.

    OUT/outcome=ordered has them by group and causal_index; rows that are held, quarantined, or not the first
    with their id are beside it, with reasons. Give --id and --deps, or --origin, --seq and --deps, or
    --origin and --clock. Records of Debezium's topics are merged instead, in their connector's order.

    Small files are ordered in this process, large ones and streams on Spark. The exit code is 0 also if rows
    are held or quarantined: they are counted and reported. A stream that is run again continues where it
    stopped; Ctrl-C ends it with exit code 130. antecede held OUT shows the rows that a stream holds.
    """
    _check_stream_options(events, stream, once, checkpoint, preset)
    require("antecede.causal_order.run", "sim")
    from antecede.causal_order.run import order_files, order_stream_of_files
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.lineage import lineage

    request = options.request(merges=stream and preset is not None)
    _refuse_unused_timeout(options, request, stream)
    bad = BadRows(events, strict=options.strict)
    with show.progress() as progress:
        if stream:
            result = order_stream_of_files(
                events, out, request, once, checkpoint, engine, master, progress, bad
            )
        else:
            with orderable_events(events, request, preset, max_bytes, progress, bad) as table:
                result = order_files(table, out, request, engine, master, progress, bad)
    based_on = lineage(bad, 1, result.engine, result.groups, result.counts.rows if stream else None)
    if as_json:
        head = {
            "in": events,
            "out": str(out),
            "checkpoint": str(checkpoint or out / "_checkpoint") if stream else None,
            "engine": result.engine,
        }
        read = {"bad_rows": bad.rows, "bad": bad.kinds, "lineage": based_on}
        show.json(head | _document(result) | read)
    else:
        show.bad_rows(bad.kinds)
        _show_result(result, out, stream)
        _suggest_split(result.missing, options, preset)
        show.lineage(based_on)
    if result.interrupted:
        raise typer.Exit(130)


def _refuse_unused_timeout(options: CausalOrderOptions, request: OrderRequest, stream: bool) -> None:
    request.refuse_wrong_durations()
    if options.timeout is not None and (not stream or request.on_missing == "hold"):
        raise typer.BadParameter("--timeout is for --stream with --on-missing release or quarantine")


def _check_stream_options(
    events: str, stream: bool, once: bool, checkpoint: Path | None, preset: str | None
) -> None:
    if not stream and (once or checkpoint is not None):
        raise typer.BadParameter(f"{'--once' if once else '--checkpoint'} is for --stream")
    if stream and events.lower().startswith(("http://", "https://")):
        raise typer.BadParameter("a stream reads files as they appear in a folder, and not from the web")
    if stream and preset is not None:
        from antecede.sources import find_preset

        if find_preset(preset).reader != "debezium":
            raise typer.BadParameter(
                "--preset is for files that are complete; a stream reads tables of events, or with --preset "
                "debezium the records of its topics"
            )


def held(
    out: Annotated[
        Path, typer.Argument(parser=folder, metavar="OUT", help="A stream's folder, or its checkpoint.")
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MAX_LIMIT,
            show_default=False,
            help=f"How many rows to show; by default {_DEFAULT_LIMIT}, with --json {_MAX_LIMIT:,}.",
        ),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Show the rows that a stream of antecede order holds, and what they wait for.

    Shows the state after the stream's last batch; the stream may be running.
    """
    require("antecede.causal_order.run", "sim")
    from antecede.causal_order.run import held_by_stream

    with show.progress() as progress:
        counts, rows = held_by_stream(
            out, limit or (_MAX_LIMIT if as_json else _DEFAULT_LIMIT), master, progress
        )
    if as_json:
        show.json({"out": str(out), **msgspec.to_builtins(counts), "held_rows": rows})
        return
    if not rows:
        show.line(f"nothing is held; {count_of(counts.rows, 'row')} came in")
        return
    cells = [
        [
            _shorten(row.id),
            _shorten(row.group or ""),
            _list(row.waits_for),
            _list(row.missing),
            f"{row.since:%Y-%m-%d %H:%M:%S}",
        ]
        for row in rows
    ]
    show.table(None, ["held", "group", "waits for", "of which missing", "since (UTC)"], cells, left=5)
    if counts.held > len(rows):
        show.line(
            show.styled(f"and {counts.held - len(rows):,} more; --limit shows up to {_MAX_LIMIT:,}", "dim")
        )


def _document(result: OrderResult) -> dict[str, Any]:
    counts: dict[str, Any] = msgspec.to_builtins(result.counts) | {"unreadable": result.unreadable}
    return counts | {"missing": result.missing, "examples": result.examples}


def _show_result(result: OrderResult, out: Path, stream: bool) -> None:
    from antecede.causal_order.request import NOT_ORDERED

    counts = result.counts
    show.table(None, ["", "rows since the stream began" if stream else "rows"], _count_rows(counts))
    if result.unreadable:
        show.line(f"{result.unreadable:,} of the quarantined rows could not be read; --strict refuses them")
    for status, name in NOT_ORDERED.items():
        count = getattr(counts, name)
        examples = [_example_line(row) for row in result.examples if row.status == status]
        where = f"antecede held {out}" if stream and status == "held" else f"{out}/outcome={status}"
        if status == "held" and result.missing.ids:
            examples = [_missing_line(cause) for cause in result.missing.first[:_SHOWN_CAUSES]] + examples
            where = f"{where} ({_words_of(result.missing)})"
        for line in [f"{status}: {where}", *examples] if count else []:
            show.line(line)
    if counts.ordered or counts.released or counts.late:
        show.line(f"ordered: {out}/outcome=ordered")


def _suggest_split(missing: MissingIds, options: CausalOrderOptions, preset: str | None) -> None:
    """Missing ids that look like several ids in one text may be just that: suggest a separator."""
    for separator in (" ", ",", ";", "|"):
        if any(separator in cause.id.strip() for cause in missing.first):
            found = f"missing ids have {separator!r} in them; if each is several ids,"
            if options.deps is not None and options.split is None:
                show.note(f"{found} give --split {separator!r}")
            elif preset is not None and (single := _single_causes(preset)):
                show.note(f"{found} write {', '.join(single)} in the preset's causes")
            return


def _single_causes(preset: str) -> list[str]:
    """The single-cause templates of a preset, rewritten to match several causes."""
    from antecede.sources import find_preset

    causes = find_preset(preset).causes
    return [f"{text[:-1]}[]}}" for text in causes if text.endswith("}") and "[]" not in text]


def _words_of(missing: MissingIds) -> str:
    ids = "1 missing id holds" if missing.ids == 1 else f"{missing.ids:,} missing ids hold"
    return f"{ids} {missing.rows:,} {'row' if missing.rows == 1 else 'rows'}"


def _missing_line(cause: MissingId) -> str:
    group = f" of {_shorten(cause.group)}" if cause.group is not None else ""
    return f"• missing: {_shorten(cause.id)}{group}, holds {cause.rows:,}"


def _example_line(row: Example) -> str:
    if not row.id:
        return f"• {row.reason}"
    group = f" of {_shorten(row.group)}" if row.group is not None else ""
    since = f", since {row.since:%Y-%m-%d %H:%M:%S} UTC" if row.since is not None else ""
    return f"• {_shorten(row.id)}{group}: {row.reason}{since}"


def _count_rows(counts: RowCounts) -> list[list[str]]:
    """The rows that came in, and how many of them had which outcome."""
    by_outcome = msgspec.to_builtins(counts)
    rows = {"in": by_outcome.pop("rows"), "ordered": by_outcome.pop("ordered")}
    rows |= {name: count for name, count in by_outcome.items() if count}
    return [[name, f"{count:,}"] for name, count in rows.items()]


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _list(names: list[str], limit: int = 3) -> str:
    more = len(names) - limit
    return ", ".join(map(_shorten, names[:limit])) + (f" and {more:,} more" if more > 0 else "")
