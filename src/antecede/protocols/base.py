"""The one interface that every protocol answers to, and the values that cross it.

A protocol is a pure state machine. It never touches a clock, a socket, a file or a random number:
time comes in as `now` (integer nanoseconds), what is to be done comes out as `Effects`. Peers are
ranks, 0 to size - 1; drivers know their names. What the caller does wrong is a `LocalError`; what
the other side does wrong is a `RemoteError`, whatever bytes it sends.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.errors import AntecedeError


class LocalError(AntecedeError):
    """The caller misused a protocol."""


class RemoteError(AntecedeError):
    """Another peer sent something that no correct peer sends."""


class LinkRequirements(msgspec.Struct, frozen=True):
    """What a protocol needs from its links. Drivers give it exactly that."""

    fifo: bool
    reliable: bool = True
    bounded_delays: bool = False
    """Whether delays within a site, and differences between clocks, must keep to what was promised."""


Span = tuple[int, int, int]
"""Messages of one origin under consecutive numbers: the origin, the first and the last number."""


class Packet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What crosses a link. Its encoding is the wire format; all but the payload is control."""

    metric_name: ClassVar[str] = ""
    """What metrics of packets of this kind begin with, as in `down_packets`; else the lower-case class name.
    Kept when a class is renamed: results are read by it."""

    @classmethod
    def metric_prefix(cls) -> str:
        """What metrics of packets of this kind begin with."""
        return cls.metric_name or cls.__name__.lower()

    def payload_bytes(self) -> int:
        return 0

    def message_ids(self) -> tuple[MessageId, ...]:
        """The messages in it; none in a packet that only controls."""
        return ()

    def spans(self) -> tuple[Span, ...]:
        """The same by origin, first and last number."""
        return tuple((origin, seq, seq) for origin, seq in self.message_ids())


class Send(msgspec.Struct, frozen=True, gc=False):
    """One packet for one or many peers."""

    to: tuple[int, ...]
    packet: Packet


class Effects(msgspec.Struct, frozen=True, gc=False):
    """What a call asks its driver to do. Sends are carried out before deliveries are asked for."""

    sends: tuple[Send, ...] = ()
    wake_at: int | None = None
    message: MessageId | None = None
    """The identity a broadcast was given."""


NO_EFFECTS = Effects()


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message for the application."""

    message: MessageId
    payload: bytes
    causes: dict[int, int] | None = None
    """Its immediate dependencies by peer, its sender's own last message aside, if its packet names them."""


class Waiting(msgspec.Struct, frozen=True):
    """A message that is held, and the message it is held for."""

    message: MessageId
    cause: MessageId | None
    """None where it is known only by another peer's number for it, or by a time that has not come."""


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the members of a protocol are arranged, where they are not all alike."""

    @classmethod
    @abc.abstractmethod
    def default(cls, size: int) -> Self:
        """The arrangement for those who ask for none."""

    @classmethod
    @abc.abstractmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        """Any arrangement, by a source of numbers from 0 to below the one given."""

    @abc.abstractmethod
    def validate(self, size: int) -> None:
        """A `LocalError` that names the field, if a group of `size` cannot be arranged so."""

    @abc.abstractmethod
    def sites(self, size: int) -> list[int]:
        """Which site each member is at; within a site a network may be faster."""

    def with_bounds(self, longest_delay: int, skew: int) -> Self:
        """With what its network promises: the longest delay within a site, the largest clock difference."""
        return self


K = TypeVar("K")
P = TypeVar("P")


class HoldBackQueue(msgspec.Struct, Generic[K, P]):
    """Packets that wait, each filed under one thing that it waits for, and those that are ready.

    A packet is looked at again only when what it is filed under has come, so over its life it costs its own
    dependencies once, whatever the backlog.
    """

    ready: list[P] = msgspec.field(default_factory=list)
    held: dict[K, list[tuple[P, list[K]]]] = msgspec.field(default_factory=dict)

    def hold(self, packet: P, unmet: list[K], met: Callable[[K], bool]) -> None:
        """Under the last thing of `unmet` that is not there yet; if all are, it is ready."""
        while unmet and met(unmet[-1]):
            unmet.pop()
        self.hold_unmet(packet, unmet)

    def hold_unmet(self, packet: P, unmet: list[K]) -> None:
        """Under the last thing of `unmet`, which is not there yet."""
        if not unmet:
            self.ready.append(packet)
        elif (those := self.held.get(unmet[-1])) is not None:
            those.append((packet, unmet))
        else:
            self.held[unmet[-1]] = [(packet, unmet)]

    def release(self, key: K, met: Callable[[K], bool]) -> None:
        """`key` is there: whatever was filed under it is looked at again."""
        for packet, unmet in self.held.pop(key, ()):
            unmet.pop()
            self.hold(packet, unmet, met)

    def waiting(self) -> list[tuple[P, K]]:
        return [(packet, key) for key, those in self.held.items() for packet, _ in those]


class _AbstractStruct(msgspec.StructMeta, abc.ABCMeta):
    pass


class Protocol(msgspec.Struct, metaclass=_AbstractStruct):
    """One member's side of a causal broadcast.

    A subclass declares its state as fields, so that it can be saved and restored as it stands.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """What a message carries, in one line."""
    control: ClassVar[str]
    """How much that is in a group of n."""
    links: ClassVar[LinkRequirements]
    packets: ClassVar[Any]
    """The type, or union of types, of its packets: what a link may bring."""

    buffering: ClassVar[str] = "until its causes are delivered"
    """What makes a message wait."""
    membership: ClassVar[str] = "fixed"
    overlapping_groups: ClassVar[bool] = False
    """Whether groups may overlap; then `with_groups(groups, size)` creates members."""
    layout: ClassVar[Any] = None
    """The type of its `Layout`, if it has one; then `with_layout(size, layout)` creates members."""
    dynamic_links: ClassVar[bool] = False
    """Whether it takes links that open and close in mid-run; `neighbours` are those open from the start."""

    carries_immediate_dependencies: ClassVar[bool] = False
    """Whether its packets name immediate dependencies and nothing else, so that deliveries tell them."""

    kernel: ClassVar[str] = ""
    """The package of `antecede.sim.kernels` that holds this protocol's compiled twin; empty if there is none.

    A twin computes exactly what this class does, so it stands in for the class that declares it and for no
    subclass: look it up with `declared_kernel`.
    """

    me: int
    size: int

    @classmethod
    def declared_kernel(cls) -> str:
        """The kernel that this very class declares. A subclass may behave differently and inherits none."""
        return cls.kernel if "kernel" in vars(cls) else ""

    @classmethod
    def group(cls, size: int) -> list[Self]:
        """All members of a group of `size`."""
        return [cls(me, size) for me in range(size)]

    @abc.abstractmethod
    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        """The application sends. For the sender this is the delivery too."""

    def broadcast_all(self, payloads: list[bytes], now: int) -> Effects:
        """The application sends these in a row, with nothing delivered in between; `message` is the last."""
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
        """A packet came in from the peer `link`: file it, and forward it where that is the way."""

    @abc.abstractmethod
    def deliver(self, now: int) -> Delivery | None:
        """The next message for the application; taking it is what delivers it."""

    @abc.abstractmethod
    def waiting(self) -> list[Waiting]:
        """What is held, and for which message."""

    @abc.abstractmethod
    def paper_bytes(self, packet: Packet) -> int:
        """The packet's control information as its paper counts it."""

    def paper_storage(self) -> int:
        """The bytes of control information that this member keeps, as its paper counts them."""
        return 0

    def partners(self) -> tuple[int, ...]:
        """The peers that packets go to or come from."""
        return tuple(peer for peer in range(self.size) if peer != self.me)

    def leaf_peers(self) -> frozenset[int]:
        """The partners to which everything comes through this member."""
        return frozenset()

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        """What to receive, and from which peer, if another member hands on a packet of a message that went
        astray with its sender; nothing if such packets are of no use to this one."""
        return []

    def role(self) -> str:
        """What sort of member this is, where members are not all alike."""
        return "member"

    def wake(self, now: int) -> Effects:
        """A time that was asked for by `wake_at` has come."""
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
        """A packet from the wire; hostile until decoded."""
        try:
            packet: Packet = msgspec.msgpack.decode(data, type=cls.packets)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteError(f"not a packet of {cls.name}: {error}") from error
        return packet

    @classmethod
    def control_bytes(cls, packet: Packet) -> int:
        """Everything on the wire that is not payload."""
        return len(cls.encode(packet)) - packet.payload_bytes()

    def save(self) -> bytes:
        """The whole state, for a journal or a checkpoint."""
        return _encoder.encode((self.name, self))

    @classmethod
    def restore(cls, state: bytes) -> Self:
        """A member that goes on exactly where `save` left off."""
        try:
            name, raw = msgspec.msgpack.decode(state, type=tuple[str, msgspec.Raw])
            if name != cls.name:
                raise LocalError(f"this is the state of a {name}, not of a {cls.name}")
            return msgspec.msgpack.decode(raw, type=cls, dec_hook=_from_plain)
        except (msgspec.DecodeError, ValueError) as error:
            raise LocalError(f"a saved state of {cls.name} is damaged: {error}") from error


def _to_plain(value: Any) -> Any:
    if isinstance(value, BitWindow):
        return value.to_bytes()
    raise TypeError(f"cannot save a {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is BitWindow:
        return BitWindow.from_bytes(value)
    raise TypeError(f"cannot restore a {kind.__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
