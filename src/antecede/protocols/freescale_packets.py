"""What crosses links in a free-scale network: within a site, and in the external group."""

from __future__ import annotations

from typing import ClassVar

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Packet
from antecede.protocols.flat import MessagePacket
from antecede.protocols.limits import MAX_AHEAD


def _refuse_long(*those: OffsetBitmap) -> None:
    """Before anybody counts its bits: a set of numbers that far apart is an attack."""
    if any(len(bits.bits) > MAX_AHEAD // 8 + 1 for bits in those):
        raise ValueError("a set of numbers that are too far apart")


class NumberedPacket(MessagePacket, frozen=True, array_like=True):
    """A message by its origin's own number."""

    seq: int

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class UplinkPacket(NumberedPacket, frozen=True, array_like=True, tag=6):
    """From an internal peer to its super peer."""

    metric_name: ClassVar[str] = "up"

    causes: OffsetBitmap
    solid: int
    """Everything up to this number was delivered before; besides `causes` none of it will be named again."""

    def __post_init__(self) -> None:
        _refuse_long(self.causes)


class DownlinkPacket(NumberedPacket, frozen=True, array_like=True, tag=7):
    """From a super peer to its internal peers, under the super peer's number."""

    metric_name: ClassVar[str] = "down"

    number: int
    last: int
    """The number of the same sender's message before this one; 0 if it is of no matter here."""
    causes: OffsetBitmap

    def __post_init__(self) -> None:
        _refuse_long(self.causes)


class NumberAssignment(Packet, frozen=True, array_like=True, tag=8):
    """The number that an internal peer's own message was given."""

    metric_name: ClassVar[str] = "echo"

    seq: int
    number: int


class ExternalPacket(NumberedPacket, frozen=True, array_like=True, tag=9):
    """Between members of the external group, under the number of the one that sends it."""

    metric_name: ClassVar[str] = "across"

    number: int
    last: int
    """Of a super peer: its number of the same internal peer's message before this one."""
    previous: int
    """Of a super peer: numbers after this one and before `number` never come."""
    peers: dict[int, int]
    """Immediate dependencies on external peers, in their order."""
    supers: dict[int, OffsetBitmap]
    """Immediate dependencies on what came through super peers, by their numbers."""
    translated: OffsetBitmap
    """As `previous`, number by number: the paper's form."""

    def __post_init__(self) -> None:
        _refuse_long(self.translated, *self.supers.values())


class InternalAck(Packet, frozen=True, array_like=True, tag=10):
    """What an internal peer says that has been silent for long: after its message `after`, it has
    everything up to `solid`, and will name of that only what is in `kept`."""

    metric_name: ClassVar[str] = "ack"

    after: int
    solid: int
    kept: OffsetBitmap

    def __post_init__(self) -> None:
        _refuse_long(self.kept)
