"""How a process of a dynamic group connects: which links it dials, which calls it accepts, and on what proof.

Either side may dial, at the address that the other has advertised. If both do at once, the connection made by
the side with the lesser name stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

from antecede.errors import AntecedeError, InputError, require
from antecede.live.changing.calling import CALLS_AT_ONCE, GREETING_SECONDS, Calls, dial_afresh
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Gone, PartnerGone
from antecede.live.changing.greeting import (
    GoneError,
    Inquiry,
    InquiryReply,
    MemberGreeter,
    MemberGreeting,
    decode,
)
from antecede.live.changing.serving import CLOSING_SECONDS, ServedConnections
from antecede.live.clock import Clock
from antecede.live.security.identity import Security
from antecede.live.settings import ANYWHERE, Settings
from antecede.live.suspicion import Suspicions
from antecede.live.transport.admission import Admission, PendingConnection, capacity_for, source_of
from antecede.live.transport.frames import MAX_BYTES, Refusal, RefusedError, encode
from antecede.live.transport.greeter import StaleGreetingError
from antecede.live.transport.listener import Listener
from antecede.live.transport.reachability import Unreached, describe
from antecede.live.transport.wires import TcpWire, WebWire, Wire
from antecede.protocols.base import RemoteError

_MAX_GREETING, _MAX_ANSWER = 1 << 14, 1 << 20
"""Bytes of a stranger's first frame, and of a known partner's, which may list the members of a group."""
_EXPECTED_MEMBERS = 256
_REPEAT_LOG_SECONDS = 60.0
_MAX_LOGGED = 1_000


def _places_in(settings: Settings) -> dict[str, str]:
    """The configured addresses of other members, by name."""
    others = (member for _, member in settings.called() if member.name != settings.me)
    return {member.name: member.at for member in others if member.at}


class MemberConnections(ServedConnections):
    """All connections of one process: how they are established and refused."""

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
        super().__init__(settings, core, clock, stepped, heard, notify, counts, suspicions)
        self._security = security
        self._greeter = MemberGreeter(core, settings.group)
        self._places = _places_in(settings)
        self._calls = Calls(
            core,
            self._dial,
            self._places,
            self._may_call,
            self._is_amiss,
            self._call_partner,
            self._spawn,
            self._call_refused,
            Unreached(self._log),
        )
        self._listener: Listener | None = None
        self._web: Listener | None = None
        self.web_address: str | None = None
        self._admission = Admission(capacity_for(_EXPECTED_MEMBERS), [], counts)
        self._is_closing = False
        self._offline_until = 0.0
        self._logged: dict[tuple[str, str], float] = {}
        self._cut_off: frozenset[str] = frozenset()
        self.address = ""

    async def start(self) -> None:
        settings = self._settings
        if settings.listen is not None:
            self._listener = Listener(self._admission, self._accept_tcp)
            await self._listener.start("listen", settings.listen)
            self.address = settings.advertise or self._listener.address
            self._calls.may_be_called = True
            if self.address.startswith(ANYWHERE):
                text = "the others are told to call %s, which is every machine: let `advertise` name this one"
                self._log.warning(text, self.address)
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
            await self._web.start("web", settings.web)
            scheme = "wss" if self._security.is_on else "ws"
            self.web_address = f"{scheme}://{self._web.address}"

    def take_up(self, settings: Settings) -> None:
        """Use the addresses of other members from these settings."""
        self._settings = settings
        self._places.update(_places_in(settings))

    def cut_off(self, names: Iterable[str]) -> None:
        """Drop the connections to these members and make none, until the next call: simulates partitions in
        trials."""
        self._cut_off = frozenset(names)
        for link, wire in list(self._wires.items()):
            if self._core.partner_name(link) in self._cut_off:
                wire.abort()

    def go_offline(self, seconds: float) -> None:
        """Break all connections and make none for a while."""
        self._offline_until = time.monotonic() + seconds
        for wire in list(self._wires.values()):
            wire.abort()

    @property
    def _is_offline(self) -> bool:
        return time.monotonic() < self._offline_until

    def wake(self) -> None:
        """Wake the loop: there may be something to send, a member to call, or a link to drop."""
        dropped, self._core.dropped = self._core.dropped, []
        for link in dropped:
            self._greeter.forget(link)
            self._calls.forget(link)
            self._drop(link)
        touched = list(self._core.take_touched())
        if len(touched) > CALLS_AT_ONCE:
            random.shuffle(touched)  # so that members do not all call the same one first
        for link in touched:
            if link in self._wires:
                self._rouse(link)
            else:
                self._want(link)

    def tick(self) -> None:
        """Called periodically."""
        self._check_proofs()
        self._tick_links()
        for link in self._core.received.keys() - self._wires.keys():
            self._want(link)
        self.wake()

    # Calling

    def _may_call(self) -> bool:
        return not self._is_closing and not self._is_offline

    def _is_amiss(self, link: int) -> bool:
        return link not in self._wires or self._is_doubtful(link)

    def _want(self, link: int) -> None:
        self._calls.call_if_wanted(link)

    def _on_connected(self, link: int) -> None:
        self._calls.on_connected(link)

    def _on_lost(self, link: int) -> None:
        self._calls.on_lost(link)

    async def _call_partner(self, wire: Wire, link: int, greeted: Callable[[int], None]) -> None:
        mine = self._core.links[link][0]
        await self._call(wire, mine, link, "", greeted)

    def _call_refused(self, link: int, error: Exception) -> None:
        if link in self._core.links:
            self._refused(self._core.partner_name(link), error)

    async def _dial(self, where: str) -> Wire:
        return await dial_afresh(where, self._security.client, GREETING_SECONDS)

    async def seek(self, where: str, name: str, greeted: Callable[[int], None]) -> None:
        """Call whatever process listens at an address, from the current address, and serve the connection;
        `greeted` is called with the link once both have greeted."""
        wire = await self._dial(where)
        await self._call(wire, self._core.address, None, name, greeted)

    async def inquire(self, where: str, name: str) -> bool:
        """Ask another founder whether it has seen this process, whose store is empty, before."""
        async with asyncio.timeout(GREETING_SECONDS):
            wire = await self._dial(where)
            try:
                self._check_identity(wire, name)
                wire.max_bytes = _MAX_GREETING
                await wire.write(
                    [encode(Inquiry(self._settings.group, self._core.name, self._core.kind.name))]
                )
                reply = decode(await wire.read())
            finally:
                wire.abort()
        if isinstance(reply, Refusal):
            raise RefusedError(reply.reason)
        if not isinstance(reply, InquiryReply):
            raise RemoteError("it does not answer the inquiry")
        return reply.is_known

    @property
    def inquirers(self) -> set[str]:
        return self._greeter.inquirers

    def _check_identity(self, wire: Wire, name: str, greeting: MemberGreeting | None = None) -> None:
        """The other end must prove that it is this member: with a certificate, or with a token if it has
        called by WebSocket, which only phones do."""
        if greeting is not None and isinstance(wire, WebWire) and not greeting.contact.is_phone:
            raise RemoteError("WebSockets are only for phones")
        if self._security.is_on:
            if greeting is not None and isinstance(wire, WebWire):
                proof = self._security.verify_token(greeting.token)
            else:
                proof = self._security.verify_certificate(wire.info("peercert"))
            group = self._settings.group
            if proof.identity.group != group:
                raise RemoteError(f"its {proof.kind} is for group '{proof.identity.group}', not '{group}'")
            if proof.identity.name != name:
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
            async with asyncio.timeout(GREETING_SECONDS):
                if name:
                    self._check_identity(wire, name)
                if link is not None and link not in self._core.links:
                    return  # it was dropped meanwhile
                called = self._greeter.call(mine, link, self._place(), self._security.token)
                if isinstance(wire, TcpWire):  # the WebSocket library reads ahead, past the greeting
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
        if self._is_offline:  # a trial has cut this member off
            wire.abort()
            return
        claimed = ""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(GREETING_SECONDS):
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
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass  # the caller has disconnected
        except (ssl.SSLError, AntecedeError) as error:
            # A stranger that claims a member's name must not count against the member.
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
        """The first frame from the other side. `link` is the one on which this process has called."""
        greeting = decode(await wire.read())
        if isinstance(greeting, Gone) and link in self._core.links:
            self._on_gone(wire, link, greeting)
        if isinstance(greeting, Refusal):
            raise RefusedError(greeting.reason)
        if not isinstance(greeting, MemberGreeting | Inquiry):
            raise RemoteError("its first frame is not a greeting")
        return greeting

    def _on_gone(self, wire: Wire, link: int, answer: Gone) -> None:
        """Handle the answer that no process is at the other end of a link any more."""
        name = self._core.partner_name(link)
        self._check_identity(wire, name)
        self._core.step(PartnerGone(link, answer, self._clock.now()))
        self._log.info("%s is no longer a partner", name, extra={"peer": name})
        self._stepped()
        raise StaleGreetingError

    async def _accept_greeting(
        self, wire: Wire, greeting: MemberGreeting, called: MemberGreeting | None
    ) -> int:
        """Validate a greeting and return its link, or refuse it with the reason."""
        if greeting.contact.name in self._cut_off:
            raise ConnectionResetError("it is cut off")
        try:
            # Authenticate first: a stranger learns nothing about the group.
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
        """Whether a name, or anything that proves it, is revoked."""
        return self._security.is_revoked(name, "")

    def _check_proofs(self) -> None:
        """Disconnect partners that were revoked since they connected, or whose certificate or token has
        expired."""
        self._security.refresh()
        for wire in list(self._wires.values()):
            if wire.proof is not None:
                try:
                    self._security.check(wire.proof)
                except RemoteError as error:
                    self._refused(wire.proof.identity.name, error)
                    wire.proof = None  # reported once is enough
                    self._spawn(self._end(wire, str(error)))

    def decline(self, address: int, reason: str) -> None:
        """Tell a newcomer why this member does not admit it. A phone is told with a packet of its own
        kind."""
        link, contact = self._core.find_link(self._core.address, address), self._core.greeted.get(address)
        if link in self._wires and contact is not None and not contact.is_phone:
            self._spawn(self._end(self._wires[link], reason))

    async def _end(self, wire: Wire, reason: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await wire.write([encode(Refusal(reason))])
        wire.abort()

    def _check_not_there(self, greeting: MemberGreeting) -> None:
        """Refuse a process that asks for admission under the name of a connected member: either two processes
        have one name, or the previous process of a member that has lost its store is not yet detected as
        down.

        The same process may rightly appear twice: if its sponsor died before the welcome arrived, it asks
        again, and answers for its first address that nobody is there.
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
        """Whether the process that greets now is the one that last greeted from an address: the last opening
        of its store is the same. Copies of a store are opened once each."""
        link = self._core.find_link(self._core.address, address)
        lineage = [] if link is None else self._core.partner_lineages.get(link, [])
        return bool(lineage and greeting.lineage) and lineage[-1] == greeting.lineage[-1]

    def _refused(self, who: str, error: Exception) -> None:
        if isinstance(error, RefusedError):
            text = reason = error.by(who, self._core.name)
        else:
            reason = describe(error)
            text = f"refused {who}: {reason}"
        self._counts["rejected tls" if isinstance(error, ssl.SSLError) else "rejected greeting"] += 1
        # A refused process retries, so its refusal is logged once a minute.
        key, now = (who, reason), time.monotonic()
        if now - self._logged.get(key, -_REPEAT_LOG_SECONDS) >= _REPEAT_LOG_SECONDS:
            if len(self._logged) >= _MAX_LOGGED:
                self._logged.clear()
            self._logged[key] = now
            self._log.warning("%s", text, extra={"peer": who})
        self._notify("refused", who, reason)

    async def close(self) -> None:
        self._is_closing = True
        for listener in (self._listener, self._web):
            if listener is not None:
                listener.close()
        self._admission.close_all()
        for event in self._work.values():
            event.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while any(self._work[link].is_set() for link in self.connected):
                    await asyncio.sleep(0.002)
        for task in list(self._tasks):
            task.cancel()
        for wire in list(self._wires.values()):
            wire.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
