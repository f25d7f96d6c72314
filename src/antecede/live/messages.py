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
"""Maximum number of notices or changes queued for a listener."""


class MessageId(NamedTuple):
    """A message: the name of its origin, and its sequence number there, from 1."""

    origin: str
    seq: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.seq}"


class RequestAnswering(Interface):
    """The part of a group that its messages use to reply (`requests.py`)."""

    def is_asked(self, message: Message) -> bool: ...

    async def reply(self, message: Message, body: Body, about: About, timeout: float | None) -> MessageId: ...


def _no_requests() -> RequestAnswering | None:
    return None


class Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A delivered message."""

    # Most applications read only some fields, so nothing is decoded before it is read.
    _delivery: Delivery
    _names: Sequence[str] | Mapping[int, str]
    own: bool = False
    """Whether this member has broadcast it itself."""
    deliveries: int = 1
    """How many times it has been delivered to this member's application, including this time."""
    history: bool = False
    """Whether the group had delivered it before this member was admitted."""
    # A weak reference: an application may keep messages where the group refers to them, and such a cycle
    # would not be freed.
    _requests: Callable[[], RequestAnswering | None] = _no_requests

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before and not acked, so it may have been partly or fully processed."""
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
        """Whether it was addressed to this member, but encrypted for a key that the member no longer has;
        then its body is the content as it arrived."""
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
        """The words of one of the library's own headers; empty if the message does not have it."""
        value = (unwrap(self._delivery.payload).headers or {}).get(name)
        return value.split(" ") if isinstance(value, str) else []

    @property
    def causes(self) -> tuple[MessageId, ...]:
        """Its immediate dependencies: the messages that its sender had delivered or broadcast last, with none
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
    """The message that it waits for; None if the protocol knows that only by another member's number for
    it."""
    since: float
    """When it arrived, in seconds since 1970."""
    holders: tuple[str, ...]
    """The members that may have the cause."""
    group: str = ""
    """The group of the cause, if it is another group that this process is in."""


class ParkedMessage(msgspec.Struct, frozen=True):
    """A message that the application has parked."""

    message: Message
    reason: str
    time: float
    """When it was parked, in seconds since 1970."""


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
    """One listener's queue. It may not be read, so it is bounded: the oldest entries are dropped.

    A group holds weak references to its listeners: an abandoned one is forgotten.
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
        """Stop listening."""
        self._queue.clear()
        self.end()
