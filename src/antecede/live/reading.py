"""The part of a live group with which an application takes what is delivered to it, and acknowledges it."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from typing import Any

from antecede import causality
from antecede.live.delivering import Deliveries, MessageIterator
from antecede.live.messages import Message, MessageId, ParkedMessage
from antecede.live.problems import Problems


class ConsumerSide(abc.ABC):
    """A group, seen by an application that reads."""

    _core: Any
    _deliveries: Deliveries
    _problems: Problems

    def __aiter__(self) -> AsyncIterator[Message]:
        """A new iteration. Its first message is the one in flight, if there is one: nobody has acked it."""
        return MessageIterator(self._deliveries)

    async def __anext__(self) -> Message:
        """The next message, outside of a loop. Consecutive calls are one iteration: each acks the message
        that the one before returned. After an `async for`, it begins a new iteration."""
        return await self._deliveries.next_alone()

    def ack(self, message: Message) -> None:
        """`message`, which is in flight, has been processed: it will not be delivered again."""
        self._deliveries.ack(message)

    def nack(self, message: Message, delay: float = 0.0) -> None:
        """`message`, which is in flight, could not be processed: it is delivered again after `delay` seconds.

        Nothing is delivered before it meanwhile. `message.deliveries` counts; `park` ends this.
        """
        self._deliveries.nack(message, delay)

    async def park(self, message: Message, reason: str = "") -> None:
        """Put `message`, which is in flight, aside durably, and go on with the messages after it.

        For a message that can never be processed. What depends on it is delivered without it, so an
        application must expect that. It stays in the store until `unpark`; `problems` counts such messages.
        More of them than `limit` bytes are refused with a `LocalError`: the message is delivered again then,
        so that whoever sends poison holds up this application rather than fill its disk.
        """
        await self._deliveries.park(message, reason)
        self._report_parked()

    def parked(self) -> list[ParkedMessage]:
        """The messages that were put aside, the oldest first."""
        return self._deliveries.parked()

    async def unpark(self, message: MessageId) -> Message:
        """Remove a message that was put aside and return it. Process it before: nobody has it afterwards."""
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
        """What this member is called. Where members come and go, that is the label of its incarnation."""

    @abc.abstractmethod
    def _id(self, message: causality.MessageId) -> MessageId:
        """The id of a message, as applications know it."""

    @abc.abstractmethod
    def _notify(self, kind: Any, member: str, text: str) -> None:
        """Tell those who listen what has happened."""
