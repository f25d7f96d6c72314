"""A paper's figures as panels: our lines, the printed points, and how each point agrees, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from antecede.papers.paper import Figure, Points
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdict_marks import mark, marks, shown
from antecede.papers.verdicts import Verdict
from antecede.report.charts import Series, line_chart
from antecede.report.page import Markup, details, figure
from antecede.report.svg import text as escape

_OPEN, _FEW = 6, 4
"""The number of figures shown at once, and of printed points whose verdicts are listed individually."""
_WIDE = 30
"""The largest ratio of the heights at which two lines may end on a linear scale."""
_LEVEL = 3
"""This many printed points of the same height are a value for the whole axis."""
_SAME = 1e-6
"""Ratios that differ by less are considered to be of the same values."""


def panels(figures: Sequence[Figure], rows: Sequence[ScoreRow] = ()) -> str:
    """The figures that have something to draw, if there are any; beyond a few they open on a click.

    A printed point has the verdict of its row.
    """
    drawn = [_panel(each, rows) for each in figures if any(each.lines.values())]
    if not drawn:
        return ""
    first = f'<div class="panels">{"".join(drawn[:_OPEN])}</div>'
    rest = drawn[_OPEN:]
    if not rest:
        return first
    return first + details(f"{len(rest)} more figures", f'<div class="panels">{"".join(rest)}</div>')


def _panel(drawn: Figure, rows: Sequence[ScoreRow]) -> str:
    series = [Series(name, points) for name, points in drawn.lines.items() if points]
    furthest = max(x for each in series for x, _ in each.points)
    levels = {name: points for name, points in drawn.published.items() if _is_level(points)}
    near = {
        name: [(x, y) for x, y in points if x <= 2 * furthest]
        for name, points in drawn.published.items()
        if name not in levels
    }
    rings = [Series(name, points) for name, points in near.items() if points]
    broken = [Series(name, points) for name, points in levels.items()]
    title = f"Figure {drawn.number}: {drawn.title}"
    powers = _is_wide(series)
    chart = line_chart(series, drawn.x_label, drawn.y_label, title, rings, powers, broken)
    scale = "Both axes are logarithmic." if powers else ""
    words = " ".join(each for each in (f"{title}.", drawn.note, scale) if each)
    return figure(chart, Markup(f"{escape(words)} {_agreement(drawn, levels, rows)}"))


def _is_wide(series: Sequence[Series]) -> bool:
    """Whether lines end so far apart that only a logarithmic scale shows them all."""
    if any(x <= 0 or y <= 0 for each in series for x, y in each.points):
        return False
    ends = [each.points[-1][1] for each in series]
    return max(ends) > _WIDE * min(ends)


def _is_level(points: Points) -> bool:
    return len(points) >= _LEVEL and len({y for _, y in points}) == 1


def _agreement(drawn: Figure, levels: dict[str, Points], rows: Sequence[ScoreRow]) -> Markup:
    """How our value at each printed point agrees with it."""
    judged: list[tuple[str, float, float, Verdict | None]] = []
    for name, points in drawn.published.items():
        ours = dict(drawn.lines.get(name, []))
        for x, y in points if name not in levels else ():
            judged.append((name, x, y, _judge(y, ours.get(x), rows)))
    if len(judged) > _FEW:
        known = marks([each[3] for each in judged if each[3]])
        left = sum(each[3] is None for each in judged)
        other = f" {mark('pending', f'{left} not judged by this reading')}" if left else ""
        return Markup(f'<span class="agree">Printed points: {known}{other}</span>')
    words = [
        f"{escape(name)} at {x:,g}: {shown(y)} printed {_named(verdict)}" for name, x, y, verdict in judged
    ]
    return Markup(f'<span class="agree">{"; ".join(words)}</span>' if words else "")


def _named(verdict: Verdict | None) -> Markup:
    if verdict is None:
        return mark("pending", "not judged by this reading")
    return mark(verdict, "not run" if verdict == "pending" else verdict)


def _judge(published: float, ours: float | None, rows: Sequence[ScoreRow]) -> Verdict | None:
    """The verdict of the point's row; None if no row has this point, because it is drawn for another
    reading."""
    if ours is None:
        return "pending"
    return next((row.verdict for row in rows if _is_of(row, published, ours)), None)


def _is_of(row: ScoreRow, published: float, ours: float) -> bool:
    """Whether a row compares these values, possibly in another unit (nodes, and their share)."""
    if not isinstance(row.published, float | int) or not isinstance(row.measured, float | int):
        return False
    if not published or not row.published:
        return published == row.published and math.isclose(ours, row.measured, rel_tol=_SAME)
    return math.isclose(ours / published, row.measured / row.published, rel_tol=_SAME)
