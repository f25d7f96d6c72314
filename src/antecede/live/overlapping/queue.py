"""The deliveries of a process that is in several groups: one order over all groups."""

from __future__ import annotations

from collections import deque
from typing import Any

from antecede.live.application import ApplicationQueue, ParkedDelivery
from antecede.live.changing.membership import MemberQueue
from antecede.membership.packets import Stream
from antecede.protocols.base import Delivery


class GroupDelivery(Delivery, frozen=True, gc=False):
    """A message for the application, with its group."""

    group: str = ""
    stream: Stream = -1
    """The stream that this process had in the group when it delivered the message."""
    own: bool = False
    """Whether this process has broadcast it itself."""


class ParkedGroupDelivery(ParkedDelivery, frozen=True):
    """A parked message of one of the groups."""

    delivery: GroupDelivery


class NodeQueue(ApplicationQueue):
    """Deliveries of all groups in the order in which the process delivers them, which is causal."""

    unacked: deque[Any]
    """`GroupDelivery`s."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.streams: dict[str, Stream] = {}
        """By group, the stream of this process."""
        self.only: str | None = None
        """The group that the application is iterating over; None for all groups."""

    def is_own(self, delivery: Delivery) -> bool:
        return isinstance(delivery, GroupDelivery) and delivery.own

    def is_former(self, delivery: GroupDelivery) -> bool:
        """Whether this process has become another member of the group since. Former deliveries are in the
        snapshot that it has started with, or are delivered again."""
        return self.streams.get(delivery.group) != delivery.stream

    def skip(self) -> None:
        """Skip the first message, which is no longer for the application."""
        delivery = self.unacked.popleft()
        if delivery.own:
            self.take_own(delivery)


class SeatQueue(MemberQueue):
    """The queue as the core of one group sees it. Positions are the process's, and waiting messages are saved
    there."""

    def __init__(self, queue: NodeQueue, group: str) -> None:
        super().__init__(-1)
        self._queue, self._group = queue, group

    @property
    def delivered(self) -> int:
        return self._queue.delivered

    @delivered.setter
    def delivered(self, _: int) -> None: ...

    @property
    def is_idle(self) -> bool:
        return self._queue.is_idle

    @property
    def untaken_own_bytes(self) -> int:
        return self._queue.untaken_own_bytes

    @untaken_own_bytes.setter
    def untaken_own_bytes(self, _: int) -> None: ...

    def add(self, delivery: Delivery) -> None:
        self._queue.add(self._tag(delivery, own=False))

    def add_own(self, delivery: Delivery) -> None:
        self._queue.add_own(self._tag(delivery, own=True))

    def _tag(self, delivery: Delivery, own: bool) -> GroupDelivery:
        message, payload, causes = delivery.message, delivery.payload, delivery.causes
        return GroupDelivery(message, payload, causes, self._group, self._queue.streams[self._group], own)

    def belong_to(self, stream: Stream) -> None:
        self._queue.streams[self._group] = stream

    def begin(self, stream: Stream) -> None:
        """The process is another member of the group. The remaining deliveries of the previous one are
        skipped, since positions must not change."""
        self.belong_to(stream)
