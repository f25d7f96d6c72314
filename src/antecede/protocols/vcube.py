"""VCube (paper 004): a spanning tree for each source, and aggregation of causally related messages.

`vcube`: a message travels down its source's tree; each peer forwards it at once to its children there. What
it carries, and when it is delivered, is as in `timestamp-diff` (Birman's compression of the vector clock, 4
bytes an entry as the paper counts). n - 1 packets a message, but at most log2 n from any one peer.

`vcube-agg`: a child cannot deliver a message yet if a cause of it has to reach the child through this same
peer and has not arrived here. Having the message early would be of no use to the child. So the message
waits here for that cause, and both travel in one packet. A missing message of source l blocks exactly the
children that this peer serves in the tree of l: those in the clusters below `height(me, l)`. So the blocked
children are always the lowest clusters still to be served, and one number (`below`) says what is left to
do.

The paper's algorithm as printed loses, duplicates or never delivers messages (its loops are indented
wrongly, and its children start at 1 < s). This one sends every message to every child exactly once. The
paper assumes n = 2^d; with VCube's rule for absent peers (see `overlay.vcube`) both protocols work for
every n.

Links need not be FIFO. Memory O(n), the held messages, and for `vcube-agg` the clock of each source's last
message. A delivery costs the entries that its message carries, and for `vcube-agg`, once where it is
forwarded, its whole clock.
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
    summary: ClassVar[str] = "changed clock entries, down a spanning tree rooted at its source"
    control: ClassVar[str] = "up to n − 1 counts"
    relays: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if not effects.sends:
            return effects
        packet = effects.sends[0].packet
        return Effects(self._forward((self.size - 1).bit_length(), packet), message=effects.message)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        valid, unmet = self._validate(packet)
        below = cluster(self.me, _validate_link(link, self))
        if not self._accept(valid, unmet):
            return NO_EFFECTS
        return Effects(self._forward(below, packet))

    def partners(self) -> tuple[int, ...]:
        return partners(self.me, self.size)

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        return [*_with_parents(self, [packet])] if isinstance(packet, DependencyPacket) else []

    def _forward(self, below: int, packet: Packet) -> tuple[Send, ...]:
        to = tuple(child for _, child in children(self.me, below, self.size))
        return (Send(to, packet),) if to else ()


class Bundle(Packet, frozen=True, array_like=True, tag=3):
    """One or more messages in one packet."""

    messages: list[DependencyPacket]

    def payload_bytes(self) -> int:
        return sum(len(message.payload) for message in self.messages)

    def payloads_by_span(self) -> tuple[list[bytes], ...]:
        return tuple([message.payload] for message in self.messages)

    def message_ids(self) -> tuple[MessageId, ...]:
        return tuple(MessageId(message.origin, message.seq) for message in self.messages)


class ForwardingState(msgspec.Struct):
    """A message that is still to be forwarded to the children in the clusters below `below`."""

    message: DependencyPacket
    below: int
    missing: list[tuple[int, int, int]] | None = None
    """(height, source, sequence number) of the causes not received yet, the one that blocks most children
    last. None until the source's previous message is here, because that determines most of the clock."""


class VcubeAgg(TimestampDiff):
    name: ClassVar[str] = "vcube-agg"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "as vcube, with causally related messages in one packet"
    control: ClassVar[str] = "up to n − 1 counts"
    relays: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False
    packets: ClassVar[Any] = Bundle
    buffering: ClassVar[str] = (
        "until its causes are delivered; at a relay, for causes that travel the same way"
    )
    mtu: ClassVar[int] = MAX_BUNDLE_BYTES
    """The largest packet that messages are aggregated in; a larger message travels alone."""

    clocks: dict[int, dict[int, int]] = msgspec.field(default_factory=dict)
    """The clock of each source's last message that was received without a gap."""
    forwarding: dict[MessageId, ForwardingState] = msgspec.field(default_factory=dict)
    blocked: dict[MessageId, list[MessageId]] = msgspec.field(default_factory=dict)
    """The messages still to be forwarded, by the message that each waits for."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if not effects.sends:
            return effects
        message = effects.sends[0].packet
        to = tuple(child for _, child in children(self.me, (self.size - 1).bit_length(), self.size))
        return Effects((Send(to, Bundle([message])),), message=effects.message)  # type: ignore[list-item]

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, Bundle):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        valid = [(message, self._validate(message)[1]) for message in packet.messages]
        below = cluster(self.me, _validate_link(link, self))
        accepted = []
        for message, unmet in valid:
            if self._accept(message, unmet):
                accepted.append(message)
                self.forwarding[MessageId(message.origin, message.seq)] = ForwardingState(message, below)
        return Effects(self._send_bundles(self._forward_unblocked(accepted)))

    def partners(self) -> tuple[int, ...]:
        return partners(self.me, self.size)

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        messages = packet.messages if isinstance(packet, Bundle) else []
        return [(link, Bundle([message])) for link, message in _with_parents(self, messages)]

    def _forward_unblocked(self, received: list[DependencyPacket]) -> dict[int, list[DependencyPacket]]:
        """What can be forwarded after new messages were received, by cluster."""
        out: dict[int, list[DependencyPacket]] = {}
        unblocked = [MessageId(message.origin, message.seq) for message in received]
        for origin in dict.fromkeys(message.origin for message in received):
            unblocked += self._advance(origin)
        for message in dict.fromkeys(unblocked):
            if message in self.forwarding:
                self._forward_message(message, out)
        return out

    def _advance(self, origin: int) -> list[MessageId]:
        """Follow a source's messages as far as they are here without a gap; which messages they unblock."""
        clock = self.clocks.setdefault(origin, {})
        unblocked: list[MessageId] = []
        for seq in range(clock.get(origin, 0) + 1, self.received[origin].base + 1):
            state = self.forwarding[MessageId(origin, seq)]
            clock.update(state.message.causes)
            clock[origin] = seq
            state.missing = sorted(
                (self._served(source), source, count)
                for source, count in clock.items()
                if source not in (origin, self.me) and self.received[source].base < count
            )
            unblocked.append(MessageId(origin, seq))
            unblocked += self.blocked.pop(MessageId(origin, seq), ())
        return unblocked

    def _forward_message(self, message: MessageId, out: dict[int, list[DependencyPacket]]) -> None:
        """Forward a message to the children that can use it; for the others it waits for what blocks most."""
        state = self.forwarding[message]
        if state.missing is None:
            return
        while state.missing:
            _, source, count = state.missing[-1]
            if self.received[source].base < count:
                break
            state.missing.pop()
        blocked = min(state.missing[-1][0], state.below) if state.missing else 0
        for bit in range(blocked, state.below):
            out.setdefault(bit, []).append(state.message)
        state.below = blocked
        if blocked == 0:
            del self.forwarding[message]
        else:
            self.blocked.setdefault(MessageId(source, count), []).append(message)

    def _send_bundles(self, out: dict[int, list[DependencyPacket]]) -> tuple[Send, ...]:
        sends = []
        for bit, child in children(self.me, max(out, default=-1) + 1, self.size):
            sends += [Send((child,), Bundle(part)) for part in self._split(out.get(bit, []))]
        return tuple(sends)

    def _split(self, messages: list[DependencyPacket]) -> list[list[DependencyPacket]]:
        """The messages in as few packets as the MTU allows."""
        parts: list[list[DependencyPacket]] = []
        free = 0
        for message in messages:
            size = self._message_size(message)
            if size > free:
                parts.append([])
                free = self.mtu
            parts[-1].append(message)
            free -= size
        return parts

    def _message_size(self, message: DependencyPacket) -> int:
        """How many bytes a message takes in a packet."""
        return len(self.encode(message))

    def _served(self, source: int) -> int:
        """How many clusters this peer serves in the tree of `source`."""
        return height(self.me, source, self.size)

    def paper_bytes(self, packet: Packet) -> int:
        messages = packet.messages if isinstance(packet, Bundle) else []
        return sum(super(VcubeAgg, self).paper_bytes(message) for message in messages)


def _with_parents(
    member: TimestampDiff, messages: list[DependencyPacket]
) -> list[tuple[int, DependencyPacket]]:
    """Each message with the peer that forwards its source's messages to this member."""
    pairs = []
    for message in messages:
        if 0 <= message.origin < member.size and message.origin != member.me:
            above = parent(member.me, message.origin, member.size)
            pairs += [(above, message)] if above is not None else []
    return pairs


def _validate_link(link: int, member: TimestampDiff) -> int:
    if not 0 <= link < member.size or link == member.me:
        raise RemoteError(f"a packet from peer {link}, which is not another member")
    return link
