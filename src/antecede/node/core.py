"""A member of a live group without a clock, a socket or a disk: the protocol and all that surrounds it.

A driver asks things of it (`broadcast`, `receive`, `handed`, `wake`, `pop`), takes what is to be written
(`batch`), writes it, and says so (`written`). Only then do packets appear in the outboxes and numbers among
those that are `safe`: nothing that a crash could undo leaves the member. The same calls in the same order
give the same packets under the same numbers, so a log of them brings a member back (`restore`).

It also knows how far all members are (`known`), so what is stable, what is missing here and who has it.
Time O(what the protocol does) a call, and O(members) for each count that changes; memory O(members²) and the
messages that are not stable.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from antecede.errors import AntecedeError, InputError
from antecede.node.bodies import Body, Envelope, unwrap, wrap
from antecede.node.frames import MOST_BYTES
from antecede.node.journal import Changes, Journal, Row
from antecede.node.outbox import Outbox
from antecede.order import MessageId, Window
from antecede.protocols.base import NOTHING, Effects, LocalError, Packet, Protocol, RemoteError
from antecede.protocols.flat import MOST_AHEAD

_MOST_FOUND = 1 << 20
"""Bytes of packets that one request is answered with."""
_MOST_WANTED = 1_000
MOST_PACKET = MOST_BYTES // 2 + (1 << 20)
"""The longest body and its control information: a frame has room for it, however it is passed on."""
MANY_PACKETS = 256
"""From so many on, what a partner has not confirmed is looked through for what it does not need any more."""
_ENTRY_BYTES = 100
"""What a message that is not stable costs besides its own bytes, roughly."""


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


class Popped(NamedTuple):
    """A message that was taken from the protocol, by its place among those."""

    place: int
    message: MessageId
    envelope: Envelope
    causes: dict[int, int]
    """Its immediate dependencies by origin."""


class Image(msgspec.Struct):
    """A member at one moment."""

    protocol: bytes
    causes: dict[int, int]
    sent: dict[int, int]
    seen: dict[int, int]
    arrived: list[bytes]
    done: list[int]
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
    fresh: set[MessageId]


class Core:
    """`logged` says whether there is a journal: without one, whatever follows from a call follows at once."""

    def __init__(self, protocol: Protocol, traced: bool = False, logged: bool = True) -> None:
        size = protocol.size
        self.logged = logged
        self.protocol = protocol
        self.me = protocol.me
        self.size = size
        self.partners = protocol.partners()
        self.complete = type(protocol).partners is Protocol.partners
        """Whether all members talk to each other, so that each can speak for itself. That this one does is
        not enough: a super peer must pass on how far those behind it are."""
        self.led = protocol.led()
        """Partners that hear of the group through this member alone."""
        # Where the links alone keep the order, a message that another hands on is of no use.
        self.leaf = protocol.kind() == "internal"
        """Whether it hears of the group through one partner alone, which knows more of the others."""
        self.asks = type(protocol).handed is not Protocol.handed and not self.leaf

        self.causes: dict[int, int] = {}
        """What the next message will depend on immediately."""
        self.sent = dict.fromkeys(self.partners, 0)
        self.seen = dict.fromkeys(self.partners, 0)
        self.safe = dict(self.seen) if logged else self.seen
        """What of `seen` is written."""
        self.arrived = [Window() for _ in range(size)]
        self.since: dict[MessageId, int] = {}
        """When what is not delivered yet arrived."""
        self.popped = 0
        self.hand: deque[Popped] = deque()
        """Taken from the protocol and not final yet."""
        self.wake_at: int | None = None
        self.outboxes = {peer: Outbox() for peer in self.partners}

        self.known = [[0] * size for _ in range(size)]
        """How many messages of each origin each member has delivered, as far as it has told."""
        self.stable = [0] * size
        self.kept: list[dict[int, tuple[int, bytes | None]]] = [{} for _ in range(size)]
        """What is not stable, by origin and number: its size, and its packet if that can be handed on."""
        self.unstable_bytes = 0
        self.unread_bytes = 0
        """What of them this member's own application has not taken: no other can make that room."""
        self.most_unread = sys.maxsize
        """More than so much is not taken in: no group that keeps to its limit comes to that."""
        self._newly_kept: list[MessageId] = []

        self.traced = traced
        self.events = 0
        self._events: list[Event] = []
        self._unwritten: list[Row] = []
        self._unsent: list[tuple[int, int, bytes]] = []
        self._fresh: set[MessageId] = set()
        self._uncommitted: set[MessageId] = set()
        self._lacking: dict[int, tuple[int, int]] = {}

    # What is asked of it

    def broadcast(self, body: Body, now: int) -> MessageId:
        """Say something to everybody."""
        others = {peer: seq for peer, seq in self.causes.items() if peer != self.me}
        return self._broadcast(
            wrap(body, self.me in self.causes, None if self.protocol.names_causes else others), now
        )

    def _broadcast(self, payload: bytes, now: int) -> MessageId:
        self._write("broadcast", now, payload)
        effects = self.protocol.broadcast(payload, now)
        message = effects.message
        if message is None:
            raise LocalError(f"{self.protocol.name} gave a message no identity")
        packets = self._carry_out(effects)
        packet, data = next(iter(packets), (None, payload))
        if self.traced:
            control = len(data) - packet.payload_bytes() if packet else 0
            causes = sorted(self.causes.items())
            self._trace(Event("send", *message, now, control, len(payload), -1, causes))
        self.causes = {self.me: message.seq}
        self.arrived[self.me].add(message.seq)
        self._keep(message, data, packet is not None and self.asks)
        if not self.logged:
            self._note(self.me, self.me, message.seq)
        return message

    def receive(self, link: int, number: int, data: bytes, now: int) -> bool:
        """A packet from a partner; False if it came before. A `RemoteError` leaves all as it was."""
        if number <= self.seen[link]:
            return False
        if number > self.seen[link] + 1:
            raise RemoteError(f"packet {number} came after packet {self.seen[link]}")
        if not data:
            # Overtaken: all that was in it has come by other ways, to everybody.
            self._write("receive", now, data, link, number)
            self.seen[link] = number
            return True
        if self.unread_bytes > self.most_unread:
            raise RemoteError(
                f"{self.unread_bytes} bytes wait here for causes or for the application already"
            )
        packet, messages = self._sound(data)
        # What only controls may free what is held, which then comes again after a crash only if this does.
        held = None if messages or not self.logged else {wait.message for wait in self.protocol.waiting()}
        effects = self.protocol.receive(link, packet, now)
        if held:
            self._fresh |= held
            self._uncommitted |= held
        self._write("receive", now, data, link, number)
        self.seen[link] = number
        self._arrive(messages, data, link, now)
        if effects is not NOTHING:
            self._carry_out(effects)
        return True

    def handed(self, data: bytes, now: int) -> list[MessageId]:
        """A packet that another member kept; the messages of it that were missing."""
        packet, messages = self._sound(data)
        missing = [message for message in messages if message.seq not in self.arrived[message.origin]]
        parts = self.protocol.handed(packet) if missing else []
        if not parts:
            return []
        self._write("handed", now, data)
        for link, part in parts:
            effects = self.protocol.receive(link, part, now)
            self._arrive(part.carries(), data, link, now)
            self._carry_out(effects)
        return missing

    def _sound(self, data: bytes) -> tuple[Packet, tuple[MessageId, ...]]:
        """A packet whose messages can be, and those; the protocol looks at the rest."""
        if len(data) > MOST_PACKET:
            raise RemoteError(f"a packet of {len(data)} bytes; the longest is {MOST_PACKET}")
        packet = self.protocol.decode(data)
        messages = packet.carries()
        for origin, seq in messages:
            if not 0 <= origin < self.size or not 1 <= seq <= self.arrived[origin].base + MOST_AHEAD:
                raise RemoteError(f"message number {seq} of member {origin} cannot be")
        return packet, messages

    def wake(self, now: int) -> None:
        """The time that `wake_at` says has come."""
        self._write("wake", now, b"")
        self.wake_at = None
        self._carry_out(self.protocol.wake(now))

    def pop(self, now: int) -> Popped | None:
        """The next message for the application; from here on its own messages depend on it."""
        delivery = self.protocol.deliver(now)
        if delivery is None:
            return None
        self.popped += 1
        origin, seq = delivery.message
        envelope = unwrap(delivery.payload)
        causes = delivery.causes
        if causes is None:
            # By the sender's application, not by the protocol: nobody has looked at them.
            causes = {peer: n for peer, n in (envelope.causes or {}).items() if 0 <= peer < self.size}
        if envelope.after_own and seq > 1:
            causes = {**causes, origin: seq - 1}
        mine = self.causes
        for peer, count in causes.items():
            if mine.get(peer) == count:
                del mine[peer]
        mine[origin] = seq
        self.since.pop(delivery.message, None)
        if self.traced:
            self._trace(Event("deliver", origin, seq, now))
        popped = Popped(self.popped, delivery.message, envelope, causes)
        self.hand.append(popped)
        return popped

    def is_written(self, message: MessageId) -> bool:
        """Whether a message that arrived would arrive again after a crash."""
        return message not in self._uncommitted

    def given(self, message: MessageId) -> None:
        """The application has it in hand."""
        self._note(self.me, message.origin, message.seq)

    def final(self, place: int) -> None:
        """The application is done with everything up to that place."""
        while self.hand and self.hand[0].place <= place:
            self.hand.popleft()

    # What it gives to be written

    @property
    def is_unwritten(self) -> bool:
        return bool(self._unwritten)

    def batch(self, whole: bool) -> Batch:
        """All that has not been written; as a new image if `whole`, which has seen the rows."""
        changes = self._changes() if whole else None
        rows = [] if whole else self._unwritten
        own = self.arrived[self.me].base
        batch = Batch(rows, changes, self._unsent, dict(self.seen), own, self._fresh)
        self._unwritten, self._unsent, self._fresh = [], [], set()
        return batch

    def written(self, batch: Batch) -> None:
        """What follows from a batch may leave now."""
        for link, number, data in batch.unsent:
            self.outboxes[link].put(number, data)
        self.safe = batch.seen
        # Not before: the others would take the next message of this number for one that a crash undid.
        self._note(self.me, self.me, batch.own)
        self._uncommitted -= batch.fresh

    def _changes(self) -> Changes:
        image = Image(
            self.protocol.save(),
            self.causes,
            self.sent,
            self.seen,
            [window.to_bytes() for window in self.arrived],
            self.known[self.me],
            self.popped,
            list(self.hand),
            self.events,
            self.wake_at,
        )
        outbox = [entry for entry in self._unsent if entry[1] > self.outboxes[entry[0]].stored]
        for link, box in self.outboxes.items():
            first = max(box.stored, box.confirmed) + 1
            outbox += [(link, number, box.packets[number]) for number in range(first, box.last + 1)]
            box.stored = self.sent[link]
        kept = []
        for message in self._newly_kept:
            _, data = self.kept[message.origin].get(message.seq, (0, None))
            if data is not None:
                kept.append((*message, data))
        self._newly_kept = []
        events = self.take_events()
        confirmed = {link: box.confirmed for link, box in self.outboxes.items()}
        return Changes(msgspec.msgpack.encode(image), outbox, confirmed, kept, list(self.stable), events)

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
        loaded: set[int] = set()
        for link, number, data in journal.outbox():
            if link not in loaded:
                self.outboxes[link].confirmed = number - 1
                loaded.add(link)
            self.outboxes[link].put(number, data)
        for origin, seq, data in journal.kept():
            self._keep(MessageId(origin, seq), data, True)
        self._newly_kept = []
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
        self.arrived = [Window.from_bytes(data) for data in image.arrived]
        self.hand = deque(image.hand)
        self.wake_at = image.wake_at
        for link, box in self.outboxes.items():
            box.last = box.stored = box.confirmed = image.sent[link]
        for origin, count in enumerate(image.done):
            self._note(self.me, origin, count)

    def _replay(self, row: Row) -> None:
        if row.kind == "broadcast":
            self._broadcast(row.data, row.time)
        elif row.kind == "receive":
            self.receive(row.link, row.number, row.data, row.time)
        elif row.kind == "handed":
            with contextlib.suppress(RemoteError):  # of a later part, as it was then
                self.handed(row.data, row.time)
        else:
            self.wake(row.time)

    def _pop_until(self, place: int, now: int, journal: Journal) -> None:
        while self.popped < place:
            if self.pop(now) is None:
                raise InputError(
                    f"{journal.path}: {place} messages were taken and only {self.popped} are in it: "
                    "the store is damaged, or its files are of different moments"
                )

    # What it knows of the others

    def learn(self, link: int, rows: dict[int, dict[int, int]]) -> None:
        """A partner tells how far members are."""
        for member, counts in rows.items():
            if not 0 <= member < self.size or (member != link and link in self.led):
                raise RemoteError(f"it speaks for member {member}")
            for origin, count in counts.items():
                if not 0 <= origin < self.size or count < 0:
                    raise RemoteError(f"it counts messages of member {origin}")
                if origin == self.me and count > self.known[self.me][self.me]:
                    raise RemoteError(f"it has message {count} of this member, which has sent fewer")
                if link in self.led and origin != link and count > self.arrived[origin].base:
                    raise RemoteError(
                        f"it has message {count} of member {origin}, which has not come by here"
                    )
                if member != self.me:
                    self._note(member, origin, count)

    def news(self, told: dict[int, list[int]], turn: int) -> dict[int, dict[int, int]]:
        """What has changed in `known` since `told`, which is brought up to date.

        Where everybody talks to everybody, that is this member's own row and, in turn, one of another: a
        partner hears of those that it has a slow link to, and the bytes stay O(members).
        """
        rows: dict[int, dict[int, int]] = {}
        members: Iterable[int] = range(self.size)
        if self.complete:
            members = {self.me, turn % self.size}
        elif self.leaf:
            members = (self.me,)
        for member in members:
            row, before = self.known[member], told.setdefault(member, [0] * self.size)
            if row != before:
                rows[member] = {o: n for o, (n, old) in enumerate(zip(row, before, strict=True)) if n > old}
                told[member] = row.copy()
        return rows

    def wanted(
        self, now: int, patience: int, connected: Iterable[int]
    ) -> tuple[int, list[tuple[int, int, int]]] | None:
        """Whom to ask for what has been missing for long, though others have it."""
        if not self.asks:
            return None
        helpers = list(connected)
        wanted: dict[int, list[tuple[int, int, int]]] = {}
        for origin in range(self.size):
            base = self.arrived[origin].base
            able = [peer for peer in helpers if self.known[peer][origin] > base]
            if origin == self.me or not able:
                self._lacking.pop(origin, None)
                continue
            where, since = self._lacking.get(origin, (-1, now))
            if where != base:
                self._lacking[origin] = (base, now)
            elif now - since >= patience:
                helper = able[(now // max(patience, 1) + origin) % len(able)]
                most = min(self.known[helper][origin], base + _MOST_WANTED)
                wanted.setdefault(helper, []).append((origin, base + 1, most))
        return max(wanted.items(), key=lambda item: len(item[1])) if wanted else None

    def found(self, spans: Iterable[tuple[int, int, int]]) -> list[bytes]:
        """Packets of the messages that a member asks for, as far as they are here and fit one answer."""
        packets: dict[int, bytes] = {}
        room = _MOST_FOUND
        for origin, first, last in spans:
            if not 0 <= origin < self.size or not 1 <= first <= last < first + _MOST_WANTED:
                raise RemoteError("it asks for messages that cannot be")
            for seq in range(first, last + 1):
                _, data = self.kept[origin].get(seq, (0, None))
                if origin == self.me and seq > self.known[self.me][self.me]:
                    break  # not written yet
                if data is not None and room > 0:
                    packets.setdefault(id(data), data)
                    room -= len(data)
        return list(packets.values())

    def skip_stable(self) -> None:
        """Empty packets for slow partners whose messages everybody has by now: others have handed them on."""
        if not self.asks:
            return
        for box in self.outboxes.values():
            box.emptied = max(box.emptied, box.confirmed)
            while box.emptied < box.last and len(box.packets) > MANY_PACKETS:
                data = box.packets[box.emptied + 1]
                messages = self.protocol.decode(data).carries() if data else ()
                if data and not (messages and all(seq <= self.stable[origin] for origin, seq in messages)):
                    break
                box.packets[box.emptied + 1] = b""
                box.emptied += 1

    def holders(self, message: MessageId) -> list[int]:
        """The members that are known to have a message."""
        return [
            member
            for member in range(self.size)
            if member != self.me
            and (member == message.origin or self.known[member][message.origin] >= message.seq)
        ]

    def behind(self) -> list[int]:
        """The others that keep most messages from being stable."""
        lasts = [max(kept, default=0) for kept in self.kept]
        lag = {
            member: sum(max(0, last - have) for last, have in zip(lasts, row, strict=True))
            for member, row in enumerate(self.known)
            if member != self.me
        }
        most = max(lag.values(), default=0)
        return [member for member, count in lag.items() if count == most > 0]

    def _note(self, member: int, origin: int, count: int) -> None:
        row = self.known[member]
        before = row[origin]
        if count <= before:
            return
        row[origin] = count
        kept = self.kept[origin]
        if member == self.me:
            for seq in range(before + 1, count + 1):
                if seq in kept:
                    self.unread_bytes -= kept[seq][0]
        if before > self.stable[origin]:
            return
        stable = min([each[origin] for each in self.known])
        for seq in range(self.stable[origin] + 1, stable + 1):
            size, _ = kept.pop(seq, (0, None))
            self.unstable_bytes -= size
        self.stable[origin] = max(stable, self.stable[origin])

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

    def _arrive(self, messages: tuple[MessageId, ...], data: bytes, link: int, now: int) -> None:
        for message in messages:
            if message.origin != self.me and self.arrived[message.origin].add(message.seq):
                self.since[message] = now
                if self.logged:
                    self._fresh.add(message)
                    self._uncommitted.add(message)
                self._keep(message, data, self.asks)
                if self.traced:
                    self._trace(Event("receive", *message, now, link=link))

    def _keep(self, message: MessageId, data: bytes, useful: bool) -> None:
        origin, seq = message
        kept = self.kept[origin]
        if seq > self.stable[origin] and seq not in kept:
            size = len(data) + _ENTRY_BYTES
            kept[seq] = (size, data if useful else None)
            self.unstable_bytes += size
            if seq > self.known[self.me][origin]:
                self.unread_bytes += size
            if useful and self.logged:
                self._newly_kept.append(message)

    def _trace(self, event: Event) -> None:
        self._events.append(event)
        self.events += 1
