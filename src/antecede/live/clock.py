"""A member's clock: it starts at the time of day and never goes back.

Repair, protocol timers and the times in stores and traces must not depend on changes of the computer's clock.
So the time of day is read once, when the member starts, and monotonic time is added to it. After a restart
the clock continues from the last time in the store, if the time of day is earlier than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol as Interface


class Clock(Interface):
    """A member's source of time; a simulation provides its own."""

    def now(self) -> int:
        """Nanoseconds since 1970, never less than before."""

    def start_after(self, last: int) -> None:
        """From now on it is `last` or later."""


class MemberClock:
    """The time of day at its creation, and the monotonic clock since; both in nanoseconds."""

    def __init__(
        self,
        time_of_day: Callable[[], int] | None = None,
        monotonic: Callable[[], int] | None = None,
    ) -> None:
        self._monotonic = monotonic or time.monotonic_ns
        self._offset = (time_of_day or time.time_ns)() - self._monotonic()

    def now(self) -> int:
        return self._offset + self._monotonic()

    def start_after(self, last: int) -> None:
        self._offset = max(self._offset, last - self._monotonic())
