"""The state of a member, and how it sends and retains messages."""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from antecede.causality import MessageId
from antecede.membership.backlog import Backlog
from antecede.membership.packets import (
    ApplicationData,
    Content,
    ControlPacket,
    Counts,
    Stream,
    encode_content,
)
from antecede.membership.progress import StreamProgress
from antecede.membership.removal import Removals
from antecede.membership.sealing import NO_SEALS, Sealer
from antecede.membership.view_flooding import LinkRequest
from antecede.protocols.base import (
    Delivery,
    Effects,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
)


class Phase(IntEnum):
    """The phase of the process at an address."""

    OUTSIDE = 0
    JOINING = 1
    MEMBER = 2
    LEAVING = 3
    """It has left, and supplies messages that others may lack."""
    ENDED = 4
    """It has terminated."""
    REMOVED = 5
    """It was removed. It may return as another incarnation, with messages that others may have lost."""


_MEMBER = Phase.MEMBER


class ViewChange(NamedTuple):
    """A member was admitted, has left or was removed, or its stream was closed, as seen here."""

    kind: Literal["admit", "leave", "remove", "disown", "close"]
    member: Stream
    message: MessageId
    """The message that changed the view; for `close`, the last one of the closed stream."""


class RetainedMessage(msgspec.Struct):
    """A message that this member has and others may lack."""

    packet: bytes
    arrived: int
    """In the order of arrivals here."""
    place: int = 0
    """In the order of deliveries here; 0 if it is not delivered yet."""


@functools.cache
def _decoder(kind: type[MemberState]) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a protocol's packets. Creating one takes longer than decoding a packet."""
    return msgspec.msgpack.Decoder(kind.packets)


class MemberState(Protocol, kw_only=True, dict=True):
    """One incarnation of a member. Its address is `me`; `size` is how many addresses there are."""

    ordering: ClassVar[type[Any]]
    """The protocol that keeps causal order."""
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=True)
    membership: ClassVar[str] = "members join, leave, and are removed"
    symmetric: ClassVar[bool] = False
    is_changing: ClassVar[bool] = True
    reroutes: ClassVar[bool] = False
    """Whether a suspicion changes the routes of messages."""
    sealer: ClassVar[Sealer] = NO_SEALS
    """Set by the driver; not saved with the member."""

    order: Any
    phase: Phase = Phase.MEMBER
    stream: Stream
    addresses: Counts
    """The members of the view, and their addresses."""
    stream_at: dict[int, Stream] = msgspec.field(default_factory=dict)
    """By address: the stream of the member there, including former members that are not forgotten or were
    removed."""
    gone: set[Stream] = msgspec.field(default_factory=set)
    """Members that have left and from which no further packet can arrive."""
    ends: Counts = msgspec.field(default_factory=dict)
    """Where streams end, of those that have ended. Nothing beyond the end is delivered."""
    unstable: dict[Stream, dict[int, RetainedMessage]] = msgspec.field(default_factory=dict)
    """Messages held, or delivered and not known to be stable."""
    arrivals: int = 0
    deliveries: int = 0
    before_welcome: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Packets that arrived before this process knew that it was admitted, each with the sender's address."""
    early: dict[Stream, list[tuple[Stream, bytes]]] = msgspec.field(default_factory=dict)
    """By stream whose admission is not delivered yet: its packets, each with the member that sent it."""
    early_before: Counts = msgspec.field(default_factory=dict)
    """If members forward messages: the number of packets in `early` at the last report, by stream."""
    early_requests: dict[Stream, bytes] = msgspec.field(default_factory=dict)
    """Link requests from members whose admission is not delivered yet."""
    is_stale: bool = False
    """Whether an event since the last check may make messages stable, or streams done."""
    progress: StreamProgress = msgspec.field(default_factory=StreamProgress)
    removals: Removals = msgspec.field(default_factory=Removals)
    unstable_admissions: dict[Stream, MessageId] = msgspec.field(default_factory=dict)
    """The messages that admitted members of the view, as far as they are not known to be stable."""
    forwards: bool = False
    """Whether a newcomer may take a while to get links to all members. Then its sponsor forwards its
    deliveries to the newcomer."""
    newcomers: Counts = msgspec.field(default_factory=dict)
    """Members to which this one forwards, since it has admitted them and some members may not know them yet,
    and for each the last arrival here that its welcome contains."""
    tombstones: Counts = msgspec.field(default_factory=dict)
    """Where the streams of removed members that are forgotten ended."""
    forgotten: dict[Stream, Counts] = msgspec.field(default_factory=dict)
    """Forgotten streams that messages up to these counts may still name, kept until those are stable."""
    forgets: int = 0
    """How many streams were forgotten."""
    admissions: dict[Stream, MessageId] = msgspec.field(default_factory=dict)
    """The messages that admitted the streams that are not forgotten."""
    contacts: dict[Stream, bytes] = msgspec.field(default_factory=dict)
    """The contacts of streams' members, including removed ones, encoded by drivers."""
    backlog: Backlog = msgspec.field(default_factory=Backlog)
    """The messages of this process's former incarnation that are still to be brought back."""
    originals: set[MessageId] = msgspec.field(default_factory=set)
    """The original ids of messages that were broadcast again, and delivered."""
    authors: dict[Stream, dict[int, int]] = msgspec.field(default_factory=dict)
    """For each slot of a super peer, the last message of its phones that is delivered; again under minus the
    slot's number, if its phone was expelled. Once the super peer has left: only for slots of phones that it
    had expelled, and for itself, whose slot is 0."""
    undelivered: list[Delivery] = msgspec.field(default_factory=list)
    """Deliveries that precede all others for the application, such as messages that this member brought
    back."""
    requests: list[int] = msgspec.field(default_factory=list)
    """The addresses of processes that ask for admission."""
    snapshot: bytes | None = None
    """The initial state for this member's application."""
    awaiting: set[Stream] = msgspec.field(default_factory=set)
    """After it has left: the members that may lack its last message."""
    sent_to: set[Stream] = msgspec.field(default_factory=set)
    """After it has left: the members to which its last message was sent. A member that has delivered it knows
    them all."""
    ended: set[Stream] = msgspec.field(default_factory=set)
    """After it has left: the streams whose members do not lack its last message, or no longer need it."""
    heard: dict[Stream, Counts] = msgspec.field(default_factory=dict)
    """The counts that others have reported, whether the report has taken effect or not."""
    lacked: Counts = msgspec.field(default_factory=dict)
    """For each stream of which others have more: the last message held here, at the last report."""
    reports: int = 0
    """How many times this member has reported."""
    fetching: set[tuple[Stream, Stream, int]] = msgspec.field(default_factory=set)
    """The requests since then: the member that was asked, the stream, and up to which message."""
    outbox: list[Any] = msgspec.field(default_factory=list)
    """The sends (`Send`) of the present call."""
    changes: list[ViewChange] = msgspec.field(default_factory=list)
    """Changes of the view, for the driver to take."""

    def use_sealer(self, sealer: Sealer) -> None:
        vars(self)["sealer"] = sealer

    @property
    def is_member(self) -> bool:
        return self.phase is _MEMBER

    @property
    def view(self) -> set[Stream]:
        return set(self.addresses)

    def _closed(self) -> Counts:
        """The streams that have ended and are delivered completely, and where they ended."""
        delivered = self.order.delivered
        return {stream: end for stream, end in self.ends.items() if delivered.get(stream, 0) >= end}

    def _unclosed(self) -> set[Stream]:
        """The removed members whose streams are not delivered completely, as far as is known here."""
        if not self.removals.removed:
            return set()
        delivered = self.order.delivered
        return {
            stream
            for stream in self.removals.removed
            if stream not in self.ends or delivered.get(stream, 0) < self.ends[stream]
        }

    def _end_of(self, stream: Stream) -> int | None:
        """Where a stream ended, if it is delivered completely. Messages that were lost depend on delivered
        ones."""
        end = self.ends.get(stream)
        if end is not None and self.order.delivered.get(stream, 0) >= end:
            return end
        return self.tombstones.get(stream)

    def _is_beyond(self, message: MessageId) -> bool:
        stream, seq = message
        return seq > self.ends.get(stream, self.tombstones.get(stream, seq))

    # Retention

    def _retain(self, message: MessageId, data: bytes, is_delivered: bool = False) -> None:
        self.arrivals += 1
        self.deliveries += is_delivered
        entry = RetainedMessage(data, self.arrivals, self.deliveries if is_delivered else 0)
        self.unstable.setdefault(message.origin, {})[message.seq] = entry

    def _in_causal_order(self) -> list[RetainedMessage]:
        """Delivered messages in the order of delivery, then held ones. A message may arrive before its
        causes."""
        entries = [entry for entries in self.unstable.values() for entry in entries.values()]
        return sorted(entries, key=lambda each: (not each.place, each.place, each.arrived))

    def _in_order_of_arrival(self) -> list[tuple[MessageId, RetainedMessage]]:
        found = [
            (MessageId(stream, seq), entry)
            for stream, entries in self.unstable.items()
            for seq, entry in entries.items()
        ]
        return sorted(found, key=lambda each: each[1].arrived)

    def _drop_beyond(self, stream: Stream, last: int) -> None:
        """Drop messages beyond `last` that are not delivered. A process that has delivered more than everyone
        else holds is no member, though it may not know it yet, and brings the rest back when it returns."""
        entries = self.unstable.get(stream, {})
        for seq in [seq for seq, entry in entries.items() if seq > last and not entry.place]:
            del entries[seq]
        if not entries:
            self.unstable.pop(stream, None)

    @classmethod
    def decode(cls, data: bytes) -> Packet:
        try:
            packet: Packet = _decoder(cls).decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteError(f"not a packet of {cls.name}: {error}") from error
        return packet

    def _decode_message(self, data: bytes) -> Packet:
        packet = self.decode(data)
        if isinstance(packet, ControlPacket):
            raise RemoteError("a packet where a message should be")
        return packet

    def _payload(self, message: MessageId, data: bytes) -> bytes:
        packet = self._decode_message(data)
        for (origin, first, _), payloads in zip(packet.spans(), packet.payloads_by_span(), strict=True):
            if origin == message.origin and first <= message.seq < first + len(payloads):
                return payloads[message.seq - first]
        raise LocalError(f"a packet without {message}")

    # Messages of the application

    def _identify(
        self, content: ApplicationData, message: MessageId
    ) -> tuple[MessageId, tuple[Stream, int] | None]:
        """The id of a message for applications, and which phone has broadcast it, if one has."""
        return content.original or message, content.author

    def _on_application(self, content: ApplicationData, message: MessageId, causes: Counts) -> None:
        """An application message that names `causes` is delivered here, or was sent by this member."""

    # The view

    def _admission_chain(self, stream: Stream) -> dict[Stream, MessageId]:
        """The message that admitted a member, the one that admitted its sponsor, and so on, as far as some
        members may never have them. A sponsor may be gone; a member that does not know the sponsor learns
        from this chain whether it ever will."""
        chain: dict[Stream, MessageId] = {}
        while stream not in chain:  # only lies form a cycle
            message = self.admissions.get(stream)
            if message is None or not self._may_be_unknown(stream):
                break
            chain[stream], stream = message, message.origin
        return chain

    def _whole_chain(self, stream: Stream) -> dict[Stream, MessageId]:
        """As `_admission_chain`, but with all known admissions, for a process that may ask a member that was
        removed long ago."""
        chain: dict[Stream, MessageId] = {}
        while stream not in chain and (message := self.admissions.get(stream)) is not None:
            chain[stream], stream = message, message.origin
        return chain

    def _may_be_unknown(self, stream: Stream) -> bool:
        """Whether others may not know a stream. A member that has left may have an ended stream in its
        `addresses`, because another member reported it."""
        return stream in self.unstable_admissions or stream not in self.addresses or stream in self.ends

    def _exclude(self, stream: Stream) -> None:
        self.unstable_admissions.pop(stream, None)
        self.newcomers.pop(stream, None)
        if self.addresses.pop(stream, None) is not None:
            self._announce_view()

    def _announce_view(self) -> None:
        """Notify the protocol of the view."""
        self.is_stale = True
        self._send_again(self.order.set_view(tuple(sorted(self.addresses.keys() - {self.stream}))))

    def _send_again(self, items: list[tuple[Stream, MessageId | Packet]]) -> None:
        """Send packets of the protocol, and messages to members that may lack them because other members
        failed to forward them."""
        for member, item in items:
            if isinstance(item, LinkRequest):
                chain = self._admission_chain(self.stream)
                item = msgspec.structs.replace(item, admissions=chain)
            if isinstance(item, Packet):
                self._send(self.addresses[member], item)
                continue
            entry = self.unstable.get(item.origin, {}).get(item.seq)
            if entry is not None and not self.progress.has_delivered(member, *item):
                self._send_message((self.addresses[member],), self._decode_message(entry.packet))

    def _end(self, stream: Stream, last: int) -> None:
        """A stream ends with this message."""
        self.ends[stream], self.is_stale = last, True
        if stream in self.order.delivered:
            self.order.discard_beyond(stream, last)
        self._drop_beyond(stream, last)
        self.changes.append(ViewChange("close", stream, MessageId(stream, last)))

    # Sending

    def _broadcast(self, content: Content, now: int) -> MessageId:
        effects = self.order.broadcast(self._seal(content), now)
        self._send_own(effects)
        message: MessageId = effects.message
        return message

    def _broadcast_directly(self, content: Content, now: int) -> None:
        """Broadcast a message that no other member forwards."""
        # If it is in no stream, the link on which it arrives identifies its sender.
        payload = encode_content(content) if self.order.takes_unknown else self._seal(content)
        self._send_own(self.order.broadcast_directly(payload, now))

    def _seal(self, content: Content) -> bytes:
        """The payload of this member's next message."""
        order, payload = self.order, encode_content(content)
        if self.sealer is NO_SEALS:
            return payload
        seq = order.delivered[self.stream] + 1
        return self.sealer.seal(self.stream, seq, payload, order.next_causes())

    def _send_own(self, effects: Effects) -> None:
        packet = next((send.packet for send in effects.sends), None)
        if packet is not None and effects.message is not None:
            self._retain(effects.message, self.encode(self.order.parts(packet)[0]), is_delivered=True)
        self._carry_out(effects)

    def _carry_out(self, effects: Effects) -> None:
        for send in effects.sends:
            addresses = tuple(self.addresses[each] for each in send.to if each in self.addresses)
            self._send_message(addresses, send.packet)

    def _send_message(self, addresses: tuple[int, ...], packet: Packet) -> None:
        """Send messages, except those of a stream that this member has announced as done: members that know
        this may have forgotten the stream."""
        announced = self.progress.announced
        if announced and any(origin in announced for origin, _ in packet.message_ids()):
            parts = [
                each for each in self.order.parts(packet) if each.message_ids()[0].origin not in announced
            ]
            for each in self.order.joined(parts):
                self._send_message(addresses, each)
        elif addresses:
            self.outbox.append(Send(addresses, packet))

    def _other_addresses(self) -> tuple[int, ...]:
        return tuple(self.addresses[each] for each in sorted(self.addresses.keys() - {self.stream}))

    def _send(self, address: int, packet: Packet) -> None:
        self.outbox.append(Send((address,), packet))

    def _effects(self, message: MessageId | None = None) -> Effects:
        sends, self.outbox = tuple(self.outbox), []
        return Effects(sends, message=message)

    def take_changes(self) -> list[ViewChange]:
        changes, self.changes = self.changes, []
        return changes
