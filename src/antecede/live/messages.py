"""What an application receives from a group: messages, held messages with the reason, and notices."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import msgspec

from antecede.live.envelope import decode_body, immediate_causes, unwrap
from antecede.protocols.base import Delivery

_MAX_NOTICES = 1_000
"""Notices that wait for a listener."""


class MessageId(NamedTuple):
    """A message: the name of its origin, and its sequence number there, from 1."""

    origin: str
    seq: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.seq}"


class Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A delivered message."""

    # Most applications look at a part of it, so nothing is decoded before it is asked for.
    _delivery: Delivery
    _names: list[str]
    redelivered: bool
    """It was in flight when this member's process ended, so it may have been processed before."""

    @property
    def id(self) -> MessageId:
        return MessageId(self.origin, self.seq)

    @property
    def origin(self) -> str:
        return self._names[self._delivery.message.origin]

    @property
    def seq(self) -> int:
        return self._delivery.message.seq

    @property
    def body(self) -> Any:
        """As it was passed to `broadcast`: bytes, text or JSON."""
        return decode_body(unwrap(self._delivery.payload))

    @property
    def causes(self) -> tuple[MessageId, ...]:
        """Its immediate dependencies: what its sender had delivered or broadcast last, with nothing
        between."""
        causes = immediate_causes(self._delivery, len(self._names))
        return tuple(MessageId(self._names[peer], seq) for peer, seq in sorted(causes.items()))

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return (
            f"Message({self.id}, {self.body!r}, after {', '.join(map(str, self.causes)) or 'nothing'}{again})"
        )


class HeldMessage(msgspec.Struct, frozen=True):
    """A message that has arrived and cannot be delivered yet."""

    id: MessageId
    cause: MessageId | None
    """What it waits for; None if the protocol knows that only by another's number for it."""
    since: float
    """When it arrived, in seconds since 1970."""
    holders: tuple[str, ...]
    """The members that may have the cause."""


class Notice(msgspec.Struct, frozen=True):
    """Something that happened to the group."""

    kind: Literal["joined", "lost", "refused", "gap", "recovered", "full", "room", "store", "trace"]
    member: str
    text: str
    time: float


class Notices:
    """One listener's queue. Nobody may be listening, so the oldest of many are dropped."""

    def __init__(self, on_close: Callable[[Any], None]) -> None:
        self._queue: deque[Notice] = deque(maxlen=_MAX_NOTICES)
        self._more = asyncio.Event()
        self._ended = False
        self._on_close = on_close

    def put(self, notice: Notice) -> None:
        self._queue.append(notice)
        self._more.set()

    def end(self) -> None:
        self._ended = True
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._queue.popleft()

    async def aclose(self) -> None:
        self._ended = True
        with contextlib.suppress(ValueError):
            self._on_close(self)
