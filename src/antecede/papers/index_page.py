"""The first page of a reproduction: the papers, how each fared, and which protocol is cheapest where."""

from __future__ import annotations

from collections.abc import Sequence

from antecede import __version__
from antecede.papers.author_page import file_name, repeat_command
from antecede.papers.errata import runs_of
from antecede.papers.paper import Scale
from antecede.papers.scoreboard_page import RULES, PaperResult, Reproduction, tally
from antecede.papers.verdict_marks import agreed, bar
from antecede.report.page import Section, code, contents, link, page, table

TITLE = "Five papers on causal order, reproduced"


def index_page(results: Sequence[PaperResult], reproduction: Reproduction, scale: Scale) -> str:
    """The page as HTML; the papers' own pages lie beside it."""
    names = " ".join(result.paper.name for result in results) if len(results) < 5 else ""
    sections = [
        Section("The papers", tally(reproduction.scoreboard), _papers(results), "papers"),
        Section("How verdicts are made", RULES.replace("*", ""), "", "verdicts"),
        *_contest(reproduction.contest),
        Section(
            "Repeat it",
            "Runs that are finished are not repeated. Every run has a seed: it is the same on your machine.",
            code(repeat_command(names, scale).replace("  ", " ").rstrip()),
            "repeat",
        ),
    ]
    footer = f"Antecede {__version__}"
    return page(TITLE, reproduction.audited, sections, footer, opening=contents(sections))


def _papers(results: Sequence[PaperResult]) -> str:
    body = []
    for result in results:
        rows = [row for row in result.rows if not row.own]
        name = result.paper.name
        title = link(f"Paper {name}: {result.paper.title}", file_name(name))
        errors = len(runs_of(name, "printed"))
        body.append([title, bar(rows), f"{len(agreed(rows))} of {len(rows)}", f"{errors}"])
    return table(["", "verdicts", "confirmed", "rules that fail as printed"], body, (0, 1))


def _contest(rows: Sequence[dict[str, str]]) -> list[Section]:
    sections = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        body = [list(row.values())[1:] for row in rows if row["measure"] == measure]
        text = "On every network that a protocol can run on; a star marks the cheapest, within 1 %. " + (
            "From send to delivery." if measure.startswith("delay") else "Per delivery, over all links."
        )
        shown = table(list(rows[0])[1:], body)
        name = f"cheapest-{measure.split(',')[0].replace(' ', '-')}"
        sections.append(Section(f"Who is cheapest where: {measure}", text, shown, name))
    return sections
