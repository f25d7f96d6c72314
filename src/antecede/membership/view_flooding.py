"""Flooding on a hypercube that follows the view: `pc` (and `flooding`) in a dynamic group.

Every member asks its neighbours on the hypercube of its own view to forward to it everything that they
receive. A neighbour first sends the messages that the other lacks, in the order in which it received them,
and then everything that it receives. So on each link all causes of a message arrive before it, or have
arrived before: the link is safe, as in `pc`. Members reshape the overlay independently; order does not depend
on their agreement. A member releases a link that it no longer needs once the links that it needs are ready.

`pc` proves a new link safe with a ping that travels through the group: n log n packets, and a path of safe
links that must not break. Here the requesting member sends its counts: n counts on one link. That is possible
because members retain messages that others may lack.

A message carries its identity. About n log2 n packets a message. Memory O(n).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.membership.packets import Counts, Stream
from antecede.overlay.hypercube import hypercube_neighbours
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    HoldBackQueue,
    LinkRequirements,
    Packet,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.flooding import FloodPacket


class LinkRequest(Packet, frozen=True, array_like=True, tag=50):
    """From now on, forward to `member` everything that is received; it has received `counts`."""

    metric_name: ClassVar[str] = "link_request"

    member: Stream
    counts: Counts
    admissions: dict[Stream, MessageId] = msgspec.field(default_factory=dict)
    """As in reports of progress."""


class LinkReady(Packet, frozen=True, array_like=True, tag=51):
    """All messages that the receiver lacked have been sent; the link is safe."""

    metric_name: ClassVar[str] = "link_ready"


class LinkRelease(Packet, frozen=True, array_like=True, tag=52):
    """Its sender no longer needs this link."""

    metric_name: ClassVar[str] = "link_release"


UNNUMBERED = 0
"""The number of messages outside the stream of their member."""


class UnnumberedPacket(Packet, frozen=True, array_like=True, tag=53):
    """A message that its member sends to everyone itself. It does not arrive over safe links, so it names its
    causes."""

    metric_name: ClassVar[str] = "unnumbered"

    member: Stream
    payload: bytes
    causes: Counts
    """How many messages of each stream its member had received, unless everyone has them."""

    def payload_bytes(self) -> int:
        return len(self.payload)


class ViewFlooding(msgspec.Struct):
    """The messages that one member has received, and the links over which it receives and forwards."""

    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=True)
    packets: ClassVar[Any] = FloodPacket | LinkRequest | LinkReady | LinkRelease | UnnumberedPacket
    control_packets: ClassVar[tuple[type[Packet], ...]] = (LinkRequest, LinkReady, LinkRelease)
    relays: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False
    carries_immediate_dependencies: ClassVar[bool] = False
    takes_unknown: ClassVar[bool] = True
    """Whether messages of members are accepted whose admission is received and not delivered yet."""

    me: Stream
    size: int
    is_open: bool = True
    delivered: Counts = msgspec.field(default_factory=dict)
    received: Counts = msgspec.field(default_factory=dict)
    ready: list[FloodPacket] = msgspec.field(default_factory=list)
    audience: tuple[Stream, ...] = ()
    wanted: set[Stream] = msgspec.field(default_factory=set)
    """The members next to this one on the hypercube of its view."""
    incoming: dict[Stream, bool] = msgspec.field(default_factory=dict)
    """The neighbours that were asked to forward, and whether their links are safe."""
    outgoing: list[Stream] = msgspec.field(default_factory=list)
    """The members that have asked, and to which everything is forwarded."""
    forgotten: set[Stream] = msgspec.field(default_factory=set)
    stable: Counts = msgspec.field(default_factory=dict)
    """By stream, how many messages every member has delivered."""
    unnamed: set[Stream] = msgspec.field(default_factory=set)
    """Streams that every member has delivered completely."""
    unnumbered: HoldBackQueue[MessageId, UnnumberedPacket] = msgspec.field(default_factory=HoldBackQueue)

    def __post_init__(self) -> None:
        if not self.delivered:
            self.delivered = dict.fromkeys(range(self.size), 0)
            # Nothing is sent yet, so all links are safe.
            self.outgoing = list(hypercube_neighbours(self.me, self.size))
            self.incoming = dict.fromkeys(self.outgoing, True)
        if not self.received:
            self.received = dict(self.delivered)

    # Messages

    def broadcast(self, payload: bytes, now: int) -> Effects:
        self.delivered[self.me] = self.received[self.me] = seq = self.delivered[self.me] + 1
        packet = FloodPacket(payload, self.me, seq)
        return Effects((Send(tuple(self.outgoing), packet),), message=MessageId(self.me, seq))

    def next_causes(self) -> Counts:
        return {}

    def receive(self, link: Stream, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, FloodPacket):
            raise RemoteError(f"pc has no packets of type {type(packet).__name__} here")
        last = self.received.get(packet.origin, 0)
        if packet.seq <= last:
            return NO_EFFECTS
        if packet.seq != last + 1:
            raise RemoteError(f"message {packet.seq} of member {packet.origin} came after message {last}")
        self.received[packet.origin] = packet.seq
        self.ready.append(packet)
        return Effects((Send(tuple(each for each in self.outgoing if each != link), packet),))

    def deliver(self, now: int) -> Delivery | None:
        if not self.ready:
            return self._deliver_unnumbered()
        packet = self.ready.pop(0)
        message = MessageId(packet.origin, packet.seq)
        self.delivered[packet.origin] = packet.seq
        if self.unnumbered.held:
            self.unnumbered.release(message, self._is_delivered)
        return Delivery(message, packet.payload)

    def waiting(self) -> list[Waiting]:
        held = self.unnumbered.waiting()
        return [Waiting(MessageId(packet.member, UNNUMBERED), cause) for packet, cause in held]

    def waiting_for(self, origins: Collection[Stream]) -> list[Waiting]:
        return [wait for wait in self.waiting() if wait.cause is not None and wait.cause.origin in origins]

    def count_held(self) -> int:
        return sum(map(len, self.unnumbered.held.values()))

    def paper_bytes(self, packet: Packet) -> int:
        return 4 if isinstance(packet, FloodPacket) else 0

    # Messages outside of streams

    def broadcast_directly(self, payload: bytes, now: int) -> Effects:
        """Send a message once to each member of the view, instead of flooding it over log2 n links each."""
        return Effects((Send(self.audience, self._unnumbered(payload)),))

    def send_directly(self, payload: bytes, peer: Stream) -> list[tuple[Stream, Packet]]:
        """A message that was broadcast directly, for a new member."""
        return [(peer, self._unnumbered(payload))]

    def _unnumbered(self, payload: bytes) -> UnnumberedPacket:
        stable, left_out = self.stable, self.unnamed
        causes = {
            stream: count
            for stream, count in sorted(self.received.items())
            if count > stable.get(stream, 0) and stream not in left_out
        }
        return UnnumberedPacket(self.me, payload, causes)

    def receive_directly(self, packet: UnnumberedPacket, now: int) -> None:
        causes = [MessageId(stream, count) for stream, count in packet.causes.items()]
        self.unnumbered.hold(packet, causes, self._is_delivered)

    def held_directly(self) -> list[tuple[Stream, list[MessageId]]]:
        return [
            (packet.member, [MessageId(*cause) for cause in packet.causes.items()])
            for packet, _ in self.unnumbered.waiting()
        ]

    def _is_delivered(self, message: MessageId) -> bool:
        return self.delivered.get(message.origin, 0) >= message.seq or message.origin in self.forgotten

    def _deliver_unnumbered(self) -> Delivery | None:
        if not self.unnumbered.ready:
            return None
        packet = self.unnumbered.ready.pop(0)
        return Delivery(MessageId(packet.member, UNNUMBERED), packet.payload)

    def refuse(self, peer: Stream) -> None:
        """A member that is not known here was never admitted."""
        self.unnumbered.discard(lambda each: each.member == peer)

    # Links

    def set_view(self, peers: tuple[Stream, ...]) -> list[tuple[Stream, Packet]]:
        self.audience = peers
        present = set(peers)
        self.outgoing = [each for each in self.outgoing if each in present]
        self.incoming = {each: safe for each, safe in self.incoming.items() if each in present}
        members = sorted({self.me, *peers})
        place = members.index(self.me)
        self.wanted = {members[each] for each in hypercube_neighbours(place, len(members))}
        requests = [
            packet for peer in sorted(self.wanted - self.incoming.keys()) for packet in self.ask(peer)
        ]
        return requests + self._release()

    def ask(self, peer: Stream) -> list[tuple[Stream, Packet]]:
        """Ask a member to forward, and for missing messages. It may have been asked before."""
        self.incoming[peer] = False
        return [(peer, LinkRequest(self.me, dict(self.received)))]

    def _release(self) -> list[tuple[Stream, Packet]]:
        """Release links that are not needed, once those that are needed are ready."""
        if not all(self.incoming.get(peer) for peer in self.wanted):
            return []
        extra = sorted(self.incoming.keys() - self.wanted)
        for peer in extra:
            del self.incoming[peer]
        return [(peer, LinkRelease()) for peer in extra]

    def on_control(self, link: Stream, packet: Packet) -> list[tuple[Stream, Packet]]:
        """A packet about a link, from its other end."""
        if isinstance(packet, LinkReady):
            if link in self.incoming:
                self.incoming[link] = True
            return self._release()
        if isinstance(packet, LinkRelease) and link in self.outgoing:
            self.outgoing.remove(link)
        elif isinstance(packet, LinkRequest) and link not in self.outgoing:
            self.outgoing.append(link)
        return []

    def sponsor(self, peer: Stream) -> None:
        """A new member starts with the messages of this one; from now on everything is forwarded to it."""
        self.outgoing.append(peer)

    def suspect(self, peer: Stream) -> list[tuple[Stream, Packet]]:
        return []

    def trust(self, peer: Stream) -> list[tuple[Stream, Packet]]:
        return []

    # Streams

    def begin(self, counts: Counts, admission: MessageId) -> None:
        self.delivered = {**counts, admission.origin: admission.seq, self.me: 0}
        self.received = dict(self.delivered)
        self.incoming, self.outgoing = {admission.origin: True}, []

    def add_peer(self, peer: Stream, count: int = 0) -> None:
        self.delivered[peer] = count
        self.received.setdefault(peer, count)

    def drop_peer(self, peer: Stream) -> None:
        self.delivered.pop(peer, None)
        self.received.pop(peer, None)
        self.stable.pop(peer, None)
        self.unnamed.discard(peer)
        self.refuse(peer)

    def stop_naming(self, peer: Stream) -> None:
        self.unnamed.add(peer)

    def forget_up_to(self, peer: Stream, stable: int) -> None:
        self.stable[peer] = stable

    def received_up_to(self, peer: Stream) -> int:
        return self.received.get(peer, 0)

    def has_received(self, message: MessageId) -> bool:
        return message.seq <= self.received.get(message.origin, 0)

    def has_deliverable(self) -> bool:
        return bool(self.ready or self.unnumbered.ready)

    def discard_beyond(self, peer: Stream, last: int) -> None:
        self.ready = [each for each in self.ready if each.origin != peer or each.seq <= last]
        if peer in self.received:
            self.received[peer] = min(self.received[peer], last)

    def parts(self, packet: Packet) -> list[Packet]:
        return [packet]

    def joined(self, parts: list[Packet]) -> list[Packet]:
        return parts

    def dependencies(self, packet: Packet) -> list[MessageId]:
        return []

    def on_repair(self, packet: Packet) -> list[tuple[Stream, Packet]]:
        return []  # only links deliver messages, in their order
