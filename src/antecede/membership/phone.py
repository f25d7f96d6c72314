"""A phone in a dynamic group: an internal peer that joins, leaves, and moves between super peers.

A move leaves no gap and needs no snapshot. From some moment on, the new super peer keeps for the phone every
message that it delivers. The old one releases the phone once it has delivered everything that the new one had
delivered at that moment. The phone then has exactly the old one's messages, and the new one sends it the
rest. Messages that the phone broadcasts meanwhile wait until then. No other member learns of the move.
"""

from __future__ import annotations

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.membership.backlog import Backlog, BacklogEntry
from antecede.membership.packets import Stream
from antecede.membership.site_packets import (
    MoveReady,
    MoveRequest,
    PhoneArrival,
    PhoneJoin,
    PhoneLeave,
    PhoneRefused,
    PhoneReleased,
    PhoneWelcome,
    ReleaseRequest,
    SiteDownlink,
    Slot,
    StableNumber,
    author_id,
)
from antecede.membership.state import Phase
from antecede.membership.upgrading import FIRST
from antecede.protocols.base import (
    Delivery,
    Effects,
    HoldBackQueue,
    LocalError,
    Packet,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.freescale.internal import InternalPeer
from antecede.protocols.freescale.packets import DownlinkPacket, NumberAssignment, UplinkPacket

ACK_EVERY = 8
"""Deliveries after which a silent phone reports its progress."""
SETTLES_FIRST_SINCE = 2
"""The wire version from which on super peers accept nothing from a phone, and do not tell it what is stable,
until everything that it has brought back was rebroadcast or need not be."""


class FifoInternalPeer(InternalPeer, tag="phone"):
    """On FIFO links the causes of a message have arrived before it, so nothing is held. Holding would not
    work either: a message may depend on another one through a membership message, which phones do not
    receive."""

    holdback: HoldBackQueue[int, SiteDownlink] = msgspec.field(  # type: ignore[assignment]
        default_factory=HoldBackQueue
    )

    is_linear: bool = False
    """Whether it names everything that it has delivered by the last number, rather than by single numbers."""

    def create_packet(self, payload: bytes) -> UplinkPacket:
        if self.is_linear:
            self.causes.clear()
        return super().create_packet(payload)

    def deliver(self) -> Delivery | None:
        delivery = super().deliver()
        if self.is_linear:
            self.causes.clear()
        return delivery

    def hold(self, packet: DownlinkPacket) -> None:
        if not isinstance(packet, SiteDownlink):
            raise RemoteError("a message without the place where it was broadcast")
        self.holdback.ready.append(packet)


class PhoneSlot(msgspec.Struct):
    """A slot at a super peer, and its numbering."""

    hub: int
    """The super peer's address."""
    stream: Stream
    slot: Slot
    peer: FifoInternalPeer

    @classmethod
    def create(cls, hub: int, stream: Stream, slot: Slot, sent: int, is_linear: bool) -> PhoneSlot:
        peer = FifoInternalPeer(author_id(stream, slot), hub, ACK_EVERY, sent, is_linear=is_linear)
        return cls(hub, stream, slot, peer)

    def begin(self, number: int, skipped: list[int]) -> None:
        self.peer.delivered = BitWindow(number)
        for each in skipped:
            self.peer.delivered.add(each)


class RetainedByPhone(msgspec.Struct):
    """A message that the phone has sent or delivered, and does not know to be stable."""

    entry: BacklogEntry
    number: int
    """Its number at the current super peer; 0 if it is not known yet."""


class Phone(msgspec.Struct):
    """The state of a phone, whose address is `me`."""

    me: int
    is_linear: bool = False
    phase: Phase = Phase.OUTSIDE
    contact: int = -1
    """The super peer that was asked for a slot."""
    here: PhoneSlot | None = None
    coming: PhoneSlot | None = None
    """During a move, the slot at the new super peer."""
    is_released: bool = False
    is_giving_up: bool = False
    """Whether it asks its super peer what that has accepted, in order to return."""
    before: list[SiteDownlink] = msgspec.field(default_factory=list)
    """Messages that were received before a move, and are delivered first."""
    queue: list[UplinkPacket] = msgspec.field(default_factory=list)
    """Messages that were broadcast during a move."""
    retained: list[RetainedByPhone] = msgspec.field(default_factory=list)
    brought: Backlog = msgspec.field(default_factory=Backlog)
    """The backlog of its former incarnation, and the admissions since then, by stream."""
    hears_when_settled: bool = False
    """Whether its super peer notifies it when everything that it has brought back is settled."""
    is_settled: bool = False
    """Whether that has happened, and the driver has not handled it yet."""
    late: list[BacklogEntry] = msgspec.field(default_factory=list)
    """What it has broadcast since it returned and before that was settled. Everybody delivers its backlog
    before these messages; the driver arranges the same for its own application."""
    last: int = 0
    """The last message of its super peer's stream at the time of the last stability announcement."""
    snapshot: bytes | None = None
    quitting: set[int] = msgspec.field(default_factory=set)
    """Super peers that were asked for a slot that is no longer wanted, until they answer."""
    outbox: list[Send] = msgspec.field(default_factory=list)

    # Called by the application and its driver

    def join(self, hub: int) -> None:
        if self.phase != Phase.OUTSIDE:
            raise LocalError("only a process outside the group can join it")
        self.phase, self.contact = Phase.JOINING, hub
        self._send(hub, PhoneJoin(self.brought))

    def move(self, hub: int) -> None:
        """Ask another super peer for a slot. The phone stays where it is until it has the new slot."""
        if not self.may_move(hub):
            raise LocalError("a phone moves from its super peer to another, once at a time")
        self.contact = hub
        self._send(hub, MoveRequest())

    def may_move(self, hub: int) -> bool:
        is_idle = self.coming is None and self.here is not None and self.contact == self.here.hub
        is_idle = is_idle and not self.is_giving_up
        return self.phase == Phase.MEMBER and is_idle and hub != self.contact and hub not in self.quitting

    def may_leave(self) -> bool:
        return self.here is not None and self.may_move(-1)

    def leave(self) -> None:
        if self.here is None or not self.may_leave():
            raise LocalError("only a phone that has a slot and does not move can leave")
        self._send(self.here.hub, PhoneLeave(self.here.peer.sent))
        self.phase = Phase.LEAVING

    def give_up(self, gone: frozenset[int] | set[int]) -> None:
        """Super peers at these addresses were removed. If the phone relies on one of them, it has to return
        as another incarnation. It first asks the other super peers what they have accepted from it."""
        here, coming = self.here, self.coming
        if coming is None and here is not None and here.hub not in gone and self.phase == Phase.MEMBER:
            self.contact = here.hub  # it stays at its super peer
            return
        if coming is not None and coming.hub not in gone:
            self._send(coming.hub, PhoneLeave(coming.peer.sent))
        elif coming is None and self.contact not in gone and (here is None or self.contact != here.hub):
            self._send(self.contact, PhoneLeave(0))
        if here is not None and here.hub not in gone and self.phase == Phase.MEMBER:
            self.is_giving_up = True
            self._send(here.hub, PhoneLeave(here.peer.sent))
        else:
            self._end()

    def quit(self, hub: int) -> None:
        """The phone no longer needs the slot for which it asked a super peer."""
        self.quitting.add(hub)
        self._send(hub, PhoneLeave(0))

    def _end(self) -> None:
        queued = {packet.message_ids()[0] for packet in self.queue}
        for each in self.retained:
            if each.entry.original in queued:
                each.entry = msgspec.structs.replace(each.entry, is_lost=True)  # it was sent to nobody
        self.queue, self.phase = [], Phase.REMOVED

    def broadcast(self, payload: bytes) -> Effects:
        if self.phase != Phase.MEMBER or self.here is None:
            raise LocalError("only a phone that has a slot can broadcast")
        place = self.coming or self.here
        packet = place.peer.create_packet(payload)
        (message,) = packet.message_ids()
        entry = BacklogEntry(message, payload, (place.stream, place.slot))
        self.retained.append(RetainedByPhone(entry, 0))
        if self.is_settling:
            self.late.append(entry)
        if self.coming is None:
            self._send(place.hub, packet)
        else:
            self.queue.append(packet)
        return self.effects(message)

    def deliver(self) -> Delivery | None:
        if self.phase != Phase.MEMBER or self.here is None:
            return None
        if self.before:
            packet = self.before.pop(0)
            return Delivery(packet.message_ids()[0], packet.payload)
        return self.here.peer.deliver()

    def has_deliverable(self) -> bool:
        return self.here is not None and bool(self.before or self.here.peer.holdback.ready)

    def waiting(self) -> list[Waiting]:
        return self.here.peer.waiting() if self.here is not None else []

    def make_backlog(self) -> Backlog:
        """The messages that a new incarnation of this phone is to bring back, in the order of reception."""
        entries = [*self.brought.entries, *(each.entry for each in self.retained)]
        found = {entry.original: entry for entry in entries}
        backlog = Backlog(list(found.values()))
        backlog.add(Backlog([], self.brought.admissions, self.brought.awaited))
        if self.here is not None:
            backlog.add(Backlog(awaited={self.here.stream: self.last}))
        return backlog

    # Receiving

    def receive(self, link: int, packet: Packet, version: int = FIRST) -> None:
        """`version` is the one of the wire format that the super peer speaks."""
        here, coming = self.here, self.coming
        if isinstance(packet, PhoneWelcome):
            self._on_welcome(link, packet, version)
        elif isinstance(packet, MoveReady):
            self._on_move_ready(link, packet)
        elif isinstance(packet, PhoneRefused):
            self._on_refused(link, packet)
        elif here is None or self.phase != Phase.MEMBER or link != here.hub:
            return  # from a super peer that it has left, or lost by a removal
        elif isinstance(packet, PhoneReleased):
            if coming is not None and not self.is_released and not self.is_giving_up:
                self.is_released = True
                self._settle()
                self._send(coming.hub, PhoneArrival(packet.counts, packet.done))
        elif isinstance(packet, StableNumber):
            self.last = packet.last
            if packet.number:
                self._settle()
            self.retained = [each for each in self.retained if not 0 < each.number <= packet.number]
        else:
            if isinstance(packet, NumberAssignment):
                self._note_number(here, packet)
                self._settle()
            elif isinstance(packet, SiteDownlink):
                if packet.is_again and self._has(packet.message_ids()[0]):
                    here.peer.delivered.add(packet.number)
                    return
                self._retain(packet)
            self.outbox += here.peer.receive(link, packet)

    def _on_welcome(self, link: int, welcome: PhoneWelcome, version: int) -> None:
        coming = self.coming
        if self.phase == Phase.JOINING and link == self.contact and welcome.snapshot is not None:
            self.phase, self.snapshot = Phase.MEMBER, welcome.snapshot
            # A super peer that is upgraded later does not delay what it has not delayed so far.
            self.hears_when_settled = version >= SETTLES_FIRST_SINCE
            self.here = PhoneSlot.create(link, welcome.stream, welcome.slot, welcome.sent, self.is_linear)
            self.here.begin(welcome.number, [])
            self.last = welcome.last
            self.brought.admissions |= welcome.admissions
            self.retained = [RetainedByPhone(entry, number) for number, entry in welcome.unstable]
        elif self.is_giving_up:
            return
        elif coming is not None and self.here is not None and link == coming.hub and self.is_released:
            self.before += self.here.peer.holdback.ready
            coming.begin(welcome.number, welcome.skipped.numbers())
            # Recognise own messages by the queue, not by the slot: the slot may have belonged to another
            # phone, whose messages this one has.
            queued = {packet.message_ids()[0] for packet in self.queue}
            for each in self.retained:
                each.number = 0 if each.entry.original in queued else welcome.current
            self.here, self.coming, self.is_released = coming, None, False
            self.last = welcome.last  # it has everything that the former super peer had
            queue, self.queue = self.queue, []
            for packet in queue:
                self._send(link, msgspec.structs.replace(packet, delivered_up_to=coming.peer.delivered.base))

    def _on_move_ready(self, link: int, ready: MoveReady) -> None:
        here = self.here
        if here is None or self.phase != Phase.MEMBER or self.is_giving_up:
            return
        if self.coming is not None or link != self.contact or link in self.quitting:
            return
        self.coming = PhoneSlot.create(link, ready.stream, ready.slot, ready.sent, self.is_linear)
        self.brought.admissions |= ready.admissions
        self._send(here.hub, ReleaseRequest(ready.counts))

    def _on_refused(self, link: int, refused: PhoneRefused) -> None:
        here, coming = self.here, self.coming
        if link in self.quitting:
            self.quitting.discard(link)
        elif self.phase == Phase.JOINING and link == self.contact:
            self.phase = Phase.REMOVED
        elif here is None:
            return
        elif self.phase == Phase.LEAVING and refused.accepted == here.peer.sent and link == here.hub:
            self.phase = Phase.ENDED
        elif self.phase not in (Phase.MEMBER, Phase.LEAVING):
            return
        elif link == here.hub:
            if refused.accepted is not None:
                self._mark_unaccepted(here, refused.accepted)
            if not self.is_giving_up:
                self.give_up({link})
            self._end()
        elif coming is not None and link == coming.hub:
            if not self.is_giving_up:
                self.give_up({link})
        elif link == self.contact:
            self.contact = here.hub  # it stays at its super peer

    def _mark_unaccepted(self, here: PhoneSlot, accepted: int) -> None:
        for each in self.retained:
            entry = each.entry
            if entry.author == (here.stream, here.slot) and entry.original.seq > accepted:
                each.entry = msgspec.structs.replace(entry, is_lost=True)

    def _has(self, message: MessageId) -> bool:
        """Whether its former super peer sent it a message that two members have rebroadcast."""
        return any(each.entry.original == message for each in self.retained)

    def _note_number(self, here: PhoneSlot, packet: NumberAssignment) -> None:
        for each in self.retained:
            if each.entry.author == (here.stream, here.slot) and each.entry.original.seq == packet.seq:
                each.number = packet.number

    @property
    def is_settling(self) -> bool:
        """Whether its super peer will notify it when everything that it has brought back is settled."""
        return self.hears_when_settled and bool(self.brought.entries)

    def _settle(self) -> None:
        """The super peer has accepted a message of this phone, has released it, or has announced what is
        stable: so everything that the phone has brought back is settled there. It is stable, or the phone
        retains it again, from its snapshot or as received. All of these messages have numbers of this super
        peer, which determine the order in which they are brought back; own messages without a number
        follow."""
        if self.is_settling:
            self.is_settled = True
            self.brought = Backlog([], self.brought.admissions, self.brought.awaited)
            self.retained.sort(key=lambda each: (not each.number, each.number))

    def _retain(self, packet: SiteDownlink) -> None:
        author = (packet.stream, packet.slot)
        message = MessageId(packet.origin, packet.seq)
        entry = BacklogEntry(message, packet.payload, author, is_lost=packet.is_again)
        self.retained.append(RetainedByPhone(entry, packet.number))
        self.brought.admissions |= packet.admissions

    def _send(self, to: int, packet: Packet) -> None:
        self.outbox.append(Send((to,), packet))

    def effects(self, message: MessageId | None = None) -> Effects:
        sends, self.outbox = tuple(self.outbox), []
        return Effects(sends, message=message)
