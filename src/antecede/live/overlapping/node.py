"""A process in several groups.

    async with antecede.connect(me="ana", listen=":7000", store="ana") as node:
        room = await node.join("room", founders=[...])
        ops = await node.join("ops", contact=["bo@bo.example:7000"], snapshot=..., restore=...)
        await ops.broadcast("deploying")
        async for message in node:
            print(message.group, message.origin, message.body)

Iterating over the node yields the messages of all groups in one causal order. Iterating over a group yields
its messages at their place in that order: the iteration waits while the next message is of another group. So
iterate either over the node, or over each of its groups.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from antecede.errors import AntecedeError, InputError, StoreError
from antecede.live.changing.calling import GREETING_SECONDS, dial_afresh
from antecede.live.changing.group import Restore
from antecede.live.changing.sponsor import Snapshot
from antecede.live.clock import MemberClock
from antecede.live.driver import Driver
from antecede.live.events import Opened
from antecede.live.messages import Message
from antecede.live.operations import metrics
from antecede.live.operations.logs import Log
from antecede.live.overlapping.channels import ChannelWire, Trunks
from antecede.live.overlapping.core import NodeCore
from antecede.live.overlapping.deliveries import GroupIterator, NodeDeliveries
from antecede.live.overlapping.group_core import GroupCore
from antecede.live.overlapping.node_group import NodeGroup
from antecede.live.overlapping.recovery import restore
from antecede.live.reading import require_message
from antecede.live.ready import Ready
from antecede.live.security.identity import Identity, Proof, Security
from antecede.live.security.signing import StreamKeyring
from antecede.live.setting_names import explain, parse_sizes, refuse_unknown
from antecede.live.settings import Member, Settings, validate_name
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.store.records import MEMBERS_CHANGE
from antecede.live.transport.admission import Admission, PendingConnection, capacity_for
from antecede.live.transport.listener import Listener
from antecede.live.transport.wires import TcpWire, Wire
from antecede.live.versions import CHANGING_WIRE
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError, RemoteError

_EXPECTED = 256
_HOW = "write `async with antecede.connect(...) as node` or `node = await antecede.connect(...)`"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a process that is in several groups; docs/live.md describes each of them."""

    me: str
    listen: str | None = None
    advertise: str | None = None
    store: str | None = None
    sync: bool = True
    own: bool = True
    limit: int = 32 * 1024 * 1024
    """The limit of each group."""
    metrics: str | None = None
    remove_after: str | None = None
    heartbeat: str | None = None
    suspect_after: str | None = None
    forget_after: str = "7d"
    keys: str | None = None
    secret: str | None = None
    sign: bool = True
    network: str = "room"
    """The name that keys are made for: as `--group` of `antecede keys`. They are valid in all groups of
    processes whose keys are for the same network."""
    insecure: bool = False


def connect(**options: Any) -> Connecting:
    """A process that joins groups which may overlap: `async with connect(me=..., ...) as node`, or `node =
    await connect(...)`. The keywords are those of `NodeSettings`."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    refuse_unknown(options, NodeSettings.__struct_fields__, "connect: ")
    parse_sizes(options)
    try:
        settings = msgspec.convert(options, NodeSettings)
    except msgspec.ValidationError as error:
        raise explain(error, options) from None
    return Connecting(Node(settings))


class Connecting:
    """A process that is not connected yet."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __await__(self) -> Generator[Any, None, Node]:
        return self._node._start().__await__()

    if not TYPE_CHECKING:  # a type checker says it by itself

        def __getattr__(self, name):
            raise AttributeError(f"{name}: the process is not connected yet; {_HOW}")

        def __enter__(self):
            raise LocalError(f"`with` does not connect; {_HOW}")

        def __exit__(self, *_): ...

    async def __aenter__(self) -> Node:
        return await self._node._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._node.aclose()


class Node:
    """A process and its groups."""

    deliveries: NodeDeliveries
    driver: Driver

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        validate_name(settings.me)
        self.security = Security(self._settings_of(settings.network, [settings.me]))
        self.clock = MemberClock()
        self.journal: Journal | None = None
        self.joining = asyncio.Lock()
        """A process joins one group at a time."""
        self._core = NodeCore(settings.me, settings.store is not None, settings.own)
        if self.security.is_on and settings.sign:
            self._core.use_signatures = self._use_signatures
        self._groups: dict[str, NodeGroup] = {}
        self._log = Log("", settings.me)
        self._counts: Counter[str] = Counter()
        self._admission = Admission(capacity_for(_EXPECTED), [], self._counts)
        self._listener: Listener | None = None
        self._metrics: Listener | None = None
        self._life = secrets.token_hex(8)
        self._failure: StoreError | None = None
        self._state = "new"
        self.trunks = Trunks(
            settings.me, self._dial, self.check_identity, self._accept_channel, self._on_trunk_end
        )

    @property
    def me(self) -> str:
        return self.settings.me

    @property
    def address(self) -> str | None:
        """The address at which the others reach this process."""
        return self.trunks.at or None

    @property
    def groups(self) -> Mapping[str, NodeGroup]:
        """The groups that it has joined, by name."""
        return MappingProxyType({name: group for name, group in self._groups.items() if not group.is_resumed})

    @property
    def connections(self) -> int:
        """The number of connections to other processes."""
        return self.trunks.count

    # Starting and closing

    async def _start(self) -> Node:
        if self._state != "new":
            raise LocalError("a process connects once")
        settings, core = self.settings, self._core
        if settings.store is not None:
            identity = {
                "group": "",
                "member": settings.me,
                "protocol": ChangingMultigroup.name,
                "members": MEMBERS_CHANGE,
            }
            self.journal = Journal(FileDisk(settings.store), identity, settings.sync)
        try:
            if self.journal is not None:
                core.files = self.journal.disk
                restore(core, self.journal)
                self.clock.start_after(core.time)
            self.driver = Driver(
                core,  # type: ignore[arg-type]
                self.journal,
                settings.sync,
                None,
                self._on_advance,
                self._on_failure,
                lambda _: None,
            )
            self.deliveries = NodeDeliveries(
                core,
                self.driver,
                self._groups,
                self._names,
                self.clock.now,
                self._check_open,
                self._wake,
                settings.limit,
            )
            self._state = "open"
            try:
                for each in core.groups.values():
                    self._begin_life(each)
                await self.driver.durable()
                await self._listen()
                await self._resume()
                if settings.metrics is not None:
                    self._metrics = await metrics.listen(settings.metrics, self._counts, self._answer)
            except BaseException:
                for group in list(self._groups.values()):
                    await group.aclose()
                await self._stop()
                raise
        except BaseException:
            self._state = "closed"
            if self.journal is not None:
                self.journal.close()
            raise
        return self

    async def _listen(self) -> None:
        if self.settings.listen is None:
            return
        self._listener = Listener(self._admission, self._accept)
        await self._listener.start("listen", self.settings.listen)
        self.trunks.at = self.settings.advertise or self._listener.address

    async def _resume(self) -> None:
        """Resume the groups that the store lists. Otherwise `join` of one might wait for messages of another
        that the program joins later, and other members for the end of a stream that the process was
        leaving."""
        for name, core in self._core.groups.items():
            if core.phase == Phase.LEAVING or (core.phase == Phase.MEMBER and core.is_started):
                group = self._groups[name] = NodeGroup(self, self._settings_of(name, []), None, None)
                await group.resume()

    def _begin_life(self, group: GroupCore) -> None:
        group.step(Opened(self._life, self.clock.now(), max(CHANGING_WIRE)))

    async def aclose(self) -> None:
        """Stop. Accepted messages are in the store, and the process continues when it is started on it
        again."""
        if self._state != "open":
            return
        self._state = "closed"
        for group in list(self._groups.values()):
            await group.aclose()
        try:
            await self._stop()
        finally:
            if self.journal is not None:
                self.journal.close()

    def _answer(self, line: str, *_: object) -> metrics.Answer:
        """Answer an operator's HTTP request."""
        groups = [group for group in self._groups.values() if group.state not in ("new", "closed")]
        return metrics.answer_for_groups(self._state, groups, line)

    async def _stop(self) -> None:
        self.deliveries.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._listener is not None:
            self._listener.close()
        self._admission.close_all()
        await self.trunks.close()
        await self.driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Groups

    async def join(
        self,
        group: str,
        *,
        founders: Sequence[str | Member] = (),
        contact: str | Sequence[str | Member] = (),
        snapshot: Snapshot | None = None,
        restore: Restore | None = None,
    ) -> NodeGroup:
        """Join a group, or resume it if the store says that this process is a member.

        `founders`, `contact`, `snapshot` and `restore` are as with `antecede.join`. A newcomer's initial
        state is restored after the preceding deliveries in other groups. So `join` waits for that if the
        application iterates already; otherwise the state is restored when it does. A restarted process
        resumes the groups of its store at once, so they may be joined in any order.
        """
        self._check_open()
        joined = self._groups.get(group)
        if joined is not None and not joined.is_resumed:
            raise LocalError(f"{self.me} is in group {group}")
        settings = self._settings_of(group, list(founders), contact)
        if not settings.is_changing and group not in self._core.groups:
            raise InputError(f"{group}: name its founders, or a contact in it")
        if joined is None:
            joined = self._groups[group] = NodeGroup(self, settings, snapshot, restore)
        else:
            self._groups[group] = self._groups.pop(group)  # in the order of joining
            joined.take_up(settings, snapshot, restore)
        try:
            await joined._start()
        except BaseException:
            self._groups.pop(group, None)
            raise
        return joined

    def _settings_of(
        self, group: str, founders: list[str | Member], contact: str | Sequence[str | Member] = ()
    ) -> Settings:
        options = msgspec.structs.asdict(self.settings)
        del options["network"], options["metrics"]  # these belong to the process
        contacts = contact if isinstance(contact, str) else list(contact)
        return Settings.create(
            group=group, protocol=ChangingMultigroup.name, founders=founders, contact=contacts, **options
        )

    def core_of(self, group: str) -> GroupCore:
        known = self._core.groups.get(group)
        if known is not None:
            return known
        created = self._core.group(group)
        self._begin_life(created)
        return created

    def closed(self, group: NodeGroup) -> None:
        self._groups.pop(group.name, None)

    def is_joining_besides(self, group: str) -> bool:
        """Whether the process has asked for admission to another group than this one."""
        return any(core.is_joining for name, core in self._core.groups.items() if name != group)

    def deliver_ahead(self) -> None:
        """The state that a process joins with may depend on deliveries in other groups that the application
        has not requested yet."""
        now = self.clock.now()
        while self._core.may_poll() and self._core.poll(now):
            pass
        self.driver.stepped()

    # Messages

    def __aiter__(self) -> AsyncIterator[Message]:
        return GroupIterator(self.deliveries, None)

    async def __anext__(self) -> Message:
        return await self.deliveries.next(self.deliveries.alone(None))

    def ack(self, message: Message) -> None:
        """As `Group.ack`."""
        self.deliveries.ack(require_message("ack", message))

    def nack(self, message: Message, delay: float = 0.0) -> None:
        """As `Group.nack`."""
        self.deliveries.nack(require_message("nack", message), delay)

    def _names(self, group: str) -> Mapping[int, str]:
        return self._core.groups[group].labels

    # Connections

    async def _dial(self, where: str) -> Wire:
        wire = await dial_afresh(where, self.security.client, GREETING_SECONDS)
        if not isinstance(wire, TcpWire):
            raise ConnectionRefusedError(f"{where}: processes in several groups are called by TCP")
        return wire

    async def _accept(self, connected: socket.socket, pending: PendingConnection) -> None:
        wire = await TcpWire.accept(connected)
        pending.close = wire.abort
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                if self.security.server is not None:
                    await wire.start_tls(self.security.server)
                trunk = await self.trunks.accept(wire)
            self._admission.authenticated(pending)
            await self.trunks.serve(trunk)
        except AntecedeError as error:
            self._log.warning("a connection is refused: %s", error)
        finally:
            wire.abort()

    def check_identity(self, wire: Wire, name: str) -> Proof | None:
        """The proof that a process with this name is at the other end; a `RemoteError` if there is none."""
        if not self.security.is_on:
            return None
        proof = self.security.verify_certificate(wire.info("peercert"))
        if proof.identity != Identity(self.settings.network, name):
            raise RemoteError(
                f"it claims to be {name} of {self.settings.network} and is {proof.identity.name} of "
                f"{proof.identity.group}"
            )
        return proof

    def _use_signatures(self, core: GroupCore) -> None:
        name_of, partner_name = core.sealing.name_of, core.partner_name
        core.use_signatures(StreamKeyring(self.security, core.group, self.me, name_of, partner_name))

    def _accept_channel(self, channel: ChannelWire, group: str) -> None:
        joined = self._groups.get(group)
        if joined is None or not joined.is_reachable:
            channel.abort()  # the side that opened it retries
        else:
            joined.accept_channel(channel)

    def _on_trunk_end(self, name: str, error: Exception) -> None:
        self._log.warning("the connection to %s has ended: %s", name, error, extra={"peer": name})

    # Called by the driver

    def _on_advance(self, ready: Ready) -> None:
        for group in list(self._groups.values()):
            if group.is_reachable:
                group.advanced(ready)
                group.look()
        self.deliveries.wake()

    def _on_failure(self, error: StoreError) -> None:
        self._failure = error
        for group in list(self._groups.values()):
            group.fail(error)
        self.deliveries.close()

    def _wake(self) -> None:
        """The application has received all available messages, or one of its own."""
        for group in self._groups.values():
            group.wake()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._state != "open":
            raise LocalError("the process is not connected any more")
