"""WebSockets at a super peer's port, for phones and browsers.

A browser sends the origin of the page that opens the WebSocket. A stranger's page must not reach a member
through the browser of an authorised user, so only pages of this host are accepted, and those of the setting
`web_origins`. Clients other than browsers send no origin.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ProtocolError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from antecede.live.transport.admission import DEADLINE_SECONDS, PendingConnection

_MAX_REQUEST_BYTES = 16 * 1024
_MAX_FRAMING = 1024
_MAX_FRAGMENTS = 4096
_MAX_UNREAD_ANSWERS = 1 << 20
_SLICE = 8192
_CLOSING_SECONDS = 1.0
_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}

Accept = Callable[[ServerConnection, PendingConnection], Awaitable[None]]


class _BoundedProtocol(ServerProtocol):
    """A WebSocket protocol that bounds fragments: the library bounds the bytes of a message, but not its
    fragments."""

    _fragments = 0

    def recv_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CONT:
            self._fragments += 1
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._fragments = 0
        if self._fragments > _MAX_FRAGMENTS:
            raise ProtocolError(f"a message of more than {_MAX_FRAGMENTS} fragments")
        super().recv_frame(frame)


class _BoundedConnection(ServerConnection):
    """A WebSocket that its creator serves, and that cannot exhaust or block this process.

    Until its greeting is accepted, everything that it sends is bounded: pings and empty fragments count
    towards no message's length. From then on its data is processed in slices, and other tasks run in between:
    a short frame costs as much time as a long one.
    """

    def __init__(self, protocol: ServerProtocol, server: Any, max_greeting: int) -> None:
        super().__init__(protocol, server, ping_interval=None)
        self._max_greeting = max_greeting
        self._bytes = 0
        self._unprocessed = bytearray()
        self._is_scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super(ServerConnection, self).connection_made(transport)
        self.recv_messages.resume = self._go_on

    def data_received(self, data: bytes) -> None:
        longest = self.protocol.max_message_size or 0
        if longest <= self._max_greeting:  # it is raised when the greeting is accepted
            self._bytes += len(data)
            has_requested = self.request_rcvd.done()
            allowed = _MAX_REQUEST_BYTES + (self._max_greeting + _MAX_FRAMING if has_requested else 0)
            if self._bytes > allowed:
                self.transport.abort()
                return
        elif self.transport.get_write_buffer_size() > longest + _MAX_UNREAD_ANSWERS:
            self.transport.abort()  # it does not read the answers to its pings
            return
        if len(data) <= _SLICE and not self._unprocessed:
            self._process(data)
            return
        self.transport.pause_reading()
        self._unprocessed += data
        self._go_on()

    def _go_on(self) -> None:
        """Process more, or read more, unless received messages are not being consumed."""
        if self.recv_messages.paused or self._is_scheduled:
            return
        if self._unprocessed:
            self._is_scheduled = True
            self.loop.call_soon(self._process_slice)
        else:
            self.transport.resume_reading()

    def _process_slice(self) -> None:
        self._is_scheduled = False
        if not self.transport.is_closing():
            data = bytes(self._unprocessed[:_SLICE])
            del self._unprocessed[:_SLICE]
            self._process(data)
            self._go_on()

    def _process(self, data: bytes) -> None:
        super().data_received(data)
        if self.protocol.parser_exc is not None and self.protocol.close_expected():
            # The reason is on its way. A client that violates the protocol may never close.
            self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)

    def eof_received(self) -> None:
        if self._unprocessed:
            self.transport.abort()
        else:
            super().eof_received()


class WebPort:
    """Turns connections into WebSockets, and passes each to `accept`."""

    def __init__(
        self,
        context: ssl.SSLContext | None,
        hosts: Iterable[str],
        origins: Iterable[str],
        max_bytes: int,
        accept: Accept,
    ) -> None:
        self._context, self._accept, self._max_bytes = context, accept, max_bytes
        self._hosts = _LOCAL_HOSTS | {host.lower() for host in hosts}
        self._origins = {origin.lower().rstrip("/") for origin in origins}

    def is_serving(self) -> bool:
        """Called by a `ServerConnection` on its server."""
        return True

    async def serve(self, connected: socket.socket, pending: PendingConnection) -> None:
        """Serve one connection, from TLS to its end."""
        server: Any = self
        protocol = _BoundedProtocol(max_size=self._max_bytes)
        connection = _BoundedConnection(protocol, server, self._max_bytes)
        timeout = DEADLINE_SECONDS if self._context is not None else None
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection, connected, ssl=self._context, ssl_handshake_timeout=timeout
        )
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await connection.handshake(self._check_origin, None, None)
            if connection.protocol.state is OPEN:
                await self._accept(connection, pending)
        finally:
            connection.transport.abort()

    def _check_origin(self, connection: ServerConnection, request: Request) -> Response | None:
        origins = request.headers.get_all("Origin")
        if all(self._is_allowed(origin, connection.local_address) for origin in origins):
            return None
        return connection.respond(
            HTTPStatus.FORBIDDEN,
            f"pages of {', '.join(origins)} may not connect to this member: see its setting web_origins\n",
        )

    def _is_allowed(self, origin: str, own_address: Any) -> bool:
        """Whether a page of this origin may connect.

        The request's Host header proves nothing: under a name that a stranger lets resolve to this address,
        it would be equal to the origin (DNS rebinding).
        """
        if origin.lower().rstrip("/") in self._origins:
            return True
        try:
            host = (urlsplit(origin).hostname or "").lower()
        except ValueError:
            return False
        return host in self._hosts or _is_address(host, own_address)


def _is_address(host: str, own_address: Any) -> bool:
    try:
        return ipaddress.ip_address(host) == ipaddress.ip_address(str(own_address[0]))
    except ValueError:
        return False
