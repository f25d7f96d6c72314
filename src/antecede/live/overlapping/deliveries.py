"""How the messages of several groups are delivered to an application: in one order, which all iterations
share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from antecede.live.delivering import Deliveries, MessageIterator
from antecede.live.envelope import origin_in
from antecede.live.messages import Message, MessageId
from antecede.live.observers import Observers
from antecede.live.overlapping.core import NodeCore
from antecede.live.overlapping.queue import GroupDelivery
from antecede.protocols.base import Delivery, LocalError

if TYPE_CHECKING:
    from antecede.live.overlapping.node_group import NodeGroup


class GroupMessage(Message, frozen=True, eq=False, gc=False):
    """A delivered message, and the group that it was broadcast to."""

    group: str = ""


class GroupIterator(MessageIterator):
    """One `async for` over a group, or over all groups of a process (`group` is None)."""

    def __init__(self, deliveries: NodeDeliveries, group: str | None) -> None:
        super().__init__(deliveries)
        self.group = group


class NodeDeliveries(Deliveries):
    """One message is in flight at a time, whichever group it belongs to. An iteration over one group waits
    while the next message, or the one in flight, belongs to another."""

    def __init__(
        self,
        core: NodeCore,
        driver: Any,
        groups: Mapping[str, NodeGroup],
        names: Callable[[str], Mapping[int, str]],
        now: Callable[[], int],
        check_open: Callable[[], None],
        taken: Callable[[], None],
        max_parked: int,
    ) -> None:
        none = cast("Any", _NoRequests())  # each group has its own
        super().__init__(
            cast("Any", core),
            driver,
            {},
            now,
            check_open,
            taken,
            max_parked,
            Observers(False),
            none,
            None,
            none,
        )
        self._node, self._groups, self._names_in, self._taken = core, groups, names, taken
        self._current: dict[str | None, GroupIterator] = {}
        self._waiting: dict[str | None, asyncio.Event] = {}
        self.has_begun = False
        """Whether the application has ever requested a message."""

    def wake(self) -> None:
        for event in self._waiting.values():
            event.set()

    def close(self) -> None:
        super().close()
        self.wake()

    def take_next(self) -> Delivery | None:
        iterator = self.holder
        if not isinstance(iterator, GroupIterator):
            return None
        self._node.application.only = iterator.group
        try:
            return super().take_next()
        finally:
            self._node.application.only = None

    async def next(self, iterator: MessageIterator) -> Message:
        if not isinstance(iterator, GroupIterator):
            raise TypeError("an iteration over something that is not a group")
        group, self.has_begun = iterator.group, True
        is_shared = group in self._waiting or (self._waiting and (group is None or None in self._waiting))
        if is_shared or (iterator.has_begun and self._current.get(group) is not iterator):
            raise LocalError(
                "two tasks iterate over one group: each message goes to one of them, so iterate in one place"
            )
        self._current[group], iterator.has_begun = iterator, True
        event = self._waiting[group] = asyncio.Event()
        try:
            await asyncio.sleep(0)  # as in an iteration over one group: let other tasks run
            while (delivery := self._poll(iterator)) is None:
                if self._is_closed:
                    self._driver.check_failed()
                    raise StopAsyncIteration
                self._taken()
                event.clear()
                await event.wait()
        finally:
            del self._waiting[group]
        self._reader = asyncio.current_task()
        return self.give(delivery)

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def alone(self, group: str | None) -> GroupIterator:
        """The iteration to which consecutive calls of `anext` belong."""
        before = self._current.get(group)
        return before if isinstance(before, _SingleGroupCalls) else _SingleGroupCalls(self, group)

    def _poll(self, iterator: MessageIterator) -> Delivery | None:
        group = cast("GroupIterator", iterator).group
        if self.holder is not None and self.holder is not iterator:
            other = cast("GroupIterator", self.holder).group
            if group is not None and other is not None and other != group:
                return None  # its message may be a cause of the next one
        queue = self._node.application
        queue.only = group
        try:
            delivery = super()._poll(iterator)
        finally:
            queue.only = None
        if delivery is None and queue.unacked and not queue.attempts:
            first = queue.unacked[0].group
            if first != group and first in self._waiting:
                self._waiting[first].set()
        return delivery

    def give(self, delivery: Delivery) -> Message:
        queue = self._queue
        deliveries = queue.deliveries if queue.uncertain_until else queue.attempts
        if self._queue.is_own(delivery):
            self._own_taken()
        message = self._message(delivery, deliveries)
        group = self._groups.get(cast("GroupDelivery", delivery).group)
        if group is not None:
            group.note_delivered(message)
        return message

    def is_in_flight(self, message: Message) -> bool:
        queue = self._node.application
        is_here = bool(queue.unacked) and queue.unacked[0].group == getattr(message, "group", None)
        return is_here and self._is_in_flight(message.id)

    def ack(self, message: Message) -> None:
        if self.is_in_flight(message):
            super().ack(message)

    def nack(self, message: Message, delay: float) -> None:
        self._require(message)
        super().nack(message, delay)

    async def park(self, message: Message, reason: str) -> None:
        self._require(message)
        await super().park(message, reason)

    def _require(self, message: Message) -> None:
        if not self.is_in_flight(message):
            raise LocalError(f"{message.id} is not in flight: it was acked, or another message is")

    def _id(self, delivery: Delivery) -> MessageId:
        return self._message(delivery, 1).id

    def _message(self, delivery: Delivery, deliveries: int) -> Message:
        name, own = cast("GroupDelivery", delivery).group, self._queue.is_own(delivery)
        names, group = self._names_in(name), self._groups.get(name)
        if group is None:
            return GroupMessage(delivery, names, own, deliveries, group=name)
        opened = group.addressing.open(delivery, origin_in(delivery, names))
        return GroupMessage(opened, names, own, deliveries, _requests=group.requests, group=name)


class _NoRequests:
    pending: ClassVar[dict[str, Any]] = {}


class _SingleGroupCalls(GroupIterator):
    """Consecutive calls of `anext`."""
