"""antecede audit: whether a trace is causally ordered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from antecede.cli import show
from antecede.cli.audit_history import LevelName, audit_history, history_at
from antecede.cli.audit_source import audit_source
from antecede.cli.options import AnalysisEngine, Json, Master, folder
from antecede.cli.source_input import InputOptions, local_input, source_at, table_by_content
from antecede.errors import InputError, require
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.audit.run import AuditResult
    from antecede.trace.bad_rows import BadRows

_SHOWN = 5
"""The number of processes and origins named in a line."""
_VIOLATION_LABELS = {
    "causal_violations": "deliveries before a cause",
    "causal_late_deliveries": "  the cause was delivered later",
    "fifo_violations": "  cause and effect from the same sender (FIFO)",
    "causal_pairs_late": "pairs of effect and late cause",
    "causal_pairs_never": "pairs of effect and cause never delivered",
    "missing": "missing deliveries",
    "duplicates": "delivered twice",
    "orphans": "delivered but never sent",
    "impossible": "delivered before they were sent",
    "wrong_views": "members wrongly in a view, or missing from it",
    "different_cuts": "streams that members end at different messages",
    "split_groups": "pairs of members that removed each other",
    "after_end": "processes that continued after they left",
    "wrong_snapshots": "snapshots that do not match the admission",
}
_Trace = Annotated[
    str,
    typer.Argument(
        help="A trace: a folder, .parquet, .jsonl or .csv; a log or history of another program (antecede "
        "sources lists the formats), compressed or not; or the URL of one."
    ),
]
_FAULT_LABELS = {
    "missing": ("missing", "missing", "deliveries that needed it"),
    "duplicate": ("duplicates", "delivered twice", "times too often"),
    "orphan": ("orphans", "delivered but never sent", "deliveries"),
    "impossible": ("impossible", "delivered before they were sent", "deliveries"),
    "view": ("wrong_views", "members wrongly in a view, or missing from it", "views"),
    "cut": ("different_cuts", "streams that members end at different messages", "processes"),
    "split": ("split_groups", "members that removed each other", "pairs"),
    "ended": ("after_end", "processes that continued after they left", "events"),
    "snapshot": ("wrong_snapshots", "snapshots that do not match the admission", "messages"),
}
"""For each kind of fault: the name of its count, a title, and its consequences."""
_Page = Annotated[
    Path | None,
    typer.Option(
        parser=folder, metavar="PAGE", help="Also write a page with the counts and each violation drawn."
    ),
]
_Explorer = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="PAGE.html|FOLDER",
        help="With --html: also write the output of antecede explore --out, and link to it from the page.",
    ),
]
_Drawn = Annotated[
    int | None, typer.Option(min=1, help="The violation that comes first on the page; by default the worst.")
]
_Limit = Annotated[
    int, typer.Option(min=0, max=100_000, help="Faults of each kind to list; all are counted.")
]


def audit(
    trace: _Trace,
    reading: InputOptions,
    level: LevelName = None,
    html: _Page = None,
    violation: _Drawn = None,
    explorer: _Explorer = None,
    engine: AnalysisEngine = "auto",
    limit: _Limit = 10,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Check a log: was any message delivered before its cause?

    Exit code 0 if no, 1 if there are violations, 2 if the input is bad. Transaction histories are
    checked for causal consistency.

    Small local traces are audited in this process; larger ones on Spark. The result is the same.

    A row for each send and delivery: antecede audit log.csv --map process=host,index=idx,message=msg

    A row that names its parents: antecede audit log.csv --map node=id,process=who,parents=after

    A row with a vector clock: antecede order log.csv --origin who --clock vc --out ordered
    """
    require("antecede.trace", "sim")
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.lineage import lineage

    if html is None and violation is not None:
        raise typer.BadParameter("--violation is for --html, the page that it is drawn on")
    if html is None and explorer is not None:
        raise typer.BadParameter("--explorer is for --html; antecede explore writes the explorer alone")
    columns = reading.columns or []
    trace = local_input(trace, reading.max_bytes)
    if history_at(trace, columns, reading.preset, level):
        audit_history(trace, reading, level, html, engine, limit, as_json)
        return
    trace, source = source_at(trace, columns, reading.preset, reading.max_bytes)
    if source is not None:
        audit_source(source, trace, reading, engine, master, html, limit, as_json)
        return
    trace = table_by_content(trace, columns, reading.max_bytes)
    bad = BadRows(trace, reading.strict)
    outcome = _audit_trace(trace, reading, html, violation, explorer, engine, limit, master, bad)
    if as_json:
        _print_json(trace, outcome, html, bad)
    else:
        _print_incomplete(trace, bad)
        _print_outcome(outcome)
        show.lineage(lineage(bad, outcome.runs, outcome.engine))
        if html:
            show.line(f"Page: {html}")
    if not outcome.verdict.clean:
        raise typer.Exit(1)


def _audit_trace(
    trace: str,
    reading: InputOptions,
    html: Path | None,
    violation: int | None,
    explorer: Path | None,
    engine: str,
    limit: int,
    master: str | None,
    bad: BadRows,
) -> AuditResult:
    """Judge a trace or a mapped table, and write the page if one is wanted."""
    from antecede.audit.run import audit_path, refuse_without_deliveries
    from antecede.trace.foreign.mapped_trace import mapped_trace

    if html is not None:
        from antecede.audit.page import audit_to_page, check_page

        check_page(html)
    if explorer is not None:
        from antecede.explore.page import check_place

        check_place(explorer)
    with (
        show.progress() as progress,
        mapped_trace(trace, reading.columns or [], progress, bad, reading.run_per_file) as ours,
    ):
        if html is not None:
            named = show.as_named(trace)
            address = _address(explorer, html) if explorer is not None else ""
            outcome = audit_to_page(
                html, named, ours, engine, limit, master, violation, progress, bad, show.renamed, address
            )
            if explorer is not None:
                _write_explorer(Path(ours), named, outcome, explorer, progress)
            return outcome
        outcome = audit_path(ours, engine, limit, master, progress, bad)
        refuse_without_deliveries(ours, outcome.verdict, bad)
        return outcome


def _address(explorer: Path, page: Path) -> str:
    """Where the page finds the explorer."""
    file = explorer if explorer.suffix == ".html" else explorer / "index.html"
    return quote(Path(os.path.relpath(file, page.parent)).as_posix())


def _write_explorer(
    trace: Path, named: str, outcome: AuditResult, explorer: Path, progress: Callable[[str, int, int], None]
) -> None:
    """Write the explorer of the run with the worst violation, or of the only run."""
    from antecede.explore.page import write

    if outcome.runs > 1 and not outcome.findings:
        raise InputError(
            f"--explorer: none of the {outcome.runs:,} runs has a violation; antecede explore --run shows one"
        )
    run = outcome.findings[0].run if outcome.findings else None
    write(trace, Path(named).name or named, run, explorer, progress)


def _print_json(trace: str, outcome: AuditResult, page: Path | None, bad: BadRows) -> None:
    from antecede.trace.lineage import lineage
    from antecede.trace.reader import missing_rows

    document = {
        "trace": trace,
        "clean": outcome.verdict.clean,
        "engine": outcome.engine,
        "runs": outcome.runs,
    }
    document |= outcome.verdict.counts()
    document |= {"violations": outcome.findings, "faults": outcome.faults}
    document |= {"tally": outcome.tally, "tally_of": outcome.tally_of}
    document |= {"bad_rows": bad.rows, "bad": bad.kinds, "missing_rows": missing_rows(trace)}
    document["lineage"] = lineage(bad, outcome.runs, outcome.engine)
    show.json(document | ({"page": str(page)} if page else {}))


def _print_incomplete(trace: str, bad: BadRows) -> None:
    """Print which parts of a trace were not audited."""
    from antecede.trace.reader import missing_rows

    if rows := missing_rows(trace):
        show.line(f"{rows:,} rows are missing: a live member could not write them")
    show.bad_rows(bad.kinds)


def _print_outcome(outcome: AuditResult) -> None:
    verdict, findings = outcome.verdict, outcome.findings
    show.line(
        f"{verdict.deliveries:,} deliver{'y' if verdict.deliveries == 1 else 'ies'} of "
        f"{count_of(verdict.messages, 'message')} at {count_of(verdict.processes, 'process')} in "
        f"{count_of(outcome.runs, 'run')}"
    )
    if verdict.clean:
        show.line(show.styled("clean", "green"), ": every message was delivered once, after its causes")
        return
    for finding in findings:
        run = f"{finding.run}: " if outcome.runs > 1 else ""
        show.line(f"• {run}{finding.text}")
    # Where each delivery lacks one cause, the pairs add nothing to the deliveries.
    one_cause_each = verdict.causal_pairs_late == verdict.causal_violations and not verdict.causal_pairs_never
    rows = [
        [label, f"{getattr(verdict, name):,}"]
        for name, label in _VIOLATION_LABELS.items()
        if getattr(verdict, name) and not (name == "causal_pairs_late" and one_cause_each)
    ]
    show.table(None, ["", ""], rows)
    for line in _tally_lines(outcome):
        show.line(line)
    _print_faults(outcome)


def _print_faults(outcome: AuditResult) -> None:
    """A table of each kind of fault, the kind with the worst consequences first."""
    for kind in dict.fromkeys(fault.kind for fault in outcome.faults):
        faults = [fault for fault in outcome.faults if fault.kind == kind]
        name, label, consequences = _FAULT_LABELS[kind]
        shown, count = len(faults), getattr(outcome.verdict, name)
        more = f", the first {shown:,}" if shown >= outcome.limit else ""
        header = ["process", "message", "sender", "index", consequences]
        rows = [
            [
                fault.process if outcome.runs == 1 else f"{fault.run}: {fault.process}",
                fault.message,
                fault.sender or "–",
                "–" if fault.index is None else str(fault.index),
                f"{fault.consequences:,}",
            ]
            for fault in faults
        ]
        show.line()
        show.table(f"{label} ({count:,}{more})", header, rows, left=3)


def _tally_lines(outcome: AuditResult) -> Iterator[str]:
    """The worst processes, the origins of the late or missing causes, and when it happened."""
    from antecede.units import format_duration

    tally = outcome.tally
    if tally is None:
        return
    run = f" in {outcome.tally_of}" if outcome.tally_of else ""
    processes = [
        f"{row.process} ({_parts((row.causal_violations, 'before a cause'), (row.missing, 'missing'))})"
        for row in tally.by_process
        if row.causal_violations or row.missing
    ]
    if processes:
        yield f"most violations{run}: {_first(processes)}"
    origins = [
        f"{row.origin} ({_parts((row.late, 'late'), (row.never, 'never delivered'))})"
        for row in tally.by_origin
        if row.late or row.never
    ]
    if origins:
        yield f"senders of these causes{run}: {_first(origins)}"
    times = tally.over_time
    buckets = [bucket for bucket, count in enumerate(times.causal_violations) if count] if times else []
    if times and buckets:
        begin, end = buckets[0] * times.width, (buckets[-1] + 1) * times.width
        span = f"from {format_duration(begin)} to {format_duration(end)} after the first event"
        yield f"when they happened{run}: {span}"


def _parts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
