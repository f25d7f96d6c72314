"""What a group gives: messages, what is held and why, and what happens to the group."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import msgspec

from antecede.live.core import Popped
from antecede.live.envelope import opened

_MOST = 1_000
"""Notices that wait for somebody to listen."""


class Id(NamedTuple):
    """Which message: who sent it, and its number among theirs, from 1."""

    origin: str
    seq: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.seq}"


class Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What somebody said."""

    # Most applications ask for a part of it, so nothing is made before it is asked for.
    _popped: Popped
    _names: list[str]
    redelivered: bool
    """It was in hand when this member's process ended, so it may have been dealt with before."""

    @property
    def id(self) -> Id:
        return Id(self.origin, self.seq)

    @property
    def origin(self) -> str:
        return self._names[self._popped.message.origin]

    @property
    def seq(self) -> int:
        return self._popped.message.seq

    @property
    def body(self) -> Any:
        """As it was given to `broadcast`: bytes, text or JSON."""
        return opened(self._popped.envelope)

    @property
    def causes(self) -> tuple[Id, ...]:
        """Its immediate dependencies: what its sender had seen or said last, with nothing in between."""
        return tuple(Id(self._names[peer], seq) for peer, seq in sorted(self._popped.causes.items()))

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return (
            f"Message({self.id}, {self.body!r}, after {', '.join(map(str, self.causes)) or 'nothing'}{again})"
        )


class Held(msgspec.Struct, frozen=True):
    """A message that has arrived and cannot be delivered yet."""

    id: Id
    cause: Id | None
    """What it waits for; None if the protocol knows that only by another's number."""
    since: float
    """When it arrived, in seconds since 1970."""
    holders: tuple[str, ...]
    """Who might have the cause."""


class Notice(msgspec.Struct, frozen=True):
    """Something that happened to the group."""

    kind: Literal["joined", "lost", "refused", "gap", "recovered", "full", "room", "store"]
    member: str
    text: str
    time: float


class Notices:
    """One listener's queue; of many the oldest give way, as nobody may be listening."""

    def __init__(self, gone: Callable[[Any], None]) -> None:
        self._queue: deque[Notice] = deque(maxlen=_MOST)
        self._more = asyncio.Event()
        self._ended = False
        self._gone = gone

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
            self._gone(self)
