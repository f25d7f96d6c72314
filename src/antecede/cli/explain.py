"""antecede explain: the story of one message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Columns, Json, MaxBytes, RunName, RunPerFile, Strict
from antecede.cli.source_input import local_copy, local_input
from antecede.errors import require

if TYPE_CHECKING:
    from antecede.trace.explain import Explanation


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

    trace = local_copy(local_input(trace, max_bytes, spark=False), max_bytes=max_bytes)
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
    from antecede.units import format_duration

    sent = explanation.sent
    causes = ", ".join(explanation.causes) or "nothing"
    if sent is None:
        show.line(f"{explanation.message} depends immediately on {causes}; the log has no times")
        rows = [
            [each.process, "never" if each.index is None else f"event {each.index:,}", each.held_for or ""]
            for each in explanation.deliveries
        ]
        columns = 3 if any(each.held_for for each in explanation.deliveries) else 2
        header = ["process", "delivered as", "held for the cause"]
        show.table(None, header[:columns], [row[:columns] for row in rows], left=3)
        return
    show.line(f"{explanation.message}, sent at {format_duration(sent)}, depends immediately on {causes}")
    rows = [
        [
            delivery.process,
            "never" if delivery.delivered is None else format_duration(delivery.delivered - sent),
            format_duration(delivery.held_ns) if delivery.held_ns else "",
            delivery.held_for or "",
        ]
        for delivery in explanation.deliveries
    ]
    show.table(None, ["process", "delivered after", "held", "for the cause"], rows)
