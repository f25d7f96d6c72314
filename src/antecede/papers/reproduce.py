"""The five papers again: their experiments as one sweep on Spark, beside what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.papers import contest, p000, p001, p002, p003, p004
from antecede.papers.board import Done, Paper, Runs, Scale
from antecede.papers.scoreboard import Part, Reproduction, document
from antecede.sim.scenario import Scenario
from antecede.sweep.on_spark import Sweep
from antecede.sweep.page import lead
from antecede.sweep.results import write_results
from antecede.sweep.run import REPORT, Progress, SweepResult, run_study
from antecede.trace.writer import write_whole

PAPERS: dict[str, Paper] = {each.STUDY.name: each.STUDY for each in (p000, p001, p002, p003, p004)}
BOARD = "scoreboard.json"
_SMALL = 500_000
"""Deliveries of a run: beyond that only the first seed of each point leaves a trace, which is audited."""


def reproduce(
    folder: Path,
    names: Sequence[str],
    scale: Scale,
    master: str | None = None,
    finished_only: bool = False,
    progress: Progress = lambda *_: None,
) -> tuple[Reproduction, SweepResult]:
    """Run, audit, score and draw; whatever is done already is not done again.

    With `finished_only` nothing is run: what there is, is scored.
    """
    unknown = [name for name in names if name not in PAPERS]
    if unknown:
        raise InputError(f"no paper '{unknown[0]}'; there are {', '.join(PAPERS)}")
    papers = [PAPERS[name] for name in names or PAPERS]
    grids = {paper.name: (paper.grid(scale), paper.open_grid(scale)) for paper in papers}
    contested = contest.grid(scale) if not names else []
    every = {made.key(): made for pair in grids.values() for part in pair for made in part}
    every |= {made.key(): made for made in contested}
    sweep = Sweep(folder, list(every.values()))
    if finished_only:
        outcome = SweepResult(write_results(sweep), {}, 0)
    else:
        outcome = run_study(folder, list(every.values()), master=master, traced=_traced, progress=progress)
    finished = {key: Done(run.scenario, run.metrics) for key, run, _ in sweep.runs()}

    def runs(scenarios: Sequence[Scenario]) -> Runs:
        keys = [made.key() for made in scenarios]
        return Runs([finished[key] for key in keys if key in finished])

    parts = [Part.of(paper, *(runs(part) for part in grids[paper.name])) for paper in papers]
    compared = contest.table(runs(contested)) if contested else []
    rows = [row for part in parts for row in part.rows]
    found = Reproduction(rows, compared, lead(outcome.summary, len(outcome.failed)))
    write_whole(folder / BOARD, msgspec.json.encode(found))
    write_whole(folder / REPORT, document(parts, found).encode())
    return found, outcome


def _traced(made: Scenario) -> bool:
    return made.seed == 1 or made.expected_messages() * made.peers <= _SMALL
