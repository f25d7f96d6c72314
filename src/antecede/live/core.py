"""A member of a live group without clock, socket or disk: the protocol and the state around it.

It has the shape of etcd's raft. A driver feeds it events (`step`), takes what follows from them as one value
(`ready`), carries that out in order, and reports back (`advance`); `driver.py` is that loop:

    core.step(PacketReceived(link, number, data, now))
    ready = core.ready()
    persist(ready.records, ready.checkpoint)   # nothing that a crash could undo leaves the member
    send(ready.packets)
    core.advance(ready)

Deliveries are pulled one by one, so they do not wait for that loop:

    delivery = core.next_delivery(now, acks)   # a message that is durable already, or None
    persist(core.application.cursor)           # before the application sees it

The same events in the same order produce the same packets with the same numbers, so the log of events
restores a member after a crash (`recovery.py`). Time per event: that of the protocol. Memory: what the
protocol holds, unstable messages (`stability.py`), and packets that partners have not acknowledged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from antecede.causality import MessageId
from antecede.live.addressing import is_for
from antecede.live.application import ApplicationQueue
from antecede.live.envelope import Body, causes_in, named_causes, wrap
from antecede.live.equivocation import StatementArchive
from antecede.live.events import (
    AckReceived,
    Broadcast,
    CertificateLearned,
    Delivered,
    DeliveryAcked,
    Equivocated,
    Event,
    ForkNoticed,
    KeyStarted,
    Life,
    LogRecord,
    Opened,
    PacketReceived,
    Parked,
    PartnerMet,
    ProgressReceived,
    RepairReceived,
    TimerFired,
    Unparked,
)
from antecede.live.headers import NOTHING, About
from antecede.live.lineage import extend_lineage
from antecede.live.ready import Ready
from antecede.live.receiving import Receiver
from antecede.live.recovery import take_checkpoint
from antecede.live.repair import Repair
from antecede.live.seals import Seals, Signatures, Statement, content_of
from antecede.live.signed_order import SignedOrder
from antecede.live.stability import Stability, UnstableMessage, message_bytes
from antecede.live.trace_rows import DELIVER, RECEIVE, SEND, TraceBuffer, TraceRow
from antecede.live.transport.frames import Packets
from antecede.live.transport.outbox import CHAIN_START, Outbox
from antecede.live.versions import FIXED_WIRE
from antecede.protocols.base import (
    Delivery,
    Effects,
    LocalError,
    Packet,
    Protocol,
    Span,
    Waiting,
)
from antecede.protocols.limits import MAX_BATCH_MESSAGES

_MAX_BATCH = MAX_BATCH_MESSAGES
_MAX_BATCH_BYTES = 1 << 17
"""Messages broadcast in a row share a packet up to this size; a longer message is sent alone."""


class Core:
    """`durable` says whether there is a journal; without one nothing is recorded, and nothing waits for it.
    `own` says whether this member's broadcasts are delivered to its own application too. With `signatures`
    all messages and progress reports are signed, and those of others are verified."""

    def __init__(
        self,
        protocol: Protocol,
        traced: bool = False,
        durable: bool = True,
        own: bool = False,
        signatures: Signatures | None = None,
    ) -> None:
        self.is_durable, self.is_traced, self.delivers_own = durable, traced, own
        self.protocol, self.signatures = protocol, signatures
        in_packets = protocol.carries_immediate_dependencies
        self.names_causes = signatures is not None or (protocol.names_causes and not in_packets)
        """Whether payloads name causes: for applications, and in signed groups for their order."""
        self._says_causes = in_packets or self.names_causes
        self.me, self.size, self.partners = protocol.me, protocol.size, protocol.partners()
        self.seals = Seals(signatures) if signatures is not None else None
        self.signed_order = SignedOrder(protocol.size) if signatures is not None else None
        self.stability = Stability(protocol, self.seals)
        self.statements = (
            None if self.seals is None else StatementArchive(protocol, self.stability, self.seals)
        )
        self.repair = Repair(protocol, self.stability)
        self.timers: list[int] = []
        """The times of pending `TimerFired` events that the protocol has requested, the earliest first."""
        self.time = 0
        """The last time in the log."""

        self._create_links(durable)

        # The application
        self.causes: dict[int, int] = {}
        """The immediate dependencies of the next message."""
        self.broadcasts = 0
        """How many messages the application has broadcast."""
        self._staged: list[bytes] = []
        """Payloads broadcast in a row that were not passed to the protocol yet: they may share one packet."""
        self._staged_bytes = self._staged_at = 0
        self._staged_causes: dict[int, int] = {}
        """The dependencies of the first staged payload; each later one depends on the one before it."""
        self.called: tuple[str, ...] = ()
        """The names of this member: messages addressed to others are not delivered to its application."""
        self.application = ApplicationQueue(protocol.me)
        """The queue of deliveries to the application."""

        self._create_outputs(durable)
        self.receiver = Receiver(self)
        self._handlers = self._create_handlers()

    def _create_outputs(self, durable: bool) -> None:
        """What the next `Ready` contains."""
        self._records: list[LogRecord] = []
        self.packets: dict[int, list[bytes]] = {}
        self.repaired: list[tuple[MessageId, int]] = []
        self.trace = TraceBuffer(0 if durable else sys.maxsize)
        self.logged_deliveries = self.logged_held = 0
        self._next_number = int(durable)
        self._persisted = 0
        self._unblocking_number = 0
        """The number of the last `Ready` that may have unblocked held messages without containing a message
        of another member: by a control packet, or by a broadcast that a held message named as a cause."""

    def _create_handlers(self) -> dict[type, Any]:
        return {
            Broadcast: self._on_broadcast,
            PacketReceived: self.receiver.on_packet,
            RepairReceived: self.receiver.on_repair,
            TimerFired: self._on_timer,
            AckReceived: self._on_ack,
            ProgressReceived: self._on_progress,
            DeliveryAcked: self._on_delivery_acked,
            Parked: self._on_parked,
            Unparked: self._on_unparked,
            CertificateLearned: self.receiver.on_certificate,
            Equivocated: self.receiver.on_equivocated,
            Opened: self._on_opened,
            PartnerMet: self._on_partner_met,
        }

    def _create_links(self, durable: bool) -> None:
        self.outboxes = {peer: Outbox() for peer in self.partners}
        """Packets that partners have not acknowledged. `send_and_advance` adds those of `Ready.packets`."""
        self.sent = dict.fromkeys(self.partners, 0)
        self.received: dict[int, int] = dict.fromkeys(self.partners, 0)
        self.durably_received: Mapping[int, int] = dict(self.received) if durable else self.received
        """The durable part of `received`, which an `Ack` may confirm."""
        self.received_chain: dict[int, bytes] = dict.fromkeys(self.partners, CHAIN_START)
        """The chain values of the packets in `received`; `durable_chain` has those of the durable ones."""
        self.durable_chain: Mapping[int, bytes] = (
            dict(self.received_chain) if durable else self.received_chain
        )
        self.wire_versions = sorted(FIXED_WIRE)
        """The wire versions that this member speaks."""
        self.lineage: list[Life] = []
        """The lives of this member, the current one last."""
        self.partner_lineages: dict[int, list[Life]] = {}
        """The same for partners, as of their last greeting."""
        self.equivocators: dict[int, list[Statement]] = {}
        """Members that have sent different messages under one id, and the proof."""
        self.is_replaying = False
        """Whether the log is being replayed: its contents were verified before."""

    # Called by a driver

    def step(self, event: Event) -> None:
        """Handle an event. A `RemoteError` leaves the member as it was."""
        self._handlers[type(event)](event)

    def broadcast(self, body: Body, now: int, about: About = NOTHING) -> MessageId:
        """Broadcast a message. It reaches the protocol in one `Broadcast` with other messages that are
        broadcast before the next `ready` or delivery, or before a packet is full."""
        me, causes = self.me, self.causes
        others = None
        if self.names_causes:
            others = {peer: seq for peer, seq in causes.items() if peer != me}
        payload = wrap(body, self._says_causes and me in causes, others, "", now, about)
        if len(self._staged) == _MAX_BATCH or self._staged_bytes + len(payload) > _MAX_BATCH_BYTES:
            self._flush()
        if not self._staged:
            self._staged_at, self._staged_causes = now, causes
        self._staged.append(payload)
        self._staged_bytes += len(payload)
        self.broadcasts += 1
        self.causes = {me: self.broadcasts}
        return MessageId(me, self.broadcasts)

    @property
    def has_ready(self) -> bool:
        """Whether there is something to persist or to send."""
        unlogged = self._staged or self.stability.unlogged or (self.seals is not None and self.seals.unlogged)
        has_records = self._records or (self.is_durable and unlogged)
        return bool(has_records or self.packets or self.repaired)

    def ready(self, checkpoint: bool = False) -> Ready:
        """Everything to persist and to send since the last call."""
        self._flush()
        self._log_noticed()
        ready = Ready(
            number=self._next_number,
            records=() if checkpoint else self._records,
            checkpoint=take_checkpoint(self) if checkpoint else None,
            packets={
                peer: Packets(self.sent[peer] - len(bodies) + 1, bodies)
                for peer, bodies in self.packets.items()
            },
            received=dict(self.received),
            received_chain=dict(self.received_chain),
            broadcasts=self.stability.received[self.me].base,
            parked=self.application.parking,
            repaired=self.repaired,
            trace_length=self.trace.length - (0 if checkpoint else self._unlogged_deliveries),
        )
        if checkpoint:
            self.logged_deliveries, self.logged_held = self.application.delivered, self.held_for_signed_causes
        self._records, self.packets, self.repaired = [], {}, []
        self._next_number += self.is_durable
        return ready

    def advance(self, ready: Ready) -> None:
        """A `Ready` has been carried out."""
        if ready.trace_length > self.trace.durable:
            self.trace.durable = ready.trace_length
        if ready.number:
            self.durably_received, self.durable_chain = ready.received, ready.received_chain
            self._persisted = ready.number
        if ready.broadcasts:
            # Not before: after a crash the next message with this number would be mistaken for this one.
            self.stability.record_delivered(self.me, self.me, ready.broadcasts)
        if ready.parked:
            self.application.finish_parking(ready.parked)

    def has_timer_due(self, now: int) -> bool:
        """Whether a `TimerFired` is due."""
        return bool(self.timers) and self.timers[0] <= now

    @property
    def pending_bytes(self) -> int:
        """Bytes of messages that this member's application has processed and others may lack."""
        return self.stability.unstable_bytes - self.stability.undelivered_bytes + self._staged_bytes

    @property
    def undelivered_bytes(self) -> int:
        """Bytes of messages that were not yielded to this member's application yet."""
        return self.stability.undelivered_bytes + self.application.untaken_own_bytes

    # Broadcasting

    def _flush(self) -> None:
        """Pass staged payloads to the protocol."""
        if self._staged:
            causes, payloads = self._staged_causes, self._seal(self._staged)
            event = Broadcast(payloads, self._staged_at, self.delivers_own)
            self._staged, self._staged_bytes = [], 0
            self.log(event)
            self._broadcast_batch(event, causes)

    def _seal(self, contents: list[bytes]) -> list[bytes]:
        if self.seals is None:
            return contents
        first = self.stability.received[self.me].base + 1
        in_one_packet = type(self.protocol).broadcast_all is not Protocol.broadcast_all
        return self.seals.seal(self.me, first, contents, self.stability.chain[self.me], in_one_packet)

    def _on_broadcast(self, event: Broadcast) -> None:
        self._flush()
        self.log(event)
        self._broadcast_batch(event, self.causes)
        self.broadcasts = self.stability.received[self.me].base
        self.causes = {self.me: self.broadcasts}

    def _broadcast_batch(self, event: Broadcast, causes: dict[int, int]) -> None:
        payloads, now, before = event.payloads, event.time, causes
        self._defer_awaiting(len(payloads))
        effects = self.protocol.broadcast_all(payloads, now)
        if effects.message is None:
            raise LocalError(f"{self.protocol.name} gave a message no id")
        first = effects.message.seq - len(payloads) + 1
        own, control = self.stability.received[self.me], dict[int, int]()
        contents = payloads if self.seals is None else [content_of(payload) for payload in payloads]
        self.stability.broadcast(first, contents)
        for packet, data in self.carry_out(effects):
            for span in packet.spans():
                if span[0] == self.me and span[2] > own.base:
                    self.retain(span, data, data, now)
                    control[span[2]] = len(data) - packet.payload_bytes()
        for seq, payload in enumerate(payloads, first):
            if seq > own.base:  # otherwise there is no other member to send it to
                self.retain((self.me, seq, seq), payload, None, now)
            if self.is_traced:
                # Attribute the overhead of a batch to its last message.
                named, cost = sorted(causes.items()), control.get(seq, 0)
                self.trace.add(TraceRow(SEND, self.me, seq, now, cost, len(payload), -1, named))
                causes = {self.me: seq}
        if not self.is_durable:
            # Nothing waits for `advance`, and `limit` counts the messages broadcast in this round.
            self.stability.record_delivered(self.me, self.me, own.base)
        if event.own:
            self._deliver_own(first, contents, before)

    def _defer_awaiting(self, count: int) -> None:
        """A received message may name as a cause one that this member broadcasts only now."""
        first, order = self.stability.received[self.me].base + 1, self.signed_order
        last = first + count - 1
        is_awaited = self.protocol.awaits_own(first, last)
        if is_awaited or (order is not None and order.awaits(self.me, first, last)):
            self.defer_unblocked()

    def _deliver_own(self, first: int, payloads: list[bytes], causes: dict[int, int]) -> None:
        """Deliver messages to their author, after everything that was delivered there before.

        Replaying their `Broadcast` has the same effect, so no `Delivered` is logged for them. They add no
        delivery rows to the trace: for the sender, sending counts as the delivery.
        """
        named: dict[int, int] | None = None
        if self.protocol.carries_immediate_dependencies:
            named = {peer: seq for peer, seq in causes.items() if peer != self.me}
        for seq, payload in enumerate(payloads, first):
            message = tuple.__new__(MessageId, (self.me, seq))  # half the time of `MessageId(self.me, seq)`
            self.application.add_own(Delivery(message, payload, named))
            named = {} if named is not None else None
        self.logged_deliveries += len(payloads)

    # Other events

    def _on_timer(self, event: TimerFired) -> None:
        self.log(event)
        self.timers = [time for time in self.timers if time > event.time]
        self.carry_out(self.protocol.wake(event.time))

    def _on_ack(self, event: AckReceived) -> None:
        self.outboxes[event.link].ack(event.number, event.chain)

    def _on_progress(self, event: ProgressReceived) -> None:
        self.stability.merge(event.link, event.rows)

    def _log_noticed(self) -> None:
        """Record equivocation and forks that were noticed."""
        noticed, self.stability.unlogged = self.stability.unlogged, []
        for divergence in noticed:
            self.log(ForkNoticed(divergence, self.time))
        if self.seals is not None:
            starts, self.seals.unlogged = self.seals.unlogged, []
            for start in starts:
                self.log(KeyStarted(start, self.time))

    # Lives

    def _on_opened(self, event: Opened) -> None:
        self.log(event)
        if self.signatures is not None:
            # Its own is included: others must verify this life's signatures after the certificate is
            # renewed.
            for certificate in self.signatures.certificates:
                self.log(CertificateLearned(certificate, event.time))
        self.lineage = extend_lineage(self.lineage, event.id, self.stability.received[self.me].base)

    def _on_partner_met(self, event: PartnerMet) -> None:
        self.log(event)
        self.partner_lineages[event.link] = event.lineage

    # Delivering

    def next_delivery(self, now: int, acks: bool) -> Delivery | None:
        """The application asks for a message: the one in flight again, unless this `acks` it.

        None if there is no message that a replay after a crash would deliver again. The driver persists the
        `cursor` before the message is yielded.
        """
        application = self.application
        unacked = application.unacked
        if acks and application.attempts and not application.parking:
            unacked.popleft()  # `application.ack`, without the call
            application.attempts = 0
        while True:
            if not unacked:
                if self._staged:
                    self._flush()  # it may deliver messages of this member itself
                if not unacked and not self.deliver_next(now):
                    return None
            delivery = unacked[0]
            if self.is_durable and (application.parking or not self.is_persisted(delivery.message)):
                return None
            application.attempts += 1
            if application.attempts > 1:
                return delivery
            origin, seq = delivery.message
            if origin == self.me:
                application.take_own(delivery)
                return delivery
            is_first = self.stability.deliver(origin, seq, delivery.payload)
            if is_first and is_for(delivery.payload, self.called):
                return delivery
            # The message is addressed to others, or its author runs twice on copies of one store: some
            # protocols then deliver both messages under one id, and the application receives the first.
            application.ack()

    def _on_delivery_acked(self, event: DeliveryAcked) -> None:
        self.application.ack()

    def _on_parked(self, event: Parked) -> None:
        self.log(event)
        self.application.park(event)
        if not self.is_durable:
            self.application.finish_parking(event.position)

    def _on_unparked(self, event: Unparked) -> None:
        self.log(event)
        self.application.unpark(event.position)

    def deliver_next(self, now: int) -> bool:
        """Ask the protocol for a message; whatever this member broadcasts afterwards depends on it."""
        if self._staged:
            self._flush()
        order = self.signed_order
        delivery = self.protocol.deliver(now) if order is None else self._next_signed(order, now)
        if delivery is None:
            return False
        origin, seq = delivery.message
        if self._unblocking_number > self._persisted:
            # It is durable only when the packet that may have unblocked it is, so that replay after a crash
            # matches.
            entry = self.stability.unstable[origin].get(seq)
            if entry is not None and entry.ready_number < self._unblocking_number:
                entry.ready_number = self._unblocking_number
        causes, named = self.causes, delivery.causes
        if named is None:
            named = named_causes(delivery, self.size)
        if named:
            for peer, count in named.items():
                if causes.get(peer) == count:
                    del causes[peer]
        causes[origin] = seq
        if self.is_traced:
            self.trace.add(TraceRow(DELIVER, origin, seq, now))
        application = self.application
        application.delivered += 1
        application.unacked.append(delivery)
        return True

    def _next_signed(self, order: SignedOrder, now: int) -> Delivery | None:
        """The next message all of whose signed causes are delivered."""
        order.record(self.me, self.stability.received[self.me].base)
        found = order.next()
        while found is None and (delivery := self.protocol.deliver(now)) is not None:
            content = content_of(delivery.payload)
            # Use the causes in the payload, which are signed, rather than those in the packet.
            delivery = Delivery(delivery.message, content, causes_in(content, self.size))
            if order.admit(delivery):
                found = delivery
        if found is not None:
            order.record(*found.message)
        return found

    def is_persisted(self, message: MessageId) -> bool:
        """Whether a message that was received is durable."""
        origin, seq = message
        entry = self.stability.unstable[origin].get(seq)
        return entry is None or entry.ready_number <= self._persisted

    # Held messages

    def waiting(self) -> list[Waiting]:
        """The messages that have arrived and cannot be delivered yet, and what each waits for."""
        return self.protocol.waiting() + (self.signed_order.waiting() if self.signed_order else [])

    def count_held(self) -> int:
        """The number of held messages, without listing them."""
        return self.protocol.count_held() + (self.signed_order.count_held() if self.signed_order else 0)

    def last_awaited(self, origin: int) -> int:
        """The highest sequence number of an origin that any held message has waited for so far."""
        last = self.protocol.last_awaited(origin)
        return last if self.signed_order is None else max(last, self.signed_order.last_awaited[origin])

    # After every event

    def defer_unblocked(self) -> None:
        """Something other than another member's message may have unblocked held messages: deliver them only
        when it is durable."""
        self._unblocking_number = self._next_number

    def log(self, record: LogRecord) -> None:
        if self.is_durable:
            self.log_deliveries(record.time)
            self._records.append(record)
            self.time = max(self.time, record.time)
            if self.protocol.any_event_unblocks:
                self.defer_unblocked()

    def log_deliveries(self, now: int) -> None:
        """Record how many messages were delivered, if that has changed: before the next event, whose effect
        depends on it, or to make rows of the trace durable."""
        held = self.held_for_signed_causes
        if self._unlogged_deliveries or held != self.logged_held:
            self.logged_deliveries, self.logged_held = self.application.delivered, held
            self._records.append(Delivered(self.application.delivered, now, held))

    @property
    def held_for_signed_causes(self) -> int:
        """How many messages the protocol has delivered that still wait for a signed cause."""
        return 0 if self.signed_order is None else self.signed_order.length

    @property
    def _unlogged_deliveries(self) -> int:
        """Each of these has a row at the end of the trace."""
        return self.application.delivered - self.logged_deliveries if self.is_durable else 0

    def carry_out(self, effects: Effects) -> list[tuple[Packet, bytes]]:
        encoded = []
        for send in effects.sends:
            data = self.protocol.encode(send.packet)
            encoded.append((send.packet, data))
            for peer in send.to:
                self.sent[peer] += 1
                if (bodies := self.packets.get(peer)) is not None:
                    bodies.append(data)
                else:
                    self.packets[peer] = [data]
        if effects.wake_at is not None:
            self.timers = sorted({effects.wake_at, *self.timers})
        return encoded

    def retain(self, span: Span, data: bytes, packet: bytes | None, now: int, link: int = -1) -> None:
        origin = span[0]
        if link >= 0 and origin == self.me:
            return  # for the sender, sending is the delivery
        retained = packet if self.repair.is_possible else None
        entry = UnstableMessage(message_bytes(data, span), retained, now, self._next_number)
        seqs = self.stability.receive(span, entry)
        if self.is_traced and link >= 0:
            for seq in seqs:
                self.trace.add(TraceRow(RECEIVE, origin, seq, now, link=link))
