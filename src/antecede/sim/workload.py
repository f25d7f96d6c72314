"""Workloads: when each peer sends, and which deliveries it answers."""

from __future__ import annotations

import abc
import operator
from collections.abc import Sequence
from typing import ClassVar

from antecede import user_classes
from antecede.causality import MessageId
from antecede.errors import ProtocolError
from antecede.sim import counter_rng
from antecede.sim.network import Delay

NEVER = 1 << 62


class Workload(abc.ABC):
    """The send times of each peer, in order.

    A user-defined workload is created as `Class(seed, reply, **parameters)`; scenarios name it as
    `module:Class`.
    """

    sends_after_joining: ClassVar[bool] = True
    """Whether it has send times for processes that join, as if the run began then."""

    def __init__(self, seed: int, reply: float = 0.0) -> None:
        self.seed = seed
        self._reply = reply

    @abc.abstractmethod
    def next_send(self, peer: int, number: int, previous: int) -> int:
        """The time of `peer`'s send `number` (from 0); the one before was at `previous`."""

    def group(self, peer: int, number: int, groups: Sequence[str | None]) -> str | None:
        """The group that `peer` sends its message `number` (from 0, answers included) to."""
        if len(groups) == 1:
            return groups[0]
        bits = counter_rng.draw(counter_rng.key(self.seed, counter_rng.GROUP, peer), number)
        return groups[counter_rng.between(bits, 0, len(groups))]

    def replies(self, peer: int, message: MessageId) -> bool:
        """Whether `peer` answers `message` at the moment of its delivery."""
        if not self._reply:
            return False
        key = counter_rng.key(self.seed, counter_rng.REPLY, peer, message.origin)
        return counter_rng.happens(counter_rng.draw(key, message.seq), self._reply)

    def _phase(self, peer: int, interval: int) -> int:
        """A random start within the first interval."""
        return counter_rng.between(counter_rng.key(self.seed, counter_rng.PHASE, peer), 0, interval)

    def _bits(self, peer: int, number: int) -> int:
        return counter_rng.draw(counter_rng.key(self.seed, counter_rng.SEND, peer), number)


class Periodic(Workload):
    """One send every `interval` from a random phase, each up to `jitter` late."""

    def __init__(self, seed: int, interval: int, jitter: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval
        self.jitter = jitter

    def next_send(self, peer: int, number: int, previous: int) -> int:
        late = counter_rng.between(self._bits(peer, number), 0, self.jitter + 1)
        return max(self._phase(peer, self.interval) + number * self.interval + late, previous)


class Poisson(Workload):
    """A Poisson process with one send every `interval` on average."""

    def __init__(self, seed: int, interval: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval

    def next_send(self, peer: int, number: int, previous: int) -> int:
        return previous + counter_rng.exponential(self._bits(peer, number), self.interval)


class RandomIntervals(Workload):
    """Intervals drawn from a distribution, from a random phase within the first."""

    def __init__(self, seed: int, interval: Delay, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval

    def next_send(self, peer: int, number: int, previous: int) -> int:
        interval = max(1, self.interval.sample(self._bits(peer, number)))
        return previous + interval if number else self._phase(peer, interval)


class Once(Workload):
    """One send from each peer, at a time that is distributed as `at`."""

    def __init__(self, seed: int, at: Delay, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.at = at

    def next_send(self, peer: int, number: int, previous: int) -> int:
        if number:
            return NEVER
        return self.at.sample(counter_rng.key(self.seed, counter_rng.PHASE, peer))


class Rounds(Workload):
    """A burst of sends from each peer at the start of every interval."""

    def __init__(self, seed: int, interval: int, burst: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval
        self.burst = burst

    def next_send(self, peer: int, number: int, previous: int) -> int:
        return number // self.burst * self.interval


class Scheduled(Workload):
    """Sends at listed times, a sorted list for each peer."""

    sends_after_joining: ClassVar[bool] = False

    def __init__(self, seed: int, times: Sequence[Sequence[int]], reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.times = times

    def next_send(self, peer: int, number: int, previous: int) -> int:
        times = self.times[peer]
        return times[number] if number < len(times) else NEVER


class OncePerWindow(Workload):
    """One send from each peer in every interval, at any time up to `spread` after its start."""

    def __init__(self, seed: int, interval: int, spread: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval
        self.spread = spread

    def next_send(self, peer: int, number: int, previous: int) -> int:
        late = counter_rng.between(self._bits(peer, number), 0, self.spread + 1)
        return max(number * self.interval + late, previous)


_MOST_AT_ONCE = 10_000
"""The most messages that a peer may send at the same time."""


class UserWorkload(Workload):
    """A user-defined workload, whose times are validated."""

    def __init__(self, text: str, seed: int, reply: float) -> None:
        super().__init__(seed, reply)
        self._text = text
        self._own = user_classes.create(
            text,
            Workload,  # type: ignore[type-abstract]
            "workload",
            seed=seed,
            reply=reply,
        )
        self._at_once: dict[int, int] = {}
        """How many consecutive sends of each peer are at the same time."""

    def next_send(self, peer: int, number: int, previous: int) -> int:
        time = self._own.next_send(peer, number, previous)
        try:
            checked = operator.index(time)
        except TypeError:
            checked = -1
        if checked < previous:
            raise ProtocolError(
                f"workload {self._text}: next_send() returned {time!r} after a send at {previous}; times are "
                "whole nanoseconds in ascending order"
            )
        self._at_once[peer] = self._at_once.get(peer, 0) + 1 if checked == previous else 0
        if self._at_once[peer] > _MOST_AT_ONCE:
            raise ProtocolError(
                f"workload {self._text}: next_send() returned {checked} more than {_MOST_AT_ONCE:,} times in "
                f"a row; peer {peer} would send for ever"
            )
        return checked

    def group(self, peer: int, number: int, groups: Sequence[str | None]) -> str | None:
        group = self._own.group(peer, number, groups)
        if group not in groups:
            raise ProtocolError(f"workload {self._text}: group() returned {group!r}, not one of {groups}")
        return group

    def replies(self, peer: int, message: MessageId) -> bool:
        return bool(self._own.replies(peer, message))
