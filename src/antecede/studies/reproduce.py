"""The five papers again: their experiments as one sweep on Spark, beside what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from antecede import __version__
from antecede.errors import InputError
from antecede.report.charts import Series, line_chart
from antecede.report.page import Section, figure, page, table
from antecede.report.sweep import lead
from antecede.spark.results import write_results
from antecede.spark.sweep import Sweep
from antecede.studies.papers import contest, p000, p001, p002, p003, p004
from antecede.studies.papers.board import Done, Figure, Paper, Row, Runs, Scale
from antecede.studies.pipeline import REPORT, Outcome, Progress, run_study
from antecede.trace.writer import write_whole

PAPERS: dict[str, Paper] = {each.STUDY.name: each.STUDY for each in (p000, p001, p002, p003, p004)}
TITLE = "Five papers on causal order, reproduced"
BOARD = "scoreboard.json"
VERDICTS = ("matches", "same shape", "differs", "pending")


class Reproduction(msgspec.Struct, frozen=True):
    """What a reproduction found."""

    scoreboard: list[Row]
    contest: list[dict[str, str]]
    audited: str
    """How much was audited, and what was found, in words."""


def reproduce(
    folder: Path,
    names: Sequence[str],
    scale: Scale,
    master: str | None = None,
    finished_only: bool = False,
    progress: Progress = lambda *_: None,
) -> tuple[Reproduction, Outcome]:
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
        outcome = Outcome(write_results(sweep), {}, 0)
    else:
        outcome = run_study(folder, list(every.values()), master=master, progress=progress)
    finished = {key: Done(run.scenario, run.metrics) for key, run, _ in sweep.runs()}

    def runs(scenarios: Sequence[object]) -> Runs:
        keys = [made.key() for made in scenarios]  # type: ignore[attr-defined]
        return Runs([finished[key] for key in keys if key in finished])

    rows: list[Row] = []
    sections: list[Section] = []
    for paper in papers:
        main, beyond = (runs(part) for part in grids[paper.name])
        scored = [*paper.score(main), *paper.open_score(beyond)]
        rows += scored
        sections += _sections(paper, main, beyond, scored)
    compared = contest.table(runs(contested)) if contested else []
    found = Reproduction(rows, compared, lead(outcome.summary, len(outcome.failed)))
    write_whole(folder / BOARD, msgspec.json.encode(found))
    html = page(
        TITLE, found.audited, [_overview(rows), *sections, *_contest(compared)], f"Antecede {__version__}"
    )
    write_whole(folder / REPORT, html.encode())
    return found, outcome


def tally(rows: Sequence[Row]) -> str:
    """How many rows came out how, in words."""
    counts = [f"{sum(row.verdict == verdict for row in rows):,} {verdict}" for verdict in VERDICTS]
    return f"{len(rows):,} numbers and claims: {', '.join(counts)}."


def cells(row: Row) -> list[str]:
    """A row of the scoreboard as people read it."""
    if isinstance(row.measured, str):  # what a claim rests on is too long for its column
        ours = "holds" if row.verdict == "same shape" else "does not"
        note = f"{row.measured}. {row.why}".removesuffix(". ")
    else:
        ours, note = "–" if row.measured is None else _shown(row.measured), row.why
    if row.low is not None and row.high is not None and row.high > row.low:
        ours += f" ± {_shown((row.high - row.low) / 2)}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [row.quantity, _shown(row.published), ours, f"{row.runs}", ratio, row.verdict, note]


HEADER = ["quantity", "published", "ours", "runs", "ratio", "verdict", "why"]


def _shown(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown(found: Reproduction, machine: str) -> str:
    """The scoreboard as a page of the documentation."""
    lines = ["# Scoreboard", "", f"{tally(found.scoreboard)} {found.audited}", "", machine, ""]
    lines += [
        "*Matches*: the published value lies in the 95 % interval of ours, or within 10 %. *Same shape*: a",
        "claim that holds, or the same sign and a ratio between a half and two. *Pending*: not run at that",
        "size yet.",
    ]
    for name in dict.fromkeys(row.paper for row in found.scoreboard):
        lines += ["", f"## Paper {name}", "", "| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
        mine = (row for row in found.scoreboard if row.paper == name)
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in mine]
    if found.contest:
        header = list(dict.fromkeys(key for row in found.contest for key in row))
        lines += [
            "",
            "## Who is cheapest where",
            "",
            "| " + " | ".join(header) + " |",
            "|---" * len(header) + "|",
        ]
        lines += ["| " + " | ".join(row.get(key, "") for key in header) + " |" for row in found.contest]
    return "\n".join(lines) + "\n"


def _overview(rows: Sequence[Row]) -> Section:
    papers = list(dict.fromkeys(row.paper for row in rows))
    counted = [
        [f"paper {name}", *(str(sum(r.paper == name and r.verdict == v for r in rows)) for v in VERDICTS)]
        for name in papers
    ]
    return Section("The scoreboard in short", tally(rows), table(["", *VERDICTS], counted))


def _sections(paper: Paper, main: Runs, beyond: Runs, rows: Sequence[Row]) -> list[Section]:
    text = "Lines are ours; rings are what the paper prints, where our sizes come near its own."
    shown = [cells(row) for row in rows]
    readings = [[reading.what, reading.taken, reading.why] for reading in paper.readings]
    made = [
        Section(f"Paper {paper.name}: {paper.title}", text, _panels(paper.figures(main))),
        Section(
            f"Paper {paper.name}: every number and claim", tally(rows),
            table(HEADER[:6], [row[:6] for row in shown], (0,), [row[6] for row in shown]),
        ),
        Section(
            f"Paper {paper.name}: how it was read",
            "Where the paper leaves something open, this is what was taken.",
            table(["what", "taken", "why"], readings, words=(0, 1, 2)),
        ),
    ]  # fmt: skip
    if paper.open_question:
        title = f"Paper {paper.name}: what it left open"
        made.append(Section(title, paper.open_question, _panels(paper.open_figures(beyond))))
    return made


def _panels(figures: Sequence[Figure]) -> str:
    return (
        f'<div class="panels">{"".join(_picture(each) for each in figures if any(each.lines.values()))}</div>'
    )


def _picture(drawn: Figure) -> str:
    series = [Series(name, points) for name, points in drawn.lines.items()]
    furthest = max(x for points in drawn.lines.values() for x, _ in points)
    near = {
        name: [(x, y) for x, y in points if x <= 2 * furthest] for name, points in drawn.published.items()
    }
    rings = [Series(name, points) for name, points in near.items() if points]
    title = f"Figure {drawn.number}: {drawn.title}"
    chart = line_chart(series, drawn.x_label, drawn.y_label, title, rings)
    return figure(chart, f"{title}. {drawn.note}".strip())


def _contest(rows: Sequence[dict[str, str]]) -> list[Section]:
    made = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        those = [list(row.values())[1:] for row in rows if row["measure"] == measure]
        text = "On every network that a protocol can run on; the cheapest have a star, within 1 %. " + (
            "From send to delivery." if measure.startswith("delay") else "For each delivery, over all links."
        )
        made.append(Section(f"Who is cheapest where: {measure}", text, table(list(rows[0])[1:], those)))
    return made
