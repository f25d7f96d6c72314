"""How a reproduction is shown: the scoreboard as text, and the report as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from antecede import __version__
from antecede.papers.board import Figure, Paper, Row, Runs
from antecede.report.charts import Series, line_chart
from antecede.report.page import Section, figure, page, table

TITLE = "Five papers on causal order, reproduced"
VERDICTS = ("matches", "same shape", "differs", "pending")


class Reproduction(msgspec.Struct, frozen=True):
    """What a reproduction found."""

    scoreboard: list[Row]
    contest: list[dict[str, str]]
    audited: str
    """How much was audited, and what was found, in words."""


@dataclass(frozen=True)
class Part:
    """One paper's runs and the rows that they make."""

    paper: Paper
    main: Runs
    beyond: Runs
    rows: list[Row]

    @classmethod
    def of(cls, paper: Paper, main: Runs, beyond: Runs) -> Part:
        return cls(paper, main, beyond, [*paper.score(main), *paper.open_score(beyond)])


def document(parts: Sequence[Part], found: Reproduction) -> str:
    """The whole report."""
    sections = [section for part in parts for section in _sections(part)]
    every = [_overview(found.scoreboard), *sections, *_contest(found.contest)]
    return page(TITLE, found.audited, every, f"Antecede {__version__}")


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


def _sections(part: Part) -> list[Section]:
    paper, rows = part.paper, part.rows
    text = "Lines are ours; rings are what the paper prints, where our sizes come near its own."
    shown = [cells(row) for row in rows]
    readings = [[reading.what, reading.taken, reading.why] for reading in paper.readings]
    made = [
        Section(f"Paper {paper.name}: {paper.title}", text, _panels(paper.figures(part.main))),
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
        made.append(Section(title, paper.open_question, _panels(paper.open_figures(part.beyond))))
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
