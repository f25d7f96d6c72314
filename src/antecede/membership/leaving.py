"""How a member leaves: it broadcasts its last message, and terminates when everyone has that."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.membership.joining import JoiningMember
from antecede.membership.packets import (
    Departure,
    DepartureConfirmed,
    Farewell,
    FetchRequest,
    NobodyHere,
    ProgressReport,
    RemovedNotice,
    Stream,
    in_order,
)
from antecede.membership.state import Phase, ViewChange
from antecede.protocols.base import Effects, LocalError, Packet, Send


class LeavingMember(JoiningMember, kw_only=True):
    """Leaves, and confirms that others have left."""

    def may_leave(self) -> bool:
        """Others may wait for the messages of removed streams that this member holds."""
        return self.is_member and not self._unclosed()

    def leave(self, now: int) -> Effects:
        if not self.may_leave():
            raise LocalError("only a member can leave, and not while it takes part in a removal")
        others = self.view - {self.stream}
        message = self._broadcast(self._departure(others), now)
        self.changes.append(ViewChange("leave", self.stream, message))
        if self.order.relays:
            # If it crashes, and its sponsor too, its farewell may be all that others ever receive of it.
            self._greet(1)
        self.phase = Phase.LEAVING
        self.awaiting, self.sent_to, self.ended = others, set(others), set(self.ends)
        if self.order.relays and others:
            to = tuple(sorted(self.addresses[each] for each in others))
            self.outbox.append(Send(to, Farewell(self.stream)))
        self._go_if_possible()
        return self._effects(message)

    def _departure(self, others: set[Stream]) -> Departure:
        return Departure(in_order(others))

    def _go_if_possible(self) -> None:
        """A member that has left terminates when every member has all of its messages. Until then it supplies
        them to anyone who asks."""
        if self.phase == Phase.LEAVING and not self.awaiting - self.ended:
            self.phase = Phase.ENDED

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        match packet:
            case FetchRequest():
                self._on_fetch(link, packet)
            case DepartureConfirmed():
                self.awaiting.update(packet.view.keys() - {self.stream})
                self.addresses |= packet.view
                self.contacts |= packet.contacts
                self.ended |= {packet.member, *packet.ended}
                if packet.member in packet.view:
                    # By a member: others have left or were removed, perhaps long ago.
                    self.ended |= self.sent_to - packet.view.keys()
                if packet.is_forgotten:
                    # That includes members that this one has learned of only now, and that are forgotten.
                    self.ended |= self.awaiting
                self._go_if_possible()
            case ProgressReport() if not packet.has_left:
                # Perhaps from a member that this one does not know.
                self.awaiting.add(packet.member)
                self._send(link, self._report())
            case ProgressReport():
                self._answer_leaver(link)
            case NobodyHere():
                self._stop_serving(link)
            case _:
                # It no longer forwards messages, since it takes no part in removals either. A member that
                # relied on it sends them again once it knows.
                pass

    def _has_gone(self) -> bool:
        return self.phase == Phase.ENDED and self.stream >= 0

    def _answer_leaver(self, link: int) -> None:
        """This member has left too and needs nothing more from another leaver. But members that this one knew
        may need its messages."""
        others = {each: address for each, address in self.addresses.items() if each != self.stream}
        contacts = {each: self.contacts[each] for each in others if each in self.contacts}
        self._send(link, DepartureConfirmed(self.stream, others, in_order(self.ends), contacts))

    def _stop_serving(self, link: int) -> None:
        """The member at an address needs nothing more of this one, which has left."""
        self.ended |= {each for each, address in self.addresses.items() if address == link}
        self._go_if_possible()

    def be_forgotten(self, cut: int | None) -> Effects:
        """A member says that everyone has closed this one's stream and forgotten it. `cut` is where the
        stream was closed, if it was removed and that is still known."""
        if self.phase == Phase.LEAVING and (cut is None or cut >= self.order.delivered[self.stream]):
            self.phase = Phase.ENDED
        elif self.phase in (Phase.MEMBER, Phase.LEAVING):
            self.phase = Phase.REMOVED
        return self._effects()

    def _on_removed_notice(self, link: int, notice: RemovedNotice) -> None:
        if notice.stream != self.stream:
            return
        if self.phase == Phase.LEAVING and notice.cut >= self.order.delivered[self.stream]:
            self._stop_serving(link)  # it has everything, and did not wait for the last copy
        else:
            self.phase = Phase.REMOVED

    # Others

    def _stop_waiting_for(self, stream: Stream) -> None:
        """A member that has left is down. Later packets from it are refused, since the streams that it has
        forwarded may be forgotten by then."""
        self.progress.coming.discard(stream)
        self.tombstones[stream] = self.ends[stream]
        self.is_stale = True

    def _on_departure(self, departure: Departure, message: MessageId) -> None:
        stream = message.origin
        self.changes.append(ViewChange("leave", stream, message))
        address = self.addresses.get(stream)
        self._end(stream, message.seq)
        is_sent = self.stream in departure.sent_to and stream not in self.gone
        if is_sent and stream not in self.removals.removed:
            self.progress.coming.add(stream)
        self._exclude(stream)
        if address is not None:
            self._send(address, self._confirmation(stream))

    def _confirmation(self, stream: Stream) -> DepartureConfirmed:
        """Tell a member that has left which members need nothing more from it, as far as is known here."""
        have_it = (member for member, known in self.progress.known.items() if stream in known.closed)
        ended = in_order({*self.ends, *self.removals.removed, *self.tombstones, *have_it})
        contacts = {each: self.contacts[each] for each in self.addresses if each in self.contacts}
        is_forgotten = stream not in self.order.delivered and stream not in self.tombstones
        return DepartureConfirmed(self.stream, dict(self.addresses), ended, contacts, is_forgotten)
