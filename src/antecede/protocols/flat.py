"""What the flat protocols share: one packet to everybody, held until what it names is delivered.

They differ only in what a message names: its sender's whole vector clock, the entries that changed, its
immediate dependencies, or everything before it. All deliver a message once it is its sender's next and every
count that it names is reached.
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
"""For each peer of which something is still to be delivered, the last such message."""

Interval = tuple[int, int]
"""First and last number, both included."""


class MessagePacket(Packet, frozen=True, array_like=True):
    """One message, with its payload."""

    payload: bytes
    origin: int

    def payload_bytes(self) -> int:
        return len(self.payload)

    def payloads_by_span(self) -> tuple[list[bytes], ...]:
        return ([self.payload],)


class ClockPacket(MessagePacket, frozen=True, array_like=True, tag=0):
    """Carries a whole vector clock; the sender's own entry is the message's sequence number."""

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
            raise _invalid_dependencies(delivered)
        missing = missing_entries(delivered, self.clock)
        return [MessageId(peer, count) for peer, count in missing if peer != self.origin]


class DependencyPacket(MessagePacket, frozen=True, array_like=True, tag=1):
    """Carries single dependencies: for each peer, the last message depended on."""

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
    """Messages of one origin broadcast with no delivery in between.

    Each but the first depends only on the one before it, and carries no dependencies. A batch travels, and is
    held, as a whole.
    """

    metric_name: ClassVar[str] = "run"

    payloads: list[bytes]
    origin: int
    seq: int
    """Of the first message."""
    causes: dict[int, int]
    """Of the first message."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.payloads) <= MAX_BATCH_MESSAGES:
            raise ValueError(f"a batch of {len(self.payloads)} messages, not 1 to {MAX_BATCH_MESSAGES}")

    @property
    def last(self) -> int:
        return self.seq + len(self.payloads) - 1

    def payload_bytes(self) -> int:
        return sum(map(len, self.payloads))

    def payloads_by_span(self) -> tuple[list[bytes], ...]:
        return (self.payloads,)

    def message_ids(self) -> tuple[MessageId, ...]:
        return tuple(MessageId(self.origin, seq) for seq in range(self.seq, self.last + 1))

    def spans(self) -> tuple[Span, ...]:
        return ((self.origin, self.seq, self.last),)

    def split(self) -> list[DependencyPacket]:
        """Its messages, each as if it had been sent alone."""
        packets, causes = [], self.causes
        for seq, payload in enumerate(self.payloads, self.seq):
            packets.append(DependencyPacket(payload, self.origin, seq, causes))
            causes = {}
        return packets

    def unmet(self, delivered: list[int]) -> UnmetDependencies:
        return _unmet(self.origin, self.causes, delivered)


def _unmet(origin: int, causes: dict[int, int], delivered: list[int]) -> UnmetDependencies:
    unmet, size = [], len(delivered)
    for peer, count in causes.items():
        if not 0 <= peer < size or count < 1 or peer == origin:
            raise _invalid_dependencies(delivered)
        if count > delivered[peer]:
            unmet.append(MessageId(peer, count))
    return unmet


class SequencePacket(MessagePacket, frozen=True, array_like=True, tag=4):
    """Carries dependency sequences: for each peer, intervals of sequence numbers."""

    metric_name: ClassVar[str] = "sequenced"

    seq: int
    before: dict[int, list[Interval]]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)

    def unmet(self, delivered: list[int]) -> UnmetDependencies:
        for peer, intervals in self.before.items():
            if not 0 <= peer < len(delivered) or peer == self.origin or not _is_ascending(intervals):
                raise _invalid_dependencies(delivered)
        lasts = ((peer, intervals[-1][1]) for peer, intervals in self.before.items())
        return [MessageId(peer, last) for peer, last in lasts if last > delivered[peer]]


def _invalid_dependencies(delivered: list[int]) -> RemoteError:
    return RemoteError(f"a packet names what is not among the {len(delivered)} peers of the group")


def _is_ascending(intervals: list[Interval]) -> bool:
    numbers = [number for interval in intervals for number in interval]
    return bool(numbers) and numbers[0] >= 1 and numbers == sorted(numbers)


Dependency = TypeVar("Dependency")


def sorted_by_peer(dependencies: dict[int, Dependency]) -> dict[int, Dependency]:
    """The dependencies of a message in order of peers.

    Receivers look at them from the last to the first. So the order of deliveries follows from the contents of
    messages, and not from the order in which a sender learnt of its dependencies.
    """
    return dict(sorted(dependencies.items()))


@functools.cache
def other_peers(me: int, size: int) -> tuple[int, ...]:
    return tuple(peer for peer in range(size) if peer != me)


StampedPacket = ClockPacket | DependencyPacket | SequencePacket
"""One message with its dependencies, in any form."""
FlatPacket = StampedPacket | MessageBatch


class Flat(Protocol):
    """A member of a flat group. Subclasses define what a message carries and what a delivery changes."""

    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    relays: ClassVar[bool] = False
    symmetric: ClassVar[bool] = True
    packets: ClassVar[Any] = DependencyPacket
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (DependencyPacket,)
    """The types of packets that its messages travel in."""

    delivered: list[int] = msgspec.field(default_factory=list)
    received: list[BitWindow] = msgspec.field(default_factory=list)
    holdback: HoldBackQueue[MessageId, FlatPacket] = msgspec.field(default_factory=HoldBackQueue)
    awaited: list[int] = msgspec.field(default_factory=list)
    """For each peer, the last message that one held so far has waited for."""

    def __post_init__(self) -> None:
        if not 0 <= self.me < self.size:
            raise LocalError(f"peer {self.me} is not one of 0 to {self.size - 1}")
        if not self.delivered:
            self.delivered = [0] * self.size
            self.awaited = [0] * self.size
            self.received = [BitWindow() for _ in range(self.size)]

    @abc.abstractmethod
    def stamp(self, seq: int, payload: bytes) -> StampedPacket:
        """The packet of this member's message number `seq`, with its dependencies."""

    def on_delivered(self, packet: StampedPacket) -> None:
        """The message in `packet` has just been delivered here."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        seq = self.delivered[self.me] + 1
        self._record_own(seq)
        others = other_peers(self.me, self.size)
        packet = self.stamp(seq, payload)
        sends = (Send(others, packet),) if others else ()
        return Effects(sends=sends, message=MessageId(self.me, seq))

    def _record_own(self, last: int) -> None:
        """This peer has sent its messages up to `last`, which delivers them here.

        Somebody may have named one of them before: whoever relayed that could not know that it was a lie, so
        it was held.
        """
        first, self.delivered[self.me] = self.delivered[self.me] + 1, last
        if self.holdback.held:
            for seq in range(first, last + 1):
                self.holdback.release(MessageId(self.me, seq), self._is_delivered)

    def awaits_own(self, first: int, last: int) -> bool:
        held = self.holdback.held
        return bool(held) and any(MessageId(self.me, seq) in held for seq in range(first, last + 1))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        valid, unmet = self._validate(packet)
        self._accept(valid, unmet)
        return NO_EFFECTS

    def _validate(self, packet: Packet) -> tuple[FlatPacket, UnmetDependencies]:
        """The packet, if a correct peer may have sent it, and its dependencies that are not delivered yet."""
        if not isinstance(packet, self.message_packets):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        origin, seq, delivered = packet.origin, packet.seq, self.delivered
        if not 0 <= origin < self.size:
            raise _invalid_dependencies(delivered)
        if origin == self.me:
            raise RemoteError("another peer sent a message in this peer's name")
        if not 1 <= seq <= delivered[origin] + MAX_AHEAD:
            raise RemoteError(f"message number {seq} of peer {origin} is out of range")
        return packet, packet.unmet(delivered)

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        """Hold a message until its dependencies are delivered; False if it was received before."""
        origin, seq = packet.origin, packet.seq
        if isinstance(packet, MessageBatch):
            if not self.received[origin].add_span(seq, packet.last):
                # Some of its messages were received before, by repair.
                accepted = [self._accept(single, single.unmet(self.delivered)) for single in packet.split()]
                return any(accepted)
        elif not self.received[origin].add(seq):
            return False
        if seq - 1 > self.delivered[origin]:
            unmet.append(MessageId(origin, seq - 1))
        for peer, count in unmet:
            if count > self.awaited[peer]:
                self.awaited[peer] = count
        self.holdback.hold_unmet(packet, unmet)
        return True

    def _is_delivered(self, message: MessageId) -> bool:
        origin, seq = message
        return self.delivered[origin] >= seq

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
        waiting = []
        for packet, cause in self.holdback.waiting():
            for message in packet.message_ids():
                waiting.append(Waiting(message, cause))
                cause = message
        return waiting

    def count_held(self) -> int:
        received = sum(len(window) for window in self.received)
        delivered = sum(self.delivered) - self.delivered[self.me]
        ready = (len(each.payloads) if isinstance(each, MessageBatch) else 1 for each in self.holdback.ready)
        return received - delivered - sum(ready)

    def last_awaited(self, origin: int) -> int:
        return self.awaited[origin]
