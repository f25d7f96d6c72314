"""Which links a process dials, and when: turns, backoff between calls, and parallel attempts when one hangs.

A partition may heal at any moment, and then both sides should have everything within a second. So calls are
repeated at least every third of a second, and the first one that succeeds is a sign that others may succeed
too. When many members are unreachable, the total rate of calls is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

from antecede.errors import AntecedeError
from antecede.live.changing.core import ChangingCore
from antecede.live.transport.reachability import Unreached, describe
from antecede.live.transport.wires import Wire, dial

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.3
_CALLS_PER_SECOND = 20
_FRESH_SECONDS = 0.4
"""How long a connection attempt may take before a second one is started. If its first packet was lost, the
operating system retransmits after 1, 3, 7 and 15 seconds."""
_LATE_SECONDS = 0.1
"""If a wait takes this much longer than requested, the process itself is slow, and the network may be
healthy."""
_MAX_AT_ONCE = 4
_SIGN_SECONDS = 0.25
"""Signs of life within this interval count as one."""
_NEWCOMER_PAUSE = 0.5
"""How long a member waits for a newcomer's call."""
CALLS_AT_ONCE, _TURN_SECONDS = 16, 0.5
"""How many members are called at a time, and when the next call starts if one cannot be reached."""
_ANSWER_SECONDS = 3.0
"""The same for a member that is reachable but slow to answer, as many are when a large group starts."""
_PAUSE_EACH = 0.01
"""Added to the wait of the side with the greater name, for each link of its process."""
_LONGEST_WAIT = 30.0
"""How long it waits in a large group while other members call it."""
GREETING_SECONDS = 10.0


class Pauses:
    """The pauses of all calls of one process, by link."""

    def __init__(self) -> None:
        self._ends: dict[int, asyncio.Event] = {}
        self._sign_at = float("-inf")

    async def wait(self, link: int, failures: int) -> None:
        """Wait before the next call, after so many failed calls in a row; at most until there is a sign of
        life."""
        longest = max(_LONGEST_PAUSE, len(self._ends) / _CALLS_PER_SECOND)
        seconds = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), longest) * random.uniform(0.5, 1.0)
        self._ends[link] = end = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await end.wait()
        finally:
            if self._ends.get(link) is end:
                del self._ends[link]

    def sign_of_life(self) -> None:
        """A member that was unreachable can be reached again, so others may be, too."""
        now = time.monotonic()
        if now - self._sign_at >= _SIGN_SECONDS:
            self._sign_at = now
            for each in self._ends.values():
                each.set()


async def dial_afresh(where: str, context: ssl.SSLContext | None, seconds: float) -> Wire:
    """Connect, or fail within so many seconds. If the attempt is slow, further attempts run in parallel: the
    packets of the first may be lost, or only late."""
    attempts: list[asyncio.Task[Wire]] = []
    try:
        async with asyncio.timeout(seconds):
            is_late = False
            while True:
                if len(attempts) == _MAX_AT_ONCE and not is_late:
                    _give_up(attempts.pop(1))
                if not is_late:
                    attempts.append(asyncio.create_task(dial(where, context)))
                end = time.monotonic() + _FRESH_SECONDS
                done, _ = await asyncio.wait(
                    attempts, timeout=_FRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    attempts.remove(each)
                    return each.result()
                is_late = time.monotonic() - end > _LATE_SECONDS
    finally:
        for each in attempts:
            _give_up(each)


def _give_up(attempt: asyncio.Task[Wire]) -> None:
    attempt.cancel()
    attempt.add_done_callback(_close)


def _close(attempt: asyncio.Task[Any]) -> None:
    """The attempt may have succeeded at the same moment."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().abort()


class Calls:
    """The calls of one process. `dial` opens a connection; `places` gives the configured address by name;
    `is_amiss` says whether a link has no connection, or one that seems broken; `serve` greets on a
    connection, calls its last argument once both sides have greeted, and serves it. `refused` is notified of
    calls that fail although a connection was made, `unreached` of calls that fail for want of one."""

    def __init__(
        self,
        core: ChangingCore,
        dial: Callable[[str], Awaitable[Wire]],
        places: Mapping[str, str],
        may_call: Callable[[], bool],
        is_amiss: Callable[[int], bool],
        serve: Callable[[Wire, int, Callable[[int], None]], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        refused: Callable[[int, Exception], None],
        unreached: Unreached,
    ) -> None:
        self._core, self._dial, self._places, self._may_call = core, dial, places, may_call
        self._is_amiss, self._serve, self._spawn, self._refused = is_amiss, serve, spawn, refused
        self._unreached = unreached
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By link, the task that calls."""
        self._pauses = Pauses()
        self._lost: set[int] = set()
        """Links that were connected before and are not now."""
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)
        self._connected_at = float("-inf")
        self.may_be_called = False

    def call_if_wanted(self, link: int) -> None:
        if link not in self._tasks and self._may_call() and self._core.wanted_place(link):
            task = self._tasks[link] = self._spawn(self._keep_calling(link))
            task.add_done_callback(partial(self._on_end, link))

    def _on_end(self, link: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(link) is task:
            del self._tasks[link]

    def on_connected(self, link: int) -> None:
        self._connected_at = time.monotonic()
        self._unreached.reached(self._core.partner_name(link))
        if self._tasks.get(link) is asyncio.current_task():
            del self._tasks[link]
        if link in self._lost:
            self._lost.discard(link)
            self._pauses.sign_of_life()

    def on_lost(self, link: int) -> None:
        self._lost.add(link)

    def forget(self, link: int) -> None:
        """Forget a link that was dropped."""
        self._lost.discard(link)

    async def _keep_calling(self, link: int) -> None:
        failures = 0
        if (pause := self._pause_for_other(link)) and self._is_amiss(link):
            await self._await_call(link, pause)
        while self._may_call() and (where := self._place(link, failures)) and self._is_amiss(link):
            with self._failing(link, where), contextlib.ExitStack() as turn:
                await self._turns.acquire()
                turn.callback(self._turns.release)
                loop = asyncio.get_running_loop()
                end = loop.call_later(_TURN_SECONDS, turn.close)
                if link not in self._core.links or not self._is_amiss(link):
                    return  # the other side has called meanwhile
                wire = await self._dial(where)
                end.cancel()
                loop.call_later(_ANSWER_SECONDS, turn.close)
                if not self._is_amiss(link):
                    wire.abort()
                    return
                await self._serve(wire, link, partial(_end_turn, turn))
            if self._tasks.get(link) is not asyncio.current_task():
                return  # it was connected, so this call is finished
            failures += 1
            await self._pauses.wait(link, failures)

    @contextlib.contextmanager
    def _failing(self, link: int, where: str) -> Iterator[None]:
        """Catch the failure of a call, which is then repeated."""
        name = self._core.partner_name(link) if link in self._core.links else ""
        if name:
            self._unreached.calling(name)
        try:
            yield
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass  # the link was dropped meanwhile
        except (ssl.SSLError, AntecedeError) as error:
            self._refused(link, error)
        except (OSError, TimeoutError) as error:
            if not name or link not in self._core.links:
                self._unreached.forget(name)
            elif self._is_amiss(link) and self._may_call():
                self._unreached.failed(name, where, describe(error))

    def _place(self, link: int, failures: int) -> str:
        """Where to call next: alternately the address that the other side has advertised, and the configured
        one. All members may have moved at once."""
        where = self._core.wanted_place(link)
        if where and failures % 2:
            return self._places.get(self._core.partner_name(link), where)
        return where

    async def _await_call(self, link: int, pause: float) -> None:
        """Wait for the other side to call; in a large group as long as calls are still being made, since it
        has many to make as well."""
        end = time.monotonic() + _LONGEST_WAIT
        while True:
            await asyncio.sleep(pause)
            now, is_large = time.monotonic(), len(self._core.links) > CALLS_AT_ONCE
            if not is_large or now > end or now - self._connected_at > pause or not self._is_amiss(link):
                return

    def _pause_for_other(self, link: int) -> float:
        """How long to wait for the other side's call, so that the two do not call at once. A newcomer calls
        first, since it waits for what others send to it."""
        core = self._core
        if not self.may_be_called:
            return 0.0
        if link not in core.partner_lineages:
            streams = (core.member.stream_at.get(address, -1) for address in core.links[link])
            mine, theirs = (core.since.get(stream, 0) for stream in streams)
            if mine != theirs:
                return 0.0 if mine > theirs else _NEWCOMER_PAUSE
        # In a large group it takes a while to call every member.
        is_first = core.name < core.partner_name(link)
        return 0.0 if is_first else 2 * _FIRST_PAUSE + _PAUSE_EACH * len(core.links)


def _end_turn(turn: contextlib.ExitStack, _: int) -> None:
    """The called member has answered, so the next one may be called."""
    turn.close()
