"""A world whose group changes: members join, leave, crash, are removed and return.

Every incarnation of a process has an address of its own, which observers see in place of the ids of streams.
Members report their progress at intervals. If the scenario says so, they detect failures by these reports,
and the first unsuspected member removes members that have been suspected for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from antecede.causality import MessageId
from antecede.membership.failure_detection import HeartbeatDetector
from antecede.membership.member import ChangingMember
from antecede.membership.packets import ProgressReport, Stream, admitted_stream
from antecede.membership.state import Phase
from antecede.protocols.base import Effects, Packet
from antecede.sim import counter_rng
from antecede.sim.change_metrics import QUARTERS, ChangeMeter
from antecede.sim.changes import Change, Join, Leave, RandomCrash, Remove, Suspicion
from antecede.sim.faulty_world import FaultyWorld
from antecede.sim.network import Network
from antecede.sim.scenario_detector import DetectorSettings
from antecede.sim.workload import NEVER, Workload
from antecede.sim.world import REPORT, SEND, Observer
from antecede.units import SECOND

ASK_AGAIN = 2 * SECOND
"""How long a process waits for a welcome before it asks another member."""
_TRY_AGAIN = SECOND // 10
_RETURN_AFTER = SECOND // 10
_SETTLE = 20 * SECOND
"""How long members continue to report after the last send, at most."""


_Choice = TypeVar("_Choice")


class Ask(NamedTuple):
    """No member has answered the process at this address."""

    address: int


class Return(NamedTuple):
    """The process at this address was removed, and wants to be a member again."""

    address: int


class _Trust(NamedTuple):
    suspicion: Suspicion


class _Checkpoint(NamedTuple):
    quarter: int


class ChangingGroupWorld(FaultyWorld):
    """One run of a group that changes."""

    members: list[ChangingMember]

    def __init__(
        self,
        members: list[ChangingMember],
        network: Network,
        workload: Workload,
        observers: Sequence[Observer],
        *,
        detector: DetectorSettings,
        most_processes: int,
        joiners_send: bool = True,
        changes: Sequence[Change] = (),
        **options: Any,
    ) -> None:
        self._joined_at: dict[int, int] = {}
        self._number = self._changes_left = 0
        super().__init__(members, network, workload, observers, changes=changes, **options)
        self.members = members
        self._kind = type(members[0])
        self._founders, self._most_processes = len(members), most_processes
        self._settings, self._joiners_send = detector, joiners_send and workload.sends_after_joining
        self._detectors = {each.me: HeartbeatDetector(detector.report) for each in members}
        self._address_of = {each.stream: each.me for each in members}
        self._attempts = {each.me: [each.me] for each in members}
        """For each address, all addresses from which the same process has asked to be admitted."""
        self._returning: set[int] = set()
        self.meter = ChangeMeter(self._until)
        self._change_observers: list[Any] = [each for each in observers if hasattr(each, "change")]
        self._snapshot_observers: list[Any] = [each for each in observers if hasattr(each, "take_snapshot")]
        self._handlers += (self._on_report,)
        for quarter in range(QUARTERS):
            self._schedule_change((quarter + 1) * self._until // QUARTERS, _Checkpoint(quarter))
        for member in members:
            self._begin_reports(member.me)

    def figures(self) -> dict[str, float]:
        return self.meter.figures()

    def count_stuck(self) -> int:
        return sum(len(each.waiting()) for each in self.members if self._is_active(each.me))

    # Membership.

    @property
    def addresses(self) -> Mapping[Stream, int]:
        """The addresses of all members so far."""
        return self._address_of

    def joined_at(self, address: int) -> int | None:
        """When the process at an address became a member; None if it was one from the start."""
        return self._joined_at.get(address)

    def suspected_by(self, address: int) -> Mapping[Stream, int]:
        """The members that the member at an address suspects, and since when."""
        return self._detectors[address].suspected

    def _is_active(self, address: int) -> bool:
        return self.members[address].is_member and not self.is_down(address)

    def _active(self) -> list[int]:
        return [each.me for each in self.members if self._is_active(each.me)]

    def _pick(self, choices: Sequence[_Choice]) -> _Choice:
        self._number += 1
        bits = counter_rng.draw(counter_rng.key(self.seed, counter_rng.CHURN, 1 << 32), self._number)
        return choices[counter_rng.between(bits, 0, len(choices))]

    def _named(self, message: MessageId) -> MessageId:
        return MessageId(self._address_of[message.origin], message.seq)

    def _name_own(self, peer: int, message: MessageId) -> MessageId:
        """The name of a message that a process has just broadcast."""
        return self._named(message)

    def _application_messages(self, packet: Packet) -> list[MessageId]:
        """The names of the messages in a packet, as observers know them."""
        return [self._named(message) for message in packet.message_ids()]

    # Messages.

    def transmit(self, source: int, to: Sequence[int], packet: Packet) -> None:
        super().transmit(source, to, packet)
        self.meter.transmitted(packet, len(to), self._control_bytes(self.members[source], packet), self.now)

    def _on_arrival(self, peer: int, source: int, packet: Packet) -> None:
        member = self.members[peer]
        for message in self._application_messages(packet):
            for observer in self._observers:
                observer.receive(peer, source, message, self.now)
        self._hear(member, source, packet)
        self._apply(peer, member.receive(source, packet, self._clock(peer)))
        self._start(member)
        self._collect_deliveries(peer)
        self._admit_all(member)

    def _broadcast(self, peer: int) -> None:
        member = self.members[peer]
        if self._messages_left == 0 or not self._groups[peer] or not self._is_active(peer):
            return
        self._messages_left -= 1
        self._broadcasts[peer] += 1
        effects = member.broadcast(self._payload, self._clock(peer))
        assert effects.message is not None  # noqa: S101
        message = self._name_own(peer, effects.message)
        own = [send.packet for send in effects.sends if effects.message in send.packet.message_ids()]
        control = self._control_bytes(member, own[0]) if own else 0
        paper = member.paper_bytes(own[0]) if own else 0
        self.meter.sent(self.now, control)
        for observer in self._observers:
            observer.send(peer, message, self.now, control, paper, self._group_at(peer))
        self._apply(peer, effects)

    def _group_at(self, address: int) -> str | None:
        """The group of the process at an address; None if there is only one group."""
        return None

    def _apply(self, peer: int, effects: Effects) -> None:
        super()._apply(peer, effects)
        member = self.members[peer]
        for change in member.take_changes():
            self._note_change(peer, change.kind, self._address_of[change.member], change.message)
        if member.phase == Phase.REMOVED and peer not in self._returning:
            self._returning.add(peer)
            self._schedule_change(self.now + _RETURN_AFTER, Return(peer))

    def _note_change(self, peer: int, kind: str, member: int, message: MessageId) -> None:
        self.meter.changed(kind, member, self.now)
        for observer in self._change_observers:
            observer.change(peer, kind, member, self._named(message), self.now)

    def _collect_deliveries(self, peer: int) -> None:
        while self._deliver_next(peer):
            pass

    def _deliver_next(self, peer: int) -> bool:
        """Deliver the next message to the application, if there is one."""
        member = self.members[peer]
        delivery = member.deliver(self._clock(peer))
        self._apply(peer, member.pending_effects(self._clock(peer)))
        if delivery is None:
            return False
        message = self._named(delivery.message)
        for observer in self._observers:
            observer.deliver(peer, message, self.now)
        self.meter.delivered(peer, self.now)
        if self.now < self._until and self._workload.replies(peer, message):
            self._broadcast(peer)
        return True

    def _on_send(self, peer: int, source: int, content: None) -> None:
        if self.members[peer].is_member:
            super()._on_send(peer, source, content)

    def _schedule_send(self, peer: int, previous: int) -> None:
        """For a process that joins, the schedule begins as if the run began then."""
        since = self._joined_at.get(peer, 0)
        time = since + self._workload.next_send(peer, self._sends[peer], previous - since)
        if time < self._until:
            self._schedule(time, SEND, peer)

    # Joining.

    def _begin_attempt(self, process: list[int], since: int, contact: int | None) -> ChangingMember | None:
        """A process asks to be admitted, from an address of its own."""
        active = self._contacts()
        if len(self.members) >= self._most_processes or not active:
            return None
        address = len(self.members)
        member = self._outsider(address)
        self._add_process(member, process)
        self._detectors[address] = HeartbeatDetector(self._settings.report)
        self.meter.asked(address, since)
        if contact not in active:
            contact = self._pick(active)
        self._apply(address, member.join(contact, self._clock(address)))
        self._schedule_change(self.now + ASK_AGAIN, Ask(address))
        return member

    def _contacts(self) -> list[int]:
        """The members that a process can ask for admission."""
        return self._active()

    def _outsider(self, address: int) -> ChangingMember:
        return self._kind.outsider(address, address + 1)

    def _add_process(self, member: ChangingMember, process: list[int]) -> None:
        """A process gets one more address."""
        self.members.append(member)
        for table in (self._sends, self._broadcasts, self._clock_offsets):
            table.append(0)  # type: ignore[attr-defined]
        self._groups.append([None])
        process.append(member.me)
        self._attempts[member.me] = process

    def _admit_all(self, member: ChangingMember) -> None:
        while member.requests:
            self._admit(member, member.requests[0])

    def _admit(self, member: ChangingMember, address: int) -> None:
        effects = member.sponsor(address, b"", self._clock(member.me))
        if effects.message is not None:
            for observer in self._snapshot_observers:
                observer.take_snapshot(member.me, address)
            self._address_of[admitted_stream(address, effects.message)] = address
        self._apply(member.me, effects)

    def _start(self, member: ChangingMember) -> None:
        """An admitted process begins."""
        if member.take_snapshot() is None:
            return
        address = member.me
        for observer in self._snapshot_observers:
            observer.start(address, self.now)
        for other in self._attempts[address]:
            if other != address and self.members[other].phase == Phase.JOINING:
                self._returning.add(other)  # One address is enough.
                self._apply(other, self.members[other].abandon(self._clock(other)))
        self._joined_at[address] = self.now
        self._on_start(address)
        if self._joiners_send:
            self._begin_sending(address)

    def _begin_sending(self, address: int) -> None:
        self._schedule_send(address, self.now)

    def _on_start(self, address: int) -> None:
        self.meter.admitted(address, self.now)
        self._begin_reports(address)

    # Reports and failure detection.

    def _begin_reports(self, address: int) -> None:
        bits = counter_rng.key(self.seed, counter_rng.PHASE, address, 1)
        self._schedule(self.now + counter_rng.between(bits, 0, self._settings.report), REPORT, address)

    def _on_report(self, peer: int, source: int, content: None) -> None:
        member = self.members[peer]
        if member.phase not in (Phase.MEMBER, Phase.LEAVING) or self._is_over():
            return
        self._apply(peer, member.report(self._clock(peer)))
        self._collect_deliveries(peer)
        if self._settings.detects and member.is_member:
            self._detect(member)
        self._schedule(self.now + self._settings.report, REPORT, peer)

    def _hear(self, member: ChangingMember, source: int, packet: Packet) -> None:
        stream = member.stream_at.get(source)
        if stream is not None:
            is_report = isinstance(packet, ProgressReport)
            if self._detectors[member.me].hear(stream, self.now, is_report):
                self._apply(member.me, member.trust(stream, self._clock(member.me)))

    def _detect(self, member: ChangingMember) -> None:
        detector = self._detectors[member.me]
        detector.watch(member.view - {member.stream}, self.now)
        for stream in detector.check(self.now):
            self._suspect(member, stream)
        self._remove_suspected(member, detector.suspected)

    def _remove_suspected(self, member: ChangingMember, suspected: dict[Stream, int]) -> None:
        """The first unsuspected member removes the members that have been suspected for long."""
        after = self._settings.remove
        if after is None or min(member.view - suspected.keys()) != member.stream:
            return
        for stream, since in list(suspected.items()):
            if self.now - since >= after and stream in member.addresses:
                self._apply(member.me, member.remove(stream, self._clock(member.me)))
        self._collect_deliveries(member.me)

    def _suspect(self, member: ChangingMember, stream: Stream) -> None:
        other = self._address_of[stream]
        if not self.is_cut(member.me, other):
            self.meter.suspected(self.now - self.down_since[other] if self.is_down(other) else None)
        self._apply(member.me, member.suspect(stream, self._clock(member.me)))

    # Changes.

    def _schedule_change(self, time: int, change: Any) -> None:
        super()._schedule_change(time, change)
        self._changes_left += 1

    def _on_change(self, peer: int, source: int, change: Any) -> None:
        self._changes_left -= 1
        match change:
            case Join():
                self._join(change)
            case Ask(address):
                self._ask_again(address)
            case Return(address):
                self._return(address)
            case Leave():
                self._leave(change)
            case Remove(_, address, by):
                self._remove(address, by)
            case RandomCrash():
                self._crash_any()
            case Suspicion():
                self._change_suspicion(change, suspects=True)
                self._schedule_change(change.end, _Trust(change))
            case _Trust(suspicion):
                self._change_suspicion(suspicion, suspects=False)
            case _Checkpoint(quarter):
                sizes = [len(self.members[each].save()) for each in self._active()]
                self.meter.state_bytes[quarter] = fmean(sizes) if sizes else 0.0
            case _:
                super()._on_change(peer, source, change)

    def _crash(self, peer: int, until: int) -> None:
        if peer < len(self.members) and not self.is_down(peer):
            self.meter.counts["crashes"] += 1
        super()._crash(peer, until)

    def _join(self, change: Join) -> None:
        if len(self._active()) < 2 * self._founders or change.contact is not None:
            self._begin_attempt([], self.now, change.contact)

    def _ask_again(self, address: int) -> None:
        member, process = self.members[address], self._attempts[address]
        if member.phase == Phase.JOINING and address == process[-1] and not self.is_down(address):
            fresh = self._begin_attempt(process, self.meter.asked_at(address), None)
            if fresh is not None:
                fresh.bring_back(member.backlog)

    def _return(self, address: int) -> None:
        if self.is_down(address):
            if self.down_until[address] < NEVER:
                self._schedule_change(self.down_until[address], Return(address))
            return
        fresh = self._begin_attempt([], self.now, None)
        if fresh is not None:
            self.meter.counts["returns"] += 1
            fresh.bring_back(self.members[address].make_backlog())

    def _leave(self, change: Leave) -> None:
        active = self._active()
        if change.if_enough:
            stable, lost = self._stable_and_lost(active)
            if len(active) <= max(2, self._founders // 2) or (lost and stable - 1 <= 2 * lost):
                return
        address = self._pick(active) if change.peer is None else change.peer
        if address >= len(self.members) or not self._is_active(address):
            return
        member = self.members[address]
        if not member.may_leave():
            self._try_again(change._replace(peer=address))
            return
        self.meter.counts["leaves"] += 1
        self._apply(address, member.leave(self._clock(address)))

    def _try_again(self, change: Change | NamedTuple) -> None:
        """Retry soon, unless the awaited event will not happen any more."""
        if self.now < self._until + _SETTLE:
            self._schedule_change(self.now + _TRY_AGAIN, change)

    def _remove(self, address: int, by: int | None) -> None:
        removers = [by] if by is not None else [each for each in self._active() if each != address]
        if address >= len(self.members) or not removers or not self._is_active(removers[0]):
            return
        remover = self.members[removers[0]]
        self._apply(remover.me, remover.remove(self.members[address].stream, self._clock(remover.me)))
        self._collect_deliveries(remover.me)

    def _crash_any(self) -> None:
        """Any member crashes, provided that the remaining ones suffice to remove it."""
        stable, lost = self._stable_and_lost(self._active())
        if stable - 1 > 2 * (lost + 1):
            self._crash(self._pick(self._active()), NEVER)

    def _stable_and_lost(self, addresses: Sequence[int]) -> tuple[int, int]:
        """How many members of a group certainly count for a quorum, and how many are down or removed."""
        active = [self.members[each] for each in addresses]
        lost = {stream for each in active for stream in each.removals.removed}
        lost |= {stream for each in active for stream, at in each.addresses.items() if self.is_down(at)}
        stable = [len(each.view - each.unstable_admissions.keys() - lost) for each in active]
        return min(stable, default=0), len(lost)

    def _change_suspicion(self, suspicion: Suspicion, suspects: bool) -> None:
        if suspicion.peer >= len(self.members):
            return
        stream = self.members[suspicion.peer].stream
        observers = self._active() if suspicion.by is None else [suspicion.by]
        for address in observers:
            member = self.members[address]
            if address == suspicion.peer or not self._is_active(address) or stream not in member.addresses:
                continue
            if suspects:
                self._suspect(member, stream)
            else:
                self._apply(address, member.trust(stream, self._clock(address)))

    # The end.

    def _is_over(self) -> bool:
        """Whether further reports would carry no news, or nothing more is to be expected."""
        if self.now < self._until or self._changes_left:
            return False
        return self.now >= self._until + _SETTLE or self._is_settled()

    def _is_settled(self) -> bool:
        restarts = (self.now < until < NEVER for until in self.down_until.values())
        if any(restarts) or any(self.now < cut.end for cut in self.partitions):
            return False
        if any(
            each.phase in (Phase.JOINING, Phase.LEAVING) and not self.is_down(each.me)
            for each in self.members
        ):
            return False
        return self._has_forgotten([self.members[each] for each in self._active()])

    def _has_forgotten(self, active: Sequence[ChangingMember]) -> bool:
        """Whether the members of a group remember nothing that others may need, and no member that is
        gone."""
        alive = {each.stream for each in active}
        return all(
            not each.unstable
            and not each.removals.removed
            and each.order.delivered.keys() <= alive
            and each.addresses.keys() == alive
            for each in active
        )
