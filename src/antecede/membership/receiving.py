"""How a member receives messages of others: directly, early, late, fetched or forwarded."""

from __future__ import annotations

from antecede.membership.packets import (
    Departure,
    FetchReply,
    Stream,
    decode_content,
    is_plain,
    is_sent_directly,
)
from antecede.membership.removing import RemovingMember
from antecede.membership.view_flooding import LinkReady, LinkRequest
from antecede.protocols.base import Packet, RemoteError


def is_direct(part: Packet) -> bool:
    """Whether a message is one that no member forwards."""
    payload = part.payloads_by_span()[0][0]
    return not is_plain(payload) and is_sent_directly(decode_content(payload))


class ReceivingMember(RemovingMember, kw_only=True):
    """Passes messages to the protocol, once the admission of their senders is delivered."""

    def _receive_packet(self, link: int, source: Stream | None, packet: Packet, now: int) -> None:
        if self.order.takes_unknown and source not in self.addresses:
            return  # a link delivers all causes of its messages, or is not used at all
        parts = self.order.parts(packet)
        self._receive_messages(source, parts, now)
        if not self.order.relays:
            self._note_last(link, parts[-1])

    def _receive_messages(
        self,
        source: Stream | None,
        parts: list[Packet],
        now: int,
        link: Stream | None = None,
        is_fetched: bool = False,
    ) -> None:
        """Packets with messages of one stream each, from one member (None if it is unknown). The protocol
        processes them as if they came from `link`, if that is given."""
        taken = [part for part in parts if self._takes(source, part, is_fetched)]
        link = source if link is None else link
        forwarded = []
        for part in taken:
            if self.order.relays and is_direct(part):
                self._carry_out(self.order.receive_directly(part, now))
            else:
                forwarded.append(part)
        for packet in self.order.joined(forwarded):
            origin = packet.message_ids()[0].origin
            self._carry_out(self.order.receive(origin if link is None else link, packet, now))
        if not self.ends:
            return
        for origin in {part.message_ids()[0].origin for part in taken} & self.ends.keys():
            self.order.discard_beyond(origin, self.ends[origin])
            self._drop_beyond(origin, self.ends[origin])

    def _takes(self, source: Stream | None, packet: Packet, is_fetched: bool = False) -> bool:
        """Whether a packet is for the protocol now; it may also be early, late or a lie."""
        messages = packet.message_ids()
        if not messages:
            raise RemoteError("a packet without a message")
        origin = messages[0].origin
        if origin == self.stream or origin in self.tombstones or self._is_beyond(messages[0]):
            return False
        if origin in self.removals.removed and not self._takes_removed(source, is_fetched):
            return False
        if origin not in self.order.delivered and not self.order.takes_unknown:
            sender = origin if source is None else source
            self.early.setdefault(origin, []).append((sender, self.encode(packet)))
            if self._is_void(packet):
                self._refuse_void()
            return False
        has_received = self.order.has_received
        if lacking := [message for message in messages if not has_received(message)]:
            data = self.encode(packet)
            for message in lacking:
                self._retain(message, data)
        return True

    def _takes_removed(self, source: Stream | None, is_fetched: bool) -> bool:
        """Whether messages of a removed stream are accepted after this member has reported what it holds of
        it.

        They are accepted only from a member that takes part in the removal, and only as the answer to a
        fetch: that member has reported them too. A message that it forwarded before its report may lie beyond
        a gap there, and be dropped. If links bring all messages in order, there are no gaps.
        """
        return source in self.addresses and (is_fetched or bool(self.order.takes_unknown))

    def _on_fetched(self, source: Stream, reply: FetchReply, now: int) -> None:
        for data in reply.messages:
            for link, part in self.order.on_repair(self._decode_message(data)):
                if part.message_ids()[0].origin in self.order.delivered:
                    self._receive_messages(source, [part], now, link, is_fetched=True)

    def _on_link_packet(self, source: Stream, packet: Packet) -> None:
        """Handle a packet with which the protocol opens or closes a link."""
        self._send_again(self.order.on_control(source, packet))
        if isinstance(packet, LinkRequest):
            self._supply_link(self.addresses[source], packet)

    def _supply_link(self, address: int, request: LinkRequest) -> None:
        """Send the messages that the other end of a link lacks, in the order in which they arrived here. A
        member that has left sends everything that had arrived by then, delivered or not: on its other links
        these messages went ahead of its departure, and the end of a removed stream may depend on that."""
        for (stream, seq), entry in self._in_order_of_arrival():
            if seq > request.counts.get(stream, 0):
                self._send_message((address,), self._decode_message(entry.packet))
        self._send(address, LinkReady())

    # Members that have left

    def _note_last(self, link: int, packet: Packet) -> None:
        """If members do not forward messages, a leaver's own copy of its last message is its last packet."""
        (payloads,) = packet.payloads_by_span()
        if not is_plain(payloads[-1]) and isinstance(decode_content(payloads[-1]), Departure):
            origin = packet.message_ids()[-1].origin
            # If no member is known there, its admission is in transit.
            if self.stream_at.get(link, origin) == origin:
                self._on_farewell(origin)

    def _on_farewell(self, stream: Stream) -> None:
        if stream not in self.tombstones:  # a member that was never admitted may leave too
            self.gone.add(stream)
        self.progress.coming.discard(stream)
        self.is_stale = True
