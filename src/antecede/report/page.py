"""A page: one self-contained HTML file, sane in light and dark, readable in print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

STYLE = files("antecede.report").joinpath("style.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, a sentence or two, and what it shows (already HTML)."""

    title: str
    text: str
    body: str


def page(title: str, lead: str, sections: Sequence[Section], footer: str) -> str:
    """A whole document. It fetches nothing."""
    parts = "".join(
        f"<section><h2>{escape(s.title)}</h2><p>{escape(s.text)}</p>{s.body}</section>\n" for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        f"{parts}<footer>{escape(footer)}</footer>\n</body></html>\n"
    )


def figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = ()) -> str:
    """A table of figures; the first column and those in `words` are text."""

    def cell(kind: str, place: int, text: str) -> str:
        return f"<{kind}{' class=words' if place in words else ''}>{escape(text)}</{kind}>"

    head = "".join(cell("th", place, name) for place, name in enumerate(header))
    lines = ("".join(cell("td", place, text) for place, text in enumerate(row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
