"""The HTTP endpoint for operators: Prometheus metrics at /metrics, and /health.

With a `console_token`, a client that shows it also gets the data of `antecede console`: /state and /messages.
The token is sent unencrypted, so it is accepted from other machines only if the group's own links may be
insecure.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from antecede.errors import InputError, require
from antecede.live.operations.state import messages, state
from antecede.live.transport.admission import Admission, PendingConnection
from antecede.live.transport.listener import Listener

if TYPE_CHECKING:
    from antecede.live.group import Group
    from antecede.live.view import View

_MAX_HEAD = 8192
_TIMEOUT_SECONDS = 5.0
_CAPACITY = 16
"""Maximum connections. Beyond that, the oldest one of the source with the most connections is closed."""
_SHORTEST_TOKEN = 20
_THIS_MACHINE = ("127.0.0.1", "::/64")

Answer = tuple[int, str, bytes]
"""A status, the content type, and the document."""


def render(*groups: Group) -> bytes:
    """All metrics of one process in its groups, in Prometheus's text format."""
    client: Any = require("prometheus_client", "live")
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(groups))
    text: bytes = client.generate_latest(registry)
    return text


def suspected(view: View) -> list[str]:
    """The labels of suspected members."""
    return [member.label for member in view if member.suspected is not None]


class _Collector:
    """Lists each metric once, with a value for each group."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups

    def collect(self) -> Iterator[Any]:
        core: Any = require("prometheus_client.core", "live")
        labels = ["group", "member"]
        values = [[group.settings.group, group.me] for group in self._groups]
        for create, measure in (
            (core.GaugeMetricFamily, self._gauges),
            (core.CounterMetricFamily, self._counters),
        ):
            for measured in zip(*map(measure, self._groups), strict=True):
                name, text, _ = measured[0]
                family = create(f"antecede_{name}", text, labels=labels)
                for of_group, (_, _, value) in zip(values, measured, strict=True):
                    family.add_metric(of_group, value)
                yield family
        problems = core.GaugeMetricFamily(
            "antecede_problems",
            "conditions that a person must act on; /health says more",
            labels=[*labels, "kind"],
        )
        rejected = core.CounterMetricFamily(
            "antecede_rejected", "connections refused or cut off", labels=[*labels, "reason"]
        )
        for of_group, group in zip(values, self._groups, strict=True):
            for kind, number in sorted(Counter(problem.kind for problem in group.problems()).items()):
                problems.add_metric([*of_group, kind], number)
            for name, value in sorted(group.counts.items()):
                if name.startswith("rejected "):
                    rejected.add_metric([*of_group, name.removeprefix("rejected ")], value)
        yield problems
        yield rejected

    @staticmethod
    def _gauges(group: Group) -> list[tuple[str, str, float]]:
        view = group.view
        return [
            ("held_messages", "messages that have arrived and are held for a cause", group.held),
            (
                "held_oldest_seconds",
                "how long the oldest of them has been held",
                group._inspection.held_seconds(),
            ),
            (
                "unstable_bytes",
                "bytes of messages that not every member is known to have delivered",
                group.unstable_bytes,
            ),
            ("limit_bytes", "unstable bytes at which broadcast waits", group.settings.limit),
            ("connected_partners", "partners with a connection", len(group.connected)),
            ("store_bytes", "size of the store", group.store_bytes),
            ("members", "members of the group", len(view)),
            ("suspected_members", "members that seem to be down", len(suspected(view))),
            ("removing_members", "members whose removal is under way", len(view.removing)),
        ]

    @staticmethod
    def _counters(group: Group) -> list[tuple[str, str, float]]:
        delivered = group.delivered()
        sent = delivered.pop(group.me)
        return [
            ("delivered", "messages of others delivered to the application", sum(delivered.values())),
            ("sent", "messages accepted for broadcast", sent),
            ("connections", "connections made", group.counts["connections"]),
            ("lost_connections", "connections lost", group.counts["lost"]),
            ("resent_packets", "packets sent again", group.counts["resent"]),
            ("recovered", "missing messages that another member supplied", group.counts["recovered"]),
        ]


def health(group: Group) -> tuple[int, bytes]:
    """An HTTP status and a JSON document, for a supervisor: 503 if the member cannot work and must be
    restarted; 200 with a list of problems if it works, and a person must act on them."""
    view = group.view
    report = {
        "state": group.state,
        "group": group.settings.group,
        "member": group.me,
        "connected": list(group.connected),
        "members": list(group.members),
        "suspected": suspected(view),
        "removing": list(view.removing),
        "held": group.held,
        "unstable_bytes": group.unstable_bytes,
        "problems": group.problems(),
    }
    return (200 if group.state == "open" else 503), msgspec.json.encode(report) + b"\n"


async def serve(group: Group, where: str) -> Listener:
    """Answer GET /metrics and GET /health, with a token /state and /messages, and nothing else."""
    token = None if group.settings.console_token is None else read_token(group.settings.console_token)

    def answer(line: str, fields: list[str], host: str) -> Answer:
        is_near = group.settings.insecure or ipaddress.ip_address(host).is_loopback
        refusal = None if token is None else _refusal(token, fields, is_near)
        return _answer(group, line, has_console=token is not None, refusal=refusal)

    return await listen(where, group.counts, answer)


async def listen(
    where: str, counts: Counter[str], answer: Callable[[str, list[str], str], Answer]
) -> Listener:
    """Serve HTTP at an address. `answer` is called with the request line, its fields and the client's
    address."""

    async def serve_one(connected: socket.socket, pending: PendingConnection) -> None:
        reader = asyncio.StreamReader(_MAX_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connected)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        pending.close = transport.abort
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await _answer_request(answer, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client does not speak HTTP
        finally:
            transport.abort()

    # Separate from the admission control of the group's own ports: monitoring must not compete with members.
    admission = Admission(_CAPACITY, _THIS_MACHINE, counts)
    listener = Listener(admission, serve_one)
    await listener.start("metrics", where)
    return listener


def read_token(path: str) -> str:
    """The token in a file, as `antecede keys --secret` makes it."""
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise InputError(
            f"console_token: {path}: {reason}; it must name a file, as `antecede keys --secret` makes"
        ) from error
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or len(token.split()) > 1:
        raise InputError(
            f"console_token: {path} must have at least {_SHORTEST_TOKEN} characters without spaces that "
            "nobody can guess"
        )
    return token


async def _answer_request(
    answer: Callable[[str, list[str], str], Answer],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    host = writer.get_extra_info("peername")[0].partition("%")[0]
    code, kind, body = answer(line, fields, host)
    writer.write(
        f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()  # wait for the data to be sent


def _refusal(token: str, fields: list[str], is_near: bool) -> str | None:
    """Why a client may not see the state; None if it may."""
    if not is_near:
        return "the state is shown on this machine only: use ssh -L, or set `insecure` to true"
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "authorization":
            shown = value.strip().removeprefix("Bearer ").encode()
            return None if secrets.compare_digest(shown, token.encode()) else "this is another token"
    return "show the token: Authorization: Bearer TOKEN"


_REASONS = {
    200: "OK",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


def _answer(group: Group, line: str, has_console: bool, refusal: str | None) -> Answer:
    path = path_of(line)
    pages: dict[str, Callable[[], Answer]] = {
        "/metrics": lambda: (200, _TEXT, render(group)),
        "/health": lambda: (health(group)[0], _JSON, health(group)[1]),
    }
    for_console: dict[str, Callable[[], Any]] = {
        "/state": lambda: state(group),
        "/messages": lambda: messages(group),
    }
    if has_console and path in for_console:
        if refusal is not None:
            return 403, _TEXT, f"{refusal}\n".encode()
        pages[path] = lambda: (200, _JSON, msgspec.json.encode(for_console[path]()))
    return open_page(line, pages)


def answer_for_groups(state: str, groups: Sequence[Group], line: str) -> Answer:
    """The answers of a process in several groups: 503 if the process or any of its groups cannot work."""

    def show_health() -> Answer:
        found = [health(group) for group in groups]
        code = 200 if state == "open" and all(each == 200 for each, _ in found) else 503
        report = {"state": state, "groups": [msgspec.Raw(document) for _, document in found]}
        return code, _JSON, msgspec.json.encode(report) + b"\n"

    return open_page(line, {"/metrics": lambda: (200, _TEXT, render(*groups)), "/health": show_health})


def path_of(line: str) -> str:
    """The path in a request line."""
    return line.partition(" ")[2].partition(" ")[0].partition("?")[0]


def open_page(line: str, pages: Mapping[str, Callable[[], Answer]]) -> Answer:
    path, method = path_of(line), line.partition(" ")[0]
    if path not in pages:
        return 404, _TEXT, b"only /metrics and /health exist\n"
    if method not in ("GET", "HEAD"):
        return 405, _TEXT, b"GET only\n"
    code, kind, body = pages[path]()
    return code, kind, body if method == "GET" else b""
