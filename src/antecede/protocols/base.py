"""The one interface of every protocol, and the values that cross it.

A protocol is a pure state machine. It never touches a clock, a socket, a file or a random number: time comes
in as `now` (integer nanoseconds), and the required actions come out as `Effects`. Peers are ranks, 0 to size
- 1; drivers know their names. A mistake of the caller is a `LocalError`. Whatever bytes another peer sends,
the only error they can raise is a `RemoteError`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.errors import AntecedeError


class LocalError(AntecedeError):
    """The caller misused a protocol."""


class RemoteError(AntecedeError):
    """Another peer sent something that no correct peer sends."""


class LinkRequirements(msgspec.Struct, frozen=True):
    """What a protocol needs from its links. Drivers provide exactly that."""

    fifo: bool
    reliable: bool = True
    bounded_delays: bool = False
    """Whether delays within a site, and differences between clocks, must stay within known bounds."""


Span = tuple[int, int, int]
"""Messages of one origin with consecutive sequence numbers: the origin, the first and the last number."""


class Packet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What crosses a link. Its encoding is the wire format; everything but the payload is control
    information."""

    metric_name: ClassVar[str] = ""
    """The prefix of metrics on packets of this type, as in `down_packets`. It must not change when the class
    is renamed, because stored results use it. If empty, the class name in lower case is used."""
    since: ClassVar[int] = 0
    """The version of a live group's wire format that introduced this type (`live/versions.py`)."""

    @classmethod
    def metric_prefix(cls) -> str:
        """The prefix of metrics on packets of this type."""
        return cls.metric_name or cls.__name__.lower()

    def payload_bytes(self) -> int:
        return 0

    def message_ids(self) -> tuple[MessageId, ...]:
        """The messages that the packet carries; none if it is a control packet."""
        return ()

    def payloads_by_span(self) -> tuple[list[bytes], ...]:
        """The payloads of the messages in each of its spans."""
        return ()

    def spans(self) -> tuple[Span, ...]:
        """The messages that the packet carries, as spans."""
        return tuple((origin, seq, seq) for origin, seq in self.message_ids())


class Send(msgspec.Struct, frozen=True, gc=False):
    """One packet to one or many peers."""

    to: tuple[int, ...]
    packet: Packet


class Effects(msgspec.Struct, frozen=True, gc=False):
    """What a call asks its driver to do. The driver carries out sends before it asks for deliveries."""

    sends: tuple[Send, ...] = ()
    wake_at: int | None = None
    """When to call `wake`, in addition to times requested before."""
    message: MessageId | None = None
    """The identity of the message just broadcast."""


NO_EFFECTS = Effects()


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message for the application."""

    message: MessageId
    payload: bytes
    causes: dict[int, int] | None = None
    """If the packet names them: the message's immediate dependencies by peer, without its sender's previous
    message."""


class Waiting(msgspec.Struct, frozen=True):
    """A held message, and the message it waits for."""

    message: MessageId
    cause: MessageId | None
    """None if the cause is known only by another peer's number for it, or if the message waits for a time."""


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the members of a group are arranged, for protocols whose members have different roles."""

    @classmethod
    @abc.abstractmethod
    def default(cls, size: int) -> Self:
        """The layout if none is given."""

    @classmethod
    @abc.abstractmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        """A random layout; `pick(n)` returns a number from 0 to n - 1."""

    @abc.abstractmethod
    def validate(self, size: int) -> None:
        """Raise a `LocalError` that names the field if a group of `size` cannot have this layout."""

    @abc.abstractmethod
    def sites(self, size: int) -> list[int]:
        """The site of each member; a network may be faster within a site."""

    def with_bounds(self, longest_delay: int, skew: int) -> Self:
        """This layout on a network with these bounds: the longest delay within a site and the clock skew."""
        return self


K = TypeVar("K")
P = TypeVar("P")


class HoldBackQueue(msgspec.Struct, Generic[K, P]):
    """Packets held back until their dependencies are met, and packets that are ready.

    A packet is filed under one of its unmet dependencies and looked at again only when that one is met. So a
    packet costs its own dependencies once, whatever the length of the queue.
    """

    ready: list[P] = msgspec.field(default_factory=list)
    held: dict[K, list[tuple[P, list[K]]]] = msgspec.field(default_factory=dict)

    def hold(self, packet: P, dependencies: list[K], is_met: Callable[[K], bool]) -> None:
        """Hold a packet until all its dependencies are met; if they are, it is ready at once."""
        while dependencies and is_met(dependencies[-1]):
            dependencies.pop()
        self.hold_unmet(packet, dependencies)

    def hold_unmet(self, packet: P, unmet: list[K]) -> None:
        """Hold a packet whose dependencies are known to be unmet; without any, it is ready."""
        if not unmet:
            self.ready.append(packet)
        elif (held := self.held.get(unmet[-1])) is not None:
            held.append((packet, unmet))
        else:
            self.held[unmet[-1]] = [(packet, unmet)]

    def release(self, dependency: K, is_met: Callable[[K], bool]) -> None:
        """`dependency` is met: each packet held for it becomes ready or is held for another one."""
        for packet, unmet in self.held.pop(dependency, ()):
            unmet.pop()
            self.hold(packet, unmet, is_met)

    def discard(self, packets: Callable[[P], bool]) -> list[P]:
        """Remove the packets for which `packets` is true, held or ready. Returns them."""
        found = [packet for packet in self.ready if packets(packet)]
        self.ready = [packet for packet in self.ready if not packets(packet)]
        for dependency, held in list(self.held.items()):
            found += [packet for packet, _ in held if packets(packet)]
            if left := [each for each in held if not packets(each[0])]:
                self.held[dependency] = left
            else:
                del self.held[dependency]
        return found

    def waiting(self) -> list[tuple[P, K]]:
        """Each held packet, with the dependency it is held for."""
        return [(packet, dependency) for dependency, held in self.held.items() for packet, _ in held]


class _AbstractStruct(msgspec.StructMeta, abc.ABCMeta):
    pass


class Protocol(msgspec.Struct, metaclass=_AbstractStruct):
    """One member of a group that broadcasts in causal order.

    A subclass declares its state as fields, so that the state can be saved and restored.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """What a message carries, in one line."""
    control: ClassVar[str]
    """The size of that, in a group of n."""
    links: ClassVar[LinkRequirements]
    packets: ClassVar[Any]
    """The type of its packets, or the union of their types."""

    buffering: ClassVar[str] = "until its causes are delivered"
    """What a message waits for."""
    membership: ClassVar[str] = "nothing changes"
    """Which parts of a group of this class may change. Members come and go in the classes of
    `antecede.membership`."""
    overlapping_groups: ClassVar[bool] = False
    """Whether groups may overlap; then `with_groups(groups, size)` creates members."""
    layout: ClassVar[Any] = None
    """The type of its `Layout`, if it has one; then `with_layout(size, layout)` creates members."""
    dynamic_links: ClassVar[bool] = False
    """Whether links may open and close during a run; `neighbours` are those open from the start."""

    relays: ClassVar[bool] = True
    """Whether a receipt or a timer may make a member send; if not, a member sends only when it broadcasts."""
    symmetric: ClassVar[bool] = False
    """Whether all members are alike: exchanging two of them changes nothing but their ranks."""
    ignores_copies: ClassVar[bool] = False
    """Whether a packet that changes nothing when it arrives would never change anything later."""
    delivers_as_received: ClassVar[bool] = False
    """Whether messages are delivered in the order of their first receipt, so that none is ever held."""

    any_event_unblocks: ClassVar[bool] = False
    """Whether any packet, timer or broadcast may make a held message deliverable, not only the messages it
    depends on."""
    carries_immediate_dependencies: ClassVar[bool] = False
    """Whether packets name exactly the immediate dependencies, so that deliveries report them."""
    names_causes: ClassVar[bool] = True
    """Whether live members name the dependencies in the payload if packets do not; off where that would cost
    more than the packets themselves."""

    kernel: ClassVar[str] = ""
    """The package of `antecede.sim.kernels` with the compiled twin of this class; empty if there is none.

    A twin computes exactly what the declaring class does. It does not stand in for subclasses, which may
    behave differently: look it up with `declared_kernel`.
    """

    me: int
    size: int

    @classmethod
    def declared_kernel(cls) -> str:
        """The kernel that this very class declares; kernels are not inherited."""
        return cls.kernel if "kernel" in vars(cls) else ""

    @classmethod
    def group(cls, size: int) -> list[Self]:
        """All members of a group of `size`."""
        return [cls(me, size) for me in range(size)]

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        """The peers to which this member may still send because of another member's message, received or
        still to be received; None if the protocol does not say. A peer once absent from the result must stay
        absent."""
        return None if self.relays else ()

    @abc.abstractmethod
    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        """The application broadcasts. This is also the delivery at the sender."""

    def broadcast_all(self, payloads: list[bytes], now: int) -> Effects:
        """Broadcast several messages with no delivery in between; `message` of the effects is the last
        one."""
        sends: list[Send] = []
        wake_at, message = None, None
        for payload in payloads:
            effects = self.broadcast(payload, now)
            sends += effects.sends
            message = effects.message
            if effects.wake_at is not None:
                wake_at = effects.wake_at if wake_at is None else min(wake_at, effects.wake_at)
        return Effects(tuple(sends), wake_at, message)

    @abc.abstractmethod
    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        """A packet arrived from peer `link`: hold it, and forward it if the protocol does."""

    @abc.abstractmethod
    def deliver(self, now: int) -> Delivery | None:
        """The next message for the application. Returning it is what delivers it."""

    @abc.abstractmethod
    def waiting(self) -> list[Waiting]:
        """The held messages, and what each waits for."""

    def waiting_for(self, origins: Collection[int]) -> list[Waiting]:
        """The held messages that wait for messages of these origins."""
        return [wait for wait in self.waiting() if wait.cause is not None and wait.cause.origin in origins]

    def awaits_own(self, first: int, last: int) -> bool:
        """Whether held messages wait for one of these, which this member will broadcast next. Such messages
        are forged: no peer can know a message that was not sent."""
        return False

    def count_held(self) -> int:
        """How many messages are held; drivers ask often."""
        return len(self.waiting())

    def last_awaited(self, origin: int) -> int:
        """The last message of an origin that any message held so far has waited for; 0 if there is none.

        O(1) where drivers ask often; this default scans all held messages.
        """
        causes = (wait.cause for wait in self.waiting())
        return max((cause.seq for cause in causes if cause and cause.origin == origin), default=0)

    @abc.abstractmethod
    def paper_bytes(self, packet: Packet) -> int:
        """The packet's control information, as the protocol's paper counts it."""

    def paper_storage(self) -> int:
        """The bytes of control information that this member stores, as the protocol's paper counts them."""
        return 0

    def partners(self) -> tuple[int, ...]:
        """The peers that this member sends packets to or receives packets from."""
        return tuple(peer for peer in range(self.size) if peer != self.me)

    def members_behind(self) -> dict[int, frozenset[int]]:
        """The partners that reach the group through this member alone; for each, the partner and all members
        that reach this member through it."""
        return {}

    def upstream(self) -> int | None:
        """The partner through which this member reaches all members that are not behind it, if there is a
        single one."""
        return None

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        """Another member supplies a packet that was lost with its sender. Returns what to receive, and from
        which peer.

        Empty if this member cannot use the packet.
        """
        return []

    def role(self) -> str:
        """The role of this member, for protocols with several."""
        return "member"

    def wake(self, now: int) -> Effects:
        """A time requested by `wake_at` has come."""
        return NO_EFFECTS

    def link_opened(self, link: int, now: int) -> Effects:
        return NO_EFFECTS

    def link_closed(self, link: int, now: int) -> Effects:
        return NO_EFFECTS

    @classmethod
    def encode(cls, packet: Packet) -> bytes:
        return _encoder.encode(packet)

    @classmethod
    def decode(cls, data: bytes) -> Packet:
        """Decode a packet from the wire. The bytes may be hostile; the packet's values are not validated
        yet."""
        try:
            packet: Packet = msgspec.msgpack.decode(data, type=cls.packets)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteError(f"not a packet of {cls.name}: {error}") from error
        return packet

    @classmethod
    def control_bytes(cls, packet: Packet) -> int:
        """The bytes on the wire that are not payload."""
        return len(cls.encode(packet)) - packet.payload_bytes()

    def save(self) -> bytes:
        """The whole state, for a journal or a checkpoint."""
        return _encoder.encode((self.name, self))

    @classmethod
    def restore(cls, state: bytes) -> Self:
        """A member in exactly the state that was saved."""
        try:
            name, raw = msgspec.msgpack.decode(state, type=tuple[str, msgspec.Raw])
            if name != cls.name:
                raise LocalError(f"this is the state of a {name}, not of a {cls.name}")
            return msgspec.msgpack.decode(raw, type=cls, dec_hook=_decode_hook)
        except (msgspec.DecodeError, ValueError) as error:
            raise LocalError(f"a saved state of {cls.name} is damaged: {error}") from error


def _encode_hook(value: Any) -> Any:
    if isinstance(value, BitWindow):
        return value.to_bytes()
    raise TypeError(f"cannot save a {type(value).__name__}")


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is BitWindow:
        return BitWindow.from_bytes(value)
    raise TypeError(f"cannot restore a {kind.__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_hook)
