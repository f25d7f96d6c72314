"""How a reproduction is presented: the scoreboard as Markdown and table cells, the report as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec

from antecede import __version__
from antecede.papers.paper import Figure, Paper, Runs
from antecede.papers.readings import ChosenReading, in_words
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdicts import AGREES, Verdict
from antecede.report.charts import Series, line_chart
from antecede.report.page import Section, figure, page, table

TITLE = "Five papers on causal order, reproduced"
VERDICTS = get_args(Verdict)
RULES = (
    "*Matches*: the 95 % interval of ours lies within ±10 % of the published value, or contains it and is "
    "narrower than 20 % of it. *Close*: it lies within ±25 %. *Differs*: it lies wholly outside. "
    "*Undecided*: it reaches across that border, or there is one run only; more runs would tell. Claims "
    "*hold* or *fail*. *Pending*: not run at that size."
)


class Reproduction(msgspec.Struct, frozen=True):
    """What a reproduction found."""

    scoreboard: list[ScoreRow]
    contest: list[dict[str, str]]
    choices: dict[str, ChosenReading]
    """By paper, the joint reading that it is judged by."""
    audited: str
    """How much was audited, and what was not, in words."""


@dataclass(frozen=True)
class PaperResult:
    """One paper's runs, those of its open question, and the rows scored from both."""

    paper: Paper
    choice: ChosenReading
    runs: Runs
    open_runs: Runs
    rows: list[ScoreRow]

    @classmethod
    def score(cls, paper: Paper, choice: ChosenReading, runs: Runs, open_runs: Runs) -> PaperResult:
        rows = [*paper.score(runs, choice.joint), *paper.open_score(open_runs)]
        return cls(paper, choice, runs, open_runs, rows)


def report_page(results: Sequence[PaperResult], reproduction: Reproduction) -> str:
    """The whole report as HTML."""
    sections = [section for result in results for section in _sections(result)]
    every = [_overview(reproduction.scoreboard), *sections, *_contest(reproduction.contest)]
    return page(TITLE, reproduction.audited, every, f"Antecede {__version__}")


def tally(rows: Sequence[ScoreRow]) -> str:
    """How many of the papers' rows have which verdict, as a sentence; results of our own in another."""
    papers = [row for row in rows if not row.own]
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in count_verdicts(papers).items())
    agreed = sum(row.verdict in AGREES for row in papers)
    share = f" ({100 * agreed / len(papers):.0f} % match, are close or hold)" if papers else ""
    own = [row for row in rows if row.own]
    held = sum(row.verdict in AGREES for row in own)
    ours = f" Results of our own: {held} of {len(own)} hold." if own else ""
    return f"{len(papers):,} numbers and claims of the papers: {counts}{share}.{ours}"


def count_verdicts(rows: Sequence[ScoreRow]) -> dict[str, int]:
    return {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}


def cells(row: ScoreRow) -> list[str]:
    """The cells of a row, as text."""
    if isinstance(row.measured, str):  # the evidence for a claim is too long for its column
        ours = {"holds": "holds", "fails": "does not"}.get(row.verdict, "")
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
    lines.append(RULES)
    for name in dict.fromkeys(row.paper for row in reproduction.scoreboard):
        mine = [row for row in reproduction.scoreboard if row.paper == name]
        choice = reproduction.choices[name]
        lines += ["", f"## Paper {name}", "", f"{tally(mine)} {how_chosen(choice)}", ""]
        lines += _markdown_table([row for row in mine if not row.own])
        if choice.scored:
            lines += ["", "| " + " | ".join(_RANKING) + " |", "|---" * len(_RANKING) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in _ranking(choice)]
        if any(row.own for row in mine):
            lines += ["", f"### Beyond paper {name}: results of our own", ""]
            lines += _markdown_table([row for row in mine if row.own])
    if reproduction.contest:
        header = list(dict.fromkeys(key for row in reproduction.contest for key in row))
        lines += ["", "## Who is cheapest where", ""]
        lines += ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        for row in reproduction.contest:
            lines.append("| " + " | ".join(row.get(key, "") for key in header) + " |")
    return "\n".join(lines) + "\n"


def _markdown_table(rows: Sequence[ScoreRow]) -> list[str]:
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in rows]
    return ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|", *body]


def _overview(rows: Sequence[ScoreRow]) -> Section:
    counted = []
    for name in dict.fromkeys(row.paper for row in rows):
        mine = count_verdicts([row for row in rows if row.paper == name and not row.own])
        counted.append([f"paper {name}", *map(str, mine.values())])
    text = f"{tally(rows)} {RULES.replace('*', '')}"
    return Section("The scoreboard in short", text, table(["", *VERDICTS], counted))


def _sections(result: PaperResult) -> list[Section]:
    paper, rows = result.paper, result.rows
    text = "Lines are our measurements; rings are printed values, where our sizes come near the paper's."
    drawn = paper.figures(result.runs, result.choice.joint)
    sections = [
        Section(f"Paper {paper.name}: {paper.title}", text, _panels(drawn)),
        Section(
            f"Paper {paper.name}: every number and claim", tally(rows),
            _rows([row for row in rows if not row.own]),
        ),
        _how_it_was_read(paper, result.choice),
    ]  # fmt: skip
    if paper.open_question:
        title = f"Paper {paper.name}: what it left open"
        body = _panels(paper.open_figures(result.open_runs)) + _rows([row for row in rows if row.own])
        sections.append(Section(title, paper.open_question, body))
    return sections


def how_chosen(choice: ChosenReading) -> str:
    """Which joint reading a paper is judged by, and on which seeds it was chosen, as sentences."""
    judged = f"verdicts are from seeds {_listed(choice.seeds.judging)}"
    if not choice.scored:
        return f"Judged by the plainest reading ({in_words(choice.joint) or 'there is one only'}); {judged}."
    best, total = choice.scored[0][1], len(choice.scored)
    return (
        f"Judged by {in_words(choice.joint)}: the best of {total} joint readings on seeds "
        f"{_listed(choice.seeds.choosing)} ({best.close} of {best.rows} rows within 25 % or holding, "
        f"{best.matching} within 10 %); {judged}."
    )


def _listed(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else " and ".join(map(str, seeds))


def _ranking(choice: ChosenReading) -> list[list[str]]:
    return [
        [in_words(joint), f"{score.close} of {score.rows}", f"{score.matching}"]
        for joint, score in choice.scored
    ]


_RANKING = ["joint reading", "within 25 % or holding", "within 10 %"]


def _how_it_was_read(paper: Paper, choice: ChosenReading) -> Section:
    body = []
    for reading in paper.readings:
        for each in reading.alternatives:
            chosen = len(reading.alternatives) == 1 or choice.joint.get(reading.name) == each.name
            body.append([reading.question, each.reading, each.why, "yes" if chosen else ""])
    shown = table(["what", "reading", "why", "judged by"], body, words=(0, 1, 2))
    if choice.scored:
        shown += table(_RANKING, _ranking(choice), words=(0,))
    text = f"Where the paper leaves something open, these are the readings. {how_chosen(choice)}"
    return Section(f"Paper {paper.name}: how it was read", text, shown)


def _rows(rows: Sequence[ScoreRow]) -> str:
    shown = [cells(row) for row in rows]
    return table(HEADER[:6], [row[:6] for row in shown], (0,), [row[6] for row in shown]) if rows else ""


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
