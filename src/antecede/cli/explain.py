"""antecede explain: the story of one message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Columns, Json, MaxBytes, RunName, RunPerFile, Strict
from antecede.cli.source_input import trace_at
from antecede.errors import require

if TYPE_CHECKING:
    from antecede.trace.explain import DeliveryAtProcess, Explanation


def explain(
    trace: Annotated[str, typer.Argument(help="A small trace: a folder or a file, compressed or not.")],
    message: Annotated[
        str, typer.Option(help="The message: its id in the log, or ORIGIN:SEQ if it has none.")
    ],
    columns: Columns = None,
    run_per_file: RunPerFile = False,
    strict: Strict = False,
    run: RunName = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Show one message's causes, and where, how long and for which cause it was held."""
    require("antecede.trace", "sim")
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.explain import explain_message
    from antecede.trace.foreign.mapped_trace import mapped_trace
    from antecede.trace.lineage import lineage

    trace = trace_at(trace, columns, max_bytes)
    bad = BadRows(trace, strict)
    with mapped_trace(trace, columns or [], bad=bad, run_per_file=run_per_file) as ours:
        explanation = explain_message(Path(ours), message, run, bad)
    if as_json:
        document = {name: getattr(explanation, name) for name in explanation.__struct_fields__}
        document |= {"bad_rows": bad.rows, "bad": bad.kinds, "lineage": lineage(bad, 1, "local")}
        show.json(document)
    else:
        show.bad_rows(bad.kinds)
        _print_explanation(explanation)
        show.lineage(lineage(bad, 1, "local"))


def _print_explanation(explanation: Explanation) -> None:
    from antecede.trace.times import format_time

    causes = ", ".join(explanation.causes) or "nothing"
    if explanation.sent is None:
        show.line(f"{explanation.message} depends immediately on {causes}; the log has no times")
    else:
        sent = format_time(explanation.sent)
        show.line(f"{explanation.message}, sent at {sent}, depends immediately on {causes}")
    columns = {
        "process": [each.process for each in explanation.deliveries],
        "delivered": [_delivered(each, explanation.sent) for each in explanation.deliveries],
        "held": [_held(each) for each in explanation.deliveries],
        "violation": [
            "" if each.before_cause is None else f"before its cause {each.before_cause}"
            for each in explanation.deliveries
        ],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    show.table(None, list(shown), list(zip(*shown.values(), strict=True)), left=len(shown))


def _delivered(delivery: DeliveryAtProcess, sent: int | None) -> str:
    from antecede.units import format_duration

    if delivery.index is None:
        return "never"
    if sent is None or delivery.delivered is None:
        return f"as event {delivery.index:,}"
    return f"after {format_duration(delivery.delivered - sent)}"


def _held(delivery: DeliveryAtProcess) -> str:
    from antecede.units import format_duration

    how_long = format_duration(delivery.held_ns) if delivery.held_ns else ""
    if delivery.held_for is None:
        return how_long
    return f"{how_long} until {delivery.held_for}".strip()
