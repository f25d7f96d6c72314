"""Every link, picture and anchor of a built site leads somewhere. Pages load nothing from other hosts."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            if value := values.get(name):
                self.ids.add(value)
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)
        if tag in ("img", "script") and (source := values.get("src")):
            self.loaded.append(source)
        if tag == "link" and values.get("rel") in ("stylesheet", "icon") and (sheet := values.get("href")):
            self.loaded.append(sheet)


@cache
def _read(page: Path) -> _Page:
    parsed = _Page()
    parsed.feed(page.read_text(encoding="utf-8"))
    return parsed


def broken_links(site: Path) -> list[str]:
    """Broken links, one line each."""
    wrong = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # Its links are relative to the root of a server.
            continue
        for link in _read(page).links + _read(page).loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in _read(page).loaded and parts.scheme != "data":
                    wrong.append(f"{page.relative_to(site)} loads {link}")
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                wrong.append(f"{page.relative_to(site)} links to {link}, which does not exist")
            elif parts.fragment and target.suffix == ".html":
                known = _read(target).ids
                if unquote(parts.fragment) not in known and parts.fragment != "__skip":
                    wrong.append(f"{page.relative_to(site)} links to {link}, which has no such part")
    return wrong
