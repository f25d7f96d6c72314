"""Members that leave out one rule each, as in the design of changing groups. Each of them must be found."""

from __future__ import annotations

from typing import Any

import msgspec

from antecede.causality import MessageId
from antecede.check.changing.world import ChangingWorld
from antecede.membership.backlog import Backlog
from antecede.membership.catalog import (
    ChangingMbcp,
    ChangingPc,
    ChangingTimestamp,
    ChangingTimestampDiff,
    ChangingVcube,
    ChangingVcubeAgg,
)
from antecede.membership.packets import (
    Counts,
    Departure,
    DepartureConfirmed,
    FetchRequest,
    NobodyHere,
    ProgressReport,
    Removal,
    Stream,
    Welcome,
)
from antecede.membership.progress import KnownProgress, StreamProgress
from antecede.membership.removal import FetchRequests, Removals
from antecede.membership.state import Phase, RetainedMessage
from antecede.membership.view_flooding import LinkRequest, UnnumberedPacket, ViewFlooding
from antecede.protocols.base import Effects, Packet

# Progress


class CountsAtOnce(ChangingMbcp):
    """Reports of progress take effect when they arrive."""

    def _on_progress(self, link: int, report: ProgressReport) -> None:
        super()._on_progress(link, report)
        if report.member in self.order.delivered and not report.has_left:
            self.progress.known.setdefault(report.member, KnownProgress()).add(report)


class StableWithoutTheRemoved(ChangingMbcp):
    """What a removed member has delivered does not count, though its messages may still be accepted."""

    def _required(self) -> set[Stream]:
        return self.view - {self.stream}


class _Mentioned(StreamProgress):
    def _forgotten_by(self, *_: Any) -> list[Stream]:
        return []


class WaitsForAMention(ChangingVcube):
    """A newcomer whose sponsor had forgotten a stream is expected to say that it is done."""

    progress: StreamProgress = msgspec.field(default_factory=_Mentioned)


class RetainsWhatIsSent(ChangingVcube):
    """What is broadcast when there is nobody to send it to is not retained, though others were removed."""

    def _send_own(self, effects: Effects) -> None:
        if any(send.to for send in effects.sends):
            super()._send_own(effects)


# Joining


class SnapshotTooEarly(ChangingMbcp):
    """The snapshot lacks the message that was delivered last."""

    def sponsor(self, address: int, snapshot: bytes, now: int, contact: bytes = b"") -> Effects:
        return super().sponsor(address, snapshot.rpartition(b" ")[0], now, contact)


class SnapshotTooLate(ChangingMbcp):
    """The counts in the admission lack the last delivery that is in the snapshot."""

    last_delivered: MessageId | None = None

    def deliver(self, now: int) -> Any:
        delivery = super().deliver(now)
        if delivery is not None and delivery.message.origin in self.order.delivered:
            self.last_delivered = delivery.message
        return delivery

    def sponsor(self, address: int, snapshot: bytes, now: int, contact: bytes = b"") -> Effects:
        last, delivered = self.last_delivered, self.order.delivered
        if last is None or delivered.get(last.origin) != last.seq:
            return super().sponsor(address, snapshot, now, contact)
        delivered[last.origin] -= 1
        try:
            return super().sponsor(address, snapshot, now, contact)
        finally:
            delivered[last.origin] += 1


class _OtherWelcome(ChangingMbcp):
    def change(self, welcome: Welcome) -> Welcome:
        return welcome

    def _on_welcome(self, link: int, welcome: Welcome, now: int) -> None:
        super()._on_welcome(link, self.change(welcome), now)


class WelcomeWithoutMessages(_OtherWelcome):
    """A newcomer is not given what its sponsor does not know to be stable."""

    def change(self, welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, messages=[])


class WelcomeWithoutRemovals(_OtherWelcome):
    """A newcomer is not told which members are removed."""

    def change(self, welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, removed=frozenset(), flushes={}, cuts={})


class WelcomeWithoutTombstones(_OtherWelcome):
    """A newcomer is not told where the streams of members ended that were removed before."""

    def change(self, welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, tombstones={})


class WelcomeWithoutProgress(_OtherWelcome):
    """A newcomer believes that everybody has what its sponsor has."""

    def change(self, welcome: Welcome) -> Welcome:
        known = {
            member: msgspec.structs.replace(report, delivered=welcome.delivered)
            for member, report in welcome.progress.items()
        }
        return msgspec.structs.replace(welcome, progress=known)


class PassesOnInOrderOfArrival(ChangingVcube):
    """A newcomer gets what is in its snapshot and not stable in the order of its arrival at its sponsor."""

    def _in_causal_order(self) -> list[RetainedMessage]:
        return [entry for _, entry in self._in_order_of_arrival()]


class OwesNothing(ChangingMbcp):
    """Members do not send newcomers what those lack of their own messages, and newcomers do not ask."""

    def _owed_to(self, stream: Stream, admission: Any) -> list[Packet]:
        return []

    def _fetch_lacking(self) -> None:
        self.reports += 1
        self.fetching.clear()


class NeverDisowns(ChangingMbcp):
    """Incarnations that never started stay members."""

    def _on_nobody(self, link: int, packet: NobodyHere, now: int) -> None:
        if packet.has_started:
            super()._on_nobody(link, packet, now)


# Leaving


class LeavesAtOnce(ChangingMbcp):
    """A member that has left supplies nothing more."""

    def leave(self, now: int) -> Effects:
        effects = super().leave(now)
        self.phase = Phase.ENDED
        return effects


class AwaitsTheForgotten(ChangingMbcp):
    """A member that has left waits for another that has left too, and of which nobody knows any more."""

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        if isinstance(packet, DepartureConfirmed):
            once = {each: self.addresses[each] for each in self.sent_to}
            packet = msgspec.structs.replace(packet, view=once | packet.view, is_forgotten=False)
        super()._receive_after_leaving(link, packet, now)


class WaitsForTheDead(ChangingMbcp):
    """Members wait for the last copies of one that has left and was switched off."""

    def _stop_waiting_for(self, stream: Stream) -> None:
        pass


class LeavesDuringRemovals(ChangingMbcp):
    """A member leaves though others may wait for what it holds of removed streams."""

    def may_leave(self) -> bool:
        return self.is_member

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        if not isinstance(packet, FetchRequest):
            super()._receive_after_leaving(link, packet, now)


class SuppliesWhatItOnlyHolds(ChangingMbcp):
    """A member that has left supplies what it has received since, though it takes no part in removals."""

    def _on_fetch(self, link: int, request: FetchRequest) -> None:
        phase, self.phase = self.phase, Phase.MEMBER
        super()._on_fetch(link, request)
        self.phase = phase


class ForgetsBeforeTheLastCopy(ChangingMbcp):
    """A stream is forgotten though a copy of its last message is still on its way."""

    def _find_stable(self) -> None:
        self.progress.coming.clear()
        super()._find_stable()


# Removing


class FlushesOnce(ChangingMbcp):
    """Members report what they hold for the first removal only."""

    def _flush(self, now: int) -> None:
        if self.stream not in self.removals.flushes:
            super()._flush(now)
        else:
            held = dict.fromkeys(self.removals.removed, 0)
            self.removals.flushes[self.stream] = msgspec.structs.replace(
                self.removals.flushes[self.stream], held=held | self.removals.flushes[self.stream].held
            )

    def _close_removed(self) -> None:
        removed = dict.fromkeys(self.removals.removed, 0)
        self.removals.flushes = {
            member: msgspec.structs.replace(flush, held=removed | flush.held)
            for member, flush in self.removals.flushes.items()
        }
        super()._close_removed()


class AcceptsFromTheRemoved(ChangingMbcp):
    """A removed member's messages are accepted until its stream ends."""

    def _receive_as_member(self, link: int, packet: Packet, now: int) -> None:
        source = self.stream_at.get(link)
        if source is None or source not in self.removals.removed or source in self.ends:
            super()._receive_as_member(link, packet, now)
        elif packet.message_ids():
            self._receive_packet(link, source, packet, now)

    def _takes_removed(self, source: Stream | None, is_fetched: bool) -> bool:
        return True


class AcceptsFromAnybody(ChangingVcube):
    """A removed member's messages are accepted from those who take no part in the removal."""

    def _takes_removed(self, source: Stream | None, is_fetched: bool) -> bool:
        return True


class AcceptsWhatIsForwarded(ChangingVcubeAgg):
    """A removed member's messages are accepted from whoever takes part in the removal, though it may have
    forwarded what it holds beyond a gap, and then dropped it."""

    def _takes_removed(self, source: Stream | None, is_fetched: bool) -> bool:
        return source in self.addresses


class ForwardsAfterLeaving(ChangingVcube):
    """A member that has left forwards what it receives, though it takes no part in removals."""

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        if packet.message_ids():
            self._receive_packet(link, self.stream_at.get(link), packet, now)
        else:
            super()._receive_after_leaving(link, packet, now)


class _ReportsAtOnce(ViewFlooding):
    def receive_directly(self, packet: UnnumberedPacket, now: int) -> None:
        self.unnumbered.ready.append(packet)


class ReportsTakeEffectAtOnce(ChangingPc):
    """Reports on removed streams, which do not come over safe links, take effect when they arrive."""

    ordering = _ReportsAtOnce

    order: _ReportsAtOnce


class _ForSome(Removals):
    def find_ends(
        self, me: Stream, view: Any, stable_members: int, order: Any, open_streams: set[Stream], closed: Any
    ) -> tuple[Counts, FetchRequests]:
        reports = [self.flushes[each].held if each in self.flushes else {} for each in view]
        covered = {stream for stream in open_streams if all(stream in held for held in reports)}
        return super().find_ends(me, view, stable_members, order, covered, self.removed - covered)


class FlushesForSome(ChangingMbcp):
    """A report on some of the removed streams is enough for those."""

    def _close_removed(self) -> None:
        self.removals = _ForSome(*_fields(self.removals))
        super()._close_removed()


class KeepsBeyondGaps(ChangingVcube):
    """What lies beyond a gap when a member is removed is kept."""

    def _flush(self, now: int) -> None:
        order = type(self.order).restore(self.order.save())
        unstable = {stream: dict(entries) for stream, entries in self.unstable.items()}
        super()._flush(now)
        for stream in self.removals.removed:
            self.order.received[stream] = order.received[stream]
            if kept := unstable.get(stream):
                self.unstable[stream] = kept
        self.order.holdback = order.holdback


class _FixedOnce(Removals):
    def find_ends(
        self, me: Stream, view: Any, stable_members: int, order: Any, open_streams: set[Stream], closed: Any
    ) -> tuple[Counts, FetchRequests]:
        reported = [each for each in view if each in self.flushes]
        return super().find_ends(me, reported, stable_members, order, open_streams, closed)


class CutFixedTooEarly(ChangingMbcp):
    """Members that were admitted meanwhile need not report what they hold of removed streams."""

    def _close_removed(self) -> None:
        founders = {each for each in self.addresses if each < self.size}
        if founders <= self.removals.flushes.keys():
            self.removals = _FixedOnce(*_fields(self.removals))
        super()._close_removed()
        self.removals = Removals(*_fields(self.removals))


class _EndsTooEarly(Removals):
    def _decide(
        self, me: Stream, view: Any, streams: set[Stream], order: Any
    ) -> tuple[Counts, FetchRequests]:
        ready, order.holdback.ready = order.holdback.ready, []
        try:
            return super()._decide(me, view, streams, order)
        finally:
            order.holdback.ready = ready


class EndsTooEarly(ChangingMbcp):
    """Where removed streams end is decided before what is held of them is delivered."""

    def _close_removed(self) -> None:
        self.removals = _EndsTooEarly(*_fields(self.removals))
        super()._close_removed()


class _ReportsOnly(Removals):
    def _decide(
        self, me: Stream, view: Any, streams: set[Stream], order: Any
    ) -> tuple[Counts, FetchRequests]:
        ends, requests = super()._decide(me, view, streams, order)
        reported = {stream: max(self.flushes[each].held[stream] for each in view) for stream in ends}
        return {stream: min(end, reported[stream]) for stream, end in ends.items()}, requests


class IgnoresItsOwnDeliveries(ChangingMbcp):
    """Where a removed stream ends follows from reports alone, not from what a member has delivered since."""

    def _close_removed(self) -> None:
        self.removals = _ReportsOnly(*_fields(self.removals))
        super()._close_removed()


class _NotClosed(Removals):
    def _decide(
        self, me: Stream, view: Any, streams: set[Stream], order: Any
    ) -> tuple[Counts, FetchRequests]:
        ends, requests = super()._decide(me, view, streams, order)
        return {stream: order.received_up_to(stream) for stream in ends}, requests


class CutsNotClosed(ChangingMbcp):
    """Cuts are not lowered: what depends on a message that nobody holds counts as held."""

    def _close_removed(self) -> None:
        self.removals = _NotClosed(*_fields(self.removals))
        super()._close_removed()


class _AnyNumber(Removals):
    def has_quorum(self, stable_members: int) -> bool:
        return True


class NoQuorum(ChangingMbcp):
    """Any number of members removes any other."""

    def _close_removed(self) -> None:
        self.removals = _AnyNumber(*_fields(self.removals))
        super()._close_removed()


class QuorumOfNewcomers(ChangingMbcp):
    """Members count for a quorum whose admission is not stable."""

    def _close_removed(self) -> None:
        admissions, self.unstable_admissions = self.unstable_admissions, {}
        super()._close_removed()
        self.unstable_admissions = admissions


class IgnoresOthersEnds(ChangingMbcp):
    """Where others say that a removed stream ends does not count."""

    def _close_removed(self) -> None:
        self.removals.decided.clear()
        super()._close_removed()


class _Held(Removals):
    def _has_all(self, order: Any, stream: Stream, end: int) -> bool:
        return bool(order.received_up_to(stream) >= end)


class EndsWhatItHolds(ChangingVcubeAgg):
    """A removed stream ends by another's word as soon as it is held up to there, and not when it is
    delivered."""

    def _close_removed(self) -> None:
        self.removals = _Held(*_fields(self.removals))
        super()._close_removed()


class BelievesTheRemoved(ChangingMbcp):
    """What a member has said of others' ends still counts after it was removed itself."""

    def _on_removal(self, removal: Removal, message: MessageId, now: int) -> None:
        decided = dict(self.removals.decided)
        super()._on_removal(removal, message, now)
        self.removals.decided = {**decided, **self.removals.decided}


def _fields(removals: Removals) -> tuple[Any, ...]:
    return tuple(getattr(removals, name) for name in removals.__struct_fields__)


# Forgetting


class ForgetsInOnePhase(ChangingMbcp):
    """A stream is forgotten as soon as everyone is known to have closed it."""

    def _find_stable(self) -> None:
        super()._find_stable()
        for stream in sorted(self.progress.done):
            self._forget(stream)


class NamesDoneStreams(ChangingTimestamp):
    """Streams that everyone has closed are still named as causes."""

    def _find_stable(self) -> None:
        super()._find_stable()
        self.order.unnamed.clear()


class ForgetsForgottenStreams(ChangingTimestamp):
    """Forgotten streams are not remembered for messages on their way."""

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        del self.forgotten[stream]
        self.order.forgotten.discard(stream)


class NoTombstones(ChangingMbcp):
    """Nothing is kept of removed members that are forgotten."""

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        self.tombstones.pop(stream, None)
        self.stream_at = {address: each for address, each in self.stream_at.items() if each != stream}


# Returning


class ReturnsWithNothing(ChangingMbcp):
    """A member that was removed wrongly brings nothing back."""

    def bring_back(self, backlog: Backlog) -> None:
        pass


class ReturnsWithItsOwn(ChangingMbcp):
    """A member that was removed wrongly brings back only its own messages."""

    def make_backlog(self) -> Backlog:
        backlog = super().make_backlog()
        own = [entry for entry in backlog.entries if entry.original.origin == self.stream]
        return Backlog(own, backlog.admissions)


class ReturnsWithoutTheNeverAdmitted(ChangingMbcp):
    """It does not bring back messages of members whose admission was lost with it."""

    def make_backlog(self) -> Backlog:
        return Backlog(super().make_backlog().entries, {})


class KeepsCopies(ChangingMbcp):
    """Copies of a message that several bring back are all delivered."""

    def _is_new(self, original: MessageId | None) -> bool:
        return True


class ForgetsRemovalsOfOne(ChangingMbcp):
    """Nobody notices that a member has returned whose removal was lost."""

    def _on_nobody(self, link: int, packet: NobodyHere, now: int) -> None:
        if not packet.has_started:
            super()._on_nobody(link, packet, now)


class LeftAndNotRemoved(ChangingTimestampDiff):
    """A removed member that had left, and is not waited for any more, is not reported on."""

    def _on_removal(self, removal: Removal, message: MessageId, now: int) -> None:
        if removal.stream in self.tombstones:
            self._exclude(removal.stream)
        else:
            super()._on_removal(removal, message, now)


class SilentNewcomers(ChangingMbcp):
    """Reports do not name the admission of a newcomer, which may be lost."""

    def _report(self, forgotten: Any = ()) -> ProgressReport:
        return msgspec.structs.replace(super()._report(forgotten), admissions={})


class NamesOneAdmission(ChangingMbcp):
    """A newcomer names the message that admitted it, but not the one that admitted its sponsor."""

    def _admission_chain(self, stream: Stream) -> dict[Stream, MessageId]:
        return dict(list(super()._admission_chain(stream).items())[:1])


class NeverGreets(ChangingMbcp):
    """A newcomer whose sponsor may not be known does not say so before its first message."""

    def _greet(self, least: int = 2) -> None:
        pass


class NoLastCopy(ChangingMbcp):
    """A departure does not say whom it was sent to."""

    def _on_departure(self, departure: Departure, message: MessageId) -> None:
        super()._on_departure(msgspec.structs.replace(departure, sent_to=frozenset()), message)


class StaysBeyondAnEnd(ChangingVcubeAgg):
    """Whoever has delivered more of a removed stream than there is, as others say, waits to be refused."""

    def _has_more(self, ends: Counts) -> bool:
        return False


class _ReportsOnce(ViewFlooding):
    def send_directly(self, payload: bytes, peer: Stream) -> list[tuple[Stream, Packet]]:
        return []


class ReportsOnce(ChangingPc):
    """A report on removed streams that is in no stream is not sent to members that are new."""

    ordering = _ReportsOnce

    order: _ReportsOnce


class LeavesAsAStranger(ChangingPc):
    """A member that leaves does not say who has admitted it."""

    def _greet(self, least: int = 2) -> None:
        if least > 1:
            super()._greet(least)


class SuppliesWhoeverAsks(ChangingPc):
    """A member that has left opens a link for one that was never admitted."""

    def _answer_stranger(self, link: int, request: LinkRequest) -> None:
        self._supply_link(link, request)


BROKEN = (
    CountsAtOnce,
    StableWithoutTheRemoved,
    WaitsForAMention,
    RetainsWhatIsSent,
    SnapshotTooEarly,
    SnapshotTooLate,
    WelcomeWithoutMessages,
    WelcomeWithoutRemovals,
    WelcomeWithoutTombstones,
    WelcomeWithoutProgress,
    PassesOnInOrderOfArrival,
    OwesNothing,
    NeverDisowns,
    LeavesAtOnce,
    AwaitsTheForgotten,
    WaitsForTheDead,
    LeavesDuringRemovals,
    ForgetsBeforeTheLastCopy,
    FlushesOnce,
    AcceptsFromTheRemoved,
    AcceptsFromAnybody,
    AcceptsWhatIsForwarded,
    ForwardsAfterLeaving,
    ReportsTakeEffectAtOnce,
    FlushesForSome,
    KeepsBeyondGaps,
    CutFixedTooEarly,
    EndsTooEarly,
    CutsNotClosed,
    NoQuorum,
    QuorumOfNewcomers,
    IgnoresOthersEnds,
    EndsWhatItHolds,
    BelievesTheRemoved,
    ForgetsInOnePhase,
    NamesDoneStreams,
    NoTombstones,
    ReturnsWithNothing,
    ReturnsWithItsOwn,
    ReturnsWithoutTheNeverAdmitted,
    KeepsCopies,
    ForgetsRemovalsOfOne,
    LeftAndNotRemoved,
    SilentNewcomers,
    NamesOneAdmission,
    NeverGreets,
    NoLastCopy,
    StaysBeyondAnEnd,
    ReportsOnce,
    SuppliesWhoeverAsks,
    LeavesAsAStranger,
)


# Rules that others cover


class ReportsOvertake(ChangingWorld):
    """Links carry reports of progress ahead of messages (`vcube`)."""

    def _carry_out(self, address: int, effects: Effects) -> None:
        super()._carry_out(address, effects)
        for (source, _), queue in self.links.items():
            if source == address and queue and isinstance(queue[-1], ProgressReport):
                queue.appendleft(queue.pop())


COVERED = (SuppliesWhatItOnlyHolds, ForgetsForgottenStreams, ReportsOvertake, IgnoresItsOwnDeliveries)
"""Members that leave out a rule and hold all the same; docs/membership.md says why."""
