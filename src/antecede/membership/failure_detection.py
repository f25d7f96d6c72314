"""Failure detection by time-outs that adapt to the network.

A suspicion is never certain, and deliveries do not depend on it. It changes routes, and may lead to a
removal, which is safe even if it is wrong.

*The time-out is learnt from quantiles*, not from a fitted distribution as in the phi accrual detector. Phi
assumes normally distributed intervals, so on a network with a long tail it is far too confident, and
implementations compensate with fixed pauses of seconds. Here the time-out is the longest of the last
intervals, plus its excess over the mean, plus one interval. So neither a lost report nor a pause as long as a
recent one raises suspicion. A longer pause increases the time-out, which shrinks again when the pause leaves
the window.

- `HeartbeatDetector`: every member hears from every other one. Reports that members send anyway serve as
  heartbeats.
- `VCubeDetector`: for large groups. A member tests log2 n others, the first of each of its clusters that is
  not suspected, and learns of the rest from them (VCube's diagnosis).

Like all of this package, it has no clock and no socket: a driver passes in the time, in nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

WINDOW = 100
"""Intervals that are remembered."""
_TRUSTED_AFTER = 5
"""Intervals after which the time-out adapts; until then it is `_PATIENCE` times the expected interval, unless
its user knows better."""
_PATIENCE = 10


class AdaptiveTimeout:
    """A time-out learnt from the last values. Amortised O(1) for each."""

    __slots__ = ("_descending", "_expected", "_first", "_number", "_sum", "_values")

    def __init__(self, expected: int, first: int | None = None) -> None:
        self._expected = expected
        self._first = _PATIENCE * expected if first is None else first
        self._values: deque[int] = deque()
        self._descending: deque[tuple[int, int]] = deque()
        """Candidates for the longest value, each with its number."""
        self._sum = self._number = 0

    def expect(self, expected: int, first: int | None) -> None:
        """Values are about to become longer or shorter."""
        self._expected = expected
        self._first = _PATIENCE * expected if first is None else first

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
            return self._first
        longest, mean = self._descending[0][1], self._sum // len(self._values)
        return 2 * longest - mean + self._expected


class HeartbeatDetector:
    """Suspects members that were silent for longer than their time-out.

    The time-out is `first` until it adapts, or always `fixed`, if that is given. `check` is called once an
    interval. If a call is late, this member itself has paused and therefore received nothing, so it starts
    anew.

    >>> detector = HeartbeatDetector(interval=100)
    >>> detector.watch([7], now=0)
    >>> for time in range(100, 1000, 100):
    ...     _ = detector.hear(7, time, is_report=True)
    >>> detector.check(1050), detector.check(1101), detector.hear(7, 1200)
    ([], [7], True)
    """

    def __init__(self, interval: int, first: int | None = None, fixed: int | None = None) -> None:
        self._interval, self._first, self._fixed = interval, first, fixed
        self._timeouts: dict[int, AdaptiveTimeout] = {}
        self._heard: dict[int, int] = {}
        self._reported: dict[int, int] = {}
        self._checked: int | None = None
        self.suspected: dict[int, int] = {}
        """The suspected members, and since when."""

    def expect(self, interval: int, first: int | None) -> None:
        """Reports arrive at other intervals from now on."""
        self._interval, self._first = interval, first
        for each in self._timeouts.values():
            each.expect(interval, first)

    def watch(self, members: Collection[int], now: int) -> None:
        """Set the members to watch from now on."""
        for member in self._heard.keys() - set(members):
            for table in (self._timeouts, self._heard, self._reported, self.suspected):
                table.pop(member, None)
        for member in members:
            if member not in self._heard:
                self._timeouts[member] = AdaptiveTimeout(self._interval, self._first)
                self._heard[member] = now

    def hear(self, member: int, now: int, is_report: bool = False) -> bool:
        """Something has arrived from a member, which is a sign of life; reports arrive at regular intervals.
        Returns whether the member was suspected until now."""
        if member not in self._heard:
            return False
        self._heard[member] = now
        if is_report:
            if member in self._reported:
                self._timeouts[member].add(now - self._reported[member])
            self._reported[member] = now
        return self.suspected.pop(member, None) is not None

    def check(self, now: int) -> list[int]:
        """The members newly suspected since the last call."""
        before, self._checked = self._checked, now
        if before is not None and now - before > 2 * self._interval:
            self._heard = dict.fromkeys(self._heard, now)
            self._reported.clear()
        found = [
            member
            for member, heard in self._heard.items()
            if now - heard > self.timeout(member) and member not in self.suspected
        ]
        self.suspected |= dict.fromkeys(found, now)
        return found

    def timeout(self, member: int) -> int:
        """How long a member may be silent at present before it is suspected."""
        if self._fixed is not None:
            return self._fixed
        found = self._timeouts.get(member)
        return found.timeout if found is not None else AdaptiveTimeout(self._interval, self._first).timeout


class Diagnosis(NamedTuple):
    """The members that became suspected, and those that are no longer suspected."""

    suspected: list[int]
    trusted: list[int]


_NOTHING_NEW = Diagnosis([], [])


class VCubeDetector:
    """Tests some members, and learns about the others from them.

    Members have places on a cube, in the order of their ids. In each round the driver sends a test to each of
    `targets`. It passes answers to `on_answer`, and calls `on_timeout` if there is none within `timeout`.

    >>> detector = VCubeDetector(0, expected=100)
    >>> detector.watch(range(8))
    >>> detector.targets(), detector.on_timeout(4, now=900).suspected, detector.targets()
    ([1, 2, 4], [4], [1, 2, 4, 5])
    """

    def __init__(self, me: int, expected: int) -> None:
        self.me, self._expected = me, expected
        self._ranked: list[int] = [me]
        self._clusters: list[list[int]] = []
        self._timeouts: list[AdaptiveTimeout] = []
        self._events: dict[int, int] = {}
        """How often a member was found to have changed: an odd number if it is suspected."""
        self.suspected: dict[int, int] = {}
        """The suspected members, and since when."""

    def watch(self, members: Collection[int]) -> None:
        """Set the members of the group."""
        ranked = sorted({self.me, *members})
        if ranked == self._ranked:
            return
        for gone in set(self._ranked).difference(ranked):
            self._events.pop(gone, None)
            self.suspected.pop(gone, None)
        self._ranked, size, place = ranked, len(ranked), ranked.index(self.me)
        # VCube's order: by the distance from the place opposite.
        clusters = (
            [(place ^ 1 << bit) ^ near for near in range(1 << bit)] for bit in range((size - 1).bit_length())
        )
        self._clusters = [[ranked[each] for each in places if each < size] for places in clusters]
        self._timeouts += [
            AdaptiveTimeout(self._expected) for _ in range(len(self._clusters) - len(self._timeouts))
        ]

    def targets(self) -> list[int]:
        """The members to test in this round: in each cluster all up to the first that is not suspected, so
        that returning members are noticed."""
        found = []
        for each in self._clusters:
            for member in each:
                found.append(member)
                if member not in self.suspected:
                    break
        return found

    def timeout(self, member: int) -> int:
        """How long to wait for the answer of one of the targets."""
        return self._timeouts[self._cluster_of(member)].timeout

    def _cluster_of(self, member: int) -> int:
        return (self._place(self.me) ^ self._place(member)).bit_length() - 1

    def _place(self, member: int) -> int:
        return bisect_left(self._ranked, member)

    def _knows(self, member: int) -> bool:
        place = self._place(member)
        return member != self.me and place < len(self._ranked) and self._ranked[place] == member

    def answer(self) -> dict[int, int]:
        """The answer to a test."""
        return dict(self._events)

    def on_answer(self, member: int, events: Mapping[int, int], took: int, now: int) -> Diagnosis:
        """A tested member has answered, perhaps late."""
        if not self._knows(member):
            return _NOTHING_NEW
        self._timeouts[self._cluster_of(member)].add(took)
        found = Diagnosis([], [])
        self._note(member, self._events.get(member, 0) + (member in self.suspected), now, found)
        known = self._events
        for other, count in events.items():
            # Most entries of an answer are known already.
            if count > known.get(other, 0) and other != member and self._knows(other):
                self._note(other, count, now, found)
        return found

    def on_timeout(self, member: int, now: int) -> Diagnosis:
        """A tested member has not answered."""
        if not self._knows(member) or member in self.suspected:
            return _NOTHING_NEW
        found = Diagnosis([], [])
        self._note(member, self._events.get(member, 0) + 1, now, found)
        return found

    def _note(self, member: int, count: int, now: int, found: Diagnosis) -> None:
        if count <= self._events.get(member, 0):
            return
        self._events[member] = count
        if count % 2 == 0:
            if self.suspected.pop(member, None) is not None:
                found.trusted.append(member)
        elif member not in self.suspected:
            self.suspected[member] = now
            found.suspected.append(member)
