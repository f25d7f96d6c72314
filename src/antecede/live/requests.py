"""Requests and replies: ordinary messages whose headers relate them to each other.

A request contains a number that its sender has drawn, and the name of the member asked; a reply contains the
number. The reply takes effect when it is delivered to the sender's application, so everything that it depends
on was delivered before, and later broadcasts depend on it. A request is forgotten with its process: a later
reply is delivered like any message.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Literal
from typing import Protocol as Interface

from antecede.errors import AntecedeError
from antecede.live.envelope import Body
from antecede.live.headers import REPLY, REQUEST, About, with_reserved
from antecede.live.messages import Message, MessageId
from antecede.live.view import View
from antecede.protocols.base import LocalError


class RequestError(AntecedeError):
    """A request has no reply, and `reason` says why:

    - `unknown`: nobody of that name is in the group; nothing was broadcast.
    - `late`: there was none in time. A later one is delivered like any message.
    - `left`, `removed`: the member asked has left, or was removed, and all its messages are delivered.
    - `closed`: this member has stopped.
    """

    def __init__(
        self, who: str, reason: Literal["unknown", "late", "left", "removed", "closed"], text: str
    ) -> None:
        super().__init__(text)
        self.who, self.reason = who, reason


class AskingGroup(Interface):
    """The group as its requests use it."""

    @property
    def me(self) -> str: ...
    @property
    def view(self) -> View: ...
    @property
    def present(self) -> frozenset[str]: ...
    @property
    def settings(self) -> Any: ...
    @property
    def _deliveries(self) -> Any: ...

    def _check_open(self) -> None: ...
    async def _send(self, body: Body, about: About, timeout: float | None) -> MessageId: ...


def find_label(group: AskingGroup, who: str) -> str | None:
    """The label for a name: that of its newest incarnation, or a phone's name. None if nobody has that
    name."""
    view = group.view
    found = [each for each in view if who in (each.label, each.name)]
    if found:
        return max(found, key=lambda each: (each.label not in view.removing, each.since or 0)).label
    return who if who.partition("~")[0] in group.present else None  # a phone is identified by its name


class _Pending:
    """A request that waits for its reply."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def fail(self, reason: Literal["left", "removed", "closed"], text: str) -> None:
        if not self.reply.done():
            self.reply.set_exception(RequestError(self.who, reason, text))


class Requests:
    """The requests of one member, and its replies to those of others."""

    def __init__(self, group: AskingGroup) -> None:
        self._group = group
        self.pending: dict[str, _Pending] = {}
        """By number."""

    async def ask(self, who: str, body: Body, about: About, timeout: float | None) -> Message:
        group = self._group
        group._check_open()
        if group._deliveries.is_held_by_this_task:
            raise LocalError(
                "this task has a message in flight, and the reply is delivered after it: "
                "make the request in a task of its own"
            )
        pending, number = _Pending(self._find(who)), secrets.token_hex(8)
        self.pending[number] = pending
        try:
            async with asyncio.timeout(timeout):
                await group._send(body, with_reserved(about, {REQUEST: f"{number} {pending.who}"}), None)
                return await pending.reply
        except TimeoutError as error:
            hint = "" if group._deliveries.is_awaited else "; no task asks for the group's next message"
            text = f"{who} has not replied within {_seconds(timeout)}{hint}"
            raise RequestError(pending.who, "late", text) from error
        finally:
            del self.pending[number]
            pending.reply.cancel()

    def _find(self, who: str) -> str:
        """The label of the addressee: the newest incarnation of a name, or a phone."""
        if (label := find_label(self._group, who)) is not None:
            return label
        raise RequestError(who, "unknown", f"{who} is not known to be in the group; nothing was broadcast")

    def take(self, message: Message) -> None:
        """A message is delivered to the application while requests are pending."""
        number = (message.reserved_header(REPLY) or [""])[0]
        pending = self.pending.get(number)
        if pending is not None and not pending.reply.done() and _is_called(message.origin, pending.who):
            pending.reply.set_result(message)

    def give_up(self, label: str, reason: Literal["left", "removed"]) -> None:
        """A member has left or was removed, and all its messages are delivered."""
        for each in self.pending.values():
            if each.who == label:
                gone = "has left the group" if reason == "left" else "was removed from the group"
                each.fail(reason, f"{label} {gone}, and has not replied")

    def close(self) -> None:
        for each in self.pending.values():
            each.fail("closed", f"{self._group.settings.me} has stopped, and {each.who} has not replied")

    def is_asked(self, message: Message) -> bool:
        group, parts = self._group, message.reserved_header(REQUEST)
        return len(parts) > 1 and parts[1] in (group.me, group.settings.me)

    async def reply(self, message: Message, body: Body, about: About, timeout: float | None) -> MessageId:
        if not self.is_asked(message):
            raise LocalError(f"{message.id} is not a request to {self._group.me}")
        number, _ = message.reserved_header(REQUEST)
        about = with_reserved(about, {REPLY: f"{number} {message.id}"})
        return await self._group._send(body, about, timeout)


def _is_called(origin: str, who: str) -> bool:
    """Whether an origin is the one that was asked, by label or by name."""
    return who in (origin, origin.partition("~")[0])


def _seconds(number: float | None) -> str:
    return "1 second" if number == 1 else f"{number or 0:g} seconds"
