"""VCube (paper 004): a spanning tree for each source, and aggregation of causally related messages.

`vcube`: a message travels down its source's tree, each peer passing it on at once to its children
there; what it carries, and when it is delivered, is as in `timestamp-diff` (Birman's compression of the
vector clock, 4 bytes an entry as the paper counts). n - 1 packets a message, but at most log2 n from any
one peer.

`vcube-agg`: a child that cannot deliver a message yet, because a cause of it has to reach the child
through this same peer and has not come, gains nothing by having it early. So the message waits here for
that cause and both travel in one packet. A missing message of source l blocks exactly the children that
this peer serves in the tree of l: those of the clusters below `height(me, l)`. The blocked children are
always a lower part of those still to be served, so one number (`low`) says what is left to do.

The paper's algorithm as printed loses, doubles or never delivers messages (its loops are indented
wrongly, its children start at 1 < s); this one sends every message to every child exactly once. It is
made for n = 2^d; with VCube's rule for absent peers (see `overlay.vcube`) both work for every n.

Links need not be FIFO. Memory O(n), the held messages, and for `vcube-agg` the clock of each source's
last message; a delivery costs the entries that its message carries, and for `vcube-agg` its whole clock,
once, where it is forwarded.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.overlay.vcube import children, cluster, height, parent, partners
from antecede.protocols.base import NO_EFFECTS, Effects, Packet, RemoteError, Send
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.limits import MAX_BUNDLE_BYTES
from antecede.protocols.timestamp import TimestampDiff


class Vcube(TimestampDiff):
    name: ClassVar[str] = "vcube"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "changed clock entries, down a spanning tree of its source's own"
    control: ClassVar[str] = "up to n − 1 counts"

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if not effects.sends:
            return effects
        packet = effects.sends[0].packet
        return Effects(self._serve((self.size - 1).bit_length(), packet), message=effects.message)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        sound, unmet = self._validate(packet)
        below = cluster(self.me, _neighbour(link, self))
        if not self._accept(sound, unmet):
            return NO_EFFECTS
        return Effects(self._serve(below, packet))

    def partners(self) -> tuple[int, ...]:
        return partners(self.me, self.size)

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        return [*_from_parent(self, [packet])] if isinstance(packet, DependencyPacket) else []

    def _serve(self, below: int, packet: Packet) -> tuple[Send, ...]:
        to = tuple(child for _, child in children(self.me, below, self.size))
        return (Send(to, packet),) if to else ()


class Bundle(Packet, frozen=True, array_like=True, tag=3):
    """One or more messages in one packet."""

    messages: list[DependencyPacket]

    def payload_bytes(self) -> int:
        return sum(len(message.payload) for message in self.messages)

    def message_ids(self) -> tuple[MessageId, ...]:
        return tuple(MessageId(message.origin, message.seq) for message in self.messages)


class ForwardingState(msgspec.Struct):
    """A message that some children have not been sent yet: those of the clusters below `low`."""

    message: DependencyPacket
    low: int
    missing: list[tuple[int, int, int]] | None = None
    """(height, source, number) of the causes not received yet, the most blocking last; None before
    the source's previous message is here, which says what most of them are."""


class VcubeAgg(TimestampDiff):
    name: ClassVar[str] = "vcube-agg"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "as vcube, with causally related messages in one packet"
    control: ClassVar[str] = "up to n − 1 counts"
    packets: ClassVar[Any] = Bundle
    buffering: ClassVar[str] = "until its causes are delivered; on its way, for causes that come the same way"
    mtu: ClassVar[int] = MAX_BUNDLE_BYTES
    """The largest packet that messages are put together in; a larger message goes alone."""

    clocks: dict[int, dict[int, int]] = msgspec.field(default_factory=dict)
    """The clock of each source's last message that was received without a gap."""
    passing: dict[MessageId, ForwardingState] = msgspec.field(default_factory=dict)
    blocked: dict[MessageId, list[MessageId]] = msgspec.field(default_factory=dict)
    """What is to be passed on, under the message it waits for."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if not effects.sends:
            return effects
        message = effects.sends[0].packet
        to = tuple(child for _, child in children(self.me, (self.size - 1).bit_length(), self.size))
        return Effects((Send(to, Bundle([message])),), message=effects.message)  # type: ignore[list-item]

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, Bundle):
            raise RemoteError(f"{self.name} has no packet {type(packet).__name__}")
        sound = [(message, self._validate(message)[1]) for message in packet.messages]
        below = cluster(self.me, _neighbour(link, self))
        arrived = []
        for message, unmet in sound:
            if self._accept(message, unmet):
                arrived.append(message)
                self.passing[MessageId(message.origin, message.seq)] = ForwardingState(message, below)
        return Effects(self._bundles(self._moved(arrived)))

    def partners(self) -> tuple[int, ...]:
        return partners(self.me, self.size)

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        messages = packet.messages if isinstance(packet, Bundle) else []
        return [(link, Bundle([message])) for link, message in _from_parent(self, messages)]

    def _moved(self, arrived: list[DependencyPacket]) -> dict[int, list[DependencyPacket]]:
        """What can be passed on now, by cluster, after new messages have come."""
        out: dict[int, list[DependencyPacket]] = {}
        awake = [MessageId(message.origin, message.seq) for message in arrived]
        for origin in dict.fromkeys(message.origin for message in arrived):
            awake += self._advance(origin)
        for message in dict.fromkeys(awake):
            if message in self.passing:
                self._pass_on(message, out)
        return out

    def _advance(self, origin: int) -> list[MessageId]:
        """Follow a source's messages as far as they are here without a gap; who waited for them."""
        clock = self.clocks.setdefault(origin, {})
        woken: list[MessageId] = []
        for seq in range(clock.get(origin, 0) + 1, self.received[origin].base + 1):
            passing = self.passing[MessageId(origin, seq)]
            clock.update(passing.message.causes)
            clock[origin] = seq
            passing.missing = sorted(
                (self._served(source), source, count)
                for source, count in clock.items()
                if source not in (origin, self.me) and self.received[source].base < count
            )
            woken.append(MessageId(origin, seq))
            woken += self.blocked.pop(MessageId(origin, seq), ())
        return woken

    def _pass_on(self, message: MessageId, out: dict[int, list[DependencyPacket]]) -> None:
        """To the children that can make use of it; for the others it waits under what blocks most."""
        passing = self.passing[message]
        if passing.missing is None:
            return
        while passing.missing:
            _, source, count = passing.missing[-1]
            if self.received[source].base < count:
                break
            passing.missing.pop()
        rest = min(passing.missing[-1][0], passing.low) if passing.missing else 0
        for bit in range(rest, passing.low):
            out.setdefault(bit, []).append(passing.message)
        passing.low = rest
        if rest == 0:
            del self.passing[message]
        else:
            self.blocked.setdefault(MessageId(source, count), []).append(message)

    def _bundles(self, out: dict[int, list[DependencyPacket]]) -> tuple[Send, ...]:
        sends = []
        for bit, child in children(self.me, max(out, default=-1) + 1, self.size):
            sends += [Send((child,), Bundle(part)) for part in self._cut(out.get(bit, []))]
        return tuple(sends)

    def _cut(self, messages: list[DependencyPacket]) -> list[list[DependencyPacket]]:
        """Messages in as few packets as the largest packet allows."""
        parts: list[list[DependencyPacket]] = []
        room = 0
        for message in messages:
            size = self._room(message)
            if size > room:
                parts.append([])
                room = self.mtu
            parts[-1].append(message)
            room -= size
        return parts

    def _room(self, message: DependencyPacket) -> int:
        """How much of a packet a message takes."""
        return len(self.encode(message))

    def _served(self, source: int) -> int:
        """How many clusters are served here with messages of `source`."""
        return height(self.me, source, self.size)

    def paper_bytes(self, packet: Packet) -> int:
        messages = packet.messages if isinstance(packet, Bundle) else []
        return sum(super(VcubeAgg, self).paper_bytes(message) for message in messages)


def _from_parent(
    member: TimestampDiff, messages: list[DependencyPacket]
) -> list[tuple[int, DependencyPacket]]:
    """Each message with the peer that passes its source's messages on to this member."""
    found = []
    for message in messages:
        if 0 <= message.origin < member.size and message.origin != member.me:
            above = parent(member.me, message.origin, member.size)
            found += [(above, message)] if above is not None else []
    return found


def _neighbour(link: int, member: TimestampDiff) -> int:
    if not 0 <= link < member.size or link == member.me:
        raise RemoteError(f"a packet from peer {link}, who is no other member")
    return link
