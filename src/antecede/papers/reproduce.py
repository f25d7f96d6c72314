"""Reproduce the five papers: their experiments as one sweep on Spark, scored against what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.papers import contest, paper_000, paper_001, paper_002, paper_003, paper_004
from antecede.papers.author_page import author_page, file_name
from antecede.papers.index_page import index_page
from antecede.papers.paper import FinishedRun, Paper, Runs, Scale
from antecede.papers.readings import ChosenReading, choose
from antecede.papers.scoreboard_page import PaperResult, Reproduction
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
_SMALL = 20_000
"""The most deliveries of a run that leaves a trace to be drawn. All other runs are audited while they run:
writing their traces would cost more than simulating them."""


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
    study = _Study(folder, master, finished_only, progress)
    choices = _choose(study, papers, scale)
    grids = {
        paper.name: (
            paper.grid(scale, choices[paper.name].joint, paper.seeds(scale).judging),
            paper.open_grid(scale),
        )
        for paper in papers
    }
    contest_grid = contest.grid(scale) if not names else []
    outcome = study.run(
        [setting for pair in grids.values() for grid in pair for setting in grid] + contest_grid
    )
    results = [
        PaperResult.score(paper, choices[paper.name], *(study.runs(grid) for grid in grids[paper.name]))
        for paper in papers
    ]
    compared = contest.table(study.runs(contest_grid)) if contest_grid else []
    rows = [row for result in results for row in result.rows]
    audited = f"{lead(outcome.summary, len(outcome.failed))} {study.took}"
    reproduction = Reproduction(rows, compared, choices, audited)
    write_whole(folder / BOARD, msgspec.json.encode(reproduction))
    write_pages(folder, results, reproduction, scale)
    return reproduction, outcome


def write_pages(
    folder: Path, results: Sequence[PaperResult], reproduction: Reproduction, scale: Scale
) -> None:
    """The index, and a page for each paper's authors beside it."""
    names = [result.paper.name for result in results]
    for result in results:
        html = author_page(result, names, reproduction.audited, REPORT, scale)
        write_whole(folder / file_name(result.paper.name), html.encode())
    write_whole(folder / REPORT, index_page(results, reproduction, scale).encode())


class _Study:
    """The runs of a reproduction, made in several steps in one folder."""

    def __init__(self, folder: Path, master: str | None, finished_only: bool, progress: Progress) -> None:
        self._folder, self._master, self._finished_only = folder, master, finished_only
        self._progress = progress
        self._asked: dict[str, Scenario] = {}
        self._finished: dict[str, FinishedRun] = {}
        self.took = ""
        """How long the runs took, in words."""

    def run(self, grid: Sequence[Scenario]) -> SweepResult:
        """Execute the unfinished runs; the result covers all runs requested so far.

        All runs with one seed precede those with the next, so that an interrupted study can be scored.
        """
        self._asked |= {setting.key(): setting for setting in sorted(grid, key=lambda each: each.seed)}
        unique = list(self._asked.values())
        sweep = Sweep(self._folder, unique)
        if self._finished_only:
            outcome = SweepResult(write_results(sweep), {}, 0)
        else:
            outcome = run_study(
                self._folder, unique, master=self._master, traced=_is_traced, audit_untraced=True,
                progress=self._progress,
            )  # fmt: skip
        finished = [(key, run) for key, run, _ in sweep.runs()]
        self._finished = {key: FinishedRun(run.scenario, run.metrics) for key, run in finished}
        minutes = sum(run.cpu_seconds for _, run in finished) / 60
        self.took = (
            f"The runs took {minutes:,.1f} minutes of CPU time. That includes the audits of runs with more "
            f"than {_SMALL:,} deliveries, which were audited as they ran; the others were audited later."
        )
        return outcome

    def runs(self, grid: Sequence[Scenario]) -> Runs:
        keys = [setting.key() for setting in grid]
        return Runs([self._finished[key] for key in keys if key in self._finished])


def _choose(study: _Study, papers: Sequence[Paper], scale: Scale) -> dict[str, ChosenReading]:
    """For each paper the joint reading with which most of its rows agree, on the seeds for choosing."""
    grids = {
        paper.name: [
            (joint, paper.grid(scale, joint, paper.seeds(scale).choosing)) for joint in paper.joints(scale)
        ]
        for paper in papers
        if len(paper.joints(scale)) > 1
    }
    if grids:
        study.run([setting for pairs in grids.values() for _, grid in pairs for setting in grid])
    choices = {}
    for paper in papers:
        seeds = paper.seeds(scale)
        if paper.name not in grids:
            choices[paper.name] = ChosenReading(paper.plainest, [], seeds)
            continue
        scored = [(joint, paper.score(study.runs(grid), joint)) for joint, grid in grids[paper.name]]
        choices[paper.name] = choose(scored, seeds)
    return choices


def _is_traced(setting: Scenario) -> bool:
    return setting.expected_messages() * setting.peers <= _SMALL
