"""A page with a script of its own: modules of a package's `web` folder in one HTML document.

The modules are joined into one script, since a page that is opened from a disk cannot load modules; the
hashes of script and style are in the Content-Security-Policy, so nothing else runs, whatever names are shown.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from antecede.report.page import STYLE
from antecede.report.svg import text as escape

_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; img-src data:"
)
_LINK = re.compile(r"^import [^;]*;\n|^export (?=(?:class|const|function|async) )", re.MULTILINE)


class WebPage(NamedTuple):
    """The parts of a page. A file is named with the package that it is in, as `report/elements.js`."""

    body: str
    style: str
    modules: tuple[str, ...]
    """In an order in which each comes after those that it imports."""

    def policy(self) -> str:
        """The Content-Security-Policy: this script, this style and files of the same server, nothing else."""
        return _policy(self)

    def html(self, title: str, more: str = "") -> str:
        """The page as HTML; `more` is HTML too, behind the body."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{self.policy()}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:,">'
            f"<title>{escape(title)}</title><style>{_style(self)}</style></head><body>\n"
            f"{_read(self.body)}{more}<script>{_script(self)}</script>\n</body></html>\n"
        )


def _read(name: str) -> str:
    package, _, file = name.partition("/")
    return files(f"antecede.{package}").joinpath("web", file).read_text(encoding="utf-8")


@cache
def _script(page: WebPage) -> str:
    parts = [_LINK.sub("", _read(name)) for name in page.modules]
    return '(() => {\n"use strict";\n' + "".join(parts) + "})();\n"


@cache
def _style(page: WebPage) -> str:
    return STYLE + _read("report/app.css") + _read(page.style)


@cache
def _policy(page: WebPage) -> str:
    return _POLICY.format(script=_digest(_script(page)), style=_digest(_style(page)))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
