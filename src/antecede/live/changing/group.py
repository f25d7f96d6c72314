"""A live group whose members come and go, as an application sees it.

    async with join_changing("room", me="dana", contact=["ana@host:7000"], listen=":0", store="dana",
                             snapshot=board.dump, restore=board.load) as group:
        await group.broadcast("hello")
        async for message in group:
            ...

`founders` names the first members, the same at each of them; everyone else names a contact. `snapshot` is
called between two messages, when somebody joins here; `restore` is called with it before the newcomer's first
message.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, cast

from antecede.errors import InputError, StoreError
from antecede.live.changing.connections import MemberConnections
from antecede.live.changing.contact import NONCE_BYTES, Contact
from antecede.live.changing.core import ChangingCore, Labels
from antecede.live.changing.events import (
    AttemptBegun,
    Declined,
    Founded,
    JoinAsked,
    LeaveAsked,
    RemoveAsked,
    Reported,
    Sponsored,
    Started,
)
from antecede.live.changing.membership import MAX_SNAPSHOT
from antecede.live.changing.recovery import restore
from antecede.live.changing.view import Changes, MemberChange, View, ViewMember
from antecede.live.clock import MemberClock
from antecede.live.delivering import Deliveries, MessageIterator
from antecede.live.driver import Driver
from antecede.live.envelope import Body
from antecede.live.events import Opened
from antecede.live.messages import Message, MessageId
from antecede.live.operations.logs import Log
from antecede.live.ready import Ready
from antecede.live.settings import Member, Settings, validate_name
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.store.records import MEMBERS_CHANGE
from antecede.live.transport import links
from antecede.membership.catalog import CHANGING
from antecede.membership.failure_detection import HeartbeatDetector
from antecede.membership.state import Phase, ViewChange
from antecede.protocols.base import LocalError

Snapshot = Callable[[], bytes]
Restore = Callable[[bytes], Awaitable[None] | None]

_TICK_SECONDS = 0.2
_ATTEMPT_SECONDS = 10.0
"""How long a contact may take to admit a newcomer before another is asked."""
_RETRY_SECONDS = 0.3
_KINDS: dict[str, Any] = {"admit": "joined", "leave": "left", "disown": "left", "remove": "removing"}


class ChangingLiveGroup:
    """A live group, seen by one of its members."""

    def __init__(
        self,
        settings: Settings,
        founders: Sequence[str],
        contacts: Sequence[str],
        snapshot: Snapshot | None,
        restore: Restore | None,
    ) -> None:
        if settings.protocol != "mbcp":
            raise InputError(f"protocol: groups that change use mbcp so far, not {settings.protocol}")
        if bool(founders) == bool(contacts):
            raise InputError("founders, contact: name the founders, or whom to ask for admission")
        self.settings = settings
        self._founders = [Member.parse(each) for each in founders]
        others = [each for each in self._founders if each.name != settings.me and each.at]
        self._contacts = [Member.parse(each) for each in contacts] or others
        for name in (settings.me, *(each.name for each in self._founders)):
            validate_name(name)
            if "~" in name:
                raise InputError(f"'{name}' is not a name: ~ separates a name from its incarnation")
        if founders and settings.me not in [each.name for each in self._founders]:
            raise InputError(f"founders: {settings.me} is not among them; name a contact to join the group")
        self._snapshot, self._restore = snapshot, restore
        self._clock = MemberClock()
        self._core = ChangingCore(
            CHANGING[settings.protocol], settings.me, settings.store is not None, settings.own
        )
        self._core.on_idle = self._sponsor
        self._labels = Labels(self._core)
        self._journal: Journal | None = None
        self._driver: Driver
        self._connections: MemberConnections
        self._deliveries: Deliveries | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Something has happened; whoever waits for a condition looks again."""
        self._state = "new"
        self._failure: StoreError | None = None
        self._listeners: set[Changes] = set()
        self._detector = HeartbeatDetector(int(links.HEARTBEAT_SECONDS * 1.5e9))
        self._retained = 0
        self._log = Log(settings.group, settings.me)
        self.counts: Counter[str] = Counter()

    # Joining

    async def _start(self) -> None:
        settings, core = self.settings, self._core
        if settings.store is not None:
            identity = {
                "group": settings.group,
                "member": settings.me,
                "protocol": settings.protocol,
                "members": MEMBERS_CHANGE,
            }
            self._journal = Journal(FileDisk(settings.store), identity, settings.sync)
        try:
            if self._journal is not None:
                restore(core, self._journal)
                self._clock.start_after(core.time)
            self._connections = MemberConnections(
                settings, core, self._clock, self._on_step, self._on_heard, self.counts
            )
            self._driver = Driver(
                cast("Any", core),
                self._journal,
                settings.sync,
                None,
                self._on_advance,
                self._on_failure,
                lambda _: None,
            )
            try:
                await self._open()
            except BaseException:
                await self._close()
                raise
        except BaseException:
            if self._journal is not None:
                self._journal.close()
            raise
        self._state = "open"

    async def _open(self) -> None:
        core = self._core
        # Durable before anybody hears of it: see `lineage.py`.
        core.step(Opened(secrets.token_hex(8), self._clock.now()))
        await self._driver.durable()
        await self._connections.start()
        if self._founders and not core.members:
            founders = [Contact(each.name, b"", each.at or "") for each in self._founders]
            core.step(Founded(founders, self._clock.now()))
            await self._driver.durable()
        self._ticking = asyncio.create_task(self._tick())
        self._ticking.add_done_callback(self._on_tick_end)
        if core.phase == Phase.LEAVING:
            await self._until(lambda: core.phase != Phase.LEAVING)  # it had asked for that before
        if core.phase != Phase.MEMBER:
            await self._join()
        if not core.is_started:
            await self._begin()
        self._deliveries = Deliveries(
            cast("Any", core),
            self._driver,
            cast("Any", self._labels),
            self._clock.now,
            self._check_open,
            self._changed.set,
            self.settings.limit,
        )
        self._on_step()

    async def _join(self) -> None:
        """Ask one contact after the other; the first welcome counts."""
        core, reason = self._core, ""
        if not self._contacts:
            raise InputError(f"contact: {core.name} is no member any more; name whom to ask for admission")
        for contact in itertools.cycle(self._contacts):
            if core.phase == Phase.JOINING:  # before a restart: the answer may be on its way
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ATTEMPT_SECONDS):
                        await self._until(lambda: core.phase == Phase.MEMBER)
                        return
            if not core.members or core.phase != Phase.OUTSIDE:
                nonce = secrets.token_bytes(NONCE_BYTES)
                core.step(
                    AttemptBegun(Contact(core.name, nonce, self._connections.address), self._clock.now())
                )
                await self._driver.durable()
            reason = await self._ask(contact)
            if core.phase == Phase.MEMBER:
                return
            self._log.warning("not admitted by %s: %s", contact.name, reason, extra={"peer": contact.name})
            await asyncio.sleep(_RETRY_SECONDS)

    async def _ask(self, contact: Member) -> str:
        """Ask a contact for admission; why that has not worked, if it has not."""
        seeking = asyncio.create_task(
            self._connections.seek(contact.at or "", contact.name, self._on_contact)
        )
        answer = asyncio.create_task(self._until(lambda: self._core.phase == Phase.MEMBER))
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                await asyncio.wait({seeking, answer}, return_when=asyncio.FIRST_COMPLETED)
                if self._core.phase == Phase.OUTSIDE and seeking.done():
                    return str(seeking.exception() or "it has closed the connection")
                # The request is in the store: if this connection ends, another one brings the answer.
                await answer
        except TimeoutError:
            return "it has not answered in time"
        finally:
            answer.cancel()
            self._connections.adopt(seeking)
        return ""

    def _on_contact(self, link: int) -> None:
        if self._core.phase == Phase.OUTSIDE:
            self._core.step(JoinAsked(link, self._clock.now()))
            self._on_step()

    async def _begin(self) -> None:
        """Give the application the state that it starts with."""
        snapshot = self._core.snapshot
        if snapshot is not None and self._restore is not None:
            result = self._restore(snapshot)
            if inspect.isawaitable(result):
                await result
        self._core.step(Started(self._clock.now()))
        await self._driver.durable()

    # Leaving

    async def leave(self, timeout: float | None = None) -> None:
        """Leave for good. Returns when every member has all that was broadcast here; then nobody waits for
        this member any more."""
        self._check_open()
        core = self._core
        async with asyncio.timeout(timeout):
            await self._until(core.member.may_leave)
            self._state = "leaving"
            core.step(LeaveAsked(self._clock.now()))
            self._on_step()
            await self._driver.durable()
            await self._until(lambda: core.phase == Phase.ENDED)
        await self.aclose()

    async def aclose(self) -> None:
        """Stop. The member stays one: it goes on when it is started again on its store."""
        if self._state in ("new", "closed"):
            return
        self._state = "closed"
        await self._close()
        if self._journal is not None:
            self._journal.close()

    async def _close(self) -> None:
        if self._deliveries is not None:
            self._deliveries.close()
        if self._ticking is not None:
            self._ticking.cancel()
        await self._connections.close()
        await self._driver.close()
        self._changed.set()
        for listener in self._listeners:
            listener.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # What the application does

    async def broadcast(self, body: Body) -> MessageId:
        """Broadcast a message; returns once it cannot be lost any more. Waits while too much is under way."""
        self._check_open()
        await self._until(lambda: self._retained <= self.settings.limit)
        self._check_open()
        message = self._core.broadcast(body, self._clock.now())
        self._retained += len(body) if isinstance(body, bytes | str) else 100
        if self._journal is not None:
            await self._driver.durable()
        else:
            self._on_step()
        return MessageId(self._core.label(message.origin), message.seq)

    def __aiter__(self) -> AsyncIterator[Message]:
        return MessageIterator(cast("Deliveries", self._deliveries))

    async def __anext__(self) -> Message:
        return await cast("Deliveries", self._deliveries).next_alone()

    def ack(self, message: Message) -> None:
        cast("Deliveries", self._deliveries).ack(message)

    async def remove(self, who: str) -> None:
        """Remove a member, by name (all its incarnations) or by label. Others decide with this one where its
        messages end; `changes` tells when that is done."""
        self._check_open()
        core = self._core
        labels = {stream: core.label(stream) for stream in core.member.addresses if stream != core.me}
        found = [stream for stream, label in labels.items() if who in (label, label.partition("~")[0])]
        if not found:
            raise LocalError(f"{who} is not another member of the group")
        for stream in found:
            core.step(RemoveAsked(stream, self._clock.now()))
        self._on_step()
        await self._driver.durable()

    @property
    def me(self) -> str:
        """The label of this member."""
        return self._core.label(self._core.me)

    @property
    def address(self) -> str:
        """Where this member listens."""
        return self._connections.address

    @property
    def view(self) -> View:
        """Who is in the group, as far as this member has delivered."""
        core, connected = self._core, self._connections.connected
        addresses = {core.links[link][1] for link in connected}
        now, clock = time.time(), self._clock.now()
        members = {}
        for stream, address in sorted(core.member.addresses.items()):
            contact = core.contact_of(stream) or Contact(core.label(stream))
            at = greeted.at if (greeted := core.greeted.get(address)) else contact.at
            since = self._detector.suspected.get(stream)
            members[contact.label] = ViewMember(
                contact.label,
                contact.name,
                at,
                address in addresses or stream == core.me,
                None if since is None else now - (clock - since) / 1e9,
            )
        removing = core.member.removals.removed - core.member.ends.keys()
        return View(members, tuple(core.label(stream) for stream in sorted(removing)))

    def changes(self) -> AsyncIterator[MemberChange]:
        """What changes in the group from now on."""
        listener = Changes()
        self._listeners.add(listener)
        return listener

    # What happens

    def _on_step(self) -> None:
        """The core has taken an event."""
        self._sponsor()
        self._tell_changes()
        self._driver.stepped()
        self._changed.set()
        if self._journal is None:
            self._wake()

    def _on_advance(self, ready: Ready) -> None:
        self._changed.set()
        self._wake()

    def _wake(self) -> None:
        self._connections.wake()
        if self._deliveries is not None:
            self._deliveries.wake()

    def _on_heard(self, link: int) -> None:
        stream = self._core.member.stream_at.get(self._core.links[link][1])
        if stream is not None and self._detector.hear(stream, self._clock.now(), is_report=True):
            self._tell("trusted", stream)

    def _sponsor(self) -> None:
        """Admit who has asked, if the application is between two messages."""
        core = self._core
        while self._deliveries is not None and core.may_sponsor:
            address = core.join_requests[0]
            contact = core.greeted.get(address)
            who = contact.label if contact is not None else "somebody"
            try:
                snapshot = None if self._snapshot is None else bytes(self._snapshot())
                if snapshot is not None and len(snapshot) > MAX_SNAPSHOT:
                    raise LocalError(f"the snapshot has {len(snapshot):,} bytes; {MAX_SNAPSHOT:,} at most")
            except Exception as error:
                # Whatever the application does: the group goes on, and the newcomer asks elsewhere.
                self._log.error("%s is not admitted: %s", who, error, extra={"peer": who})
                core.step(Declined(address, self._clock.now()))
                continue
            core.step(Sponsored(address, snapshot, self._clock.now()))
            self._log.info("admitted %s", who, extra={"peer": who})
            self._driver.stepped()

    def _tell_changes(self) -> None:
        invalid, self._core.invalid = self._core.invalid, []
        for text in invalid:
            self._log.warning("a message is not delivered to the application: %s", text)
        changes, self._core.changes = self._core.changes, []
        for change in changes:
            kind = _KINDS.get(change.kind)
            if change.kind == "close" and change.member in self._core.member.removals.removed:
                kind = "removed"
            if kind is not None:
                self._tell(kind, change.member, change)
        if changes:
            others = self._core.member.view - {self._core.me}
            self._detector.watch(others, self._clock.now())
        if self._core.phase == Phase.REMOVED and self._state == "open":
            self._state = "removed"
            self._log.error("%s was removed from the group", self.settings.me)
            if self._deliveries is not None:
                self._deliveries.close()

    def _tell(self, kind: Any, stream: int, change: ViewChange | None = None) -> None:
        label = self._core.label(stream)
        by = self._core.label(change.message.origin) if change is not None and kind != "removed" else ""
        for listener in self._listeners:
            listener.put(MemberChange(kind, label, label.partition("~")[0], by, time.time()))

    async def _tick(self) -> None:
        core = self._core
        self._detector.watch(core.member.view - {core.me} if core.members else [], self._clock.now())
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.now()
            if core.members:
                if core.reports.is_due(core.member, now):
                    core.step(Reported(now))
                self._retained = core.retained_bytes
            for stream in self._detector.check(now):
                self._tell("suspected", stream)
            self._connections.tick()
            self._driver.tick()
            self._on_step()

    def _on_tick_end(self, task: asyncio.Task[None]) -> None:
        """A member that no longer reports its progress would hold up everybody in silence."""
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._driver.fail(f"internal: {error!r}")

    def _on_failure(self, error: StoreError) -> None:
        self._failure = error
        self._log.error("%s", error)
        if self._deliveries is not None:
            self._deliveries.close()
        self._changed.set()

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._state == "removed":
            raise LocalError("this member was removed from the group; join again")
        if self._state != "open":
            raise LocalError(f"the group is {self._state}")
