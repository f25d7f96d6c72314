"""The common part of the flat protocols: one packet to every peer, held until the messages it names are
delivered.

They differ only in what a message names: its sender's whole vector clock, the entries that changed, its
immediate dependencies, or everything before it. All deliver a message once it is its sender's next and every
count that it names is reached.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Collection
from typing import Any, ClassVar, TypeVar

import msgspec

from antecede.causality import BitWindow, MessageId
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
"""For each peer with messages still to be delivered, the last such message."""

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

    def unmet(self, delivered: dict[int, int], is_open: bool = False) -> UnmetDependencies:
        if len(self.clock) != len(delivered) or min(self.clock) < 0:
            raise _invalid_dependencies(delivered)
        return [
            MessageId(peer, count)
            for peer, count in enumerate(self.clock)
            if count > delivered[peer] and peer != self.origin
        ]


class DependencyPacket(MessagePacket, frozen=True, array_like=True, tag=1):
    """Carries single dependencies: for each peer, the last message depended on."""

    metric_name: ClassVar[str] = "dependent"

    seq: int
    causes: dict[int, int]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)

    def spans(self) -> tuple[Span, ...]:
        return ((self.origin, self.seq, self.seq),)

    def unmet(self, delivered: dict[int, int], is_open: bool = False) -> UnmetDependencies:
        return _unmet(self.origin, self.causes, delivered, is_open)


class MessageBatch(Packet, frozen=True, array_like=True, tag=15):
    """Messages of one origin broadcast with no delivery in between.

    Each but the first depends only on the one before it, and carries no dependencies. A batch travels, and is
    held, as a whole.
    """

    metric_name: ClassVar[str] = "run"

    payloads: list[bytes]
    origin: int
    seq: int
    """The sequence number of the first message."""
    causes: dict[int, int]
    """The dependencies of the first message."""

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
        """The messages of the batch, each as if it had been sent alone."""
        packets, causes = [], self.causes
        for seq, payload in enumerate(self.payloads, self.seq):
            packets.append(DependencyPacket(payload, self.origin, seq, causes))
            causes = {}
        return packets

    def unmet(self, delivered: dict[int, int], is_open: bool = False) -> UnmetDependencies:
        return _unmet(self.origin, self.causes, delivered, is_open)


def _unmet(
    origin: int, causes: dict[int, int], delivered: dict[int, int], is_open: bool
) -> UnmetDependencies:
    unmet = []
    for peer, count in causes.items():
        known = delivered.get(peer, 0 if is_open else None)
        if known is None or count < 1 or peer == origin:
            raise _invalid_dependencies(delivered)
        if count > known:
            unmet.append(MessageId(peer, count))
    return unmet


class SequencePacket(MessagePacket, frozen=True, array_like=True, tag=4):
    """Carries dependency sequences: for each peer, intervals of sequence numbers."""

    metric_name: ClassVar[str] = "sequenced"

    seq: int
    before: dict[int, list[Interval]]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)

    def unmet(self, delivered: dict[int, int], is_open: bool = False) -> UnmetDependencies:
        if not all(map(_is_ascending, self.before.values())):
            raise _invalid_dependencies(delivered)
        lasts = {peer: intervals[-1][1] for peer, intervals in self.before.items()}
        return _unmet(self.origin, lasts, delivered, is_open)


def _invalid_dependencies(delivered: dict[int, int]) -> RemoteError:
    return RemoteError(f"a packet names what is not among the {len(delivered)} peers of the group")


def _is_ascending(intervals: list[Interval]) -> bool:
    numbers = [number for interval in intervals for number in interval]
    return bool(numbers) and numbers[0] >= 1 and numbers == sorted(numbers)


def _last(packet: FlatPacket) -> int:
    return packet.last if isinstance(packet, MessageBatch) else packet.seq


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
    control_packets: ClassVar[tuple[type[Packet], ...]] = ()
    takes_unknown: ClassVar[bool] = False

    delivered: dict[int, int] = msgspec.field(default_factory=dict)
    """For each peer, how many of its messages are delivered here."""
    received: dict[int, BitWindow] = msgspec.field(default_factory=dict)
    holdback: HoldBackQueue[MessageId, FlatPacket] = msgspec.field(default_factory=HoldBackQueue)
    awaited: dict[int, int] = msgspec.field(default_factory=dict)
    """For each peer, the last message that any message held so far has waited for."""
    is_open: bool = False
    """Whether the group changes: messages may name peers that are not known here yet."""
    audience: tuple[int, ...] = ()
    """In a group that changes, the peers that broadcasts go to."""
    forgotten: set[int] = msgspec.field(default_factory=set)
    """In a group that changes: forgotten peers that messages in flight may still name."""

    def __post_init__(self) -> None:
        if not self.delivered:
            if not 0 <= self.me < self.size:
                raise LocalError(f"peer {self.me} is not one of 0 to {self.size - 1}")
            self.delivered = dict.fromkeys(range(self.size), 0)
            self.awaited = dict.fromkeys(range(self.size), 0)
            self.received = {peer: BitWindow() for peer in range(self.size)}

    @abc.abstractmethod
    def stamp(self, seq: int, payload: bytes) -> StampedPacket:
        """The packet of this member's message number `seq`, with its dependencies."""

    @abc.abstractmethod
    def next_causes(self) -> dict[int, Any]:
        """The dependencies that the next message will name, for drivers that sign them."""

    def on_delivered(self, packet: StampedPacket) -> None:
        """The message in `packet` has just been delivered here."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        seq = self.delivered[self.me] + 1
        self._record_own(seq)
        others = self.others()
        packet = self.stamp(seq, payload)
        # In a group that changes, a removed member may lack it, though it is sent to nobody.
        sends = (Send(others, packet),) if others or self.is_open else ()
        return Effects(sends=sends, message=MessageId(self.me, seq))

    def others(self) -> tuple[int, ...]:
        """The peers that broadcasts go to."""
        return self.audience if self.is_open else other_peers(self.me, self.size)

    def _record_own(self, last: int) -> None:
        """This peer has sent its messages up to `last`, which also delivers them here.

        Another member may have named one of them before. Its relays could not know that this was a lie, so
        the message was held.
        """
        first, self.delivered[self.me] = self.delivered[self.me] + 1, last
        if self.awaits_own(first, last):
            for seq in range(first, last + 1):
                self.holdback.release(MessageId(self.me, seq), self._is_delivered)

    def awaits_own(self, first: int, last: int) -> bool:
        held = self.holdback.held
        if len(held) <= last - first:
            return any(origin == self.me and first <= seq <= last for origin, seq in held)
        return any(MessageId(self.me, seq) in held for seq in range(first, last + 1))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        valid, unmet = self._validate(packet)
        self._accept(valid, unmet)
        return NO_EFFECTS

    def _validate(self, packet: Packet) -> tuple[FlatPacket, UnmetDependencies]:
        """The packet, if a correct peer may have sent it, and those of its dependencies that are not
        delivered yet."""
        if not isinstance(packet, self.message_packets):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        origin, seq, delivered = packet.origin, packet.seq, self.delivered
        if origin not in delivered:
            raise _invalid_dependencies(delivered)
        if origin == self.me:
            raise RemoteError("another peer sent a message in this peer's name")
        if not 1 <= seq <= delivered[origin] + MAX_AHEAD:
            raise RemoteError(f"message number {seq} of peer {origin} is out of range")
        return packet, self._unmet(packet)

    def _unmet(self, packet: FlatPacket) -> UnmetDependencies:
        unmet = packet.unmet(self.delivered, self.is_open)
        if self.forgotten:
            return [message for message in unmet if message.origin not in self.forgotten]
        return unmet

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        """Hold a message until its dependencies are delivered; False if it was received before."""
        origin, seq = packet.origin, packet.seq
        if isinstance(packet, MessageBatch):
            if not self.received[origin].add_span(seq, packet.last):
                # Some of its messages were received before, by repair.
                accepted = [self._accept(single, self._unmet(single)) for single in packet.split()]
                return any(accepted)
        elif not self.received[origin].add(seq):
            return False
        if seq - 1 > self.delivered[origin]:
            unmet.append(MessageId(origin, seq - 1))
        awaited = self.awaited
        for peer, count in unmet:
            if count > awaited.get(peer, 0):
                awaited[peer] = count
        self.holdback.hold_unmet(packet, unmet)
        return True

    def _is_delivered(self, message: MessageId) -> bool:
        origin, seq = message
        return self.delivered.get(origin, 0) >= seq or origin in self.forgotten

    def deliver(self, now: int) -> Delivery | None:
        holdback = self.holdback
        if not holdback.ready:
            return None
        packet = holdback.ready.pop(0)
        if isinstance(packet, MessageBatch):
            raise LocalError(f"{self.name} has no batches")
        origin, seq = message = MessageId(packet.origin, packet.seq)
        self.delivered[origin] = seq
        self.on_delivered(packet)
        if message in holdback.held:
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

    def waiting_for(self, origins: Collection[int]) -> list[Waiting]:
        """O(messages waited for), which are few where many messages wait for the same one. Of a batch, only
        its first message is reported: the others wait for that one."""
        return [
            Waiting(packet.message_ids()[0], cause)
            for cause, held in self.holdback.held.items()
            if cause.origin in origins
            for packet, _ in held
        ]

    def count_held(self) -> int:
        received = sum(len(window) for window in self.received.values())
        delivered = sum(self.delivered.values()) - self.delivered[self.me]
        ready = sum(
            each.last - max(self.delivered[each.origin], each.seq - 1)
            if isinstance(each, MessageBatch)
            else 1
            for each in self.holdback.ready
        )
        return received - delivered - ready

    def last_awaited(self, origin: int) -> int:
        return self.awaited.get(origin, 0)

    # Groups that change.

    def begin(self, counts: dict[int, int], admission: MessageId) -> None:
        """This member is new: it starts with its sponsor's state, and depends on the message that admitted
        it."""
        self.delivered, self.received, self.awaited = {}, {}, {}
        for peer, count in counts.items():
            self.add_peer(peer, count)
        self.add_peer(admission.origin, admission.seq)
        self.add_peer(self.me)

    def broadcast_directly(self, payload: bytes, now: int) -> Effects:
        """Broadcast a message that this member sends to every peer itself."""
        return self.broadcast(payload, now)

    def held_directly(self) -> list[tuple[int, list[MessageId]]]:
        """The sources of messages that arrived directly, belong to no stream and are held, with their
        dependencies."""
        return []

    def refuse(self, peer: int) -> None:
        """A peer that is unknown here will never become known."""

    def receive_directly(self, packet: Packet, now: int) -> Effects:
        """A message that its source has sent directly to every peer."""
        self._accept(*self._validate(packet))
        return NO_EFFECTS

    def set_view(self, peers: tuple[int, ...]) -> list[tuple[int, MessageId]]:
        """Broadcasts go to these peers from now on. Returns messages to resend, with their destinations."""
        self.audience = peers
        return []

    def suspect(self, peer: int) -> list[tuple[int, MessageId]]:
        """A peer is suspected of having failed. Returns messages to resend, with their destinations."""
        return []

    def trust(self, peer: int) -> list[tuple[int, MessageId]]:
        """A suspected peer is alive after all. Returns messages to resend, with their destinations."""
        return []

    def sponsor(self, peer: int) -> None:
        """This member has admitted a peer."""

    def forget_up_to(self, peer: int, stable: int) -> None:
        """The messages of a peer up to this one are stable: no member will need them again."""

    def add_peer(self, peer: int, count: int = 0) -> None:
        """A peer is new, or its messages up to `count` are already delivered."""
        self.delivered[peer], self.received[peer] = count, BitWindow(count)
        self.awaited.setdefault(peer, 0)

    def drop_peer(self, peer: int) -> None:
        """Forget a peer: no message will name it again."""
        for table in (self.delivered, self.received, self.awaited):
            table.pop(peer, None)

    @abc.abstractmethod
    def stop_naming(self, peer: int) -> None:
        """Messages no longer name a peer whose messages are all delivered everywhere."""

    def received_up_to(self, peer: int) -> int:
        """The last message of a peer that has been received without a gap before it, delivered or not."""
        return self.received[peer].base

    def has_received(self, message: MessageId) -> bool:
        origin, seq = message
        return origin in self.received and seq in self.received[origin]

    def has_deliverable(self) -> bool:
        return bool(self.holdback.ready)

    def discard_beyond(self, peer: int, last: int) -> None:
        """Drop the messages of a peer after this one."""
        received = self.received[peer]
        if received.last <= last:
            return
        kept = [seq for seq in received if seq > received.base and seq <= last]
        self.received[peer] = BitWindow(min(received.base, last))
        for seq in kept:
            self.received[peer].add(seq)
        for packet in self.holdback.discard(lambda each: each.origin == peer and _last(each) > last):
            # The part of a batch before the end is kept.
            for single in packet.split() if isinstance(packet, MessageBatch) else ():
                if self.delivered[peer] < single.seq <= last:
                    previous = MessageId(peer, single.seq - 1)
                    self.holdback.hold(single, [*self._unmet(single), previous], self._is_delivered)

    def parts(self, packet: Packet) -> list[Packet]:
        """A packet, split into packets with messages of one peer each."""
        return [packet]

    def joined(self, parts: list[Packet]) -> list[Packet]:
        """The inverse of `parts`, for some of the packets."""
        return parts

    def dependencies(self, packet: Packet) -> list[MessageId]:
        """The dependencies of the messages in a packet that are not delivered here, including those on
        forgotten peers."""
        if not isinstance(packet, self.message_packets):
            return []
        return packet.unmet(self.delivered, self.is_open)
