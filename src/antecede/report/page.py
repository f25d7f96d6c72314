"""A page: one self-contained HTML file, for light and dark screens and for print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from antecede.report.svg import text as escape

STYLE = files("antecede.report").joinpath("style.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, a sentence or two, and its body as HTML."""

    title: str
    text: str
    body: str


def page(title: str, lead: str, sections: Sequence[Section], footer: str) -> str:
    """A complete document that loads nothing from elsewhere."""
    parts = "".join(
        f"<section><h2>{escape(s.title)}</h2>{_paragraph(s.text)}{s.body}</section>\n" for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        f"{parts}<footer>{escape(footer)}</footer>\n</body></html>\n"
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def alone(picture: str, width: int = 640) -> str:
    """A chart as an SVG file of its own, with style sheet and background."""
    head, rest = picture.split(">", 1)
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"', 1)
    paper = '<rect width="100%" height="100%" style="fill: var(--paper)"/>'
    return f"{head}><style>{STYLE}</style>{paper}{rest}\n"


def figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[int] = (),
    notes: Sequence[str] = (),
) -> str:
    """A table of figures; the first column and those in `words` are text. A row's note appears below its
    first cell."""

    def cell(kind: str, place: int, text: str, note: str = "") -> str:
        shown = f"<small>{escape(note)}</small>" if note else ""
        return f"<{kind}{' class=words' if place in words else ''}>{escape(text)}{shown}</{kind}>"

    head = "".join(cell("th", place, name) for place, name in enumerate(header))
    body = ""
    for number, row in enumerate(rows):
        note = notes[number] if notes else ""
        cells = (cell("td", place, text, "" if place else note) for place, text in enumerate(row))
        body += f"<tr>{''.join(cells)}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
