"""The explorer's page: in a folder beside the files it reads, or as one file with everything in it."""

from __future__ import annotations

import base64
import gzip
import struct
from pathlib import Path

import msgspec

from antecede.durability import create_private
from antecede.errors import InputError
from antecede.explore.index import ExploredRun, Progress, Written, read_run, write_index, write_run
from antecede.report.web_page import WebPage
from antecede.trace.writer import write_whole

PAGE = WebPage(
    "explore/explorer.html",
    "explore/explorer.css",
    (
        "report/elements.js",
        "explore/data.js",
        "explore/causal.js",
        "explore/raster.js",
        "explore/view.js",
        "explore/app.js",
    ),
)
MAX_PAGE = 80 << 20
"""The most characters of a page that contains its run."""
_FILE, _DATA = "index.html", "data"


def page(title: str, data: str | None = None) -> str:
    """The page as HTML; `data` is the run, if it is part of the page."""
    return PAGE.html(title, "" if data is None else f'<script type="text/plain" id="data">{data}</script>\n')


def page_of_notebook() -> str:
    """A page that receives its run from the notebook around it."""
    return PAGE.html("Antecede", '<script type="text/plain" id="data" data-notebook></script>\n')


def write(
    path: Path, title: str, run: str | None, out: Path, progress: Progress = lambda *_: None
) -> Written:
    """Write the explorer of a run, which the user knows as `title`: one page if `out` names a file, or a
    folder."""
    check_place(out)
    return (write_file if out.suffix == ".html" else write_folder)(path, title, run, out, progress)


def check_place(out: Path) -> None:
    """Refuse a place that cannot be written, before the work rather than after it."""
    if out.suffix == ".html":
        if out.is_dir() or not out.parent.is_dir():
            raise InputError(f"{out}: name a file in a folder that exists, such as explore.html")
    elif out.exists() and (not out.is_dir() or (any(out.iterdir()) and not is_explorer(out))):
        raise InputError(f"{out} has something else in it; the explorer goes into a folder of its own")


def write_folder(
    path: Path, title: str, run: str | None, folder: Path, progress: Progress = lambda *_: None
) -> Written:
    """Write the page and the run's files into a new folder, or over one that was written so."""
    data = folder / _DATA
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _FILE).unlink(missing_ok=True)
    for old in data.iterdir():
        old.unlink()

    def write(name: str, content: bytes) -> None:
        create_private(data / name)
        (data / name).write_bytes(content)

    written = write_index(path, title, run, write, progress)
    write_whole(folder / _FILE, page(title).encode())
    return written


def is_explorer(folder: Path) -> bool:
    """Whether a folder was written by `write_folder`, complete or not."""
    names = {each.name for each in folder.iterdir()} - {_FILE, f".{_FILE}.writing"}
    return names == {_DATA} and all(each.suffix in (".bin", ".json") for each in (folder / _DATA).iterdir())


def is_complete(folder: Path) -> bool:
    """Whether a folder is complete and can be served as it is."""
    return folder.is_dir() and (folder / _FILE).is_file() and (folder / _DATA / "index.json").is_file()


def write_file(
    path: Path, title: str, run: str | None, file: Path, progress: Progress = lambda *_: None
) -> Written:
    """Write one page with the whole run in it, for runs that are small enough."""
    written, packed = pack_run(read_run(path, title, run, progress), title, progress)
    html = page(title, base64.b64encode(packed).decode())
    if len(html) > MAX_PAGE:
        raise InputError(
            f"{title} has {written.events:,} events, too many for one page; write a folder instead "
            f"(--out {file.with_suffix('')})"
        )
    write_whole(file, html.encode())
    return written


def pack_run(
    explored: ExploredRun, title: str, progress: Progress = lambda *_: None
) -> tuple[Written, bytes]:
    """The data of a run that the page reads, compressed and in one piece."""
    contents: dict[str, bytes] = {}
    written = write_run(explored, title, contents.__setitem__, progress)
    return written, gzip.compress(_container(contents), 6, mtime=0)


def _container(contents: dict[str, bytes]) -> bytes:
    """Files one after the other, preceded by a table of their offsets."""
    places, at = {}, 0
    for name, content in contents.items():
        places[name] = (at, len(content))
        at += len(content)
    table = msgspec.json.encode(places)
    return struct.pack("<I", len(table)) + table + b"".join(contents.values())
