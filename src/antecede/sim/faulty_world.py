"""A world in which processes crash and the group is partitioned."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from antecede.protocols.base import Protocol as Member
from antecede.sim import counter_rng
from antecede.sim.changes import Change, Crash, Partition
from antecede.sim.network import Network
from antecede.sim.workload import NEVER, Workload
from antecede.sim.world import ARRIVAL, CHANGE, REPORT, TEST, WAKE, Event, Observer, World


class FaultyWorld(World):
    """A world with crashes and partitions, of any protocol; the group itself does not change.

    A packet to a process that is down, or on the other side of a partition, arrives when the process is up
    again or the partition heals: links are reliable. A process that is down sends nothing.
    """

    def __init__(
        self,
        members: Sequence[Member],
        network: Network,
        workload: Workload,
        observers: Sequence[Observer],
        *,
        changes: Sequence[Change] = (),
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(members, network, workload, observers, **options)
        self.seed = seed
        self.down_until: dict[int, int] = {}
        """The processes that have crashed, and when they are up again."""
        self.down_since: dict[int, int] = {}
        self.partitions = [change for change in changes if isinstance(change, Partition)]
        self._changes = 0
        self._handlers += (self._on_change,)
        for change in changes:
            if not isinstance(change, Partition):
                self._schedule_change(change.time, change)

    def step(self) -> bool:
        if not self._events:
            return False
        event = heapq.heappop(self._events)
        self.now, kind, peer, source, _, content = event
        until = self._held_until(kind, peer, source)
        if until <= self.now:
            self._handlers[kind](peer, source, content)
        elif until < NEVER:
            heapq.heappush(self._events, (until, *event[1:]))
        return True

    def _held_until(self, kind: int, peer: int, source: int) -> int:
        """The time until which an event has to wait."""
        if kind == ARRIVAL:
            return max(self.down_until.get(peer, 0), self._cut_until(peer, source))
        return self.down_until.get(peer, 0) if kind in (WAKE, REPORT, TEST) else 0

    def _cut_until(self, one: int, other: int) -> int:
        until = 0
        for cut in self.partitions:
            if cut.time <= self.now < cut.end and (one in cut.peers) != (other in cut.peers):
                until = max(until, cut.end)
        return until

    def is_down(self, peer: int) -> bool:
        return self.down_until.get(peer, 0) > self.now

    def is_cut(self, one: int, other: int) -> bool:
        return self._cut_until(one, other) > self.now

    def count_stuck(self) -> int:
        return sum(len(each.waiting()) for at, each in enumerate(self.members) if not self.is_down(at))

    # Changes.

    def _schedule_change(self, time: int, change: Any) -> None:
        self._changes += 1
        heapq.heappush(self._events, (time, CHANGE, 0, 0, self._changes, change))

    def _on_change(self, peer: int, source: int, change: Change) -> None:
        if isinstance(change, Crash):
            self._crash(change.peer, NEVER if change.restart is None else change.restart)

    def _crash(self, peer: int, until: int) -> None:
        if peer >= len(self.members) or self.is_down(peer):
            return
        self.down_until[peer], self.down_since[peer] = until, self.now
        if until == NEVER:
            self._lose_last_packets(peer)

    def _lose_last_packets(self, peer: int) -> None:
        """When a process stops for good, only the first packets in flight on each of its links arrive: any
        number of them, with equal probability."""
        kept = []
        links: dict[int, list[Event]] = {}
        for event in self._events:
            if event[1] == ARRIVAL and event[3] == peer:
                links.setdefault(event[2], []).append(event)
            else:
                kept.append(event)
        for to, packets in links.items():
            bits = counter_rng.key(self.seed, counter_rng.CHURN, peer, to)
            packets.sort(key=lambda event: event[4])  # A partition may hold the first ones longer.
            kept += packets[: counter_rng.between(bits, 0, len(packets) + 1)]
        self._events = kept
        heapq.heapify(kept)

    def _broadcast(self, peer: int) -> None:
        if not self.is_down(peer):
            super()._broadcast(peer)
