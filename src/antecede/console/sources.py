"""How members are asked: through the socket in a store, by HTTP with a token, or in the same process."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Protocol

import msgspec

from antecede.errors import InputError
from antecede.live.group import Group
from antecede.live.operations import control
from antecede.live.operations.state import MemberMessages, MemberReport, messages, state

Question = Literal["state", "messages"]
_MAX_ANSWER = 4 << 20
"""The most bytes of an answer from another machine."""


class MemberSource(Protocol):
    """A member that the console asks."""

    @property
    def name(self) -> str:
        """The name to show before the member has reported its own."""

    async def ask(self, question: Question) -> Any:
        """Ask for a `MemberReport` or `MemberMessages`; an `InputError` says why there is none."""


def _read(question: Question, answer: bytes | dict[str, Any]) -> Any:
    kind: Any = MemberReport if question == "state" else MemberMessages
    try:
        if isinstance(answer, bytes):
            return msgspec.json.decode(answer, type=kind)
        return msgspec.convert(answer, kind)
    except msgspec.DecodeError as error:
        raise InputError(f"its answer is not that of a member of this version ({error})") from error


class StoreSource:
    """A member on this machine, with a store that this user may open."""

    def __init__(self, store: str, name: str) -> None:
        self.name, self._store = name, store

    async def ask(self, question: Question) -> Any:
        return _read(question, await control.ask(self._store, control.ControlRequest(question)))


class HttpSource:
    """A member at its address for metrics."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.name, self._host, self._port, self._token = f"{host}:{port}", host, port, token

    async def ask(self, question: Question) -> Any:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=_MAX_ANSWER)
        except OSError as error:
            raise InputError(f"{self.name}: {error.strerror or 'it cannot be reached'}") from error
        try:
            head = f"GET /{question} HTTP/1.1\r\nHost: {self.name}\r\nAuthorization: Bearer {self._token}"
            writer.write(f"{head}\r\n\r\n".encode())
            status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].split(b" ")[1:2]
            body = await reader.read(_MAX_ANSWER)
            while more := await reader.read(_MAX_ANSWER - len(body)):
                body += more
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise InputError(f"{self.name}: it is not a member's address for metrics") from error
        finally:
            writer.close()
        if status == [b"403"]:
            raise InputError(f"{self.name}: {body.decode(errors='replace').strip()[:200]}")
        if status != [b"200"]:
            raise InputError(f"{self.name}: it has no console_token, so it does not report its state")
        return _read(question, body)


class GroupSource:
    """A member in this process."""

    def __init__(self, group: Group) -> None:
        self.name, self._group = group.me, group
        self._loop = asyncio.get_running_loop()

    async def ask(self, question: Question) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._take(question), self._loop))

    async def _take(self, question: Question) -> Any:
        """Runs in the group's own thread."""
        return state(self._group) if question == "state" else messages(self._group)
