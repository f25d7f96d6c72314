"""Builds the documentation site into build/docs/site: `./dev docs`, or `./dev docs --serve` to look at it.

`--axe` checks every page, and the HTML files that are named after it, for accessibility.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from accessibility import check
from api_reference import MODULES, api_reference
from command_reference import command_reference
from link_check import broken_links
from pages import ROOT, stage

BUILD = ROOT / "build" / "docs"
PORT = 8000
_NAVIGATION = re.compile(
    r'(<nav class="md-nav" data-md-level="\d+" )aria-labelledby="__nav_[\d_]+_label"'
    r'([^>]*>\s*<label class="md-nav__title"[^>]*>\s*<span[^>]*></span>\s*([^<"]+?)\s*</label>)'
)
"""A section of the navigation, and its title; the label that the generator names for it may be empty."""
_WORKER = "https://unpkg.com/iframe-worker/shim"
"""The script that the generator would load from another host, to search in pages opened from disk."""


def build() -> Path:
    """The folder of the finished site. Ends the process with 1 if a page or a link is wrong."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = stage(BUILD / "pages")
    pages.write("reference/commands.md", command_reference())
    for module in MODULES:
        pages.write(f"reference/{module}.md", api_reference(module))
    shutil.copyfile(Path(__file__).parent / "zensical.toml", BUILD / "zensical.toml")
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if subprocess.run(zensical, cwd=BUILD).returncode:  # noqa: S603
        sys.exit(1)
    site = BUILD / "site"
    _bring_worker(site)
    if wrong := broken_links(site):
        sys.exit("\n".join(wrong))
    print(f"{len(list(site.rglob('*.html')))} pages in {site.relative_to(ROOT)}")
    return site


def _bring_worker(site: Path) -> None:
    """Make the site independent of other hosts."""
    worker = site / "assets" / "javascripts" / "iframe-worker.js"
    shutil.copyfile(Path(__file__).parent / "vendor" / worker.name, worker)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        text = text.replace(_WORKER, os.path.relpath(worker, page.parent))
        page.write_text(accessible(text), encoding="utf-8")


def accessible(page: str) -> str:
    """A page on which every landmark has a name, and no header of a table is empty.

    >>> accessible('<th></th>')
    '<td></td>'
    """
    page = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", page)
    return _NAVIGATION.sub(r'\1aria-label="\3"\2', page)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log line for each."""

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def serve(site: Path) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler) as server:
        print(f"http://127.0.0.1:{PORT}/ until Ctrl-C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def check_accessibility(site: Path, others: list[Path]) -> int:
    """The number of accessibility violations of all pages of the site, and of other HTML files."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
        served = [f"http://127.0.0.1:{server.server_port}/{page}" for page in pages]
        count = check([*served, *(page.resolve().as_uri() for page in others)])
        server.shutdown()
    return count


if __name__ == "__main__":
    built = build()
    if "--serve" in sys.argv[1:]:
        serve(built)
    if "--axe" in sys.argv[1:]:
        named = [Path(each) for each in sys.argv[sys.argv.index("--axe") + 1 :]]
        sys.exit(check_accessibility(built, named) > 0)
