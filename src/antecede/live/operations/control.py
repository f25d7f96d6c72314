"""How `antecede members` and `antecede console` talk to a running member: a socket in its store's folder.

Only the owner of the store can open that folder, so whoever connects may do what the application may. A
request is one line of JSON, and so is its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antecede.errors import AntecedeError, InputError
from antecede.live.operations.state import messages, state

if TYPE_CHECKING:
    from antecede.live.group import Group

CONTROL = "control"
_MAX_LINE = 1 << 20
_MAX_PATH = 100
"""Bytes of a socket's path: Linux allows 107, others fewer."""
_SECONDS = 10.0


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a member."""

    do: str
    who: str = ""


class ControlServer:
    """Answers requests while a member runs."""

    def __init__(self, group: Group, path: Path) -> None:
        self._group, self._path = group, path
        self._requests: set[asyncio.Task[Any]] = set()
        self._leaving: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_MAX_LINE)
        self._path.chmod(0o600)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    async def finish(self) -> None:
        """Wait until all requests are answered."""
        if self._requests:
            await asyncio.wait(self._requests, timeout=1.0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = cast("asyncio.Task[Any]", asyncio.current_task())
        self._requests.add(request)
        try:
            async with asyncio.timeout(_SECONDS):
                line = await reader.readline()
            reply = await self._answer(line)
            async with asyncio.timeout(_SECONDS):
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the client has disconnected, or did not send a line
        finally:
            writer.close()
            self._requests.discard(request)

    async def _answer(self, line: bytes) -> dict[str, Any]:
        group = self._group
        try:
            request = msgspec.json.decode(line, type=ControlRequest)
            if request.do == "state":
                return _built(state(group))
            if request.do == "messages":
                return _built(messages(group))
            if request.do == "leave":
                await self._leave()
            elif request.do == "remove":
                await group.remove(request.who)
            elif request.do != "list":
                raise InputError(f"there is no request '{request.do}'")
        except (AntecedeError, msgspec.DecodeError) as error:
            return {"error": str(error)}
        return {
            "group": group.settings.group,
            "protocol": group.settings.protocol,
            "me": group.me,
            "members": [msgspec.to_builtins(member) for member in group.view],
            "removing": list(group.view.removing),
        }

    async def _leave(self) -> None:
        """Leaving continues even if the client does not wait for it."""
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._group.leave())
        await asyncio.shield(self._leaving)


async def serve(group: Group, store: str) -> ControlServer | None:
    """Listen in the folder of a store that this process has locked; None where that is not possible."""
    path = Path(store) / CONTROL
    if not hasattr(asyncio, "start_unix_server") or len(os.fsencode(path)) > _MAX_PATH:
        return None

    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # left by a process that was killed
    server = ControlServer(group, path)
    try:
        await server.start()
    except OSError:
        return None
    return server


def _built(reply: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(reply)
    return built


async def ask(store: str, request: ControlRequest, seconds: float | None = _SECONDS) -> dict[str, Any]:
    """Send a request to the member that runs on a store."""
    path = Path(store) / CONTROL
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_LINE)
            writer.write(msgspec.json.encode(request) + b"\n")
            line = await reader.readline()
            writer.close()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise InputError(f"{store}: no member answers there; is it running?") from error
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"{store}: no member answers there ({error or 'too late'}); is it running?"
        ) from error
    reply: dict[str, Any] = (
        msgspec.json.decode(line) if line else {"error": "the member has closed the connection"}
    )
    if "error" in reply:
        raise InputError(reply["error"])
    return reply
