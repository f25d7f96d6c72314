"""A live group as an application sees it: broadcast to it and iterate over it, in causal order.

    async with antecede.join("room", me="ana", listen=":7000", peers=["bo@bo.example:7000"]) as group:
        await group.broadcast("hello")
        async for message in group:
            print(message.origin, message.body, message.causes)

Once `broadcast` returns, the message is in the store: it will be delivered everywhere, whatever happens to
this process. A member's own messages are delivered to it too (unless `own=False`), so the application only
has to apply what is delivered. A delivered message is acked when the next one is requested in the same
iteration, or by `ack`; an unacked message is delivered again, marked `redelivered`.

`Group` is what applications use. There are two kinds: with a fixed list of members (`fixed_group.py`), and
with dynamic membership (`changing/group.py`).
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from antecede import causality
from antecede.errors import AntecedeError, require
from antecede.live.addressing import Addressing
from antecede.live.clock import Clock, MemberClock
from antecede.live.delivering import Deliveries
from antecede.live.driver import Driver
from antecede.live.envelope import Body
from antecede.live.events import Opened
from antecede.live.headers import About
from antecede.live.inspection import Inspection
from antecede.live.messages import HeldMessage, MessageId, Notice
from antecede.live.observers import Observers
from antecede.live.operations import control
from antecede.live.operations.logs import Log
from antecede.live.operations.metrics import serve
from antecede.live.operations.trace import NodeTrace
from antecede.live.problems import Problem, Problems
from antecede.live.reading import ConsumerSide
from antecede.live.ready import Ready
from antecede.live.requests import Requests
from antecede.live.security.identity import Security
from antecede.live.sending import ProducerSide
from antecede.live.settings import Settings
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.suspicion import Suspicions
from antecede.live.transport.listener import Listener
from antecede.live.view import ChangeKind, MemberChange, View, describe_change
from antecede.protocols.base import LocalError

if TYPE_CHECKING:
    from antecede.live.operations.tracing import Tracing

TICK_SECONDS = 0.2
_PAUSE_EVERY = 256
"""Broadcasts between two turns of the event loop, if there is no store to wait for."""
_FULL_SECONDS = 3 * TICK_SECONDS
"""How long `broadcast` must have waited before a notice is sent: progress reports take a while to arrive."""
_DRAINING_SECONDS = 3.0
"""The same for `drain`."""

State = Literal["new", "open", "draining", "returning", "leaving", "closed"]


def _create_tracing(settings: Settings) -> Tracing | None:
    if not settings.otel:
        return None
    module = require("antecede.live.operations.tracing", "otel")
    return cast("Tracing", module.Tracing(settings.group, settings.me))


class Group(ConsumerSide, ProducerSide):
    """A live group, seen by one of its members. Made by `join`."""

    _connections: Any
    _driver: Driver
    _inspection: Inspection
    _security: Security
    _speaks = 1
    """In a dynamic group: the greatest version of the wire format that this process speaks."""

    def __init__(
        self, settings: Settings, core: Any, names: Sequence[str] | Mapping[int, str], clock: Clock | None
    ) -> None:
        self.settings = settings
        ahead = settings.faults.clock_offset() if settings.faults is not None else 0
        self._clock = clock or MemberClock(lambda: time.time_ns() + ahead)
        self._core, self._names = core, names
        self._journal: Journal | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        """Set after each event, so that tasks which wait for a condition check it again."""
        self._state: State = "new"
        self._opened_at = time.time()
        self._has_left = False
        self._failure: AntecedeError | None = None
        self._observers = Observers(notes_broadcasts=not settings.own)
        self._log = Log(settings.group, settings.me)
        self._problems = Problems(settings.group, settings.me)
        self._suspicions = Suspicions(settings, self._clock)
        self._joined: set[str] = set()
        self._requests = Requests(self)
        self._addressing = Addressing(
            settings.group, self._security, core.signatures, lambda: self._core.called
        )
        self._tracing = _create_tracing(settings)
        self._metrics: Listener | None = None
        self._control: control.ControlServer | None = None
        self.counts: Counter[str] = Counter()
        """Counters for metrics."""

    # Membership

    @property
    @abc.abstractmethod
    def members(self) -> tuple[str, ...]:
        """All members, this one too."""

    @property
    @abc.abstractmethod
    def partners(self) -> tuple[str, ...]:
        """The members that this one exchanges packets with, by its protocol."""

    @property
    @abc.abstractmethod
    def connected(self) -> tuple[str, ...]:
        """The partners that are connected."""

    @property
    def present(self) -> frozenset[str]:
        """The names of everyone who is connected now, including this member. In a group with dynamic
        membership, members pass this on to each other: phones are included, and every view is correct seconds
        after a change."""
        return frozenset({self.settings.me, *self.connected})

    @property
    @abc.abstractmethod
    def view(self) -> View:
        """The members as of this member's last delivery, and which of them are suspected."""

    def changes(self) -> AsyncIterator[MemberChange]:
        """Membership changes from now on: members that join, leave, are suspected, are removed or return."""
        return self._observers.watch()

    @abc.abstractmethod
    async def remove(self, who: str) -> None:
        """Remove a member, by name (all its incarnations) or by label. The others agree on the end of its
        stream; `changes` reports when that is done. More members must stay than are removed."""

    @abc.abstractmethod
    async def leave(self, timeout: float | None = None) -> None:
        """Leave the group for good. Returns when every member has everything that was broadcast here, so that
        nobody waits for this member any more. If that takes longer than `timeout` seconds, it raises
        `TimeoutError` and continues to leave; then call `aclose`, or wait again."""

    async def move(self, to: str) -> None:
        """At a phone: move to another of its super peers, by name. Returns when the move is complete."""
        raise LocalError(f"move: {self.settings.me} is no phone with `super_peers`")

    async def expel(self, phone: str) -> None:
        """At a super peer: retire a phone that is behind it, by name."""
        raise LocalError(f"expel: {phone} is not a phone with `super_peers` behind {self.settings.me}")

    def __repr__(self) -> str:
        return f"<group '{self.settings.group}' at {self.me}: {self.state}>"

    @property
    def address(self) -> str | None:
        """The address at which the others reach this member."""
        return self._connections.address or None

    @property
    @abc.abstractmethod
    def web_address(self) -> str | None:
        """The address at which it listens for phones."""

    # Starting and closing

    async def _start(self) -> None:
        if self._state != "new":
            raise LocalError("a group is joined once")
        settings = self.settings
        if settings.store is not None:
            self._journal = Journal(FileDisk(settings.store), self._identity(), settings.sync)
        try:
            if self._journal is not None:
                self._restore(self._journal)
                self._clock.start_after(self._core.time)
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
                # Durable before any partner learns of it: see `lineage.py`.
                self._core.step(Opened(secrets.token_hex(8), self._clock.now(), self._speaks))
                await self._driver.durable()
                await self._open()
            except BaseException:
                await self._stop()
                raise
        except BaseException:
            if self._journal is not None:
                self._journal.close()
            raise
        self._state = "open"
        self._report_parked()

    @abc.abstractmethod
    def _identity(self) -> dict[str, Any]:
        """The identity that the store must contain."""

    @abc.abstractmethod
    def _restore(self, journal: Journal) -> None: ...

    @abc.abstractmethod
    def _create_connections(self) -> Any: ...

    @abc.abstractmethod
    def _open_trace(self) -> NodeTrace | None: ...

    @abc.abstractmethod
    async def _open(self) -> None:
        """Start taking part, and return when the application can."""

    async def _serve_operators(self) -> None:
        if self.settings.metrics is not None and self._metrics is None:
            self._metrics = await serve(self, self.settings.metrics)
        if self.settings.store is not None and self._control is None:
            self._control = await control.serve(self, self.settings.store)

    def _begin_ticking(self) -> None:
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(self._on_tick_end)

    def _create_deliveries(self) -> Deliveries:
        return Deliveries(
            self._core,
            self._driver,
            self._names,
            self._clock.now,
            self._check_not_closed,
            self._room.set,
            self.settings.limit,
            self._observers,
            self._requests,
            self._tracing,
            self._addressing,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def drain(self, timeout: float | None = None) -> None:
        """Accept no more broadcasts, and wait until every member has delivered all that was broadcast here.

        Meanwhile `problems` names the members that it waits for. It does not wait for a member that is
        removed. If it takes longer than `timeout` seconds, it raises `TimeoutError`, which names them too.
        Then, or if it is cancelled, the group is open again, as if it had not been called.
        """
        self._check_open()
        self._state = "draining"
        if self._journal is None:
            self._driver.flush()
        try:
            async with asyncio.timeout(timeout):
                await self._wait_until_stable()
        except BaseException as error:
            if self._state == "draining":
                self._state = "open"
            if isinstance(error, TimeoutError) and (behind := self._behind()):
                raise TimeoutError(f"{', '.join(behind)} may not have all that was broadcast here") from error
            raise
        finally:
            self._problems.end("draining")

    async def _wait_until_stable(self) -> None:
        began = time.monotonic()
        while behind := self._behind():
            if time.monotonic() - began >= _DRAINING_SECONDS:
                who = ", ".join(behind)
                text = f"waiting for {who} to deliver what was broadcast here"
                if self._problems.begin("draining", "draining", who, text):
                    self._notify("draining", who, text)
            self._room.clear()
            await self._room.wait()
            self._check_not_closed()

    @abc.abstractmethod
    def _behind(self) -> list[str]:
        """The members that may not have delivered all that was broadcast here."""

    async def aclose(self) -> None:
        """Stop. Accepted messages are in the store, and a member that is started on it again continues from
        there; without a store, messages that have not reached others are lost.

        The message in flight is not acked: if it was processed, call `ack` first, or it is delivered again.
        """
        if self._has_left and self._control is not None:
            await self._control.finish()
        if self._state == "new" or self._has_left:
            return
        self._state, self._has_left = "closed", True
        if self._journal is None and self._failure is None:
            self._driver.flush()
        try:
            await self._stop()
        finally:
            if self._journal is not None:
                self._journal.close()
            self._wake_waiters()
            self._observers.end()

    async def _stop(self) -> None:
        """Stop all running tasks."""
        self._requests.close()
        if self._has_deliveries:
            self._deliveries.close()
        if self._ticking is not None:
            self._ticking.cancel()
        if self._metrics is not None:
            self._metrics.close()
        if self._control is not None:
            self._control.close()
        await self._connections.close()
        await self._driver.close()

    @property
    def _has_deliveries(self) -> bool:
        """Whether messages may be delivered to the application; a newcomer must be admitted first."""
        return hasattr(self, "_deliveries")

    # Broadcasting

    async def _broadcast(self, body: Body, about: About, timeout: float | None) -> MessageId:
        if self._state != "open":
            self._check_open()
        if self._is_full():
            async with asyncio.timeout(timeout):
                await self._wait_for_room()
        causes = self._core.causes
        message = self._id(self._core.broadcast(body, self._clock.now(), about))
        if self._observers.recent is not None:
            self._observers.broadcast(message, causes, self._names)
        driver = self._driver
        if self._journal is not None:
            await driver.durable()
        else:
            driver.flush_soon()
            if driver.unflushed >= _PAUSE_EVERY:
                # There is nothing to wait for, but connections and other tasks need a turn.
                await asyncio.sleep(0)
                await driver.let_application_read()
        return message

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

    @abc.abstractmethod
    def _is_full(self) -> bool:
        """Whether `broadcast` must wait."""

    @abc.abstractmethod
    def _lag(self) -> tuple[str, str]:
        """Which members keep messages from becoming stable, and a sentence that says so."""

    def _report_full(self) -> None:
        own_bytes = self._core.application.untaken_own_bytes
        if own_bytes > self.settings.limit:
            who = self.me
            text = (
                f"{own_bytes:,} bytes of {who}'s own messages wait for its own application: "
                "iterate over the group, or join with own=False"
            )
        else:
            who, text = self._lag()
        if self._problems.begin("full", "full", who, text):
            self._notify("full", who, text)

    def _report_room(self) -> None:
        if self._problems.end("full"):
            self._notify("room", self.me, "there is room again")

    # Inspection

    def waiting(self) -> list[HeldMessage]:
        """The held messages: what each waits for, since when, and which members may have that."""
        return [self._inspection.describe(wait) for wait in self._inspection.waits()]

    @property
    def held(self) -> int:
        """How many messages are held; O(1), however many there are."""
        return self._inspection.count_held()

    @abc.abstractmethod
    def delivered(self) -> dict[str, int]:
        """How many messages of each member were delivered here; for this member, how many it has
        broadcast."""

    @property
    @abc.abstractmethod
    def unstable_bytes(self) -> int:
        """Bytes of messages that are not stable: not every member is known to have delivered them."""

    @property
    def state(self) -> State:
        return self._state

    @property
    def store_bytes(self) -> int:
        return self._journal.size() if self._journal is not None else 0

    @abc.abstractmethod
    def suspicion_timeouts(self) -> dict[str, float]:
        """After how many seconds of silence each partner is suspected at present."""

    def go_offline(self, seconds: float) -> None:
        """Break all connections and make none for a while, to test the effects."""
        self._connections.go_offline(seconds)

    def events(self) -> AsyncIterator[Notice]:
        """Events of the group from now on: connections, losses, refusals, gaps, recoveries."""
        return self._observers.listen()

    def problems(self) -> list[Problem]:
        """The conditions that require a person's action, while they last; they are also logged as
        warnings."""
        return self._problems.list()

    def _notify(self, kind: Any, member: str, text: str) -> None:
        if kind == "joined":
            self._end_refusal(member)
            if member in self._joined:
                return  # another connection to it has replaced this one
            self._joined.add(member)
        elif kind == "lost":
            self._joined.discard(member)
        elif kind == "refused" and self._is_member(member):
            self._problems.begin(("refused", member), "refused", member, text, log=False)
        self._observers.tell_notice(Notice(kind, member, text, time.time()))

    def _end_refusal(self, member: str) -> None:
        """End the problem of a refused member, which is now connected."""
        self._problems.end(("refused", member))

    @abc.abstractmethod
    def _is_member(self, name: str) -> bool: ...

    def _tell(
        self, kind: ChangeKind, label: str, by: str = "", message: MessageId | None = None, text: str = ""
    ) -> None:
        """Report a change of a member to listeners."""
        name = label.partition("~")[0]
        change = MemberChange(kind, label, name, by, message, text, time.time())
        self._log.info("%s", describe_change(change), extra={"peer": name})
        if kind in ("left", "removed"):
            self._requests.give_up(label, kind)
        self._observers.tell_change(change)

    # Called by the driver and the connections

    def _id(self, message: causality.MessageId) -> MessageId:
        return MessageId(self._names[message.origin], message.seq)

    def _on_step(self) -> None:
        """The core has taken an event."""
        self._driver.stepped()
        self._room.set()
        if self._journal is None:
            # With a journal nothing is deliverable before it is durable: `_on_advance` wakes the application
            # then.
            self._connections.wake()
            self._wake_waiters()

    def _on_advance(self, ready: Ready) -> None:
        """A `Ready` was carried out."""
        for message, link in ready.repaired:
            self._connections.report_repair(message, link)
        self._connections.wake()
        self._wake_waiters()

    def _on_failure(self, error: AntecedeError, kind: Literal["store", "bounds"] = "store") -> None:
        self._failure = error
        self._log.error("%s", error)
        self._problems.begin(kind, kind, self.me, str(error), log=False)
        self._notify(kind, self.me, str(error))
        self._state = "closed"
        self._requests.close()
        if self._has_deliveries:
            self._deliveries.close()
        self._wake_waiters()

    def _on_trace(self, problem: str) -> None:
        """The trace cannot be written, or can be again (an empty text): the group continues in any case."""
        if problem:
            self._problems.begin("trace", "trace", self.me, problem)
        else:
            self._problems.end("trace")
        self._notify("trace", self.me, problem or "the trace is written again")

    def _wake_waiters(self) -> None:
        if self._has_deliveries:
            self._deliveries.wake()
        self._room.set()

    async def _until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition to become true; a failure of the store ends the wait."""
        while not condition():
            self._check_failed()
            self._room.clear()
            await self._room.wait()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._on_tick()
            self._room.set()
            if self._problems.is_current("full") and not self._is_full():
                self._report_room()

    @abc.abstractmethod
    def _on_tick(self) -> None:
        """Called a few times a second."""

    def _on_tick_end(self, task: asyncio.Task[None]) -> None:
        """A member whose ticks fail no longer reports its progress, and would silently block the others."""
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._log.error("a tick failed", exc_info=error)
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
