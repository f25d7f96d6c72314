"""What an application holds: a group to speak to and to listen to, in cause-and-effect order.

    async with antecede.join("room", me="ana", listen=":7000", peers=["bo@bo.example:7000"]) as group:
        await group.broadcast("hello")
        async for message in group:
            print(message.origin, message.body, message.causes)

A message that `broadcast` has returned for is in the store: it will be delivered everywhere, whatever happens
to this process. A message that comes out of the group is final once the next one is asked for, or `ack` was
called; the one in hand when a process dies, or when an exception ends `async with`, comes again, marked
`redelivered`. One's own messages do not come back: sending is one's own delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal, Self

from antecede.causality import MessageId
from antecede.live.core import Core, Popped
from antecede.live.envelope import Body
from antecede.live.messages import Held, Id, Message, Notice, Notices
from antecede.live.operations.logs import Log
from antecede.live.operations.metrics import serve
from antecede.live.operations.trace import NodeTrace
from antecede.live.settings import Settings
from antecede.live.stability import Progress
from antecede.live.store.group_commit import Commits, StoreError
from antecede.live.store.journal import Journal
from antecede.live.transport.connections import Links
from antecede.live.transport.handshake import Memory
from antecede.protocols.base import LocalError

_TICK_SECONDS = 0.2
_PATIENCE = 1_000_000_000
"""How long a message may be missing before others are asked for it, in nanoseconds."""
_PAUSE_EVERY = 64
_FULL_SECONDS = 3 * _TICK_SECONDS
"""How long there must be no room before that is news: who has just delivered has not told everybody yet."""


class Group:
    """A live group, seen by one of its members. Made by `join`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._roster = settings.roster()
        self._names = self._roster.names
        self._core = Core(
            self._roster.make(settings.me),
            traced=settings.trace is not None,
            logged=settings.store is not None,
        )
        # Each member has at most its limit under way, about; twice that is not a delay but an attack.
        self._core.most_unread = 2 * len(self._names) * max(settings.limit, 1 << 20)
        self._journal: Journal | None = None
        self._commits: Commits
        self._links: Links
        self._ticking: asyncio.Task[None] | None = None
        self._given = 0
        self._in_hand: int | None = None
        self._redelivered = 0
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._listening = False
        self._is_flushing = False
        self._state: Literal["new", "open", "draining", "closed"] = "new"
        self._left = False
        self._failure: StoreError | None = None
        self._watchers: list[Notices] = []
        self._metrics: asyncio.Server | None = None
        self.counts: Counter[str] = Counter()
        """What has happened so far, for metrics."""

    @property
    def me(self) -> str:
        return self.settings.me

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def partners(self) -> tuple[str, ...]:
        """The members that this one exchanges packets with, by its protocol."""
        return tuple(self._names[peer] for peer in self._core.partners)

    @property
    def connected(self) -> tuple[str, ...]:
        """The partners that there is a connection to."""
        return tuple(self._names[peer] for peer in self._links.connected())

    @property
    def address(self) -> str | None:
        """Where this member listens."""
        return self._links.listening

    @property
    def web_address(self) -> str | None:
        return self._links.listening_web

    # Coming and going

    async def _start(self) -> None:
        if self._state != "new":
            raise LocalError("a group is joined once")
        settings, core = self.settings, self._core
        identity = {
            "group": settings.group,
            "member": settings.me,
            "protocol": self._roster.protocol.name,
            "members": self._roster.lines,
        }
        if settings.store is not None:
            self._journal = Journal(settings.store, identity, settings.sync)
        try:
            self._restore()
            trace = None
            if settings.trace is not None:
                run = settings.group
                names = (run, settings.group, self._roster.protocol.name, self._names, settings.me)
                trace = NodeTrace(settings.trace, *names)
            self._links = self._linked()
            self._commits = Commits(core, self._journal, settings.sync, trace, self._released, self._broken)
            try:
                await self._links.start()
                if settings.metrics is not None:
                    self._metrics = await serve(self, settings.metrics)
            except BaseException:
                await self._links.close()
                await self._commits.close()
                raise
        except BaseException:
            if self._journal is not None:
                self._journal.close()
            raise
        self._state = "open"
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(self._stopped)

    def _restore(self) -> None:
        if self._journal is None:
            return
        self._core.restore(self._journal)
        final, in_hand = divmod(self._journal.taken, 2)
        self._redelivered = final + 1 if in_hand else 0
        self._given = self._core.popped - len(self._core.hand)

    def _linked(self) -> Links:
        journal, met = self._journal, dict[int, str]()
        return Links(
            self.settings,
            self._roster,
            self._core,
            Memory(
                journal.store if journal else secrets.token_hex(8),
                journal.remembered if journal else lambda peer: met.get(peer, ""),
                self._remember if journal else met.__setitem__,
            ),
            self._changed,
            self._notify,
            self.counts,
        )

    def _remember(self, peer: int, store: str) -> None:
        if self._journal is not None:
            try:
                self._journal.remember(peer, store)
            except sqlite3.Error as error:
                raise self._commits.give_up(f"{self._journal.path}: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(done=error is None)

    async def drain(self) -> None:
        """Accept nothing more, and wait until every member has delivered all that was sent here."""
        self._check_open()
        self._state = "draining"
        self._flush()
        me = self._core.me
        while any(row[me] < self._core.progress.known[me][me] for row in self._core.progress.known):
            self._room.clear()
            await self._room.wait()
            self._check_failed()

    async def aclose(self) -> None:
        """Leave. What was accepted is in the store; without one, what was not passed on is gone.

        The message in hand is final. It is not if an exception ends `async with`: then it comes again.
        """
        await self._leave(done=True)

    async def _leave(self, done: bool) -> None:
        if self._state == "new" or self._left:
            return
        self._state, self._left = "closed", True
        if self._ticking is not None:
            self._ticking.cancel()
        if self._metrics is not None:
            self._metrics.close()
        if done:
            self._finish()
        if self._journal is None and self._failure is None:
            self._flush()
        try:
            await self._links.close()
            await self._commits.close()
        finally:
            self._end()

    def _end(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._something.set()
        self._room.set()
        for watcher in self._watchers:
            watcher.end()

    # Speaking

    async def broadcast(self, body: Body, timeout: float | None = None) -> Id:
        """Say something to everybody; returns once it cannot be lost any more.

        Waits while too much is on its way to members that are slow or away (`limit`); if that takes longer
        than `timeout` seconds, it is a `TimeoutError` and nothing was said. If it is cancelled, the message
        may or may not have been accepted.
        """
        self._check_open()
        core = self._core
        if core.on_the_way > self.settings.limit:
            async with asyncio.timeout(timeout):
                await self._wait_for_room()
        message = core.broadcast(body, time.time_ns())
        if self._journal is not None:
            await self._commits.written()
        else:
            self._flush_soon()
            if message.seq % _PAUSE_EVERY == 0:
                # Nothing to wait for; but links and listeners want their turn.
                await asyncio.sleep(0)
        return self._id(message)

    def _flush_soon(self) -> None:
        """Without a store: what is said in one round of the loop goes together."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        try:
            self._core.flush()
        except Exception as error:
            self._commits.give_up(f"internal: {error!r}")
        self._links.awaken()
        self._room.set()

    async def _wait_for_room(self) -> None:
        core, began, full = self._core, time.monotonic(), False
        while core.on_the_way > self.settings.limit:
            if not full and time.monotonic() - began >= _FULL_SECONDS:
                full = True
                those = ", ".join(self._names[member] for member in core.progress.behind())
                text = f"{core.progress.unstable_bytes:,} bytes are not known to be everywhere; {those} lags"
                self._notify("full", those, text)
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if full else _FULL_SECONDS):
                    await self._room.wait()
            self._check_open()
        if full:
            self._notify("room", self.me, "there is room again")

    # Listening

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """The next message. The one before it is final from here on."""
        if self._listening:
            raise LocalError(
                "two tasks listen to one group: a message goes to one of them, so ask in one place"
            )
        popped = self._popped()
        if popped is None or not self._core.is_written(popped.message):
            self._finish()
            self._listening = True
            try:
                popped = await self._coming(popped)
            finally:
                self._listening = False
        return self._give(popped)

    def _popped(self) -> Popped | None:
        """The next message if there is one: taken before and not given, or taken now."""
        if self._state == "closed":
            return None
        hand = self._core.hand
        if hand and hand[-1].place > self._given:
            return next(popped for popped in hand if popped.place > self._given)
        return self._core.pop(time.time_ns())

    async def _coming(self, popped: Popped | None) -> Popped:
        """Wait until there is one, and until it would come again after a crash."""
        while popped is None:
            if self._state == "closed":
                self._check_failed()
                raise StopAsyncIteration
            self._something.clear()
            await self._something.wait()
            popped = self._popped()
        while not self._core.is_written(popped.message):
            await self._commits.written()
        return popped

    def _give(self, popped: Popped) -> Message:
        place = popped.place
        if self._in_hand is not None:
            self._core.final(self._in_hand)
        self._given = self._in_hand = place
        if self._journal is not None:
            # In one number: what came before it is final, and it is in hand.
            self._journal.taken = 2 * place - 1
        self._core.given(popped.message)
        return Message(popped, self._names, place == self._redelivered)

    def ack(self, message: Message) -> None:
        """`message`, which is in hand, is dealt with: it will not come again."""
        hand = self._core.hand
        if self._in_hand is not None and hand and self._id(hand[0].message) == message.id:
            self._finish()

    def _finish(self) -> None:
        if self._in_hand is not None:
            if self._journal is not None:
                self._journal.taken = 2 * self._in_hand
            self._core.final(self._in_hand)
            self._in_hand = None

    # Looking

    def waiting(self) -> list[Held]:
        """What has arrived and is held, for which message, since when, and who might have that."""
        found = []
        for held in self._core.protocol.waiting():
            cause = held.cause
            holders = self._core.progress.holders(cause) if cause is not None else []
            kept = self._core.progress.kept[held.message.origin].get(held.message.seq)
            since = (kept.since if kept is not None and kept.since else time.time_ns()) / 1e9
            names = tuple(self._names[member] for member in holders)
            found.append(Held(self._id(held.message), self._id(cause) if cause else None, since, names))
        return found

    def delivered(self) -> dict[str, int]:
        """How many messages of each member are delivered here; of this one, how many were sent."""
        return dict(zip(self._names, self._looked_at().known[self._core.me], strict=True))

    @property
    def state(self) -> Literal["new", "open", "draining", "closed"]:
        return self._state

    @property
    def store_bytes(self) -> int:
        return self._journal.size() if self._journal is not None else 0

    @property
    def unstable_bytes(self) -> int:
        """Bytes of messages that not every member is known to have."""
        return self._looked_at().unstable_bytes

    def _looked_at(self) -> Progress:
        if self._journal is None:
            self._core.flush()  # without a store, what was said is accepted at once
        return self._core.progress

    def go_offline(self, seconds: float) -> None:
        """Break all connections and make none for a while, to try what happens then."""
        self._links.rest(seconds)

    def events(self) -> AsyncIterator[Notice]:
        """What happens to the group from now on: joins, losses, refusals, gaps, recoveries."""
        watcher = Notices(self._watchers.remove)
        self._watchers.append(watcher)
        if self._left:
            watcher.end()
        return watcher

    def _notify(self, kind: Any, member: str, text: str) -> None:
        notice = Notice(kind, member, text, time.time())
        for watcher in self._watchers:
            watcher.put(notice)

    # How it does that

    def _id(self, message: MessageId) -> Id:
        return Id(self._names[message.origin], message.seq)

    def _changed(self) -> None:
        """The core has heard something."""
        if self._journal is None:
            self._links.awaken()
        elif self._core.is_unwritten and self._failure is None:
            self._commits.soon()
        self._something.set()
        self._room.set()

    def _released(self) -> None:
        """Something was written."""
        self._links.awaken()
        self._something.set()
        self._room.set()

    def _broken(self, error: StoreError) -> None:
        self._failure = error
        Log(self.settings.group, self.me).error("%s", error)
        self._notify("store", self.me, str(error))
        self._state = "closed"
        self._something.set()
        self._room.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.time_ns()
            if self._core.wake_at is not None and self._core.wake_at <= now:
                self._core.wake(now)
                self._changed()
            self._links.gossip(now, _PATIENCE)
            if self._failure is None:
                self._commits.tick()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """A member that no longer tells how far it is would hold up everybody without a word."""
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._commits.give_up(f"internal: {error!r}")

    def _check_open(self) -> None:
        self._check_failed()
        if self._state != "open":
            raise LocalError(f"the group is {self._state}")

    def _check_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
