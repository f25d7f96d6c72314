"""Serves an explorer's folder to this machine alone, behind a token in its address."""

from __future__ import annotations

import re
import secrets
import shutil
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from antecede.errors import InputError
from antecede.explore.page import page, policy

_NAME = re.compile(r"data/[a-z]+(?:-[0-9]+){0,2}\.(?:bin|json)")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".bin": "application/octet-stream",
}


class _Files(BaseHTTPRequestHandler):
    """Answers requests for the page and its data, and for nothing else."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    def __init__(self, folder: Path, token: str, *arguments: Any) -> None:
        self._folder, self._token = folder, token
        super().__init__(*arguments)

    def do_GET(self) -> None:
        name = self._name()
        if name == "":
            # Not the folder's page: whoever made the folder is not to say what runs here.
            text = page("Antecede").encode()
            self._begin("text/html; charset=utf-8", len(text))
            self.wfile.write(text)
        elif name is not None and (file := self._folder / name).is_file():
            with file.open("rb") as content:
                self._begin(_KINDS[file.suffix], file.stat().st_size)
                shutil.copyfileobj(content, self.wfile, 1 << 20)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _begin(self, kind: str, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", f"{policy()}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def _name(self) -> str | None:
        """What is asked for, "" for the page; None if there is no such thing or no right to it."""
        # Another name for this address in a browser (DNS rebinding) would make the page's origin another's.
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return None
        token, _, name = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        return name if not name or _NAME.fullmatch(name) else None

    def log_message(self, *_: Any) -> None:
        """The address has the token in it, and nobody reads such a log."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A browser may close a connection at any time."""


def open_server(folder: Path, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """A server on loopback and the page's address; the caller serves and closes it."""
    token = secrets.token_urlsafe(16)
    try:
        server = _Server(("127.0.0.1", port), partial(_Files, folder, token))
    except OSError as error:
        raise InputError(f"port {port} cannot be opened: {error.strerror}; choose another --port") from error
    return server, f"http://127.0.0.1:{server.server_address[1]}/{token}/"
