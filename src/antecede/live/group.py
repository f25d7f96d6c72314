"""A live group as an application sees it: broadcast to it and iterate over it, in causal order.

    async with antecede.join("room", me="ana", listen=":7000", peers=["bo@bo.example:7000"]) as group:
        await group.broadcast("hello")
        async for message in group:
            print(message.origin, message.body, message.causes)

Once `broadcast` returns, the message is in the store: it will be delivered everywhere, whatever happens to
this process. A delivered message is acked when the next one is asked for, or by `ack`; the one in flight
when the process dies, or when an exception ends `async with`, is delivered again, marked `redelivered`. A
member's own messages are not delivered to it: for the sender, sending is the delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal, Self

from antecede import causality
from antecede.errors import StoreError
from antecede.live.core import Core
from antecede.live.driver import Driver
from antecede.live.envelope import Body
from antecede.live.events import TimerFired
from antecede.live.messages import HeldMessage, Message, MessageId, Notice, Notices
from antecede.live.operations.logs import Log
from antecede.live.operations.metrics import serve
from antecede.live.operations.trace import NodeTrace
from antecede.live.ready import Ready
from antecede.live.recovery import restore
from antecede.live.settings import Settings
from antecede.live.stability import Stability
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.transport.connections import Connections
from antecede.live.transport.handshake import KnownStores
from antecede.live.transport.listener import Listener
from antecede.protocols.base import Delivery, LocalError

_TICK_SECONDS = 0.2
_REPAIR_PATIENCE = 1_000_000_000
"""How long a message may be missing before others are asked for it, in nanoseconds."""
_PAUSE_EVERY = 64
_FULL_SECONDS = 3 * _TICK_SECONDS
"""How long `broadcast` must have waited before that is news: progress takes a while to be reported."""


class Group:
    """A live group, seen by one of its members. Made by `join`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._roster = settings.roster()
        self._names = self._roster.names
        self._core = Core(
            self._roster.create_protocol(settings.me),
            traced=settings.trace is not None,
            durable=settings.store is not None,
        )
        # Each member has about its limit under way; twice that is not a delay but an attack.
        self._core.max_undelivered = 2 * len(self._names) * max(settings.limit, 1 << 20)
        self._journal: Journal | None = None
        self._driver: Driver
        self._connections: Connections
        self._ticking: asyncio.Task[None] | None = None
        self._deliverable = asyncio.Event()
        self._room = asyncio.Event()
        self._is_iterating = False
        self._state: Literal["new", "open", "draining", "closed"] = "new"
        self._has_left = False
        self._failure: StoreError | None = None
        self._listeners: list[Notices] = []
        self._metrics: Listener | None = None
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
        """The partners to which there is a connection."""
        return tuple(self._names[peer] for peer in self._connections.connected())

    @property
    def address(self) -> str | None:
        """Where this member listens."""
        return self._connections.address

    @property
    def web_address(self) -> str | None:
        return self._connections.web_address

    # Joining and leaving

    async def _start(self) -> None:
        if self._state != "new":
            raise LocalError("a group is joined once")
        settings = self.settings
        identity = {
            "group": settings.group,
            "member": settings.me,
            "protocol": self._roster.protocol.name,
            "members": self._roster.lines,
        }
        if settings.store is not None:
            self._journal = Journal(FileDisk(settings.store), identity, settings.sync)
        try:
            self._restore()
            self._connections = self._create_connections()
            self._driver = Driver(
                self._core,
                self._journal,
                settings.sync,
                self._open_trace(),
                self._on_advance,
                self._on_failure,
                self._on_trace,
            )
            try:
                await self._connections.start()
                if settings.metrics is not None:
                    self._metrics = await serve(self, settings.metrics)
            except BaseException:
                await self._connections.close()
                await self._driver.close()
                raise
        except BaseException:
            if self._journal is not None:
                self._journal.close()
            raise
        self._state = "open"
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(self._on_tick_end)

    def _restore(self) -> None:
        if self._journal is not None:
            restore(self._core, self._journal)

    def _open_trace(self) -> NodeTrace | None:
        settings = self.settings
        if settings.trace is None:
            return None
        run, protocol = settings.group, self._roster.protocol.name
        return NodeTrace(
            settings.trace, run, settings.group, protocol, self._names, settings.me, self._core.trace
        )

    def _create_connections(self) -> Connections:
        journal, met = self._journal, dict[int, str]()
        return Connections(
            self.settings,
            self._roster,
            self._core,
            KnownStores(
                journal.store if journal else secrets.token_hex(8),
                journal.remembered if journal else lambda peer: met.get(peer, ""),
                self._remember if journal else met.__setitem__,
            ),
            self._on_step,
            self._notify,
            self.counts,
        )

    def _remember(self, peer: int, store: str) -> None:
        if self._journal is not None:
            try:
                self._journal.remember(peer, store)
            except OSError as error:
                raise self._driver.fail(f"{self._journal.path}: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(ack=error is None)

    async def drain(self) -> None:
        """Accept nothing more, and wait until every member has delivered all that was broadcast here."""
        self._check_open()
        self._state = "draining"
        if self._journal is None:
            self._driver.flush()
        me, matrix_clock = self._core.me, self._core.stability.matrix_clock
        while any(row[me] < matrix_clock[me][me] for row in matrix_clock):
            self._room.clear()
            await self._room.wait()
            self._check_failed()

    async def aclose(self) -> None:
        """Leave. What was accepted is in the store; without one, what has not reached others is lost.

        The message in flight is acked. If an exception ends `async with` it is not, and is delivered again.
        """
        await self._leave(ack=True)

    async def _leave(self, ack: bool) -> None:
        if self._state == "new" or self._has_left:
            return
        self._state, self._has_left = "closed", True
        if self._ticking is not None:
            self._ticking.cancel()
        if self._metrics is not None:
            self._metrics.close()
        if ack:
            self._driver.ack()
        if self._journal is None and self._failure is None:
            self._driver.flush()
        try:
            await self._connections.close()
            await self._driver.close()
        finally:
            self._end()

    def _end(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._wake_waiters()
        for listener in self._listeners:
            listener.end()

    # Broadcasting

    async def broadcast(self, body: Body, timeout: float | None = None) -> MessageId:
        """Broadcast a message to the group; returns once it cannot be lost any more.

        Waits while too much is under way to members that are slow or away (`limit`); if that takes longer
        than `timeout` seconds, it raises `TimeoutError` and nothing was broadcast. If it is cancelled, the
        message may or may not have been accepted.
        """
        self._check_open()
        core = self._core
        if core.pending_bytes > self.settings.limit:
            async with asyncio.timeout(timeout):
                await self._wait_for_room()
        message = core.broadcast(body, time.time_ns())
        if self._journal is not None:
            await self._driver.durable()
        else:
            self._driver.flush_soon()
            if message.seq % _PAUSE_EVERY == 0:
                # There is nothing to wait for, but connections and other tasks need their turn.
                await asyncio.sleep(0)
        return self._id(message)

    async def _wait_for_room(self) -> None:
        core, began, is_full = self._core, time.monotonic(), False
        while core.pending_bytes > self.settings.limit:
            if not is_full and time.monotonic() - began >= _FULL_SECONDS:
                is_full = True
                lagging = ", ".join(self._names[member] for member in core.stability.lagging())
                text = f"{core.stability.unstable_bytes:,} bytes are not stable; {lagging} lags"
                self._notify("full", lagging, text)
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_full else _FULL_SECONDS):
                    await self._room.wait()
            self._check_open()
        if is_full:
            self._notify("room", self.me, "there is room again")

    # Delivering

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """The next message. The one before it is acked."""
        if self._is_iterating:
            raise LocalError(
                "two tasks iterate over one group: each message goes to one of them, so iterate in one place"
            )
        delivery = self._next_delivery()
        if delivery is None:
            self._is_iterating = True
            try:
                delivery = await self._wait_for_delivery()
            finally:
                self._is_iterating = False
        core = self._core
        redelivered = core.yielded == core.redelivered or core.yielded <= core.uncertain_until
        return Message(delivery, self._names, redelivered)

    def _next_delivery(self) -> Delivery | None:
        return None if self._state == "closed" else self._driver.next_delivery(time.time_ns())

    async def _wait_for_delivery(self) -> Delivery:
        while True:
            if self._state == "closed":
                self._check_failed()
                raise StopAsyncIteration
            self._deliverable.clear()
            await self._deliverable.wait()
            if (delivery := self._next_delivery()) is not None:
                return delivery

    def ack(self, message: Message) -> None:
        """`message`, which is in flight, has been processed: it will not be delivered again."""
        core = self._core
        if core.yielded > core.acked and self._id(core.unacked[0].message) == message.id:
            self._driver.ack()

    # Looking

    def waiting(self) -> list[HeldMessage]:
        """What is held, for which message, since when, and who may have that one."""
        held, stability = [], self._core.stability
        for wait in self._core.protocol.waiting():
            cause = wait.cause
            holders = stability.holders(cause) if cause is not None else []
            entry = stability.unstable[wait.message.origin].get(wait.message.seq)
            since = (entry.since if entry is not None and entry.since else time.time_ns()) / 1e9
            names = tuple(self._names[member] for member in holders)
            held.append(HeldMessage(self._id(wait.message), self._id(cause) if cause else None, since, names))
        return held

    def delivered(self) -> dict[str, int]:
        """How many messages of each member were delivered here; of this one, how many it has broadcast."""
        return dict(zip(self._names, self._stability().matrix_clock[self._core.me], strict=True))

    @property
    def state(self) -> Literal["new", "open", "draining", "closed"]:
        return self._state

    @property
    def store_bytes(self) -> int:
        return self._journal.size() if self._journal is not None else 0

    @property
    def unstable_bytes(self) -> int:
        """Bytes of messages that are not stable: not every member is known to have delivered them."""
        return self._stability().unstable_bytes

    def _stability(self) -> Stability:
        if self._journal is None:
            self._driver.flush()  # without a store, what was broadcast is accepted at once
        return self._core.stability

    def go_offline(self, seconds: float) -> None:
        """Break all connections and make none for a while, to try what happens then."""
        self._connections.go_offline(seconds)

    def events(self) -> AsyncIterator[Notice]:
        """What happens to the group from now on: joins, losses, refusals, gaps, recoveries."""
        listener = Notices(self._listeners.remove)
        self._listeners.append(listener)
        if self._has_left:
            listener.end()
        return listener

    def _notify(self, kind: Any, member: str, text: str) -> None:
        notice = Notice(kind, member, text, time.time())
        for listener in self._listeners:
            listener.put(notice)

    # What the driver and the connections call

    def _id(self, message: causality.MessageId) -> MessageId:
        return MessageId(self._names[message.origin], message.seq)

    def _on_step(self) -> None:
        """The core has taken an event."""
        self._driver.stepped()
        self._room.set()
        if self._journal is None:
            # With a journal nothing is deliverable before it is durable: `_on_advance` says when.
            self._connections.wake()
            self._deliverable.set()

    def _on_advance(self, ready: Ready) -> None:
        """A `Ready` was carried out."""
        for message, link in ready.repaired:
            self._connections.report_repair(message, link)
        self._connections.wake()
        self._wake_waiters()

    def _on_failure(self, error: StoreError) -> None:
        self._failure = error
        Log(self.settings.group, self.me).error("%s", error)
        self._notify("store", self.me, str(error))
        self._state = "closed"
        self._wake_waiters()

    def _on_trace(self, problem: str) -> None:
        """The trace cannot be written, or can be again (an empty text): the group goes on in any case."""
        text = problem or "the trace is written again"
        Log(self.settings.group, self.me).warning("%s", text)
        self._notify("trace", self.me, text)

    def _wake_waiters(self) -> None:
        self._deliverable.set()
        self._room.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.time_ns()
            if self._core.wake_at is not None and self._core.wake_at <= now:
                self._core.step(TimerFired(now))
                self._on_step()
            self._connections.gossip(now, _REPAIR_PATIENCE)
            self._driver.tick()

    def _on_tick_end(self, task: asyncio.Task[None]) -> None:
        """A member that no longer reports its progress would hold up everybody in silence."""
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._driver.fail(f"internal: {error!r}")

    def _check_open(self) -> None:
        self._check_failed()
        if self._state != "open":
            raise LocalError(f"the group is {self._state}")

    def _check_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
