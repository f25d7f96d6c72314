"""The connections of a live member: who calls whom, who is accepted, and packets that arrive once, in order.

A link outlives its connections. Packets have numbers; the receiver acknowledges what it has made durable; a
new connection resumes where the receiver was. To the protocol, a connection that broke, or a partner that
was killed and came back with its store, is a slow link and nothing else.

Whoever knows the other's address calls, the one with the greater name a little later; if two connections
meet, the one made by the lesser name stays. What strangers can do is limited by `admission`.
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
from antecede.live.events import AckReceived, PacketReceived, ProgressReceived, RepairReceived
from antecede.live.operations.logs import Log
from antecede.live.security.identity import Security
from antecede.live.settings import Roster, Settings, address
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
    Ack,
    Greeting,
    Heartbeat,
    Nack,
    Packets,
    Progress,
    Refusal,
    RepairReply,
    RepairRequest,
    decode,
    encode,
)
from antecede.live.transport.handshake import Handshake, KnownStores
from antecede.live.transport.listener import Listener, Serve
from antecede.live.transport.wires import FaultyWire, TcpWire, WebWire, Wire, dial
from antecede.protocols.base import RemoteError

_GREETING_SECONDS = 10.0
_HEARTBEAT_SECONDS = 3.0
_SILENCE_SECONDS = 12.0
"""A partner that is silent for this long is considered lost."""
_RESEND_SECONDS = 2.0
"""Packets that are not acknowledged for this long are sent again."""
_CLOSING_SECONDS = 1.0
_FRAME_BYTES = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_REPEAT_LOG_SECONDS = 60.0
_STRANGERS_LOGGED_PER_SECOND, _STRANGERS_LOGGED_AT_ONCE = 0.2, 20.0
_MAX_LOGGED, _MAX_REASON = 1_000, 1_000


class Connections:
    """All connections of one member. `stepped` is called after the core has taken an event."""

    def __init__(
        self,
        settings: Settings,
        roster: Roster,
        core: Core,
        stores: KnownStores,
        stepped: Callable[[], None],
        notify: Callable[[str, str, str], None],
        counts: Counter[str],
        clock: Clock,
    ) -> None:
        self._settings, self._roster, self._core, self._clock = settings, roster, core, clock
        self._stepped, self._notify, self._counts = stepped, notify, counts
        self._log = Log(settings.group, settings.me)
        self.by_peer = {
            peer: Connection(peer, roster.members[peer].name, roster.members[peer].at)
            for peer in core.partners
        }
        self._rng = random.Random(settings.faults.seed if settings.faults else None)
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._security = Security(settings)
        if settings.web is not None and self._security.is_on and self._security.web is None:
            raise InputError("web: phones show a token, and the folder of keys has no token.key to verify it")
        self._logged: dict[tuple[str, str], float] = {}
        self._stranger_log = TokenBucket(_STRANGERS_LOGGED_PER_SECOND, _STRANGERS_LOGGED_AT_ONCE)
        self._turn = 0
        self._handshake = Handshake(settings, roster, core, self._security, stores)
        peers = sources_of_peers(member.at for member in settings.members())
        self.admission = Admission(capacity_for(len(roster.members)), peers, counts)
        self._offline_until = 0.0
        self.address: str | None = None
        """Where others can connect, once that is known."""
        self.web_address: str | None = None
        self._handlers: dict[type, Callable[[Connection, Any, int], None]] = {
            Packets: self._on_packets,
            Ack: self._on_ack,
            Nack: self._on_nack,
            Progress: self._on_progress,
            RepairRequest: self._on_repair_request,
            RepairReply: self._on_repair_reply,
            Refusal: self._on_refusal,
            Heartbeat: self._on_heartbeat,
        }

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
        try:
            await listener.start(*address(where, setting))
        except OSError as error:
            raise InputError(f"{setting}: cannot listen at {where}: {error.strerror or error}") from error
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
        """Report the last deliveries, for which a partner may be waiting, and let what is written arrive."""
        reports = [
            connection.wire.write([encode(Progress(counts))])
            for connection in self.by_peer.values()
            if connection.wire is not None
            and (counts := self._core.stability.changes_since(connection.reported, self._turn))
        ]
        # Not aborted: a socket that is closed with something unread discards what it has sent.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await asyncio.gather(*reports, return_exceptions=True)
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

    def wake(self) -> None:
        """There may be something to send."""
        for connection in self.by_peer.values():
            connection.has_work.set()

    # How a connection is made

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
        """Connect to a partner and serve the connection; whether it was up for a while."""
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                wire = await dial(connection.target or "", self._security.client)
        except (OSError, TimeoutError) as error:
            connection.reason = f"cannot be reached at {connection.target}: {_describe(error)}"
            if isinstance(error, ssl.SSLError):
                self._refuse(connection.name, f"{connection.target}: {_describe(error)}", "tls")
            return False
        return await self._handshake_and_serve(wire, connection)

    async def _accept_tcp(self, connected: socket.socket, pending: PendingConnection) -> None:
        await self._accept(await TcpWire.accept(connected), pending)

    async def _accept_web(self, connection: Any, pending: PendingConnection) -> None:
        await self._accept(WebWire(connection), pending)

    def _refuse(self, who: str, reason: str, stage: str) -> None:
        self._counts[f"rejected {stage}"] += 1
        reason = reason[:_MAX_REASON]
        # Whoever is refused tries again, so it is logged once a minute.
        key = (who.rpartition(":")[0] or who, reason)
        if time.monotonic() - self._logged.get(key, -math.inf) > _REPEAT_LOG_SECONDS:
            if len(self._logged) > _MAX_LOGGED:
                self._logged.clear()
            self._logged[key] = time.monotonic()
            if who not in self._roster.names and not self._stranger_log.admit():
                return
            self._log.warning("refused %s: %s", who, reason, extra={"peer": who})
        self._notify("refused", who, reason)

    async def _accept(self, wire: Wire, pending: PendingConnection) -> None:
        pending.close = wire.abort
        if self._is_offline:  # a trial cuts this member off
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
            if self._is_offline:  # since this handshake began
                raise ConnectionError("this member is offline")
            who, has_greeted = connection.name, True
            if self._settings.faults is not None:
                wire = FaultyWire(wire, self._settings.faults, self._rng)
            await self._serve(wire, connection, greeting, dialled is not None)
        except (ConnectionError, TimeoutError, AntecedeError, OSError) as error:
            if dialled is not None:
                dialled.reason = _describe(error)
            if isinstance(error, AntecedeError | ssl.SSLError):
                stage = "tls" if isinstance(error, ssl.SSLError) else "packet" if has_greeted else "greeting"
                # What a stranger does in the name of a member is not the member's doing.
                is_proven = wire.proof is not None or not self._security.is_on
                if dialled is None and is_proven and claimed in self._roster.names:
                    who = claimed
                self._refuse(who, _describe(error), stage)
            return False
        finally:
            wire.abort()
        return True

    # While it lasts

    async def _serve(self, wire: Wire, connection: Connection, greeting: Greeting, dialled: bool) -> None:
        by_lesser_name = (self._settings.me < connection.name) == dialled
        if connection.wire is not None:
            if connection.by_lesser_name and not by_lesser_name:
                return
            connection.wire.abort()
        connection.open(wire, by_lesser_name)
        self._core.step(AckReceived(connection.peer, greeting.received))
        self._log.info("connected to %s", connection.name, extra={"peer": connection.name})
        self._counts["connections"] += 1
        self._notify("joined", connection.name, "")
        writer = asyncio.create_task(self._write(wire, connection, greeting.received))
        reason = "closed"
        try:
            await self._read(wire, connection)
        except (ConnectionError, TimeoutError, OSError) as error:
            reason = connection.reason or _describe(error)
        except RemoteError as error:
            reason = f"it violated the protocol: {error}"
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await wire.write([encode(Refusal(str(error)))])
            raise
        finally:
            writer.cancel()
            if connection.wire is wire:
                connection.wire, connection.reason = None, reason
                self._log.info("lost %s: %s", connection.name, reason, extra={"peer": connection.name})
                self._counts["lost"] += 1
                self._notify("lost", connection.name, reason)
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, wire: Wire, connection: Connection, sent: int) -> None:
        """Send acks, control frames and packets after number `sent`, and packets again if they were lost."""
        box, core = self._core.outboxes[connection.peer], self._core
        acked, moved_at = box.acked, time.monotonic()
        reported = core.durably_received[connection.peer]
        try:
            while True:
                frames, connection.control = connection.control, []
                if core.durably_received[connection.peer] > reported:
                    reported = core.durably_received[connection.peer]
                    frames.append(Ack(reported))
                if connection.resend_after is not None:
                    self._counts["resent"] += max(0, sent - connection.resend_after)
                    sent, connection.resend_after = min(sent, connection.resend_after), None
                if box.acked > acked or sent <= box.acked:
                    acked, moved_at = box.acked, time.monotonic()
                elif time.monotonic() - moved_at > _RESEND_SECONDS:
                    self._counts["resent"] += sent - acked
                    sent, moved_at = acked, time.monotonic()
                sent = max(sent, box.acked)
                if box.last > sent:
                    bodies = box.after(sent, _FRAME_BYTES)
                    frames.append(Packets(sent + 1, bodies))
                    self._counts["packets"] += len(bodies)
                    sent += len(bodies)
                if not frames:
                    connection.has_work.clear()
                    await connection.has_work.wait()
                    continue
                encoded = [encode(frame) for frame in frames]
                self._counts["wire bytes"] += sum(map(len, encoded))
                connection.sent_at = time.monotonic()
                await wire.write(encoded)
        except (ConnectionError, OSError):
            wire.abort()

    async def _read(self, wire: Wire, connection: Connection) -> None:
        while True:
            frame = decode(await wire.read())
            if connection.wire is not wire:
                return
            connection.heard_at = time.monotonic()
            handler = self._handlers.get(type(frame))
            if handler is None:
                raise RemoteError(f"it sends a {type(frame).__name__} after the handshake")
            handler(connection, frame, self._clock.now())

    def _on_packets(self, connection: Connection, frame: Packets, now: int) -> None:
        core, peer = self._core, connection.peer
        if frame.first > core.received[peer] + 1:
            connection.send(Nack(core.received[peer]))
            return
        for number, body in enumerate(frame.bodies, frame.first):
            core.step(PacketReceived(peer, number, body, now))
        self._stepped()

    def _on_ack(self, connection: Connection, frame: Ack, now: int) -> None:
        self._core.step(AckReceived(connection.peer, frame.number))
        self._stepped()

    def _on_nack(self, connection: Connection, frame: Nack, now: int) -> None:
        connection.resend_after = frame.number
        connection.has_work.set()

    def _on_progress(self, connection: Connection, frame: Progress, now: int) -> None:
        self._core.step(ProgressReceived(connection.peer, frame.counts))
        self._stepped()

    def _on_repair_request(self, connection: Connection, frame: RepairRequest, now: int) -> None:
        if bodies := self._core.repair.reply(frame.spans):
            connection.send(RepairReply(bodies))

    def _on_repair_reply(self, connection: Connection, frame: RepairReply, now: int) -> None:
        for body in frame.bodies:
            self._core.step(RepairReceived(connection.peer, body, now))
        self._stepped()

    def _on_heartbeat(self, connection: Connection, frame: Heartbeat, now: int) -> None:
        """It was heard, and that is all it is for."""

    def _on_refusal(self, connection: Connection, frame: Refusal, now: int) -> None:
        # The caller greets first, so it is the last to find something wrong.
        raise RemoteError(f"it refuses: {frame.reason[:500]}")

    def report_repair(self, message: MessageId, link: int) -> None:
        """Log a message that a partner supplied."""
        self._counts["recovered"] += 1
        origin, helper = self._roster.names[message.origin], self._roster.names[link]
        message_id = f"{origin}:{message.seq}"
        extra = {"peer": helper, "message_id": message_id}
        self._log.info("%s was missing, and came from %s", message_id, helper, extra=extra)
        self._notify("recovered", origin, f"{message_id} from {helper}")

    # Now and then

    def gossip(self, now: int, patience: int) -> None:
        """Report progress to partners, and ask for what has been missing for `patience`."""
        self._check_proofs()
        core = self._core
        core.repair.skip_stable(core.protocol, core.outboxes.values())
        self._turn += 1
        for connection in self.by_peer.values():
            if connection.wire is None:
                continue
            if counts := core.stability.changes_since(connection.reported, self._turn):
                connection.send(Progress(counts))
            self._keep_alive(connection, connection.wire)
        request = core.repair.request(now, patience, self.connected())
        if request is not None:
            helper, spans = request
            for origin, first, last in spans:
                name, asked = self._roster.names[origin], self.by_peer[helper].name
                text = f"{name}:{first} to {last}, asked of {asked}"
                self._log.info("missing: %s", text, extra={"peer": asked, "message_id": f"{name}:{first}"})
                self._notify("gap", name, text)
            self.by_peer[helper].send(RepairRequest(spans))

    def _check_proofs(self) -> None:
        """Cut off whoever is revoked by now, or has shown what has expired since."""
        self._security.refresh()
        for connection in self.by_peer.values():
            wire = connection.wire
            if wire is not None and wire.proof is not None:
                try:
                    self._security.check(wire.proof)
                except RemoteError as error:
                    wire.proof = None  # once is enough
                    self._spawn(self._cut_off(connection, wire, str(error)))

    async def _cut_off(self, connection: Connection, wire: Wire, reason: str) -> None:
        self._refuse(connection.name, reason, "expired or revoked")
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await wire.write([encode(Refusal(reason))])
        connection.reason = reason
        wire.abort()

    def _keep_alive(self, connection: Connection, wire: Wire) -> None:
        """Send a heartbeat if nothing else was sent; give up on a silent partner; look for lost packets."""
        now = time.monotonic()
        if now - connection.heard_at > _SILENCE_SECONDS:
            connection.reason = "it was silent for too long"
            wire.abort()
        elif now - connection.sent_at > _HEARTBEAT_SECONDS:
            connection.send(Heartbeat())
        elif self._core.outboxes[connection.peer].packets:
            connection.has_work.set()


def _peer_address(name: Any) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "an unknown address"


def _describe(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "it speaks without encryption, and this member has keys"
        detail = getattr(error, "verify_message", "")
        reason = (error.reason or str(error)).lower().replace("_", " ")
        return f"{reason}: {detail}" if detail else reason
    if isinstance(error, TimeoutError):
        return "it did not answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
