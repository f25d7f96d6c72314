"""A process in several overlapping groups, without clock, socket or disk.

It has a core for each group, with members, links and reports of its own (`group_core.py`). Shared by all
groups are the log, the order of deliveries, and the causal past of its members. An event of any group
therefore has its place among those of all groups, and a replay repeats them in that order.

Groups are polled for deliveries in the order of their names. A delivery in one group may unblock another, so
this order matters, and the log records only the number of deliveries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from antecede.live.addressing import is_for
from antecede.live.changing.events import InGroup
from antecede.live.changing.recovery import take_checkpoint
from antecede.live.events import Delivered, DeliveryAcked, Event, LogRecord, Parked, Unparked
from antecede.live.overlapping.group_core import GroupCore
from antecede.live.overlapping.queue import GroupDelivery, NodeQueue, ParkedGroupDelivery
from antecede.live.ready import Ready, send_and_advance
from antecede.live.store.disk import Files, MemoryFiles
from antecede.live.store.records import Checkpoint, StoredPacket
from antecede.live.trace_rows import TraceBuffer
from antecede.membership.group_past import ProcessPast
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.state import Phase

_OUT = (Phase.OUTSIDE, Phase.JOINING, Phase.REMOVED)


class SavedGroup(msgspec.Struct):
    """One group in a checkpoint."""

    state: bytes
    packets: list[StoredPacket]


class NodeState(msgspec.Struct):
    """The state of a process in a checkpoint."""

    groups: dict[str, SavedGroup]
    past: ProcessPast
    polls: int
    time: int
    delivered: int
    unacked: list[GroupDelivery]
    parked: dict[int, ParkedGroupDelivery]
    parking: int


class NodeReady(Ready, frozen=True, gc=False):
    """The part of each group; the records and the checkpoint are the process's."""

    groups: Mapping[str, Ready] = {}


class HistoryBatches:
    """What must be in the histories before the records are durable."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def write(self) -> None:
        for each in self._batches:
            each.write()


class NodeCore:
    """The process `name`."""

    def __init__(self, name: str, durable: bool = True, own: bool = True, files: Files | None = None) -> None:
        self.name, self.is_durable, self.delivers_own = name, durable, own
        self.files: Files = files or MemoryFiles()
        self.groups: dict[str, GroupCore] = {}
        """Sorted by name."""
        self.past = ProcessPast()
        self.use_signatures: Callable[[GroupCore], None] | None = None
        """Called with the core of each group before the replay; None without signatures."""
        self.application = NodeQueue()
        self.numbers: dict[int, int] = {}
        """By position, for deliveries not yet given to the application: the number of the `Ready` that makes
        them durable."""
        self.polls = self.time = self.unblocking_number = 0
        self.next_number, self.persisted = int(durable), 0
        self.is_replaying, self.is_traced = False, False
        self.trace = TraceBuffer(0 if durable else sys.maxsize)
        self.outboxes: dict[int, Any] = {}
        """Always empty: links belong to the groups."""
        self._records: list[LogRecord] = []
        self._logged_polls = 0
        self._logged_group: str | None = None

    def group(self, name: str) -> GroupCore:
        """The core of a group, created if necessary."""
        core = self.groups.get(name)
        if core is None:
            core = GroupCore(self, name)
            if self.use_signatures is not None:
                self.use_signatures(core)
            self.groups = dict(sorted([*self.groups.items(), (name, core)]))
        return core

    # Called by the groups

    def connect(self) -> None:
        """The members of this process have changed."""
        members = [member for core in self.groups.values() for member in core.seats()]
        ChangingMultigroup.connect(members, self.past)

    def refresh(self, now: int) -> bool:
        """An event has occurred in a group; returns whether it has immediately changed other groups."""
        has_changed = False
        for core in self.groups.values():
            has_changed |= core.refresh(now)
        return has_changed

    def phases(self) -> list[tuple[Phase, bool, bool]]:
        """For each membership of this process, past or present: its phase, whether it is waiting for its
        welcome to take effect, and whether for the application to take a state."""
        return [
            (member.phase, member.welcome is not None, member.snapshot is not None)
            for core in self.groups.values()
            for member in core.seats()
        ]

    def wait_until_durable(self) -> None:
        """A group may have nothing left to deliver, which others waited for: their next deliveries would not
        have the same positions if a crash undid that."""
        self.unblocking_number = self.next_number

    def log(self, group: str, record: Any) -> None:
        self.time = max(self.time, record.time)
        if not self.is_durable or self.is_replaying:
            return
        self.log_polls(record.time)
        if group != self._logged_group:
            self._records.append(InGroup(group, record.time))
            self._logged_group = group
        self._records.append(record)

    def log_polls(self, now: int) -> None:
        if self.is_durable and not self.is_replaying and self.polls != self._logged_polls:
            self._records.append(Delivered(self.polls, now))
        self._logged_polls = self.polls

    # Called by a driver

    def step(self, event: Event) -> None:
        """Handle an event that concerns the whole application; all other events belong to groups."""
        match event:
            case DeliveryAcked():
                self.application.ack()
            case Parked():
                self._log(event)
                self.application.park(event)
                if not self.is_durable:
                    self.application.finish_parking(event.position)
            case Unparked():
                self._log(event)
                self.application.unpark(event.position)
            case _:
                raise TypeError(f"{type(event).__name__} is an event of one group")

    def _log(self, record: Parked | Unparked) -> None:
        self.time = max(self.time, record.time)
        if self.is_durable and not self.is_replaying:
            self.log_polls(record.time)
            self._records.append(record)

    @property
    def has_ready(self) -> bool:
        return bool(self._records) or any(core.has_ready for core in self.groups.values())

    def ready(self, checkpoint: bool = False) -> NodeReady:
        parts = {name: core.ready(checkpoint) for name, core in self.groups.items()}
        records: list[LogRecord] = []
        for name, part in parts.items():
            if part.records:  # certificates of others, which no other record contains
                records += [InGroup(name, self.time), *part.records]
        histories = [part.history for part in parts.values() if part.history is not None]
        ready = NodeReady(
            number=self.next_number,
            records=() if checkpoint else [*records, *self._records],
            checkpoint=self._checkpoint(parts) if checkpoint else None,
            parked=self.application.parking,
            trace_length=self.trace.length,
            history=cast("Any", HistoryBatches(histories)) if histories else None,
            groups=parts,
        )
        if checkpoint:
            self._logged_polls = self.polls
        self._records, self._logged_group = [], None
        self.next_number += self.is_durable
        return ready

    def _checkpoint(self, parts: Mapping[str, Ready]) -> Checkpoint:
        saved = {name: part.checkpoint for name, part in parts.items()}
        return Checkpoint(self._encode({name: each for name, each in saved.items() if each is not None}), [])

    def save(self) -> bytes:
        """The state of the process as a `NodeState`, without pending records and packets."""
        return self._encode({name: take_checkpoint(core) for name, core in self.groups.items()})

    def _encode(self, checkpoints: Mapping[str, Checkpoint]) -> bytes:
        queue = self.application
        groups = {name: SavedGroup(each.state, each.packets) for name, each in checkpoints.items()}
        state = NodeState(
            groups,
            self.past,
            self.polls,
            self.time,
            queue.delivered,
            list(queue.unacked),
            cast("dict[int, ParkedGroupDelivery]", queue.parked),
            queue.parking,
        )
        return msgspec.msgpack.encode(state)

    def advance(self, ready: NodeReady) -> None:
        """A `Ready` has been carried out."""
        for name, core in self.groups.items():
            # A group created since has an empty `Ready`, but shares the numbering.
            send_and_advance(cast("Any", core), ready.groups.get(name) or Ready(number=ready.number))
        if ready.number:
            self.persisted = ready.number
        if ready.parked:
            self.application.finish_parking(ready.parked)

    @property
    def undelivered_bytes(self) -> int:
        return self.application.untaken_own_bytes

    # Deliveries

    def poll(self, now: int) -> bool:
        """Poll one group after another for a delivery; returns whether one was made or anything has
        changed."""
        for core in self.groups.values():
            if core.poll_here(now):
                if self.refresh(now):
                    # Other groups react to it, so log it before they do.
                    self.log_polls(now)
                    self.numbers[self.application.delivered] = self.next_number
                return True
        return False

    def next_delivery(self, now: int, acks: bool) -> GroupDelivery | None:
        """As in `DeliveringCore`: the next message of all groups."""
        queue = self.application
        if acks:
            queue.ack()
        if any(core.takes_snapshot for core in self.groups.values()):
            return None
        delivery = self.first(now)
        if delivery is None:
            return None
        if queue.only is not None and delivery.group != queue.only:
            return None
        position = queue.acked + 1
        if self.is_durable and (queue.parking or self.numbers.get(position, 0) > self.persisted):
            return None
        self.numbers.pop(position, None)
        queue.attempts += 1
        if queue.attempts == 1 and delivery.own:
            queue.take_own(delivery)
        return delivery

    def first(self, now: int) -> GroupDelivery | None:
        """The next message for the application."""
        queue = self.application
        while True:
            while queue.unacked and not queue.attempts and self._is_for_nobody(queue.unacked[0]):
                self.numbers.pop(queue.acked + 1, None)
                queue.skip()
            if queue.unacked:
                return cast("GroupDelivery", queue.unacked[0])
            if not self.may_poll() or not self._deliver_one(now):
                return None

    def _is_for_nobody(self, delivery: GroupDelivery) -> bool:
        """Whether a message was for a former member of this process, or is addressed to other members."""
        core = self.groups[delivery.group]
        if self.application.is_former(delivery) or core.phase in _OUT:
            return True
        return not (delivery.own or is_for(delivery.payload, core.called))

    def may_poll(self) -> bool:
        """False while a group must first admit a newcomer, or give its state to the application: deliveries
        in other groups might be missing from that state, or precede it."""
        for core in self.groups.values():
            if core.on_idle is not None and core.may_sponsor:
                core.on_idle()
        return not any(
            core.phase == Phase.MEMBER and (core.wants_snapshot or not core.is_started)
            for core in self.groups.values()
        )

    def _deliver_one(self, now: int) -> bool:
        while not self.application.unacked:
            if not self.poll(now):
                return False
        return True

    def log_deliveries(self, now: int) -> None:
        self.log_polls(now)
