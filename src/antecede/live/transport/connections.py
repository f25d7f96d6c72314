"""The links of a live member: who calls whom, who is let in, and packets that arrive once and in order.

A link outlives its connections. Packets have numbers; the receiver confirms what it has written down; a
connection begins where the receiver was. To the protocol a connection that broke, or a partner that was
killed and came back with its store, is a slow link and nothing else.

Whoever knows the other's address calls, the one with the greater name a little later; if two connections
meet, the one that the lesser name has made stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from antecede.errors import AntecedeError, InputError, require
from antecede.live.core import Core
from antecede.live.operations.logs import Log
from antecede.live.security.identity import Security
from antecede.live.settings import Roster, Settings, address
from antecede.live.transport.frames import (
    MAX_BYTES,
    Again,
    Beat,
    Found,
    Frame,
    Got,
    Greeting,
    Have,
    Packets,
    Refusal,
    Want,
    decode,
    encode,
)
from antecede.live.transport.handshake import Greetings, Memory
from antecede.live.transport.wires import READ_AHEAD, RoughWire, TcpWire, WebWire, Wire, dial
from antecede.protocols.base import RemoteError

_GREETING_SECONDS = 10.0
_BEAT_SECONDS = 3.0
_SILENCE_SECONDS = 12.0
"""A partner that says nothing for so long is lost."""
_RESEND_SECONDS = 2.0
"""Packets that are not confirmed for so long are sent again."""
_PARTING_SECONDS = 1.0
_FRAME_BYTES = 1 << 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_MAX_STRANGERS = 64
"""Connections that have not greeted yet; for one more, the oldest of them gives way."""
_GREETINGS_A_SECOND = 50.0
_SAY_AGAIN_SECONDS = 60.0
_MAX_SAID = 1_000


class Link:
    """Everything about one partner that does not survive this process."""

    def __init__(self, peer: int, name: str, where: str | None) -> None:
        self.peer, self.name, self.where = peer, name, where
        self.wire: Wire | None = None
        self.called_by_lesser = False
        self.awake = asyncio.Event()
        self.say: list[Frame] = []
        self.told: dict[int, list[int]] = {}
        self.again: int | None = None
        self.said_at = self.heard_at = 0.0
        self.reason = ""
        """Why it is not connected, as last heard."""

    def tell(self, frame: Frame) -> None:
        self.say.append(frame)
        self.awake.set()


class Links:
    """All links of one member. `changed` is called when the core has something to write."""

    def __init__(
        self,
        settings: Settings,
        roster: Roster,
        core: Core,
        memory: Memory,
        changed: Callable[[], None],
        notice: Callable[[str, str, str], None],
        counts: Counter[str],
    ) -> None:
        self._settings, self._roster, self._core = settings, roster, core
        self._changed, self._notice, self._counts = changed, notice, counts
        self._log = Log(settings.group, settings.me)
        self.links = {
            peer: Link(peer, roster.members[peer].name, roster.members[peer].at) for peer in core.partners
        }
        self._chance = random.Random(settings.rough.seed if settings.rough else None)
        self._servers: list[Any] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._security = Security(settings)
        if settings.web is not None and self._security.is_on and self._security.web is None:
            raise InputError("web: phones show a token; there is no token.key in the folder of keys")
        self._said: dict[tuple[str, str], float] = {}
        self._strangers: dict[Wire, None] = {}
        self._turn = 0
        self._greetings = Greetings(settings, roster, core, self._security, memory)
        self._may, self._may_at = 2 * _GREETINGS_A_SECOND, time.monotonic()
        self._resting_until = 0.0
        self.listening: str | None = None
        """Where others can call, once that is known."""
        self.listening_web: str | None = None

    async def start(self) -> None:
        if self._settings.listen is not None:
            host, port = address(self._settings.listen, "listen")
            server = await self._listen(
                asyncio.start_server(self._called, host, port, limit=READ_AHEAD), "listen"
            )
            self.listening = _where(server)
        if self._settings.web is not None:
            host, port = address(self._settings.web, "web")
            serve = require("websockets.asyncio.server", "live").serve
            options: dict[str, Any] = {"max_size": MAX_BYTES, "compression": None, "ping_interval": None}
            options["ssl"] = self._security.web
            web = await self._listen(serve(self._called_by_web, host, port, **options), "web")
            self.listening_web = f"{'wss' if self._security.web else 'ws'}://{_where(web)}"
        for link in self.links.values():
            if link.where is not None:
                self._spawn(self._keep_calling(link))

    async def _listen(self, starting: Awaitable[Any], what: str) -> Any:
        try:
            server = await starting
        except OSError as error:
            where = getattr(self._settings, what)
            raise InputError(f"{what}: cannot listen at {where}: {error.strerror or error}") from error
        self._servers.append(server)
        return server

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("a link's task failed", exc_info=error)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._resting_until = math.inf
        await self._part()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for link in self.links.values():
            if link.wire is not None:
                link.wire.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _part(self) -> None:
        """Tell what was delivered here at the last moment: somebody may wait for nothing else."""
        words = [
            link.wire.write([encode(Have(rows))])
            for link in self.links.values()
            if link.wire is not None and (rows := self._core.progress.news(link.told, self._turn))
        ]
        # Not cut off: a socket that is closed with something unread takes back what it has sent.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS):
                await asyncio.gather(*words, return_exceptions=True)
                ends = [link.wire.finish() for link in self.links.values() if link.wire is not None]
                await asyncio.gather(*ends, return_exceptions=True)
                while self.connected():
                    await asyncio.sleep(0.01)

    def rest(self, seconds: float) -> None:
        """Break all connections and make none for a while."""
        self._resting_until = time.monotonic() + seconds
        for link in self.links.values():
            if link.wire is not None:
                link.wire.abort()

    @property
    def _is_resting(self) -> bool:
        return time.monotonic() < self._resting_until

    def connected(self) -> list[int]:
        return [peer for peer, link in self.links.items() if link.wire is not None]

    def awaken(self) -> None:
        """There may be something to send."""
        for link in self.links.values():
            link.awake.set()

    # How a connection comes to be

    async def _keep_calling(self, link: Link) -> None:
        lesser = self._settings.me < link.name
        pause = _FIRST_PAUSE
        if not lesser and self._settings.listen is not None:
            await asyncio.sleep(1.0)
        while True:
            if link.wire is None and not self._is_resting:
                lasted = await self._call(link)
                pause = _FIRST_PAUSE if lasted else min(pause * 2, _LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _call(self, link: Link) -> bool:
        """Whether the link was up for a while."""
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                wire = await dial(link.where or "", self._security.client)
        except (OSError, TimeoutError) as error:
            link.reason = f"cannot be reached at {link.where}: {_why(error)}"
            if isinstance(error, ssl.SSLError):
                self._refuse(link.name, f"{link.where}: {_why(error)}", "tls")
            return False
        return await self._talk(wire, link)

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._let_in(TcpWire(reader, writer))

    async def _called_by_web(self, socket: Any) -> None:
        await self._let_in(WebWire(socket))

    def _may_greet(self) -> bool:
        """Whether another stranger is listened to: so many a second."""
        now = time.monotonic()
        earned = (now - self._may_at) * _GREETINGS_A_SECOND
        self._may, self._may_at = min(self._may + earned, 2 * _GREETINGS_A_SECOND), now
        if self._is_resting or self._may < 1:
            return False
        self._may -= 1
        return True

    def _refuse(self, who: str, reason: str, stage: str) -> None:
        self._counts[f"rejected {stage}"] += 1
        # Whoever is refused tries again: it is said once a minute.
        said = (who.rpartition(":")[0] or who, reason)
        if time.monotonic() - self._said.get(said, -math.inf) > _SAY_AGAIN_SECONDS:
            if len(self._said) > _MAX_SAID:
                self._said.clear()
            self._said[said] = time.monotonic()
            self._log.warning("refused %s: %s", who, reason, extra={"peer": who})
        self._notice("refused", who, reason)

    async def _let_in(self, wire: Wire) -> None:
        if not self._may_greet():
            self._counts["rejected too many"] += 1
            self._log.info("a connection was not let in: too many a second")
            wire.abort()
            return
        if len(self._strangers) >= _MAX_STRANGERS:
            # A member greets at once, so it is not the one that has been silent for longest.
            self._counts["rejected too many"] += 1
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await self._talk(wire, None)

    async def _talk(self, wire: Wire, called: Link | None) -> bool:
        """Greet, and if both sides agree, keep the link going until the connection ends."""
        who = called.name if called else f"someone at {_place(wire.info('peername'))}"
        greeted = False
        try:
            if called is None:
                self._strangers[wire] = None
            try:
                async with asyncio.timeout(_GREETING_SECONDS):
                    expected = called.peer if called else None
                    theirs = await self._greetings.hear(wire, expected)
                    if called is None and theirs.me in self._roster.names:
                        who = theirs.me
                    link = self.links[await self._greetings.agree(wire, expected, theirs)]
            finally:
                self._strangers.pop(wire, None)
            who, greeted = link.name, True
            if self._settings.rough is not None:
                wire = RoughWire(wire, self._settings.rough, self._chance)
            await self._run(wire, link, theirs, called is not None)
        except (ConnectionError, TimeoutError, AntecedeError, OSError) as error:
            if called is not None:
                called.reason = _why(error)
            if isinstance(error, AntecedeError | ssl.SSLError):
                stage = "tls" if isinstance(error, ssl.SSLError) else "packet" if greeted else "greeting"
                self._refuse(who, _why(error), stage)
            return False
        finally:
            wire.abort()
        return True

    # What goes on while it lasts

    async def _run(self, wire: Wire, link: Link, theirs: Greeting, called: bool) -> None:
        by_lesser = (self._settings.me < link.name) == called
        if link.wire is not None:
            if link.called_by_lesser and not by_lesser:
                return
            link.wire.abort()
            link.wire = None
        link.wire, link.called_by_lesser = wire, by_lesser
        link.told, link.say, link.again, link.reason = {}, [], None, ""
        link.said_at = link.heard_at = time.monotonic()
        self._core.outboxes[link.peer].confirm(theirs.got)
        self._log.info("connected to %s", link.name, extra={"peer": link.name})
        self._counts["connections"] += 1
        self._notice("joined", link.name, "")
        writer = asyncio.create_task(self._write(wire, link, theirs.got))
        reason = "closed"
        try:
            await self._read(wire, link)
        except (ConnectionError, TimeoutError, OSError) as error:
            reason = link.reason or _why(error)
        except RemoteError as error:
            reason = f"it broke the rules: {error}"
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_PARTING_SECONDS):
                    await wire.write([encode(Refusal(str(error)))])
            raise
        finally:
            writer.cancel()
            if link.wire is wire:
                link.wire, link.reason = None, reason
                self._log.info("lost %s: %s", link.name, reason, extra={"peer": link.name})
                self._counts["lost"] += 1
                self._notice("lost", link.name, reason)
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, wire: Wire, link: Link, sent: int) -> None:
        box, core = self._core.outboxes[link.peer], self._core
        confirmed, moved_at, got = box.confirmed, time.monotonic(), core.safe[link.peer]
        try:
            while True:
                frames, link.say = link.say, []
                if core.safe[link.peer] > got:
                    got = core.safe[link.peer]
                    frames.append(Got(got))
                if link.again is not None:
                    self._counts["resent"] += max(0, sent - link.again)
                    sent, link.again = min(sent, link.again), None
                if box.confirmed > confirmed or sent <= box.confirmed:
                    confirmed, moved_at = box.confirmed, time.monotonic()
                elif time.monotonic() - moved_at > _RESEND_SECONDS:
                    self._counts["resent"] += sent - confirmed
                    sent, moved_at = confirmed, time.monotonic()
                sent = max(sent, box.confirmed)
                if box.last > sent:
                    bodies = box.after(sent, _FRAME_BYTES)
                    frames.append(Packets(sent + 1, bodies))
                    self._counts["packets"] += len(bodies)
                    sent += len(bodies)
                if not frames:
                    link.awake.clear()
                    await link.awake.wait()
                    continue
                encoded = [encode(frame) for frame in frames]
                self._counts["wire bytes"] += sum(map(len, encoded))
                link.said_at = time.monotonic()
                await wire.write(encoded)
        except (ConnectionError, OSError):
            wire.abort()

    async def _read(self, wire: Wire, link: Link) -> None:
        core, peer = self._core, link.peer
        while True:
            frame = decode(await wire.read())
            if link.wire is not wire:
                return
            link.heard_at = time.monotonic()
            now = time.time_ns()
            if isinstance(frame, Packets):
                if frame.first > core.seen[peer] + 1:
                    link.tell(Again(core.seen[peer]))
                    continue
                for number, body in enumerate(frame.bodies, frame.first):
                    core.receive(peer, number, body, now)
                self._changed()
            elif isinstance(frame, Got):
                core.outboxes[peer].confirm(frame.number)
                self._changed()
            elif isinstance(frame, Again):
                link.again = frame.number
                link.awake.set()
            elif isinstance(frame, Have):
                core.progress.learn(peer, frame.rows)
                self._changed()
            elif isinstance(frame, Want):
                if bodies := core.progress.found(frame.spans):
                    link.tell(Found(bodies))
            elif isinstance(frame, Found):
                for body in frame.bodies:
                    for message in core.on_repair(body, now):
                        self._counts["recovered"] += 1
                        origin = self._roster.names[message.origin]
                        which = f"{origin}:{message.seq}"
                        about = {"peer": link.name, "message_id": which}
                        self._log.info("%s had gone astray, and came from %s", which, link.name, extra=about)
                        self._notice("recovered", origin, f"{which} from {link.name}")
                self._changed()
            elif isinstance(frame, Refusal):
                # The one who called greets first, so it is the last to find something wrong.
                raise RemoteError(f"it refuses: {frame.reason[:500]}")
            elif not isinstance(frame, Beat):
                raise RemoteError(f"no {type(frame).__name__} comes in the middle of a conversation")

    def gossip(self, now: int, patience: int) -> None:
        """Tell partners how far this member knows everybody to be, and ask for what has gone astray."""
        self._core.skip_stable()
        self._turn += 1
        for link in self.links.values():
            if link.wire is None:
                continue
            if rows := self._core.progress.news(link.told, self._turn):
                link.tell(Have(rows))
            self._keep_alive(link, link.wire)
        wanted = self._core.progress.wanted(now, patience, self.connected())
        if wanted is not None:
            helper, spans = wanted
            for origin, first, last in spans:
                name, asked = self._roster.names[origin], self.links[helper].name
                text = f"{name}:{first} to {last}, asked of {asked}"
                self._log.info("missing: %s", text, extra={"peer": asked, "message_id": f"{name}:{first}"})
                self._notice("gap", name, text)
            self.links[helper].tell(Want(spans))

    def _keep_alive(self, link: Link, wire: Wire) -> None:
        """Say something after a while; give up on who has said nothing; look at what is not confirmed."""
        now = time.monotonic()
        if now - link.heard_at > _SILENCE_SECONDS:
            link.reason = "it said nothing for long"
            wire.abort()
        elif now - link.said_at > _BEAT_SECONDS:
            link.tell(Beat())
        elif self._core.outboxes[link.peer].packets:
            link.awake.set()


def _where(server: Any) -> str:
    host, port = next(iter(server.sockets)).getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _place(name: Any) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "an unknown place"


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "it speaks without encryption, and this member has keys"
        return (error.reason or str(error)).lower().replace("_", " ") + _verdict(error)
    if isinstance(error, TimeoutError):
        return "it did not answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _verdict(error: ssl.SSLError) -> str:
    said = getattr(error, "verify_message", "")
    return f": {said}" if said else ""
