"""The application's interface to one group of a process that may be in several."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from antecede.live.addressing import Addressing
from antecede.live.changing.attempts import Attempts
from antecede.live.changing.connections import MemberConnections
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.greeting import MemberGreeting
from antecede.live.changing.group import DynamicGroup, Restore
from antecede.live.changing.sponsor import Snapshot
from antecede.live.envelope import Body
from antecede.live.messages import Message, MessageId, ParkedMessage
from antecede.live.overlapping.channels import ChannelWire
from antecede.live.overlapping.deliveries import GroupIterator, GroupMessage, NodeDeliveries
from antecede.live.overlapping.group_core import GroupCore
from antecede.live.overlapping.inspection import GroupInspection
from antecede.live.requests import Requests
from antecede.live.security.identity import Security
from antecede.live.settings import Settings
from antecede.live.transport.admission import PendingConnection
from antecede.live.transport.wires import Wire
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError

if TYPE_CHECKING:
    from antecede.live.overlapping.node import Node


class GroupConnections(MemberConnections):
    """The connections of one group: channels over those of the process."""

    node: Node

    async def start(self) -> None:
        self.address = self.node.trunks.at
        self._calls.may_be_called = bool(self.address)

    async def _dial(self, where: str) -> Wire:
        return await self.node.trunks.open(where, self._settings.group)

    def _check_identity(self, wire: Wire, name: str, greeting: MemberGreeting | None = None) -> None:
        """What the process at the other end has proven is valid in all groups."""
        wire.proof = self.node.check_identity(wire, name)

    def accept_channel(self, channel: ChannelWire) -> None:
        """Another process has opened a channel for this group."""
        pending = self._admission.connected("a process", channel.abort)
        if pending is None:
            channel.abort()
        else:
            self._spawn(self._accept_pending(channel, pending))

    async def _accept_pending(self, channel: ChannelWire, pending: PendingConnection) -> None:
        try:
            await self._accept(channel, pending)
        finally:
            self._admission.ended(pending)  # whatever became of it, others may connect


class NodeGroup(DynamicGroup):
    """Made by `Node.join`. An iteration over it yields its messages at their place among those of the other
    groups."""

    _core: GroupCore
    _deliveries: NodeDeliveries

    def __init__(
        self, node: Node, settings: Settings, snapshot: Snapshot | None, restore: Restore | None
    ) -> None:
        self._node = node
        self._beginning: asyncio.Task[None] | None = None
        self._is_resumed = False
        super().__init__(settings, snapshot, restore, node.clock)
        self._journal, self._driver = node.journal, node.driver
        self._inspection = GroupInspection(self._core)

    def _create_security(self, settings: Settings) -> Security:
        """The process has a `Security` of its own; without keys, each group checks whom it would call without
        encryption."""
        security = self._node.security
        return security if security.is_on else super()._create_security(settings)

    def _use_signatures(self, core: ChangingCore, settings: Settings) -> None:
        """The process does this before it replays its log."""

    def _create_core(self, settings: Settings) -> GroupCore:
        return self._node.core_of(settings.group)

    @property
    def name(self) -> str:
        return self.settings.group

    # Joining

    async def resume(self) -> None:
        """Serve the other members: the store says that this process is a member. Until its program joins the
        group again, it provides no state and admits nobody."""
        self._is_resumed = True
        self._connections = self._create_connections()
        try:
            await self._connect()
        except BaseException:
            await self._stop()
            raise

    def take_up(self, settings: Settings, snapshot: Snapshot | None, restore: Restore | None) -> None:
        """The program joins a group that was resumed."""
        self.settings, self._restore_state = settings, restore
        self._connections.take_up(settings)
        self._sponsor.snapshot = self._encryption.with_offer(snapshot)

    async def _start(self) -> None:
        if self._state != "new":
            raise LocalError("a group is joined once")
        try:
            if not self._is_resumed:
                self._connections = self._create_connections()
                await self._driver.durable()  # makes the process's new life durable
            await self._open()
        except BaseException:
            await self._stop()
            raise
        self._state, self._is_resumed = "open", False

    def _create_connections(self) -> MemberConnections:
        connections = GroupConnections(
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
        connections.node = self._node
        return connections

    async def _connect(self) -> None:
        core = self._core
        self._attempts = Attempts(
            core, self._connections, self._driver, self._clock, self._on_step, self._until, self._log
        )
        await self._connections.start()
        if self.settings.founders and not core.members:
            await self._attempts.found(self.settings.first_members())
        self._begin_ticking()
        self._watch.begin()

    async def _open(self) -> None:
        core = self._core
        if not self._is_resumed:
            await self._connect()
        self._deliveries = self._node.deliveries
        if core.phase == Phase.LEAVING:
            await self._until(lambda: core.phase != Phase.LEAVING)  # it had already asked to leave
        was_removed = core.phase == Phase.REMOVED
        if core.phase != Phase.MEMBER:
            async with self._node.joining:
                await self._attempts.join(self._contacts())
        if not core.is_started:
            self._beginning = asyncio.create_task(self._begin(returns=was_removed))
            self._beginning.add_done_callback(self._on_begin_end)
            if self._node.deliveries.has_begun or core.application.is_idle:
                await self._beginning
        self._on_step()

    async def _begin(self, returns: bool) -> None:
        """The application's initial state follows everything delivered before, in any group."""
        await self._until(lambda: self._core.application.is_idle)
        await self._driver.durable()
        await super()._begin(returns)
        self._on_step()

    def _on_begin_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self._state == "open":
            self._driver.fail(f"the state of {self.name} could not be restored: {error!r}")

    async def _return(self) -> None:
        text = f"{self.me} was removed from {self.name}, and joins it again"
        self._problems.begin("returning", "returning", self.me, text)
        self._notify("returning", self.me, text)
        self._attempts.wants_history = False
        await self._join_again()
        await self._begin(returns=True)
        self._problems.end("returning")
        self._on_step()

    async def _join_again(self) -> None:
        """Wait while another group is being joined, including a join that a restart has interrupted: the
        program resumes that one first."""
        others, asked = self._node.is_joining_besides, False
        while not asked:
            await self._until(lambda: not others(self.name))
            async with self._node.joining:
                if asked := not others(self.name):
                    await self._attempts.join(self._contacts())

    # Closing

    async def aclose(self) -> None:
        """Stop taking part. According to the store the process is still a member, and it resumes when it
        joins again."""
        if self._has_left or (self._state == "new" and not self._is_resumed):
            return
        self._state, self._has_left = "closed", True
        if self._journal is None and self._failure is None:
            self._driver.flush()
        await self._stop()
        self._node.closed(self)
        self._wake_waiters()
        self._observers.end()

    async def _stop(self) -> None:
        self._requests.close()
        for task in (self._returning, self._beginning, self._ticking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        self._sponsor.close()
        await self._connections.close()

    # Messages

    async def broadcast(
        self,
        body: Body,
        timeout: float | None = None,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str = "",
        after: Message | None = None,
    ) -> MessageId:
        """As in any group. Everything delivered to this process in any of its groups precedes the message;
        `after` states explicitly which of these messages is meant, and is checked to be one of them."""
        if after is not None and getattr(after, "group", None) not in self._node.groups:
            raise LocalError("after: not a message that this process was given in one of its groups")
        return await super().broadcast(body, timeout, headers=headers, content_type=content_type)

    def __aiter__(self) -> AsyncIterator[Message]:
        return GroupIterator(self._deliveries, self.name)

    async def __anext__(self) -> Message:
        return await self._deliveries.next(self._deliveries.alone(self.name))

    def parked(self) -> list[ParkedMessage]:
        found = self._deliveries.parked()
        return [each for each in found if cast("GroupMessage", each.message).group == self.name]

    # Called by the node

    @property
    def is_resumed(self) -> bool:
        """Whether it was resumed from the store, and the program has not joined it again."""
        return self._is_resumed

    @property
    def is_reachable(self) -> bool:
        return hasattr(self, "_connections") and not self._has_left

    def accept_channel(self, channel: ChannelWire) -> None:
        cast("GroupConnections", self._connections).accept_channel(channel)

    @property
    def addressing(self) -> Addressing:
        return self._addressing

    def requests(self) -> Requests:
        """As messages refer to them."""
        return self._requests

    def note_delivered(self, message: Message) -> None:
        """A message of this group is delivered to the application."""
        if self._observers.recent is not None and message.deliveries == 1:
            self._observers.delivered(message)
        if self._requests.pending:
            self._requests.take(message)

    def look(self) -> None:
        """Something has happened in the process, perhaps in another group."""
        if self._state in ("open", "draining", "leaving"):
            self._watch.tell_changes()
            self._check_removed()
        self._room.set()

    def wake(self) -> None:
        self._room.set()

    def fail(self, error: Any) -> None:
        self._on_failure(error)

    def advanced(self, ready: Any) -> None:
        self._on_advance(ready)

    def _on_tick(self) -> None:
        if not self._node.deliveries.has_begun and self._node.is_joining_besides(""):
            self._node.deliver_ahead()
        super()._on_tick()
