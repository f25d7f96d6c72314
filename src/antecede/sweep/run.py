"""From scenarios to a report: simulate, audit, tabulate and draw, skipping what is finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from antecede.audit.diagram import diagram
from antecede.audit.run import audit_and_excerpt
from antecede.errors import InputError
from antecede.sim.scenario import Scenario
from antecede.spark.session import connect
from antecede.sweep.on_spark import Sweep
from antecede.sweep.page import DrawnRun, DrawnViolation, example_events, faults, sweep_page
from antecede.sweep.results import RESULTS, SUMMARY, write_results
from antecede.trace.parquet_files import parquet_file
from antecede.trace.writer import write_whole

REPORT = "report.html"
GRID = "grid.toml"
"""A copy of the grid file."""
_DRAWABLE = 20_000

Progress = Callable[[str, int, int], None]
"""Called with the phase, how many runs are finished in it, and how many there are."""


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep: its summary, errors of failed runs by key, and how many runs were skipped."""

    summary: pa.Table
    failed: dict[str, str]
    skipped: int
    repeated: dict[str, str] = field(default_factory=dict)
    """Why runs that seemed finished were not skipped, by key."""

    @property
    def fine(self) -> bool:
        """Whether every run finished with no message stuck, and no audit found a fault."""
        stuck = sum(self.summary.column("stuck").to_pylist())
        return not (self.failed or stuck or faults(self.summary.to_pylist()))


def run_study(
    folder: Path,
    scenarios: Sequence[Scenario],
    *,
    master: str | None = None,
    traced: Callable[[Scenario], bool] = lambda _: True,
    audit_untraced: bool = False,
    progress: Progress = lambda *_: None,
) -> SweepResult:
    """Run, audit and tabulate what is not finished yet; `Sweep` explains `traced` and `audit_untraced`.

    Spark starts only if there is something to do.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a sweep needs a folder")
    folder.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(folder, scenarios, traced=traced, audit_untraced=audit_untraced)
    total = len(sweep.scenarios)
    progress("checking", 0, 0)
    repeated = sweep.discard_damaged()
    todo = len(sweep.unfinished())
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        if todo or sweep.unjudged():
            progress("starting Spark", 0, 0)
            spark: SparkSession = stack.enter_context(connect(master))
            done = total - todo
            progress("simulating", done, total)
            failed = sweep.simulate(spark, lambda now: progress("simulating", done + now, total))
            unjudged = len(sweep.unjudged())
            if unjudged:
                progress("auditing", total - unjudged, total)
                failed |= sweep.judge(spark, lambda now: progress("auditing", total - unjudged + now, total))
    if not any(True for _ in sweep.runs()) and failed:
        key, error = next(iter(failed.items()))
        raise InputError(f"all runs failed; the first, {key}: {error}")
    return SweepResult(write_results(sweep), failed, total - todo, repeated)


def write_report(
    folder: Path, title: str, example: str | None = None, failed: Mapping[str, str] | None = None
) -> Path:
    """Write the report of the sweep in `folder` and return its path.

    `example` is the run to draw, by default a small one. `failed` has the errors of failed runs by key; by
    default they are read from the folder.
    """
    if not (folder / SUMMARY).exists():
        raise InputError(f"{folder} holds no results of a sweep; run one with: antecede sweep")
    summary = _read_table(folder / SUMMARY)
    runs = {row["run"]: row for row in _read_table(folder / RESULTS).to_pylist()}
    drawn = example or _small_run(folder, runs, "held")
    shown = DrawnRun(_name(runs[drawn]), example_events(folder / "runs" / drawn)) if drawn else None
    grid = folder / GRID
    html = sweep_page(
        summary,
        shown,
        title,
        _errors(folder) if failed is None else failed,
        _first_violation(folder, runs),
        grid.read_text(encoding="utf-8") if grid.exists() else "",
    )
    write_whole(folder / REPORT, html.encode())
    return folder / REPORT


def _errors(folder: Path) -> dict[str, str]:
    return {file.parent.name: file.read_text() for file in sorted(folder.glob("runs/*/error.txt"))}


def _read_table(file: Path) -> pa.Table:
    try:
        return parquet_file(file).read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged or missing; run the sweep again to rebuild it") from error


def _name(row: dict[str, Any]) -> str:
    return f"{row['protocol']} with {row['peers']:,} peers and seed {row['seed']} (runs/{row['run']})"


def _first_violation(folder: Path, runs: Mapping[str, dict[str, Any]]) -> DrawnViolation | None:
    """The first violation in a small run that has one; None if none has, or all are too large."""
    key = _small_run(folder, runs, "causal_violations")
    if key is None:
        return None
    result, excerpts = audit_and_excerpt(
        str(folder / "runs" / key), "local", 1, None, lambda findings: range(min(1, len(findings)))
    )
    if not excerpts:
        return None
    text = result.findings[0].text
    return DrawnViolation(_name(runs[key]), text, *diagram(excerpts[0], text))


def _small_run(folder: Path, runs: Mapping[str, dict[str, Any]], measure: str) -> str | None:
    """The traced run with the fewest deliveries among those where a measure is positive; None if all are too
    large."""
    small = [
        row
        for row in runs.values()
        if (row.get(measure) or 0) > 0 and row["deliveries"] <= _DRAWABLE
        and list((folder / "runs" / row["run"]).glob("*.parquet"))
    ]  # fmt: skip
    return min(small, key=lambda row: (row["deliveries"], row["run"]))["run"] if small else None
