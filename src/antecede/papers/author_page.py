"""The report for a paper's authors: what is confirmed, what is not, what is undecided, and how to repeat it.

The essentials come first and fit on a few screens; then the figures, with the paper's points drawn in; then
every row and every reading.
"""

from __future__ import annotations

from collections.abc import Sequence

from antecede import __version__
from antecede.papers.errata import SmallestRun, runs_of
from antecede.papers.figure_panels import panels
from antecede.papers.paper import Paper, Scale
from antecede.papers.readings import ChosenReading, seeds_in_words
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.scoreboard_page import HEADER, RANKING, RULES, SMALL, PaperResult, cells, ranking
from antecede.papers.verdict_marks import RowKind, agreed, anchor, kinds, mark, marks, squares
from antecede.report.page import (
    Markup,
    Section,
    code,
    contents,
    details,
    escape_lines,
    folded,
    link,
    page,
    table,
)
from antecede.report.svg import tag
from antecede.report.svg import text as escape

CITATIONS = {
    "000": "G. Evropeytsev, E. López Domínguez, S. E. Pomares Hernández, J. Perez Cruz: An Efficient Causal "
    "Group Communication Protocol for Free Scale Peer-to-Peer Networks. Applied Sciences, 2016.",
    "001": "S. Pomares Hernández, J. Fanchon, K. Drira: The Immediate Dependency Relation: An Optimal Way to "
    "Ensure Causal Group Communication, 2004.",
    "002": "R. Friedman, S. Manor: Causal Ordering in Deterministic Overlay Networks, 2004.",
    "003": "S. Kawanami, T. Enokido, M. Takizawa: Communication Protocol for Heterogeneous Group.",
    "004": "J. P. de Araujo, L. Arantes, E. P. Duarte Júnior, L. A. Rodrigues, P. Sens: A "
    "Communication-Efficient Causal Broadcast Protocol. ICPP 2018.",
}
_SHOWN_KINDS = 6
"""Kinds of rows shown in the essentials; the others open on a click."""
_SHORT = 220
"""Characters of a reason that are shown at once; the rest opens on a click."""


def file_name(paper: str) -> str:
    """The page of a paper, beside the index."""
    return f"paper-{paper}.html"


def author_page(result: PaperResult, others: Sequence[str], audited: str, index: str, scale: Scale) -> str:
    """The report on one paper as HTML. `others` are the papers that also have a report, `index` is the page
    that lists all."""
    paper = result.paper
    rows = [row for row in result.rows if not row.own]
    printed = runs_of(paper.name, "printed")
    command = repeat_command(paper.name, scale)
    sections = [
        _confirmed(rows, command),
        _not_confirmed(rows, command),
        *_rules(printed),
        *_undecided(rows, command),
        *_not_run(rows, paper.name),
        *_figures(result),
        *_other_errata(paper.name),
        *_own(result),
        _all_rows(rows),
        _how_it_was_read(paper, result.choice, len(rows)),
        Section("How verdicts are made", RULES.replace("*", ""), "", "verdicts"),
    ]
    opening = _tiles(rows, printed) + squares(rows) + contents(sections)
    above = _trail(paper.name, others, index)
    cited, found = CITATIONS.get(paper.name, ""), in_short(rows, len(printed))
    small = f"{escape(SMALL)} " if scale == "quick" else ""
    lead = Markup(f"<cite>{escape(cited)}</cite>{small}<b>{escape(found)}</b>")
    footer = f"{audited} Antecede {__version__}"
    return page(f"Paper {paper.name}: {paper.title}", lead, sections, footer, above, opening)


def repeat_command(paper: str, scale: Scale) -> str:
    return f"antecede reproduce {paper}{' --full' if scale == 'full' else ''}"


def in_short(rows: Sequence[ScoreRow], errors: int) -> str:
    """What was found, in two sentences."""
    confirmed, refuted, undecided, waiting = _counts(rows)
    text = f"{len(rows)} printed numbers and claims: {confirmed} confirmed, {refuted} not confirmed"
    text += f", {undecided} undecided" if undecided else ""
    text += f", {waiting} not run at these sizes" if waiting else ""
    if errors:
        text += f". Counted apart: {errors} {'rule fails' if errors == 1 else 'rules fail'} as printed"
    return f"{text}."


def _counts(rows: Sequence[ScoreRow]) -> tuple[int, int, int, int]:
    return len(agreed(rows)), len(_refuted(rows)), len(_with(rows, "undecided")), len(_with(rows, "pending"))


def _refuted(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    return _with(rows, "differs", "fails")


def _with(rows: Sequence[ScoreRow], *verdicts: str) -> list[ScoreRow]:
    return [row for row in rows if row.verdict in verdicts]


def _trail(name: str, others: Sequence[str], index: str) -> str:
    links = [tag("b", escape(other)) if other == name else link(other, file_name(other)) for other in others]
    return f'<nav class="trail" aria-label="Papers">{link("All papers", index)} {" ".join(links)}</nav>'


def _tiles(rows: Sequence[ScoreRow], printed: Sequence[SmallestRun]) -> str:
    confirmed, refuted, undecided, waiting = _counts(rows)
    tiles = [
        (confirmed, "confirmed", "holds", "confirmed"),
        (refuted, "not confirmed", "differs" if refuted else "holds", "not-confirmed"),
    ]
    if undecided:
        tiles.append((undecided, "undecided", "undecided", "undecided"))
    if waiting:
        tiles.append((waiting, "not run at these sizes", "pending", "not-run"))
    if printed:
        words = "rule fails as printed" if len(printed) == 1 else "rules fail as printed"
        tiles.append((len(printed), f"{words} (counted apart)", "fails", "rules"))
    return '<div class="tiles">{}</div>'.format(
        "".join(
            f'<a class="{kind}" href="#{where}"><b>{count}</b> {escape(words)}</a>'
            for count, words, kind, where in tiles
        )
    )


def _kinds_table(found: Sequence[RowKind]) -> str:
    def lines(some: Sequence[RowKind]) -> str:
        body = [
            [
                kind.title,
                "claim" if kind.published == "holds" else kind.published,
                kind.measured,
                marks([row.verdict for row in kind.rows]),
            ]
            for kind in some
        ]
        notes = [folded(kind.note, _SHORT) for kind in some]
        header = ["what", "published", "ours", "verdict"]
        return table(header, body, (0,), notes, stacked=True, values=(1, 2))

    rest = found[_SHOWN_KINDS:]
    count = sum(len(kind.rows) for kind in rest)
    more = details(f"{count} more", lines(rest))
    return lines(found[:_SHOWN_KINDS]) + (more if rest else "")


def _confirmed(rows: Sequence[ScoreRow], command: str) -> Section:
    found = agreed(rows)
    text = "Numbers within 25 % of the printed ones, and claims that hold." if found else "Nothing so far."
    if matching := len(_with(rows, "matches")):
        text += f" Within 10 %: {matching}."
    body = (_kinds_table(kinds(found)) + code(command)) if found else ""
    return Section(f"Confirmed: {len(found)}", text, body, "confirmed")


def _not_confirmed(rows: Sequence[ScoreRow], command: str) -> Section:
    found = _refuted(rows)
    text = "Numbers that are more than 25 % away, and claims that fail." if found else "No number or claim."
    body = (_kinds_table(kinds(found)) + code(command)) if found else ""
    return Section(f"Not confirmed: {len(found)}", text, body, "not-confirmed")


def _rules(printed: Sequence[SmallestRun]) -> list[Section]:
    """Rules are not counted among the numbers and claims; a claim that rests on a rule is counted with the
    claims."""
    if not printed:
        return []
    one = len(printed) == 1
    title = "Rule that fails as printed" if one else "Rules that fail as printed"
    text = (
        f"Every schedule of a small group was explored, and {'this is' if one else 'these are'} the smallest "
        f"in which {'it fails' if one else 'they fail'}. The protocol measured here has the "
        f"{'rule' if one else 'rules'} corrected. Rules are counted apart: a claim that repeats one is among "
        "the numbers and claims above."
    )
    body = "".join(smallest_run(run, opened=not place) for place, run in enumerate(printed))
    return [Section(f"{title}: {len(printed)}", text, body, "rules")]


def smallest_run(run: SmallestRun, opened: bool = False) -> str:
    """The smallest run in which a rule fails: drawn, step by step, and the command that finds it again."""
    size = f"{_count(run.messages, 'message')}, {run.processes} processes, {_count(run.steps, 'step')}"
    summary = Markup(f"<b>{escape(run.rule.replace('`', ''))}</b> <small>{size}</small>")
    alt = escape(f"The smallest run in which it fails: {run.text[-1]}")
    steps = details("step by step", f"<pre>{escape_lines(run.text)}</pre>")
    wrong = next((line for line in run.text if line.startswith("p")), "")
    instead = f" Instead: {run.corrected}." if run.corrected else ""
    body = (
        f'<div class="scroll"><img class="drawn" src="{run.drawing}" alt="{alt}"></div>'
        f"<p>{escape(f'{wrong}.{instead}')}</p>"
    )
    return details(summary, body + steps + code(run.command), opened)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _undecided(rows: Sequence[ScoreRow], command: str) -> list[Section]:
    found = _with(rows, "undecided")
    if not found:
        return []
    text = (
        "The 95 % interval of our runs reaches across the border between verdicts, or there was one run. "
        "More seeds would decide."
    )
    body = _kinds_table(kinds(found)) + code(command)
    return [Section(f"Undecided: {len(found)}", text, body, "undecided")]


def _not_run(rows: Sequence[ScoreRow], name: str) -> list[Section]:
    found = _with(rows, "pending")
    if not found:
        return []
    names = "; ".join(kind.title for kind in kinds(found))
    body = details("which", f"<p>{escape(names)}</p>") + code(repeat_command(name, "full"))
    text = "The paper prints them for sizes that these runs do not have. This runs the paper's own:"
    return [Section(f"Not run at these sizes: {len(found)}", text, body, "not-run")]


def _figures(result: PaperResult) -> list[Section]:
    text = (
        "Lines are our means, with 95 % intervals as error bars where there are several runs. Rings are the "
        "paper's printed values, a broken line a value that it prints for the whole axis; the words below "
        "give the verdict of the row that has it."
    )
    drawn = panels(result.paper.figures(result.runs, result.choice.joint), result.rows)
    return [Section("Figures", text, drawn, "figures")] if drawn else []


def _other_errata(name: str) -> list[Section]:
    readings, needed = runs_of(name, "read"), runs_of(name, "needed")
    body = ""
    if readings:
        body += "<p>These rules can be read in two ways. Read like this, they fail.</p>"
        body += "".join(map(smallest_run, readings))
    if needed:
        body += "<p>These changes look harmless and are not: what they leave out is needed.</p>"
        body += "".join(map(smallest_run, needed))
    return [Section("Readings and shortcuts that fail", "", body, "readings-that-fail")] if body else []


def _own(result: PaperResult) -> list[Section]:
    own = [row for row in result.rows if row.own and row.verdict != "pending"]
    shown = [cells(row) for row in own]
    listed = [[row[0], row[2], row[3], mark(row[5])] for row in shown]
    notes = [folded(row[6], _SHORT) for row in shown]
    body = panels(result.paper.open_figures(result.open_runs))
    if own:
        body += table(["what", "ours", "runs", "verdict"], listed, (0,), notes, stacked=True)
    if not body:
        return []
    return [Section("Beyond the paper: results of our own", result.paper.open_question, body, "beyond")]


def _all_rows(rows: Sequence[ScoreRow]) -> Section:
    anchors = [anchor(place) for place in range(len(rows))]
    return Section("Every number and claim", "", _rows_table(rows, anchors), "rows")


def _rows_table(rows: Sequence[ScoreRow], anchors: Sequence[str]) -> str:
    shown = [cells(row) for row in rows]
    body = [[*row[:5], mark(row[5])] for row in shown]
    notes = [folded(row[6], _SHORT) for row in shown]
    return table(HEADER[:6], body, (0,), notes, anchors, stacked=True) if rows else ""


def _how_it_was_read(paper: Paper, choice: ChosenReading, rows: int) -> Section:
    body = []
    for reading in paper.readings:
        is_open = len(reading.alternatives) > 1
        for each in reading.alternatives:
            chosen = not is_open or choice.joint.get(reading.name) == each.name
            name = Markup(f" <small>{escape(f'{reading.name}: {each.name}')}</small>") if is_open else ""
            read = Markup(f"{escape(each.reading)}{name}")
            body.append([reading.question, read, each.why, mark("holds", "yes") if chosen else ""])
    shown = table(["what", "reading", "why", "judged by"], body, words=(0, 1, 2), stacked=True)
    if choice.scored:
        ranked = table(RANKING, ranking(choice), words=(0,), stacked=True)
        named = "<p>Each is written with the short names that stand below the readings above.</p>"
        shown += details(f"All {len(choice.scored)} joint readings, best first", named + ranked)
    text = f"Where the paper leaves something open, these are the readings. {_choice(paper, choice, rows)}"
    return Section("How it was read", text, shown, "readings")


def _choice(paper: Paper, choice: ChosenReading, rows: int) -> str:
    """The joint reading by which the paper is judged, in the words of its readings, and how it was chosen."""
    chosen = "; ".join(
        f"{reading.question}: {each.reading}"
        for reading in paper.readings
        for each in reading.alternatives
        if len(reading.alternatives) > 1 and choice.joint.get(reading.name) == each.name
    )
    judged = f"The verdicts are from runs with {seeds_in_words(choice.seeds.judging)}."
    if not choice.scored:
        return f"The paper is judged by the plainest of them{f' ({chosen})' if chosen else ''}. {judged}"
    best = choice.scored[0][1]
    left = rows - best.rows
    others = (
        f" The other {left} of the {rows} rows of this page were not run on these seeds and have no part in "
        "the choice."
        if left > 0
        else ""
    )
    return (
        "A joint reading takes one of each, for all rows at once. The paper is judged by this one: "
        f"{chosen}. It is the best of {len(choice.scored)} on {seeds_in_words(choice.seeds.choosing)}, where "
        f"{best.close} of {best.rows} rows are within 25 % or hold and {best.matching} of them are within "
        f"10 % or hold.{others} {judged}"
    )
