"""What each command shows: a table and a sentence for people, a document for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.markup import escape

from antecede.cli import show

if TYPE_CHECKING:
    from antecede.audit.run import AuditResult
    from antecede.graph.core import GraphFigures
    from antecede.papers.scoreboard import Reproduction
    from antecede.protocols.base import Protocol
    from antecede.sim.metrics import Metrics
    from antecede.sim.scenario import Scenario
    from antecede.sim.verify import Report
    from antecede.sweep.run import Outcome
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.explain import Explanation


def study(outcome: Outcome, path: Path, title: str, as_json: bool) -> None:
    from antecede.sweep import page as view

    summary = outcome.summary
    if as_json:
        document = {"summary": summary.to_pylist(), "failed": outcome.failed, "resumed": outcome.skipped}
        show.json(document | {"report": str(path)})
        return
    show.table(title, view.columns(summary), view.cells(summary))
    show.out.print("[dim]wire B, paper B: control bytes a message, as sent and as the papers count[/]")
    show.out.print(f"\n{view.lead(summary, len(outcome.failed))}")
    if outcome.skipped:
        show.out.print(f"[dim]{outcome.skipped} runs were finished before and not made again.[/]")
    for error, count in Counter(outcome.failed.values()).items():
        first = next(key for key, reason in outcome.failed.items() if reason == error)
        more = f" and {count - 1:,} more" if count > 1 else ""
        show.out.print(f"failed: {first}{more}: {error}", soft_wrap=True, markup=False)
    show.out.print(f"Report: {path}", soft_wrap=True, markup=False)


def reproduction(found: Reproduction, outcome: Outcome, report: Path, as_json: bool) -> None:
    from antecede.papers.scoreboard import HEADER, cells, tally

    if as_json:
        show.json({**msgspec.to_builtins(found), "failed": outcome.failed, "report": str(report)})
        return
    for paper in dict.fromkeys(row.paper for row in found.scoreboard):
        rows = [cells(row)[:6] for row in found.scoreboard if row.paper == paper]
        show.table(f"paper {paper}", HEADER[:6], rows)
        show.out.print()
    show.out.print(found.audited, soft_wrap=True, markup=False)
    show.out.print(tally(found.scoreboard), soft_wrap=True, markup=False)
    for run, error in list(outcome.failed.items())[:3]:
        show.out.print(f"failed: {run}: {error}", soft_wrap=True, markup=False)
    show.out.print(f"Report: {report}", soft_wrap=True, markup=False)


def run(
    given: Scenario,
    metrics: Metrics,
    spent: float,
    engine: tuple[str, str],
    trace: Path | None,
    as_json: bool,
) -> None:
    speed = metrics.deliveries / spent if spent else 0.0
    if as_json:
        timing = {
            "engine": engine[0],
            "cpu_seconds": spent,
            "deliveries_per_second": speed,
            "trace": str(trace) if trace else None,
        }
        show.json({"run": given.key(), "scenario": given, **msgspec.to_builtins(metrics), **timing})
        return
    from antecede.units import show as human

    share = metrics.held / metrics.deliveries if metrics.deliveries else 0.0
    rows = [
        ["messages", f"{metrics.messages:,}"],
        ["deliveries", f"{metrics.deliveries:,}"],
        [
            "control bytes a message",
            f"{metrics.control_bytes_mean:.1f} on the wire, at most {metrics.control_bytes_max:,}",
        ],
        ["", f"{metrics.paper_bytes_mean:.1f} as the papers count"],
        [
            "held for a cause",
            f"{metrics.held:,} deliveries ({share:.1%}), {human(metrics.hold_mean_ns)} on average",
        ],
        [
            "from send to delivery",
            f"{human(metrics.latency_mean_ns)} on average, at most {human(metrics.latency_max_ns)}",
        ],
        ["still held at the end", f"{metrics.stuck:,}"],
        ["speed", f"{speed:,.0f} deliveries a CPU second"],
        ["engine", f"{engine[0]}: {engine[1]}"],
    ]
    show.table(
        f"{given.protocol}, {given.peers} peers, {given.seconds:g} s, seed {given.seed}",
        ["", ""],
        rows,
        left=2,
    )
    if trace:
        show.out.print(f"Trace: {trace}", soft_wrap=True)


_AUDIT_ROWS = {
    "causal_violations": "deliveries before a cause",
    "causal_late_deliveries": "  of which the cause came later",
    "fifo_violations": "  of which out of one sender's order",
    "causal_pairs_late": "pairs with the cause late",
    "causal_pairs_never": "pairs with the cause never delivered",
    "missing": "missing",
    "duplicates": "delivered twice",
    "orphans": "delivered, though nobody sent it",
    "impossible": "delivered before it was sent",
}


def audit(trace: str, outcome: AuditResult, as_json: bool, page: Path | None, bad: BadRows) -> None:
    verdict = outcome.verdict
    if as_json:
        document = {"trace": trace, "clean": verdict.clean, "engine": outcome.engine}
        document |= verdict.counts()
        document |= {"violations": outcome.findings, "tally": outcome.tally, "tally_of": outcome.tally_of}
        document |= {"bad_rows": bad.rows, "bad": bad.found}
        show.json(document | ({"page": str(page)} if page else {}))
        return
    show.bad_rows(bad.found)
    _audited(outcome)
    if page:
        show.out.print(f"Page: {page}", soft_wrap=True, markup=False)


def _audited(outcome: AuditResult) -> None:
    verdict, findings = outcome.verdict, outcome.findings
    where = "on Spark" if outcome.engine == "spark" else "in this process"
    show.out.print(
        f"{verdict.deliveries:,} deliveries of {verdict.messages:,} messages "
        f"at {verdict.processes:,} processes [dim](judged {where})[/]"
    )
    if verdict.clean:
        show.out.print("[green]clean[/]: every message was delivered once, after its causes")
        return
    rows = [
        [label, f"{getattr(verdict, name):,}"]
        for name, label in _AUDIT_ROWS.items()
        if getattr(verdict, name)
    ]
    show.table(None, ["", ""], rows)
    for line in _where_and_when(outcome):
        show.out.print(line, soft_wrap=True, markup=False)
    many = len({finding.run for finding in findings}) > 1
    for finding in findings:
        where = f"{finding.run}: " if many else ""
        show.out.print(f"• {where}{finding.text}", soft_wrap=True, markup=False)


def _where_and_when(outcome: AuditResult, most: int = 5) -> Iterator[str]:
    """The worst processes, whose messages were lacking, and when: a line each."""
    from antecede.units import show as human

    tally = outcome.tally
    if tally is None:
        return
    run = f" of {outcome.tally_of}" if outcome.tally_of else ""
    for about, those in (
        (
            f"worst processes{run} (before a cause, missing)",
            [
                f"{each.process} ({each.causal_deliveries:,}, {each.missing:,})"
                for each in tally.by_process
                if each.causal_deliveries or each.missing
            ],
        ),
        (
            f"whose messages{run} were lacking (late, never)",
            [
                f"{each.origin} ({each.late:,}, {each.never:,})"
                for each in tally.by_origin
                if each.late or each.never
            ],
        ),
    ):
        if those:
            rest = f" and {len(those) - most:,} more" if len(those) > most else ""
            yield f"{about}: {', '.join(those[:most])}{rest}"
    times = tally.over_time
    hit = [place for place, count in enumerate(times.causal_deliveries) if count] if times else []
    if times and hit:
        begin, end = hit[0] * times.width, (hit[-1] + 1) * times.width
        yield f"when{run}: from {human(begin)} to {human(end)} after the first event"


def graph(
    trace: str, found: list[GraphFigures], engine: str, out: Path | None, as_json: bool, bad: BadRows
) -> None:
    if as_json:
        told = {"trace": trace, "engine": engine, "out": str(out) if out else None, "runs": found}
        show.json(told | {"bad_rows": bad.rows, "bad": bad.found})
        return
    show.bad_rows(bad.found)
    if len(found) == 1:
        show.table(escape(found[0].run), ["", ""], _graph_rows(found[0]), left=2)
    else:
        header = [
            "run",
            "processes",
            "messages",
            "dependencies",
            "mean",
            "most",
            "depth",
            "frontier",
            "width",
        ]
        rows = [
            [
                escape(each.run),
                *(f"{count:,}" for count in (each.processes, each.messages, each.dependencies)),
                f"{each.dependencies_mean:.2f}",
                *(f"{count:,}" for count in (each.dependencies_most, each.depth, each.frontier)),
                "" if each.antichain is None else f"{each.antichain:,}",
            ]
            for each in found[:_SHOWN_RUNS]
        ]
        show.table(None, header, rows)
        if len(found) > _SHOWN_RUNS:
            show.out.print(f"[dim]and {len(found) - _SHOWN_RUNS:,} runs more; --json has all[/]")
    if out:
        show.out.print(f"Graph: {out}", soft_wrap=True, markup=False)


_SHOWN_RUNS = 50
_SHOWN_COUNTS = 12


def _graph_rows(one: GraphFigures) -> list[list[str]]:
    rows = [["messages", f"{one.messages:,} of {one.processes:,} processes"]]
    if one.stated is not None:
        stated = f"{one.stated:,}, at most {one.stated_most:,} a message"
        rows.append(["stated dependencies", stated])
    rows += [
        ["immediate dependencies", f"{one.dependencies:,}"],
        [
            "  a message",
            f"{one.dependencies_mean:.3f} on average, at most {one.dependencies_most:,}",
        ],
    ]
    histogram = list(one.dependencies_histogram.items())
    for many, messages in histogram[:_SHOWN_COUNTS]:
        share = messages / one.messages
        rows.append([f"  {many:,}", f"{messages:,} messages ({share:.1%})"])
    if rest := sum(messages for _, messages in histogram[_SHOWN_COUNTS:]):
        rows.append(["  more", f"{rest:,} messages ({rest / one.messages:.1%})"])
    widest = "too many messages to find out" if one.antichain is None else f"{one.antichain:,}"
    rows += [
        ["longest chain", f"{one.depth:,} messages"],
        ["largest frontier", f"{one.frontier:,} messages"],
        ["largest antichain", widest if one.antichain is None else f"{widest} messages"],
    ]
    if one.busiest:
        busiest = ", ".join(f"{escape(each.message)} ({each.effects:,})" for each in one.busiest[:5])
        rows.append(["most immediate effects", busiest])
    return rows


def verification(reports: list[Report], seed: int, as_json: bool) -> None:
    if as_json:
        show.json({"seed": seed, "passed": all(r.passed for r in reports), "protocols": reports})
        return
    header = ["protocol", "runs", "deliveries", "largest", "violations", "stuck", "twice", "missing"]
    header += ["raised", "mean B", "max B"]
    rows = [
        [
            r.protocol,
            f"{r.runs:,}",
            f"{r.deliveries:,}",
            f"{r.largest_group}",
            f"{r.violations:,}",
            f"{r.stuck:,}",
            f"{r.duplicates:,}",
            f"{r.missing:,}",
            f"{r.raised:,}",
            f"{r.control_bytes_mean:.1f}",
            f"{r.control_bytes_max:,}",
        ]
        for r in reports
    ]
    show.table(None, header, rows)
    show.out.print("[dim]largest: peers in the largest group; B: control bytes a message on the wire[/]")
    for r in reports:
        if r.failed:
            show.out.print(f"{r.protocol} failed in {r.failed:,} of {r.runs:,} runs", markup=False)
        for failure in r.failures[:3]:
            line = f"  seed {seed}, run {failure.run} (--only {failure.run}): {failure.reason}"
            show.out.print(line, soft_wrap=True, markup=False)


def protocols(those: list[type[Protocol]], as_json: bool) -> None:
    if as_json:
        show.json(
            [
                {
                    "name": p.name,
                    "carries": p.summary,
                    "control": p.control,
                    "links": p.links,
                    "buffering": p.buffering,
                    "membership": p.membership,
                    "layout": list(p.layout.__struct_fields__) if p.layout else [],
                }
                for p in those
            ]
        )
        return
    show.table(None, ["protocol", "a message carries"], [[p.name, p.summary] for p in those], left=2)
    show.out.print()
    rows = [[p.name, _links(p), p.control, p.buffering, p.membership] for p in those]
    header = ["protocol", "links", "control information", "a message waits", "membership"]
    show.table(None, header, rows, left=5)
    show.out.print(
        "[dim]All need links that lose nothing while they are open. docs/protocols has a page each.[/]"
    )


def _links(protocol: type[Protocol]) -> str:
    order = "FIFO" if protocol.links.fifo else "any order"
    return f"{order}, bounded" if protocol.links.bounded_delays else order


def explanation(told: Explanation, as_json: bool) -> None:
    if as_json:
        show.json(told)
        return
    from antecede.units import show as human

    causes = ", ".join(told.causes) or "nothing"
    show.out.print(
        f"{told.message}, sent at {human(told.sent)}, depends immediately on {causes}", markup=False
    )
    rows = [
        [
            each.process,
            "never" if each.delivered is None else human(each.delivered - told.sent),
            human(each.held_ns) if each.held_ns else "",
            each.held_for or "",
        ]
        for each in told.deliveries
    ]
    show.table(None, ["process", "delivered after", "held", "for"], rows)
