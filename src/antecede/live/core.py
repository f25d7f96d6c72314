"""A member of a live group without a clock, a socket or a disk: the protocol and all that surrounds it.

A driver asks things of it (`broadcast`, `flush`, `receive`, `handed`, `wake`, `pop`), takes what is to be
written (`batch`), writes it, and says so (`written`). Only then do packets appear in the outboxes and numbers
among those that are `safe`: nothing that a crash could undo leaves the member. The same calls in the same
order give the same packets under the same numbers, so a log of them brings a member back (`restore`).

How far it is, and how far it knows all others to be, is its `progress`. Time O(what the protocol does) a
call; memory what the protocol and `progress` have, and the packets that partners have not confirmed.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from typing import Any, NamedTuple

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.errors import AntecedeError, InputError
from antecede.live.envelope import Body, Envelope, unwrap, wrap
from antecede.live.stability import Kept, Progress, entry_bytes
from antecede.live.store.journal import Changes, Journal, Row, Stored
from antecede.live.transport.frames import MAX_BYTES
from antecede.live.transport.outbox import Outbox
from antecede.protocols.base import NO_EFFECTS, Effects, LocalError, Packet, Protocol, RemoteError, Span
from antecede.protocols.limits import MAX_AHEAD, MAX_BATCH_MESSAGES

MAX_PACKET = MAX_BYTES // 2 + (1 << 20)
"""The longest body and its control information: a frame has room for it, however it is passed on."""
_MAX_TOGETHER = MAX_BATCH_MESSAGES
_TOGETHER_BYTES = 1 << 15
"""So much of what is said in a row goes into one packet at most; a longer message goes alone."""
MANY_PACKETS = 256
"""From so many on, what a partner has not confirmed is looked through for what it does not need any more."""


class Event(NamedTuple):
    """A row of the trace, by ranks."""

    kind: str
    origin: int
    seq: int
    time: int
    control: int = 0
    payload: int = 0
    link: int = -1
    causes: list[tuple[int, int]] | None = None


class Popped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that was taken from the protocol, by its place among those."""

    place: int
    message: MessageId
    envelope: Envelope
    named: dict[int, int]
    """Its immediate dependencies by origin, its sender's own last message aside."""

    @property
    def causes(self) -> dict[int, int]:
        """Its immediate dependencies by origin."""
        origin, seq = self.message
        return {**self.named, origin: seq - 1} if self.envelope.after_own and seq > 1 else self.named


class Image(msgspec.Struct):
    """A member at one moment."""

    protocol: bytes
    causes: dict[int, int]
    sent: dict[int, int]
    confirmed: dict[int, int]
    seen: dict[int, int]
    arrived: list[bytes]
    done: list[int]
    stable: list[int]
    popped: int
    hand: list[Popped]
    events: int
    wake_at: int | None


class Batch(msgspec.Struct):
    """What is to be written at once, and what follows from it."""

    rows: list[Row]
    changes: Changes | None
    unsent: list[tuple[int, int, bytes]]
    seen: dict[int, int]
    own: int
    """How many messages of this member there are."""
    number: int


class Core:
    """`logged` says whether there is a journal: without one, nothing waits for `written`."""

    def __init__(self, protocol: Protocol, traced: bool = False, logged: bool = True) -> None:
        self.logged = logged
        self.protocol = protocol
        self.me = protocol.me
        self.size = protocol.size
        self.partners = protocol.partners()
        self.progress = Progress(protocol)

        self.causes: dict[int, int] = {}
        """What the next message will depend on immediately."""
        self.sent = dict.fromkeys(self.partners, 0)
        self.seen = dict.fromkeys(self.partners, 0)
        self.safe = dict(self.seen) if logged else self.seen
        """What of `seen` is written."""
        self.popped = 0
        self.hand: deque[Popped] = deque()
        """Taken from the protocol and not final yet."""
        self.wake_at: int | None = None
        self.outboxes = {peer: Outbox() for peer in self.partners}

        self.most_unread = sys.maxsize
        """More than so much is not taken in: no group that keeps to its limit comes to that."""
        self._newly_kept: list[Span] = []

        self.said = 0
        """How many messages this member's application has sent."""
        self._open: list[bytes] = []
        """Messages that were sent in a row and the protocol has not seen: they may go as one packet."""
        self._open_bytes = self._open_at = 0
        self._open_causes: dict[int, int] = {}

        self.traced = traced
        self.events = 0
        self._events: list[Event] = []
        self._unwritten: list[Row] = []
        self._unsent: list[tuple[int, int, bytes]] = []
        self._batch = int(logged)
        """The number of the batch that is next; what arrives now is written with it."""
        self._written = 0

    # What is asked of it

    def broadcast(self, body: Body, now: int) -> MessageId:
        """Say something to everybody. It goes to the protocol with what else is said before the next `flush`,
        `pop` or `batch`, or when that is enough for a packet."""
        me, causes = self.me, self.causes
        others = None
        if not self.protocol.carries_immediate_dependencies:
            others = {peer: seq for peer, seq in causes.items() if peer != me}
        payload = wrap(body, me in causes, others)
        if len(self._open) == _MAX_TOGETHER or self._open_bytes + len(payload) > _TOGETHER_BYTES:
            self.flush()
        if not self._open:
            self._open_at, self._open_causes = now, causes
        self._open.append(payload)
        self._open_bytes += len(payload)
        self.said += 1
        self.causes = {me: self.said}
        return MessageId(me, self.said)

    @property
    def on_the_way(self) -> int:
        """Bytes of messages that this member's application is done with, and others may not have."""
        return self.progress.unstable_bytes - self.progress.unread_bytes + self._open_bytes

    def flush(self) -> None:
        """Give the protocol what was said."""
        if self._open:
            payloads, self._open, self._open_bytes = self._open, [], 0
            self._write("broadcast", self._open_at, msgspec.msgpack.encode(payloads))
            self._say(payloads, self._open_causes, self._open_at)

    def _say(self, payloads: list[bytes], causes: dict[int, int], now: int) -> None:
        effects = self.protocol.broadcast_all(payloads, now)
        if effects.message is None:
            raise LocalError(f"{self.protocol.name} gave a message no identity")
        first = effects.message.seq - len(payloads) + 1
        own, control = self.progress.arrived[self.me], dict[int, int]()
        for packet, data in self._carry_out(effects):
            for span in packet.spans():
                if span[0] == self.me and span[2] > own.base:
                    self._arrive(span, data, data, now)
                    control[span[2]] = len(data) - packet.payload_bytes()
        for seq, payload in enumerate(payloads, first):
            if seq > own.base:  # nobody to send it to
                self._arrive((self.me, seq, seq), payload, None, now)
            if self.traced:
                # What a packet of several costs besides their bodies is put down to the last.
                named = sorted(causes.items())
                cost = control.get(seq, 0)
                self._trace(Event("send", self.me, seq, now, cost, len(payload), -1, named))
                causes = {self.me: seq}
        if not self.logged:
            self.progress.note(self.me, self.me, own.base)

    def receive(self, link: int, number: int, data: bytes, now: int) -> bool:
        """A packet from a partner; False if it came before. A `RemoteError` leaves all as it was."""
        if number != self.seen[link] + 1:
            if number <= self.seen[link]:
                return False
            raise RemoteError(f"packet {number} came after packet {self.seen[link]}")
        if not data:
            # Overtaken: all that was in it has come by other ways, to everybody.
            self._write("receive", now, data, link, number)
            self.seen[link] = number
            return True
        if self.progress.unread_bytes > self.most_unread:
            waiting = self.progress.unread_bytes
            raise RemoteError(f"{waiting} bytes wait here for causes or for the application already")
        packet, spans = self._sound(data)
        # What only controls may free what is held, which then comes again after a crash only if this does.
        held = None if spans or not self.logged else self.protocol.waiting()
        effects = self.protocol.receive(link, packet, now)
        if held:
            for origin, seq in (wait.message for wait in held):
                if (kept := self.progress.kept[origin].get(seq)) is not None:
                    kept.batch = self._batch
        if self.logged:
            self._write("receive", now, data, link, number)
        self.seen[link] = number
        for span in spans:
            self._arrive(span, data, data, now, link)
        if effects is not NO_EFFECTS:
            self._carry_out(effects)
        return True

    def on_repair(self, data: bytes, now: int) -> list[MessageId]:
        """A packet that another member kept; the messages of it that were missing."""
        packet, spans = self._sound(data)
        missing = [
            MessageId(origin, seq)
            for origin, first, last in spans
            for seq in range(first, last + 1)
            if seq not in self.progress.arrived[origin]
        ]
        parts = self.protocol.on_repair(packet) if missing else []
        if not parts:
            return []
        self._write("handed", now, data)
        for link, part in parts:
            effects = self.protocol.receive(link, part, now)
            for span in part.spans():
                self._arrive(span, data, data, now, link)
            self._carry_out(effects)
        return missing

    def _sound(self, data: bytes) -> tuple[Packet, tuple[Span, ...]]:
        """A packet whose messages can be, and those; the protocol looks at the rest."""
        if len(data) > MAX_PACKET:
            raise RemoteError(f"a packet of {len(data)} bytes; the longest is {MAX_PACKET}")
        packet = self.protocol.decode(data)
        spans = packet.spans()
        size, arrived = self.size, self.progress.arrived
        for origin, first, last in spans:
            if not 0 <= origin < size or first < 1 or last > arrived[origin].base + MAX_AHEAD:
                raise RemoteError(f"message number {first} of member {origin} cannot be")
        return packet, spans

    def wake(self, now: int) -> None:
        """The time that `wake_at` says has come."""
        self._write("wake", now, b"")
        self.wake_at = None
        self._carry_out(self.protocol.wake(now))

    def pop(self, now: int) -> Popped | None:
        """The next message for the application; from here on its own messages depend on it."""
        if self._open:
            self.flush()
        delivery = self.protocol.deliver(now)
        if delivery is None:
            return None
        self.popped += 1
        message = delivery.message
        origin, seq = message
        envelope = unwrap(delivery.payload)
        named = delivery.causes
        if named is None:
            # By the sender's application, not by the protocol: nobody has looked at them.
            named = {peer: n for peer, n in (envelope.causes or {}).items() if 0 <= peer < self.size}
        mine = self.causes
        for peer, count in named.items():
            if mine.get(peer) == count:
                del mine[peer]
        mine[origin] = seq
        if self.traced:
            self._trace(Event("deliver", origin, seq, now))
        popped = Popped(self.popped, message, envelope, named)
        self.hand.append(popped)
        return popped

    def is_written(self, message: MessageId) -> bool:
        """Whether a message that arrived would arrive again after a crash."""
        origin, seq = message
        kept = self.progress.kept[origin].get(seq)
        return kept is None or kept.batch <= self._written

    def given(self, message: MessageId) -> None:
        """The application has it in hand."""
        origin, seq = message
        self.progress.note(self.me, origin, seq)

    def final(self, place: int) -> None:
        """The application is done with everything up to that place."""
        while self.hand and self.hand[0].place <= place:
            self.hand.popleft()

    # What it gives to be written

    @property
    def is_unwritten(self) -> bool:
        return bool(self._unwritten or self._open)

    def batch(self, whole: bool) -> Batch:
        """All that has not been written; as a new image if `whole`, which has seen the rows."""
        self.flush()
        changes = self._changes() if whole else None
        rows = [] if whole else self._unwritten
        own = self.progress.arrived[self.me].base
        batch = Batch(rows, changes, self._unsent, dict(self.seen), own, self._batch)
        self._unwritten, self._unsent = [], []
        self._batch += self.logged
        return batch

    def written(self, batch: Batch) -> None:
        """What follows from a batch may leave now."""
        for link, number, data in batch.unsent:
            self.outboxes[link].put(number, data)
        if self.logged:
            self.safe = batch.seen
        # Not before: the others would take the next message of this number for one that a crash undid.
        self.progress.note(self.me, self.me, batch.own)
        self._written = batch.number

    def _changes(self) -> Changes:
        progress = self.progress
        confirmed = {link: box.confirmed for link, box in self.outboxes.items()}
        stable = list(progress.stable)
        image = Image(
            self.protocol.save(),
            self.causes,
            self.sent,
            confirmed,
            self.seen,
            [window.to_bytes() for window in progress.arrived],
            progress.known[self.me],
            stable,
            self.popped,
            list(self.hand),
            self.events,
            self.wake_at,
        )
        packets, events = self._unstored(), self.take_events()
        return Changes(msgspec.msgpack.encode(image), packets, confirmed, stable, events)

    def _unstored(self) -> list[Stored]:
        """Packets that are still needed and only the log has; each once, whoever it is for."""
        found: dict[int, Stored] = {}
        for link, box in self.outboxes.items():
            for number in range(max(box.stored, box.confirmed) + 1, box.last + 1):
                data = box.packets[number]
                found.setdefault(id(data), Stored(data)).sent.append((link, number))
        for link, number, data in self._unsent:
            if number > self.outboxes[link].stored:
                found.setdefault(id(data), Stored(data)).sent.append((link, number))
        for link, box in self.outboxes.items():
            box.stored = self.sent[link]
        for span in self._newly_kept:
            origin, _, last = span
            kept = self.progress.kept[origin].get(last)
            if kept is not None and kept.packet is not None:
                found.setdefault(id(kept.packet), Stored(kept.packet)).spans.append(span)
        self._newly_kept = []
        return list(found.values())

    @property
    def events_waiting(self) -> int:
        return len(self._events)

    def take_events(self) -> tuple[int, bytes] | None:
        """Rows of the trace since the last time, and the place of the first of them."""
        if not self._events:
            return None
        taken = (self.events - len(self._events), msgspec.msgpack.encode(self._events))
        self._events = []
        return taken

    def restore(self, journal: Journal) -> None:
        """Become what the journal says that this member was."""
        try:
            self._restore(journal)
        except InputError:
            raise
        except (AntecedeError, msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"{journal.path} is damaged as a store: {error}") from error

    def _restore(self, journal: Journal) -> None:
        final, in_hand = divmod(journal.taken, 2)
        if data := journal.image():
            self._become(msgspec.msgpack.decode(data, type=Image))
        settled = self.popped - len(self.hand)
        for stored in journal.packets():
            for link, number in stored.sent:
                self.outboxes[link].put(number, stored.data)
            for span in stored.spans:
                self.progress.restore(span, stored.data)
        last = 0
        for row in journal.rows():
            self._pop_until(row.taken, row.time, journal)
            self._replay(row)
            last = row.time
        # Without the last bytes of the count, as after a power failure, the image still knows better.
        final = max(final, settled)
        self._pop_until(final + in_hand, last, journal)
        for popped in self.hand:
            if popped.place <= final + in_hand:
                self.given(popped.message)
        self.final(final)
        self._unwritten = []
        self.written(self.batch(whole=False))

    def _become(self, image: Image) -> None:
        self.protocol = type(self.protocol).restore(image.protocol)
        self.causes, self.sent, self.seen = image.causes, image.sent, image.seen
        self.popped, self.events = image.popped, image.events
        self.hand = deque(image.hand)
        self.wake_at = image.wake_at
        for link, box in self.outboxes.items():
            box.last = box.stored = image.sent[link]
            box.confirmed = image.confirmed[link]
        self.progress.arrived = [BitWindow.from_bytes(data) for data in image.arrived]
        self.progress.stable = image.stable
        self.said = self.progress.arrived[self.me].base
        for origin, count in enumerate(image.done):
            self.progress.note(self.me, origin, count)

    def _replay(self, row: Row) -> None:
        if row.kind == "broadcast":
            payloads = msgspec.msgpack.decode(row.data, type=list[bytes])
            self._say(payloads, self.causes, row.time)
            self.said = self.progress.arrived[self.me].base
            self.causes = {self.me: self.said}
        elif row.kind == "receive":
            self.receive(row.link, row.number, row.data, row.time)
        elif row.kind == "handed":
            with contextlib.suppress(RemoteError):  # of a later part, as it was then
                self.on_repair(row.data, row.time)
        else:
            self.wake(row.time)

    def _pop_until(self, place: int, now: int, journal: Journal) -> None:
        while self.popped < place:
            if self.pop(now) is None:
                raise InputError(
                    f"{journal.path}: {place} messages were taken and only {self.popped} are in it: "
                    "the store is damaged, or its files are of different moments"
                )

    # What has become needless

    def skip_stable(self) -> None:
        """Empty packets for slow partners whose messages everybody has by now: others have handed them on."""
        if not self.progress.asks:
            return
        stable = self.progress.stable
        for box in self.outboxes.values():
            box.emptied = max(box.emptied, box.confirmed)
            while box.emptied < box.last and len(box.packets) > MANY_PACKETS:
                data = box.packets[box.emptied + 1]
                spans = self.protocol.decode(data).spans() if data else ()
                if data and not (spans and all(last <= stable[origin] for origin, _, last in spans)):
                    break
                box.packets[box.emptied + 1] = b""
                box.emptied += 1

    # How it does that

    def _write(self, kind: Any, now: int, data: bytes, link: int = -1, number: int = 0) -> None:
        if self.logged:
            self._unwritten.append(Row(kind, link, number, self.popped, now, data))

    def _carry_out(self, effects: Effects) -> list[tuple[Packet, bytes]]:
        packets = []
        for send in effects.sends:
            data = self.protocol.encode(send.packet)
            packets.append((send.packet, data))
            for peer in send.to:
                self.sent[peer] += 1
                if self.logged:
                    self._unsent.append((peer, self.sent[peer], data))
                else:
                    self.outboxes[peer].put(self.sent[peer], data)
        if effects.wake_at is not None:
            self.wake_at = effects.wake_at if self.wake_at is None else min(self.wake_at, effects.wake_at)
        return packets

    def _arrive(self, span: Span, data: bytes, packet: bytes | None, now: int, link: int = -1) -> None:
        origin = span[0]
        if link >= 0 and origin == self.me:
            return  # for the sender, sending is the delivery
        progress = self.progress
        kept = Kept(entry_bytes(data, span), packet if progress.asks else None, now, self._batch)
        numbers = progress.arrive(span, kept)
        if numbers and self.logged and kept.packet is not None:
            is_whole = len(numbers) == span[2] - span[1] + 1
            # What came in another packet before is stored with that.
            self._newly_kept += [span] if is_whole else [(origin, seq, seq) for seq in numbers]
        if self.traced and link >= 0:
            for seq in numbers:
                self._trace(Event("receive", origin, seq, now, link=link))

    def _trace(self, event: Event) -> None:
        self._events.append(event)
        self.events += 1
