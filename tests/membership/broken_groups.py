"""Members of overlapping groups that leave out one rule each. Each of them must be found."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from antecede.causality import MessageId
from antecede.check.changing.overlap import OverlapWorld
from antecede.membership.backlog import BacklogEntry
from antecede.membership.group_order import BroughtBack
from antecede.membership.group_packets import (
    Cause,
    Causes,
    GroupJoinRequest,
    RemovedMembers,
    decode_payload,
    decode_snapshot,
)
from antecede.membership.group_past import Seat
from antecede.membership.group_waiting import NamedCause
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.packets import ApplicationData, Content, Counts, ProgressReport, Stream, Welcome
from antecede.membership.progress import KnownProgress
from antecede.membership.state import Phase
from antecede.protocols.base import NO_EFFECTS, Delivery, Effects, Packet, Send


class NamesNothing(ChangingMultigroup):
    """Messages name nothing of other groups."""

    def _first_lacking(self, across: Causes) -> NamedCause | None:
        return None


class DropsWhatItNames(ChangingMultigroup):
    """A message implies its causes in its group, as in a fixed group, though it may be lost."""

    def _on_application(self, content: ApplicationData, message: MessageId, causes: Counts) -> None:
        for stream in self.past.of(self.in_group):
            self.past.drop(self.in_group, stream)
        super()._on_application(content, message, causes)


class NamedByFormerMembers(ChangingMultigroup):
    """A process does not repeat a cause it has named in a group, though it was removed since."""

    def _broadcast(self, content: Content, now: int) -> MessageId:
        former = {each.seat for each in self.elsewhere if each.in_group == self.in_group}
        for entries in self.past.entries.values():
            for entry in entries.values():
                if entry.named_in & former:
                    entry.named_in.add(self.seat)
        return super()._broadcast(content, now)


class NoAdmissions(ChangingMultigroup):
    """A named message does not say who admitted its sender, so one that is not known yet seems forgotten."""

    def _unstable_admissions(self, stream: Stream) -> tuple[MessageId, ...]:
        return ()


class WaitsForTheLost(ChangingMultigroup):
    """Messages beyond the end of a removed stream are awaited."""

    def _was_given(self, stream: Stream, cause: Cause) -> bool:
        last = self.tombstones.get(stream, self.order.delivered.get(stream, cause.seq))
        return super()._was_given(stream, cause) and last >= cause.seq


class AsksWithNothing(ChangingMultigroup):
    """A joining process does not report the messages it depends on in that group, and starts without them."""

    def _may_admit(self, past: dict[Stream, Cause]) -> bool:
        return super()._may_admit({})

    def _has_what_is_known(self, welcome: Welcome) -> bool:
        return True


class DeliversWhileItJoins(ChangingMultigroup):
    """While joining, a process delivers messages whose causes the snapshot may lack."""

    def _will_start_with(self, stream: Stream, cause: Cause) -> bool:
        return True


class StartsAtOnce(ChangingMultigroup):
    """A process starts with a snapshot although it lacks causes of it in its other groups."""

    def _start(self, now: int) -> None:
        elsewhere, self.elsewhere = self.elsewhere, []
        try:
            super()._start(now)
        finally:
            self.elsewhere = elsewhere


class SnapshotWithoutPast(ChangingMultigroup):
    """A new member does not name what is in its snapshot."""

    def _start(self, now: int) -> None:
        before = dict(self.past.of(self.in_group))
        super()._start(now)
        if self.is_member:
            for stream in self.past.of(self.in_group).keys() - before.keys():
                self.past.drop(self.in_group, stream)


class AdmitsWhileSomethingWaits(ChangingMultigroup):
    """A sponsor's counts include messages not yet delivered to its application."""

    def _may_admit(self, past: dict[Stream, Cause]) -> bool:
        return all(self._was_given(stream, cause) for stream, cause in past.items())


class WorldOfSeveralJoins(OverlapWorld):
    """Processes join several groups at once."""

    def _is_busy(self, address: int) -> bool:
        phases = (Phase.MEMBER, Phase.JOINING)
        seats = self.seats(self.process_of[address])
        group = self.group_of[address]
        return any(self.members[each].phase in phases and self.group_of[each] == group for each in seats)


class JoinsSeveralGroups(ChangingMultigroup):
    """A process may ask to join a group while it waits for another."""

    def join(self, contact: int, now: int) -> Effects:
        elsewhere, self.elsewhere = self.elsewhere, []
        try:
            return super().join(contact, now)
        finally:
            self.elsewhere = elsewhere


class FollowsWhatWaits(ChangingMultigroup):
    """A message is ordered after the messages held in its group where it was broadcast."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        held, self.held = self.held, {}
        try:
            effects = super().broadcast(payload, now, group)
        finally:
            self.held = held
        if held and effects.message is not None:
            self._index.put_behind(effects.message, set(held))
        return effects


class ForgetsWhatWaitedHere(ChangingMultigroup):
    """A message that follows an own message is not ordered after the messages held when that was
    broadcast."""

    def _broadcast(self, content: Content, now: int) -> MessageId:
        message = super()._broadcast(content, now)
        self.behind.pop(message, None)
        return message


class ForgetsWhatWaits(ChangingMultigroup):
    """A stream is forgotten though messages of it wait."""

    def _finished(self, others: list[KnownProgress]) -> Counts:
        return self._closed()


class GivenWhenDelivered(ChangingMultigroup):
    """A message is no longer named once every member has delivered it, though it may still be held."""

    def _given_to_all(self, stream: Stream) -> int:
        others = self.progress.of(self._required())
        return min([self.order.delivered.get(stream, 0), *(each.delivered.get(stream, 0) for each in others)])


class KeepsRemovalsToItsGroup(ChangingMultigroup):
    """Other groups are not informed of removals."""

    def _hear_of_removed(self, removed: RemovedMembers, named_in: set[Seat]) -> None:
        pass


class SponsorsAreNotTold(ChangingMultigroup):
    """A joining process does not report who was removed from that group."""

    def _ask(self) -> None:
        super()._ask()
        self.outbox = [
            Send(send.to, GroupJoinRequest(self.me, self.known))
            if isinstance(send.packet, GroupJoinRequest)
            else send
            for send in self.outbox
        ]


class SnapshotWithoutRemovals(ChangingMultigroup):
    """A new member does not learn who was removed from other groups."""

    def _start(self, now: int) -> None:
        if self.welcome is not None:
            link, data = self.welcome
            welcome = self.decode(data)
            assert isinstance(welcome, Welcome)
            start = msgspec.structs.replace(decode_snapshot(welcome.snapshot), removed={})
            welcome = msgspec.structs.replace(welcome, snapshot=msgspec.msgpack.encode(start))
            self.welcome = link, self.encode(welcome)
        super()._start(now)


class GoneWithoutRemovals(ChangingMultigroup):
    """Streams are reported as gone, but not the removed members that may not know it."""

    def _report(self, forgotten: Collection[Stream] = ()) -> ProgressReport:
        return msgspec.structs.replace(super()._report(forgotten), removed={})


class IgnoresItsSponsorsRemoval(ChangingMultigroup):
    """A member whose sponsor was removed, and whose admission is lost, goes on."""

    def _whole_chain(self, stream: Stream) -> dict[Stream, MessageId]:
        return {}


class NamesOnceInACopy(ChangingMultigroup):
    """Causes named by a copy of a lost message are not named again, though others drop the copy."""

    def _on_application(self, content: ApplicationData, message: MessageId, causes: Counts) -> None:
        super()._on_application(content, message, causes)
        self.past.mark_named(self.in_group, self.stream)


class TakesACopyForNamed(ChangingMultigroup):
    """Causes named by a copy of a lost message are omitted by others."""

    def _all_know(self, is_copy: bool) -> set[Seat]:
        return super()._all_know(False)


class StartsWithoutWhatWaits(ChangingMultigroup):
    """A new member does not know which messages others hold until they report it."""

    def _known(self) -> dict[Stream, ProgressReport]:
        return ChangingMember._known(self)


class ReportsAheadOfWhatWaits(ChangingMultigroup):
    """A report on removed streams is not ordered after the messages held when it was sent."""

    def _broadcast_directly(self, content: Content, now: int) -> None:
        held, self.held = self.held, {}
        try:
            super()._broadcast_directly(content, now)
        finally:
            self.held = held


class WaitsForItsAdmission(ChangingMultigroup):
    """While joining, a process holds messages that the snapshot may lack, however long that takes."""

    def _go_on_elsewhere(self) -> None:
        pass


class TakesAnySnapshot(ChangingMultigroup):
    """A process starts with a snapshot that lacks messages it has delivered since it asked."""

    def _has_what_is_known(self, welcome: Welcome) -> bool:
        return True


class RefusesQuietly(ChangingMultigroup):
    """Only the sponsor is informed that its snapshot was refused."""

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if self.has_refused and self.phase == Phase.JOINING:
            return NO_EFFECTS
        return super().receive(link, packet, now)

    def _refuse(self, link: int) -> None:
        self.before_welcome = []
        super()._refuse(link)


class CopiesCountAsGiven(ChangingMultigroup):
    """Messages a process brings back count as delivered to its own application at once."""

    def _hold_own_copy(self, message: MessageId, entry: BacklogEntry) -> None:
        payload = decode_payload(entry.payload).payload
        self.undelivered.append(BroughtBack(entry.original, payload, copy=message))

    def deliver(self, now: int) -> Delivery | None:
        if self.is_member and self.undelivered:
            return self.undelivered.pop(0)
        return super().deliver(now)


class WaitsAtEveryAddress(ChangingMultigroup):
    """A process that joins keeps all addresses at which it has asked until it is admitted."""

    def _has_asked_again(self) -> bool:
        return False


class CountsOnWhoRefused(ChangingMultigroup):
    """An attempt to join is given up for another one that has refused its snapshot."""

    def _has_asked_again(self) -> bool:
        return any(
            each.phase == Phase.JOINING and each.in_group == self.in_group and each.waited < self.waited
            for each in self.elsewhere
        )
