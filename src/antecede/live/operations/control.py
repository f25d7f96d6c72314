"""How `antecede members` and `antecede console` talk to a running member: a socket in its store's folder.

Nobody but the owner of the store can open that folder, so whoever connects may do what the application may.
A request is one line of JSON, and so is its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """What is asked of a member."""

    do: str
    who: str = ""


class ControlServer:
    """Answers requests, as long as a member runs."""

    def __init__(self, group: Group, server: asyncio.Server, path: Path) -> None:
        self._group, self._server, self._path = group, server, path

    def close(self) -> None:
        self._server.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


async def serve(group: Group, store: str) -> ControlServer | None:
    """Listen in a store, whose lock this process has; None where that is not possible."""
    path = Path(store) / CONTROL
    if not hasattr(asyncio, "start_unix_server") or len(os.fsencode(path)) > _MAX_PATH:
        return None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                reply = await _answer(group, await reader.readline())
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # whoever asked has gone, or did not ask in a line
        finally:
            writer.close()

    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # of a process that was killed
    try:
        server = await asyncio.start_unix_server(answer, path, limit=_MAX_LINE)
        path.chmod(0o600)
    except OSError:
        return None
    return ControlServer(group, server, path)


async def _answer(group: Group, line: bytes) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(line, type=ControlRequest)
        if request.do == "state":
            return _built(state(group))
        if request.do == "messages":
            return _built(messages(group))
        if request.do == "remove":
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


def _built(reply: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(reply)
    return built


async def ask(store: str, request: ControlRequest) -> dict[str, Any]:
    """Ask the member that runs on a store."""
    path = Path(store) / CONTROL
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_LINE)
            writer.write(msgspec.json.encode(request) + b"\n")
            line = await reader.readline()
            writer.close()
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"{store}: no member answers there ({error or 'too late'}); is it running?"
        ) from error
    reply: dict[str, Any] = msgspec.json.decode(line) if line else {"error": "the member has closed"}
    if "error" in reply:
        raise InputError(reply["error"])
    return reply
