"""Reproduce the five papers: their experiments as one sweep on Spark, scored against what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.papers import contest, paper_000, paper_001, paper_002, paper_003, paper_004
from antecede.papers.paper import FinishedRun, Paper, Runs, Scale
from antecede.papers.scoreboard_page import PaperResult, Reproduction, report_page
from antecede.sim.scenario import Scenario
from antecede.sweep.on_spark import Sweep
from antecede.sweep.page import lead
from antecede.sweep.results import write_results
from antecede.sweep.run import REPORT, Progress, SweepResult, run_study
from antecede.trace.writer import write_whole

PAPERS: dict[str, Paper] = {
    each.STUDY.name: each.STUDY for each in (paper_000, paper_001, paper_002, paper_003, paper_004)
}
BOARD = "scoreboard.json"
_SMALL = 500_000
"""Deliveries in a run. Of larger runs only those with the first seed leave a trace and are audited."""


def reproduce(
    folder: Path,
    names: Sequence[str],
    scale: Scale,
    master: str | None = None,
    finished_only: bool = False,
    progress: Progress = lambda *_: None,
) -> tuple[Reproduction, SweepResult]:
    """Run, audit, score and draw. Finished runs are not repeated.

    With `finished_only` nothing is run, and the runs in `folder` are scored.
    """
    unknown = [name for name in names if name not in PAPERS]
    if unknown:
        raise InputError(f"no paper '{unknown[0]}'; there are {', '.join(PAPERS)}")
    papers = [PAPERS[name] for name in names or PAPERS]
    grids = {paper.name: (paper.grid(scale), paper.open_grid(scale)) for paper in papers}
    contest_grid = contest.grid(scale) if not names else []
    scenarios = [setting for pair in grids.values() for grid in pair for setting in grid] + contest_grid
    sweep = Sweep(folder, scenarios)
    if finished_only:
        outcome = SweepResult(write_results(sweep), {}, 0)
    else:
        unique = list(sweep.scenarios.values())
        outcome = run_study(folder, unique, master=master, traced=_is_traced, progress=progress)
    finished = {key: FinishedRun(run.scenario, run.metrics) for key, run, _ in sweep.runs()}

    def runs(grid: Sequence[Scenario]) -> Runs:
        keys = [setting.key() for setting in grid]
        return Runs([finished[key] for key in keys if key in finished])

    results = [PaperResult.score(paper, *(runs(grid) for grid in grids[paper.name])) for paper in papers]
    compared = contest.table(runs(contest_grid)) if contest_grid else []
    rows = [row for result in results for row in result.rows]
    reproduction = Reproduction(rows, compared, lead(outcome.summary, len(outcome.failed)))
    write_whole(folder / BOARD, msgspec.json.encode(reproduction))
    write_whole(folder / REPORT, report_page(results, reproduction).encode())
    return reproduction, outcome


def _is_traced(setting: Scenario) -> bool:
    return setting.seed == 1 or setting.expected_messages() * setting.peers <= _SMALL
