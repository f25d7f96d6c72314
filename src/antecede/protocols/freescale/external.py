"""The external group of a free-scale network: what its members receive, and external peers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Delivery, Effects, HoldBackQueue, Packet, RemoteError, Send, Waiting
from antecede.protocols.freescale.internal import bytes_for
from antecede.protocols.freescale.packets import ExternalPacket
from antecede.protocols.limits import MAX_AHEAD

ExternalNumber = tuple[int, int]
"""A member of the external group, and its number for a message."""


class ExternalInbox(msgspec.Struct):
    """What a member of the external group, peer or super peer, has received from the others."""

    me: int
    super_peers: int
    """Lower ranks than this are super peers."""
    representatives: list[int]
    delivered_counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How many messages of each external peer are delivered."""
    delivered_numbers: dict[int, BitWindow] = msgspec.field(default_factory=dict)
    """The numbers of each super peer that are delivered, or never sent."""
    holdback: HoldBackQueue[ExternalNumber, tuple[int, ExternalPacket]] = msgspec.field(
        default_factory=HoldBackQueue
    )
    undelivered: set[ExternalNumber] = msgspec.field(default_factory=set)
    """The messages received and not delivered yet."""

    def others(self) -> tuple[int, ...]:
        """The other members of the external group."""
        return tuple(peer for peer, home in enumerate(self.representatives) if peer == home != self.me)

    def is_delivered(self, entry: ExternalNumber) -> bool:
        peer, number = entry
        if peer == self.me:
            return True  # Its own messages, or those of its internal peers: sent, so delivered.
        if peer < self.super_peers:
            return peer in self.delivered_numbers and number in self.delivered_numbers[peer]
        return self.delivered_counts.get(peer, 0) >= number

    def accept(self, sender: int, packet: Packet, sent: int) -> None:
        """Hold a message; `sent` is the number of messages this member has sent or numbered itself."""
        if not isinstance(packet, ExternalPacket):
            raise RemoteError(f"a packet of type {type(packet).__name__} from another site")
        causes = self._validate(sender, packet, sent)
        if sender < self.super_peers:
            delivered = self.delivered_numbers.setdefault(sender, BitWindow())
            delivered.add_between(packet.relay_previous, packet.number)
            for number in packet.translated.numbers():
                delivered.add(number)
        entry = (sender, packet.number)
        if entry in self.undelivered or self.is_delivered(entry):
            return
        self.undelivered.add(entry)
        previous = packet.sender_previous if sender < self.super_peers else packet.number - 1
        self.holdback.hold((sender, packet), [(sender, previous), *causes], self.is_delivered)

    def _validate(self, sender: int, packet: ExternalPacket, sent: int) -> list[ExternalNumber]:
        """Everything that a packet depends on, if a correct member may have sent it."""
        representatives = self.representatives
        if not 0 <= packet.origin < len(representatives) or representatives[packet.origin] != sender:
            raise RemoteError(f"peer {sender} does not relay messages of peer {packet.origin}")
        self._validate_numbers(sender, packet)
        causes = list(dependencies(packet))
        for peer, number in causes:
            most = packet.number - 1 if peer == sender else sent if peer == self.me else number
            is_member = 0 <= peer < len(representatives) and representatives[peer] == peer
            if not (1 <= number <= most and is_member):
                raise RemoteError(f"a packet depends on message {number} of peer {peer}: no such message")
        peers, supers = packet.peers, packet.supers
        if any(peer < self.super_peers for peer in peers) or any(peer >= self.super_peers for peer in supers):
            raise RemoteError("a packet mistakes an external peer for a super peer, or the reverse")
        return causes

    def _validate_numbers(self, sender: int, packet: ExternalPacket) -> None:
        if sender < self.super_peers:
            window = self.delivered_numbers.get(sender)
            known = window.base if window else 0
        else:
            known = self.delivered_counts.get(sender, 0)
            if (packet.number, packet.sender_previous) != (packet.seq, 0):
                raise RemoteError("an external peer's number for a message is not its sequence number")
        number = packet.number
        earlier = all(0 <= each < number for each in (packet.sender_previous, packet.relay_previous))
        translated = all(1 <= each < number for each in packet.translated.numbers())
        if not (earlier and translated and packet.seq >= 1):
            raise RemoteError("a packet with numbers that no message has")
        if number > known + MAX_AHEAD:
            raise RemoteError(f"message number {number} of peer {sender} is out of range")

    def deliver_next(self) -> tuple[int, ExternalPacket] | None:
        """The next message that is ready, with its sender; it counts as delivered."""
        if not self.holdback.ready:
            return None
        sender, packet = self.holdback.ready.pop(0)
        self.undelivered.discard((sender, packet.number))
        if sender < self.super_peers:
            self.delivered_numbers[sender].add(packet.number)
        else:
            self.delivered_counts[sender] = packet.number
        self.holdback.release((sender, packet.number), self.is_delivered)
        return sender, packet

    def paper_storage(self) -> int:
        """VTx: 4 bytes an external peer, and for each super peer the bits that are not contiguous yet."""
        members = sum(home == peer for peer, home in enumerate(self.representatives))
        windows = self.delivered_numbers.values()
        return 4 * (members - self.super_peers) + sum(bytes_for(each.bits.bit_length()) for each in windows)

    def waiting(self) -> list[Waiting]:
        held = self.holdback.waiting()
        received = {(sender, packet.number): packet.message_ids()[0] for (sender, packet), _ in held}
        return [
            Waiting(
                packet.message_ids()[0],
                received.get(entry) if entry[0] < self.super_peers else MessageId(*entry),
            )
            for (_, packet), entry in held
        ]


def dependencies(packet: ExternalPacket) -> Iterator[ExternalNumber]:
    """Every message that a packet names."""
    yield from packet.peers.items()
    for peer, bitmap in packet.supers.items():
        yield from ((peer, number) for number in bitmap.numbers())


class ExternalPeer(msgspec.Struct, tag="external"):
    """Like a member of `mbcp`, except that messages relayed by a super peer are named by bits."""

    inbox: ExternalInbox
    sent: int = 0
    peer_causes: dict[int, int] = msgspec.field(default_factory=dict)
    """The external peers whose last message the next message depends on immediately, and that message."""
    super_causes: dict[int, set[int]] = msgspec.field(default_factory=dict)
    """The same for messages through super peers, by their numbers."""

    def broadcast(self, payload: bytes) -> Effects:
        self.sent += 1
        me, sent = self.inbox.me, self.sent
        peers = dict(sorted(self.peer_causes.items()))
        supers = {
            peer: OffsetBitmap.from_numbers(numbers)
            for peer, numbers in sorted(self.super_causes.items())
            if numbers
        }
        packet = ExternalPacket(payload, me, sent, sent, 0, sent - 1, peers, supers, OffsetBitmap())
        self.peer_causes.clear()
        self.super_causes.clear()
        to = self.inbox.others()
        return Effects((Send(to, packet),) if to else (), message=MessageId(me, sent))

    def receive(self, link: int, packet: Packet) -> Iterable[Send]:
        self.inbox.accept(link, packet, self.sent)
        return ()

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        return ()

    def deliver(self) -> Delivery | None:
        delivered = self.inbox.deliver_next()
        if delivered is None:
            return None
        sender, packet = delivered
        self.drop_covered(packet)
        if sender < self.inbox.super_peers:
            numbers = self.super_causes.setdefault(sender, set())
            numbers.discard(packet.sender_previous)
            numbers.add(packet.number)
        else:
            self.peer_causes[sender] = packet.number
        return Delivery(packet.message_ids()[0], packet.payload)

    def drop_covered(self, packet: ExternalPacket) -> None:
        """Drop the dependencies of a delivered message: the next message depends on them through it."""
        for peer, number in packet.peers.items():
            if self.peer_causes.get(peer) == number:  # A newer message of that peer stays.
                del self.peer_causes[peer]
        for peer, bitmap in packet.supers.items():
            self.super_causes.get(peer, set()).difference_update(bitmap.numbers())

    def partners(self) -> tuple[int, ...]:
        return self.inbox.others()

    def paper_storage(self) -> int:
        """VTx and CI: 4 + 4 bytes a pair, and 4 and its bits a super peer."""
        rows = [OffsetBitmap.from_numbers(numbers) for numbers in self.super_causes.values() if numbers]
        bits = sum(4 + bytes_for(row.span) for row in rows)
        return self.inbox.paper_storage() + 8 * len(self.peer_causes) + bits

    def waiting(self) -> list[Waiting]:
        return self.inbox.waiting()
