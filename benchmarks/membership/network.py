"""A small event loop and one network for all failure detectors, so that they are compared under the same
delays.

Delays are lognormal with a median of 2 ms. Now and then a member's own connection stalls: what it sends,
and what is sent to it, arrives when the stall is over. Stalls come once a minute and member on average;
half of them are shorter than 300 ms, one in a hundred takes more than 3 s. That is a pause of a process or
a full queue, not a crash.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any

SECOND = 1_000_000_000
_MEDIAN, _SPREAD = 0.002, 0.5
_STALL_EVERY, _STALL_MEDIAN, _STALL_SPREAD = 60.0, 0.3, 1.0


class Network:
    """Members from 0 to `size` - 1, the time, and future events."""

    def __init__(self, size: int, seconds: float, seed: int, stalls: bool = True) -> None:
        self.size, self.random, self.now = size, random.Random(seed), 0
        self.until = round(seconds * SECOND)
        self.sent = 0
        self.crashed: dict[int, int] = {}
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._stalls = [self._draw_stalls(seconds) if stalls else [] for _ in range(size)]

    def _draw_stalls(self, seconds: float) -> list[tuple[int, int]]:
        found, time = [], self.random.expovariate(1 / _STALL_EVERY)
        while time < seconds:
            length = self.random.lognormvariate(math.log(_STALL_MEDIAN), _STALL_SPREAD)
            found.append((round(time * SECOND), round((time + length) * SECOND)))
            time += length + self.random.expovariate(1 / _STALL_EVERY)
        return found

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, action, arguments))

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + round(delay * SECOND), action, *arguments)

    def send(self, source: int, to: int, action: Callable[..., None], *arguments: Any) -> None:
        """Send a packet; `action` runs at `to` if neither has crashed by then."""
        self.sent += 1
        time = self._released(source, self.now)
        time += round(self.random.lognormvariate(math.log(_MEDIAN), _SPREAD) * SECOND)
        self.at(self._released(to, time), self._arrive, to, action, arguments)

    def _released(self, member: int, time: int) -> int:
        return next((end for begin, end in self._stalls[member] if begin <= time < end), time)

    def _arrive(self, to: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if to not in self.crashed:
            action(*arguments)

    def is_up(self, member: int) -> bool:
        return member not in self.crashed

    def crash(self, member: int) -> None:
        self.crashed[member] = self.now

    def run(self) -> None:
        while self._events and self._events[0][0] <= self.until:
            self.now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
