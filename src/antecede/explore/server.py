"""Serves an explorer's folder to this machine alone, behind a token in its address."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from antecede.explore.page import PAGE
from antecede.report.local_server import LocalServer, PageRequest

_NAME = re.compile(r"data/[a-z]+(?:-[0-9]+){0,2}\.(?:bin|json)")
_KINDS = {".json": "application/json", ".bin": "application/octet-stream"}


def open_server(folder: Path, port: int = 0) -> tuple[LocalServer, str]:
    """A server on loopback and the page's address; the caller serves and closes it.

    It serves the program's own page, and only data from the folder, so that the author of a folder cannot run
    code here.
    """

    def answer(request: PageRequest, name: str) -> bool:
        file = folder / name
        if not _NAME.fullmatch(name) or not file.is_file():
            return False
        with file.open("rb") as content:
            request.begin(_KINDS[file.suffix], file.stat().st_size)
            shutil.copyfileobj(content, request.wfile, 1 << 20)
        return True

    server = LocalServer(PAGE, answer, port)
    return server, server.address
