"""Downloads a file from a web server that may be slow, broken or hostile.

Only http and https are spoken. A redirect may not leave them, nor lead from https to http, and takes the
credentials of a URL (`https://USER:PASSWORD@host/…`) to no other server. The body is written to disk as it
comes, up to a limit, and has to be as long as the server said. What decompresses it later is bounded as for
any other file (`trace.foreign.open_files`).

A server that stops, or that sends so little that the download would not end, is given up: each step has a
time limit, and a thread watches what arrives and closes the connection if it is too little.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.foreign.open_files import MAX_BYTES

SCHEMES = ("http", "https")
Progress = Callable[[str, int, int], None]

_CHUNK = 1 << 16
_MAX_REDIRECTS = 5
_MAX_NAME = 100
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"
_READABLE_ENCODINGS = ("", "identity", "gzip", "x-gzip", "zstd")
"""Content encodings of a body: none, or one that the readers of files recognise."""
_ENDINGS = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/json": ".json",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/vnd.apache.parquet": ".parquet",
}
"""The ending by the content type that the server reports, for URLs that do not end in a file name."""


class Patience(NamedTuple):
    """How slow a server may be before the download is abandoned."""

    step: float = 30.0
    """The most seconds without a byte."""
    start: float = 60.0
    """Seconds before the rate is checked."""
    rate: float = 1024.0
    """The least bytes per second, on average."""


def without_secrets(url: str) -> str:
    """A URL as it may be shown: without user, password, query and fragment, in which signatures are.

    >>> without_secrets("https://ana:secret@example.org/a%20b.csv?sig=1#x")
    'https://example.org/a%20b.csv'
    >>> without_secrets("abfss://container@account.example.org/log")
    'abfss://container@account.example.org/log'
    """
    parts = urlsplit(url)
    # In other URL schemes, the part before the @ is the name of a container, unless it contains a password.
    has_secret = parts.scheme.lower() in SCHEMES or parts.password is not None
    server = _server(parts) if has_secret else parts.netloc
    return urlunsplit((parts.scheme, server, quote(parts.path, safe=_PATH_CHARACTERS), "", ""))


def _server(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def download(
    url: str,
    folder: Path,
    max_bytes: int | None = None,
    progress: Progress = lambda *_: None,
    patience: Patience | None = None,
) -> Path:
    """Download a file into a folder. `max_bytes` is 2 GiB by default; errors are InputError."""
    shown = without_secrets(url)
    limit = MAX_BYTES if max_bytes is None else max_bytes
    patience = patience or Patience()
    watch = _Watch(patience)
    try:
        with watch, _opener(watch).open(_request(url, shown), timeout=patience.step) as response:
            length = _announced_length(response.headers, shown, limit)
            file = folder / _file_name(urlsplit(url).path, response.headers)
            with file.open("wb") as out:
                while data := response.read1(_CHUNK):
                    watch.received += len(data)
                    if watch.received > limit:
                        raise _too_long(shown, limit)
                    out.write(data)
                    progress("downloading", watch.received, length or 0)
    except HTTPError as error:
        error.close()
        raise InputError(f"{shown}: {_refusal(error)}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{shown} {watch.reason(error)}") from error
    if watch.gave_up or (length is not None and watch.received != length):
        raise InputError(f"{shown} {watch.reason(None, length)}")
    return file


def _request(url: str, shown: str) -> urllib.request.Request:
    parts = urlsplit(url)
    if not parts.hostname:
        raise InputError(f"{shown} names no server; write https://HOST/PATH")
    query = quote(parts.query, safe=_PATH_CHARACTERS + "?")
    path = quote(parts.path, safe=_PATH_CHARACTERS)
    plain = urlunsplit((parts.scheme, _server(parts), path or "/", query, ""))
    request = urllib.request.Request(  # noqa: S310 (http and https only: see _opener)
        plain, headers={"User-Agent": "antecede", "Accept-Encoding": "identity"}
    )
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
    return request


def _announced_length(headers: Message, shown: str, limit: int) -> int | None:
    encoding = headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _READABLE_ENCODINGS:
        raise InputError(
            f"{shown}: the server compresses it as {brief(encoding)}, which is not read; download it with "
            "another program"
        )
    text = headers.get("Content-Length", "").strip()
    length = (
        int(text) if re.fullmatch(r"[0-9]{1,18}", text) and not headers.get("Transfer-Encoding") else None
    )
    if length is not None and length > limit:
        raise _too_long(shown, limit)
    return length


def _too_long(shown: str, limit: int) -> InputError:
    return InputError(
        f"{shown} has more than {limit:,} bytes; if it should be read all the same, give --max-bytes"
    )


def _file_name(path: str, headers: Message) -> str:
    """The name in the URL, stripped of anything unsafe in a file name; its ending may indicate the format."""
    last = unquote(path).rpartition("/")[2]
    name = re.sub(r"[^\w.+=-]", "_", last, flags=re.ASCII).lstrip("._")[-_MAX_NAME:] or "download"
    return name if Path(name).suffix else name + _ENDINGS.get(headers.get_content_type(), "")


def _refusal(error: HTTPError) -> str:
    if 300 <= error.code < 400:
        return "the server redirects again and again, or to nowhere"
    remedy = ""
    if error.code in (401, 403):
        remedy = "; give credentials as in https://USER:PASSWORD@HOST/…, or download it first"
    return f"the server answered {error.code} {brief(str(error.reason))}{remedy}"


# Connections


class _Watch:
    """A thread that closes the connections of a download that is too slow."""

    def __init__(self, patience: Patience) -> None:
        self._patience, self._done = patience, threading.Event()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._look, name="antecede-download", daemon=True)
        self._start = time.monotonic()
        self.received = 0
        self.gave_up = False

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def add(self, connection: socket.socket) -> None:
        self._sockets.append(connection)

    def _look(self) -> None:
        while not self._done.wait(min(1.0, self._patience.start / 4)):
            elapsed = time.monotonic() - self._start
            if elapsed > self._patience.start and self.received < self._patience.rate * elapsed:
                self.gave_up = True
                for each in self._sockets:
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)

    def reason(self, error: Exception | None, length: int | None = None) -> str:
        """Why the download failed."""
        if self.gave_up or isinstance(error, TimeoutError | socket.timeout):
            return f"was given up: the server has sent {self.received:,} bytes and is too slow"
        why = getattr(error, "reason", error)
        if isinstance(why, TimeoutError):
            return "cannot be downloaded: the server does not answer"
        if error is None or isinstance(error, http.client.IncompleteRead):
            of = "" if length is None else f" of {length:,}"
            return f"is not complete: the connection ended after {self.received:,}{of} bytes"
        if isinstance(error, http.client.HTTPException | ValueError):
            return "cannot be downloaded: the server's answer is not HTTP"
        return f"cannot be downloaded: {brief(str(getattr(why, 'strerror', None) or why))}"


class _HttpConnection(http.client.HTTPConnection):
    watch: _Watch

    def connect(self) -> None:
        super().connect()
        self.watch.add(self.sock)


class _HttpsConnection(http.client.HTTPSConnection):
    watch: _Watch

    def connect(self) -> None:
        super().connect()
        self.watch.add(self.sock)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _MAX_REDIRECTS

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any
    ) -> Any:
        target = headers.get("location") or headers.get("uri") or ""
        scheme = urlsplit(target).scheme.lower()
        if scheme and (scheme not in SCHEMES or (req.type == "https" and scheme != "https")):
            allowed = "https" if req.type == "https" else "http or https"
            raise InputError(
                f"{without_secrets(req.full_url)} redirects to {brief(without_secrets(target))}, which is "
                f"not followed: a redirect has to stay with {allowed}"
            )
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and urlsplit(new.full_url)[:2] != urlsplit(req.full_url)[:2]:
            new.remove_header("Authorization")
        return new


def _opener(watch: _Watch) -> urllib.request.OpenerDirector:
    """An opener for http and https, through the proxies of the environment, and for nothing else."""

    def watched(kind: type[Any]) -> Callable[..., Any]:
        def make(*arguments: Any, **options: Any) -> Any:
            connection = kind(*arguments, **options)
            connection.watch = watch
            return connection

        return make

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(watched(_HttpConnection), req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(watched(_HttpsConnection), req, context=ssl.create_default_context())

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        Http(),
        Https(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener
