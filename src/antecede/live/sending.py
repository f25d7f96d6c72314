"""The producer side of a live group: how an application broadcasts to all, to some members, or requests a
reply."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from antecede.errors import InputError
from antecede.live.addressing import Addressing
from antecede.live.envelope import Body
from antecede.live.headers import About, describe
from antecede.live.messages import Message, MessageId
from antecede.live.requests import AskingGroup, Requests, find_label

if TYPE_CHECKING:
    from antecede.live.operations.tracing import Tracing

MAX_ADDRESSEES = 1_000
"""Recipients of one message: each costs 50 bytes and some tenths of a millisecond."""


class ProducerSide(abc.ABC):
    """A group as a broadcasting application sees it."""

    _addressing: Addressing
    _requests: Requests
    _tracing: Tracing | None

    async def broadcast(
        self,
        body: Body,
        timeout: float | None = None,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str = "",
    ) -> MessageId:
        """Broadcast a message to the group; returns once it cannot be lost any more.

        `headers`, a few names with text or bytes, and `content_type` are sent with the body. They are the
        application's own.

        Waits while too many bytes are in transit to members that are slow or away, or wait for this member's
        own application (`limit`). If that takes longer than `timeout` seconds, it raises `TimeoutError` and
        nothing was broadcast; the same holds if it is cancelled meanwhile. If it is cancelled later, while
        the store is written, the message may have been accepted; then it is delivered here too, like any
        other.
        """
        return await self._send(body, describe(headers, content_type), timeout)

    async def send(
        self,
        body: Body,
        to: Sequence[str],
        timeout: float | None = None,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str = "",
    ) -> MessageId:
        """Broadcast a message to some recipients only: members and phones, by name or label, and this member
        itself, in causal order with everything else.

        In a group with keys it is encrypted for them; without, it is not. Everybody can see that it was sent,
        when, to whom, and how long it is.
        """
        about = describe(headers, content_type)
        if isinstance(to, str):
            raise InputError(f'to: it is a list of names; write to=["{to}"]')
        if not to:
            raise InputError("to: name one member at least")
        if len(to) > MAX_ADDRESSEES:
            raise InputError(f"to: {len(to):,} names; a message has {MAX_ADDRESSEES:,} at most")
        async with asyncio.timeout(timeout):
            await self._until_all_know_addresses()
            labels = list(dict.fromkeys(map(self._label_of, to)))
            return await self._send(body, about, None, labels)

    def _label_of(self, who: str) -> str:
        label = find_label(cast("AskingGroup", self), who)
        if label is None:
            raise InputError(f"to: {who} is not known to be in the group; nothing was broadcast")
        return label

    @abc.abstractmethod
    async def _until_all_know_addresses(self) -> None:
        """Wait until every member is known to support addressed messages."""

    async def _send(
        self, body: Body, about: About, timeout: float | None, to: Sequence[str] = ()
    ) -> MessageId:
        tracing = self._tracing
        if tracing is None:
            return await self._broadcast(body, self._addressed(about, to), timeout)
        with tracing.broadcasting(about) as (span, traced):
            message = await self._broadcast(body, self._addressed(traced, to), timeout)
            tracing.name(span, message)
        return message

    def _addressed(self, about: About, to: Sequence[str]) -> About:
        return self._addressing.address(about, to) if to else about

    async def request(
        self,
        who: str,
        body: Body,
        timeout: float | None = None,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str = "",
    ) -> Message:
        """Broadcast a message to which `who`, a member or a phone by name or label, is to `reply`, and return
        that reply.

        The reply is returned when its turn comes in this application's delivery order. So another task must
        iterate over the group meanwhile; it receives the reply too, like any message. If there is no reply
        within `timeout` seconds, or never can be one, that is a `RequestError` with the reason.
        """
        return await self._requests.ask(who, body, describe(headers, content_type), timeout)

    @abc.abstractmethod
    async def _broadcast(self, body: Body, about: About, timeout: float | None) -> MessageId:
        """Broadcast when there is room, and wait until it is durable."""
