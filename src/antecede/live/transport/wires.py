"""Transports that carry whole frames: TCP between servers, WebSocket to members behind a super peer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
from typing import Any, Protocol

from antecede.errors import require
from antecede.live.security.identity import Proof
from antecede.live.settings import FaultInjection, address
from antecede.live.transport.frames import MAX_BYTES, Packets, add_lengths, encode, read_length
from antecede.units import SECOND, parse_duration, parse_range

_PACKETS_TAG = encode(Packets(1, []))[1]
"""The second byte of a frame with packets."""

CUT = "fault injection cuts a connection"
"""The line in a member's log for each."""
READ_AHEAD = 1 << 17
"""Bytes that are buffered before they are read."""
_READS_IN_A_ROW = 64
_log = logging.getLogger("antecede.live")


class Wire(Protocol):
    """One transport connection. Reading or writing after its end raises `ConnectionError`."""

    @property
    def max_bytes(self) -> int:
        """The longest frame that is read; small before authentication."""
        ...

    @max_bytes.setter
    def max_bytes(self, value: int) -> None: ...

    proof: Proof | None
    """How the other side has authenticated, if it did."""

    async def read(self) -> bytes: ...

    async def write(self, frames: list[bytes]) -> None: ...

    async def finish(self) -> None:
        """Send nothing more; pending data still arrives."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...

    def info(self, what: str) -> Any:
        """Information from the transport: `peercert`, `peername`."""
        ...


class TcpWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.max_bytes = MAX_BYTES
        self._reads = 0
        self.proof: Proof | None = None

    @classmethod
    async def accept(cls, connected: socket.socket) -> TcpWire:
        """Wrap a socket that a listener has accepted."""
        loop = asyncio.get_running_loop()
        streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        reader = asyncio.StreamReader(READ_AHEAD, loop)
        # With a callback, `start_tls` knows that this is the server side.
        protocol = asyncio.StreamReaderProtocol(reader, lambda *pair: streams.append(pair), loop)
        await loop.connect_accepted_socket(lambda: protocol, connected)
        return cls(*streams[0])

    @classmethod
    async def dial(cls, where: str, context: ssl.SSLContext | None) -> TcpWire:
        host, port = address(where, "peers")
        try:
            return cls(*await asyncio.open_connection(host, port, ssl=context, limit=READ_AHEAD))
        except UnicodeError as error:
            raise ConnectionRefusedError(f"'{host}' is not a host name") from error

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Request a certificate from the caller. asyncio's own TLS server would hide why a handshake
        failed."""
        before = self._writer.transport
        try:
            await self._writer.start_tls(context)
        except AttributeError as error:  # the connection has ended, and asyncio has no transport for it
            before.abort()
            raise ConnectionResetError("the connection ended during the handshake") from error

    def info(self, what: str) -> Any:
        return self._writer.get_extra_info(what)

    async def read(self) -> bytes:
        self._reads += 1
        if self._reads % _READS_IN_A_ROW == 0:
            # Buffered frames are read without yielding: many short frames of one partner would starve other
            # tasks.
            await asyncio.sleep(0)
        try:
            return await self._reader.readexactly(
                read_length(await self._reader.readexactly(4), self.max_bytes)
            )
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the other side closed the connection") from error

    async def write(self, frames: list[bytes]) -> None:
        self._writer.write(add_lengths(frames))
        await self._writer.drain()

    async def finish(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()
        else:
            self._writer.close()

    def abort(self) -> None:
        if self._writer.transport is not None:
            self._writer.transport.abort()


class WebWire:
    def __init__(self, connection: Any) -> None:
        self._socket = connection
        self.proof: Proof | None = None

    @property
    def max_bytes(self) -> int:
        return int(self._socket.protocol.max_message_size)

    @max_bytes.setter
    def max_bytes(self, value: int) -> None:
        # The limit of a frame is read when its first bytes arrive.
        self._socket.protocol.max_message_size = value

    def info(self, what: str) -> Any:
        return self._socket.transport.get_extra_info(what)

    @classmethod
    async def dial(cls, where: str, context: ssl.SSLContext | None) -> WebWire:
        client = require("websockets.asyncio.client", "live")
        exceptions = require("websockets.exceptions", "live")
        try:
            options = {"max_size": MAX_BYTES, "compression": None, "ping_interval": None}
            connection = await client.connect(where, ssl=context, **options)
        except ssl.SSLError:
            raise  # it may be a ValueError too
        except (exceptions.WebSocketException, ValueError) as error:
            raise ConnectionRefusedError(str(error)) from error
        return cls(connection)

    async def read(self) -> bytes:
        exceptions = require("websockets.exceptions", "live")
        try:
            data = await self._socket.recv()
        except exceptions.ConnectionClosed as error:
            raise ConnectionResetError("the other side closed the connection") from error
        return data if isinstance(data, bytes) else data.encode()

    async def write(self, frames: list[bytes]) -> None:
        exceptions = require("websockets.exceptions", "live")
        try:
            for frame in frames:
                await self._socket.send(frame)
        except exceptions.ConnectionClosed as error:
            raise ConnectionResetError("the other side closed the connection") from error

    async def finish(self) -> None:
        await self._socket.close()

    def abort(self) -> None:
        self._socket.transport.abort()


async def dial(where: str, context: ssl.SSLContext | None) -> Wire:
    """Connect to a member at its address."""
    if not where.startswith(("ws://", "wss://")):
        return await TcpWire.dial(where, context)
    if where.startswith("wss://") != (context is not None):
        raise ConnectionRefusedError(
            "ws:// is unencrypted and wss:// is not: the address does not match the keys"
        )
    return await WebWire.dial(where, context)


class FaultyWire:
    """Injects delays, lost packets and cuts, for trials. Frames stay in order."""

    def __init__(self, inner: Wire, faults: FaultInjection, rng: random.Random) -> None:
        self._inner, self._rng, self._loss = inner, rng, faults.loss
        self.proof = inner.proof
        self._delay = parse_range(faults.delay)
        self._due: asyncio.Queue[tuple[float, list[bytes]]] = asyncio.Queue(1000)
        self._last = 0.0
        self._carrier = asyncio.create_task(self._carry())
        if faults.cut_every is not None:
            mean = parse_duration(faults.cut_every) / SECOND
            asyncio.get_running_loop().call_later(rng.expovariate(1 / mean), self._cut)

    def _cut(self) -> None:
        if not self._carrier.done():
            _log.info(CUT)
            self.abort()

    @property
    def max_bytes(self) -> int:
        return self._inner.max_bytes

    @max_bytes.setter
    def max_bytes(self, value: int) -> None:
        self._inner.max_bytes = value

    async def read(self) -> bytes:
        return await self._inner.read()

    def info(self, what: str) -> Any:
        return self._inner.info(what)

    async def write(self, frames: list[bytes]) -> None:
        if self._carrier.done():
            raise ConnectionResetError("the connection broke")
        passed = [frame for frame in frames if frame[1] != _PACKETS_TAG or self._rng.random() >= self._loss]
        wait = self._rng.uniform(*self._delay) / SECOND
        self._last = max(self._last, asyncio.get_running_loop().time() + wait)
        await self._due.put((self._last, passed))

    async def _carry(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                due, frames = await self._due.get()
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                await self._inner.write(frames)
        self._inner.abort()

    async def finish(self) -> None:
        while not self._due.empty() and not self._carrier.done():
            await asyncio.sleep(0.01)
        await self._inner.finish()

    def abort(self) -> None:
        self._carrier.cancel()
        self._inner.abort()
