"""Established connections: frames are read and written, and heartbeats show that both ends are alive.

`PartnerLink` decides which frames to send, as with a fixed list.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

from antecede.errors import AntecedeError
from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.digests import DigestExchange, StreamDigests
from antecede.live.changing.greeting import MemberGreeting, decode
from antecede.live.changing.pacing import PacedLinks
from antecede.live.changing.presence import PresenceTable, PresenceUpdate
from antecede.live.changing.state_links import StateLinks
from antecede.live.changing.transfer import StateFrame
from antecede.live.clock import Clock
from antecede.live.operations.logs import Log
from antecede.live.settings import Settings
from antecede.live.suspicion import Suspicions
from antecede.live.transport.frames import Refusal, RefusedError, encode
from antecede.live.transport.links import HEARTBEAT_SECONDS, PartnerLink
from antecede.live.transport.reachability import describe
from antecede.live.transport.wires import Wire
from antecede.protocols.base import RemoteError

CLOSING_SECONDS = 1.0
_DOUBT_SECONDS = 1.0
"""How long a connection may be silent while packets are unacked before the other end is called again. Packets
may be getting lost; the operating system retransmits them at growing intervals."""
_LATE_SECONDS = 1.0
"""Ticks are more frequent than this, unless the process was suspended or is overloaded."""
_FEW_LINKS, _TICKS_EACH = 16, 5
"""Above this many links, each is checked only in every fifth tick."""
_PHONE_HEARTBEAT, _PHONE_SILENCE = 1.0, 4.0
_PHONE_ACK = 0.5
"""Seconds between two acks of a phone: one ack per message would overload its super peer."""


class ServedConnections(abc.ABC):
    """The connections of one process while they are open. `stepped` is called after the core has taken an
    event, `heard` when something has arrived on a link, `notify` for notices to the user; `suspicions` say
    how long a member may be silent."""

    def __init__(
        self,
        settings: Settings,
        core: ChangingCore,
        clock: Clock,
        stepped: Callable[[], None],
        heard: Callable[[int], None],
        notify: Callable[[str, str, str], None],
        counts: Counter[str],
        suspicions: Suspicions,
    ) -> None:
        self._settings, self._core, self._clock = settings, core, clock
        self._stepped, self._heard, self._counts = stepped, heard, counts
        self._notify, self._suspicions = notify, suspicions
        self._log = Log(settings.group, settings.me)
        self._links: dict[int, PartnerLink] = {}
        self._wires: dict[int, Wire] = {}
        """By link, the connection in use."""
        self._work: dict[int, asyncio.Event] = {}
        self._phone_links = PacedLinks(self._rouse_now)
        self._presence = PresenceTable(core.name, core.is_phone_core)
        self._digests = DigestExchange(core)
        self._ticks, self._ticked_at = 0, time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusals: dict[int, RefusedError] = {}
        """By link: why the other side has ended the last connection on it."""
        self.states = StateLinks(core, settings.store is not None)

    @abc.abstractmethod
    def _want(self, link: int) -> None:
        """Request a connection, or a better one."""

    @abc.abstractmethod
    def _on_connected(self, link: int) -> None: ...

    @abc.abstractmethod
    def _on_lost(self, link: int) -> None: ...

    @property
    def connected(self) -> set[int]:
        """The links that have a connection."""
        return self._wires.keys() & self._core.links.keys()

    @property
    def present(self) -> frozenset[str]:
        """The names of all that are connected to some member, as far as is known here."""
        return self._presence.everyone(self._is_in_group)

    def _is_in_group(self, link: int) -> bool:
        """Whether a member of the group is at the other end."""
        core = self._core
        if link not in core.links:
            return False
        address = core.links[link][1]
        stream = core.member.stream_at.get(address)
        return core.is_phone_core or (stream is not None and core.member.addresses.get(stream) == address)

    def is_connected(self, address: int) -> bool:
        """Whether there is a connection to the process at an address."""
        return any(self._core.links[link][1] == address for link in self.connected)

    def _rouse(self, link: int) -> None:
        """A link may have something to write."""
        if link in self._phone_links:
            self._phone_links.rouse(link)
        else:
            self._work[link].set()

    def _rouse_now(self, link: int) -> None:
        if link in self._work:
            self._work[link].set()

    def _drop(self, link: int) -> None:
        if (wire := self._wires.get(link)) is not None:
            wire.abort()
        if (work := self._work.pop(link, None)) is not None:
            work.set()
        self._links.pop(link, None)
        self.refusals.pop(link, None)
        self._phone_links.discard(link)
        # Its connection ends shortly, but a tick may come first.
        self._presence.close(link)
        self._digests.close(link)

    def _tick_links(self) -> None:
        """Send heartbeats, and end connections that are silent for too long."""
        self._ticks += 1
        self._excuse(time.monotonic())
        for link, update in self._presence.updates(time.monotonic(), self._is_in_group):
            self._links[link].send(cast("Any", update))
        if self._core.sealing.is_on:
            members = [link for link in self.connected if self._is_in_group(link)]
            for link, frame in self._digests.due(time.monotonic(), members):
                self._links[link].send(cast("Any", frame))
        is_small = len(self._wires) <= _FEW_LINKS or self._suspicions.heartbeat < HEARTBEAT_SECONDS
        rest = 1 if is_small else _TICKS_EACH
        for link, wire in list(self._wires.items()):
            if link not in self._core.links or (link + self._ticks) % rest:
                continue  # it is being closed, or is checked within a second
            partner = self._links[link]
            stream = self._core.member.stream_at.get(self._core.links[link][1])
            if stream is not None:
                self._suspicions.limit(partner, stream)
            if partner.tick(time.monotonic()) is not None:
                wire.abort()
            elif partner.has_work or self.states.has_work(link):
                self._rouse(link)
                if self._is_doubtful(link):
                    self._want(link)

    def _excuse(self, now: float) -> None:
        """If this process was suspended, it has received nothing, and no partner counts as silent."""
        late, self._ticked_at = now - self._ticked_at - _LATE_SECONDS, now
        if late > 0:
            for partner in self._links.values():
                partner.heard_at += late

    def _is_doubtful(self, link: int) -> bool:
        partner = self._links.get(link)
        return partner is not None and partner.silence_after_packets(time.monotonic()) > _DOUBT_SECONDS

    async def _serve(self, wire: Wire, link: int, greeting: MemberGreeting, dialled: bool) -> None:
        if link not in self._core.links:
            return  # the link was dropped meanwhile
        if link not in self._links:
            self._links[link] = self._create_link(link, greeting.contact)
            self._work[link] = asyncio.Event()
        partner = self._links[link]
        by_lesser_name = (self._core.name < greeting.contact.name) == dialled
        if (before := self._wires.get(link)) is not None:
            is_silent = time.monotonic() - partner.heard_at > _DOUBT_SECONDS
            if not is_silent and not partner.is_replaced_by(cast("Any", greeting), by_lesser_name):
                return
            before.abort()
        self._wires[link] = wire
        self._on_connected(link)
        self._presence.open(link, greeting.contact.name, greeting.contact.is_phone)
        self._digests.open(link)
        partner.open(cast("Any", greeting), time.monotonic(), by_lesser_name)
        self.states.open(link)
        self._log.info("connected to %s", greeting.contact.label, extra={"peer": greeting.contact.name})
        self._counts["connections"] += 1
        self._notify("joined", greeting.contact.label, "")
        self._heard(link)
        self._stepped()
        writer = asyncio.create_task(self._write(wire, link))
        try:
            await self._read(wire, link)
        except RefusedError as error:
            self.refusals[link] = error
            raise
        except RemoteError as error:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await wire.write([encode(Refusal(str(error)))])
            raise
        finally:
            writer.cancel()
            if self._wires.get(link) is wire:
                del self._wires[link]
                self._on_lost(link)
                partner.close()
                self.states.close(link)
                self._presence.close(link)
                self._digests.close(link)
                self._core.touched.add(link)
                self._log.info("lost %s", greeting.contact.label, extra={"peer": greeting.contact.name})
                self._counts["lost"] += 1
                self._notify("lost", greeting.contact.label, "the connection has ended")
                self._stepped()
            await asyncio.gather(writer, return_exceptions=True)

    def _create_link(self, link: int, contact: Contact) -> PartnerLink:
        partner = PartnerLink(cast("Any", self._core), link, self._counts)
        partner.shows_certificates = not contact.is_phone
        if contact.is_phone or self._core.is_phone_core:
            # A phone looks for another super peer when this one is silent.
            partner.heartbeat_seconds, partner.silence_seconds = _PHONE_HEARTBEAT, _PHONE_SILENCE
        if contact.is_phone:
            self._phone_links.add(link)
        if self._core.is_phone_core:
            partner.ack_seconds = _PHONE_ACK
        return partner

    async def _write(self, wire: Wire, link: int) -> None:
        try:
            while self._wires.get(link) is wire and link in self._core.links:
                frames = self._links[link].take_frames(time.monotonic())
                if (part := self.states.next_frame(link)) is not None:
                    frames.append(cast("Any", part))
                if not frames:
                    self._work[link].clear()
                    await self._work[link].wait()
                    continue
                encoded = [encode(frame) for frame in frames]
                self._counts["wire bytes"] += sum(map(len, encoded))
                await wire.write(encoded)
        except (ConnectionError, OSError):
            wire.abort()

    async def _read(self, wire: Wire, link: int) -> None:
        partner, core = self._links[link], self._core
        while True:
            frame = decode(await wire.read())
            if self._wires.get(link) is not wire or link not in core.links:
                return
            if isinstance(frame, PresenceUpdate):
                partner.hear(time.monotonic())
                self._presence.receive(link, frame)
            elif isinstance(frame, StateFrame):
                partner.heard_at = time.monotonic()
                if (request := await self.states.receive(link, frame)) is not None:
                    partner.send(cast("Any", request))
            elif isinstance(frame, StreamDigests):
                partner.heard_at = time.monotonic()
                for evidence in self._digests.compare(link, frame):
                    partner.send(evidence)
            else:
                partner.receive(cast("Any", frame), time.monotonic(), self._clock.now())
            if link in core.links:
                if partner.has_work or self.states.has_work(link):
                    self._rouse(link)
                self._heard(link)
            self._stepped()
            if (reason := core.rejected.pop(link, None)) is not None:
                raise RemoteError(reason)

    def adopt(self, task: asyncio.Task[None]) -> None:
        """Keep a connection to a contact open like any other."""
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
            self._log.info("a connection has ended: %s", describe(error))
        else:
            self._log.error("a connection's task failed", exc_info=error)
