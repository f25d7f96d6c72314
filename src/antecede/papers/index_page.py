"""The first page of a reproduction: the papers, how each fared, and which protocol is cheapest where."""

from __future__ import annotations

from collections.abc import Sequence

from antecede import __version__
from antecede.papers.author_page import CITATIONS, file_name, repeat_command
from antecede.papers.contest import setup
from antecede.papers.errata import runs_of
from antecede.papers.paper import Scale
from antecede.papers.scoreboard_page import RULES, SMALL, PaperResult, Reproduction
from antecede.papers.verdict_marks import agreed, bar, marks
from antecede.report.page import Section, code, contents, link, page, table

TITLE = "Five papers on causal order, reproduced"
_MEANING = (
    "Every number and claim that a paper prints has a verdict. A number matches if ours is within 10 %, is "
    "close within 25 %, and differs beyond; a claim holds or fails; what our runs cannot tell is undecided. "
    "Confirmed are those that match, are close or hold."
)


_UNITS = {"ms": "milliseconds", "B": "bytes"}


def index_page(results: Sequence[PaperResult], reproduction: Reproduction, scale: Scale) -> str:
    """The page as HTML; the papers' own pages lie beside it."""
    names = " ".join(result.paper.name for result in results) if len(results) < 5 else ""
    sections = [
        Section("The papers", _MEANING, _papers(results, reproduction), "papers"),
        Section("How verdicts are made", RULES.replace("*", ""), "", "verdicts"),
        *_contest(reproduction.contest, setup(scale)),
        Section(
            "Repeat it",
            "Runs that are finished are not repeated. Every run has a seed: it is the same on your machine.",
            code(repeat_command(names, scale).replace("  ", " ").rstrip()),
            "repeat",
        ),
    ]
    footer = f"Antecede {__version__}"
    lead = f"{SMALL} {reproduction.audited}" if scale == "quick" else reproduction.audited
    return page(TITLE, lead, sections, footer, opening=contents(sections))


def _papers(results: Sequence[PaperResult], reproduction: Reproduction) -> str:
    body, authors = [], []
    printed = [row for row in reproduction.scoreboard if not row.own]
    for result in results:
        rows = [row for row in result.rows if not row.own]
        name = result.paper.name
        title = link(f"Paper {name}: {result.paper.title}", file_name(name))
        errors = len(runs_of(name, "printed"))
        body.append([title, bar(rows), f"{len(agreed(rows))} of {len(rows)}", f"{errors}"])
        authors.append(CITATIONS.get(name, ""))
    header = ["paper", "verdicts", "confirmed", "rules that fail as printed"]
    own = [row for row in reproduction.scoreboard if row.own]
    ours = f" Results of our own: {len(agreed(own))} of {len(own)} hold." if own else ""
    colours = marks([row.verdict for row in printed])
    legend = (
        f'<p class="legend">All papers, with the colours of the bars: {colours} '
        f"Confirmed: {len(agreed(printed))} of {len(printed)}.{ours}</p>"
    )
    return legend + table(header, body, (0, 1), authors, stacked=True)


def _contest(rows: Sequence[dict[str, str]], setup: str) -> list[Section]:
    sections = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        body = [list(row.values())[1:] for row in rows if row["measure"] == measure]
        what, _, unit = measure.partition(", ")
        counted = "from send to delivery" if what == "delay" else "per delivery, over all links"
        text = (
            f"{what.capitalize()}{f' in {_UNITS[unit]}' if unit else ''}, {counted}, on every network that a "
            f"protocol can run on; a star marks the cheapest, within 1 %. {setup}"
        )
        shown = table(list(rows[0])[1:], body)
        name = f"cheapest-{what.replace(' ', '-')}"
        sections.append(Section(f"Who is cheapest where: {what}", text, shown, name))
    return sections
