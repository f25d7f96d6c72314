"""The one interface that every protocol answers to, and the values that cross it.

A protocol is a pure state machine. It never touches a clock, a socket, a file or a random number:
time comes in as `now` (integer nanoseconds), what is to be done comes out as `Effects`. Peers are
ranks, 0 to size - 1; drivers know their names. What the caller does wrong is a `LocalError`; what
the other side does wrong is a `RemoteError`, whatever bytes it sends.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Self

import msgspec

from antecede.errors import AntecedeError
from antecede.order import MessageId, Window


class LocalError(AntecedeError):
    """The caller misused a protocol."""


class RemoteError(AntecedeError):
    """Another peer sent something that no correct peer sends."""


class Links(msgspec.Struct, frozen=True):
    """What a protocol needs from its links. Drivers give it exactly that."""

    fifo: bool
    reliable: bool = True


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """What crosses a link. Its encoding is the wire format; all but the payload is control."""

    def payload_bytes(self) -> int:
        return 0

    def carries(self) -> tuple[MessageId, ...]:
        """The messages in it; none in a packet that only controls."""
        return ()


class Send(msgspec.Struct, frozen=True):
    """One packet for one or many peers."""

    to: tuple[int, ...]
    packet: Packet


class Effects(msgspec.Struct, frozen=True):
    """What a call asks its driver to do. Sends are carried out before deliveries are asked for."""

    sends: tuple[Send, ...] = ()
    wake_at: int | None = None
    message: MessageId | None = None
    """The identity a broadcast was given."""


NOTHING = Effects()


class Delivery(msgspec.Struct, frozen=True):
    """A message for the application."""

    message: MessageId
    payload: bytes


class Waiting(msgspec.Struct, frozen=True):
    """A message that is held, and the message it is held for."""

    message: MessageId
    cause: MessageId


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
    links: ClassVar[Links]
    packets: ClassVar[Any]
    """The type, or union of types, of its packets: what a link may bring."""

    many_groups: ClassVar[bool] = False
    """Whether it takes groups that overlap; then it has `over(groups, size)` besides `group(size)`."""

    me: int
    size: int

    @classmethod
    def group(cls, size: int) -> list[Self]:
        """All members of a group of `size`."""
        return [cls(me, size) for me in range(size)]

    @abc.abstractmethod
    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        """The application sends. For the sender this is the delivery too."""

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

    def wake(self, now: int) -> Effects:
        """A time that was asked for by `wake_at` has come."""
        return NOTHING

    def link_opened(self, link: int, now: int) -> Effects:
        return NOTHING

    def link_closed(self, link: int, now: int) -> Effects:
        return NOTHING

    @classmethod
    def encode(cls, packet: Packet) -> bytes:
        return _encoder.encode(packet)

    @classmethod
    def decode(cls, data: bytes) -> Packet:
        """A packet from the wire; hostile until decoded."""
        try:
            packet: Packet = msgspec.msgpack.decode(data, type=cls.packets)
        except (msgspec.DecodeError, RecursionError) as error:
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
    if isinstance(value, Window):
        return value.to_bytes()
    raise TypeError(f"cannot save a {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is Window:
        return Window.from_bytes(value)
    raise TypeError(f"cannot restore a {kind.__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
