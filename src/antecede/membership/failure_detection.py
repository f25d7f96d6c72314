"""Failure detection: who seems to be down, by time-outs that adapt to the network.

A suspicion is never certain, and nothing that members deliver depends on it: it changes routes, and may lead
to a removal, which is safe even if it is wrong.

*The time-out is learnt from quantiles*, not from a fitted distribution as in the phi accrual detector. Phi
takes intervals to be normal, so on a network with a long tail it is far too sure, and implementations add
fixed pauses of seconds to make up for that. Here the time-out is the longest of the last intervals, plus what
that one exceeds the mean by, plus one interval: a report that is lost or a pause as long as one seen lately
is not suspicious. After a pause that was longer the time-out has grown, and shrinks again when the pause
leaves the window.

- `HeartbeatDetector`: everyone hears of everyone. Heartbeats ride on the reports that members send anyway.
- `VCubeDetector`: for large groups. A member tests log2 n others, the first of each of its clusters that is
  not suspected, and learns of the rest from them (VCube's diagnosis).

Without clock or socket, like everything here: a driver says what time it is, in nanoseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

WINDOW = 100
"""Intervals that are remembered."""
_TRUSTED_AFTER = 5
"""Intervals after which the time-out adapts; until then it is `_PATIENCE` times the expected interval."""
_PATIENCE = 10


class AdaptiveTimeout:
    """A time-out learnt from the last values. Amortised O(1) for each."""

    __slots__ = ("_descending", "_expected", "_number", "_sum", "_values")

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._values: deque[int] = deque()
        self._descending: deque[tuple[int, int]] = deque()
        """Values that may still become the longest, each with its number."""
        self._sum = self._number = 0

    def add(self, value: int) -> None:
        while self._descending and self._descending[-1][1] <= value:
            self._descending.pop()
        self._descending.append((self._number, value))
        self._number += 1
        self._values.append(value)
        self._sum += value
        if len(self._values) > WINDOW:
            self._sum -= self._values.popleft()
            if self._descending[0][0] < self._number - WINDOW:
                self._descending.popleft()

    @property
    def timeout(self) -> int:
        if len(self._values) < _TRUSTED_AFTER:
            return _PATIENCE * self._expected
        longest, mean = self._descending[0][1], self._sum // len(self._values)
        return 2 * longest - mean + self._expected


class HeartbeatDetector:
    """Suspects members of which nothing was heard for longer than their time-out.

    `check` is called once an interval. If it was not, this member itself stood still, and has heard nobody
    for that reason: it begins anew.

    >>> detector = HeartbeatDetector(interval=100)
    >>> detector.watch([7], now=0)
    >>> for time in range(100, 1000, 100):
    ...     _ = detector.hear(7, time, is_report=True)
    >>> detector.check(1050), detector.check(1101), detector.hear(7, 1200)
    ([], [7], True)
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._timeouts: dict[int, AdaptiveTimeout] = {}
        self._heard: dict[int, int] = {}
        self._reported: dict[int, int] = {}
        self._checked: int | None = None
        self.suspected: dict[int, int] = {}
        """Who is suspected, and since when."""

    def watch(self, members: Collection[int], now: int) -> None:
        """The members to watch, from now on."""
        for member in self._heard.keys() - set(members):
            for table in (self._timeouts, self._heard, self._reported, self.suspected):
                table.pop(member, None)
        for member in members:
            if member not in self._heard:
                self._timeouts[member], self._heard[member] = AdaptiveTimeout(self._interval), now

    def hear(self, member: int, now: int, is_report: bool = False) -> bool:
        """Something has come from a member: a sign of life, and a report is one at regular intervals. True if
        it was suspected, and is not any more."""
        if member not in self._heard:
            return False
        self._heard[member] = now
        if is_report:
            if member in self._reported:
                self._timeouts[member].add(now - self._reported[member])
            self._reported[member] = now
        return self.suspected.pop(member, None) is not None

    def check(self, now: int) -> list[int]:
        """Who is suspected since the last time."""
        before, self._checked = self._checked, now
        if before is not None and now - before > 2 * self._interval:
            self._heard = dict.fromkeys(self._heard, now)
            self._reported.clear()
        found = [
            member
            for member, heard in self._heard.items()
            if now - heard > self._timeouts[member].timeout and member not in self.suspected
        ]
        self.suspected |= dict.fromkeys(found, now)
        return found


class VCubeDetector:
    """Tests the members at some places of a cube of `size` places, and learns of the others from them.

    The driver sends a test to each of `targets`, with a number, passes answers to `on_answer` and calls
    `on_timeout` if there is none within `timeout`.
    """

    def __init__(self, me: int, size: int, expected: int) -> None:
        self.me = me
        self.events = [0] * size
        """For each place, how often it was found to have changed: an odd number if it is suspected."""
        dimension = max(1, (size - 1).bit_length())
        # VCube's order: by the distance from the place opposite.
        clusters = (((me ^ 1 << bit) ^ near for near in range(1 << bit)) for bit in range(dimension))
        self._clusters = [[place for place in each if place < size] for each in clusters]
        self._cluster_of = {place: bit for bit, each in enumerate(self._clusters) for place in each}
        self._timeouts = [AdaptiveTimeout(expected) for _ in self._clusters]

    def is_suspected(self, place: int) -> bool:
        return self.events[place] % 2 == 1

    def targets(self) -> list[int]:
        """Whom to test in this round: in each cluster all up to the first that is not suspected, so that
        those who return are noticed."""
        found = []
        for each in self._clusters:
            for place in each:
                found.append(place)
                if not self.is_suspected(place):
                    break
        return found

    def timeout(self, place: int) -> int:
        """How long to wait for an answer."""
        return self._timeouts[self._cluster_of[place]].timeout

    def answer(self) -> list[int]:
        """What a member that is tested says."""
        return list(self.events)

    def on_answer(self, place: int, events: Iterable[int], took: int) -> list[int]:
        """A tested member has answered; returns the places that have become suspected."""
        number = self._cluster_of[place]
        self._timeouts[number].add(took)
        self.events[place] += self.is_suspected(place)
        found = []
        for other, count in enumerate(events):
            if other != place and other != self.me and count > self.events[other]:
                if count % 2 and not self.is_suspected(other):
                    found.append(other)
                self.events[other] = count
        return found

    def on_timeout(self, place: int) -> list[int]:
        """A tested member has not answered; returns it if it was not suspected before."""
        if self.is_suspected(place):
            return []
        self.events[place] += 1
        return [place]
