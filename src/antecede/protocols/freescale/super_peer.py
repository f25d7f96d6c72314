"""Super peers of a free-scale network: they number every message that passes and translate dependencies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.protocols.base import Delivery, Effects, Packet, RemoteError, Send, Waiting
from antecede.protocols.freescale.external import ExternalInbox, ExternalNumber, dependencies
from antecede.protocols.freescale.internal import InternalPeer
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    InternalAck,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.limits import MAX_AHEAD


class InternalProgress(msgspec.Struct):
    """The last report of an internal peer: it has delivered everything up to `delivered_up_to`, and may name
    only `causes` of it."""

    delivered_up_to: int = 0
    causes: set[int] = msgspec.field(default_factory=set)


class SuperPeer(msgspec.Struct, tag="super"):
    """A member of the external group that relays for internal peers. Its own application is one of them."""

    inbox: ExternalInbox
    application: InternalPeer
    inside: list[int]
    """The internal peers behind it."""
    paper_form: bool
    number: int = 0
    """The last number assigned."""
    last_internal: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    """For each internal peer its last message: the position, and the number assigned to it."""
    out_of_order: dict[int, dict[int, UplinkPacket]] = msgspec.field(default_factory=dict)
    """Messages of each internal peer that arrived before an earlier one, by position."""
    table: dict[int, ExternalNumber] = msgspec.field(default_factory=dict)
    """The translation table: external messages by the number assigned here."""
    assigned: dict[ExternalNumber, int] = msgspec.field(default_factory=dict)
    """The inverse of the table."""
    last_sent_outside: int = 0
    """The number of the last message of internal origin."""
    never_sent: set[int] = msgspec.field(default_factory=set)
    """In the paper's form: the numbers assigned to external messages since then."""
    progress: dict[int, InternalProgress] = msgspec.field(default_factory=dict)
    """The last report of each internal peer."""
    steps: int = 0
    """Steps since the table was last cleaned up."""
    cleaned_up_to: int = 0
    """Up to this number the table holds only `retained` entries."""
    retained: list[int] = msgspec.field(default_factory=list)

    def broadcast(self, payload: bytes) -> Effects:
        packet = self.application.create_packet(payload)
        return Effects(tuple(self._forward_internal(packet)), message=packet.message_ids()[0])

    def receive(self, link: int, packet: Packet) -> Iterator[Send]:
        if link in self.inside:
            if isinstance(packet, UplinkPacket):
                yield from self._receive_internal(link, packet)
            elif isinstance(packet, InternalAck):
                self._receive_ack(link, packet)
            else:
                raise RemoteError(f"a packet of type {type(packet).__name__} from an internal peer")
            return
        self.inbox.accept(link, packet, self.number)
        while (delivered := self.inbox.deliver_next()) is not None:
            yield from self._forward_external(*delivered)

    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        """Until it has numbered a message: a message from inside to all members, one from outside to the
        internal peers."""
        origin, seq = message
        if origin == self.application.me:
            return ()
        if origin in self.inside:
            return () if self.last_internal.get(origin, (0, 0))[0] >= seq else self.partners()
        return () if self.inbox.delivered_counts.get(origin, 0) >= seq else tuple(self.inside)

    # From inside to outside.

    def _receive_internal(self, link: int, packet: UplinkPacket) -> Iterator[Send]:
        last = self.last_internal.get(link, (0, 0))[0]
        if self._inside(packet.origin) != link or not 1 <= packet.position <= last + MAX_AHEAD:
            raise RemoteError(f"message {packet.seq} of peer {packet.origin} from internal peer {link}")
        self._validate_report(packet.delivered_up_to, packet.causes)
        if packet.position <= last:
            return
        early = self.out_of_order.setdefault(link, {})
        early[packet.position] = packet
        while (following := early.pop(last + 1, None)) is not None:
            last += 1
            yield from self._forward_internal(following)
            self._record_progress(link, InternalProgress(following.delivered_up_to))

    def _inside(self, origin: int) -> int:
        """The internal peer that the messages of an origin come from, if they come from inside."""
        return origin

    def _validate_report(self, delivered_up_to: int, causes: OffsetBitmap) -> None:
        numbers = causes.numbers()
        if not 0 <= delivered_up_to <= self.number or not all(1 <= each <= self.number for each in numbers):
            raise RemoteError("an internal peer names numbers that were not assigned")

    def _forward_internal(self, packet: UplinkPacket) -> Iterator[Send]:
        """A message from inside goes to the other internal peers and, translated, to the external group."""
        source = self._inside(packet.origin)
        _, previous = self.last_internal.get(source, (0, 0))
        self.number += 1
        self.last_internal[source] = (packet.position, self.number)
        down = DownlinkPacket(packet.payload, packet.origin, packet.seq, self.number, previous, packet.causes)
        yield from self._send_inside(down)
        yield from self._send_outside(down)
        self.last_sent_outside = self.number

    def _send_inside(self, down: DownlinkPacket) -> Iterator[Send]:
        source = self._inside(down.origin)
        others = tuple(peer for peer in self.inside if peer != source)
        if others:
            yield Send(others, down)
        if source == self.application.me:
            self.application.assign_number(NumberAssignment(down.seq, down.number))
        else:
            self.application.accept(down)
            if source in self.inside:
                position, _ = self.last_internal[source]
                yield Send((source,), NumberAssignment(position, down.number))

    def _send_outside(self, down: DownlinkPacket) -> Iterator[Send]:
        to = self.inbox.others()
        if to:
            yield Send(to, self._translate_outwards(down))

    def _translate_outwards(self, down: DownlinkPacket) -> ExternalPacket:
        peers: dict[int, int] = {}
        supers: dict[int, set[int]] = {}
        sender_previous, relay_previous = down.sender_previous, self.last_sent_outside
        translated: set[int] = set()
        if self.paper_form:
            translated, self.never_sent = self.never_sent, set()
            relay_previous = self.number - 1
            if sender_previous:
                supers[self.inbox.me] = {sender_previous}
            sender_previous = 0
        for number in down.causes.numbers():
            peer, their_number = self.table.get(number, (self.inbox.me, number))
            if peer < self.inbox.super_peers:
                supers.setdefault(peer, set()).add(their_number)
            else:
                peers[peer] = max(their_number, peers.get(peer, 0))
            if self.paper_form and number in self.table:
                translated.add(number)
        return ExternalPacket(
            down.payload,
            down.origin,
            down.seq,
            down.number,
            sender_previous,
            relay_previous,
            dict(sorted(peers.items())),
            {peer: OffsetBitmap.from_numbers(numbers) for peer, numbers in sorted(supers.items())},
            OffsetBitmap.from_numbers(translated),
        )

    # From outside to inside.

    def _forward_external(self, sender: int, packet: ExternalPacket) -> Iterator[Send]:
        """A message from outside goes, translated, to the internal peers."""
        causes = OffsetBitmap.from_numbers(self._translate_causes(packet))
        previous = self._translate_previous(sender, packet)
        self._assign_number((sender, packet.number))
        yield from self._send_inside(
            DownlinkPacket(packet.payload, packet.origin, packet.seq, self.number, previous, causes)
        )

    def _assign_number(self, entry: ExternalNumber) -> None:
        """Assign the next number to a message from outside."""
        self.number += 1
        self.table[self.number] = entry
        self.assigned[entry] = self.number
        if self.paper_form:
            self.never_sent.add(self.number)
        self._clean_up_occasionally()

    def _translate_causes(self, packet: ExternalPacket) -> set[int]:
        """The dependencies of a packet, as numbers assigned here. Every internal peer has those no longer in
        the table."""
        me = self.inbox.me
        return {
            number if peer == me else self.assigned.get((peer, number), 0)
            for peer, number in dependencies(packet)
        } - {0}

    def _translate_previous(self, sender: int, packet: ExternalPacket) -> int:
        previous = packet.sender_previous if sender < self.inbox.super_peers else packet.number - 1
        return self.assigned.get((sender, previous), 0)

    # Cleaning up the table.

    def _receive_ack(self, link: int, packet: InternalAck) -> None:
        self._validate_report(packet.delivered_up_to, packet.causes)
        # Before the message it follows, the report claims too much; after a later message or report, it is
        # outdated.
        is_current = self.last_internal.get(link, (0, 0))[0] == packet.after
        known = self.progress.get(link, InternalProgress()).delivered_up_to
        if is_current and packet.delivered_up_to >= known:
            causes = set(packet.causes.numbers())
            self._record_progress(link, InternalProgress(packet.delivered_up_to, causes))

    def _record_progress(self, peer: int, progress: InternalProgress) -> None:
        self.progress[peer] = progress
        self._clean_up_occasionally()

    def _clean_up_occasionally(self) -> None:
        """Clean up once in as many steps as there are internal peers, so the amortised cost of a step is
        O(1)."""
        self.steps += 1
        if self.steps > len(self.inside):
            self.steps = 0
            self._clean_up()

    def _clean_up(self) -> None:
        """Drop the entries of the table that no internal peer will name again."""
        reports = [InternalProgress(self.application.delivered.base, self.application.causes)]
        reports += [self.progress.get(peer, InternalProgress()) for peer in self.inside]
        delivered_by_all = min(report.delivered_up_to for report in reports)
        in_use = set[int]().union(*(report.causes for report in reports))
        candidates = [*self.retained, *range(self.cleaned_up_to + 1, delivered_by_all + 1)]
        self.retained = [number for number in candidates if number in in_use]
        for number in candidates:
            if number not in in_use and number in self.table:
                del self.assigned[self.table.pop(number)]
        self.cleaned_up_to = delivered_by_all

    def deliver(self) -> Delivery | None:
        return self.application.deliver()

    def waiting(self) -> list[Waiting]:
        return self.inbox.waiting() + self.application.waiting()

    def partners(self) -> tuple[int, ...]:
        return tuple(sorted((*self.inside, *self.inbox.others())))

    def members_behind(self) -> dict[int, frozenset[int]]:
        return {peer: frozenset((peer,)) for peer in self.inside}

    def paper_storage(self) -> int:
        """VTx, LR and TT: 4 bytes a number."""
        return self.inbox.paper_storage() + 8 * len(self.last_internal) + 8 * len(self.table)
