"""How a process calls others that do not answer: pauses between calls, and calls beside one that hangs.

A partition may end at any moment, and then both sides are to have everything within a second. So calls are
repeated after a third of a second at most, and the first that succeeds is a sign that others may, too. Where
many cannot be reached, all of them together are called so many times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from typing import Any

from antecede.live.transport.wires import Wire, dial

FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.3
_CALLS_PER_SECOND = 20
_FRESH_SECONDS = 0.4
"""How long a connection may take to be made before another one is tried as well. If its first packet was
lost, the operating system sends the next after 1, 3, 7 and 15 seconds."""
_MAX_AT_ONCE = 4
_SIGN_SECONDS = 0.25
"""Signs of life within this time are one."""


class Pauses:
    """The pauses of all calls of one process, by link."""

    def __init__(self) -> None:
        self._ends: dict[int, asyncio.Event] = {}
        self._sign_at = float("-inf")

    async def wait(self, link: int, failures: int) -> None:
        """After so many calls in a row without success; until there is a sign of life, at most."""
        longest = max(_LONGEST_PAUSE, len(self._ends) / _CALLS_PER_SECOND)
        seconds = min(FIRST_PAUSE * 2 ** min(failures - 1, 10), longest) * random.uniform(0.5, 1.0)
        self._ends[link] = end = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await end.wait()
        finally:
            if self._ends.get(link) is end:
                del self._ends[link]

    def sign_of_life(self) -> None:
        """One that could not be reached can be again: so may others."""
        now = time.monotonic()
        if now - self._sign_at >= _SIGN_SECONDS:
            self._sign_at = now
            for each in self._ends.values():
                each.set()


async def dial_afresh(where: str, context: ssl.SSLContext | None, seconds: float) -> Wire:
    """Connect, or fail within so many seconds. If that takes a while, other attempts are made beside it: the
    packets of the first may be lost, or only be slow."""
    attempts: list[asyncio.Task[Wire]] = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                if len(attempts) == _MAX_AT_ONCE:
                    _give_up(attempts.pop(1))
                attempts.append(asyncio.create_task(dial(where, context)))
                done, _ = await asyncio.wait(
                    attempts, timeout=_FRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    attempts.remove(each)
                    return each.result()
    finally:
        for each in attempts:
            _give_up(each)


def _give_up(attempt: asyncio.Task[Wire]) -> None:
    attempt.cancel()
    attempt.add_done_callback(_close)


def _close(attempt: asyncio.Task[Any]) -> None:
    """It may have succeeded in the same moment."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().abort()
