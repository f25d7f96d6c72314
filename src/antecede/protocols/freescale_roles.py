"""The three roles in a free-scale network. See `freescale` for the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Delivery, Effects, HoldBackQueue, Packet, RemoteError, Send, Waiting
from antecede.protocols.freescale_packets import (
    DownlinkPacket,
    ExternalPacket,
    InternalAck,
    NumberAssignment,
    NumberedPacket,
    UplinkPacket,
)
from antecede.protocols.limits import MAX_AHEAD

Entry = tuple[int, int]
"""A member of the external group, and its number for a message."""


def in_bytes(bits: int) -> int:
    return (bits + 7) // 8


def _id(packet: NumberedPacket) -> MessageId:
    return MessageId(packet.origin, packet.seq)


class InternalPeer(msgspec.Struct, tag="internal"):
    """Knows its super peer's row of numbers, and nobody else. A super peer's application is one too."""

    me: int
    relay: int
    ack_every: int
    sent: int = 0
    delivered: BitWindow = msgspec.field(default_factory=BitWindow)
    """Numbers delivered here, its own messages among them once their numbers are known."""
    causes: set[int] = msgspec.field(default_factory=set)
    """The numbers that the next message depends on immediately."""
    holdback: HoldBackQueue[int, DownlinkPacket] = msgspec.field(default_factory=HoldBackQueue)
    arrived: set[int] = msgspec.field(default_factory=set)
    unsaid: int = 0
    """Deliveries since the super peer was last told."""

    def broadcast(self, payload: bytes) -> Effects:
        packet = self.send(payload)
        return Effects((Send((self.relay,), packet),), message=_id(packet))

    def send(self, payload: bytes) -> UplinkPacket:
        self.sent += 1
        packet = UplinkPacket(
            payload, self.me, self.sent, OffsetBitmap.from_numbers(self.causes), self.delivered.base
        )
        self.causes.clear()
        self.unsaid = 0
        return packet

    def receive(self, link: int, packet: Packet) -> Iterator[Send]:
        if link != self.relay:
            raise RemoteError(f"a packet from peer {link}, but all come from the super peer {self.relay}")
        if isinstance(packet, NumberAssignment):
            self.echo(packet)
        elif isinstance(packet, DownlinkPacket):
            self.take(packet)
        else:
            raise RemoteError(f"an internal peer takes no packet {type(packet).__name__}")
        if self.unsaid >= self.ack_every:
            self.unsaid = 0
            yield Send(
                (self.relay,),
                InternalAck(self.sent, self.delivered.base, OffsetBitmap.from_numbers(self.causes)),
            )

    def echo(self, packet: NumberAssignment) -> None:
        if not 1 <= packet.seq <= self.sent:
            raise RemoteError("the echo of a message that this peer has not sent")
        self._number_may_be(packet.number)
        self.delivered.add(packet.number)
        self.holdback.release(packet.number, self.delivered.__contains__)

    def take(self, packet: DownlinkPacket) -> None:
        self._number_may_be(packet.number)
        named = packet.causes.numbers()
        if packet.origin == self.me or packet.seq < 1:
            raise RemoteError("a message of this peer came back under another's hand")
        if not all(1 <= number < packet.number for number in named) or not 0 <= packet.last < packet.number:
            raise RemoteError(f"message {packet.number} names a later one")
        if packet.number in self.delivered or packet.number in self.arrived:
            return
        self.arrived.add(packet.number)
        self.holdback.hold(packet, [packet.last, *named], self.delivered.__contains__)

    def _number_may_be(self, number: int) -> None:
        if not 1 <= number <= self.delivered.base + MAX_AHEAD:
            raise RemoteError(f"the super peer's number {number} cannot be")

    def deliver(self) -> Delivery | None:
        if not self.holdback.ready:
            return None
        packet = self.holdback.ready.pop(0)
        self.arrived.discard(packet.number)
        self.delivered.add(packet.number)
        self.causes.difference_update(packet.causes.numbers())
        self.causes.discard(packet.last)
        self.causes.add(packet.number)
        self.unsaid += 1
        self.holdback.release(packet.number, self.delivered.__contains__)
        return Delivery(_id(packet), packet.payload)

    def partners(self) -> tuple[int, ...]:
        return (self.relay,)

    def paper_storage(self) -> int:
        """RV from the first cleared bit to the last that is set, DV from the first to the last set."""
        return in_bytes(self.delivered.bits.bit_length()) + in_bytes(
            OffsetBitmap.from_numbers(self.causes).span
        )

    def waiting(self) -> list[Waiting]:
        held = self.holdback.waiting()
        here = {packet.number: _id(packet) for packet, _ in held}
        return [Waiting(_id(packet), here.get(number)) for packet, number in held]


class ExternalInbox(msgspec.Struct):
    """What a member of the external group has of the others' messages, and what it holds."""

    me: int
    supers: int
    """Ranks below this are super peers."""
    homes: list[int]
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How many messages of each external peer are delivered."""
    seen: dict[int, BitWindow] = msgspec.field(default_factory=dict)
    """Which of each super peer's numbers are delivered, or never come."""
    holdback: HoldBackQueue[Entry, tuple[int, ExternalPacket]] = msgspec.field(default_factory=HoldBackQueue)
    arrived: set[Entry] = msgspec.field(default_factory=set)

    def everyone(self) -> tuple[int, ...]:
        """The others of the external group."""
        return tuple(peer for peer, home in enumerate(self.homes) if peer == home != self.me)

    def is_delivered(self, entry: Entry) -> bool:
        peer, number = entry
        if peer == self.me:
            return True  # one's own, or of those behind one: sent, so delivered
        if peer < self.supers:
            return peer in self.seen and number in self.seen[peer]
        return self.counts.get(peer, 0) >= number

    def take(self, sender: int, packet: Packet, sent: int) -> None:
        """File a message; `sent` is how many this member has sent or numbered itself."""
        if not isinstance(packet, ExternalPacket):
            raise RemoteError(f"no packet {type(packet).__name__} comes from another site")
        named = self._validate(sender, packet, sent)
        if sender < self.supers:
            seen = self.seen.setdefault(sender, BitWindow())
            seen.add_between(packet.previous, packet.number)
            for number in packet.translated.numbers():
                seen.add(number)
        entry = (sender, packet.number)
        if entry in self.arrived or self.is_delivered(entry):
            return
        self.arrived.add(entry)
        before = packet.last if sender < self.supers else packet.number - 1
        self.holdback.hold((sender, packet), [(sender, before), *named], self.is_delivered)

    def _validate(self, sender: int, packet: ExternalPacket, sent: int) -> list[Entry]:
        """All that a packet names, if a correct member may have sent it."""
        if not 0 <= packet.origin < len(self.homes) or self.homes[packet.origin] != sender:
            raise RemoteError(f"peer {sender} does not speak for peer {packet.origin}")
        if sender < self.supers:
            known = self.seen[sender].base if sender in self.seen else 0
        else:
            known = self.counts.get(sender, 0)
            if (packet.number, packet.last) != (packet.seq, 0):
                raise RemoteError("an external peer has one number for a message")
        before = all(0 <= number < packet.number for number in (packet.last, packet.previous))
        if not (before and packet.seq >= 1 and _within(packet.translated.numbers(), packet.number)):
            raise RemoteError("a packet with numbers that no message has")
        if packet.number > known + MAX_AHEAD:
            raise RemoteError(f"message number {packet.number} of peer {sender} cannot be")
        named = list(_entries(packet))
        for peer, number in named:
            most = packet.number - 1 if peer == sender else sent if peer == self.me else number
            if not (1 <= number <= most and 0 <= peer < len(self.homes) and self.homes[peer] == peer):
                raise RemoteError(f"a packet depends on message {number} of peer {peer}, which cannot be")
        if any(peer < self.supers for peer in packet.peers) or any(p >= self.supers for p in packet.supers):
            raise RemoteError("a packet takes a peer for a super peer, or the reverse")
        return named

    def next(self) -> tuple[int, ExternalPacket] | None:
        """The next message that can be delivered, with who sent it; asking for it is delivering it."""
        if not self.holdback.ready:
            return None
        sender, packet = self.holdback.ready.pop(0)
        self.arrived.discard((sender, packet.number))
        if sender < self.supers:
            self.seen[sender].add(packet.number)
        else:
            self.counts[sender] = packet.number
        self.holdback.release((sender, packet.number), self.is_delivered)
        return sender, packet

    def paper_storage(self) -> int:
        """VTx: 4 an external peer, and of each super peer the bits that are not solid yet."""
        peers = sum(home == peer for peer, home in enumerate(self.homes)) - self.supers
        return 4 * peers + sum(in_bytes(seen.bits.bit_length()) for seen in self.seen.values())

    def waiting(self) -> list[Waiting]:
        held = self.holdback.waiting()
        here = {(sender, packet.number): _id(packet) for (sender, packet), _ in held}
        return [
            Waiting(_id(packet), here.get(entry) if entry[0] < self.supers else MessageId(*entry))
            for (_, packet), entry in held
        ]


def _within(numbers: list[int], end: int) -> bool:
    return all(1 <= number < end for number in numbers)


def _entries(packet: ExternalPacket) -> Iterator[Entry]:
    yield from packet.peers.items()
    for peer, row in packet.supers.items():
        yield from ((peer, number) for number in row.numbers())


class ExternalPeer(msgspec.Struct, tag="external"):
    """An mbcp member, except that what comes through a super peer is named by bits."""

    outside: ExternalInbox
    sent: int = 0
    peers: dict[int, int] = msgspec.field(default_factory=dict)
    """The last message of each external peer, where the next message depends on it immediately."""
    supers: dict[int, set[int]] = msgspec.field(default_factory=dict)
    """The same for what came through super peers."""

    def broadcast(self, payload: bytes) -> Effects:
        self.sent += 1
        me = self.outside.me
        supers = {peer: OffsetBitmap.from_numbers(row) for peer, row in sorted(self.supers.items()) if row}
        peers = dict(sorted(self.peers.items()))
        packet = ExternalPacket(
            payload, me, self.sent, self.sent, 0, self.sent - 1, peers, supers, OffsetBitmap()
        )
        self.peers.clear()
        self.supers.clear()
        to = self.outside.everyone()
        return Effects((Send(to, packet),) if to else (), message=_id(packet))

    def receive(self, link: int, packet: Packet) -> Iterable[Send]:
        self.outside.take(link, packet, self.sent)
        return ()

    def deliver(self) -> Delivery | None:
        following = self.outside.next()
        if following is None:
            return None
        sender, packet = following
        self.forget(packet)
        if sender < self.outside.supers:
            mine = self.supers.setdefault(sender, set())
            mine.discard(packet.last)
            mine.add(packet.number)
        else:
            self.peers[sender] = packet.number
        return Delivery(_id(packet), packet.payload)

    def forget(self, packet: ExternalPacket) -> None:
        """What a delivered message depends on is no longer an immediate dependency of what comes next."""
        for peer, number in packet.peers.items():
            if self.peers.get(peer) == number:  # a newer one of that peer stays
                del self.peers[peer]
        for peer, row in packet.supers.items():
            self.supers.get(peer, set()).difference_update(row.numbers())

    def partners(self) -> tuple[int, ...]:
        return self.outside.everyone()

    def paper_storage(self) -> int:
        """VTx and CI: 4 + 4 a pair, and 4 and its bits a super peer."""
        rows = sum(4 + in_bytes(OffsetBitmap.from_numbers(row).span) for row in self.supers.values() if row)
        return self.outside.paper_storage() + 8 * len(self.peers) + rows

    def waiting(self) -> list[Waiting]:
        return self.outside.waiting()


class InternalProgress(msgspec.Struct):
    """What an internal peer has said last: it has everything up to `solid`, and may name `kept` of it."""

    solid: int = 0
    kept: set[int] = msgspec.field(default_factory=set)


class SuperPeer(msgspec.Struct, tag="super"):
    """Numbers all that goes by, and translates. Its own application is an internal peer at no distance."""

    outside: ExternalInbox
    own: InternalPeer
    inside: list[int]
    paper: bool
    number: int = 0
    heard: dict[int, Entry] = msgspec.field(default_factory=dict)
    """For each internal peer the last of its messages: its own number and the one it was given."""
    early: dict[int, dict[int, UplinkPacket]] = msgspec.field(default_factory=dict)
    """Messages of internal peers that came before their turn."""
    table: dict[int, Entry] = msgspec.field(default_factory=dict)
    """What came from outside, by its number here."""
    numbered: dict[Entry, int] = msgspec.field(default_factory=dict)
    """The table the other way round."""
    previous: int = 0
    """The number of the last message of internal origin."""
    untold: set[int] = msgspec.field(default_factory=set)
    """In the paper's form: numbers given to messages from outside since then."""
    words: dict[int, InternalProgress] = msgspec.field(default_factory=dict)
    steps: int = 0
    """Since entries were last dropped."""
    floor: int = 0
    """Up to here the table holds only `spared` entries."""
    spared: list[int] = msgspec.field(default_factory=list)

    def broadcast(self, payload: bytes) -> Effects:
        packet = self.own.send(payload)
        return Effects(tuple(self._pass_out(packet)), message=_id(packet))

    def receive(self, link: int, packet: Packet) -> Iterator[Send]:
        if link in self.inside:
            if isinstance(packet, UplinkPacket):
                yield from self._from_inside(link, packet)
            elif isinstance(packet, InternalAck):
                self._acknowledged(link, packet)
            else:
                raise RemoteError(f"an internal peer sends no packet {type(packet).__name__}")
            return
        self.outside.take(link, packet, self.number)
        while (following := self.outside.next()) is not None:
            yield from self._pass_in(*following)

    def _from_inside(self, link: int, packet: UplinkPacket) -> Iterator[Send]:
        done = self.heard.get(link, (0, 0))[0]
        if packet.origin != link or not 1 <= packet.seq <= done + MAX_AHEAD:
            raise RemoteError(f"message {packet.seq} of peer {packet.origin} cannot come from peer {link}")
        self._may_say(packet.solid, packet.causes)
        if packet.seq <= done:
            return
        early = self.early.setdefault(link, {})
        early[packet.seq] = packet
        while (following := early.pop(done + 1, None)) is not None:
            done += 1
            yield from self._pass_out(following)
            self._said(link, InternalProgress(following.solid))

    def _may_say(self, solid: int, named: OffsetBitmap) -> None:
        numbers = named.numbers()
        if not 0 <= solid <= self.number or not all(1 <= number <= self.number for number in numbers):
            raise RemoteError("an internal peer speaks of messages that it cannot have")

    def _pass_out(self, packet: UplinkPacket) -> Iterator[Send]:
        """A message from inside, to the others inside and, translated, to the external group."""
        _, last = self.heard.get(packet.origin, (0, 0))
        self.number += 1
        self.heard[packet.origin] = (packet.seq, self.number)
        down = DownlinkPacket(packet.payload, packet.origin, packet.seq, self.number, last, packet.causes)
        yield from self._hand_in(down)
        to = self.outside.everyone()
        if to:
            yield Send(to, self._translate_out(down))
        self.previous = self.number

    def _hand_in(self, down: DownlinkPacket) -> Iterator[Send]:
        others = tuple(peer for peer in self.inside if peer != down.origin)
        if others:
            yield Send(others, down)
        echo = NumberAssignment(down.seq, down.number)
        if down.origin == self.own.me:
            self.own.echo(echo)
        else:
            self.own.take(down)
            if down.origin in self.inside:
                yield Send((down.origin,), echo)

    def _translate_out(self, down: DownlinkPacket) -> ExternalPacket:
        peers: dict[int, int] = {}
        supers: dict[int, set[int]] = {}
        last, previous, translated = down.last, self.previous, set[int]()
        if self.paper:
            translated, self.untold = self.untold, set()
            previous = self.number - 1
            if last:
                supers[self.outside.me] = {last}
            last = 0
        for number in down.causes.numbers():
            peer, theirs = self.table.get(number, (self.outside.me, number))
            if peer < self.outside.supers:
                supers.setdefault(peer, set()).add(theirs)
            else:
                peers[peer] = max(theirs, peers.get(peer, 0))
            if self.paper and number in self.table:
                translated.add(number)
        rows = {peer: OffsetBitmap.from_numbers(row) for peer, row in sorted(supers.items())}
        peers = dict(sorted(peers.items()))
        return ExternalPacket(
            down.payload,
            down.origin,
            down.seq,
            down.number,
            last,
            previous,
            peers,
            rows,
            OffsetBitmap.from_numbers(translated),
        )

    def _pass_in(self, sender: int, packet: ExternalPacket) -> Iterator[Send]:
        """A message from outside, translated, to those inside."""
        self.number += 1
        causes, last = self._named_inside(packet), self._last_inside(sender, packet)
        self.table[self.number] = (sender, packet.number)
        self.numbered[sender, packet.number] = self.number
        if self.paper:
            self.untold.add(self.number)
        self._forget_now_and_then()
        yield from self._hand_in(
            DownlinkPacket(
                packet.payload,
                packet.origin,
                packet.seq,
                self.number,
                last,
                OffsetBitmap.from_numbers(causes),
            )
        )

    def _named_inside(self, packet: ExternalPacket) -> set[int]:
        """What a packet names, in this super peer's numbers; what has left the table is with all inside."""
        me = self.outside.me
        entries = _entries(packet)
        return {
            number if peer == me else self.numbered.get((peer, number), 0) for peer, number in entries
        } - {0}

    def _last_inside(self, sender: int, packet: ExternalPacket) -> int:
        before = packet.last if sender < self.outside.supers else packet.number - 1
        return self.numbered.get((sender, before), 0)

    def _acknowledged(self, link: int, packet: InternalAck) -> None:
        self._may_say(packet.solid, packet.kept)
        # Before its turn it says too much; after a message or another of these, what it says is old.
        in_turn = self.heard.get(link, (0, 0))[0] == packet.after
        if in_turn and packet.solid >= self.words.get(link, InternalProgress()).solid:
            self._said(link, InternalProgress(packet.solid, set(packet.kept.numbers())))

    def _said(self, peer: int, word: InternalProgress) -> None:
        self.words[peer] = word
        self._forget_now_and_then()

    def _forget_now_and_then(self) -> None:
        """Once in as many steps as there are peers inside, so that each step costs O(1) of it."""
        self.steps += 1
        if self.steps > len(self.inside):
            self.steps = 0
            self._forget()

    def _forget(self) -> None:
        """Drop the table's entries that nobody inside will name again."""
        words = [InternalProgress(self.own.delivered.base, self.own.causes)]
        words += [self.words.get(peer, InternalProgress()) for peer in self.inside]
        floor = min(word.solid for word in words)
        in_use = set[int]().union(*(word.kept for word in words))
        candidates = [*self.spared, *range(self.floor + 1, floor + 1)]
        self.spared = [number for number in candidates if number in in_use]
        for number in candidates:
            if number not in in_use and number in self.table:
                del self.numbered[self.table.pop(number)]
        self.floor = floor

    def deliver(self) -> Delivery | None:
        return self.own.deliver()

    def waiting(self) -> list[Waiting]:
        return self.outside.waiting() + self.own.waiting()

    def partners(self) -> tuple[int, ...]:
        return tuple(sorted((*self.inside, *self.outside.everyone())))

    def paper_storage(self) -> int:
        """VTx, LR and TT: 4 a number."""
        return self.outside.paper_storage() + 8 * len(self.heard) + 8 * len(self.table)
