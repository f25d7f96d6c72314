"""What a member reports about its own state: which messages it holds and why, and its progress."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence

import msgspec

from antecede.live.clock import Clock
from antecede.live.core import Core
from antecede.live.messages import HeldMessage, MessageId
from antecede.protocols.base import Waiting

_MANY_HELD = 1_000
"""Above this many held messages, metrics do not examine each one."""


class DeliveredUpTo(msgspec.Struct, frozen=True):
    """A member's progress with the messages of one origin."""

    origin: str
    received: int
    """The number up to which all have arrived."""
    delivered: int
    stable: int
    """The number up to which every member is known to have delivered them."""


class Inspection(abc.ABC):
    """One member's view of its own state."""

    @abc.abstractmethod
    def count_held(self) -> int:
        """How many messages are held; O(1), however many there are."""

    @abc.abstractmethod
    def held_seconds(self) -> float:
        """How long the oldest held message has been held; if there are very many, how long ago the oldest
        undelivered message arrived."""

    @abc.abstractmethod
    def waits(self) -> list[Waiting]:
        """The held messages, by the protocol's ids."""

    @abc.abstractmethod
    def describe(self, wait: Waiting) -> HeldMessage: ...

    @abc.abstractmethod
    def progress(self) -> list[DeliveredUpTo]:
        """By origin."""

    @abc.abstractmethod
    def behind_by(self) -> dict[str, int]:
        """By member, how many messages delivered here it is not known to have delivered."""


class FixedInspection(Inspection):
    """Where the list of members is fixed."""

    def __init__(self, core: Core, names: Sequence[str], clock: Clock) -> None:
        self._core, self._names, self._clock = core, names, clock

    def count_held(self) -> int:
        return self._core.count_held()

    def held_seconds(self) -> float:
        if self.count_held() <= _MANY_HELD:
            return max((time.time() - self.describe(wait).since for wait in self.waits()), default=0.0)
        stability = self._core.stability
        nexts = [count + 1 for count in stability.matrix_clock[self._core.me]]
        entries = [unstable.get(seq) for unstable, seq in zip(stability.unstable, nexts, strict=True)]
        since = [entry.since for entry in entries if entry is not None and entry.since]
        return (self._clock.now() - min(since)) / 1e9 if since else 0.0

    def waits(self) -> list[Waiting]:
        return self._core.waiting()

    def describe(self, wait: Waiting) -> HeldMessage:
        stability, (origin, seq), cause = self._core.stability, wait.message, wait.cause
        holders = stability.holders(cause) if cause is not None else []
        entry = stability.unstable[origin].get(seq)
        age = self._clock.now() - entry.since if entry is not None and entry.since else 0
        return HeldMessage(
            MessageId(self._names[origin], seq),
            None if cause is None else MessageId(self._names[cause.origin], cause.seq),
            time.time() - age / 1e9,
            tuple(self._names[member] for member in holders),
        )

    def progress(self) -> list[DeliveredUpTo]:
        stability = self._core.stability
        stability.settle()
        mine = stability.matrix_clock[self._core.me]
        return [
            DeliveredUpTo(
                name, max(stability.received[rank].base, mine[rank]), mine[rank], stability.stable[rank]
            )
            for rank, name in enumerate(self._names)
        ]

    def behind_by(self) -> dict[str, int]:
        me, matrix_clock = self._core.me, self._core.stability.matrix_clock
        return {
            self._names[rank]: sum(
                max(0, count - row[origin]) for origin, count in enumerate(matrix_clock[me])
            )
            for rank, row in enumerate(matrix_clock)
            if rank != me
        }
