"""Serves the console to this machine alone, behind a token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import msgspec

from antecede.console.sources import MemberSource
from antecede.console.watch import GroupWatch
from antecede.report.local_server import LocalServer, PageRequest
from antecede.report.web_page import WebPage

PAGE = WebPage(
    "console/console.html",
    "console/console.css",
    (
        "report/elements.js",
        "console/live.js",
        "console/picture.js",
        "console/board.js",
        "console/details.js",
        "console/app.js",
    ),
)
_SEND_SECONDS = 10.0
"""Seconds after which a browser that has not read a picture is disconnected."""


@contextmanager
def console(
    find_sources: Callable[[], list[MemberSource]],
    port: int = 0,
    hides_silent: bool = False,
    clock: Callable[[], float] = time.time,
) -> Iterator[str]:
    """Serve the console in threads of its own; the page's address."""
    watch = GroupWatch(find_sources, hides_silent, clock)
    try:
        server = LocalServer(PAGE, lambda request, name: _answer(watch, request, name), port)
        thread = threading.Thread(target=server.serve_forever, name="antecede console page", daemon=True)
        thread.start()
        try:
            yield server.address
        finally:
            server.shutdown()
            server.server_close()
    finally:
        watch.close()


def _answer(watch: GroupWatch, request: PageRequest, name: str) -> bool:
    query = {key: values[0] for key, values in parse_qs(urlsplit(request.path).query).items()}
    if name == "events":
        _send_events(watch, request)
    elif name == "message" and "id" in query:
        request.reply("application/json", msgspec.json.encode(watch.message(query["id"])))
    elif name == "member" and "label" in query:
        request.reply("application/json", msgspec.json.encode(watch.member(query["label"])))
    else:
        return False
    return True


def _send_events(watch: GroupWatch, request: PageRequest) -> None:
    if not watch.has_room:
        request.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages of this console are open")
        return
    request.connection.settimeout(_SEND_SECONDS)
    request.begin("text/event-stream", None)
    following = watch.follow()
    try:
        for document in following:
            request.wfile.write(b"data: " + document + b"\n\n")
    finally:
        following.close()  # type: ignore[attr-defined]
