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
_NUMBER = re.compile(r"(\d+(?:[.,]\d+)*)")
_MANY = 5


def mark(verdict: str, words: str = "") -> Markup:
    """A verdict, as a coloured word."""
    return Markup(f'<span class="verdict {escape(verdict)}">{escape(words or verdict)}</span>')


def marks(verdicts: Sequence[str]) -> Markup:
    """Several verdicts: each once, with how often if it is not the only one."""
    counts = Counter(verdicts)
    if len(verdicts) == 1:
        return mark(verdicts[0])
    return Markup(" ".join(mark(each, f"{counts[each]} {each}") for each in VERDICTS if counts[each]))


def bar(rows: Sequence[ScoreRow]) -> Markup:
    """The shares of verdicts as one bar."""
    counts = Counter(row.verdict for row in rows)
    parts = "".join(
        f'<span class="{each}" style="flex-grow:{counts[each]}" title="{counts[each]} {each}"></span>'
        for each in VERDICTS
        if counts[each]
    )
    words = ", ".join(f"{counts[each]} {each}" for each in VERDICTS if counts[each])
    return Markup(f'<div class="shares" role="img" aria-label="{words}">{parts}</div>')


def squares(rows: Sequence[ScoreRow]) -> Markup:
    """A square for each row that leads to it, and what the colours mean, in words."""
    drawn = ""
    for place, row in enumerate(rows):
        words = escape(f"{row.quantity}: {row.verdict}")
        drawn += f'<a class="{row.verdict}" href="#{anchor(place)}" title="{words}" aria-label="{words}"></a>'
    counts = Counter(row.verdict for row in rows)
    words = " ".join(mark(each, f"{counts[each]} {each}") for each in VERDICTS if counts[each])
    return Markup(f'<div class="squares">{drawn}</div><p class="legend">{words}</p>')


def anchor(place: int) -> str:
    """Where a row of the paper stands in the table of all rows."""
    return f"row-{place + 1}"


class RowKind(msgspec.Struct, frozen=True):
    """Rows that differ in numbers only, such as one quantity at several sizes."""

    title: str
    rows: list[ScoreRow]

    @property
    def published(self) -> str:
        return _listed([row.published for row in self.rows])

    @property
    def measured(self) -> str:
        if any(isinstance(row.measured, str) for row in self.rows):
            return ""
        return _listed([row.measured for row in self.rows])


def kinds(rows: Sequence[ScoreRow]) -> list[RowKind]:
    """Rows by kind, in the order of the first of each.

    >>> row = ScoreRow("000", "bytes at 900 peers", 1.0, 1.0, None, None, 1, None, "matches", "")
    >>> [kind.title for kind in kinds([row, msgspec.structs.replace(row, quantity="bytes at 5 peers")])]
    ['bytes at … peers']
    """
    found: dict[str, list[ScoreRow]] = {}
    for row in rows:
        found.setdefault(_NUMBER.sub("#", row.quantity), []).append(row)
    return [RowKind(_common([row.quantity for row in alike]), alike) for alike in found.values()]


def _common(quantities: Sequence[str]) -> str:
    parts = zip(*(_NUMBER.split(quantity) for quantity in quantities), strict=True)
    text = "".join(each[0] if len(set(each)) == 1 else "…" for each in parts)
    return re.sub("…(?:[–-]…)+", "…", text)


def _listed(values: Sequence[float | str | None]) -> str:
    texts = [shown(value) for value in values]
    if len(set(texts)) == 1:
        return texts[0]
    return ", ".join(texts[:_MANY]) + (" …" if len(texts) > _MANY else "")


def shown(value: float | str | None) -> str:
    """A published or measured value, as text."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def agreed(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    return [row for row in rows if row.verdict in AGREES]
