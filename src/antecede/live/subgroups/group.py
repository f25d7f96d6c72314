"""A member of a live group of `hcg` or `basic`: subgroups on real, linear and vector clocks, and gateways.

Packets travel within a subgroup and between gateways. In a subgroup on real time a message is delivered when
it is due; a timer wakes this member then, and its clock and links are watched (`clock_watch.py`). A member
whose clock or links violate the promised bounds does not start. If a bound is violated later, messages are
held until all members of the subgroup have confirmed them, so the order is never wrong. Violations are listed
in `problems()`.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, cast

from antecede.errors import InputError
from antecede.live.clock import Clock
from antecede.live.envelope import Body
from antecede.live.events import TimerFired
from antecede.live.fixed_group import FixedGroup
from antecede.live.headers import About
from antecede.live.messages import MessageId
from antecede.live.ready import Ready
from antecede.live.settings import Settings
from antecede.live.subgroups.clock_watch import ClockWatch
from antecede.live.transport.connections import Connections
from antecede.live.transport.frames import ClockProbe, ClockReading
from antecede.live.transport.links import PartnerLink
from antecede.protocols.hcg.confirmed import ConfirmedHcg, ConfirmedTimeClock

_MEASURING_SECONDS = 3.0
"""How long `broadcast` must have waited for others' clocks before a notice is sent."""


class SubgroupMember(FixedGroup):
    """A gateway, or a member behind one."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._watch = self._create_watch()

    def _create_watch(self) -> ClockWatch:
        """A watch over this member's subgroup, if that is on real time."""
        mine = self._real_time
        if mine is None:
            return ClockWatch([], 0, 0)
        bounds = self._roster.layout.bounds
        here = self._process.gateways.index(self._core.me - mine.me)
        first = self._core.me - mine.me
        others = [peer for peer in range(first, first + mine.size) if peer != self._core.me]
        return ClockWatch(others, *bounds[here])

    @property
    def _process(self) -> ConfirmedHcg:
        return cast("ConfirmedHcg", self._core.protocol)

    @property
    def _real_time(self) -> ConfirmedTimeClock | None:
        clock = self._process.clock
        return clock if isinstance(clock, ConfirmedTimeClock) else None

    @property
    def gateway(self) -> str:
        """The name of the gateway of this member's subgroup."""
        return self._names[self._core.me - self._process.clock.me]

    @property
    def clock_offsets(self) -> dict[str, float]:
        """On real time: by how many seconds the clocks of other members of this subgroup were found to be
        ahead."""
        found = {peer: each.best for peer, each in self._watch.partners.items()}
        return {self._names[peer]: best.offset / 1e9 for peer, best in found.items() if best is not None}

    # Starting

    def _create_connections(self) -> Connections:
        connections = super()._create_connections()
        for peer in self._watch.partners:
            link = connections.by_peer[peer].link
            link.take(ClockProbe, partial(_answer, link))
            link.take(ClockReading, partial(self._on_reading, peer))
        return connections

    # Broadcasting

    async def _broadcast(self, body: Body, about: About, timeout: float | None) -> MessageId:
        """As in any group; in a subgroup on real time, once the clocks were compared."""
        if not self._watch.is_running:
            async with asyncio.timeout(timeout):
                await self._until_running()
        return await super()._broadcast(body, about, timeout)

    async def _until_running(self) -> None:
        began = time.monotonic()
        while not self._watch.is_running:
            self._check_open()
            if time.monotonic() - began > _MEASURING_SECONDS:
                unknown = [peer for peer, each in self._watch.partners.items() if not each.is_measured]
                names = ", ".join(self._names[peer] for peer in unknown)
                text = f"broadcast waits until the clocks of {names} were compared with this one"
                if self._problems.begin("measuring", "bounds", names, text):
                    self._notify("bounds", names, text)
            self._room.clear()
            await self._room.wait()
        self._problems.end("measuring")

    # Events

    def _notify(self, kind: Any, member: str, text: str) -> None:
        super()._notify(kind, member, text)
        if kind == "joined" and (peer := self._names.index(member)) in self._watch.partners:
            self._watch.partners[peer].begin()
            self._probe(peer)

    def _probe(self, peer: int) -> None:
        connection = self._connections.by_peer[peer]
        if connection.wire is None:
            return
        probe = self._watch.partners[peer].probe(self._clock.now())
        if probe is not None:
            connection.link.send(probe)
            connection.has_work.set()

    def _on_reading(self, peer: int, frame: ClockReading, _: float, now: int) -> None:
        self._watch.partners[peer].read(frame, now)
        self._check_bounds(now)
        if not self._watch.partners[peer].is_measured:
            self._probe(peer)

    def _on_step(self) -> None:
        super()._on_step()
        self._set_timer()

    def _on_advance(self, ready: Ready) -> None:
        super()._on_advance(ready)
        self._set_timer()

    def _set_timer(self) -> None:
        """Set a timer for the next due message; ticks are too infrequent for that."""
        timers = self._core.timers
        if self._timer is not None and (not timers or self._timer_at != timers[0]):
            self._timer.cancel()
            self._timer = None
        if timers and self._timer is None and self._state != "closed":
            self._timer_at = timers[0]
            wait = max(0, timers[0] - self._clock.now()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.now()
        if self._failure is None and self._core.has_timer_due(now):
            self._core.step(TimerFired(now))
            self._on_step()
        else:
            self._set_timer()

    def _on_tick(self) -> None:
        super()._on_tick()
        now = self._clock.now()
        for peer in self._watch.partners:
            self._probe(peer)
        self._check_bounds(now)

    def _check_bounds(self, now: int) -> None:
        """Report violated bounds; do not start if there are any."""
        broken = self._watch.check(now)
        if self._watch.refuses(broken):
            self._refuse_to_run(broken)
            return
        for peer in self._watch.partners:
            self._report(("bounds", peer), peer, broken.get(peer, ""))
        late = self._overdue(now)
        for peer in self._watch.partners:
            self._report(("held", peer), peer, late.get(peer, ""))
        if self._watch.is_running:
            self._room.set()

    def _overdue(self, now: int) -> dict[int, str]:
        """Members whose confirmation is missing for longer than the promised bounds allow."""
        mine = self._real_time
        since, ranks = mine.awaited(now) if mine is not None else (0, [])
        if mine is None or not ranks or not self._watch.is_beyond_doubt(now - since):
            return {}
        first, seconds = self._core.me - mine.me, (now - since) / 1e9
        held = f"{len(mine.queue):,} messages are held, since the next was due {seconds:.1f} s ago"
        return {first + rank: f"it has not confirmed the progress of its clock: {held}" for rank in ranks}

    def _report(self, key: tuple[str, int], peer: int, text: str) -> None:
        name = self._names[peer]
        if not text:
            if self._problems.end(key):
                self._notify("bounds", name, f"{name} keeps what is promised again")
        elif self._problems.begin(key, "bounds", name, f"{name}: {text}"):
            self._notify("bounds", name, f"{name}: {text}")

    def _refuse_to_run(self, broken: dict[int, str]) -> None:
        """Stop before anything is broadcast."""
        if self._failure is not None:
            return
        what = "; ".join(f"{self._names[peer]}: {text}" for peer, text in broken.items())
        error = InputError(f"{self.me} cannot run in its subgroup on real time: {what}")
        self._driver.refuse(error)
        self._on_failure(error, "bounds")  # the connections stay: others are to learn it as well

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super()._stop()


def _answer(link: PartnerLink, frame: ClockProbe, _: float, now: int) -> None:
    link.send(ClockReading(frame.sent, now))
