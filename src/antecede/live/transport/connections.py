"""The connections of a live member: which partners it calls, which calls it accepts, and the sockets under
its links.

`links.py` decides which frames to send and what arriving ones mean; here they are moved over sockets.

A member that knows the other's address calls, the one with the greater name a little later; if two
connections are made at once, the one made by the lesser name stays. `admission` limits what strangers can do.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from antecede.causality import MessageId
from antecede.errors import AntecedeError, InputError, require
from antecede.live.clock import Clock
from antecede.live.core import Core
from antecede.live.operations.logs import Log
from antecede.live.security.identity import Security
from antecede.live.settings import Roster, Settings, address
from antecede.live.suspicion import Suspicions
from antecede.live.transport.admission import (
    Admission,
    PendingConnection,
    TokenBucket,
    capacity_for,
    source_of,
    sources_of_peers,
)
from antecede.live.transport.connection import Connection
from antecede.live.transport.frames import (
    Greeting,
    Refusal,
    RefusedError,
    decode,
    encode,
)
from antecede.live.transport.handshake import Handshake
from antecede.live.transport.links import Links
from antecede.live.transport.listener import Listener, Serve
from antecede.live.transport.reachability import NO_GREETING, Unreached, describe
from antecede.live.transport.wires import FaultyWire, TcpWire, WebWire, Wire, dial
from antecede.protocols.base import RemoteError, Span

_GREETING_SECONDS = 10.0
_CLOSING_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_REPEAT_LOG_SECONDS = 60.0
_PAUSED_SECONDS = 3.0
"""How long a partner must have been paused before it is reported: an application may be busy."""
_STRANGERS_LOGGED_PER_SECOND, _STRANGERS_LOGGED_AT_ONCE = 0.2, 20.0
_MAX_LOGGED, _MAX_REASON = 1_000, 1_000


class Connections:
    """All connections of one member. `stepped` is called after the core has taken an event, `heard` when
    something has arrived from a partner; `suspicions` say how long a partner may be silent."""

    def __init__(
        self,
        settings: Settings,
        roster: Roster,
        core: Core,
        security: Security,
        stepped: Callable[[], None],
        notify: Callable[[str, str, str], None],
        heard: Callable[[int], None],
        counts: Counter[str],
        clock: Clock,
        suspicions: Suspicions,
    ) -> None:
        self._settings, self._roster, self._core, self._clock = settings, roster, core, clock
        self._stepped, self._notify, self._heard, self._counts = stepped, notify, heard, counts
        self._suspicions = suspicions
        self._log = Log(settings.group, settings.me)
        self._unreached = Unreached(self._log)
        self._links = Links(core, counts)
        self.by_peer = {
            peer: Connection(link, roster.members[peer].name, roster.members[peer].at)
            for peer, link in self._links.by_peer.items()
        }
        self._rng = random.Random(settings.faults.seed if settings.faults else None)
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._security = security
        if settings.web is not None and self._security.is_on and self._security.web is None:
            raise InputError("web: phones show a token, and the folder of keys has no token.key to verify it")
        self._logged: dict[tuple[str, str], float] = {}
        self._stranger_log = TokenBucket(_STRANGERS_LOGGED_PER_SECOND, _STRANGERS_LOGGED_AT_ONCE)
        self._handshake = Handshake(settings, roster, core, self._security, clock, stepped)
        peers = sources_of_peers(member.at for member in settings.members())
        self.admission = Admission(capacity_for(len(roster.members)), peers, counts)
        self._offline_until = 0.0
        self._liars: set[int] = set()
        self.address: str | None = None
        """The address at which others can connect, once it is known."""
        self.web_address: str | None = None

    # Starting and closing

    async def start(self) -> None:
        settings = self._settings
        if settings.listen is not None:
            self.address = (await self._listen("listen", settings.listen, self._accept_tcp)).address
        if settings.web is not None:
            web_port: Any = require("antecede.live.transport.web_port", "live")
            hosts = [*self._security.hosts, address(settings.web, "web")[0]]
            port = web_port.WebPort(
                self._security.web, hosts, settings.web_origins, self._handshake.max_bytes, self._accept_web
            )
            listener = await self._listen("web", settings.web, port.serve)
            self.web_address = f"{'wss' if self._security.web else 'ws'}://{listener.address}"
        for connection in self.by_peer.values():
            if connection.target is not None:
                self._spawn(self._keep_connected(connection))

    async def _listen(self, setting: str, where: str, serve: Serve) -> Listener:
        listener = Listener(self.admission, serve)
        await listener.start(setting, where)
        self._listeners.append(listener)
        return listener

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("a connection's task failed", exc_info=error)

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.admission.close_all()
        self._offline_until = math.inf
        await self._close_gracefully()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for connection in self.by_peer.values():
            if connection.wire is not None:
                connection.wire.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close_gracefully(self) -> None:
        """Report the last deliveries, for which a partner may be waiting, and let pending data arrive."""
        for connection in self.by_peer.values():
            if connection.wire is not None:
                self._links.report(connection.link)
                connection.has_work.set()
        # Not aborted: closing a socket with unread data discards the data it has sent.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                while any(connection.has_work.is_set() for connection in self._open_connections()):
                    await asyncio.sleep(0.002)
                wires = [connection.wire for connection in self.by_peer.values()]
                ends = [wire.finish() for wire in wires if wire is not None]
                await asyncio.gather(*ends, return_exceptions=True)
                while self.connected():
                    await asyncio.sleep(0.01)

    def go_offline(self, seconds: float) -> None:
        """Break all connections and make none for a while."""
        self._offline_until = time.monotonic() + seconds
        for connection in self.by_peer.values():
            if connection.wire is not None:
                connection.wire.abort()

    @property
    def _is_offline(self) -> bool:
        return time.monotonic() < self._offline_until

    def connected(self) -> list[int]:
        return [peer for peer, connection in self.by_peer.items() if connection.wire is not None]

    def _open_connections(self) -> list[Connection]:
        return [connection for connection in self.by_peer.values() if connection.wire is not None]

    def wake(self) -> None:
        """There may be something to send."""
        for connection in self.by_peer.values():
            connection.has_work.set()

    # Connecting

    async def _keep_connected(self, connection: Connection) -> None:
        pause = _FIRST_PAUSE
        if self._settings.me > connection.name and self._settings.listen is not None:
            await asyncio.sleep(1.0)
        while True:
            if connection.wire is None and not self._is_offline:
                was_up = await self._dial(connection)
                pause = _FIRST_PAUSE if was_up else min(pause * 2, _LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _dial(self, connection: Connection) -> bool:
        """Connect to a partner and serve the connection; returns whether it lasted for a while."""
        self._unreached.calling(connection.name)
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                wire = await dial(connection.target or "", self._security.client)
        except (OSError, TimeoutError) as error:
            connection.reason = f"cannot be reached at {connection.target}: {describe(error)}"
            if isinstance(error, ssl.SSLError):
                self._report_refusal(connection.name, f"{connection.target}: {describe(error)}", "tls")
            else:
                self._report_unreached(connection, describe(error))
            return False
        return await self._handshake_and_serve(wire, connection)

    def _report_unreached(self, connection: Connection, reason: str) -> None:
        if connection.wire is None and not self._is_offline:
            self._unreached.failed(connection.name, connection.target or "", reason)

    async def _accept_tcp(self, connected: socket.socket, pending: PendingConnection) -> None:
        await self._accept(await TcpWire.accept(connected), pending)

    async def _accept_web(self, connection: Any, pending: PendingConnection) -> None:
        await self._accept(WebWire(connection), pending)

    def _report_refusal(self, who: str, reason: str, stage: str, by: RefusedError | None = None) -> None:
        """A partner is refused here, or refuses this member with the error `by`."""
        self._counts[f"rejected {stage}"] += 1
        reason = reason[:_MAX_REASON] if by is None else by.by(who, self._settings.me)
        # A refused process retries, so its refusal is logged once a minute.
        key = (who.rpartition(":")[0] or who, reason)
        if time.monotonic() - self._logged.get(key, -math.inf) > _REPEAT_LOG_SECONDS:
            if len(self._logged) > _MAX_LOGGED:
                self._logged.clear()
            self._logged[key] = time.monotonic()
            if who not in self._roster.names and not self._stranger_log.admit():
                return
            text = f"refused {who}: {reason}" if by is None else reason
            self._log.warning("%s", text, extra={"peer": who})
        self._notify("refused", who, reason)

    async def _accept(self, wire: Wire, pending: PendingConnection) -> None:
        pending.close = wire.abort
        if self._is_offline:  # a trial has cut this member off
            wire.abort()
            return
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await self._handshake_and_serve(wire, None, pending)

    async def _handshake_and_serve(
        self, wire: Wire, dialled: Connection | None, pending: PendingConnection | None = None
    ) -> bool:
        """Greet, and if both sides accept, exchange frames until the connection ends."""
        who = dialled.name if dialled else f"someone at {_peer_address(wire.info('peername'))}"
        has_greeted, claimed = False, ""
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                expected = dialled.peer if dialled else None
                greeting = await self._handshake.read_greeting(wire, expected)
                claimed = greeting.me
                connection = self.by_peer[await self._handshake.accept(wire, expected, greeting)]
            if pending is not None:
                self.admission.authenticated(pending)
            else:
                self.admission.trust(source_of(wire.info("peername")))
            if self._is_offline:  # it may have gone offline since this handshake began
                raise ConnectionError("this member is offline")
            who, has_greeted = connection.name, True
            if self._settings.faults is not None:
                wire = FaultyWire(wire, self._settings.faults, self._rng)
            await self._serve(wire, connection, greeting, dialled is not None)
        except (ConnectionError, TimeoutError, AntecedeError, OSError) as error:
            if dialled is not None:
                dialled.reason = describe(error)
            if isinstance(error, AntecedeError | ssl.SSLError):
                stage = "tls" if isinstance(error, ssl.SSLError) else "packet" if has_greeted else "greeting"
                # A stranger that claims a member's name must not count against the member.
                is_proven = wire.proof is not None or not self._security.is_on
                if dialled is None and is_proven and claimed in self._roster.names:
                    who = claimed
                by = error if isinstance(error, RefusedError) else None
                self._report_refusal(who, describe(error), stage, by)
            elif dialled is not None and not has_greeted:
                self._report_unreached(dialled, _without_greeting(error))
            return False
        finally:
            wire.abort()
        return True

    # Established connections

    async def _serve(self, wire: Wire, connection: Connection, greeting: Greeting, dialled: bool) -> None:
        by_lesser_name = (self._settings.me < connection.name) == dialled
        if connection.wire is not None:
            if not connection.link.is_replaced_by(greeting, by_lesser_name):
                return
            connection.wire.abort()
        connection.open(wire)
        connection.link.open(greeting, time.monotonic(), by_lesser_name)
        self._unreached.reached(connection.name)
        self._log.info("connected to %s", connection.name, extra={"peer": connection.name})
        self._counts["connections"] += 1
        self._notify("joined", connection.name, "")
        self._heard(connection.peer)
        writer = asyncio.create_task(self._write(wire, connection))
        reason = "closed"
        try:
            await self._read(wire, connection)
        except (ConnectionError, TimeoutError, OSError) as error:
            reason = connection.reason or describe(error)
        except RefusedError as error:
            reason = str(error)
            raise
        except RemoteError as error:
            reason = f"it violated the protocol: {error}"
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await wire.write([encode(Refusal(str(error)))])
            raise
        finally:
            writer.cancel()
            if connection.wire is wire:
                connection.close(reason)
                self._log.info("lost %s: %s", connection.name, reason, extra={"peer": connection.name})
                self._counts["lost"] += 1
                self._notify("lost", connection.name, reason)
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, wire: Wire, connection: Connection) -> None:
        """Send the link's frames whenever there may be some."""
        try:
            while connection.wire is wire:
                frames = connection.link.take_frames(time.monotonic())
                if not frames:
                    connection.has_work.clear()
                    await connection.has_work.wait()
                    continue
                encoded = [encode(frame) for frame in frames]
                self._counts["wire bytes"] += sum(map(len, encoded))
                await wire.write(encoded)
        except (ConnectionError, OSError):
            wire.abort()

    async def _read(self, wire: Wire, connection: Connection) -> None:
        while True:
            frame = decode(await wire.read())
            if connection.wire is not wire:
                return
            now = self._clock.now()
            connection.link.receive(frame, time.monotonic(), now)
            self._heard(connection.peer)
            self._report_gaps(connection, self._links.ask_for_held(connection.link, now))
            connection.has_work.set()
            self._stepped()

    def report_repair(self, message: MessageId, link: int) -> None:
        """Log a missing message that a partner supplied."""
        self._counts["recovered"] += 1
        origin, helper = self._roster.names[message.origin], self._roster.names[link]
        message_id = f"{origin}:{message.seq}"
        extra = {"peer": helper, "message_id": message_id}
        self._log.info("%s was missing, and came from %s", message_id, helper, extra=extra)
        self._notify("recovered", origin, f"{message_id} from {helper}")

    # Periodic work

    def gossip(self, now: int, patience: int) -> None:
        """Report progress to partners, and request messages that have been missing for `patience`."""
        self._check_proofs()
        request = self._links.gossip(now, patience)
        if request is not None:
            helper, spans = request
            self._report_gaps(self.by_peer[helper], spans)
        self._report_liars()
        for connection in self._open_connections():
            self._suspicions.limit(connection.link, connection.peer)
            lost = connection.link.tick(time.monotonic())
            if lost is not None and connection.wire is not None:
                connection.reason = lost
                connection.wire.abort()
            connection.has_work.set()

    def paused(self) -> dict[str, str | None]:
        """For each partner: why its packets have not been accepted for a while, or None."""
        return {connection.name: self._why_paused(connection) for connection in self.by_peer.values()}

    def _why_paused(self, connection: Connection) -> str | None:
        origin, since = connection.link.full_of, connection.link.full_since
        if connection.wire is None or origin is None or time.monotonic() - since < _PAUSED_SECONDS:
            return None
        waiting, whose = self._core.stability.undelivered_by_origin[origin], self._roster.names[origin]
        return (
            f"{waiting:,} bytes of {whose} wait here for their causes or for the application: "
            f"nothing more is taken from {connection.name}"
        )

    def _report_gaps(self, helper: Connection, spans: list[Span]) -> None:
        """Log which messages are missing, and which member was asked for them."""
        for origin, first, last in spans:
            name, asked = self._roster.names[origin], helper.name
            text = f"{name}:{first} to {last}, asked of {asked}"
            self._log.info("missing: %s", text, extra={"peer": asked, "message_id": f"{name}:{first}"})
            self._notify("gap", name, text)

    def _report_liars(self) -> None:
        for liar in self._core.equivocators.keys() - self._liars:
            self._liars.add(liar)
            name = self._roster.names[liar]
            self._report_refusal(name, "it has signed different messages under the same ids", "equivocation")

    def _check_proofs(self) -> None:
        """Disconnect partners that were revoked since they connected, or whose certificate or token has
        expired."""
        self._security.refresh()
        for connection in self._open_connections():
            wire = connection.wire
            if wire is not None and wire.proof is not None:
                try:
                    self._security.check(wire.proof)
                except RemoteError as error:
                    wire.proof = None  # reported once is enough
                    self._spawn(self._cut_off(connection, wire, str(error)))

    async def _cut_off(self, connection: Connection, wire: Wire, reason: str) -> None:
        self._report_refusal(connection.name, reason, "expired or revoked")
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await wire.write([encode(Refusal(reason))])
        connection.reason = reason
        wire.abort()


def _peer_address(name: Any) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "an unknown address"


def _without_greeting(error: BaseException) -> str:
    """Why a process that could be reached has not completed the greeting."""
    return NO_GREETING if isinstance(error, TimeoutError) else f"{NO_GREETING}: {describe(error)}"
