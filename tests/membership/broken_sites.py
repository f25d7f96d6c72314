"""Super peers and phones that leave out one rule each. Each of them must be found."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

import msgspec

from antecede.causality import MessageId
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.gateways import ChangingHcg, GatewayOrder
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Counts, Departure, ProgressReport, Stream, in_order
from antecede.membership.phone import Phone
from antecede.membership.site import ComingPhone, LiveSlot
from antecede.membership.site_packets import PhoneWelcome
from antecede.protocols.base import Effects, Packet, Send
from antecede.protocols.freescale.packets import UplinkPacket


class SnapshotTooEarly(ChangingFreescale):
    """A phone's snapshot lacks the message that was delivered last."""

    def admit_phone(self, address: int, snapshot: bytes, now: int) -> Effects:
        return super().admit_phone(address, snapshot.rpartition(b" ")[0], now)


class OldSlotNotRetired(ChangingFreescale):
    """A phone that has moved keeps its slot at its old super peer."""

    def _retire(self, address: int) -> None:
        place = self.site.slots.get(address)
        super()._retire(address)
        if place is not None and place.release_at is not None:
            place.release_at = None
            self.site.slots[address] = place


class ReleasesAtOnce(ChangingFreescale):
    """The old super peer does not wait for the messages the new one had."""

    def _has_delivered(self, counts: Counts, done: object = None) -> bool:
        return done is None or super()._has_delivered(counts, ())


class TakesAtOnce(ChangingFreescale):
    """The new super peer does not wait for the messages the old one had."""

    def _has_delivered(self, counts: Counts, done: object = None) -> bool:
        return done is not None or super()._has_delivered(counts)


class SendsAllThatWasKept(ChangingFreescale):
    """The new super peer resends messages that the phone has from the old one."""

    def _let_in(self, address: int, coming: ComingPhone, has: Counts) -> None:
        super()._let_in(address, coming, {})


class KeepsNothing(ChangingFreescale):
    """The new super peer sends a phone only messages that it delivers after the phone's arrival."""

    def _let_in(self, address: int, coming: ComingPhone, has: Counts) -> None:
        super()._let_in(address, coming, dict(self.order.delivered))


class ForgetsWhilePhonesMove(ChangingFreescale):
    """Streams are called done while a phone is coming."""

    def _report(self, forgotten: Collection[Stream] = ()) -> ProgressReport:
        report = super()._report(forgotten)
        return msgspec.structs.replace(report, done=frozenset({*self.progress.done, *forgotten}))


class FirstMessageNamesLittle(ChangingFreescale):
    """The first message of a phone names only what the phone has delivered here."""

    def _receive_from_phone(self, link: int, packet: Packet, now: int) -> None:
        if link in self.site.slots:
            self.site.slots[link].has_sent = True
        super()._receive_from_phone(link, packet, now)


class NumbersStartAgain(ChangingFreescale):
    """A slot that is used again begins with number 1."""

    def _retire(self, address: int) -> None:
        super()._retire(address)
        self.site.free = dict.fromkeys(self.site.free, 0)


class NobodyBringsBack(ChangingFreescale):
    """A phone that returns brings nothing back of what its super peer may have lost."""

    def make_backlog(self):  # type: ignore[no-untyped-def]
        backlog = super().make_backlog()
        return msgspec.structs.replace(backlog, entries=[]) if self.phone is not None else backlog


class NamesNothing(ChangingHcg):
    """A local process's messages name nothing of other gateways, after the first."""

    def _named_by(self, place: LiveSlot, packet: UplinkPacket) -> Counts | None:
        return {}


class LateByOne(ChangingHcg):
    """What a local process has delivered last does not count as preceding its message."""

    def _on_progress_of(self, place: LiveSlot, delivered_up_to: int) -> None:
        super()._on_progress_of(place, delivered_up_to - 1)


class BringsBackAnywhere(ChangingFreescale):
    """A removed super peer also accepts brought-back messages, although it lacks messages that became stable
    without it."""

    def _has_what_was_stable(self) -> bool:
        return True


class TellsNothingOfSenders(ChangingFreescale):
    """A phone that is given a snapshot is not told who has admitted the senders of what may be lost."""

    def _chains_of_unstable(self) -> dict[Stream, MessageId]:
        return self._whole_chain(self.stream)


class TellsPhonesNothingOfRemovals(ChangingFreescale):
    """Phones are not told from which point on stability excludes a removed member."""

    def _end(self, stream: Stream, last: int) -> None:
        ChangingMember._end(self, stream, last)


class ForgetsWhileAPhoneComes(ChangingFreescale):
    """Streams are forgotten though a phone may be released with a count of them."""

    def _forget(self, stream: Stream) -> None:
        coming, self.site.coming = self.site.coming, {}
        super()._forget(stream)
        self.site.coming = coming


class KnowsOnlyWhatItReported(ChangingFreescale):
    """A phone is released without streams that were reported as done, but not without those that only new
    members were told of."""

    def _all_have(self) -> frozenset[Stream]:
        return frozenset(self.progress.announced)


class ReleasesToStrangers(ChangingFreescale):
    """A phone is released to a member that is not known, if that has not broadcast anything."""

    def _has_delivered(self, counts: Counts, done: Collection[Stream] = ()) -> bool:
        return super()._has_delivered({each: count for each, count in counts.items() if count}, done)


class _SettledOrder(GatewayOrder):
    def dependencies(self, packet: Packet) -> list[MessageId]:
        return [each for each in super().dependencies(packet) if each.origin not in self.forgotten]


class TakesTheForgottenForSettled(ChangingHcg):
    """A message that names a forgotten stream, beyond its end, may be delivered some day."""

    ordering = _SettledOrder

    order: _SettledOrder


class ForgetsTheExpelled(ChangingFreescale):
    """A leaver does not report which messages of expelled phones it had accepted."""

    def _departure(self, others: set[Stream]) -> Departure:
        return Departure(in_order(others))


class ForgetsTheExpelledLater(ChangingFreescale):
    """What a member that left had accepted of phones that it had expelled is forgotten with its stream."""

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        if stream not in self.order.delivered and stream not in self.tombstones:
            self.authors.pop(stream, None)


class ForgetsWhoHasLeft(ChangingFreescale):
    """That all is delivered of a member that has left is forgotten with its stream, even if somebody has
    stopped waiting for the member, and so remembers it like one that was removed."""

    def _forget(self, stream: Stream) -> None:
        is_removed = stream in self.removals.removed
        super()._forget(stream)
        if not (is_removed or stream in self.order.delivered or self.authors.get(stream, {}).keys() - {0}):
            self.authors.pop(stream, None)


class TellsNobodyOfTheExpelled(ChangingFreescale):
    """A super peer does not say which phones it has expelled before it leaves."""

    def owes_expulsions(self) -> bool:
        return False


class ForgetsWhatIsNotSettled(ChangingFreescale):
    """A returned phone forgets the messages it brought back at once."""

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if self.phone is not None and isinstance(packet, PhoneWelcome):
            self.phone.brought.entries = []
        return effects


class SaysTooEarlyWhatIsStable(ChangingFreescale):
    """A phone is told what is stable before its brought-back messages are settled."""

    def _stable_up_to(self, number: int) -> tuple[Send, ...]:
        delayed, self.site.delayed = self.site.delayed, {}
        sends = super()._stable_up_to(number)
        self.site.delayed = delayed
        return sends


class UnsortedPhone(Phone):
    def _settle(self) -> None:
        before = list(self.retained)
        super()._settle()
        self.retained = before


class BringsBackUnsorted(ChangingFreescale):
    """What a phone retains stays in the order of reception when it forgets what it has brought."""

    @classmethod
    def phone_outside(cls, me: int, size: int) -> Self:
        process = super().phone_outside(me, size)
        process.phone = UnsortedPhone(me)
        return process


BROKEN_SITES: dict[type[ChangingFreescale], int] = {
    NamesNothing: 100,
    SnapshotTooEarly: 0,
    OldSlotNotRetired: 0,
    ReleasesAtOnce: 0,
    TakesAtOnce: 0,
    SendsAllThatWasKept: 0,
    KeepsNothing: 0,
    ForgetsWhilePhonesMove: 1_200,
    FirstMessageNamesLittle: 0,
    NumbersStartAgain: 250,
    NobodyBringsBack: 0,
}
"""The first seed to try: one of the next hundred finds it."""
