"""A port of a member: accepts connections, and serves each only when it has sent something and is admitted.

asyncio's own server creates a transport for every connection before anything can be decided about it. Here a
connection that is not admitted costs two system calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from antecede.errors import InputError
from antecede.listening import describe_listen_error
from antecede.live.operations.logs import LOG
from antecede.live.settings import address
from antecede.live.transport.admission import Admission, PendingConnection, source_of

_BACKLOG = 4096
_AT_ONCE = 32
"""Connections that are accepted in a row before other tasks run."""
_SWEEP_SECONDS = 1.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Serve = Callable[[socket.socket, PendingConnection], Awaitable[None]]


class Listener:
    """Listens at one address. `serve` is called with each connection that is admitted, in a task."""

    def __init__(self, admission: Admission, serve: Serve) -> None:
        self._admission, self._serve = admission, serve
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def start(self, setting: str, where: str) -> None:
        """Listen at all addresses of the host that a setting names."""
        try:
            await self._open(*address(where, setting))
        except (OSError, UnicodeError) as error:
            reason = describe_listen_error(error)
            raise InputError(f"{setting}: cannot listen at {where}: {reason}") from None
        for listening in self._sockets:
            self._spawn(self._accept(listening))
        self._spawn(self._sweep())

    async def _open(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_bind(family, kind, protocol, address))
        except BaseException:
            self.close()
            raise
        self._is_open = True

    @property
    def address(self) -> str:
        """Where it listens: host:port."""
        host, port = self._sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def is_open(self) -> bool:
        return self._is_open

    def close(self) -> None:
        """Accept no more connections. Those being served continue."""
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._consider(*await loop.sock_accept(listening))
                # Further clients wait in the kernel's queue, without a future for each. If it overflowed, the
                # kernel would drop members' requests along with those of strangers.
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_AT_ONCE):
                        self._consider(*listening.accept())
                await asyncio.sleep(0)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    LOG.warning("cannot accept a connection: %s; closing strangers", error.strerror)
                    self._admission.close_all()
                await asyncio.sleep(0.1)

    def _consider(self, connected: socket.socket, address: Any) -> None:
        """Start serving a connection that has sent something; wait for one that has not."""
        connected.setblocking(False)
        loop = asyncio.get_running_loop()

        def close() -> None:
            loop.remove_reader(connected)
            _reset(connected)

        pending = self._admission.connected(source_of(address), close)
        if pending is None:
            _reset(connected)
            return
        if (has_spoken := _has_spoken(connected)) is None:
            with contextlib.suppress(NotImplementedError):  # Windows: its loop cannot watch sockets
                loop.add_reader(connected, self._on_readable, connected, pending)
                return
            has_spoken = True
        self._decide(connected, pending, has_spoken)

    def _on_readable(self, connected: socket.socket, pending: PendingConnection) -> None:
        """It has sent something, or has disconnected."""
        if (has_spoken := _has_spoken(connected)) is not None:
            asyncio.get_running_loop().remove_reader(connected)
            self._decide(connected, pending, has_spoken)

    def _decide(self, connected: socket.socket, pending: PendingConnection, has_spoken: bool) -> None:
        pending.close = lambda: _reset(connected)
        if has_spoken:
            self._begin(connected, pending)
        else:
            self._admission.ended(pending)
            _reset(connected)

    def _begin(self, connected: socket.socket, pending: PendingConnection) -> None:
        if not self._is_open or not self._admission.may_begin(pending):
            self._admission.ended(pending)
            _reset(connected)
            return
        task = asyncio.create_task(self._run(connected, pending))
        pending.close = task.cancel  # type: ignore[assignment]

    async def _run(self, connected: socket.socket, pending: PendingConnection) -> None:
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._serve(connected, pending)
        finally:
            self._admission.ended(pending)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._admission.close_overdue()


def _bind(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        if hasattr(socket, "AF_INET6") and family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # On Windows this option would let another process take over the port.
        if not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _has_spoken(connected: socket.socket) -> bool | None:
    """Whether there is data to read; None if it may still arrive, False if the other side has
    disconnected."""
    try:
        return bool(connected.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return None
    except OSError:
        return False


def _reset(connected: socket.socket) -> None:
    """Close with a reset: the kernel keeps no state."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    connected.close()
