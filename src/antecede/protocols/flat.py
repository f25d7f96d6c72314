"""What the flat protocols share: one packet to everyone, held until what it names was delivered.

They differ only in what a message names: its sender's whole clock, what changed in it, or its
immediate dependencies. All deliver m from k when it is k's next and every count it names is
reached.
"""

from __future__ import annotations

import abc
import functools
from typing import Any, ClassVar, TypeVar

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.causality.vector_clock import missing_entries
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    HoldBackQueue,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Span,
    Waiting,
)
from antecede.protocols.limits import MAX_AHEAD, MAX_BATCH_MESSAGES

UnmetDependencies = list[MessageId]
"""The last message of each peer that is still to be delivered."""


class MessagePacket(Packet, frozen=True, array_like=True):
    """One message, with its payload."""

    payload: bytes
    origin: int

    def payload_bytes(self) -> int:
        return len(self.payload)


Interval = tuple[int, int]
"""First and last number, both included."""


class ClockPacket(MessagePacket, frozen=True, array_like=True, tag=0):
    """Names a whole vector clock; the sender's own entry is the message's number."""

    metric_name: ClassVar[str] = "clocked"

    clock: list[int]

    def __post_init__(self) -> None:
        if not 0 <= self.origin < len(self.clock):
            raise ValueError(f"a clock of {len(self.clock)} entries has no peer {self.origin}")

    @property
    def seq(self) -> int:
        return self.clock[self.origin]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)

    def unmet(self, delivered: list[int]) -> UnmetDependencies:
        if len(self.clock) != len(delivered) or min(self.clock) < 0:
            raise _names_strangers(delivered)
        missing = missing_entries(delivered, self.clock)
        return [MessageId(peer, count) for peer, count in missing if peer != self.origin]


class DependencyPacket(MessagePacket, frozen=True, array_like=True, tag=1):
    """Names single messages: for each peer the last one depended on."""

    metric_name: ClassVar[str] = "dependent"

    seq: int
    causes: dict[int, int]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)

    def spans(self) -> tuple[Span, ...]:
        return ((self.origin, self.seq, self.seq),)

    def unmet(self, delivered: list[int]) -> UnmetDependencies:
        return _unmet(self.origin, self.causes, delivered)


class MessageBatch(Packet, frozen=True, array_like=True, tag=15):
    """Messages that were sent in a row with nothing delivered in between: each but the first depends on the
    one before it, and names nothing. On the wire and until it is ready a run is one thing."""

    metric_name: ClassVar[str] = "run"

    payloads: list[bytes]
    origin: int
    seq: int
    """Of the first."""
    causes: dict[int, int]
    """Of the first."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.payloads) <= MAX_BATCH_MESSAGES:
            raise ValueError(f"a run of {len(self.payloads)} messages; there are 1 to {MAX_BATCH_MESSAGES}")

    @property
    def last(self) -> int:
        return self.seq + len(self.payloads) - 1

    def payload_bytes(self) -> int:
        return sum(map(len, self.payloads))

    def message_ids(self) -> tuple[MessageId, ...]:
        return tuple(MessageId(self.origin, seq) for seq in range(self.seq, self.last + 1))

    def spans(self) -> tuple[Span, ...]:
        return ((self.origin, self.seq, self.last),)

    def split(self) -> list[DependencyPacket]:
        """Its messages, each as if it had been sent alone."""
        found, causes = [], self.causes
        for seq, payload in enumerate(self.payloads, self.seq):
            found.append(DependencyPacket(payload, self.origin, seq, causes))
            causes = {}
        return found

    def unmet(self, delivered: list[int]) -> UnmetDependencies:
        return _unmet(self.origin, self.causes, delivered)


def _unmet(origin: int, causes: dict[int, int], delivered: list[int]) -> UnmetDependencies:
    found, size = [], len(delivered)
    for peer, count in causes.items():
        if not 0 <= peer < size or count < 1 or peer == origin:
            raise _names_strangers(delivered)
        if count > delivered[peer]:
            found.append(MessageId(peer, count))
    return found


class SequencePacket(MessagePacket, frozen=True, array_like=True, tag=4):
    """Names whole sequences of messages."""

    metric_name: ClassVar[str] = "sequenced"

    seq: int
    before: dict[int, list[Interval]]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)

    def unmet(self, delivered: list[int]) -> UnmetDependencies:
        for peer, intervals in self.before.items():
            if not 0 <= peer < len(delivered) or peer == self.origin or not _in_order(intervals):
                raise _names_strangers(delivered)
        lasts = ((peer, intervals[-1][1]) for peer, intervals in self.before.items())
        return [MessageId(peer, last) for peer, last in lasts if last > delivered[peer]]


def _names_strangers(delivered: list[int]) -> RemoteError:
    return RemoteError(f"a packet names what is not among the {len(delivered)} peers of the group")


def _in_order(intervals: list[Interval]) -> bool:
    numbers = [number for interval in intervals for number in interval]
    return bool(numbers) and numbers[0] >= 1 and numbers == sorted(numbers)


Named = TypeVar("Named")


def sorted_by_peer(named: dict[int, Named]) -> dict[int, Named]:
    """What a message names, in the order of peers: whoever gets it looks at it from the last to the first, so
    what is delivered when follows from what messages say, not from the order in which it came to be known."""
    return dict(sorted(named.items()))


@functools.cache
def other_peers(me: int, size: int) -> tuple[int, ...]:
    return tuple(peer for peer in range(size) if peer != me)


StampedPacket = ClockPacket | DependencyPacket | SequencePacket
"""The ways to name what a message depends on."""
FlatPacket = StampedPacket | MessageBatch


class Flat(Protocol):
    """A member of a flat group; subclasses say what a message names and what a delivery teaches."""

    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = DependencyPacket
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (DependencyPacket,)
    """How its messages name what they depend on."""

    delivered: list[int] = msgspec.field(default_factory=list)
    received: list[BitWindow] = msgspec.field(default_factory=list)
    holdback: HoldBackQueue[MessageId, FlatPacket] = msgspec.field(default_factory=HoldBackQueue)

    def __post_init__(self) -> None:
        if not 0 <= self.me < self.size:
            raise LocalError(f"peer {self.me} is not one of 0 to {self.size - 1}")
        if not self.delivered:
            self.delivered = [0] * self.size
            self.received = [BitWindow() for _ in range(self.size)]

    @abc.abstractmethod
    def stamp(self, seq: int, payload: bytes) -> StampedPacket:
        """The packet of this member's `seq`-th message."""

    def on_delivered(self, packet: StampedPacket) -> None:
        """`packet` has just been delivered here."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self.delivered[self.me] += 1
        seq = self.delivered[self.me]
        others = other_peers(self.me, self.size)
        packet = self.stamp(seq, payload)
        sends = (Send(others, packet),) if others else ()
        return Effects(sends=sends, message=MessageId(self.me, seq))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        sound, unmet = self._validate(packet)
        self._accept(sound, unmet)
        return NO_EFFECTS

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        """File a message that is not here yet; False if it is."""
        origin, seq = packet.origin, packet.seq
        if isinstance(packet, MessageBatch):
            if not self.received[origin].add_span(seq, packet.last):
                # Some of it came by another way.
                taken = [self._accept(each, each.unmet(self.delivered)) for each in packet.split()]
                return any(taken)
        elif not self.received[origin].add(seq):
            return False
        if seq - 1 > self.delivered[origin]:
            unmet.append(MessageId(origin, seq - 1))
        self.holdback.hold_unmet(packet, unmet)
        return True

    def _is_delivered(self, message: MessageId) -> bool:
        origin, seq = message
        return self.delivered[origin] >= seq

    def _validate(self, packet: Packet) -> tuple[FlatPacket, UnmetDependencies]:
        """A packet that a correct peer may have sent, and what of it is not delivered here yet."""
        if not isinstance(packet, self.message_packets):
            raise RemoteError(f"{self.name} has no packet {type(packet).__name__}")
        origin, seq, me, delivered = packet.origin, packet.seq, self.me, self.delivered
        if not 0 <= origin < self.size:
            raise _names_strangers(delivered)
        if origin == me:
            raise RemoteError("a message of this peer came back under another's hand")
        if not 1 <= seq <= delivered[origin] + MAX_AHEAD:
            raise RemoteError(f"message number {seq} of peer {origin} cannot be")
        unmet = packet.unmet(delivered)
        for peer, _ in unmet:
            if peer == me:
                raise RemoteError("a packet depends on messages that this peer has not sent")
        return packet, unmet

    def deliver(self, now: int) -> Delivery | None:
        holdback = self.holdback
        if not holdback.ready:
            return None
        packet = holdback.ready.pop(0)
        if isinstance(packet, MessageBatch):
            packet, *rest = packet.split()
            holdback.ready[:0] = rest
        origin, seq = message = MessageId(packet.origin, packet.seq)
        self.delivered[origin] = seq
        self.on_delivered(packet)
        if holdback.held:
            holdback.release(message, self._is_delivered)
        if self.carries_immediate_dependencies and isinstance(packet, DependencyPacket):
            return Delivery(message, packet.payload, packet.causes)
        return Delivery(message, packet.payload)

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        return [(packet.origin, packet)] if isinstance(packet, self.message_packets) else []

    def waiting(self) -> list[Waiting]:
        found = []
        for packet, cause in self.holdback.waiting():
            for message in packet.message_ids():
                found.append(Waiting(message, cause))
                cause = message
        return found
