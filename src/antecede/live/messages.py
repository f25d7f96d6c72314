"""What an application receives from a group: messages, held messages with the reason, and notices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar
from typing import Protocol as Interface

import msgspec

from antecede.live.envelope import ADDRESSED, Body, body_in, immediate_causes, origin_in, unwrap
from antecede.live.headers import REPLY, About, describe, of_application
from antecede.protocols.base import Delivery, LocalError

Item = TypeVar("Item")

_MAX_WAITING = 1_000
"""Notices, or changes, that wait for a listener."""


class MessageId(NamedTuple):
    """A message: the name of its origin, and its sequence number there, from 1."""

    origin: str
    seq: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.seq}"


class RequestAnswering(Interface):
    """The part of a group with which its messages reply (`requests.py`)."""

    def is_asked(self, message: Message) -> bool: ...

    async def reply(self, message: Message, body: Body, about: About, timeout: float | None) -> MessageId: ...


def _no_requests() -> RequestAnswering | None:
    return None


class Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A delivered message."""

    # Most applications look at a part of it, so nothing is decoded before it is asked for.
    _delivery: Delivery
    _names: Sequence[str] | Mapping[int, str]
    own: bool = False
    """Whether this member has broadcast it itself."""
    deliveries: int = 1
    """How many times it has been delivered to this member's application, with this time."""
    history: bool = False
    """Whether the group had delivered it before this member was admitted."""
    # Weakly: an application may keep messages where the group finds them, and no cycle through them is freed.
    _requests: Callable[[], RequestAnswering | None] = _no_requests

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before and not acked, so it may have been processed, in part or fully."""
        return self.deliveries > 1

    @property
    def id(self) -> MessageId:
        return MessageId(self.origin, self.seq)

    @property
    def origin(self) -> str:
        return origin_in(self._delivery, self._names)

    @property
    def seq(self) -> int:
        return self._delivery.message.seq

    @property
    def body(self) -> Any:
        """As it was passed to `broadcast`: bytes, text or JSON."""
        return body_in(self._delivery.payload)

    @property
    def time(self) -> float | None:
        """When it was broadcast, by its sender's clock, in seconds since 1970; None if its sender does not
        say."""
        time = unwrap(self._delivery.payload).time
        return time / 1e6 if time else None

    @property
    def content_type(self) -> str:
        """As it was passed to `broadcast`."""
        return unwrap(self._delivery.payload).content_type

    @property
    def headers(self) -> dict[str, str | bytes]:
        """As they were passed to `broadcast`: text or bytes by name."""
        return of_application(unwrap(self._delivery.payload).headers)

    @property
    def unreadable(self) -> bool:
        """Whether it is for this member, and was encrypted for a key that it does not have any more; then
        its body is what has arrived."""
        return unwrap(self._delivery.payload).kind == ADDRESSED

    @property
    def is_request(self) -> bool:
        """Whether its sender waits for this member to `reply`."""
        requests = self._requests()
        return requests is not None and requests.is_asked(self)

    @property
    def reply_to(self) -> MessageId | None:
        """The request to which this is a reply."""
        parts = self.reserved_header(REPLY)
        if len(parts) < 2:
            return None
        origin, _, seq = parts[1].rpartition(":")
        return MessageId(origin, int(seq)) if seq.isdecimal() and len(seq) < 20 else None

    async def reply(
        self,
        body: Body,
        timeout: float | None = None,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str = "",
    ) -> MessageId:
        """Broadcast a reply to this request, as `Group.broadcast` does."""
        requests = self._requests()
        if requests is None:
            raise LocalError("the group is closed")
        return await requests.reply(self, body, describe(headers, content_type), timeout)

    def reserved_header(self, name: str) -> list[str]:
        """The words of a header of the library's own; none if there is no such header."""
        value = (unwrap(self._delivery.payload).headers or {}).get(name)
        return value.split(" ") if isinstance(value, str) else []

    @property
    def causes(self) -> tuple[MessageId, ...]:
        """Its immediate dependencies: what its sender had delivered or broadcast last, with nothing
        between."""
        causes = immediate_causes(self._delivery, len(self._names))
        origin = self._delivery.message.origin
        return tuple(
            MessageId(self.origin if peer == origin else self._names[peer], seq)
            for peer, seq in sorted(causes.items())
        )

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
    group: str = ""
    """The group of the cause, if it is another one that this process is in."""


class ParkedMessage(msgspec.Struct, frozen=True):
    """A message that the application has put aside with `park`."""

    message: Message
    reason: str
    time: float
    """When, in seconds since 1970."""


NoticeKind = Literal[
    "joined",
    "lost",
    "refused",
    "gap",
    "recovered",
    "forked",
    "full",
    "room",
    "store",
    "trace",
    "parked",
    "paused",
    "unreachable",
    "unreadable",
    "away",
    "draining",
    "returning",
    "snapshot",
    "bounds",
]


class Notice(msgspec.Struct, frozen=True):
    """Something that happened to the group."""

    kind: NoticeKind
    member: str
    text: str
    time: float


class Subscription(Generic[Item]):
    """One listener's queue. Nobody may be listening, so the oldest of many are dropped.

    A group refers to its listeners weakly: one that is abandoned is forgotten.
    """

    def __init__(self) -> None:
        self._queue: deque[Item] = deque(maxlen=_MAX_WAITING)
        self._more = asyncio.Event()
        self._ended = False

    def put(self, item: Item) -> None:
        if self._ended:
            return
        self._queue.append(item)
        self._more.set()

    def end(self) -> None:
        self._ended = True
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._queue.popleft()

    async def aclose(self) -> None:
        """Listen no longer."""
        self._queue.clear()
        self.end()
