"""Serves a page to this machine alone, behind a token.

The printed address contains the token. A browser that opens it receives a cookie, which authorises all later
requests, and the page removes the token from the address. A cookie applies to all ports of a host, so this
one is bound to a random path: browsers do not send it to another server on this machine.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from antecede.errors import InputError
from antecede.listening import describe_listen_error
from antecede.report.web_page import WebPage

_COOKIE = "antecede"
_MAX_CONNECTIONS = 48


class PageRequest(BaseHTTPRequestHandler):
    """One request, which has shown the token and this server's own name; `server` has the page.

    A request without the token, or by another host name, gets a 404, whatever it asks for.
    """

    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True
    """Otherwise the end of a response waits for the acknowledgement of its beginning, up to 40 ms."""
    server: LocalServer
    _new_cookie = ""

    def do_GET(self) -> None:
        name = self._name()
        if name == "":
            self.reply("text/html; charset=utf-8", self.server.page.html("Antecede").encode())
        elif name is None or not self.server.answer(self, name):
            self.send_error(HTTPStatus.NOT_FOUND)

    def reply(self, kind: str, content: bytes) -> None:
        self.begin(kind, len(content))
        self.wfile.write(content)

    def begin(self, kind: str, size: int | None) -> None:
        """Send the head of a response; without a size, it lasts until the connection is closed."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if size is None:
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def end_headers(self) -> None:
        if self._new_cookie:
            self.send_header("Set-Cookie", self._new_cookie)
        self.send_header("Content-Security-Policy", f"{self.server.page.policy()}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def _name(self) -> str | None:
        """The requested name, "" for the page; None if the request is not authorised."""
        self._new_cookie = ""
        # Another host name for this address (DNS rebinding) would give the page the origin of another site.
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return None
        server, parts = self.server, urlsplit(self.path)
        place, _, name = parts.path.removeprefix("/").partition("/")
        if place != server.place:
            return None
        if not name and _is_same(parse_qs(parts.query).get("token", [""])[0], server.token):
            self._new_cookie = f"{_COOKIE}={server.token}; Path=/{place}/; HttpOnly; SameSite=Strict"
            return name
        cookies = (each.strip().partition("=") for each in self.headers.get("Cookie", "").split(";"))
        shown = [value for key, _, value in cookies if key == _COOKIE]
        return name if any(_is_same(value, server.token) for value in shown) else None

    def log_message(self, *_: Any) -> None:
        """Log nothing: the address contains the token."""


def _is_same(shown: str, token: str) -> bool:
    return secrets.compare_digest(shown.encode(), token.encode())


class LocalServer(ThreadingHTTPServer):
    """Listens on loopback; the caller serves and closes it. `answer` is called for all requests except those
    for the page itself, and returns whether the requested name exists. If there are too many connections, new
    ones are closed."""

    daemon_threads = True

    def __init__(self, page: WebPage, answer: Callable[[PageRequest, str], bool], port: int = 0) -> None:
        self.page, self.answer = page, answer
        self.token, self.place = secrets.token_urlsafe(24), secrets.token_hex(4)
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        try:
            super().__init__(("127.0.0.1", port), PageRequest)
        except OSError as error:
            raise InputError(f"cannot listen at 127.0.0.1:{port}: {describe_listen_error(error)}") from None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.place}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, *_: Any) -> None:
        """A browser may close a connection at any time."""
