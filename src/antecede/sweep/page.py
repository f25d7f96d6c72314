"""The report of a sweep: its table, control bytes by group size, and a space-time diagram of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from antecede import __version__
from antecede.causality import Verdict
from antecede.report.charts import Series, line_chart
from antecede.report.page import Section, code, figure, page, table
from antecede.report.spacetime import excerpt, spacetime
from antecede.trace.explain import RunEvents
from antecede.trace.reader import read_trace


def columns(summary: pa.Table) -> list[str]:
    """The header of the table, for a page or a terminal."""
    measures = ["runs", "deliveries", "wire B", "paper B", "packets", "latency", "held", "wait", "violations"]
    return ["protocol", "peers", *settings(summary), *measures]


def cells(summary: pa.Table) -> list[list[str]]:
    """The rows of the table, as text."""
    return [
        [
            row["protocol"],
            f"{row['peers']:,}",
            *(str(row[name]) for name in settings(summary)),
            *_measures(row),
        ]
        for row in summary.to_pylist()
    ]


def _measures(row: dict[str, Any]) -> list[str]:
    outcome = f"{faults([row]):,}" if row["audited_runs"] else "not audited"
    if 0 < row["audited_runs"] < row["runs"]:
        outcome += f" in {row['audited_runs']:,}"
    return [
        f"{row['runs']:,}",
        f"{row['deliveries']:,}",
        f"{row['control_bytes_mean']:.1f}",
        f"{row['paper_bytes_mean']:.1f}",
        f"{row['packets'] / row['messages']:.1f}" if row.get("packets") and row["messages"] else "–",
        f"{row['latency_mean_ns'] / 1e6:.1f} ms",
        f"{row['held'] / row['deliveries']:.1%}" if row["deliveries"] else "–",
        f"{row['hold_mean_ns'] / 1e6:.0f} ms",
        outcome,
    ]


def settings(summary: pa.Table) -> list[str]:
    """The columns, other than protocol and peers, in which settings differ."""
    names: list[str] = summary.column_names
    return names[2 : names.index("runs")]


def faults(rows: Sequence[dict[str, Any]]) -> int:
    """How many faults the audits counted; tables with deprecated column names are read too."""
    former = {new: old for old, new in Verdict.DEPRECATED.items()}
    return sum(row[name if name in row else former[name]] or 0 for row in rows for name in Verdict.FAULTS)


def lead(summary: pa.Table, failed: int = 0) -> str:
    """The first sentence: how much was audited, and the outcome."""
    rows = summary.to_pylist()
    runs = sum(row["runs"] for row in rows)
    audited = sum(row["audited"] or 0 for row in rows)
    counted = f"{runs:,} run{'' if runs == 1 else 's'}" + (f" ({failed:,} more failed)" if failed else "")
    if not audited:
        return f"{counted}; nothing was audited."
    outcome = f"{faults(rows):,} violations" if faults(rows) else "every one after its causes"
    others = runs - sum(row["audited_runs"] for row in rows)
    untraced = f" {others:,} runs left figures only and were not audited." if others else ""
    return f"{counted}, {audited:,} deliveries audited on Spark: {outcome}.{untraced}"


@dataclass(frozen=True)
class DrawnRun:
    """A run that is drawn: its name, and its events."""

    name: str
    events: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class DrawnViolation:
    """A violation, in words and as a diagram, and the name of its run."""

    run: str
    text: str
    picture: str
    caption: str


def sweep_page(
    summary: pa.Table,
    example: DrawnRun | None,
    title: str,
    failed: Mapping[str, str] | None = None,
    violation: DrawnViolation | None = None,
    grid: str = "",
) -> str:
    """The report as HTML. `example` is the run to draw, `failed` has the errors by run, `grid` is the text of
    the grid file."""
    extra = settings(summary)
    rows = summary.to_pylist()
    charts = (
        figure(
            f"<h3>As encoded</h3>{_chart(rows, extra, 'control_bytes_mean')}",
            "Bytes on our wire other than payload, including the message's identity.",
        ),
        figure(
            f"<h3>As the papers count</h3>{_chart(rows, extra, 'paper_bytes_mean')}",
            "The same messages, counted as the papers count: 4 bytes per clock entry, 8 per dependency.",
        ),
    )
    sections = [
        Section(
            "What causal order costs",
            "Control bytes per message by group size. A vector clock has an entry for every "
            "peer on every message; immediate dependencies name only what nothing else implies. The charts "
            "have different scales.",
            f'<div class="panels">{"".join(charts)}</div>',
        ),
        *([_violation(violation)] if violation else []),
        *([_example(example)] if example else []),
        Section(
            "Every setting",
            "Deliveries and violations are sums over the runs of a setting, the other figures means. Wire B "
            "and paper B: control bytes per message, as encoded and as the papers count. Packets: per "
            "message, one for each destination. Latency: from send to delivery. Held: deliveries that had to "
            "wait for a cause, and how long.",
            table(columns(summary), cells(summary)),
        ),
    ]
    if failed:
        errors = [[run, error] for run, error in failed.items()]
        text = "They are not in the figures above; the same command tries them again."
        sections.append(Section(f"Runs that failed: {len(failed):,}", text, table(["run", "error"], errors)))
    if grid:
        text = "This grid file repeats the sweep, with the same release of Antecede and the same protocols."
        sections.append(Section("The grid", text, code(*grid.splitlines())))
    return page(title, lead(summary, len(failed or ())), sections, f"Antecede {__version__}")


def _chart(rows: Sequence[dict[str, Any]], extra: Sequence[str], measure: str) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row["peers"]):
        name = ", ".join([row["protocol"], *(f"{name} {row[name]}" for name in extra)])
        lines.setdefault(name, []).append((row["peers"], row[measure]))
    series = [Series(name, points) for name, points in lines.items()]
    return line_chart(series, "peers", "bytes per message", f"{measure} by peers, one line for each protocol")


def _violation(drawn: DrawnViolation) -> Section:
    text = f"The first violation in the smallest run that has any, {drawn.run}: {drawn.text}"
    return Section("A violation of causal order", text, figure(drawn.picture, drawn.caption))


def _example(drawn: DrawnRun) -> Section:
    run = drawn.events
    events, waits = excerpt(run, RunEvents(run).waits())
    wait = waits[0] if waits else None
    what = f"{'One small run' if len(events) == len(run) else 'A few messages of one run'}, {drawn.name}"
    text = f"{what}, drawn from its trace. Hover over anything for details."
    if wait and wait.cause:
        text = (
            f"{what}, drawn from its trace: {wait.message} reaches {wait.process} before its "
            f"cause {wait.cause} does, so it is held (thick bar) until {wait.cause} has been "
            "delivered. Hover over anything for details."
        )
    caption = (
        "Ringed dots are sends, solid dots deliveries; arrows end where a packet arrives. Bars are "
        "messages held at a process until a cause arrives; the longest wait is highlighted."
    )
    return Section("A message waits for its cause", text, figure(spacetime(events, waits, text), caption))


def example_events(folder: Path) -> list[dict[str, Any]]:
    """The events of a small trace."""
    rows: list[dict[str, Any]] = read_trace(folder).to_pylist()
    return rows
