"""Line charts as SVG: one line for each series, labelled at its end, with the values on hover.

Colours and fonts come from the page's style sheet, so one chart serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from antecede.report.svg import hover, tag, text

WIDTH, HEIGHT = 580, 340
_LEFT, _TOP, _BOTTOM = 56, 34, 46
_CHARACTER = 7.6
_LONG = 18
"""Characters of a name that still fits at the end of a line."""
_LEGEND_ROW = 18


class Measured(float):
    """A value with the bounds of its interval: drawn with an error bar, and a float for everybody else.

    >>> half = Measured(10.0, 8.0, 12.0) / 2
    >>> half, half.low, half.high
    (5.0, 4.0, 6.0)
    """

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> Measured:
        measured = super().__new__(cls, value)
        measured.low, measured.high = low, high
        return measured

    def __truediv__(self, scale: float) -> Measured:
        return Measured(float(self) / scale, self.low / scale, self.high / scale)


@dataclass(frozen=True)
class Series:
    """A named line through (x, y) points."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    label: str,
    published: Sequence[Series] = (),
    powers: bool = False,
    levels: Sequence[Series] = (),
) -> str:
    """A line chart; `label` describes it to screen readers.

    Points of `published` are drawn as rings in the colour of the line of the same name, `levels` as broken
    lines. Axes are linear, the
    y axis from zero, or with `powers` both logarithmic. Lines are labelled at their ends, or below the chart
    if a name is too long for that.
    """
    series = [each for each in series if each.points]
    xs = sorted({x for each in (*series, *published) for x, _ in each.points})
    values = [y for each in (*series, *published, *levels) for _, y in each.points]
    top = max((y.high if isinstance(y, Measured) else y for y in values), default=1.0)
    low = min(values, default=1.0)
    ticks = powers_of_ten(low, top) if powers else nice_ticks(top)
    longest = max((len(each.name) for each in series), default=0)
    below = longest > _LONG
    end = WIDTH - (24 if below else 20 + max(108, round(_CHARACTER * longest)))
    height = HEIGHT + (_LEGEND_ROW * len(series) + 6 if below else 0)
    across = _Scale(min(xs, default=0.0), max(xs, default=1.0), _LEFT + 12, end, powers)
    up = _Scale(ticks[0], ticks[-1], HEIGHT - _BOTTOM, _TOP, powers)
    body = [_grid(ticks, up, end), _x_axis(xs, across)]
    labels = _spread([up(each.points[-1][1]) for each in series], 15)
    for number, (each, label_y) in enumerate(zip(series, labels, strict=True)):
        name = _legend(each.name, number) if below else _end_label(each, across, label_y)
        body.append(_line(each, number, across, up, name, (x_label, y_label)))
    names = [each.name for each in series]
    for rings in published:
        number = names.index(rings.name) if rings.name in names else len(names)
        body.append(_rings(rings, number, across, up, (x_label, y_label)))
    for level in levels:
        number = names.index(level.name) if level.name in names else len(names)
        body.append(_level(level, number, up, end, y_label))
    middle = (_LEFT + end) / 2
    body.append(tag("text", text(x_label), class_="axis", x=middle, y=HEIGHT - 8, text_anchor="middle"))
    body.append(tag("text", text(y_label), class_="axis", x=_LEFT - 36, y=14))
    return tag("svg", *body, class_="chart", viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def _line(series: Series, number: int, across: _Scale, up: _Scale, name: str, axes: tuple[str, str]) -> str:
    places = [(across(x), up(y)) for x, y in series.points]
    path = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [
        tag(
            "circle",
            hover(f"{series.name}: {y:,.4g}{_bounds(y)} {axes[1]} at {x:g} {axes[0]}"),
            cx=place[0], cy=place[1], r=4,
        )
        for (x, y), place in zip(series.points, places, strict=True)
    ]  # fmt: skip
    errors = [_error_bar(across(x), y, up) for x, y in series.points if isinstance(y, Measured)]
    drawn = [tag("path", class_="error", d=" ".join(errors))] if errors else []
    return tag("g", tag("path", d=path), *drawn, *dots, name, class_=f"series s{number % 6}")


def _bounds(value: float) -> str:
    return f" ({value.low:,.4g} to {value.high:,.4g})" if isinstance(value, Measured) else ""


def _error_bar(x: float, value: Measured, up: _Scale) -> str:
    low, high = up(value.low), up(value.high)
    return f"M{x - 4:.1f},{high:.1f} h8 M{x:.1f},{high:.1f} V{low:.1f} M{x - 4:.1f},{low:.1f} h8"


def _end_label(series: Series, across: _Scale, y: float) -> str:
    return tag("text", text(series.name), x=across(series.points[-1][0]) + 10, y=y + 4)


def _legend(name: str, number: int) -> str:
    y = HEIGHT + _LEGEND_ROW * number + 12
    return tag("path", d=f"M{_LEFT},{y - 4} h22") + tag("text", text(name), x=_LEFT + 30, y=y)


def _rings(series: Series, number: int, across: _Scale, up: _Scale, axes: tuple[str, str]) -> str:
    rings = [
        tag("circle", hover(f"{series.name}, as published: {y:,g} {axes[1]} at {x:g} {axes[0]}"),
            cx=across(x), cy=up(y), r=6)
        for x, y in series.points
    ]  # fmt: skip
    return tag("g", *rings, class_=f"rings s{number % 6}")


def _level(series: Series, number: int, up: _Scale, end: float, unit: str) -> str:
    value = series.points[0][1]
    title = hover(f"{series.name}, as published: {value:,g} {unit}")
    y = up(value)
    return tag("g", tag("path", title, d=f"M{_LEFT},{y:.1f} H{end}"), class_=f"level s{number % 6}")


def _grid(ticks: Sequence[float], up: _Scale, end: float) -> str:
    lines = []
    for value in ticks:
        y = up(value)
        lines.append(tag("line", x1=_LEFT, x2=end, y1=y, y2=y))
        lines.append(tag("text", text(compact(value)), x=_LEFT - 8, y=y + 4, text_anchor="end"))
    return tag("g", *lines, class_="grid")


def _x_axis(xs: Sequence[float], across: _Scale) -> str:
    marks = []
    last = -math.inf
    for x in xs:
        if across(x) - last >= 26:
            last = across(x)
            marks.append(tag("text", text(compact(x)), x=last, y=HEIGHT - _BOTTOM + 18, text_anchor="middle"))
    return tag("g", *marks, class_="grid")


class _Scale:
    def __init__(self, low: float, high: float, start: float, end: float, powers: bool = False) -> None:
        self._of = math.log10 if powers else float
        self._low, self._start = self._of(low), start
        self._step = (end - start) / (self._of(high) - self._low) if high > low else 0.0

    def __call__(self, value: float) -> float:
        place = self._of(value) if value > 0 or self._of is float else self._low
        return self._start + (max(place, self._low) - self._low) * self._step


def compact(value: float) -> str:
    """A number in short form, for an axis.

    >>> compact(0), compact(250), compact(40_000), compact(2_500_000), compact(0.05)
    ('0', '250', '40k', '2.5M', '0.05')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / min(size, 1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:g}"


def nice_ticks(top: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least `top`.

    >>> nice_ticks(57)
    [0.0, 20.0, 40.0, 60.0]
    """
    least = max(top, 1e-9) / about
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least)
    return [step * number for number in range(max(1, math.ceil(top / step - 1e-9)) + 1)]


def powers_of_ten(low: float, top: float) -> list[float]:
    """The powers of ten from below `low` to above `top`.

    >>> powers_of_ten(0.3, 57)
    [0.1, 1.0, 10.0, 100.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(top))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _spread(places: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved apart so that labels do not overlap."""
    spread = list(places)
    order = sorted(range(len(places)), key=lambda each: places[each])
    for above, below in pairwise(order):
        spread[below] = max(spread[below], spread[above] + gap)
    return spread
