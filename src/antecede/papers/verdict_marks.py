"""Verdicts in colour and in words: a mark for one, a bar and squares for many; and rows by kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import get_args

import msgspec

from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdicts import AGREES, Verdict
from antecede.report.page import Markup
from antecede.report.svg import text as escape

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
CLAIMS = {"holds": "holds", "fails": "does not hold", "undecided": "cannot tell"}
"""What we found of a claim."""
_PLURALS = {"matches": "match", "holds": "hold", "differs": "differ", "fails": "fail"}
_NUMBER = re.compile(r"(\d+(?:[.,]\d+)*(?:[–-]\d+(?:[.,]\d+)*)?)")
"""A number, or a range."""
_MANY = 6
"""Rows that are shown as one."""


def mark(verdict: str, words: str = "") -> Markup:
    """A verdict, as a coloured word."""
    return Markup(f'<span class="verdict {escape(verdict)}">{escape(words or verdict)}</span>')


def counted(verdict: str, count: int) -> str:
    """How many rows have a verdict.

    >>> counted("matches", 1), counted("holds", 2), counted("differs", 1), counted("close", 3)
    ('1 match', '2 hold', '1 differs', '3 close')
    """
    word = _PLURALS.get(verdict, verdict) if count != 1 or verdict == "matches" else verdict
    return f"{count:,} {word}"


def marks(verdicts: Sequence[str]) -> Markup:
    """Several verdicts: each once, with how often if it is not the only one."""
    counts = Counter(verdicts)
    if len(verdicts) == 1:
        return mark(verdicts[0])
    return Markup(" ".join(mark(each, counted(each, counts[each])) for each in VERDICTS if counts[each]))


def bar(rows: Sequence[ScoreRow]) -> Markup:
    """The shares of verdicts as one bar."""
    counts = Counter(row.verdict for row in rows)
    parts = "".join(
        f'<span class="{each}" style="flex-grow:{counts[each]}" title="{counted(each, counts[each])}"></span>'
        for each in VERDICTS
        if counts[each]
    )
    words = ", ".join(counted(each, counts[each]) for each in VERDICTS if counts[each])
    return Markup(f'<div class="shares" role="img" aria-label="{words}">{parts}</div>')


def squares(rows: Sequence[ScoreRow]) -> Markup:
    """A square for each row, which links to it, and a legend of the colours."""
    drawn = ""
    for place, row in enumerate(rows):
        words = escape(f"{row.quantity}: {row.verdict}")
        drawn += f'<a class="{row.verdict}" href="#{anchor(place)}" title="{words}" aria-label="{words}"></a>'
    counts = Counter(row.verdict for row in rows)
    words = " ".join(mark(each, counted(each, counts[each])) for each in VERDICTS if counts[each])
    return Markup(f'<div class="squares">{drawn}</div><p class="legend">{words}</p>')


def anchor(place: int) -> str:
    """Where a row of the paper stands in the table of all rows."""
    return f"row-{place + 1}"


class RowKind(msgspec.Struct, frozen=True):
    """Rows that have the same verdict and reason and differ only in some numbers, such as sizes."""

    rows: list[ScoreRow]

    @property
    def title(self) -> str:
        """The quantity, with the cases in the order of the rows."""
        return _with_cases([row.quantity for row in self.rows])[0]

    @property
    def published(self) -> str:
        return _listed([row.published for row in self.rows])

    @property
    def measured(self) -> str:
        return _listed([_ours(row) for row in self.rows])

    @property
    def note(self) -> str:
        """The reason, and the evidence for a claim, case by case. The results of other readings are shown for
        single rows."""
        cases = _with_cases([row.quantity for row in self.rows])[1]
        shown_for = [f"{case}: " if case else "" for case in cases]
        evidence = [
            f"{case}{row.measured}"
            for case, row in zip(shown_for, self.rows, strict=True)
            if isinstance(row.measured, str) and row.measured
        ]
        why, measured = self.rows[0].why, "; ".join(evidence)
        if why and measured:
            measured = f"Measured: {measured}"
        alone = self.rows[0].tried if len(self.rows) == 1 else ""
        return ". ".join(each for each in (why, measured, alone) if each)


def kinds(rows: Sequence[ScoreRow]) -> list[RowKind]:
    """Rows by kind, in the order of the first of each.

    >>> row = ScoreRow("000", "bytes at 900 peers", 1.0, 1.0, None, None, 1, None, "matches", "")
    >>> [kind.title for kind in kinds([row, msgspec.structs.replace(row, quantity="bytes at 5 peers")])]
    ['bytes at 900, 5 peers']
    """
    found: list[list[ScoreRow]] = []
    for row in rows:
        alike = next((each for each in reversed(found) if _belongs(row, each)), None)
        if alike is None:
            found.append([row])
        else:
            alike.append(row)
    return [RowKind(alike) for alike in found]


def _belongs(row: ScoreRow, alike: Sequence[ScoreRow]) -> bool:
    """Whether a row differs from the first of others only where these do."""
    first = alike[0]
    if len(alike) == _MANY or (row.verdict, row.why) != (first.verdict, first.why):
        return False
    places = _differences(first.quantity, row.quantity)
    return bool(places) and (len(alike) == 1 or places == _differences(first.quantity, alike[1].quantity))


def _differences(one: str, other: str) -> list[int]:
    """The numbers in which two texts differ; none if anything else differs."""
    parts, others = _NUMBER.split(one), _NUMBER.split(other)
    if parts[::2] != others[::2]:
        return []
    return [place for place in range(1, len(parts), 2) if parts[place] != others[place]]


def _with_cases(quantities: Sequence[str]) -> tuple[str, list[str]]:
    """Quantities that differ only in numbers, as one text, and the differing numbers of each.

    >>> _with_cases(["a, 0–50 ms", "a, 50–250 ms"])
    ('a, 0–50, 50–250 ms', ['0–50', '50–250'])
    >>> _with_cases(["9 peers, 0–5 ms", "5 peers, 5–25 ms"])[0]
    '9 peers, 0–5; 5 peers, 5–25 ms'
    """
    if len(quantities) == 1:
        return quantities[0], [""]
    places = _differences(quantities[0], quantities[1])
    first, last = places[0], places[-1]
    split = [_NUMBER.split(quantity) for quantity in quantities]
    cases = ["".join(parts[first : last + 1]) for parts in split]
    return "".join(split[0][:first]) + _joined(cases) + "".join(split[0][last + 1 :]), cases


def _listed(values: Sequence[float | str | None]) -> str:
    texts = [shown(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else _joined(texts)


def _joined(texts: Sequence[str]) -> str:
    return ("; " if any("," in text for text in texts) else ", ").join(texts)


def _ours(row: ScoreRow) -> float | str | None:
    """The measured value, or a word for a claim; the evidence is too long for a column."""
    return CLAIMS.get(row.verdict, "") if isinstance(row.measured, str) else row.measured


def shown(value: float | str | None) -> str:
    """A published or measured value, as text.

    >>> shown(1130.4), shown(999.7), shown(-0.0), shown(0.0625)
    ('1,130', '1,000', '0', '0.0625')
    """
    if value is None or isinstance(value, str):
        return value or ""
    text = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return "0" if text == "-0" else text


def agreed(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    return [row for row in rows if row.verdict in AGREES]
