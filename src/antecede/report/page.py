"""A page: one self-contained HTML file, for light and dark screens and for print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from antecede.report.svg import text as escape

STYLE = files("antecede.report").joinpath("style.css").read_text(encoding="utf-8")


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, a sentence or two, and its body as HTML."""

    title: str
    text: str
    body: str
    anchor: str = ""
    """The anchor that links lead to; sections with an anchor make up the page's contents."""


def page(
    title: str, lead: str, sections: Sequence[Section], footer: str, above: str = "", opening: str = ""
) -> str:
    """A complete document that loads nothing from elsewhere.

    `above` and `opening` are HTML above the title and between the lead and the sections.
    """
    parts = "".join(
        f"<section{_id(s.anchor)}><h2>{_html(s.title)}</h2>{_paragraph(s.text)}{s.body}</section>\n"
        for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
        f'{above}<h1>{escape(title)}</h1>\n<p class="lead">{_html(lead)}</p>\n'
        f"{opening}{parts}<footer>{escape(footer)}</footer>\n</body></html>\n"
    )


def contents(sections: Sequence[Section]) -> str:
    """Links to the sections that have an anchor."""
    items = "".join(f"<li>{link(s.title, f'#{s.anchor}')}</li>" for s in sections if s.anchor)
    return f'<nav class="contents" aria-label="Contents"><ol>{items}</ol></nav>\n'


def link(text: str, address: str) -> Markup:
    return Markup(f'<a href="{escape(address)}">{_html(text)}</a>')


def code(*lines: str) -> Markup:
    """Commands, one a line."""
    return Markup(f"<pre><code>{escape_lines(lines)}</code></pre>")


def escape_lines(lines: Sequence[str]) -> str:
    return "\n".join(escape(line) for line in lines)


def details(summary: str, body: str, opened: bool = False) -> str:
    """A part that is shown when its summary is clicked."""
    return f"<details{' open' if opened else ''}><summary>{_html(summary)}</summary>{body}</details>"


def folded(text: str, most: int) -> Markup:
    """A long text whose rest is shown when its beginning is clicked."""
    if len(text) <= most:
        return Markup(escape(text))
    end = text.rfind(" ", 0, most)
    end = end if end > 0 else most
    return Markup(details(text[:end], escape(text[end:].lstrip())))


def _id(anchor: str) -> str:
    return f' id="{escape(anchor)}"' if anchor else ""


def _html(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)


def _paragraph(text: str) -> str:
    return f"<p>{_html(text)}</p>" if text else ""


def alone(picture: str, width: int = 640) -> str:
    """A chart as an SVG file of its own, with style sheet and background."""
    head, rest = picture.split(">", 1)
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"', 1)
    paper = '<rect width="100%" height="100%" style="fill: var(--paper)"/>'
    return f"{head}><style>{STYLE}</style>{paper}{rest}\n"


def figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{_html(caption)}</figcaption></figure>"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[int] = (),
    notes: Sequence[str] = (),
    anchors: Sequence[str] = (),
    stacked: bool = False,
    values: Sequence[int] = (),
) -> str:
    """A table of figures; the first column and those in `words` are text, those in `values` may be lists of
    figures. A row's note appears below its first cell; links lead to its anchor. On a narrow screen the cells
    of a `stacked` table stand below each other."""

    def cell(kind: str, place: int, text: str, note: str = "") -> str:
        shown = f"<small>{_html(note)}</small>" if note else ""
        marked = " class=words" if place in words else " class=values" if place in values else ""
        if stacked and kind == "td" and place and text:
            marked += f' data-name="{escape(header[place])}"'
        return f"<{kind}{marked}>{_html(text)}{shown}</{kind}>"

    head = "".join(cell("th", place, name) for place, name in enumerate(header))
    body = ""
    for number, row in enumerate(rows):
        note = notes[number] if notes else ""
        cells = (cell("td", place, text, "" if place else note) for place, text in enumerate(row))
        body += f"<tr{_id(anchors[number] if anchors else '')}>{''.join(cells)}</tr>"
    name = ' class="stacked"' if stacked else ""
    return (
        f'<div class="scroll"><table{name}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
