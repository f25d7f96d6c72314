"""A live group as an application sees it: broadcast to it and iterate over it, in causal order.

    async with antecede.join("room", me="ana", listen=":7000", peers=["bo@bo.example:7000"]) as group:
        await group.broadcast("hello")
        async for message in group:
            print(message.origin, message.body, message.causes)

Once `broadcast` returns, the message is in the store: it will be delivered everywhere, whatever happens to
this process. A member's own messages are delivered to it too (unless `own=False`), so applying what is
delivered is all that an application has to do. A delivered message is acked when the next one is asked for in
the same iteration, or by `ack`; one that was not acked is delivered again, marked `redelivered`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal, Self

from antecede import causality
from antecede.errors import StoreError
from antecede.live.clock import Clock, MemberClock
from antecede.live.core import Core
from antecede.live.delivering import Deliveries, MessageIterator
from antecede.live.driver import Driver
from antecede.live.envelope import Body
from antecede.live.events import Opened, TimerFired
from antecede.live.messages import HeldMessage, Message, MessageId, Notice, Notices, ParkedMessage
from antecede.live.operations.logs import Log
from antecede.live.operations.metrics import serve
from antecede.live.operations.trace import NodeTrace
from antecede.live.problems import Problem, Problems, Reachability, describe_fork
from antecede.live.ready import Ready
from antecede.live.recovery import restore
from antecede.live.security.identity import Security
from antecede.live.security.signing import create_keyring
from antecede.live.settings import Settings
from antecede.live.stability import Stability
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.transport.connections import Connections
from antecede.live.transport.listener import Listener
from antecede.protocols.base import LocalError

_TICK_SECONDS = 0.2
_REPAIR_PATIENCE = 1_000_000_000
"""How long a message may be missing before others are asked for it, in nanoseconds."""
_PAUSE_EVERY = 256
"""Broadcasts between two turns of the event loop, if there is no store to wait for."""
_MANY_HELD = 1_000
"""Above this many held messages, metrics do not look at each."""
_FULL_SECONDS = 3 * _TICK_SECONDS
"""How long `broadcast` must have waited before that is news: progress takes a while to be reported."""


class Group:
    """A live group, seen by one of its members. Made by `join`."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or MemberClock()
        self._roster = settings.roster()
        self._names = self._roster.names
        self._me = settings.me
        self._security = Security(settings)
        self._core = Core(
            self._roster.create_protocol(settings.me),
            traced=settings.trace is not None,
            durable=settings.store is not None,
            own=settings.own,
            signatures=create_keyring(self._security, settings, self._names),
        )
        # A member has about its limit under way; four times that is not a delay but an attack.
        self._core.stability.max_undelivered = 4 * max(settings.limit, 1 << 20)
        self._journal: Journal | None = None
        self._driver: Driver
        self._connections: Connections
        self._ticking: asyncio.Task[None] | None = None
        self._deliveries: Deliveries
        self._room = asyncio.Event()
        self._state: Literal["new", "open", "draining", "closed"] = "new"
        self._has_left = False
        self._failure: StoreError | None = None
        self._listeners: weakref.WeakSet[Notices] = weakref.WeakSet()
        self._problems = Problems(settings.group, settings.me)
        self._reachability = Reachability(self._roster, settings.me, self._core.stability)
        self._joined: set[str] = set()
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
            self._deliveries = Deliveries(
                self._core,
                self._driver,
                self._names,
                self._clock.now,
                self._check_not_closed,
                self._room.set,
                settings.limit,
            )
            try:
                # Durable before anybody hears of it: see `lineage.py`.
                self._core.step(Opened(secrets.token_hex(8), self._clock.now()))
                await self._driver.durable()
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
        self._report_parked()
        self._report_forks()
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(self._on_tick_end)

    def _restore(self) -> None:
        if self._journal is not None:
            restore(self._core, self._journal)
            self._clock.start_after(self._core.time)

    def _open_trace(self) -> NodeTrace | None:
        settings = self.settings
        if settings.trace is None:
            return None
        run, protocol = settings.group, self._roster.protocol.name
        return NodeTrace(
            settings.trace, run, settings.group, protocol, self._names, settings.me, self._core.trace
        )

    def _create_connections(self) -> Connections:
        return Connections(
            self.settings,
            self._roster,
            self._core,
            self._security,
            self._on_step,
            self._notify,
            self.counts,
            self._clock,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def drain(self, timeout: float | None = None) -> None:
        """Accept nothing more, and wait until every member has delivered all that was broadcast here.

        If that takes longer than `timeout` seconds, it raises `TimeoutError`. Then, or if it is cancelled,
        the group is open again, as if it had not been called.
        """
        self._check_open()
        self._state = "draining"
        if self._journal is None:
            self._driver.flush()
        try:
            async with asyncio.timeout(timeout):
                await self._wait_until_stable()
        except BaseException:
            if self.state == "draining":
                self._state = "open"
            raise

    async def _wait_until_stable(self) -> None:
        me, matrix_clock = self._core.me, self._core.stability.matrix_clock
        while any(row[me] < matrix_clock[me][me] for row in matrix_clock):
            self._room.clear()
            await self._room.wait()
            self._check_not_closed()

    async def aclose(self) -> None:
        """Leave. What was accepted is in the store; without one, what has not reached others is lost.

        The message in flight is not acked: if it was processed, call `ack` before, or it is delivered again.
        """
        if self._state == "new" or self._has_left:
            return
        self._state, self._has_left = "closed", True
        self._deliveries.close()
        if self._ticking is not None:
            self._ticking.cancel()
        if self._metrics is not None:
            self._metrics.close()
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

        Waits while too much is under way to members that are slow or away, or waits for this member's own
        application (`limit`). If that takes longer than `timeout` seconds, it raises `TimeoutError` and
        nothing was broadcast, nor if it is cancelled meanwhile. If it is cancelled later, while the store is
        written, the message may have been accepted; then it is delivered here too, as any other.
        """
        if self._state != "open":
            self._check_open()
        if self._is_full():
            async with asyncio.timeout(timeout):
                await self._wait_for_room()
        _, seq = self._core.broadcast(body, self._clock.now())
        driver = self._driver
        if self._journal is not None:
            await driver.durable()
        else:
            driver.flush_soon()
            if driver.unflushed >= _PAUSE_EVERY:
                # There is nothing to wait for, but connections and other tasks need their turn.
                await asyncio.sleep(0)
                await driver.let_application_read()
        return MessageId(self._me, seq)

    async def _wait_for_room(self) -> None:
        began, is_reported = time.monotonic(), False
        while self._is_full():
            if not is_reported and time.monotonic() - began >= _FULL_SECONDS:
                is_reported = True
                self._report_full()
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_reported else _FULL_SECONDS):
                    await self._room.wait()
            self._check_open()
        self._report_room()

    def _is_full(self) -> bool:
        limit, core = self.settings.limit, self._core
        return core.application.untaken_own_bytes > limit or core.pending_bytes > limit

    def _report_full(self) -> None:
        stability, own_bytes = self._core.stability, self._core.application.untaken_own_bytes
        if own_bytes > self.settings.limit:
            who = self.me
            text = (
                f"{own_bytes:,} bytes of {who}'s own messages wait for its own application: "
                "iterate over the group, or join with own=False"
            )
        else:
            who = ", ".join(self._names[member] for member in stability.lagging())
            text = f"{stability.unstable_bytes:,} bytes are not stable; {who} lags"
        if self._problems.begin("full", "full", who, text):
            self._notify("full", who, text)

    def _report_members(self, kind: Literal["paused", "unreachable"], texts: dict[str, str | None]) -> None:
        """What is wrong with members, or None for those with which nothing is."""
        for name, text in texts.items():
            if text is None:
                self._problems.end((kind, name))
            elif self._problems.begin((kind, name), kind, name, text):
                self._notify(kind, name, text)

    def _report_forks(self) -> None:
        divergences = {("forked", *key): each for key, each in self._core.stability.divergences.items()}
        for key in self._problems.keys("forked") - divergences.keys():
            self._problems.end(key)  # a third member had said so, and the member itself says otherwise
        for key, divergence in divergences.items():
            origin, text = self._names[divergence.origin], describe_fork(divergence, self._names)
            if self._problems.begin(key, "forked", origin, text):
                self._notify("forked", origin, text)

    def _report_room(self) -> None:
        if self._problems.end("full"):
            self._notify("room", self.me, "there is room again")

    # Delivering

    def __aiter__(self) -> AsyncIterator[Message]:
        """A new iteration. Its first message is the one in flight, if there is one: nobody has acked it."""
        return MessageIterator(self._deliveries)

    async def __anext__(self) -> Message:
        """The next message, outside of a loop. Consecutive calls are one iteration: each acks the message
        that the one before returned. After an `async for`, it begins a new iteration."""
        return await self._deliveries.next_alone()

    def ack(self, message: Message) -> None:
        """`message`, which is in flight, has been processed: it will not be delivered again."""
        self._deliveries.ack(message)

    def nack(self, message: Message, delay: float = 0.0) -> None:
        """`message`, which is in flight, could not be processed: it is delivered again after `delay` seconds.

        Nothing is delivered before it meanwhile. `message.deliveries` counts; `park` ends this.
        """
        self._deliveries.nack(message, delay)

    async def park(self, message: Message, reason: str = "") -> None:
        """Put `message`, which is in flight, aside durably, and go on with the messages after it.

        For a message that can never be processed. What depends on it is delivered without it, so an
        application must expect that. It stays in the store until `unpark`; `problems` counts such messages.
        More of them than `limit` bytes are refused with a `LocalError`: the message is delivered again then,
        so that whoever sends poison holds up this application rather than fill its disk.
        """
        await self._deliveries.park(message, reason)
        self._report_parked()

    def parked(self) -> list[ParkedMessage]:
        """The messages that were put aside, the oldest first."""
        return self._deliveries.parked()

    async def unpark(self, message: MessageId) -> Message:
        """Remove a message that was put aside and return it. Process it before: nobody has it afterwards."""
        removed = await self._deliveries.unpark(message)
        self._report_parked()
        return removed

    def _report_parked(self) -> None:
        parked = self._core.application.parked
        if not parked:
            self._problems.end("parked")
            return
        last = next(reversed(parked.values()))
        message = self._id(last.delivery.message)
        text = f"{len(parked):,} messages are parked, the last is {message}: {last.reason}"
        if self._problems.begin("parked", "parked", self.me, text):
            self._notify("parked", message.origin, text)

    # Looking

    def waiting(self) -> list[HeldMessage]:
        """What is held, for which message, since when, and who may have that one."""
        held, stability, now = [], self._core.stability, self._clock.now()
        for wait in self._core.waiting():
            cause = wait.cause
            holders = stability.holders(cause) if cause is not None else []
            entry = stability.unstable[wait.message.origin].get(wait.message.seq)
            age = now - entry.since if entry is not None and entry.since else 0
            since = time.time() - age / 1e9
            names = tuple(self._names[member] for member in holders)
            held.append(HeldMessage(self._id(wait.message), self._id(cause) if cause else None, since, names))
        return held

    @property
    def held(self) -> int:
        """How many messages are held. That is quick to say, whoever makes them many."""
        return self._core.count_held()

    def held_seconds(self) -> float:
        """How long the oldest of them has been held; of very many, how long ago the oldest message came that
        is not delivered."""
        if self.held <= _MANY_HELD:
            return max((time.time() - message.since for message in self.waiting()), default=0.0)
        stability = self._core.stability
        nexts = [count + 1 for count in stability.matrix_clock[self._core.me]]
        entries = [unstable.get(seq) for unstable, seq in zip(stability.unstable, nexts, strict=True)]
        since = [entry.since for entry in entries if entry is not None and entry.since]
        return (self._clock.now() - min(since)) / 1e9 if since else 0.0

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
        listener = Notices()
        self._listeners.add(listener)
        if self._has_left:
            listener.end()
        return listener

    def problems(self) -> list[Problem]:
        """The conditions that a person must act on, as long as they last; the logger has them as warnings."""
        return self._problems.list()

    def _notify(self, kind: Any, member: str, text: str) -> None:
        if kind == "joined":
            self._problems.end(("refused", member))
            if member in self._joined:
                return  # another connection to it replaces the first
            self._joined.add(member)
        elif kind == "lost":
            self._joined.discard(member)
        elif kind == "refused" and member in self._names:
            self._problems.begin(("refused", member), "refused", member, text, log=False)
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
            self._deliveries.wake()

    def _on_advance(self, ready: Ready) -> None:
        """A `Ready` was carried out."""
        for message, link in ready.repaired:
            self._connections.report_repair(message, link)
        self._connections.wake()
        self._wake_waiters()

    def _on_failure(self, error: StoreError) -> None:
        self._failure = error
        Log(self.settings.group, self.me).error("%s", error)
        self._problems.begin("store", "store", self.me, str(error), log=False)
        self._notify("store", self.me, str(error))
        self._state = "closed"
        self._deliveries.close()
        self._wake_waiters()

    def _on_trace(self, problem: str) -> None:
        """The trace cannot be written, or can be again (an empty text): the group goes on in any case."""
        if problem:
            self._problems.begin("trace", "trace", self.me, problem)
        else:
            self._problems.end("trace")
        self._notify("trace", self.me, problem or "the trace is written again")

    def _wake_waiters(self) -> None:
        self._deliveries.wake()
        self._room.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.now()
            if self._core.has_timer_due(now):
                self._core.step(TimerFired(now))
                self._on_step()
            self._connections.gossip(now, _REPAIR_PATIENCE)
            self._driver.tick()
            self._driver.stepped()  # a delivery may have shown a fork, which is to be recorded
            self._report_forks()
            if self._problems.is_current("full") and not self._is_full():
                self._report_room()
            self._report_members("unreachable", self._reachability.missing(self.connected))
            self._report_members("paused", self._connections.paused())

    def _on_tick_end(self, task: asyncio.Task[None]) -> None:
        """A member that no longer reports its progress would hold up everybody in silence."""
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._driver.fail(f"internal: {error!r}")

    def _check_open(self) -> None:
        self._check_failed()
        if self._state != "open":
            raise LocalError(f"the group is {self._state}")

    def _check_not_closed(self) -> None:
        self._check_failed()
        if self._state == "closed":
            raise LocalError("the group is closed")

    def _check_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
