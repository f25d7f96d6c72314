"""The application's interface to a phone of a dynamic live group.

    async with antecede.join("room", me="phone7", super_peers=["s1@host:7000", "s2@host:7000"],
                             store="phone7", restore=board.load) as group:
        await group.broadcast("hello")
        async for message in group:
            ...

A phone is behind one super peer at a time. If it cannot reach it for a few seconds, it turns to another one:
it moves if that is possible, and otherwise returns there with a snapshot, as a removed member does. Then
`restore` is called between two messages, and the phone has again everything that it had accepted.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from antecede.errors import AntecedeError
from antecede.live.changing.events import LeaveAsked, MoveAsked, SuperPeersLost
from antecede.live.changing.failover import Failover
from antecede.live.changing.group import DynamicGroup, Restore
from antecede.live.changing.inspection import PhoneInspection
from antecede.live.changing.phone import PhoneCore
from antecede.live.changing.protocols import WITH_PHONES
from antecede.live.clock import Clock
from antecede.live.envelope import Body
from antecede.live.headers import About
from antecede.live.messages import MessageId
from antecede.live.settings import Member, Settings
from antecede.live.transport.frames import RefusedError
from antecede.live.transport.reachability import Unreached, describe
from antecede.live.view import View, ViewMember
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError


class CutOffError(LocalError):
    """No super peer can be reached, so a broadcast could not be sent."""


class PhoneGroup(DynamicGroup):
    """A group, seen by a phone."""

    _core: PhoneCore

    def __init__(
        self, settings: Settings, restore: Restore | None = None, clock: Clock | None = None
    ) -> None:
        self._failover: Failover
        self._calls: set[asyncio.Task[None]] = set()
        self._reasons: dict[str, str] = {}
        """By name, why super peers could not be reached at the last attempt."""
        self._calling = ""
        """The super peer that is being called, until it has greeted."""
        self._gone = ""
        """The super peers whose places it has given up, if that is why it joins again."""
        super().__init__(settings, None, restore, clock)
        self._inspection = PhoneInspection(self._core)
        self._unreached = Unreached(self._log)
        self._turns = itertools.cycle(settings.super_peer_list())

    def _create_core(self, settings: Settings) -> PhoneCore:
        kind = WITH_PHONES.get(settings.protocol, ChangingFreescale)
        core = PhoneCore(kind, settings.me, settings.store is not None, settings.own)
        core.places = {each.name: each.at or "" for each in settings.super_peer_list()}
        self._failover = Failover(core)
        return core

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "protocol": self._core.kind.name, "phone": True}

    def _contacts(self) -> list[Member]:
        """The connected super peers first."""
        connected = {self._core.greeted[each].name for each in self._connected_addresses()}
        return sorted(self.settings.super_peer_list(), key=lambda each: each.name not in connected)

    # Leaving and moving

    async def leave(self, timeout: float | None = None) -> None:
        if self._state != "leaving":
            self._check_open()
        core = self._core
        async with asyncio.timeout(timeout):
            while core.phase != Phase.ENDED:
                if core.phase != Phase.LEAVING:
                    await self._until(lambda: core.may_leave(self._clock.now()))
                    self._state = "leaving"
                    core.step(LeaveAsked(self._clock.now()))
                    self._on_step()
                    await self._driver.durable()
                await self._until(lambda: core.phase != Phase.LEAVING)
                if core.phase == Phase.REMOVED:
                    # Its super peer is gone: the phone brings back what it has broadcast there.
                    self._state = "open"
                    self._check_removed()
        await self.aclose()

    async def move(self, to: str) -> None:
        """Move to another super peer, by name. Returns when the move is complete."""
        self._check_open()
        wanted = [each for each in self.settings.super_peer_list() if each.name == to]
        if not wanted:
            raise LocalError(f"{to} is not among the super peers of {self.settings.me}")
        core, asked = self._core, False
        while self.super_peer != to:
            found = [each for each in self._connected_addresses() if core.greeted[each].name == to]
            link = core.link_to(found[0]) if found and core.phase == Phase.MEMBER else None
            if not asked and link is not None and core.phone.may_move(found[0]):
                core.step(MoveAsked(link, self._clock.now()))
                asked = True
                self._on_step()
            elif not found:
                self._seek(wanted[0])
            self._room.clear()
            await self._room.wait()
            self._check_open()

    @property
    def super_peer(self) -> str:
        """The name of the super peer that this phone is behind; empty if there is none."""
        contact = self._core.greeted.get(self._core.hub)
        return contact.name if contact is not None else ""

    # Membership

    @property
    def me(self) -> str:
        core = self._core
        return f"{core.name}~{core.me & 0xFFFF_FFFF:08x}" if core.members and core.me >= 0 else core.name

    @property
    def members(self) -> tuple[str, ...]:
        return (self.settings.me,)

    @property
    def connected(self) -> tuple[str, ...]:
        return tuple(sorted(self._core.greeted[each].label for each in self._connected_addresses()))

    @property
    def view(self) -> View:
        """The super peers to which it is connected: a phone knows nobody else as a member."""
        core = self._core
        contacts = [core.greeted[each] for each in self._connected_addresses()]
        return View({each.label: ViewMember(each.label, each.name, each.at, True) for each in contacts})

    async def remove(self, who: str) -> None:
        raise LocalError("a phone removes nobody; a member does")

    def _connected_addresses(self) -> list[int]:
        core = self._core
        links = [core.links[link] for link in self._connections.connected]
        return [theirs for mine, theirs in links if mine == core.address and theirs in core.greeted]

    # Broadcasting

    @property
    def is_cut_off(self) -> bool:
        """Whether no super peer can be reached, so that nothing can be broadcast."""
        return self._failover.is_cut_off

    async def _broadcast(self, body: Body, about: About, timeout: float | None) -> MessageId:
        """As at a member. While its super peer is unreachable, it waits until there is another one, or at
        most `timeout` seconds; then it raises `CutOffError`, and nothing was broadcast."""
        if self._failover.is_cut_off:
            try:
                async with asyncio.timeout(self._patience if timeout is None else timeout):
                    await self._until(lambda: not self._failover.is_cut_off or self._state != "open")
            except TimeoutError as error:
                self._check_open()
                raise CutOffError(self._describe_cut_off()) from error
        message = await super()._broadcast(body, about, timeout)
        origin = self._core.last_broadcast.origin
        return MessageId(f"{self.settings.me}~{origin & 0xFFFF_FFFF:08x}", message.seq)

    async def _until_all_know_addresses(self) -> None:
        raise LocalError("a phone broadcasts to all: it knows neither the members nor their keys")

    def _describe_cut_off(self) -> str:
        names = [each.name for each in self.settings.super_peer_list()]
        why = "; ".join(f"{name}: {self._reasons[name]}" for name in names if name in self._reasons)
        text = f"{self.settings.me} is cut off: it reaches none of {', '.join(names)}"
        return f"{text} ({why})" if why else text

    _patience = 10.0
    """Default seconds that `broadcast` waits for a super peer: longer than it takes to turn to another
    one."""

    def _is_full(self) -> bool:
        core = self._core
        own_bytes = core.application.untaken_own_bytes
        return not core.is_started or max(own_bytes, self._retained) > self.settings.limit

    def _lag(self) -> tuple[str, str]:
        who = self.super_peer or self.settings.me
        return who, f"{self._retained:,} bytes are not known to be stable; {who} lags"

    def _behind(self) -> list[str]:
        core = self._core
        if core.phase == Phase.LEAVING or not core.members:
            return [self.super_peer] if core.members else []
        own = [each for each in core.phone.retained if each.number == 0]
        return [self.super_peer or self.settings.me] if own else []

    # Inspection

    def delivered(self) -> dict[str, int]:
        return {self.settings.me: self._core.broadcasts}

    def suspicion_timeouts(self) -> dict[str, float]:
        return {}

    def _is_member(self, name: str) -> bool:
        return name in {each.name for each in self.settings.super_peer_list()}

    # Events

    def _on_tick(self) -> None:
        core = self._core
        if core.phase in (Phase.MEMBER, Phase.LEAVING):
            event = self._failover.check(set(self._connected_addresses()), self._clock.now())
            self._report_cut_off()
            if event is not None:
                self._turn_away(event)
            if self._failover.seeks:
                self._seek(next(self._turns))
            self._retained = core.retained_bytes
        self._speak_of_keys()
        self._connections.tick()
        self._driver.tick()
        self._on_step()

    def _turn_away(self, event: MoveAsked | SuperPeersLost) -> None:
        """Move to another super peer, or give up the places at those that are out of reach."""
        core, me, current = self._core, self.settings.me, self.super_peer
        if isinstance(event, MoveAsked):
            to = core.partner_name(event.link)
            self._log.warning("%s is out of reach, so %s moves to %s", current, me, to)
        else:
            names = [core.greeted[each].name for each in event.addresses if each in core.greeted]
            gone = ", ".join(names)
            self._log.warning("%s is out of reach, and %s gives up its place there", gone, me)
            self._gone = gone if core.hub in event.addresses else ""
        core.step(event)

    def _describe_return(self) -> str:
        me, gone, self._gone = self.settings.me, self._gone, ""
        if gone:
            return f"{me}'s super peer {gone} is gone, and {me} joins again behind another one"
        return f"{me} has no place at its super peer any more, and joins again"

    def _report_cut_off(self) -> None:
        if not self._failover.seeks:
            if self._problems.end("cut off"):
                self._notify("room", self.super_peer, "a super peer can be reached again")
            return
        text = f"{self.super_peer} is out of reach, and no other super peer is reached so far"
        if self._problems.begin("cut off", "unreachable", self.super_peer, text):
            self._notify("cut off", self.super_peer, text)

    def _seek(self, who: Member) -> None:
        """Call a super peer to establish a link."""
        if not self._calling:
            self._calling = who.name
            self._unreached.calling(who.name)
            task = asyncio.create_task(self._call(who))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call(self, who: Member) -> None:
        try:
            await self._connections.seek(who.at or "", who.name, self._on_greeted)
        except (OSError, TimeoutError, AntecedeError) as error:
            name, me, reason = who.name, self.settings.me, describe(error)
            if not isinstance(error, AntecedeError):
                self._unreached.failed(name, who.at or "", reason)
            elif self._attempts.is_news(name, reason):
                text = (
                    error.by(name, me)
                    if isinstance(error, RefusedError)
                    else f"{me} refuses {name}: {reason}"
                )
                self._log.warning("%s", text, extra={"peer": name})
            self._reasons[name] = reason
            self._calling = ""

    def _on_greeted(self, link: int) -> None:
        self._reasons.pop(self._calling, None)
        self._unreached.reached(self._calling)
        self._calling = ""

    async def _stop(self) -> None:
        for task in self._calls:
            task.cancel()
        await super()._stop()
