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
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, cast

from antecede.errors import AntecedeError, InputError, require
from antecede.live.changing.calling import FIRST_PAUSE, Pauses, dial_afresh
from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.digests import DigestExchange, StreamDigests
from antecede.live.changing.events import Gone, PartnerGone
from antecede.live.changing.greeting import (
    GoneError,
    Inquiry,
    InquiryReply,
    MemberGreeter,
    MemberGreeting,
    decode,
)
from antecede.live.changing.pacing import PacedLinks
from antecede.live.changing.presence import PresenceTable, PresenceUpdate
from antecede.live.changing.state_links import StateLinks
from antecede.live.changing.transfer import StateFrame
from antecede.live.clock import Clock
from antecede.live.operations.logs import Log
from antecede.live.security.identity import Identity, Security
from antecede.live.settings import Settings, address
from antecede.live.suspicion import Suspicions
from antecede.live.transport.admission import Admission, PendingConnection, capacity_for, source_of
from antecede.live.transport.frames import MAX_BYTES, Refusal, encode
from antecede.live.transport.greeter import StaleGreetingError
from antecede.live.transport.links import HEARTBEAT_SECONDS, PartnerLink
from antecede.live.transport.listener import Listener
from antecede.live.transport.wires import TcpWire, WebWire, Wire
from antecede.protocols.base import RemoteError

_GREETING_SECONDS = 10.0
_CLOSING_SECONDS = 1.0
_DOUBT_SECONDS = 1.0
"""How long a connection may be silent, though something is to be acknowledged, before the other end is called
again. Packets may be lost since a moment ago; the operating system repeats them at growing intervals."""
_NEWCOMER_PAUSE = 0.5
"""How long a member waits for a newcomer's call."""
_MAX_GREETING, _MAX_ANSWER = 1 << 14, 1 << 20
"""Bytes of a stranger's first frame, and of a known partner's: it may list the members of a group."""
_EXPECTED_MEMBERS = 256
_LATE_SECONDS = 1.0
"""Ticks are more often than this, unless the process stands still or has too much to do."""
_CALLS_AT_ONCE, _TURN_SECONDS = 16, 0.5
"""How many others are called at a time, and when the next may be called if one does not answer."""
_PAUSE_EACH = 0.01
"""For each link, how long the one with the greater name waits to be called."""
_FEW_LINKS, _TICKS_EACH = 16, 5
"""Above so many, a link is looked at in every fifth tick."""
_REPEAT_LOG_SECONDS = 60.0
_MAX_LOGGED = 1_000
_PHONE_HEARTBEAT, _PHONE_SILENCE = 1.0, 4.0
_PHONE_ACK = 0.5
"""Seconds between two acks of a phone: with one for each message its super peer would be busy with them."""


def _end_turn(turn: contextlib.ExitStack, _: int) -> None:
    """Who was called has answered, and others may be called."""
    turn.close()


class MemberConnections:
    """All connections of one process. `stepped` is called after the core has taken an event, `heard` when
    something has arrived on a link, `notify` with what a person may want to know; `suspicions` say how long a
    member may be silent."""

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
        security: Security,
    ) -> None:
        self._settings, self._core, self._clock = settings, core, clock
        self._stepped, self._heard, self._counts = stepped, heard, counts
        self._notify, self._suspicions = notify, suspicions
        self._security = security
        self._greeter = MemberGreeter(core, settings.group)
        self._log = Log(settings.group, settings.me)
        self._links: dict[int, PartnerLink] = {}
        self._wires: dict[int, Wire] = {}
        """By link, the connection that is used."""
        self._work: dict[int, asyncio.Event] = {}
        self._phone_links = PacedLinks(self._rouse_now)
        self._presence = PresenceTable(core.name, core.is_phone_core)
        self._digests = DigestExchange(core)
        self._dialling: dict[int, asyncio.Task[None]] = {}
        """By link, who calls."""
        self._pauses = Pauses()
        self._lost: set[int] = set()
        """Links that had a connection, and have none."""
        self._calls = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._ticks, self._ticked_at = 0, time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        self._web: Listener | None = None
        self.web_address: str | None = None
        self._admission = Admission(capacity_for(_EXPECTED_MEMBERS), [], counts)
        self.states = StateLinks(core, settings.store is not None)
        self._is_closing = False
        self._offline_until = 0.0
        self._logged: dict[tuple[str, str], float] = {}
        self._cut_off: frozenset[str] = frozenset()
        self.address = ""

    async def start(self) -> None:
        settings = self._settings
        if settings.listen is not None:
            self._listener = Listener(self._admission, self._accept_tcp)
            await self._listen(self._listener, "listen", settings.listen)
            self.address = self._listener.address
        if settings.web is not None:
            if self._security.is_on and self._security.web is None:
                raise InputError("web: phones show a token, and the folder of keys has no token.key")
            module = require("antecede.live.transport.web_port", "live")
            port = module.WebPort(
                self._security.web,
                self._security.hosts,
                settings.web_origins,
                _MAX_GREETING,
                self._accept_web,
            )
            self._web = Listener(self._admission, port.serve)
            await self._listen(self._web, "web", settings.web)
            scheme = "wss" if self._security.is_on else "ws"
            self.web_address = f"{scheme}://{self._web.address}"

    async def _listen(self, listener: Listener, what: str, where: str) -> None:
        try:
            await listener.start(*address(where, what))
        except OSError as error:
            raise InputError(f"{what}: cannot listen at {where}: {error.strerror or error}") from error

    def cut_off(self, names: Iterable[str]) -> None:
        """Drop the connections to these members and make none, until the next call: partitions for trials."""
        self._cut_off = frozenset(names)
        for link, wire in list(self._wires.items()):
            if self._core.partner_name(link) in self._cut_off:
                wire.abort()

    @property
    def connected(self) -> set[int]:
        """The links that have a connection."""
        return self._wires.keys() & self._core.links.keys()

    @property
    def present(self) -> frozenset[str]:
        """The names of all that are connected to somebody, as far as is known here."""
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
        return any(self._core.links[link][1] == address for link in self._wires)

    def go_offline(self, seconds: float) -> None:
        """Break all connections and make none for a while."""
        self._offline_until = time.monotonic() + seconds
        for wire in list(self._wires.values()):
            wire.abort()

    @property
    def _is_offline(self) -> bool:
        return time.monotonic() < self._offline_until

    def wake(self) -> None:
        """There may be something to send, and somebody to call; or links are no more."""
        dropped, self._core.dropped = self._core.dropped, []
        for link in dropped:
            self._drop(link)
        touched = list(self._core.take_touched())
        if len(touched) > _CALLS_AT_ONCE:
            random.shuffle(touched)  # not everybody calls the same one first
        for link in touched:
            if link in self._wires:
                self._rouse(link)
            else:
                self._call_if_wanted(link)

    def _rouse(self, link: int) -> None:
        """There may be something to write on a link."""
        if link in self._phone_links:
            self._phone_links.rouse(link)
        else:
            self._work[link].set()

    def _rouse_now(self, link: int) -> None:
        if link in self._work:
            self._work[link].set()

    def _call_if_wanted(self, link: int) -> None:
        if link in self._dialling or self._is_closing or self._is_offline:
            return
        if self._core.wanted_place(link):
            task = self._dialling[link] = self._spawn(self._keep_calling(link))
            task.add_done_callback(partial(self._on_call_end, link))

    def _drop(self, link: int) -> None:
        self._greeter.forget(link)
        if (wire := self._wires.get(link)) is not None:
            wire.abort()
        if (work := self._work.pop(link, None)) is not None:
            work.set()
        self._links.pop(link, None)
        self._phone_links.discard(link)
        self._lost.discard(link)

    def _on_call_end(self, link: int, task: asyncio.Task[None]) -> None:
        if self._dialling.get(link) is task:
            del self._dialling[link]

    def tick(self) -> None:
        """Now and then: heartbeats, and connections that are silent for too long end."""
        self._check_proofs()
        self._ticks += 1
        self._excuse(time.monotonic())
        for link, update in self._presence.updates(time.monotonic(), self._is_in_group):
            self._links[link].send(cast("Any", update))
        members = [link for link in self.connected if self._is_in_group(link)]
        for link, frame in self._digests.due(time.monotonic(), members):
            self._links[link].send(cast("Any", frame))
        is_small = len(self._wires) <= _FEW_LINKS or self._suspicions.heartbeat < HEARTBEAT_SECONDS
        rest = 1 if is_small else _TICKS_EACH
        for link, wire in list(self._wires.items()):
            if link not in self._core.links or (link + self._ticks) % rest:
                continue  # it is being closed, or has its turn within a second
            partner = self._links[link]
            stream = self._core.member.stream_at.get(self._core.links[link][1])
            if stream is not None:
                self._suspicions.limit(partner, stream)
            if partner.tick(time.monotonic()) is not None:
                wire.abort()
            elif partner.has_work or self.states.has_work(link):
                self._rouse(link)
                if self._is_doubtful(link):
                    self._call_if_wanted(link)
        for link in self._core.received.keys() - self._wires.keys():
            self._call_if_wanted(link)
        self.wake()

    def _excuse(self, now: float) -> None:
        """If this process has stood still, it has heard nobody, and nobody was silent."""
        late, self._ticked_at = now - self._ticked_at - _LATE_SECONDS, now
        if late > 0:
            for partner in self._links.values():
                partner.heard_at += late

    # Calling

    async def _keep_calling(self, link: int) -> None:
        failures = 0
        if (pause := self._pause_for_other(link)) and link not in self._wires:
            await asyncio.sleep(pause)
        while not self._is_offline and (where := self._core.wanted_place(link)) and self._is_amiss(link):
            with contextlib.suppress(OSError, TimeoutError, AntecedeError), contextlib.ExitStack() as turn:
                await self._calls.acquire()
                turn.callback(self._calls.release)
                asyncio.get_running_loop().call_later(_TURN_SECONDS, turn.close)
                if link not in self._core.links or not self._is_amiss(link):
                    return  # the other one has called meanwhile
                mine = self._core.links[link][0]
                wire = await dial_afresh(where, self._security.client, _GREETING_SECONDS)
                if not self._is_amiss(link):
                    wire.abort()
                    return
                await self._call(wire, mine, link, "", partial(_end_turn, turn))
            if self._dialling.get(link) is not asyncio.current_task():
                return  # there was a connection, so this call is over
            failures += 1
            await self._pauses.wait(link, failures)

    def _pause_for_other(self, link: int) -> float:
        """How long to wait for the other's call, so that not both call at once. A newcomer calls first: it
        waits for what others send to it."""
        core = self._core
        if self._listener is None:
            return 0.0
        if link not in core.partner_lineages:
            streams = (core.member.stream_at.get(address, -1) for address in core.links[link])
            mine, theirs = (core.since.get(stream, 0) for stream in streams)
            if mine != theirs:
                return 0.0 if mine > theirs else _NEWCOMER_PAUSE
        # In a large group it takes a while to call everyone.
        return 0.0 if core.name < core.partner_name(link) else 2 * FIRST_PAUSE + _PAUSE_EACH * len(core.links)

    def _is_amiss(self, link: int) -> bool:
        """Whether there is no connection, or one that seems to be broken."""
        return link not in self._wires or self._is_doubtful(link)

    def _is_doubtful(self, link: int) -> bool:
        partner = self._links.get(link)
        return partner is not None and partner.silence_after_packets(time.monotonic()) > _DOUBT_SECONDS

    async def seek(self, where: str, name: str, greeted: Callable[[int], None]) -> None:
        """Call whoever listens at a place, from the current address, and serve the connection; `greeted` is
        called with the link once both have greeted."""
        wire = await dial_afresh(where, self._security.client, _GREETING_SECONDS)
        await self._call(wire, self._core.address, None, name, greeted)

    async def inquire(self, where: str, name: str) -> bool:
        """Ask a founder whether it has seen this one before, whose store is empty."""
        async with asyncio.timeout(_GREETING_SECONDS):
            wire = await TcpWire.dial(where, self._security.client)
            try:
                self._check_identity(wire, name)
                wire.max_bytes = _MAX_GREETING
                await wire.write(
                    [encode(Inquiry(self._settings.group, self._core.name, self._core.kind.name))]
                )
                reply = decode(await wire.read())
            finally:
                wire.abort()
        if not isinstance(reply, InquiryReply):
            raise RemoteError(getattr(reply, "reason", "it does not answer the inquiry")[:500])
        return reply.is_known

    @property
    def inquirers(self) -> set[str]:
        return self._greeter.inquirers

    def _check_identity(self, wire: Wire, name: str, greeting: MemberGreeting | None = None) -> None:
        """Whoever is at the other end must prove that it is this member: with a certificate, or with a token
        if it has called by WebSocket, which only phones do."""
        if greeting is not None and isinstance(wire, WebWire) and not greeting.contact.is_phone:
            raise RemoteError("WebSockets are only for phones")
        if self._security.is_on:
            if greeting is not None and isinstance(wire, WebWire):
                proof = self._security.verify_token(greeting.token)
            else:
                proof = self._security.verify_certificate(wire.info("peercert"))
            if proof.identity != Identity(self._settings.group, name):
                raise RemoteError(f"it claims to be {name} and is {proof.identity.name}")
            wire.proof = proof

    async def _call(
        self,
        wire: Wire,
        mine: int,
        link: int | None,
        name: str,
        greeted: Callable[[int], None] | None = None,
    ) -> None:
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                if name:
                    self._check_identity(wire, name)
                if link is not None and link not in self._core.links:
                    return  # it was dropped meanwhile
                called = self._greeter.call(mine, link, self._place(), self._security.token)
                if isinstance(wire, TcpWire):  # the library of WebSockets reads ahead, past the greeting
                    wire.max_bytes = _MAX_GREETING if link is None else _MAX_ANSWER
                await wire.write([encode(called)])
                greeting = await self._read_greeting(wire, link)
                if isinstance(greeting, Inquiry):
                    raise RemoteError("it answers with an inquiry")
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

    async def _accept_tcp(self, connected: socket.socket, pending: PendingConnection) -> None:
        await self._accept(await TcpWire.accept(connected), pending)

    async def _accept_web(self, connection: Any, pending: PendingConnection) -> None:
        await self._accept(WebWire(connection), pending)

    async def _accept(self, wire: Wire, pending: PendingConnection) -> None:
        pending.close = wire.abort
        if self._is_offline:  # a trial cuts this member off
            wire.abort()
            return
        claimed = ""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                wire.max_bytes = _MAX_GREETING
                if self._security.server is not None and isinstance(wire, TcpWire):
                    await wire.start_tls(self._security.server)
                greeting = await self._read_greeting(wire)
                if isinstance(greeting, Inquiry):
                    claimed = greeting.name
                    await self._answer(wire, greeting)
                    self._admission.authenticated(pending)
                    await wire.finish()
                    return
                claimed = greeting.contact.name
                link = await self._accept_greeting(wire, greeting, None)
                mine = self._core.links[link][0]
                await wire.write([encode(self._greeter.call(mine, link, self._place()))])
            self._admission.authenticated(pending)
            await self._serve(wire, link, greeting, dialled=False)
        except AntecedeError as error:
            # What a stranger does in the name of a member is not the member's doing.
            is_proven = wire.proof is not None or not self._security.is_on
            who = claimed if claimed and is_proven else f"someone at {source_of(wire.info('peername'))}"
            self._refused(who, error)
        finally:
            wire.abort()

    async def _answer(self, wire: Wire, inquiry: Inquiry) -> None:
        self._check_identity(wire, inquiry.name)
        try:
            reply = encode(self._greeter.answer(inquiry))
        except RemoteError as error:
            await wire.write([encode(Refusal(str(error)))])
            raise
        await wire.write([reply])

    async def _read_greeting(self, wire: Wire, link: int | None = None) -> MemberGreeting | Inquiry:
        """What the other says first. `link` is the one on which this process has called."""
        greeting = decode(await wire.read())
        if isinstance(greeting, Gone) and link in self._core.links:
            self._on_gone(wire, link, greeting)
        if isinstance(greeting, Refusal):
            raise RemoteError(f"it refuses: {greeting.reason[:500]}")
        if not isinstance(greeting, MemberGreeting | Inquiry):
            raise RemoteError("its first frame is not a greeting")
        return greeting

    def _on_gone(self, wire: Wire, link: int, answer: Gone) -> None:
        """Nobody is at the other end of a link any more."""
        name = self._core.partner_name(link)
        self._check_identity(wire, name)
        self._core.step(PartnerGone(link, answer, self._clock.now()))
        self._log.info("%s is no partner any more", name, extra={"peer": name})
        self._stepped()
        raise StaleGreetingError

    async def _accept_greeting(
        self, wire: Wire, greeting: MemberGreeting, called: MemberGreeting | None
    ) -> int:
        """Validate a greeting, and return the link that it is for; or refuse it with the reason."""
        if greeting.contact.name in self._cut_off:
            raise ConnectionResetError("it is cut off")
        try:
            # Authentication comes first: a stranger learns nothing about the group.
            self._check_identity(wire, greeting.contact.name, greeting if called is None else None)
            if called is None and not greeting.you:
                self._check_not_there(greeting)
            now = self._clock.now()
            link = self._greeter.find_link(greeting, now, called)
            self._greeter.check_resumable(link, cast("Any", greeting))
        except RemoteError as error:
            await wire.write([encode(Refusal(str(error)))])
            raise
        except GoneError as error:
            await wire.write([encode(error.answer)])
            raise
        except StaleGreetingError as error:
            if error.refusal:
                await wire.write([encode(Refusal(error.refusal))])
            raise
        wire.max_bytes = MAX_BYTES
        self._greeter.accept(link, cast("Any", greeting), now)
        self._stepped()
        return link

    def is_revoked(self, name: str) -> bool:
        """Whether a name is revoked, and all that proves it."""
        return self._security.is_revoked(name, "")

    def _check_proofs(self) -> None:
        """Cut off whoever is revoked by now, or has shown what has expired since."""
        self._security.refresh()
        for wire in list(self._wires.values()):
            if wire.proof is not None:
                try:
                    self._security.check(wire.proof)
                except RemoteError as error:
                    self._refused(wire.proof.identity.name, error)
                    wire.proof = None  # once is enough
                    self._spawn(self._end(wire, str(error)))

    async def _end(self, wire: Wire, reason: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await wire.write([encode(Refusal(reason))])
        wire.abort()

    def _check_not_there(self, greeting: MemberGreeting) -> None:
        """Whoever asks to be admitted must not be there already: two processes have one name, or the former
        one of a member that has lost its store is not seen to be gone yet.

        One process may be there twice. It was admitted, and its sponsor died before the welcome arrived: then
        it asks again, and answers for its first attempt that nobody is there.
        """
        core, contact = self._core, greeting.contact
        for stream, at in core.member.addresses.items() if core.members else ():
            member = core.contact_of(stream)
            is_there = stream == core.me or (
                self.is_connected(at) and not self._is_same_process(at, greeting)
            )
            if member is not None and member.name == contact.name and at != contact.address and is_there:
                raise RemoteError(f"{contact.name} is a member already, and is connected")

    def _is_same_process(self, address: int, greeting: MemberGreeting) -> bool:
        """Whether the process at an address, as it greeted last, is the one that greets now: the last opening
        of its store is the same. Copies of a store are opened once each."""
        link = self._core.find_link(self._core.address, address)
        lineage = [] if link is None else self._core.partner_lineages.get(link, [])
        return bool(lineage and greeting.lineage) and lineage[-1] == greeting.lineage[-1]

    def _refused(self, who: str, error: Exception) -> None:
        self._counts["rejected greeting"] += 1
        # Whoever is refused tries again, so it is logged once a minute.
        key, now = (who, str(error)), time.monotonic()
        if now - self._logged.get(key, -_REPEAT_LOG_SECONDS) >= _REPEAT_LOG_SECONDS:
            if len(self._logged) >= _MAX_LOGGED:
                self._logged.clear()
            self._logged[key] = now
            self._log.warning("refused %s: %s", who, error, extra={"peer": who})
        self._notify("refused", who, str(error))

    # While a connection lasts

    async def _serve(self, wire: Wire, link: int, greeting: MemberGreeting, dialled: bool) -> None:
        if link not in self._core.links:
            return  # it was dropped meanwhile
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
        if self._dialling.get(link) is asyncio.current_task():
            del self._dialling[link]
        if link in self._lost:
            self._lost.discard(link)
            self._pauses.sign_of_life()
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
        except RemoteError as error:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await wire.write([encode(Refusal(str(error)))])
            raise
        finally:
            writer.cancel()
            if self._wires.get(link) is wire:
                del self._wires[link]
                self._lost.add(link)
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
                self._rouse(link)
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
        for listener in (self._listener, self._web):
            if listener is not None:
                listener.close()
        self._admission.close_all()
        for event in self._work.values():
            event.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                while any(self._work[link].is_set() for link in self.connected):
                    await asyncio.sleep(0.002)
        for task in list(self._tasks):
            task.cancel()
        for wire in list(self._wires.values()):
            wire.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
