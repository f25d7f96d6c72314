"""When a super peer writes to its phones: at once, or together with what else is for them soon.

With a write for each message and phone, a super peer would spend most of its time in them. So it writes to
all of them, with what there is for each, and then pauses: a millisecond for each phone, so that it makes at
most a thousand such writes a second. A message after a pause goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_SECONDS_EACH = 0.001
_LONGEST = 0.2


class PacedLinks:
    """The links to phones; `rouse` is called when something may be written on one."""

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
        """There may be something to write on a link."""
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
