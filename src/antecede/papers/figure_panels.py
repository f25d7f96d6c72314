"""A paper's figures as panels: our lines, the printed points, and how each point agrees, in words."""

from __future__ import annotations

from collections.abc import Sequence

from antecede.papers.paper import Figure, Points
from antecede.papers.verdict_marks import mark, marks, shown
from antecede.papers.verdicts import Verdict, judge_number
from antecede.report.charts import Measured, Series, line_chart
from antecede.report.page import Markup, details, figure
from antecede.report.svg import text as escape

_OPEN, _FEW = 6, 4
"""Figures that are shown at once, and printed points whose verdicts are named one by one."""
_WIDE = 30
"""How many times as high one line may end as another on a linear scale."""
_LEVEL = 3
"""So many printed points of the same height are a value for the whole axis."""


def panels(figures: Sequence[Figure]) -> str:
    """The figures that have something to draw, if there are any; beyond a few they open on a click."""
    drawn = [_panel(each) for each in figures if any(each.lines.values())]
    if not drawn:
        return ""
    first = f'<div class="panels">{"".join(drawn[:_OPEN])}</div>'
    rest = drawn[_OPEN:]
    if not rest:
        return first
    return first + details(f"{len(rest)} more figures", f'<div class="panels">{"".join(rest)}</div>')


def _panel(drawn: Figure) -> str:
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
    return figure(chart, Markup(f"{escape(words)} {_agreement(drawn, levels)}"))


def _is_wide(series: Sequence[Series]) -> bool:
    """Whether lines end so far apart that only a logarithmic scale shows them all."""
    if any(x <= 0 or y <= 0 for each in series for x, y in each.points):
        return False
    ends = [each.points[-1][1] for each in series]
    return max(ends) > _WIDE * min(ends)


def _is_level(points: Points) -> bool:
    return len(points) >= _LEVEL and len({y for _, y in points}) == 1


def _agreement(drawn: Figure, levels: dict[str, Points]) -> Markup:
    """How our value at each printed point agrees with it."""
    judged: list[tuple[str, float, float, Verdict]] = []
    for name, points in drawn.published.items():
        ours = dict(drawn.lines.get(name, []))
        for x, y in points if name not in levels else ():
            judged.append((name, x, y, _judge(y, ours.get(x))))
    if len(judged) > _FEW:
        return Markup(f'<span class="agree">Printed points: {marks([each[3] for each in judged])}</span>')
    words = [
        f"{escape(name)} at {x:,g}: {shown(y)} printed "
        + mark(verdict, "not run" if verdict == "pending" else verdict)
        for name, x, y, verdict in judged
    ]
    return Markup(f'<span class="agree">{"; ".join(words)}</span>' if words else "")


def _judge(published: float, ours: float | None) -> Verdict:
    if ours is None:
        return "pending"
    if isinstance(ours, Measured):
        return judge_number(published, ours.low, ours.high)
    return "undecided"
