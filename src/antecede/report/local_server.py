"""Serves a page to this machine alone, behind a token in its address."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from antecede.errors import InputError
from antecede.report.web_page import WebPage


class PageRequest(BaseHTTPRequestHandler):
    """One request, which has shown the token and this server's own name; `server` has the page.

    Who asks without the token, or by another name, is told that nothing is there, whatever it asks for.
    """

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: LocalServer

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
        """The head of an answer; without a size, it lasts until the connection is closed."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if size is None:
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", f"{self.server.page.policy()}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def _name(self) -> str | None:
        """What is asked for, "" for the page; None if there is no right to it."""
        # Another name for this address in a browser (DNS rebinding) would make the page's origin another's.
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return None
        token, _, name = urlsplit(self.path).path.removeprefix("/").partition("/")
        return name if secrets.compare_digest(token.encode(), self.server.token.encode()) else None

    def log_message(self, *_: Any) -> None:
        """The address has the token in it, and nobody reads such a log."""


class LocalServer(ThreadingHTTPServer):
    """Listens on loopback; the caller serves and closes it. `answer` is called with requests for anything but
    the page itself, and returns whether there is such a thing."""

    daemon_threads = True

    def __init__(self, page: WebPage, answer: Callable[[PageRequest, str], bool], port: int = 0) -> None:
        self.page, self.answer = page, answer
        self.token = secrets.token_urlsafe(16)
        try:
            super().__init__(("127.0.0.1", port), PageRequest)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be opened: {error.strerror}; choose another --port"
            ) from error

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def handle_error(self, *_: Any) -> None:
        """A browser may close a connection at any time."""
