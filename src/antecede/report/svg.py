"""SVG elements. All text is escaped: for HTML, and for people, who see control characters as escapes."""

from __future__ import annotations

import math
from html import escape

from antecede.terminal import printable


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element; attribute names take _ for - and `class_` for class.

    >>> tag("circle", tag("title", text("a < b")), cx=1, stroke_width=2)
    '<circle cx="1" stroke-width="2"><title>a &lt; b</title></circle>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(children)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def text(value: object) -> str:
    """Text for an element or an attribute."""
    return escape(printable(str(value)))


def hover(value: str) -> str:
    """A tooltip for the element that contains it."""
    return tag("title", text(value))


def arrow(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    short_of: float = 4,
    bend: tuple[float, float] | None = None,
) -> str:
    """The path of an arrow that stops short of its target; with `bend`, a curve with that control point."""
    from_x, from_y = bend or (x1, y1)
    length = math.hypot(x2 - from_x, y2 - from_y) or 1.0
    along_x, along_y = (x2 - from_x) / length, (y2 - from_y) / length
    tip_x, tip_y = x2 - short_of * along_x, y2 - short_of * along_y
    barbs = [
        (tip_x - 8 * along_x + side * 3.5 * along_y, tip_y - 8 * along_y - side * 3.5 * along_x)
        for side in (1, -1)
    ]
    head = " ".join(f"M{x:.1f},{y:.1f} L{tip_x:.1f},{tip_y:.1f}" for x, y in barbs)
    way = f"Q{from_x:.1f},{from_y:.1f} " if bend else "L"
    return f"M{x1:.1f},{y1:.1f} {way}{tip_x:.1f},{tip_y:.1f} {head}"


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
