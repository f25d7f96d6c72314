"""A live group with dynamic membership.

    async with antecede.join("room", me="dana", contact=["ana@host:7000"], listen=":0", store="dana",
                             snapshot=board.dump, restore=board.load) as group:
        await group.broadcast("hello")
        async for message in group:
            ...

`founders` names the first members, the same at each of them; every other process names a contact. `snapshot`
is called between two messages, when a newcomer joins through this member; `restore` is called with the result
before the newcomer's first message. A member that was removed although it was up rejoins by itself: `restore`
is called between two messages, and then the member has again everything that it had accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

from antecede.errors import InputError
from antecede.live.changing.attempts import Attempts
from antecede.live.changing.away import AwayMembers
from antecede.live.changing.connections import MemberConnections
from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.encryption import Encryption, received_snapshot
from antecede.live.changing.events import (
    Expelled,
    LeaveAsked,
    RemoveAsked,
    StabilityTold,
    Started,
)
from antecede.live.changing.history import Retention
from antecede.live.changing.inspection import ChangingInspection
from antecede.live.changing.protocols import live_kind
from antecede.live.changing.recovery import restore
from antecede.live.changing.sponsor import Snapshot, Sponsor, remove_unneeded
from antecede.live.changing.super_peer import SuperPeerCore
from antecede.live.changing.watch import Watch
from antecede.live.clock import Clock
from antecede.live.envelope import Body
from antecede.live.group import Group, State
from antecede.live.headers import About
from antecede.live.messages import MessageId
from antecede.live.operations.trace import NodeTrace
from antecede.live.security.identity import Security
from antecede.live.security.signing import StreamKeyring
from antecede.live.settings import Member, Settings
from antecede.live.store.journal import Journal
from antecede.live.store.records import MEMBERS_CHANGE
from antecede.live.versions import ADDRESSED_SINCE, CHANGING_WIRE
from antecede.live.view import View, ViewMember
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError
from antecede.units import parse_duration

Restore = Callable[[bytes], Awaitable[None] | None] | Callable[[Iterator[bytes]], Awaitable[None] | None]
"""Takes what `snapshot` returned: bytes, or an iterator of bytes."""

_HANDLER_SECONDS = 5.0
"""How long a broadcast waits for the handler of a message to finish, if this member must rejoin."""
_TICKS_BETWEEN = 5
_REFUSED_SECONDS = 60.0
"""How long after the last refusal the problem is considered over."""
_REFUSED_AND_BACK_SECONDS = 3.0
"""The same time for a member that is connected."""
_FAREWELL_SECONDS = 3.0
"""How long a member that may leave waits for members that have not acknowledged its last packets."""


class DynamicGroup(Group):
    """A member of a group with dynamic membership."""

    _core: ChangingCore
    _inspection: ChangingInspection
    _connections: MemberConnections
    _speaks = max(CHANGING_WIRE)

    def __init__(
        self,
        settings: Settings,
        snapshot: Snapshot | None = None,
        restore: Restore | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings.validate_changing()
        self._security = self._create_security(settings)
        core = self._create_core(settings)
        if self._security.is_on and settings.sign and not core.is_phone_core:
            self._use_signatures(core, settings)
        self._encryption = Encryption(core, settings, self._security)
        labels = core.labels
        super().__init__(settings, core, labels, clock)
        self._restore_state = restore
        self._forget_after = parse_duration(settings.forget_after)
        if core.secrecy is not None:
            self._addressing.decrypt = core.secrecy.open
        self._sponsor = Sponsor(
            core,
            self._encryption.with_offer(snapshot),
            self._clock,
            self._log,
            lambda address, reason: self._connections.decline(address, reason),
            self._on_stored,
        )
        self._retention = None if settings.retain is None else Retention.parse(settings.retain)
        core.retains = self._retention is not None
        self._watch = Watch(core, labels, self._suspicions, self._tell, self._log)
        self._away = AwayMembers(
            settings, core, labels, self._suspicions, self._problems, self._tell, self._remove
        )
        core.on_idle = self._admit
        self._attempts: Attempts
        self._returning: asyncio.Task[None] | None = None
        self._retained = self._ticks = 0
        self._refused_at: dict[str, float] = {}
        """By name: the last time that this member refused it, or was refused by it."""
        self._inspection = ChangingInspection(core)

    def _create_security(self, settings: Settings) -> Security:
        return Security(settings)

    def _use_signatures(self, core: ChangingCore, settings: Settings) -> None:
        group, me = settings.group, settings.me
        core.use_signatures(StreamKeyring(self._security, group, me, core.sealing.name_of, core.partner_name))

    def _create_core(self, settings: Settings) -> ChangingCore:
        durable, own = settings.store is not None, settings.own
        kind = live_kind(settings.protocol)
        if issubclass(kind, ChangingFreescale):
            if settings.trace is not None:
                raise InputError(
                    f"trace: {kind.name} leaves none so far in a group whose members come and go"
                )
            return SuperPeerCore(kind, settings.me, durable, own)
        return ChangingCore(kind, settings.me, durable, own, settings.trace is not None)

    # Joining

    def _identity(self) -> dict[str, Any]:
        return {
            "group": self.settings.group,
            "member": self.settings.me,
            "protocol": self.settings.protocol,
            "members": MEMBERS_CHANGE,
            "encryption": "end to end" if self.settings.encrypt else "none",
        }

    def _restore(self, journal: Journal) -> None:
        self._core.files = journal.disk
        restore(self._core, journal)

    def _open_trace(self) -> NodeTrace | None:
        settings, core = self.settings, self._core
        if settings.trace is None:
            return None
        run, protocol = settings.group, settings.protocol
        store = self._journal.store if self._journal is not None else secrets.token_hex(8)
        return NodeTrace(
            settings.trace, run, run, protocol, core.trace_rows.names, settings.me, core.trace, store[:8]
        )

    def _create_connections(self) -> MemberConnections:
        return MemberConnections(
            self.settings,
            self._core,
            self._clock,
            self._on_step,
            self._watch.hear,
            self._notify,
            self.counts,
            self._suspicions,
            self._security,
        )

    async def _open(self) -> None:
        core = self._core
        self._attempts = Attempts(
            core, self._connections, self._driver, self._clock, self._on_step, self._until, self._log
        )
        await self._connections.start()
        await self._serve_operators()
        if self.settings.founders and not core.members:
            await self._attempts.found(self.settings.first_members())
        self._begin_ticking()
        self._watch.begin()
        if core.phase == Phase.LEAVING:
            await self._until(lambda: core.phase != Phase.LEAVING)  # it had already asked to leave
        # A former member has a state already, and gets a new one.
        is_new = not core.application.delivered and not core.broadcasts
        if core.phase != Phase.MEMBER:
            self._attempts.wants_history = self.settings.history is not None and is_new
            await self._attempts.join(self._contacts())
        if not core.is_started:
            await self._begin(returns=not is_new)
        self._speak_of_keys()
        self._deliveries = self._create_deliveries()
        self._on_step()

    def _contacts(self) -> list[Member]:
        """The members to ask for admission. A former member asks those in its last view first, preferably
        those that it is connected to: the settings may name members that left long ago."""
        core, connected = self._core, {self._core.links[link][1] for link in self._connections.connected}
        view, others = core.known_members()
        view.sort(key=lambda each: each.address not in connected)
        before, gone = ([Member(each.name, each.at) for each in some] for some in (view, others))
        found = [*before, *self.settings.contacts(), *self.settings.first_members(), *gone]
        return [each for each in dict.fromkeys(found) if each.at and each.name != self.settings.me]

    async def _begin(self, returns: bool) -> None:
        """Give the application its initial state. If it `returns` it has one, which lacks what others have
        delivered meanwhile."""
        snapshot = self._encryption.take_offer(received_snapshot(self._core), self._clock.now())
        if snapshot is not None and self._restore_state is not None:
            result = cast("Callable[[Any], Awaitable[None] | None]", self._restore_state)(snapshot)
            if inspect.isawaitable(result):
                await result
        elif returns and not self.settings.relay:
            self._report_gap(snapshot is not None)
        self._core.step(Started(self._clock.now()))
        await self._driver.durable()

    def _report_gap(self, is_given: bool) -> None:
        """This process has joined again, and its application gets no state that has what it missed."""
        me, contact = self.settings.me, self._attempts.contact or "another member"
        begins = f"{me} starts again from {contact}'s state"
        remedy = "pass `restore` to receive them as state"
        if not is_given:
            begins = f"{me} starts again, and {contact} has no state to give"
            remedy = "only a member with `snapshot` that can read messages gives them as state"
        text = f"{begins}: messages that others delivered meanwhile are not delivered here; {remedy}"
        self._log.warning("%s", text, extra={"peer": contact})
        self._notify("gap", me, text)

    # Returning

    def _describe_return(self) -> str:
        """Why this process joins again."""
        return f"{self.me} was removed from the group, and joins again"

    async def _return(self) -> None:
        """This member was removed although it is up: join again, as another incarnation."""
        text = self._describe_return()
        self._problems.begin("returning", "returning", self.me, text)
        self._notify("returning", self.me, text)
        # The message in flight finishes first, so that `ack` and similar calls still refer to it.
        await self._until(lambda: self._deliveries.holder is None)
        self._attempts.wants_history = False
        await self._attempts.join(self._contacts(), gives_up=False)
        await self._begin(returns=True)
        self._deliveries.belong_to(self._core.me)
        self._problems.end("returning")
        self._on_step()

    def _on_return_end(self, task: asyncio.Task[None]) -> None:
        self._returning = None
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._driver.fail(f"{self.settings.me} cannot join the group again: {error}")

    # Leaving

    async def leave(self, timeout: float | None = None) -> None:
        if self._state != "leaving":
            self._check_open()
        core = self._core
        try:
            async with asyncio.timeout(timeout):
                if core.phase != Phase.LEAVING:
                    await self._until(lambda: core.may_leave(self._clock.now()))
                    self._state = "leaving"
                    core.step(LeaveAsked(self._clock.now()))
                    self._on_step()
                    await self._driver.durable()
                await self._until(lambda: core.phase != Phase.LEAVING)
        except TimeoutError as error:
            raise TimeoutError(self._why_not_gone()) from error
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                # Some members may have its last message from others, and still wait for its own packet.
                await self._until(lambda: not core.has_unacked)
        await self.aclose()

    def _why_not_gone(self) -> str:
        if self._core.phase == Phase.LEAVING:
            return f"{', '.join(self._behind())} may lack what was broadcast here"
        removing = ", ".join(self.view.removing)
        why = f"the removal of {removing} is not complete" if removing else "its phones have not moved away"
        return f"{self.me} has not left: {why}"

    async def _stop(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
        self._sponsor.close()
        await super()._stop()

    def _behind(self) -> list[str]:
        core = self._core
        if core.phase == Phase.LEAVING:
            return sorted(self._names[stream] for stream in core.member.awaiting)
        if core.phase != Phase.MEMBER:
            return [] if not core.members else [self.me]
        own = core.member.unstable.get(core.me)
        if not own:
            return []
        last, progress = max(own), core.member.progress
        others = [each for each in core.member.addresses if each != core.me]
        behind = [self._names[each] for each in others if not progress.has_delivered(each, core.me, last)]
        # They are known to have it, or have left: the next report makes it stable.
        return sorted(behind) or ([self.me] if others else [])

    # Membership

    @property
    def me(self) -> str:
        return self._core.identity.label if self._core.members else self.settings.me

    @property
    def members(self) -> tuple[str, ...]:
        if not self._core.members:
            return (self.settings.me,)
        return tuple(sorted(self._names[stream] for stream in self._core.member.addresses))

    @property
    def partners(self) -> tuple[str, ...]:
        return tuple(each for each in self.members if each != self.me)

    @property
    def connected(self) -> tuple[str, ...]:
        core = self._core
        addresses = {core.links[link][1] for link in self._connections.connected}
        if not core.members:
            return ()
        found = [stream for stream, address in core.member.addresses.items() if address in addresses]
        return tuple(sorted(self._names[stream] for stream in found))

    @property
    def present(self) -> frozenset[str]:
        return self._connections.present

    @property
    def web_address(self) -> str | None:
        return self._connections.web_address

    @property
    def view(self) -> View:
        core, connected = self._core, {*self.connected, self.me}
        if not core.members:
            return View({})
        members = {}
        for stream, address in sorted(core.member.addresses.items()):
            label = self._names[stream]
            contact = core.contact_of(stream) or Contact(label)
            at = greeted.at if (greeted := core.greeted.get(address)) else contact.at
            at = self.address or "" if stream == core.me else at
            since = core.since.get(stream)
            members[label] = ViewMember(
                label,
                contact.name,
                at,
                label in connected,
                self._suspicions.since(stream),
                None if since is None else since / 1e9,
            )
        removing = core.member.removals.removed - core.member.ends.keys()
        gone = tuple(self._names[stream] for stream in sorted(removing))
        return View(members, gone, dict(core.counts_before))

    async def remove(self, who: str) -> None:
        self._check_open()
        await self._until(lambda: self._core.phase == Phase.MEMBER)
        core = self._core
        labels = {stream: self._names[stream] for stream in core.member.addresses if stream != core.me}
        found = [stream for stream, label in labels.items() if who in (label, label.partition("~")[0])]
        if not found and who in (self.me, self.settings.me):
            raise LocalError(f"{who} is this member itself; `leave` ends its membership")
        if not found:
            raise LocalError(f"{who} is not another member of the group")
        self._away.check_removable(who, found)
        for stream in found:
            self._remove(stream)
        await self._driver.durable()

    def _remove(self, stream: int) -> None:
        self._core.step(RemoveAsked(stream, self._clock.now()))
        self._on_step()

    def _remove_former(self) -> None:
        """Remove incarnations of this member whose store is lost: no process can resume them."""
        core = self._core
        for stream, address in list(core.member.addresses.items()):
            contact = core.contact_of(stream)
            is_former = contact is not None and contact.name == core.name and address not in core.members
            if is_former and stream != core.me and not self._connections.is_connected(address):
                self._log.warning("%s is removed: this member has lost its store", self._names[stream])
                self._remove(stream)

    # Broadcasting

    async def _broadcast(self, body: Body, about: About, timeout: float | None) -> MessageId:
        if self._returning is not None:
            async with asyncio.timeout(timeout):
                await self._until_returned()
        await self._encryption.wait(self._clock.now, self._until_changed, timeout)
        message = await super()._broadcast(body, about, timeout)
        self._retained += len(body) if isinstance(body, bytes | str) else 100  # an estimate
        return message

    async def _until_all_know_addresses(self) -> None:
        await self._until(
            lambda: self._core.phase == Phase.MEMBER and self._core.member.version >= ADDRESSED_SINCE
        )

    async def _until_returned(self) -> None:
        """Wait while this member rejoins. That waits for the message in flight, whose handler may be the
        caller."""
        while self._returning is not None:
            try:
                async with asyncio.timeout(_HANDLER_SECONDS):
                    await self._until(lambda: self._returning is None or self._deliveries.holder is None)
            except TimeoutError as error:
                raise LocalError(
                    f"{self.me} joins the group again when the message in flight is acknowledged; "
                    "nothing was broadcast"
                ) from error
            if self._returning is not None:
                await self._until(lambda: self._returning is None)

    def _is_full(self) -> bool:
        core = self._core
        return (
            not core.is_started
            or core.brings_back
            or (core.takes_snapshot and not core.delivers_own)
            or core.application.untaken_own_bytes > self.settings.limit
            or self._retained > self._away.limit
        )

    def _lag(self) -> tuple[str, str]:
        if not self._core.is_started:
            return self.me, f"{self.me} joins the group again"
        if self._core.brings_back:
            return self.me, f"{self.me} has returned, and what it had accepted before goes first"
        behind = self._lagging()
        who = ", ".join(behind) or self.me
        return who, f"{self._retained:,} bytes are not stable; {who} lags"

    def _lagging(self) -> list[str]:
        member = self._core.member
        lasts = {origin: max(entries) for origin, entries in member.unstable.items() if entries}
        found = [
            self._names[each]
            for each in member.addresses
            if each != member.stream
            and any(not member.progress.has_delivered(each, origin, seq) for origin, seq in lasts.items())
        ]
        return sorted(found)

    # Inspection

    @property
    def state(self) -> State:
        return "returning" if self._returning is not None and self._state == "open" else self._state

    def delivered(self) -> dict[str, int]:
        counts = self._inspection.delivered()
        return {self._names[stream]: count for stream, count in counts.items()} or {self.me: 0}

    @property
    def unstable_bytes(self) -> int:
        return self._core.retained_bytes if self._core.members else 0

    def suspicion_timeouts(self) -> dict[str, float]:
        core = self._core
        others = core.member.addresses.keys() - {core.me} if core.members else set()
        return {self._names[stream]: self._suspicions.timeout(stream) for stream in sorted(others)}

    def _is_member(self, name: str) -> bool:
        return name in self.view

    def _notify(self, kind: Any, member: str, text: str) -> None:
        if kind == "refused":
            self._refused_at[member] = time.monotonic()
        super()._notify(kind, member, text)

    def _end_refusal(self, member: str) -> None:
        """Keep the refusal for now: a member that is refused on each call may just have been called."""

    def _forget_refusals(self) -> None:
        """Forget old refusals. A refused process retries, unless it is down or no longer a member."""
        now, view = time.monotonic(), self.view
        connected = {member.name for member in view if member.connected}
        for name, at in list(self._refused_at.items()):
            seconds = _REFUSED_AND_BACK_SECONDS if name in connected else _REFUSED_SECONDS
            if now - at > seconds or name not in view:
                del self._refused_at[name]
                self._problems.end(("refused", name))

    # Phones

    @property
    def phones(self) -> dict[str, bool]:
        """The phones behind this member by name, and whether each is connected."""
        core = self._core
        if not isinstance(core, SuperPeerCore):
            return {}
        connected = {core.links[link][1] for link in self._connections.connected}
        return {name: address in connected for address, name in sorted(core.phones.items())}

    async def expel(self, phone: str) -> None:
        """Retire the slot of a phone that is behind this member, by name. If the phone is still up, it
        rejoins with a snapshot and the messages that it had accepted, unless it is revoked."""
        self._check_open()
        core = self._core
        found = isinstance(core, SuperPeerCore) and [
            address for address, name in core.phones.items() if name == phone
        ]
        if not found:
            raise LocalError(f"{phone} is not a phone behind {self.settings.me}")
        for address in found:
            core.step(Expelled(address, self._clock.now()))
        self._on_step()
        await self._driver.durable()

    def _look_after_phones(self, core: SuperPeerCore) -> None:
        now = self._clock.now()
        if core.tells_stable(now):
            core.step(StabilityTold(now))
        revoked = [address for address, name in core.phones.items() if self._connections.is_revoked(name)]
        for address in {*core.overdue_phones(), *revoked}:
            self._log.warning("%s is expelled", core.phones[address], extra={"peer": core.phones[address]})
            core.step(Expelled(address, now))

    # Events

    async def _until_changed(self) -> None:
        self._driver.stepped()
        self._check_failed()
        self._room.clear()
        await self._room.wait()

    def _speak_of_keys(self) -> None:
        if self._encryption.is_on and self._state in ("new", "open", "draining"):
            if self._encryption.speak(self._clock.now):
                self._driver.stepped()
            self._encryption.report(self._problems, self._notify)

    def _on_step(self) -> None:
        self._admit()
        self._watch.tell_changes()
        self._check_removed()
        super()._on_step()

    def _admit(self) -> None:
        if self._has_deliveries and self._core.may_sponsor:
            self._sponsor.admit()
            self._driver.stepped()

    def _on_stored(self) -> None:
        """A snapshot was written, or has failed: deliveries resume, and newcomers can fetch it."""
        self._core.touched.update(self._core.received)
        self._on_step()

    def _check_removed(self) -> None:
        is_removed = self._core.phase == Phase.REMOVED and self._state in ("open", "draining")
        if is_removed and self._has_deliveries and self._returning is None:
            if not self._core.is_phone_core:  # a phone that has lost its super peer was not removed
                self._log.error("%s was removed from the group", self.me)
            self._returning = asyncio.create_task(self._return())
            self._returning.add_done_callback(self._on_return_end)

    def _deliver_ahead(self, now: int) -> None:
        """While messages are brought back, `broadcast` waits, perhaps within the handling of a message. It
        waits for deliveries, so the core continues to deliver; the application receives them when it asks."""
        while self._core.brings_back and self._core.poll(now):
            pass

    def _looks_around(self) -> bool:
        """True every few ticks, for checks that are slow and not urgent."""
        self._ticks = (self._ticks + 1) % _TICKS_BETWEEN
        return not self._ticks

    def _waits_for_reports(self) -> bool:
        """Whether the application waits until others are known to have delivered a message."""
        return self._state == "draining" or self._retained > self._away.limit // 2

    def _report_liars(self) -> None:
        """Report members that have signed two messages under one id."""
        liars = self._core.sealing.liars
        for key in self._problems.keys("forked") - {("forked", stream) for stream in liars}:
            self._problems.end(key)  # it was removed and forgotten
        for stream, proof in liars.items():
            name = self._names[stream]
            text = (
                f"{name} has signed different messages under the same ids, from {name}:{proof[-1].first} on: "
                "two copies of its store are in use, or it lies; its messages are refused, so remove it"
            )
            if self._problems.begin(("forked", stream), "forked", name, text):
                self._notify("forked", name, text)

    def _on_tick(self) -> None:
        core, now = self._core, self._clock.now()
        self._speak_of_keys()
        if core.members:
            core.reports.wants = self._waits_for_reports()
            if (report := core.reports.due(core.member, now)) is not None:
                core.step(report)
            self._retained = core.retained_bytes
            core.tidy(now, self._forget_after)
            self._watch.check()
            core.route_around(self._suspicions.suspected, now)
            self._report_liars()
            self._sponsor.report(self._problems, self._notify, self.me)
            self._inspection.note_held()
            if isinstance(core, SuperPeerCore) and core.phase == Phase.MEMBER:
                self._look_after_phones(core)
            self._sponsor.decline(self._connections.states.overdue(), "it does not fetch its state in time")
            remove_unneeded(core, self._retention, now)
            if core.is_started:
                self._deliver_ahead(now)
                if self._looks_around():
                    self._remove_former()
                    if self._refused_at:
                        self._forget_refusals()
                self._away.check(self._retained)
        self._connections.tick()
        self._driver.tick()
        self._on_step()
