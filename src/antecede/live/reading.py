"""The consumer side of a live group: how an application receives messages and acknowledges them."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import Any

from antecede import causality
from antecede.errors import InputError
from antecede.live.delivering import Deliveries, MessageIterator
from antecede.live.messages import Message, MessageId, ParkedMessage
from antecede.live.problems import Problems


def require_message(call: str, message: object) -> Message:
    if not isinstance(message, Message):
        raise InputError(f"{call}: give it the message that was delivered, not {type(message).__name__}")
    return message


class ConsumerSide(abc.ABC):
    """A group as a reading application sees it."""

    _core: Any
    _deliveries: Deliveries
    _problems: Problems

    def __aiter__(self) -> AsyncIterator[Message]:
        """A new iteration. Its first message is the one in flight, if there is one, since nobody has acked
        it."""
        return MessageIterator(self._deliveries)

    async def __anext__(self) -> Message:
        """The next message, outside of a loop. Consecutive calls are one iteration: each acks the message
        that the one before returned. After an `async for`, it begins a new iteration."""
        return await self._deliveries.next_alone()

    def ack(self, message: Message) -> None:
        """`message`, which is in flight, has been processed: it will not be delivered again."""
        self._deliveries.ack(require_message("ack", message))

    def nack(self, message: Message, delay: float = 0.0) -> None:
        """The processing of `message`, which is in flight, has failed: it is delivered again after `delay`
        seconds.

        Meanwhile nothing else is delivered. `message.deliveries` counts the attempts; `park` ends them.
        """
        self._deliveries.nack(require_message("nack", message), delay)

    async def park(self, message: Message, reason: str = "") -> None:
        """Park `message`, which is in flight, durably, and continue with the messages after it.

        For a message that can never be processed. Messages that depend on it are delivered without it, so the
        application must expect that. It stays in the store until `unpark`; `problems` counts such messages.
        Once they exceed `limit` bytes, parking raises a `LocalError` and the message is delivered again, so
        that a poison message blocks this application rather than filling its disk.
        """
        await self._deliveries.park(require_message("park", message), reason)
        self._report_parked()

    def parked(self) -> list[ParkedMessage]:
        """The parked messages, the oldest first."""
        return self._deliveries.parked()

    async def unpark(self, message: MessageId) -> Message:
        """Remove a parked message and return it. Process it first: the store no longer has it afterwards."""
        removed = await self._deliveries.unpark(message)
        self._report_parked()
        return removed

    def _report_parked(self) -> None:
        parked = self._core.application.parked
        if not parked:
            self._problems.end("parked")
            return
        last = next(reversed(parked.values()))
        message = self._id(last.delivery.message)
        text = f"{len(parked):,} messages are parked, the last is {message}: {last.reason}"
        if self._problems.begin("parked", "parked", self.me, text):
            self._notify("parked", message.origin, text)

    @property
    @abc.abstractmethod
    def me(self) -> str:
        """The name of this member; with dynamic membership, the label of its incarnation."""

    @abc.abstractmethod
    def _id(self, message: causality.MessageId) -> MessageId:
        """The id of a message in the form that applications use."""

    @abc.abstractmethod
    def _notify(self, kind: Any, member: str, text: str) -> None:
        """Notify listeners of an event."""
