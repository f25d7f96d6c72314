"""Polls members once a second while a page is open, and keeps the newest picture for all open pages.

It runs in a thread of its own with an event loop, so that neither a slow member nor a slow browser delays the
others: a member is not asked again before it has answered, and a browser is sent the newest picture once it
has read the previous one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from antecede.console.causal import NotedMessages, around
from antecede.console.overview import Document, member_detail, overview
from antecede.console.sources import MemberSource, Question
from antecede.errors import AntecedeError
from antecede.live.operations.state import MemberMessages, MemberReport

PERIOD = 1.0
_PATIENCE = 0.5
"""How long a round waits for members that have not answered, in seconds."""
_TIMEOUT = 5.0
_STALE = 3.0
"""Seconds after which the last report of a member is no longer shown."""
_MAX_HISTORY = 120
MAX_LOOKERS = 8


class _Asked:
    """A member that is polled, and its last report."""

    def __init__(self, source: MemberSource) -> None:
        self.source = source
        self.state: MemberReport | None = None
        self.answered_at = 0.0
        self.error = "it has not answered yet"
        self.task: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                self.state = await self.source.ask("state")
        except (AntecedeError, OSError, TimeoutError) as error:
            self.error = str(error) or "it does not answer"
        else:
            self.answered_at, self.error = time.monotonic(), ""

    @property
    def is_fresh(self) -> bool:
        return self.state is not None and time.monotonic() - self.answered_at < _STALE


class GroupWatch:
    """`find_sources` is called at intervals, because members may come and go. With `hides_silent`, members
    that do not answer are not mentioned. `clock` is the members' clock, in seconds since 1970."""

    def __init__(
        self,
        find_sources: Callable[[], list[MemberSource]],
        hides_silent: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._find_sources, self._hides_silent, self._clock = find_sources, hides_silent, clock
        self._asked: dict[str, _Asked] = {}
        self._history: deque[tuple[float, float, float]] = deque(maxlen=_MAX_HISTORY)
        """Samples over time: the time, and messages per second delivered and broadcast."""
        self._rates: dict[str, tuple[float, float]] = {}
        self._counts: dict[str, tuple[float, int, int]] = {}
        self._changed = threading.Condition()
        self._version, self._document = 0, b"{}"
        self._lookers = 0
        self._is_open = True
        self._loop = asyncio.new_event_loop()
        self._wanted = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="antecede console", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        self._loop.call_soon_threadsafe(self._wanted.set)
        self._thread.join(_TIMEOUT + 1)

    # For the threads that serve viewers.

    def follow(self) -> Iterator[bytes]:
        """Yield the newest picture whenever it changes. Ends at once if too many pages are open."""
        with self._changed:
            if self._lookers >= MAX_LOOKERS:
                return
            self._lookers += 1
            seen = self._version
        try:
            self._loop.call_soon_threadsafe(self._wanted.set)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._version != seen or not self._is_open, 10)  # noqa: B023
                    if not self._is_open:
                        return
                    seen, document = self._version, self._document
                yield document
        finally:
            with self._changed:
                self._lookers -= 1

    @property
    def has_room(self) -> bool:
        return self._lookers < MAX_LOOKERS

    def message(self, message: str) -> Document:
        """A message with its causal past and future, as all members that answer have noted them."""
        return asyncio.run_coroutine_threadsafe(self._message(message), self._loop).result(2 * _TIMEOUT)

    def member(self, label: str) -> Document | None:
        """One member as it sees the group."""
        for each in list(self._asked.values()):
            if each.state is not None and each.state.me == label and each.is_fresh:
                return member_detail(each.state)
        return None

    # In the thread of the event loop.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._watch())
        finally:
            self._loop.close()

    async def _watch(self) -> None:
        while self._is_open:
            if not self._lookers:
                self._wanted.clear()
                self._counts.clear()
                await self._wanted.wait()
                continue
            began = time.monotonic()
            await self._ask_all()
            self._publish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, PERIOD - (time.monotonic() - began))):
                    self._wanted.clear()
                    await self._wanted.wait()
        for each in self._asked.values():
            if each.task is not None:
                each.task.cancel()

    async def _ask_all(self) -> None:
        sources = {source.name: source for source in self._find_sources()}
        for name in self._asked.keys() - sources.keys():
            del self._asked[name]
        for name, source in sources.items():
            each = self._asked.setdefault(name, _Asked(source))
            if each.task is None or each.task.done():
                each.task = asyncio.create_task(each.ask())
        tasks = [each.task for each in self._asked.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)

    def _publish(self) -> None:
        states = [each.state for each in self._asked.values() if each.is_fresh and each.state is not None]
        groups = Counter(state.group for state in states).most_common(1)
        group = groups[0][0] if groups else ""
        mine = list({state.me: state for state in states if state.group == group}.values())
        document = overview(mine, self._clock())
        document |= self._rate(mine)
        document["asked"] = len(self._asked)
        document["answering"] = len(mine)
        document["silent"] = [] if self._hides_silent and mine else self._silent(group)
        with self._changed:
            self._document = msgspec.json.encode(document)
            self._version += 1
            self._changed.notify_all()

    def _silent(self, group: str) -> list[Document]:
        """The members that should have answered, and why there is no report from them."""
        found = []
        for name, each in self._asked.items():
            if not each.is_fresh:
                found.append({"name": name, "text": each.error or "it does not answer"})
            elif each.state is not None and each.state.group != group:
                found.append({"name": name, "text": f"it is in another group: {each.state.group}"})
        return found

    def _rate(self, states: list[MemberReport]) -> Document:
        """Messages per second of a member since its previous report."""
        for state in states:
            before = self._counts.get(state.me)
            now = state.time, state.delivered, state.broadcast
            if before is None or now[1] < before[1] or now[2] < before[2]:
                self._counts[state.me] = now
            elif (elapsed := state.time - before[0]) >= PERIOD / 4:
                self._counts[state.me] = now
                self._rates[state.me] = (now[1] - before[1]) / elapsed, (now[2] - before[2]) / elapsed
        self._rates = {state.me: self._rates[state.me] for state in states if state.me in self._rates}
        delivered = sum(rate for rate, _ in self._rates.values())
        broadcast = sum(rate for _, rate in self._rates.values())
        as_of = self._clock()
        if self._rates and (not self._history or as_of > self._history[-1][0]):
            self._history.append((as_of, round(delivered, 2), round(broadcast, 2)))
        return {
            "rates": {label: [round(each, 2) for each in rates] for label, rates in self._rates.items()},
            "rate": [round(delivered, 2), round(broadcast, 2)] if self._rates else None,
            "history": list(self._history),
        }

    async def _message(self, message: str) -> Document:
        asked = [each.source for each in self._asked.values() if each.is_fresh]
        answers = await asyncio.gather(*(self._ask(source, "messages") for source in asked))
        noted = [each for each in answers if isinstance(each, MemberMessages)]
        return around(NotedMessages(noted), message)

    async def _ask(self, source: MemberSource, question: Question) -> Any:
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await source.ask(question)
        except (AntecedeError, OSError, TimeoutError):
            return None
