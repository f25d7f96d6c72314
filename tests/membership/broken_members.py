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
    """Progress reports take effect when they arrive."""

    def _on_progress(self, link: int, report: ProgressReport) -> None:
        super()._on_progress(link, report)
        if report.member in self.order.delivered and not report.has_left:
            self.progress.known.setdefault(report.member, KnownProgress()).add(report)


class StableWithoutTheRemoved(ChangingMbcp):
    """Stability ignores removed members, although their messages may still be accepted."""

    def _required(self) -> set[Stream]:
        return self.view - {self.stream}


class _Mentioned(StreamProgress):
    def _forgotten_by(self, *_: Any) -> list[Stream]:
        return []


class WaitsForAMention(ChangingVcube):
    """Members wait until a newcomer calls a stream done that its sponsor had forgotten."""

    progress: StreamProgress = msgspec.field(default_factory=_Mentioned)


class RetainsWhatIsSent(ChangingVcube):
    """A member that is alone in its view does not retain its broadcasts, although it has removed others."""

    def _send_own(self, effects: Effects) -> None:
        if any(send.to for send in effects.sends):
            super()._send_own(effects)


# Joining


class SnapshotTooEarly(ChangingMbcp):
    """The snapshot lacks the last delivered message."""

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
    """A welcome lacks the messages that the sponsor does not know to be stable."""

    def change(self, welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, messages=[])


class WelcomeWithoutRemovals(_OtherWelcome):
    """A welcome does not say which members are removed."""

    def change(self, welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, removed=frozenset(), flushes={}, cuts={})


class WelcomeWithoutTombstones(_OtherWelcome):
    """A welcome does not say where the streams of earlier removed members ended."""

    def change(self, welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, tombstones={})


class WelcomeWithoutProgress(_OtherWelcome):
    """A newcomer assumes that everybody has what its sponsor has."""

    def change(self, welcome: Welcome) -> Welcome:
        known = {
            member: msgspec.structs.replace(report, delivered=welcome.delivered)
            for member, report in welcome.progress.items()
        }
        return msgspec.structs.replace(welcome, progress=known)


class PassesOnInOrderOfArrival(ChangingVcube):
    """A newcomer gets the unstable messages of its snapshot in the order in which they arrived at its
    sponsor."""

    def _in_causal_order(self) -> list[RetainedMessage]:
        return [entry for _, entry in self._in_order_of_arrival()]


class OwesNothing(ChangingMbcp):
    """Members do not send a newcomer those of their own messages that it lacks, and newcomers do not fetch
    them."""

    def _owed_to(self, stream: Stream, admission: Any) -> list[Packet]:
        return []

    def _fetch_lacking(self) -> None:
        self.reports += 1
        self.fetching.clear()


class NeverDisowns(ChangingMbcp):
    """Incarnations that never started remain members."""

    def _on_nobody(self, link: int, packet: NobodyHere, now: int) -> None:
        if packet.has_started:
            super()._on_nobody(link, packet, now)


# Leaving


class LeavesAtOnce(ChangingMbcp):
    """A member that has left supplies no more messages."""

    def leave(self, now: int) -> Effects:
        effects = super().leave(now)
        self.phase = Phase.ENDED
        return effects


class AwaitsTheForgotten(ChangingMbcp):
    """A member that has left waits for another leaver that everybody has forgotten."""

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        if isinstance(packet, DepartureConfirmed):
            once = {each: self.addresses[each] for each in self.sent_to}
            packet = msgspec.structs.replace(packet, view=once | packet.view, is_forgotten=False)
        super()._receive_after_leaving(link, packet, now)


class WaitsForTheDead(ChangingMbcp):
    """Members wait for the last copies of a leaver that was switched off."""

    def _stop_waiting_for(self, stream: Stream) -> None:
        pass


class LeavesDuringRemovals(ChangingMbcp):
    """A member leaves although others may need what it holds of removed streams."""

    def may_leave(self) -> bool:
        return self.is_member

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        if not isinstance(packet, FetchRequest):
            super()._receive_after_leaving(link, packet, now)


class SuppliesWhatItOnlyHolds(ChangingMbcp):
    """A member that has left supplies messages that it received later, although it takes no part in
    removals."""

    def _on_fetch(self, link: int, request: FetchRequest) -> None:
        phase, self.phase = self.phase, Phase.MEMBER
        super()._on_fetch(link, request)
        self.phase = phase


class ForgetsBeforeTheLastCopy(ChangingMbcp):
    """A stream is forgotten although a copy of its last message is still in flight."""

    def _find_stable(self) -> None:
        self.progress.coming.clear()
        super()._find_stable()


# Removing


class FlushesOnce(ChangingMbcp):
    """Members send a flush report only for the first removal."""

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
    """A removed member's messages are accepted from processes that take no part in the removal."""

    def _takes_removed(self, source: Stream | None, is_fetched: bool) -> bool:
        return True


class AcceptsWhatIsForwarded(ChangingVcubeAgg):
    """A removed member's messages are accepted, unasked, from a member that takes part in the removal. It may
    have forwarded them from beyond a gap and then dropped them."""

    def _takes_removed(self, source: Stream | None, is_fetched: bool) -> bool:
        return source in self.addresses


class ForwardsAfterLeaving(ChangingVcube):
    """A member that has left forwards what it receives, although it takes no part in removals."""

    def _receive_after_leaving(self, link: int, packet: Packet, now: int) -> None:
        if packet.message_ids():
            self._receive_packet(link, self.stream_at.get(link), packet, now)
        else:
            super()._receive_after_leaving(link, packet, now)


class _ReportsAtOnce(ViewFlooding):
    def receive_directly(self, packet: UnnumberedPacket, now: int) -> None:
        self.unnumbered.ready.append(packet)


class ReportsTakeEffectAtOnce(ChangingPc):
    """Flush reports, which do not arrive over safe links, take effect when they arrive."""

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
    """A report on some of the removed streams suffices to end those."""

    def _close_removed(self) -> None:
        self.removals = _ForSome(*_fields(self.removals))
        super()._close_removed()


class KeepsBeyondGaps(ChangingVcube):
    """Messages beyond a gap are kept when a member is removed."""

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
    """Members that were admitted during a removal need not report what they hold of the removed stream."""

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
    """The cut is decided before the messages held of the removed stream are delivered."""

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
    """The cut follows from the reports alone, and ignores what a member has delivered since."""

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
    """The cut is not lowered if messages before it depend on a message that nobody holds."""

    def _close_removed(self) -> None:
        self.removals = _NotClosed(*_fields(self.removals))
        super()._close_removed()


class _AnyNumber(Removals):
    def has_quorum(self, stable_members: int) -> bool:
        return True


class NoQuorum(ChangingMbcp):
    """A removal needs no majority."""

    def _close_removed(self) -> None:
        self.removals = _AnyNumber(*_fields(self.removals))
        super()._close_removed()


class QuorumOfNewcomers(ChangingMbcp):
    """Members whose admission is not stable count for the quorum."""

    def _close_removed(self) -> None:
        admissions, self.unstable_admissions = self.unstable_admissions, {}
        super()._close_removed()
        self.unstable_admissions = admissions


class IgnoresOthersEnds(ChangingMbcp):
    """Cuts that other members have decided are ignored."""

    def _close_removed(self) -> None:
        self.removals.decided.clear()
        super()._close_removed()


class _Held(Removals):
    def _has_all(self, order: Any, stream: Stream, end: int) -> bool:
        return bool(order.received_up_to(stream) >= end)


class EndsWhatItHolds(ChangingVcubeAgg):
    """A cut decided by another member takes effect when the stream is held up to it, not when it is
    delivered."""

    def _close_removed(self) -> None:
        self.removals = _Held(*_fields(self.removals))
        super()._close_removed()


class BelievesTheRemoved(ChangingMbcp):
    """A cut that a member has reported still counts after that member was removed itself."""

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
    """Forgotten streams are not remembered for messages in flight."""

    def _forget(self, stream: Stream) -> None:
        super()._forget(stream)
        del self.forgotten[stream]
        self.order.forgotten.discard(stream)


class NoTombstones(ChangingMbcp):
    """No tombstones are kept of removed members."""

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
    """A returning member does not bring back messages of members whose admission was lost with it."""

    def make_backlog(self) -> Backlog:
        return Backlog(super().make_backlog().entries, {})


class KeepsCopies(ChangingMbcp):
    """All copies of a message that several members bring back are delivered."""

    def _is_new(self, original: MessageId | None) -> bool:
        return True


class ForgetsRemovalsOfOne(ChangingMbcp):
    """If a removal was lost and the removed member has returned, nobody notices."""

    def _on_nobody(self, link: int, packet: NobodyHere, now: int) -> None:
        if not packet.has_started:
            super()._on_nobody(link, packet, now)


class LeftAndNotRemoved(ChangingTimestampDiff):
    """Members do not report on a removed member that had left and for which they no longer wait."""

    def _on_removal(self, removal: Removal, message: MessageId, now: int) -> None:
        if removal.stream in self.tombstones:
            self._exclude(removal.stream)
        else:
            super()._on_removal(removal, message, now)


class SilentNewcomers(ChangingMbcp):
    """A newcomer's reports do not name its admission, which may be lost."""

    def _report(self, forgotten: Any = ()) -> ProgressReport:
        return msgspec.structs.replace(super()._report(forgotten), admissions={})


class NamesOneAdmission(ChangingMbcp):
    """A newcomer names its own admission, but not its sponsor's."""

    def _admission_chain(self, stream: Stream) -> dict[Stream, MessageId]:
        return dict(list(super()._admission_chain(stream).items())[:1])


class NeverGreets(ChangingMbcp):
    """A newcomer whose sponsor others may not know does not say who admitted it before its first message."""

    def _greet(self, least: int = 2) -> None:
        pass


class NoLastCopy(ChangingMbcp):
    """A departure does not say to whom it was sent."""

    def _on_departure(self, departure: Departure, message: MessageId) -> None:
        super()._on_departure(msgspec.structs.replace(departure, sent_to=frozenset()), message)


class StaysBeyondAnEnd(ChangingVcubeAgg):
    """A process that has delivered more of a removed stream than its cut waits until it is refused."""

    def _has_more(self, ends: Counts) -> bool:
        return False


class _ReportsOnce(ViewFlooding):
    def send_directly(self, payload: bytes, peer: Stream) -> list[tuple[Stream, Packet]]:
        return []


class ReportsOnce(ChangingPc):
    """A flush report outside of streams is not sent to new members."""

    ordering = _ReportsOnce

    order: _ReportsOnce


class LeavesAsAStranger(ChangingPc):
    """A leaver does not say who admitted it."""

    def _greet(self, least: int = 2) -> None:
        if least > 1:
            super()._greet(least)


class SuppliesWhoeverAsks(ChangingPc):
    """A leaver opens a link for a process that was never admitted."""

    def _answer_stranger(self, link: int, request: LinkRequest) -> None:
        self._supply_link(link, request)


class KeepsWhatStrangersForward(ChangingVcube):
    """Messages that wait for an admission are never dropped."""

    def _drop_early(self) -> None:
        pass


class TakesReportsOfStrangers(ChangingPc):
    """A flush report that depends on a forgotten stream is accepted from anybody."""

    def _receive_unnumbered(self, packet: UnnumberedPacket, now: int) -> None:
        if self.is_member and packet.member not in {*self.ends, *self.order.delivered}:
            self.order.receive_directly(packet, now)
            self._refuse_void()
        else:
            super()._receive_unnumbered(packet, now)


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
    KeepsWhatStrangersForward,
    TakesReportsOfStrangers,
)


# Rules that others cover


class ReportsOvertake(ChangingWorld):
    """Links carry progress reports ahead of messages (`vcube`)."""

    def _carry_out(self, address: int, effects: Effects) -> None:
        super()._carry_out(address, effects)
        for (source, _), queue in self.links.items():
            if source == address and queue and isinstance(queue[-1], ProgressReport):
                queue.appendleft(queue.pop())


COVERED = (
    SuppliesWhatItOnlyHolds,
    ForgetsForgottenStreams,
    ReportsOvertake,
    IgnoresItsOwnDeliveries,
    ForwardsAfterLeaving,
)
"""Members that leave out a rule and hold all the same; docs/membership.md says why."""
