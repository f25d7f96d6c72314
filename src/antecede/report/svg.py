"""Small pieces of SVG, with every text escaped."""

from __future__ import annotations

from html import escape


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element; attribute names take _ for - and `class_` for class.

    >>> tag("circle", tag("title", text("a < b")), cx=1, stroke_width=2)
    '<circle cx="1" stroke-width="2"><title>a &lt; b</title></circle>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(children)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def text(value: object) -> str:
    return escape(str(value))


def hover(value: str) -> str:
    """What appears when the pointer rests on the element that contains it."""
    return tag("title", text(value))


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
