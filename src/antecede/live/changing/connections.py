"""The connections of a process whose group changes: whom it calls, whom it accepts, and frames over sockets.

Whoever wants a link calls, at the place where the other has said that it listens; if two connections meet,
the one made by the lesser name stays. `PartnerLink` says which frames to send, as with a fixed list.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from antecede.errors import AntecedeError, InputError
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.greeting import MemberGreeter, MemberGreeting, decode
from antecede.live.clock import Clock
from antecede.live.operations.logs import Log
from antecede.live.security.identity import Identity, Security
from antecede.live.settings import Settings, address
from antecede.live.transport.admission import Admission, PendingConnection, capacity_for, source_of
from antecede.live.transport.frames import MAX_BYTES, Refusal, encode
from antecede.live.transport.greeter import StaleGreetingError
from antecede.live.transport.links import PartnerLink
from antecede.live.transport.listener import Listener
from antecede.live.transport.wires import TcpWire
from antecede.protocols.base import RemoteError

_GREETING_SECONDS = 10.0
_CLOSING_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_MAX_GREETING = 1 << 14
_EXPECTED_MEMBERS = 256


class MemberConnections:
    """All connections of one process. `stepped` is called after the core has taken an event, `heard` when
    something has arrived on a link, `lost` when a link has no connection any more."""

    def __init__(
        self,
        settings: Settings,
        core: ChangingCore,
        clock: Clock,
        stepped: Callable[[], None],
        heard: Callable[[int], None],
        counts: Counter[str],
    ) -> None:
        self._settings, self._core, self._clock = settings, core, clock
        self._stepped, self._heard, self._counts = stepped, heard, counts
        self._security = Security(settings)
        self._greeter = MemberGreeter(core, settings.group)
        self._log = Log(settings.group, settings.me)
        self._links: dict[int, PartnerLink] = {}
        self._wires: dict[int, TcpWire] = {}
        """By link, the connection that is used."""
        self._work: dict[int, asyncio.Event] = {}
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        self._admission = Admission(capacity_for(_EXPECTED_MEMBERS), [], counts)
        self._is_closing = False
        self.address = ""

    async def start(self) -> None:
        where = self._settings.listen
        if where is not None:
            self._listener = Listener(self._admission, self._accept)
            try:
                await self._listener.start(*address(where, "listen"))
            except OSError as error:
                raise InputError(f"listen: cannot listen at {where}: {error.strerror or error}") from error
            self.address = self._listener.address

    @property
    def connected(self) -> set[int]:
        """The links that have a connection."""
        return set(self._wires)

    def wake(self) -> None:
        """There may be something to send, and somebody to call."""
        for event in self._work.values():
            event.set()
        if self._is_closing:
            return
        for link, where in self._core.wanted_links().items():
            if link not in self._wires and link not in self._dialling:
                task = self._dialling[link] = self._spawn(self._keep_calling(link, where))
                task.add_done_callback(partial(self._on_call_end, link))

    def _on_call_end(self, link: int, task: asyncio.Task[None]) -> None:
        self._dialling.pop(link, None)

    def tick(self) -> None:
        """Now and then: heartbeats, and connections that are silent for too long end."""
        self._security.refresh()
        for link, wire in list(self._wires.items()):
            if self._links[link].tick(time.monotonic()) is not None:
                wire.abort()
        self.wake()

    # Calling

    async def _keep_calling(self, link: int, where: str) -> None:
        pause = _FIRST_PAUSE
        if self._core.name > self._name_of(link) and self._listener is not None:
            await asyncio.sleep(2 * _FIRST_PAUSE)  # the other one calls first
        while link not in self._wires and (where := self._core.wanted_links().get(link, "")):
            with contextlib.suppress(OSError, TimeoutError, AntecedeError):
                async with asyncio.timeout(_GREETING_SECONDS):
                    wire = await TcpWire.dial(where, self._security.client)
                await self._call(wire, self._core.links[link][0], link, "")
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _name_of(self, link: int) -> str:
        theirs = self._core.links[link][1]
        greeted = self._core.greeted.get(theirs)
        stream = self._core.member.stream_at.get(theirs)
        contact = self._core.contact_of(stream) if greeted is None and stream is not None else greeted
        return contact.name if contact is not None else ""

    async def seek(self, where: str, name: str, greeted: Callable[[int], None]) -> None:
        """Call whoever listens at a place, from the current address, and serve the connection; `greeted` is
        called with the link once both have greeted."""
        async with asyncio.timeout(_GREETING_SECONDS):
            wire = await TcpWire.dial(where, self._security.client)
        await self._call(wire, self._core.address, None, name, greeted)

    async def _call(
        self,
        wire: TcpWire,
        mine: int,
        link: int | None,
        name: str,
        greeted: Callable[[int], None] | None = None,
    ) -> None:
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                if self._security.is_on and name:
                    proof = self._security.verify_certificate(wire.info("peercert"))
                    if proof.identity != Identity(self._settings.group, name):
                        raise RemoteError(f"it is {proof.identity.name}, not {name}")
                wire.max_bytes = _MAX_GREETING
                await wire.write([encode(self._greeter.call(mine, link, self._place()))])
                greeting = await self._read_greeting(wire)
                called = mine, None if link is None else self._core.links[link][1]
                found = await self._accept_greeting(wire, greeting, called)
            if name and greeting.contact.name != name:
                raise RemoteError(f"{greeting.contact.name} answers, not {name}")
            if greeted is not None:
                greeted(found)
            await self._serve(wire, found, greeting, dialled=True)
        finally:
            wire.abort()

    def _place(self) -> str:
        return self.address

    # Accepting

    async def _accept(self, connected: socket.socket, pending: PendingConnection) -> None:
        wire = await TcpWire.accept(connected)
        pending.close = wire.abort
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                wire.max_bytes = _MAX_GREETING
                if self._security.server is not None:
                    await wire.start_tls(self._security.server)
                greeting = await self._read_greeting(wire)
                link = await self._accept_greeting(wire, greeting, None)
                mine = self._core.links[link][0]
                await wire.write([encode(self._greeter.call(mine, link, self._place()))])
            self._admission.authenticated(pending)
            await self._serve(wire, link, greeting, dialled=False)
        except AntecedeError as error:
            self._refused(source_of(wire.info("peername")), error)
        finally:
            wire.abort()

    async def _read_greeting(self, wire: TcpWire) -> MemberGreeting:
        greeting = decode(await wire.read())
        if isinstance(greeting, Refusal):
            raise RemoteError(f"it refuses: {greeting.reason[:500]}")
        if not isinstance(greeting, MemberGreeting):
            raise RemoteError("its first frame is not a greeting")
        return greeting

    async def _accept_greeting(
        self, wire: TcpWire, greeting: MemberGreeting, called: tuple[int, int | None] | None
    ) -> int:
        """Validate a greeting, and return the link that it is for; or refuse it with the reason."""
        try:
            if self._security.is_on:
                # Authentication comes first: a stranger learns nothing about the group.
                proof = self._security.verify_certificate(wire.info("peercert"))
                if proof.identity != Identity(self._settings.group, greeting.contact.name):
                    raise RemoteError(f"it claims to be {greeting.contact.name} and is {proof.identity.name}")
                wire.proof = proof
            now = self._clock.now()
            link = self._greeter.find_link(greeting, now, called)
            self._greeter.check_resumable(link, cast("Any", greeting))
        except RemoteError as error:
            await wire.write([encode(Refusal(str(error)))])
            raise
        except StaleGreetingError as error:
            if error.refusal:
                await wire.write([encode(Refusal(error.refusal))])
            raise
        wire.max_bytes = MAX_BYTES
        self._greeter.accept(link, cast("Any", greeting), now)
        self._stepped()
        return link

    def _refused(self, who: str, error: Exception) -> None:
        self._counts["rejected"] += 1
        self._log.warning("refused %s: %s", who, error)

    # While a connection lasts

    async def _serve(self, wire: TcpWire, link: int, greeting: MemberGreeting, dialled: bool) -> None:
        if link not in self._links:
            self._links[link] = PartnerLink(cast("Any", self._core), link, self._counts)
            self._work[link] = asyncio.Event()
        partner = self._links[link]
        by_lesser_name = (self._core.name < greeting.contact.name) == dialled
        if (before := self._wires.get(link)) is not None:
            if not partner.is_replaced_by(cast("Any", greeting), by_lesser_name):
                return
            before.abort()
        self._wires[link] = wire
        partner.open(cast("Any", greeting), time.monotonic(), by_lesser_name)
        self._log.info("connected to %s", greeting.contact.label, extra={"peer": greeting.contact.name})
        self._counts["connections"] += 1
        self._heard(link)
        self._stepped()
        writer = asyncio.create_task(self._write(wire, link))
        try:
            await self._read(wire, link)
        except RemoteError as error:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await wire.write([encode(Refusal(str(error)))])
            raise
        finally:
            writer.cancel()
            if self._wires.get(link) is wire:
                del self._wires[link]
                partner.close()
                self._log.info("lost %s", greeting.contact.label, extra={"peer": greeting.contact.name})
                self._stepped()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, wire: TcpWire, link: int) -> None:
        try:
            while self._wires.get(link) is wire:
                frames = self._links[link].take_frames(time.monotonic())
                if not frames:
                    self._work[link].clear()
                    await self._work[link].wait()
                    continue
                encoded = [encode(frame) for frame in frames]
                self._counts["wire bytes"] += sum(map(len, encoded))
                await wire.write(encoded)
        except (ConnectionError, OSError):
            wire.abort()

    async def _read(self, wire: TcpWire, link: int) -> None:
        partner, core = self._links[link], self._core
        while True:
            frame = decode(await wire.read())
            if self._wires.get(link) is not wire:
                return
            partner.receive(cast("Any", frame), time.monotonic(), self._clock.now())
            self._work[link].set()
            self._heard(link)
            self._stepped()
            if (reason := core.rejected.pop(link, None)) is not None:
                raise RemoteError(reason)

    def adopt(self, task: asyncio.Task[None]) -> None:
        """A connection to a contact lasts as long as any other."""
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, OSError | TimeoutError | AntecedeError):
            self._log.info("a connection has ended: %s", error)
        else:
            self._log.error("a connection's task failed", exc_info=error)

    async def close(self) -> None:
        self._is_closing = True
        if self._listener is not None:
            self._listener.close()
        self._admission.close_all()
        for event in self._work.values():
            event.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                while any(self._work[link].is_set() for link in self._wires):
                    await asyncio.sleep(0.002)
        for task in list(self._tasks):
            task.cancel()
        for wire in list(self._wires.values()):
            wire.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
