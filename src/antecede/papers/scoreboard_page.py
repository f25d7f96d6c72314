"""The scoreboard in words, table cells and Markdown. `author_page` has the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from antecede.papers.paper import Paper, Runs, Scale
from antecede.papers.readings import ChosenReading, in_words, seeds_in_words
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdict_marks import VERDICTS, RowKind, counted, shown
from antecede.papers.verdicts import AGREES, Verdict

RULES = (
    "*Matches*: the 95 % interval of ours lies within ±10 % of the published value, or contains it and is "
    "narrower than 20 % of it. *Close*: it lies within ±25 %. *Differs*: it lies wholly outside. "
    "The slope of a line that changes by less than 10 % of its quantity over the sizes is compared on the "
    "scale of such a change. "
    "*Undecided*: it reaches across that border, or there is one run only; more runs would tell. Claims "
    "*hold* or *fail*. *Pending*: not run at that size. "
    "Where a paper leaves something open, a *joint reading* is one way to read all of it together, for every "
    "row of the paper: the one that most rows agree with is chosen on some seeds, and the verdicts are from "
    "runs with other seeds. That rules out luck with seeds; it does not show that the authors read it so."
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
        rows = [*map(choice.explain, paper.score(runs, choice.joint)), *paper.open_score(open_runs)]
        return cls(paper, choice, runs, open_runs, rows)


def tally(rows: Sequence[ScoreRow]) -> str:
    """How many of the papers' rows have which verdict, as a sentence; results of our own in another."""
    papers = [row for row in rows if not row.own]
    counts = ", ".join(counted(verdict, count) for verdict, count in count_verdicts(papers).items() if count)
    agreed = sum(row.verdict in AGREES for row in papers)
    share = f" ({100 * agreed / len(papers):.0f} % match, are close or hold)" if papers else ""
    own = [row for row in rows if row.own]
    held = sum(row.verdict in AGREES for row in own)
    ours = f" Results of our own: {held} of {len(own)} hold." if own else ""
    return f"{len(papers):,} numbers and claims of the papers: {counts}{share}.{ours}"


def count_verdicts(rows: Sequence[ScoreRow]) -> dict[Verdict, int]:
    return {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}


def cells(row: ScoreRow) -> list[str]:
    """The cells of a row, as text."""
    if row.measured is None:
        ours, note = "–", ""
    else:
        alone = RowKind([row])
        ours, note = alone.measured, alone.note
    if row.low is not None and row.high is not None and row.high > row.low:
        ours += f" ± {shown((row.high - row.low) / 2)}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [row.quantity, shown(row.published), ours, f"{row.runs}", ratio, row.verdict, note]


SMALL = (
    "These runs are far smaller than the papers', so these verdicts say little about the papers and may "
    "contradict those of full size, which antecede reproduce --full gives."
)
"""What is said first of a quick reproduction."""
HEADER = ["quantity", "published", "ours", "runs", "ratio", "verdict", "why"]


def markdown(reproduction: Reproduction, machine: str, scale: Scale = "full") -> str:
    """The scoreboard as Markdown."""
    small = [SMALL, ""] if scale == "quick" else []
    lines = [
        "# Scoreboard",
        "",
        *small,
        f"{tally(reproduction.scoreboard)} {reproduction.audited}",
        "",
        machine,
        "",
    ]
    lines.append(RULES)
    for name in dict.fromkeys(row.paper for row in reproduction.scoreboard):
        mine = [row for row in reproduction.scoreboard if row.paper == name]
        choice = reproduction.choices[name]
        lines += ["", f"## Paper {name}", "", f"{tally(mine)} {how_chosen(choice)}", ""]
        lines += _markdown_table([row for row in mine if not row.own])
        if choice.scored:
            lines += ["", "| " + " | ".join(RANKING) + " |", "|---" * len(RANKING) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in ranking(choice)]
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


def how_chosen(choice: ChosenReading) -> str:
    """Which joint reading a paper is judged by, and on which seeds it was chosen, as sentences."""
    judged = f"verdicts are from {seeds_in_words(choice.seeds.judging)}"
    if not choice.scored:
        return f"Judged by the plainest reading ({in_words(choice.joint) or 'there is one only'}); {judged}."
    best, total = choice.scored[0][1], len(choice.scored)
    return (
        f"Judged by {in_words(choice.joint)}: the best of {total} joint readings on "
        f"{seeds_in_words(choice.seeds.choosing)} ({best.close} of {best.rows} rows within 25 % or holding, "
        f"{best.matching} within 10 %); {judged}."
    )


def ranking(choice: ChosenReading) -> list[list[str]]:
    """Every joint reading and how many rows agree with it, best first."""
    return [
        [in_words(joint), f"{score.close} of {score.rows}", f"{score.matching}"]
        for joint, score in choice.scored
    ]


RANKING = ["joint reading", "within 25 % or holding", "within 10 %"]
