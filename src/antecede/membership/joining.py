"""How a process becomes a member: it asks a member, its sponsor, which admits it and sends a snapshot."""

from __future__ import annotations

import msgspec

from antecede.causality import MessageId
from antecede.membership.packets import (
    AdmitMember,
    Disowning,
    FetchReply,
    JoinRequest,
    NobodyHere,
    SealedWelcome,
    Stream,
    Welcome,
    admitted_stream,
    encode_content,
    in_order,
)
from antecede.membership.progress import KnownProgress
from antecede.membership.receiving import is_direct
from antecede.membership.removal import Removals
from antecede.membership.returning import ReturningMember
from antecede.membership.state import Phase, ViewChange
from antecede.membership.upgrading import FIRST
from antecede.protocols.base import NO_EFFECTS, Effects, LocalError, Packet, RemoteError


class JoiningMember(ReturningMember, kw_only=True):
    """Asks for admission, and admits others."""

    def join(self, contact: int, now: int) -> Effects:
        """Ask the member at an address for admission.

        An address is for one attempt. If there is no answer, the process asks again at another address and,
        once it is admitted, abandons the other attempts.
        """
        if self.phase != Phase.OUTSIDE:
            raise LocalError("only a process outside the group can join it, and asks once at an address")
        self.phase = Phase.JOINING
        self._send(contact, JoinRequest(self.me))
        return self._effects()

    def abandon(self, now: int) -> Effects:
        """The process no longer waits for an answer here. There will be no member at this address."""
        if self.phase not in (Phase.OUTSIDE, Phase.JOINING):
            raise LocalError("only a process that is not a member yet can abandon that")
        self.phase = Phase.ENDED
        before, self.before_welcome = self.before_welcome, []
        for link in sorted({link for link, _ in before}):
            self._answer_nobody(link)
        return self._effects()

    def _on_welcome(self, link: int, welcome: Welcome, now: int) -> None:
        if self.phase != Phase.JOINING:
            if self.phase in (Phase.ENDED, Phase.REMOVED):
                self._answer_nobody(link)
            return
        if not welcome.removed <= welcome.delivered.keys() or welcome.stream in welcome.delivered:
            raise RemoteError("a welcome whose counts do not fit its members")
        self.phase, self.stream, self.snapshot = Phase.MEMBER, welcome.stream, welcome.snapshot
        self.addresses = dict(welcome.addresses)
        self.stream_at = {address: stream for stream, address in self.addresses.items()}
        self.order = self.ordering(self.stream, 0, is_open=True, delivered={self.stream: 0})
        self.order.begin(welcome.delivered, welcome.admission)
        self.ends, self.tombstones = dict(welcome.cuts), dict(welcome.tombstones)
        self.forgotten = {stream: dict(counts) for stream, counts in welcome.forgotten.items()}
        self.order.forgotten = set(self.forgotten)
        self.admissions, self.contacts = dict(welcome.admissions), dict(welcome.contacts)
        self.unstable_admissions = dict(welcome.unstable_admissions)
        self.originals = set(welcome.originals)
        self.authors = {stream: dict(counts) for stream, counts in welcome.authors.items()}
        self.progress.done = set(welcome.done)
        for stream in welcome.done:
            self.order.stop_naming(stream)
        for other, report in welcome.progress.items():
            self.progress.known[other] = KnownProgress()
            self.progress.known[other].add(report)
        self.removals = Removals(set(welcome.removed), dict(welcome.flushes))
        self.changes.append(ViewChange("admit", self.stream, welcome.admission))
        self._announce_view()
        self._greet()
        self._adopt(welcome)
        if self.removals.removed:
            self._flush(now)  # others need the report, even if the sponsor knows where these streams end
        self._rebroadcast_lost(now)

    def _adopt(self, welcome: Welcome) -> None:
        """Take over the messages that the sponsor held, or had delivered and did not know to be stable."""
        delivered = self.order.delivered
        for data in welcome.messages:
            packet = self._decode_message(data)
            for message in packet.message_ids():
                if message.seq <= delivered.get(message.origin, 0):
                    self._retain(message, data, is_delivered=True)
            self._receive_messages(welcome.admission.origin, [packet], 0, is_fetched=True)

    # At the sponsor, and at every other member

    def sponsor(self, address: int, snapshot: bytes, now: int, contact: bytes = b"") -> Effects:
        """Admit the process at an address, between two deliveries, once the application has received
        everything that counts as delivered: `snapshot` is its state. `contact` identifies the process."""
        self.requests = [each for each in self.requests if each != address]
        if not self.is_member:
            return NO_EFFECTS
        if self.undelivered:
            raise LocalError("deliver first: the snapshot would lack what counts as delivered")
        order = self.order
        stream = admitted_stream(address, MessageId(self.stream, order.delivered[self.stream] + 1))
        if self.requires > FIRST:
            self._inform(stream, address)  # before it can admit anybody
        counts, known = dict(order.delivered), self._known()
        statements = self.sealer.statements(counts)
        admission = AdmitMember(stream, address, counts, contact)
        message = self._broadcast(admission, now)
        packets = [entry.packet for entry in self._in_causal_order()]
        self._on_admission(admission, message, now, is_sponsor=True)
        welcome = Welcome(
            stream=stream,
            admission=message,
            snapshot=snapshot,
            delivered=counts,
            addresses=dict(self.addresses),
            messages=list(dict.fromkeys(packets)),
            removed=in_order(self.removals.removed),
            cuts=dict(self.ends),
            done=in_order(self.progress.done),
            flushes=dict(self.removals.flushes),
            progress=known,
            admissions=dict(self.admissions),
            unstable_admissions=dict(self.unstable_admissions),
            tombstones=dict(self.tombstones),
            forgotten={stream: dict(counts) for stream, counts in self.forgotten.items()},
            originals=in_order(self.originals),
            authors={stream: dict(counts) for stream, counts in self.authors.items()},
            contacts=dict(self.contacts),
        )
        if statements:
            fields = msgspec.structs.asdict(welcome)
            welcome = SealedWelcome(**fields, statements=statements)
        self._send(address, welcome)
        return self._effects(message)

    def _on_admission(
        self, admission: AdmitMember, message: MessageId, now: int, is_sponsor: bool = False
    ) -> None:
        stream, order = admission.stream, self.order
        if stream in self.ends:
            return  # removed or disowned before
        if stream not in order.delivered:
            order.add_peer(stream)
        self.progress.admit(stream, admission.counts)
        self.admissions[stream] = message
        if admission.contact:
            self.contacts[stream] = admission.contact
        self.changes.append(ViewChange("admit", stream, message))
        self.unstable_admissions[stream] = message
        owed = [] if is_sponsor or stream == self.stream else self._owed_to(stream, admission)
        self.addresses[stream], self.stream_at[admission.address] = admission.address, stream
        if is_sponsor:
            order.sponsor(stream)
            if self.forwards and not order.relays:
                self.newcomers[stream] = self.arrivals
        self._announce_view()
        if (request := self.early_requests.pop(stream, None)) is not None:
            self._on_link_packet(stream, self.decode(request))
        for source, data in self.early.pop(stream, ()):
            packet = self._decode_message(data)
            if self.sealer.accepts(packet):
                self._receive_messages(source, [packet], now)
        if is_sponsor or stream == self.stream:
            return
        for packet in owed:
            self._send(admission.address, packet)
        if order.takes_unknown and (report := self.removals.flushes.get(self.stream)) is not None:
            # It is in no stream. The new member may be the only one that knows of a quorum.
            self._send_again(order.send_directly(encode_content(report), stream))
        # Its sponsor knew these; they are forgotten here, and will not be mentioned again.
        forgotten = admission.counts.keys() - order.delivered.keys()
        self._send(admission.address, self._report(forgotten))

    def _owed_to(self, stream: Stream, admission: AdmitMember) -> list[Packet]:
        """The packets of this member that a new member is missing. From now on everything is sent to it."""
        known = admission.counts.get(self.stream, 0)
        own = self.unstable.get(self.stream, {})
        owed = dict.fromkeys(own[seq].packet for seq in sorted(own) if seq > known)
        packets = [self._decode_message(data) for data in owed]
        # Where members forward messages, they forward to the new one, too, except for messages that are sent
        # directly.
        return [packet for packet in packets if not self.order.relays or is_direct(packet)]

    def _forward_to_newcomers(self, message: MessageId) -> None:
        """Forward a message that is delivered here to members that this one has admitted, if its sender may
        not know them yet. They would otherwise wait until the sender knows them and has a link to them."""
        entries = self.unstable[message.origin]
        entry, before = entries[message.seq], entries.get(message.seq - 1)
        if before is not None and before.packet == entry.packet:
            return  # it was forwarded with that one
        for stream, welcomed in self.newcomers.items():
            admission = self.admissions[stream]
            if entry.arrived > welcomed and not self.progress.has_delivered(message.origin, *admission):
                self._send(self.addresses[stream], FetchReply([entry.packet]))

    # Incarnations that never started

    def _answer_nobody(self, link: int) -> None:
        """Tell the process at the other end that no member is at this address. A member that has left need
        not do so, because its last message implies it."""
        if self.phase == Phase.REMOVED or self.stream < 0:
            self._send(link, NobodyHere(self.phase == Phase.REMOVED))

    def _on_nobody(self, link: int, packet: NobodyHere, now: int) -> None:
        stream = self.stream_at.get(link)
        self.requests = [each for each in self.requests if each != link]
        if stream is None or stream not in self.addresses or not self.is_member:
            return
        if packet.has_started:
            self._remove(stream, now)
        else:
            self._on_disowning(stream, self._broadcast(Disowning(stream), now))

    def _on_disowning(self, stream: Stream, message: MessageId) -> None:
        if self.order.delivered.get(stream) and stream not in self.ends:
            raise RemoteError("it says that a member never started, but the member has broadcast")
        self.changes.append(ViewChange("disown", stream, message))
        if stream not in self.ends:
            self._end(stream, 0)
        self._exclude(stream)
