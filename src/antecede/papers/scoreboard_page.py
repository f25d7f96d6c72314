"""How a reproduction is presented: the scoreboard as Markdown and table cells, the report as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from antecede import __version__
from antecede.papers.paper import Figure, Paper, Runs
from antecede.papers.scoreboard import ScoreRow
from antecede.report.charts import Series, line_chart
from antecede.report.page import Section, figure, page, table

TITLE = "Five papers on causal order, reproduced"
VERDICTS = ("matches", "same shape", "differs", "pending")


class Reproduction(msgspec.Struct, frozen=True):
    """What a reproduction reproduction."""

    scoreboard: list[ScoreRow]
    contest: list[dict[str, str]]
    audited: str
    """How much was audited, and what was reproduction, in words."""


@dataclass(frozen=True)
class PaperResult:
    """One paper's runs, those of its open question, and the rows scored from both."""

    paper: Paper
    runs: Runs
    open_runs: Runs
    rows: list[ScoreRow]

    @classmethod
    def score(cls, paper: Paper, runs: Runs, open_runs: Runs) -> PaperResult:
        return cls(paper, runs, open_runs, [*paper.score(runs), *paper.open_score(open_runs)])


def report_page(results: Sequence[PaperResult], reproduction: Reproduction) -> str:
    """The whole report as HTML."""
    sections = [section for result in results for section in _sections(result)]
    every = [_overview(reproduction.scoreboard), *sections, *_contest(reproduction.contest)]
    return page(TITLE, reproduction.audited, every, f"Antecede {__version__}")


def tally(rows: Sequence[ScoreRow]) -> str:
    """How many rows have which verdict, as a sentence."""
    counts = [f"{sum(row.verdict == verdict for row in rows):,} {verdict}" for verdict in VERDICTS]
    return f"{len(rows):,} numbers and claims: {', '.join(counts)}."


def cells(row: ScoreRow) -> list[str]:
    """The cells of a row, as text."""
    if isinstance(row.measured, str):  # the evidence for a claim is too long for its column
        ours = "holds" if row.verdict == "same shape" else "does not"
        note = f"{row.measured}. {row.why}".removesuffix(". ")
    else:
        ours, note = ("–", "") if row.measured is None else (_shown(row.measured), row.why)
    if row.low is not None and row.high is not None and row.high > row.low:
        ours += f" ± {_shown((row.high - row.low) / 2)}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [row.quantity, _shown(row.published), ours, f"{row.runs}", ratio, row.verdict, note]


HEADER = ["quantity", "published", "ours", "runs", "ratio", "verdict", "why"]


def _shown(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown(reproduction: Reproduction, machine: str) -> str:
    """The scoreboard as Markdown."""
    lines = ["# Scoreboard", "", f"{tally(reproduction.scoreboard)} {reproduction.audited}", "", machine, ""]
    lines += [
        "*Matches*: the published value lies in the 95 % interval of ours, or within 10 %. *Same shape*: a",
        "claim that holds, or the same sign and a ratio between a half and two. *Pending*: not run at that",
        "size yet.",
    ]
    for name in dict.fromkeys(row.paper for row in reproduction.scoreboard):
        lines += ["", f"## Paper {name}", "", "| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
        mine = (row for row in reproduction.scoreboard if row.paper == name)
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in mine]
    if reproduction.contest:
        header = list(dict.fromkeys(key for row in reproduction.contest for key in row))
        lines += ["", "## Who is cheapest where", ""]
        lines += ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        for row in reproduction.contest:
            lines.append("| " + " | ".join(row.get(key, "") for key in header) + " |")
    return "\n".join(lines) + "\n"


def _overview(rows: Sequence[ScoreRow]) -> Section:
    papers = list(dict.fromkeys(row.paper for row in rows))
    counted = [
        [f"paper {name}", *(str(sum(r.paper == name and r.verdict == v for r in rows)) for v in VERDICTS)]
        for name in papers
    ]
    return Section("The scoreboard in short", tally(rows), table(["", *VERDICTS], counted))


def _sections(result: PaperResult) -> list[Section]:
    paper, rows = result.paper, result.rows
    text = "Lines are our measurements; rings are printed values, where our sizes come near the paper's."
    shown = [cells(row) for row in rows]
    readings = [[reading.question, reading.reading, reading.why] for reading in paper.readings]
    sections = [
        Section(f"Paper {paper.name}: {paper.title}", text, _panels(paper.figures(result.runs))),
        Section(
            f"Paper {paper.name}: every number and claim", tally(rows),
            table(HEADER[:6], [row[:6] for row in shown], (0,), [row[6] for row in shown]),
        ),
        Section(
            f"Paper {paper.name}: how it was read",
            "Where the paper leaves something open, this is the reading taken here.",
            table(["what", "reading", "why"], readings, words=(0, 1, 2)),
        ),
    ]  # fmt: skip
    if paper.open_question:
        title = f"Paper {paper.name}: what it left open"
        sections.append(Section(title, paper.open_question, _panels(paper.open_figures(result.open_runs))))
    return sections


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
    sections = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        body = [list(row.values())[1:] for row in rows if row["measure"] == measure]
        text = "On every network that a protocol can run on; a star marks the cheapest, within 1 %. " + (
            "From send to delivery." if measure.startswith("delay") else "Per delivery, over all links."
        )
        sections.append(Section(f"Who is cheapest where: {measure}", text, table(list(rows[0])[1:], body)))
    return sections
