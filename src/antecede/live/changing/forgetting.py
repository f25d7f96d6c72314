"""What a process may forget: links, addresses of its own, and records that are remembered for a limited time.

A link is dropped when the stream at its other end is forgotten. That follows from the log, so a replay does
the same. A member that has left may not know yet that everybody has all of its messages; when it calls, it is
answered that it is forgotten (`Gone`), and can drop the link, too. Links to strangers, which have asked or
called and were never in the view, are dropped when they have been silent for a while. Former addresses of
this process are dropped once it is a member again; a process that still takes one of them for a member's is
told that nobody is there, and removes it.

The ends of removed members' streams and the ids of messages that were brought back are remembered for at
least one *age*, as long as the group's policy says, and at most two: entries that existed when the last age
began are forgotten when this one ends.
"""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.live.changing.contact import Contact, contact_in
from antecede.live.changing.events import Aged, Dropped, Gone, PartnerGone
from antecede.live.changing.membership import MembershipCore
from antecede.membership.member import ChangingMember
from antecede.membership.packets import DepartureConfirmed, Stream, in_order
from antecede.membership.state import Phase
from antecede.protocols.base import NO_EFFECTS, Effects

IDLE = 60_000_000_000
"""How long a link to a stranger is kept without a packet, in nanoseconds."""


class ForgettingCore(MembershipCore):
    """The part of a core that forgets."""

    def __init__(self, kind: type[ChangingMember], name: str) -> None:
        super().__init__(kind, name)
        self.aged_at = 0
        """When the current age began."""
        self.old_tombstones: set[Stream] = set()
        self.old_originals: set[MessageId] = set()
        """What was remembered at that time."""
        self._idle_since: dict[int, tuple[int, int]] = {}
        """For links to strangers and at former addresses: how many packets there were, and since when."""
        self.forgets = 0
        """How many streams the current member had forgotten when its links were last checked."""

    # Forgotten streams

    def drop_links_of_forgotten(self, member: ChangingMember) -> None:
        """Drop the links of streams that the current member has forgotten."""
        if member.forgets == self.forgets:
            return
        self.forgets = member.forgets
        alive, streams = member.order.delivered, member.stream_at
        for link, (mine, theirs) in list(self.links.items()):
            if mine == member.me and link not in self.strangers and streams.get(theirs) not in alive:
                self.drop_link(link)

    def answer_of(self, mine: int, contact: Contact, has_met: bool) -> Gone | None:
        """The answer to a greeting for which there is no link, if none is to be created. `has_met` says
        whether the caller remembers a packet, in either direction."""
        member = self.members.get(mine)
        if member is None:
            current = self.member
            contacts = {
                each: current.contacts[each] for each in current.addresses if each in current.contacts
            }
            return Gone(view=dict(current.addresses), contacts=contacts)
        stream = member.stream_at.get(contact.address, -1)
        if stream in member.tombstones:
            return Gone(stream=stream, cut=member.tombstones[stream])
        return Gone(is_forgotten=True) if has_met or _has_forgotten(member, contact) else None

    def _on_partner_gone(self, event: PartnerGone) -> None:
        if event.link not in self.links:
            return
        self._log(event)
        mine, theirs = self.links[event.link]
        member = self.members[mine]
        if member.phase in (Phase.OUTSIDE, Phase.JOINING):
            self._abandon(member, event.time)
        else:
            self._carry_out(mine, _take_answer(member, theirs, event.answer, event.time))
        self.void.add(event.link)
        self._after(member)

    # Strangers, and former addresses

    def tidy(self, now: int, forget_after: int) -> None:
        """Periodically forget what is not needed. Times are in nanoseconds."""
        if not self.members:
            return
        links = [link for link in self.strangers if self._is_idle(link, now) and self._is_spare(link)]
        addresses = [address for address in self.members if self._is_former(address, now)]
        if links or addresses:
            self.step(Dropped(sorted(links), addresses, now))
        self._idle_since = {link: since for link, since in self._idle_since.items() if link in self.links}
        if self.phase == Phase.MEMBER and now - self.aged_at >= forget_after:
            self.step(Aged(now))

    def _is_idle(self, link: int, now: int) -> bool:
        packets = self.sent[link] + self.received[link]
        before, since = self._idle_since.get(link, (-1, now))
        if packets != before:
            self._idle_since[link] = packets, now
        return packets == before and now - since >= IDLE

    def _is_spare(self, link: int) -> bool:
        """Whether a stranger's link may be dropped: not that of a process that is to be admitted, or of a
        member whose admission is still on its way here."""
        mine, theirs = self.links[link]
        member = self.member
        if mine != self.address or member.phase != Phase.MEMBER or theirs in member.requests:
            return False
        return self.is_blank(link) or not (
            member.early or member.early_requests or self._has_early_reports(member)
        )

    @staticmethod
    def _has_early_reports(member: ChangingMember) -> bool:
        return bool(member.progress.pending.keys() - member.order.delivered.keys())

    def _is_former(self, address: int, now: int) -> bool:
        """Whether an address, where this process was a member or has given up becoming one, needs no more
        packets."""
        member, is_member = self.members[address], self.phase == Phase.MEMBER
        if address == self.address or member.phase not in (Phase.ENDED, Phase.REMOVED):
            return False
        if member.stream >= 0 and not is_member:
            return False
        if member.phase == Phase.REMOVED:
            return True  # its messages were brought back
        if is_member and member.stream < 0 and address in self.member.stream_at:
            return False  # it was admitted there after all, and must answer that nobody is there
        links = [link for link, (mine, _) in self.links.items() if mine == address]
        return all(
            not (self.outboxes[link].packets or link in self.packets) or self._is_idle(link, now)
            for link in links
        )

    def _on_dropped(self, event: Dropped) -> None:
        self._log(event)
        for link in event.links:
            self.drop_link(link)
        for address in event.addresses:
            self._drop_address(address)

    def _drop_address(self, address: int) -> None:
        for link in [link for link, (mine, _) in self.links.items() if mine == address]:
            self.drop_link(link)
        del self.members[address], self.identities[address]

    # Ages

    def _on_aged(self, event: Aged) -> None:
        self._log(event)
        member = self.member
        member.expire(self.old_tombstones, self.old_originals)
        self.old_tombstones, self.old_originals = set(member.tombstones), set(member.originals)
        self.aged_at = event.time


def _has_forgotten(member: ChangingMember, contact: Contact) -> bool:
    """Whether a member, or a former one, has forgotten this founder. All members know the founders from the
    start, and newcomers learn of those that are not forgotten; for a later member, ignorance proves
    nothing."""
    if contact.nonce or member.stream < 0 or contact.address in member.stream_at:
        return False
    known = map(contact_in, member.contacts.values())
    return all(each is None or each.address != contact.address for each in known)


def _take_answer(member: ChangingMember, address: int, answer: Gone, now: int) -> Effects:
    """What follows for a member, or a former one, from an answer sent from this address."""
    if answer.is_forgotten:
        return member.be_forgotten(None)
    if answer.cut >= 0:
        return member.be_forgotten(answer.cut) if answer.stream == member.stream else NO_EFFECTS
    stream = member.stream_at.get(address, -1)
    if member.phase == Phase.LEAVING:
        view = {each: at for each, at in answer.view.items() if each != member.stream}
        return member.receive(
            address, DepartureConfirmed(stream, view, in_order({stream}), answer.contacts), now
        )
    return member.remove(stream, now)
