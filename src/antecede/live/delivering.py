"""The application's side of delivery: iterating, acknowledging, rejecting and parking messages.

One message is in flight at a time. It is acked by requesting the next one in the same iteration, or by `ack`.
Nothing else acks it: not an exception, a break, a cancellation, leaving the group, or the end of the process.
In these cases the next iteration, in this process or a later one, yields it again.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from antecede.live.addressing import Addressing
from antecede.live.core import Core
from antecede.live.driver import Driver
from antecede.live.envelope import origin_in
from antecede.live.events import Parked, Unparked
from antecede.live.messages import Message, MessageId, ParkedMessage
from antecede.live.observers import Observers
from antecede.live.requests import Requests
from antecede.protocols.base import Delivery, LocalError

if TYPE_CHECKING:
    from antecede.live.operations.tracing import Tracing

_MAX_REASON = 1_000
_PAUSE_EVERY = 256
"""Deliveries between two turns of the event loop, if the application does not await anything itself."""


class MessageIterator:
    """One `async for` over a group: requesting the next message acks the previous one."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self.has_begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        deliveries = self._deliveries
        if deliveries.holder is self and (delivery := deliveries.take_next()) is not None:
            return deliveries.give(delivery)
        return await deliveries.next(self)


class Deliveries:
    """Deliveries to one member's application. `check_open` raises if the group is closed; `own_taken` is
    called when one of this member's own messages was yielded; `max_parked` is how many bytes may already be
    parked when another message is."""

    def __init__(
        self,
        core: Core,
        driver: Driver,
        names: Sequence[str] | Mapping[int, str],
        now: Callable[[], int],
        check_open: Callable[[], None],
        own_taken: Callable[[], None],
        max_parked: int,
        observers: Observers,
        requests: Requests,
        tracing: Tracing | None,
        addressing: Addressing,
    ) -> None:
        self._core, self._driver, self._names = core, driver, names
        self._queue = core.application
        self._take = driver.next_delivery if core.is_durable else core.next_delivery
        self._now, self._check_open = now, check_open
        self._is_traced, self._turn_time = core.is_traced, 0
        """Only rows of the trace need the time of each delivery; otherwise that of the last turn suffices."""
        self._is_closed = False
        self._own_taken, self._max_parked, self._observers = own_taken, max_parked, observers
        self._requests, self._requests_ref, self._tracing = requests, weakref.ref(requests), tracing
        self._addressing = addressing
        self._deliverable = asyncio.Event()
        self._is_awaited = False
        self._polls = 0
        self._iterator: MessageIterator | None = None
        """The iteration that last requested a message."""
        self.holder: MessageIterator | None = None
        """The iteration that received the message in flight, and acks it by requesting the next."""
        self._reader: asyncio.Task[Any] | None = None
        """The task that last waited for a message."""
        self._delay: asyncio.TimerHandle | None = None
        """Until it fires, the message in flight is not redelivered."""

    def belong_to(self, me: int) -> None:
        """This member is another incarnation from now on."""
        self._me = me
        self.wake()

    def wake(self) -> None:
        """There may be a message to deliver."""
        self._deliverable.set()

    def close(self) -> None:
        """Nothing more is delivered: iterations end."""
        self._end_span("unacked")
        self._is_closed = True
        self._deliverable.set()

    # Iterating

    def take_next(self) -> Delivery | None:
        """Ack the previous message, and return the next one; None if the iteration must wait."""
        self._polls += 1
        if self._polls % _PAUSE_EVERY and not self._is_closed:
            return self._take(self._now() if self._is_traced else self._turn_time, True)
        return None

    async def next(self, iterator: MessageIterator) -> Message:
        """Wait for the next message of an iteration."""
        if self._is_awaited or (iterator.has_begun and iterator is not self._iterator):
            raise LocalError(
                "two tasks iterate over one group: each message goes to one of them, so iterate in one place"
            )
        self._iterator, iterator.has_begun = iterator, True
        self._reader = asyncio.current_task()
        self._end_span("acked" if self.holder is iterator else "unacked")
        self._is_awaited = True
        try:
            delivery = await self._wait(iterator)
        finally:
            self._is_awaited = False
        return self.give(delivery)

    def give(self, delivery: Delivery) -> Message:
        queue = self._queue
        own = self._queue.is_own(delivery)
        if own:
            self._own_taken()
        deliveries = queue.deliveries if queue.uncertain_until else queue.attempts
        is_past = bool(queue.past) and delivery.message in queue.past
        delivery = self._open(delivery)
        message = Message(delivery, self._names, own, deliveries, is_past, self._requests_ref)
        if self._observers.recent is not None and deliveries == 1:
            self._observers.delivered(message)
        if self._requests.pending:
            self._requests.take(message)
        if self._tracing is not None:
            self._tracing.begin(message)
        return message

    def _open(self, delivery: Delivery) -> Delivery:
        return self._addressing.open(delivery, origin_in(delivery, self._names))

    def _end_span(self, outcome: str) -> None:
        if self._tracing is not None:
            self._tracing.end(outcome)

    async def next_alone(self) -> Message:
        """The next message outside of a loop, through `anext`: consecutive calls are one iteration."""
        before = self._iterator
        return await self.next(before if isinstance(before, _SingleCalls) else _SingleCalls(self))

    def _poll(self, iterator: MessageIterator) -> Delivery | None:
        if self._is_closed or self._delay is not None:
            return None
        acks, self.holder = self.holder is iterator, None
        self._turn_time = self._now()
        delivery = self._take(self._turn_time, acks)
        if delivery is not None:
            self.holder = iterator
        return delivery

    async def _wait(self, iterator: MessageIterator) -> Delivery:
        # Yield to other tasks, such as connections: an application that never awaits anything, or fails at
        # the same message repeatedly, would starve them.
        await asyncio.sleep(0)
        while (delivery := self._poll(iterator)) is None:
            if self._is_closed:
                self._driver.check_failed()
                raise StopAsyncIteration
            self._deliverable.clear()
            await self._deliverable.wait()
        return delivery

    # Acknowledging, rejecting, parking

    def ack(self, message: Message) -> None:
        self._check_open()
        if self._is_in_flight(message.id):
            self._release("acked")
            self._driver.ack()
            self.wake()

    def nack(self, message: Message, delay: float) -> None:
        self._require_in_flight(message.id)
        self._release("nacked")
        if delay > 0:
            self._delay = asyncio.get_running_loop().call_later(delay, self._end_delay)
        self.wake()

    def _end_delay(self) -> None:
        self._delay = None
        self.wake()

    async def park(self, message: Message, reason: str) -> None:
        self._require_in_flight(message.id)
        self._release("parked")
        core, queue = self._core, self._core.application
        if queue.parked_bytes > self._max_parked:
            self.wake()  # it stays in flight, and is redelivered
            raise LocalError(
                f"{message.id} cannot be parked: {len(queue.parked):,} messages are, of "
                f"{queue.parked_bytes:,} bytes; process some of them and unpark them, or raise the limit"
            )
        text = reason[:_MAX_REASON].encode(errors="replace").decode()
        core.step(Parked(queue.acked + 1, queue.deliveries, text, self._now()))
        await self._persist()

    async def unpark(self, message: MessageId) -> Message:
        self._check_open()
        for position, parked in self._core.application.parked.items():
            if self._id(parked.delivery) == message:
                self._core.step(Unparked(position, self._now()))
                await self._persist()
                return self._message(parked.delivery, parked.attempts + 1)
        raise LocalError(f"{message} is not parked")

    async def _persist(self) -> None:
        if self._core.is_durable:
            await self._driver.durable()
            self._driver.save_cursor()
        self.wake()

    def parked(self) -> list[ParkedMessage]:
        return [
            ParkedMessage(self._message(each.delivery, each.attempts), each.reason, each.time / 1e9)
            for each in self._core.application.parked.values()
        ]

    def _release(self, outcome: str) -> None:
        self.holder = None
        self._end_span(outcome)
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None

    def _require_in_flight(self, message: MessageId) -> None:
        self._check_open()
        if not self._is_in_flight(message):
            raise LocalError(f"{message} is not in flight: it was acked, or another message is")

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits for the next message."""
        return self._is_awaited

    @property
    def is_held_by_this_task(self) -> bool:
        """Whether the current task has the message in flight, so that it alone can request the next."""
        return self.holder is not None and self._reader is asyncio.current_task()

    def _is_in_flight(self, message: MessageId) -> bool:
        queue = self._core.application
        return queue.attempts > 0 and not queue.parking and self._id(queue.unacked[0]) == message

    def _id(self, delivery: Delivery) -> MessageId:
        return MessageId(origin_in(delivery, self._names), delivery.message.seq)

    def _message(self, delivery: Delivery, deliveries: int) -> Message:
        own = self._queue.is_own(delivery)
        delivery = self._open(delivery)
        return Message(delivery, self._names, own, deliveries, False, self._requests_ref)


class _SingleCalls(MessageIterator):
    """Consecutive calls of `anext(group)`."""
