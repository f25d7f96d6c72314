"""A super peer in a dynamic group: a member with phones that the other members do not know about.

It broadcasts its phones' messages in its own stream, in the order in which it receives them, with the causes
that each phone names. So the group needs one count for each super peer, however many phones are behind it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.membership.backlog import BacklogEntry, Fate
from antecede.membership.member import ChangingMember
from antecede.membership.packets import (
    ApplicationData,
    Content,
    Counts,
    Departure,
    Expulsion,
    ProgressReport,
    Stream,
    Welcome,
    decode_content,
    in_order,
)
from antecede.membership.site import ComingPhone, LiveSlot, Site
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
    SitePacket,
    StableNumber,
    author_id,
)
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, Effects, LocalError, Packet, RemoteError, Send
from antecede.protocols.flat import DependencyPacket, sorted_by_peer
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, UplinkPacket
from antecede.protocols.freescale.translation import InternalReport
from antecede.protocols.mbcp import Mbcp

UpPacket = UplinkPacket | InternalAck


class SiteOrder(Mbcp):
    """`mbcp`, except that a member may broadcast for others, with their causes."""

    named: dict[int, int] | None = None
    """The causes that the next message names, if they differ from this member's dependencies."""

    def stamp(self, seq: int, payload: bytes) -> DependencyPacket:
        named, self.named = self.named, None
        if named is None or seq == 1:  # the first message names the one that admitted this member
            return super().stamp(seq, payload)
        for peer, count in named.items():
            if self.causes.get(peer) == count:
                del self.causes[peer]
        return DependencyPacket(payload, self.me, seq, sorted_by_peer(named))

    def next_causes(self) -> dict[int, int]:
        if self.named is None or not self.delivered[self.me]:
            return super().next_causes()
        return sorted_by_peer(self.named)


class HubMember(ChangingMember, kw_only=True):
    """A member that may have phones."""

    site: Site = msgspec.field(default_factory=Site)

    # Called by a driver

    def admit_phone(self, address: int, snapshot: bytes, now: int) -> Effects:
        """Give a phone a slot, once the application has received everything that counts as delivered."""
        site = self.site
        backlogs = [backlog for each, backlog in site.requests if each == address]
        site.requests = [each for each in site.requests if each[0] != address]
        if not self.is_member:
            self._send(address, PhoneRefused())
            return self._effects()
        if self.undelivered:
            raise LocalError("deliver first: the snapshot would lack what counts as delivered")
        slot, last = site.take_slot()
        site.slots[address] = LiveSlot(slot, last, report=InternalReport(site.number))
        self._send(
            address,
            PhoneWelcome(
                self.stream,
                slot,
                last,
                site.number,
                OffsetBitmap(),
                site.number,
                self._chains_of_unstable(),
                self._unstable(),
                snapshot,
                self.order.delivered[self.stream],
            ),
        )
        for backlog in backlogs:
            self.backlog.add(backlog)
            if backlog.entries:
                site.delayed[address] = []
        self._update(now)
        return self._effects()

    def _unstable(self) -> list[tuple[int, BacklogEntry]]:
        """The application's messages that are not known to be stable, in the form in which a phone brings
        them back."""
        found = []
        for number, message in self.site.unstable:
            content = self._content(message)
            if isinstance(content, ApplicationData):
                original, author = self._identify(content, message)
                is_lost = content.original is not None
                found.append((number, BacklogEntry(original, content.payload, author, is_lost)))
        return found

    def _chains_of_unstable(self) -> dict[Stream, MessageId]:
        """The admissions of this member and of the senders of messages in `_unstable`: a phone may bring
        these messages back to a super peer that has never known their senders."""
        chain = self._whole_chain(self.stream)
        for _, message in self.site.unstable:
            chain |= self._admission_chain(message.origin)
        return chain

    def _content(self, message: MessageId) -> Content | None:
        """The content of a message that is not known to be stable."""
        entry = self.unstable.get(message.origin, {}).get(message.seq)
        return None if entry is None else decode_content(self._payload(message, entry.packet))

    def expel(self, address: int, now: int) -> Effects:
        """Retire the slot of a phone that is gone; if it is still up, it may join again."""
        site, place = self.site, self.site.slots.get(address) or self.site.coming.get(address)
        if self.is_member and place is not None:
            self._retire(address)
            site.refused[address] = place.last
            site.unannounced.add(place.slot)
            self._send(address, PhoneRefused(place.last))
            self._update(now)
        return self._effects()

    def owes_expulsions(self) -> bool:
        """Whether there are retired slots to announce to others, and all members' versions can read the
        announcement."""
        return bool(self.site.unannounced) and self.is_member and self.version >= Expulsion.since

    def announce_expelled(self, now: int) -> Effects:
        """Announce to everybody that the slots of expelled phones are retired. Such a phone may have given up
        this super peer before it could be notified, and have returned elsewhere with messages of which only
        this one knows that they never arrived."""
        if self.owes_expulsions():
            expulsion = Expulsion(in_order(self.site.unannounced))
            self.site.unannounced.clear()
            self._on_expulsion(expulsion, self._broadcast(expulsion, now))
            self._update(now)
        return self._effects()

    def _apply(self, content: Content, message: MessageId, now: int) -> None:
        super()._apply(content, message, now)
        if isinstance(content, Expulsion):
            self._on_expulsion(content, message)

    def _on_expulsion(self, expulsion: Expulsion, message: MessageId) -> None:
        accepted = self.authors.setdefault(message.origin, {})
        for slot in sorted(expulsion.slots):
            if slot > 0:  # others have another meaning
                accepted[-slot] = accepted.get(slot, 0)

    def may_leave(self) -> bool:
        site = self.site
        is_empty = not (site.slots or site.coming or site.requests or self.backlog.entries)
        return is_empty and super().may_leave()

    def _departure(self, others: set[Stream]) -> Departure:
        accepted = self.authors.get(self.stream, {})
        expelled = {slot: accepted.get(slot, 0) for slot in self.site.retired_for_good()}
        return Departure(in_order(others), expelled)

    def _on_departure(self, departure: Departure, message: MessageId) -> None:
        super()._on_departure(departure, message)
        self.authors[message.origin] = {**departure.expelled, 0: message.seq}

    def leave(self, now: int) -> Effects:
        if self.is_member and not self.may_leave() and not self._unclosed():
            raise LocalError("its phones have to move or leave first")
        return super().leave(now)

    def report(self, now: int) -> Effects:
        sends = (*self.announce_expelled(now).sends, *super().report(now).sends)
        return Effects((*sends, *self._refuse_all(), *self.tell_stable(now).sends))

    def has_stable(self) -> bool:
        """Whether more messages have become stable than phones know of. O(members)."""
        if not self.is_member or not self.site.unstable:
            return False
        stream, seq = self.site.unstable[0][1]
        return stream not in self.order.delivered or self._is_stable(
            stream, seq, self.progress.of(self._required())
        )

    def tell_stable(self, now: int) -> Effects:
        """Tell the phones up to which number everything is stable."""
        site = self.site
        sends: tuple[Send, ...] = ()
        if self.is_member:
            others, delivered = self.progress.of(self._required()), self.order.delivered
            last = 0
            while site.unstable:
                number, (stream, seq) = site.unstable[0]
                if stream in delivered and not self._is_stable(stream, seq, others):
                    break
                last = number
                del site.unstable[0]
            if last:
                sends = self._stable_up_to(last)
            site.clean_up()
        return Effects(sends)

    def _end(self, stream: Stream, last: int) -> None:
        """From now on messages, including admissions, become stable without the removed member, and phones
        are not notified of stable admissions. So they are told how much of this member's stream a super peer
        must have before they may bring anything back to it."""
        super()._end(stream, last)
        if stream in self.removals.removed:
            self.outbox += self._stable_up_to(0)

    def _stable_up_to(self, number: int) -> tuple[Send, ...]:
        """For a phone, a number above 0 also means that everything it has brought back is settled."""
        told = StableNumber(number, self.order.delivered[self.stream])
        delayed = self.site.delayed if number else {}
        to = tuple(sorted(self.site.slots.keys() - delayed.keys()))
        return (Send(to, told),) if to else ()

    # Messages

    def _identify(
        self, content: ApplicationData, message: MessageId
    ) -> tuple[MessageId, tuple[Stream, int] | None]:
        if content.sent_by is None:
            return super()._identify(content, message)
        slot, seq = content.sent_by
        return MessageId(author_id(message.origin, slot), seq), (message.origin, slot)

    def _on_application(self, content: ApplicationData, message: MessageId, causes: Counts) -> None:
        """Send it to the phones."""
        site, stream = self.site, message.origin
        if content.sent_by is not None:
            slot, seq = content.sent_by
            self.authors.setdefault(stream, {})[slot] = seq
        if stream == self.stream:
            named, site.causes = site.causes, set()
        else:
            named = site.table.inwards(causes)
        self._number(content, message, named, site.latest.get(stream, 0))
        site.latest[stream] = site.number
        site.clean_up()

    def _number(
        self,
        content: ApplicationData,
        message: MessageId,
        named: set[int],
        previous: int,
        sender: int | None = None,
    ) -> None:
        site = self.site
        site.number += 1
        site.table.add(site.number, message)
        site.unstable.append((site.number, message))
        (origin, seq), author = self._identify(content, message)
        stream, slot = author or (origin, 0)
        causes = OffsetBitmap.from_numbers(named)
        chain = self._admission_chain(stream)
        down = SiteDownlink(
            content.payload,
            origin,
            seq,
            site.number,
            previous,
            causes,
            stream,
            slot,
            chain,
            content.original is not None,
        )
        if to := tuple(sorted(address for address in site.slots if address != sender)):
            self.outbox.append(Send(to, down))
        for each in site.coming.values():
            each.kept.append((message, down))
        site.causes -= named
        site.causes.discard(previous)
        site.causes.add(site.number)

    def _fate(self, entry: BacklogEntry) -> Fate:
        if entry.is_lost or entry.author is None or entry.author[1] == 0:
            return super()._fate(entry)
        stream, slot = entry.author
        last = self.authors.get(stream, {})
        if entry.original.seq <= last.get(slot, 0):
            return Fate.DELIVERED
        if 0 in last:  # the super peer has left: only phones that it had expelled may have sent it more
            return Fate.LOST if slot in last else Fate.DELIVERED
        if -slot in last:
            return Fate.LOST
        if self._end_of(stream) is not None:
            return Fate.LOST
        if stream in self.order.delivered:
            return Fate.OPEN
        # The stream is forgotten, or its member was never admitted.
        return super()._fate(BacklogEntry(MessageId(stream, 1), b""))

    # Receiving

    def _adopt(self, welcome: Welcome) -> None:
        """Number the messages in the snapshot that are not known to be stable: phones may have to bring them
        back."""
        super()._adopt(welcome)
        site = self.site
        delivered = [(entry.place, message) for message, entry in self._in_order_of_arrival() if entry.place]
        for _, message in sorted(delivered):
            if isinstance(self._content(message), ApplicationData):
                site.number += 1
                site.unstable.append((site.number, message))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, SitePacket | UpPacket):
            effects = super().receive(link, packet, now)
            return Effects((*effects.sends, *self._refuse_all()), message=effects.message)
        if not self.is_member:
            self._send(link, PhoneRefused())
            return self._effects()
        self._receive_from_phone(link, packet, now)
        self._update(now)
        return self._effects()

    def deliver(self, now: int) -> Delivery | None:
        delivery = super().deliver(now)
        self.outbox += self._refuse_all()
        return delivery

    def _refuse_all(self) -> tuple[Send, ...]:
        """After its removal, a super peer refuses its phones."""
        site = self.site
        if self.phase != Phase.REMOVED or not (site.slots or site.coming):
            return ()
        to = tuple(sorted({*site.slots, *site.coming}))
        site.slots, site.coming, site.delayed = {}, {}, {}
        return (Send(to, PhoneRefused()),)

    def _receive_from_phone(self, link: int, packet: Packet, now: int) -> None:
        site = self.site
        if link in site.delayed:
            site.delayed[link].append(self.encode(packet))
        elif isinstance(packet, PhoneJoin):
            site.requests.append((link, packet.backlog))
        elif isinstance(packet, MoveRequest):
            self._reserve(link)
        elif isinstance(packet, PhoneLeave):
            self._on_phone_leave(link, packet)
        elif isinstance(packet, PhoneArrival) and link in site.coming:
            site.coming[link].has = packet
        elif link in site.slots:
            self._receive_from_slot(link, site.slots[link], packet, now)
        elif link in site.refused:
            self._send(link, PhoneRefused(site.refused[link]))

    def _take_delayed(self, now: int) -> None:
        """Everything that phones had broadcast before they returned is brought back. Now their later
        broadcasts may follow, as their applications expect."""
        delayed, self.site.delayed = self.site.delayed, {}
        unstable = self.site.unstable
        stable = unstable[0][0] - 1 if unstable else self.site.number
        for link, packets in delayed.items():
            self._send(link, StableNumber(stable, self.order.delivered[self.stream]))
            try:
                for data in packets:
                    self._receive_from_phone(link, self.decode(data), now)
            except RemoteError:
                if (place := self.site.slots.get(link)) is not None:
                    self._retire(link)
                    self._send(link, PhoneRefused(place.last))

    def _receive_from_slot(self, link: int, place: LiveSlot, packet: Packet, now: int) -> None:
        site = self.site
        if isinstance(packet, ReleaseRequest):
            place.release_at = packet.counts
            return
        if not isinstance(packet, UpPacket):
            raise RemoteError(f"a packet of type {type(packet).__name__} from a phone")
        numbers = packet.causes.numbers()
        if not 0 <= packet.delivered_up_to <= site.number or any(not 1 <= n <= site.number for n in numbers):
            raise RemoteError("a phone names numbers that were not assigned")
        self._on_progress_of(place, packet.delivered_up_to)
        if isinstance(packet, UplinkPacket):
            if packet.origin != author_id(self.stream, place.slot) or packet.seq != place.last + 1:
                raise RemoteError(f"message {packet.seq} from slot {place.slot}, after {place.last}")
            self._broadcast_for(link, place, packet, now)
            place.report = InternalReport(packet.delivered_up_to)
        elif packet.after == place.last and packet.delivered_up_to >= place.report.delivered_up_to:
            place.report = InternalReport(packet.delivered_up_to, set(numbers))
        site.clean_up()

    def _broadcast_for(self, link: int, place: LiveSlot, packet: UplinkPacket, now: int) -> None:
        site, numbers = self.site, set(packet.causes.numbers())
        content = ApplicationData(packet.payload, sent_by=(place.slot, packet.seq))
        if not place.has_sent:
            numbers = set(site.causes)
        self.order.named = self._named_by(place, packet) if place.has_sent else None
        message = self._broadcast(content, now)
        self.authors.setdefault(self.stream, {})[place.slot] = packet.seq
        previous = place.number
        place.last, place.has_sent = packet.seq, True
        self._number(content, message, numbers, previous, link)
        place.number = site.number
        self._send(link, NumberAssignment(packet.seq, site.number))
        identity, _ = self._identify(content, message)
        self.undelivered.append(Delivery(identity, packet.payload))

    def _named_by(self, place: LiveSlot, packet: UplinkPacket) -> Counts | None:
        """The causes that a phone's message names in the group; None if it follows everything delivered
        here."""
        return self._known_only(self.site.table.outwards(packet.causes.numbers()))

    def _known_only(self, counts: Counts) -> Counts:
        """The counts without streams that every member has completely."""
        known = self.order.delivered.keys() - self.progress.done - {self.stream}
        return {each: count for each, count in counts.items() if each in known}

    def _on_progress_of(self, place: LiveSlot, delivered_up_to: int) -> None:
        """A phone has delivered the messages up to this number."""

    # Arriving and departing phones

    def _reserve(self, link: int) -> None:
        site = self.site
        if link in site.slots or link in site.coming:
            return
        slot, last = site.take_slot()
        site.coming[link] = ComingPhone(slot, last, site.number)
        chain = self._whole_chain(self.stream)
        # Every member has all of the streams that are done here. A member that has learned this may have
        # forgotten them: from a report to everyone, a welcome, or the report that a new member is sent.
        done, delivered = self._all_have(), self.order.delivered
        counts = {each: count for each, count in delivered.items() if each not in done}
        self._send(link, MoveReady(self.stream, slot, last, counts, chain))

    def _on_phone_leave(self, link: int, packet: PhoneLeave) -> None:
        site = self.site
        site.requests = [each for each in site.requests if each[0] != link]
        accepted = site.refused.pop(link, packet.sent)
        place = site.slots.get(link) or site.coming.get(link)
        if place is not None:
            self._retire(link)
            if place.last == packet.sent:  # otherwise it has used numbers for messages that it has not sent
                site.free[place.slot] = place.last
        self._send(link, PhoneRefused(accepted))

    def _retire(self, address: int) -> None:
        self.site.slots.pop(address, None)
        self.site.coming.pop(address, None)
        self.site.delayed.pop(address, None)
        self.is_stale = True
        self.site.clean_up()

    def _has_delivered(self, counts: Counts, done: Collection[Stream] = ()) -> bool:
        """Whether these counts are delivered here. The streams must be known too, even empty ones: a member
        that was removed and does not know it learns of its removal before it knows newer members."""
        known = self.order.delivered
        return all(
            stream in done or (stream in known and known[stream] >= count) for stream, count in counts.items()
        )

    def _all_have(self) -> frozenset[Stream]:
        """The streams that every member has completely."""
        return in_order(self.progress.done)

    def _update(self, now: int) -> None:
        super()._update(now)
        site = self.site
        if site.delayed and not self.backlog.entries:
            self._take_delayed(now)
        for address, place in list(site.slots.items()):
            if place.release_at is not None and self._has_delivered(place.release_at):
                self._retire(address)
                site.free[place.slot] = place.last
                self._send(address, PhoneReleased(dict(self.order.delivered), self._all_have()))
        for address, coming in list(site.coming.items()):
            if coming.has is not None and self._has_delivered(coming.has.counts, coming.has.done):
                self._let_in(address, coming, coming.has.counts)

    def _let_in(self, address: int, coming: ComingPhone, has: Counts) -> None:
        """Admit a phone that was released. This member has delivered everything that the phone has, and has
        retained the messages that the phone is missing."""
        site = self.site
        del site.coming[address]
        self.is_stale = True
        lacks = [down for (stream, seq), down in coming.kept if seq > has.get(stream, 0)]
        lacking = {down.number for down in lacks}
        skipped = OffsetBitmap.from_numbers({down.number for _, down in coming.kept} - lacking)
        site.slots[address] = LiveSlot(coming.slot, coming.last, report=InternalReport(coming.number))
        self._send(
            address,
            PhoneWelcome(
                self.stream,
                coming.slot,
                coming.last,
                coming.number,
                skipped,
                site.number,
                {},
                last=self.order.delivered[self.stream],
            ),
        )
        for down in lacks:
            self._send(address, down)
        if not site.unstable:  # everything that it brings is stable, and no later notification would follow
            self._send(address, StableNumber(site.number, self.order.delivered[self.stream]))

    def _report(self, forgotten: Collection[Stream] = ()) -> ProgressReport:
        """While a phone is arriving, no stream is reported as done: its former super peer would forget the
        stream, and could no longer state how much of it the phone has."""
        report = super()._report(forgotten)
        if not self.site.coming:
            return report
        return msgspec.structs.replace(report, done=frozenset({*self.progress.announced, *forgotten}))

    def withholds_done(self) -> bool:
        return bool(self.site.coming)

    def _forget(self, stream: Stream) -> None:
        """Nothing is forgotten while a phone is arriving, either: it may have been released with the counts
        of a stream that its former super peer had not reported as done yet."""
        if self.site.coming:
            return
        super()._forget(stream)
        self.site.table.drop_stream(stream)
        self.site.latest.pop(stream, None)
        # Phones of a removed member may return with more messages; so may phones that a departed member had
        # expelled.
        if stream not in self.tombstones and self.authors.get(stream, {}).keys() <= {0}:
            self.authors.pop(stream, None)
