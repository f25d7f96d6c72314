"""VCube (paper 004): a spanning tree for each source, and aggregation of causally related messages.

`vcube`: a message travels down its source's tree; each peer forwards it at once to its children there. Its
control information and delivery condition are those of `timestamp-diff` (Birman's compression of the vector
clock, 4 bytes per entry as the paper counts). n - 1 packets a message, but at most log2 n from any one peer.

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
from antecede.overlay.vcube import children, closest_by_cluster, cluster, height, parent, partners
from antecede.protocols.base import NO_EFFECTS, Effects, Packet, RemoteError, Send
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.limits import MAX_BUNDLE_BYTES
from antecede.protocols.timestamp import TimestampDiff

_ALL_CLUSTERS = 64
"""More clusters than there can be in a group that changes, where peers have ids of up to 63 bits."""


class SpanningTrees(TimestampDiff):
    """Members that forward messages down the trees of their sources.

    In a group that changes, the peers' ids take the place of ranks. Each member forwards by its own view: the
    first peer of a cluster that it does not suspect is responsible for the rest of that cluster. Members
    whose views differ may send a message twice, or not at all. So a member remembers its duties until a
    message is stable, and repeats them when the peer it sent to is suspected or gone.
    """

    relays: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False

    routes: dict[int, int] = msgspec.field(default_factory=dict)
    """In a group that changes: for each cluster, the peer to forward to."""
    suspected: set[int] = msgspec.field(default_factory=set)
    duties: dict[int, dict[int, int]] = msgspec.field(default_factory=dict)
    """In a group that changes: by source and sequence number, how many clusters this peer serves."""

    def children(self, below: int) -> list[tuple[int, int]]:
        """(cluster, peer) to forward a message to, if this peer serves its clusters below `below`."""
        if not self.is_open:
            return children(self.me, below, self.size)
        return [(bit, child) for bit, child in self.routes.items() if bit < below]

    @property
    def top(self) -> int:
        """How many clusters this peer serves in its own tree."""
        return _ALL_CLUSTERS if self.is_open else (self.size - 1).bit_length()

    def served_for(self, link: int) -> int:
        """How many clusters this peer serves for a message received from `link`."""
        if link == self.me or (not self.is_open and not 0 <= link < self.size):
            raise RemoteError(f"a packet from peer {link}, which is not another member")
        return cluster(self.me, link)

    def partners(self) -> tuple[int, ...]:
        return partners(self.me, self.size)

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        """To its children in the tree of the message's source, until it has received it."""
        if message.origin == self.me or self._has_forwarded(message):
            return ()
        below = height(self.me, message.origin, self.size)
        return tuple(child for _, child in children(self.me, below, self.size))

    def _has_forwarded(self, message: MessageId) -> bool:
        return message.origin in self.received and message.seq in self.received[message.origin]

    def source_of(self, origin: int) -> int | None:
        """The peer that forwards a source's messages to this one; None if there is none."""
        if self.is_open:
            return origin if origin != self.me else None
        is_other = 0 <= origin < self.size and origin != self.me
        return parent(self.me, origin, self.size) if is_other else None

    # Groups that change.

    def broadcast_directly(self, payload: bytes, now: int) -> Effects:
        """Broadcast a message that no peer forwards: as many packets as in the tree, over one link each."""
        return super().broadcast(payload, now)

    def set_view(self, peers: tuple[int, ...]) -> list[tuple[int, MessageId]]:
        self.audience = peers
        self.suspected &= set(peers)
        return self._reroute()

    def suspect(self, peer: int) -> list[tuple[int, MessageId]]:
        self.suspected.add(peer)
        return self._reroute()

    def trust(self, peer: int) -> list[tuple[int, MessageId]]:
        """If all peers of its cluster are suspected, messages go to the first of them; this peer is
        better."""
        self.suspected.discard(peer)
        return self._reroute()

    def _reroute(self) -> list[tuple[int, MessageId]]:
        before, self.routes = self.routes, closest_by_cluster(self.me, self.audience, self.suspected)
        present = set(self.audience) - self.suspected
        changed = {bit: peer for bit, peer in self.routes.items() if before.get(bit) not in present}
        return [
            (peer, MessageId(source, seq))
            for source, duties in self.duties.items()
            for seq, below in sorted(duties.items())
            for bit, peer in changed.items()
            if bit < below
        ]

    def take_duty(self, message: MessageId, below: int) -> None:
        if self.is_open:
            self.duties.setdefault(message.origin, {})[message.seq] = below

    def forget_up_to(self, peer: int, stable: int) -> None:
        duties = self.duties.get(peer, {})
        for seq in [seq for seq in duties if seq <= stable]:
            del duties[seq]
        if not duties:
            self.duties.pop(peer, None)

    def drop_peer(self, peer: int) -> None:
        super().drop_peer(peer)
        self.duties.pop(peer, None)


class Vcube(SpanningTrees):
    name: ClassVar[str] = "vcube"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "changed clock entries, down a spanning tree rooted at its source"
    control: ClassVar[str] = "up to n − 1 counts"

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if not effects.sends or effects.message is None:
            return effects
        self.take_duty(effects.message, self.top)
        packet = effects.sends[0].packet
        to = tuple(child for _, child in self.children(self.top))
        return Effects((Send(to, packet),), message=effects.message)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        valid, unmet = self._validate(packet)
        below = self.served_for(link)
        if not self._accept(valid, unmet):
            return NO_EFFECTS
        self.take_duty(MessageId(valid.origin, valid.seq), below)
        return Effects(self._forward(below, packet))

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        above = self.source_of(packet.origin) if isinstance(packet, DependencyPacket) else None
        return [] if above is None else [(above, packet)]

    def _forward(self, below: int, packet: Packet) -> tuple[Send, ...]:
        to = tuple(child for _, child in self.children(below))
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
    """A message still to be forwarded to the children in the clusters below `below`."""

    message: DependencyPacket
    below: int
    missing: list[tuple[int, int, int]] | None = None
    """(height, source, sequence number) of the causes not received yet, the one that blocks most children
    last. None until the source's previous message is here, because that determines most of the clock."""


class VcubeAgg(SpanningTrees):
    name: ClassVar[str] = "vcube-agg"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "as vcube, with causally related messages in one packet"
    control: ClassVar[str] = "up to n − 1 counts"
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
    heights: dict[int, int] = msgspec.field(default_factory=dict)
    """In a group that changes: how many clusters this peer has served for each source's last message."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if not effects.sends or effects.message is None:
            return effects
        self.take_duty(effects.message, self.top)
        message = effects.sends[0].packet
        to = tuple(child for _, child in self.children(self.top))
        return Effects((Send(to, Bundle([message])),), message=effects.message)  # type: ignore[list-item]

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, Bundle):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        valid = [(message, self._validate(message)[1]) for message in packet.messages]
        below = self.served_for(link)
        accepted = []
        for message, unmet in valid:
            if self._accept(message, unmet):
                accepted.append(message)
                number = MessageId(message.origin, message.seq)
                self.forwarding[number] = ForwardingState(message, below)
                self.take_duty(number, below)
                if self.is_open:
                    self.heights[message.origin] = below
        return Effects(self._send_bundles(self._forward_unblocked(accepted)))

    def broadcast_directly(self, payload: bytes, now: int) -> Effects:
        effects = super().broadcast_directly(payload, now)
        sends = tuple(Send(send.to, Bundle([send.packet])) for send in effects.sends)  # type: ignore[list-item]
        return Effects(sends, message=effects.message)

    def receive_directly(self, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, Bundle):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        (message,) = packet.messages
        if not self._accept(message, self._validate(message)[1]):
            return NO_EFFECTS
        # There is no peer to forward it to, but messages that waited here for it may travel on.
        self.forwarding[MessageId(message.origin, message.seq)] = ForwardingState(message, below=0)
        return Effects(self._send_bundles(self._forward_unblocked([message])))

    def _has_forwarded(self, message: MessageId) -> bool:
        return super()._has_forwarded(message) and message not in self.forwarding

    def on_repair(self, packet: Packet) -> list[tuple[int, Packet]]:
        messages = packet.messages if isinstance(packet, Bundle) else []
        parts = [(self.source_of(message.origin), Bundle([message])) for message in messages]
        return [(above, part) for above, part in parts if above is not None]

    def _forward_unblocked(self, received: list[DependencyPacket]) -> dict[int, list[DependencyPacket]]:
        """The messages, by cluster, that can be forwarded after new messages were received."""
        out: dict[int, list[DependencyPacket]] = {}
        unblocked = [MessageId(message.origin, message.seq) for message in received]
        for origin in dict.fromkeys(message.origin for message in received):
            unblocked += self._advance(origin)
        for message in dict.fromkeys(unblocked):
            if message in self.forwarding:
                self._forward_message(message, out)
        return out

    def _advance(self, origin: int) -> list[MessageId]:
        """Advance over a source's messages that have arrived without a gap. Returns the messages that they
        unblock."""
        clock = self.clocks.setdefault(origin, {})
        received = self.received
        unblocked: list[MessageId] = []
        for seq in range(clock.get(origin, 0) + 1, received[origin].base + 1):
            state = self.forwarding[MessageId(origin, seq)]
            clock.update(state.message.causes)
            clock[origin] = seq
            state.missing = sorted(
                (self._served(source), source, count)
                for source, count in clock.items()
                if source not in (origin, self.me)
                and (source not in received or received[source].base < count)
            )
            unblocked.append(MessageId(origin, seq))
            unblocked += self.blocked.pop(MessageId(origin, seq), ())
        return unblocked

    def _forward_message(self, message: MessageId, out: dict[int, list[DependencyPacket]]) -> None:
        """Forward a message to the children that can use it; for the others it waits for the cause that
        blocks most of them."""
        state = self.forwarding[message]
        if state.missing is None:
            return
        while state.missing:
            _, source, count = state.missing[-1]
            if source not in self.received or self.received[source].base < count:
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
        for bit, child in self.children(max(out, default=-1) + 1):
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
        """The size of a message within a packet, in bytes."""
        return len(self.encode(message))

    def _served(self, source: int) -> int:
        """How many clusters this peer serves in the tree of `source`."""
        return self.heights.get(source, 0) if self.is_open else height(self.me, source, self.size)

    # Groups that change.

    def begin(self, counts: dict[int, int], admission: MessageId) -> None:
        super().begin(counts, admission)
        self.clocks = {peer: {peer: count} for peer, count in self.delivered.items()}

    def drop_peer(self, peer: int) -> None:
        super().drop_peer(peer)
        for clock in self.clocks.values():
            clock.pop(peer, None)
        self.clocks.pop(peer, None)
        self.heights.pop(peer, None)

    def discard_beyond(self, peer: int, last: int) -> None:
        super().discard_beyond(peer, last)
        dropped = {each for each in self.forwarding if each.origin == peer and each.seq > last}
        for message in dropped:
            del self.forwarding[message]
        self.blocked = {
            cause: left
            for cause, waiting in self.blocked.items()
            if (left := [each for each in waiting if each not in dropped])
        }

    def parts(self, packet: Packet) -> list[Packet]:
        return [Bundle([message]) for message in packet.messages] if isinstance(packet, Bundle) else [packet]

    def joined(self, parts: list[Packet]) -> list[Packet]:
        messages = [message for part in parts if isinstance(part, Bundle) for message in part.messages]
        return [Bundle(messages)] if messages else []

    def dependencies(self, packet: Packet) -> list[MessageId]:
        messages = packet.messages if isinstance(packet, Bundle) else []
        return [cause for message in messages for cause in super(VcubeAgg, self).dependencies(message)]

    def paper_bytes(self, packet: Packet) -> int:
        messages = packet.messages if isinstance(packet, Bundle) else []
        return sum(super(VcubeAgg, self).paper_bytes(message) for message in messages)
