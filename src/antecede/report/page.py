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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
