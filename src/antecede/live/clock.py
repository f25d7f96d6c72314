"""A member's clock: it starts at the time of day and never goes back.

Repair, protocol timers and the times in stores and traces must not depend on somebody setting the computer's
clock. So the time of day is read once, when the member starts, and the monotonic clock is added to it. After
a restart it goes on at the last time in the store, if the time of day is before that.
"""

from __future__ import annotations

import time
from typing import Protocol as Interface


class Clock(Interface):
    """What tells a member the time; a simulation has its own."""

    def now(self) -> int:
        """Nanoseconds since 1970, never less than before."""

    def start_after(self, last: int) -> None:
        """From now on it is `last` or later."""


class MemberClock:
    """The time of day at its creation, and the monotonic clock since."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return self._offset + time.monotonic_ns()

    def start_after(self, last: int) -> None:
        self._offset = max(self._offset, last - time.monotonic_ns())
