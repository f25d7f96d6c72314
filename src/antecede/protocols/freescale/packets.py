"""The packets of a free-scale network, within a site and in the external group."""

from __future__ import annotations

from typing import ClassVar

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Packet
from antecede.protocols.flat import MessagePacket
from antecede.protocols.limits import MAX_AHEAD


def _limit_length(*bitmaps: OffsetBitmap) -> None:
    """Refuse a bitmap that is too long before it is expanded: numbers that far apart are an attack."""
    if any(len(bitmap.bits) > MAX_AHEAD // 8 + 1 for bitmap in bitmaps):
        raise ValueError("a bitmap of numbers that are too far apart")


class NumberedPacket(MessagePacket, frozen=True, array_like=True):
    """A message with its origin's sequence number."""

    seq: int

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class UplinkPacket(NumberedPacket, frozen=True, array_like=True, tag=6):
    """From an internal peer to its super peer."""

    metric_name: ClassVar[str] = "up"

    causes: OffsetBitmap
    delivered_up_to: int
    """The sender has delivered everything up to this number, and later messages will name nothing up to
    it."""

    def __post_init__(self) -> None:
        _limit_length(self.causes)

    @property
    def position(self) -> int:
        """Its position among the sender's messages."""
        return self.seq


class DownlinkPacket(NumberedPacket, frozen=True, array_like=True, tag=7):
    """From a super peer to its internal peers, with the super peer's number."""

    metric_name: ClassVar[str] = "down"

    number: int
    sender_previous: int
    """The number of the same sender's previous message; 0 if there is nothing to wait for."""
    causes: OffsetBitmap

    def __post_init__(self) -> None:
        _limit_length(self.causes)


class PassedUpPacket(UplinkPacket, frozen=True, array_like=True, tag=16):
    """From an inner super peer to the one above it: a message of its own or from below. `causes` and
    `delivered_up_to` are its own."""

    place: int
    """Its position among all messages that the sender passes up."""

    @property
    def position(self) -> int:
        return self.place


class FollowingPacket(DownlinkPacket, frozen=True, array_like=True, tag=17):
    """From an inner super peer to those inside: a message from above that depends on some from below."""

    follows: int
    """It follows everything up to this number, in addition to `causes`."""


class NumberAssignment(Packet, frozen=True, array_like=True, tag=8):
    """Tells an internal peer the number that the super peer gave to its message `seq`, or to the one with
    this position if it is a super peer too."""

    metric_name: ClassVar[str] = "echo"

    seq: int
    number: int


class ExternalPacket(NumberedPacket, frozen=True, array_like=True, tag=9):
    """Between members of the external group, with the number of the member that sends it."""

    metric_name: ClassVar[str] = "across"

    number: int
    sender_previous: int
    """From a super peer: its number of the same internal peer's previous message."""
    relay_previous: int
    """From a super peer: the numbers between this one and `number` are never sent."""
    peers: dict[int, int]
    """Immediate dependencies on messages of external peers, by sequence number."""
    supers: dict[int, OffsetBitmap]
    """Immediate dependencies on messages that came through super peers, by their numbers."""
    translated: OffsetBitmap
    """The paper's form of `relay_previous`: a bit for each number that is never sent."""

    def __post_init__(self) -> None:
        _limit_length(self.translated, *self.supers.values())


class InternalAck(Packet, frozen=True, array_like=True, tag=10):
    """A progress report of a silent internal peer.

    After its message `after` it has delivered everything up to `delivered_up_to`, and will name of that only
    what is in `causes`.
    """

    metric_name: ClassVar[str] = "ack"

    after: int
    delivered_up_to: int
    causes: OffsetBitmap

    def __post_init__(self) -> None:
        _limit_length(self.causes)
