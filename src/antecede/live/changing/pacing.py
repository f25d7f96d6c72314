"""When a super peer writes to its phones: at once, or batched.

One write per message and phone would take most of a super peer's time. So it writes to all phones whatever is
pending for each, and then pauses for a millisecond per phone, which limits it to a thousand writes a second.
A message after a pause is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_SECONDS_EACH = 0.001
_LONGEST = 0.2


class PacedLinks:
    """The links to phones; `rouse` is called when a link may be written to."""

    def __init__(self, rouse: Callable[[int], None]) -> None:
        self._rouse = rouse
        self._links: set[int] = set()
        self._waiting: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._may_write_at = 0.0

    def __contains__(self, link: int) -> bool:
        return link in self._links

    def add(self, link: int) -> None:
        self._links.add(link)

    def discard(self, link: int) -> None:
        self._links.discard(link)

    def rouse(self, link: int) -> None:
        """A link may have something to write."""
        self._waiting.add(link)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._may_write_at, loop.time()), self._rouse_all)

    def _rouse_all(self) -> None:
        self._timer = None
        pause = min(_LONGEST, _SECONDS_EACH * len(self._links))
        self._may_write_at = asyncio.get_running_loop().time() + pause
        waiting, self._waiting = self._waiting, set()
        for link in waiting:
            self._rouse(link)
