"""A world of groups that overlap and change: processes join and leave single groups.

A process has an address for each of its groups, and a new one each time that it asks to be admitted.
Everything within one group belongs to an address: packets, reports, suspicions, rows of the trace. The
process as a whole has a send rate, where each message goes to one of its groups; crashes and partitions
affect it as a whole. Scenarios name processes by number; processes that join get the next numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.state import Phase
from antecede.sim.changes import Join, Leave, Remove, Suspicion
from antecede.sim.changing_world import Ask, ChangingGroupWorld, Return
from antecede.sim.diagnosing_world import DiagnosingWorld
from antecede.sim.workload import NEVER
from antecede.sim.world import SEND


class Seat(NamedTuple):
    """The process and the group of an address."""

    process: int
    group: str


class _LeaveSeat(NamedTuple):
    """The member at an address waits until it may leave."""

    address: int


class OverlappingGroupsWorld(ChangingGroupWorld):
    """One run of such groups."""

    members: list[ChangingMultigroup]  # type: ignore[assignment]

    def __init__(
        self,
        members: list[ChangingMultigroup],
        *arguments: Any,
        seats: Sequence[Seat],
        processes: int,
        silent: Sequence[int] = (),
        **options: Any,
    ) -> None:
        self._seat_of = list(seats)
        self._seats: list[list[int]] = [[] for _ in range(processes)]
        """The addresses of each process."""
        for address, seat in enumerate(seats):
            self._seats[seat.process].append(address)
        self._groups_there = sorted({seat.group for seat in seats})
        self._founders_of = {
            group: sum(seat.group == group for seat in seats) for group in self._groups_there
        }
        self._silent = set(silent)
        self._sends_of: dict[int, int] = {}
        self._broadcasts_of: dict[int, int] = {}
        self._sending_since: dict[int, int] = {}
        self._process_down_until: dict[int, int] = {}
        self._asking = Seat(0, "")
        """The processes that are about to ask for admission."""
        super().__init__(list(members), *arguments, **options)
        self._place_observers: list[Any] = [each for each in self._observers if hasattr(each, "place")]
        for addresses in self._seats:
            ChangingMultigroup.connect([self.members[each] for each in addresses])
        for address, seat in enumerate(self._seat_of):
            self._show_place(address, seat)

    def _show_place(self, address: int, seat: Seat) -> None:
        for observer in self._place_observers:
            observer.place(address, *seat)

    # Membership.

    def seat(self, address: int) -> Seat:
        return self._seat_of[address]

    def _group_at(self, address: int) -> str | None:
        return self._seat_of[address].group

    def _active_in(self, group: str) -> list[int]:
        return [each for each in self._active() if self._seat_of[each].group == group]

    def _active_seats(self, process: int) -> list[int]:
        """The addresses at which a process is a member now."""
        return [each for each in self._seats[process] if self._is_active(each)]

    def _is_process_down(self, process: int) -> bool:
        return self._process_down_until.get(process, 0) > self.now

    def _cut_until(self, one: int, other: int) -> int:
        return super()._cut_until(self._seat_of[one].process, self._seat_of[other].process)

    # Messages.

    def _on_send(self, peer: int, source: int, content: None) -> None:
        """A process sends to one of its groups, unless it has left all of them."""
        if not any(self.members[each].is_member for each in self._seats[peer]):
            self._sending_since.pop(peer, None)
            return
        self._broadcast_by(peer)
        self._sends_of[peer] = self._sends_of.get(peer, 0) + 1
        self._schedule_send(peer, self.now)
        self._collect_deliveries(self._seats[peer][0])

    def _schedule_send(self, peer: int, previous: int) -> None:
        since = self._sending_since.setdefault(peer, previous)
        number = self._sends_of.get(peer, 0)
        time = since + self._workload.next_send(peer, number, previous - since)
        if time < self._until:
            self._schedule(time, SEND, peer)

    def _begin_sending(self, address: int) -> None:
        process = self._seat_of[address].process
        if process not in self._sending_since:
            self._schedule_send(process, self.now)

    def _broadcast(self, peer: int) -> None:
        """A reply goes to any group of the process, like other messages."""
        self._broadcast_by(self._seat_of[peer].process)

    def _broadcast_by(self, process: int) -> None:
        seats = {self._seat_of[each].group: each for each in self._active_seats(process)}
        if process in self._silent or not seats or self._messages_left == 0:
            return
        number = self._broadcasts_of.get(process, 0)
        self._broadcasts_of[process] = number + 1
        group = self._workload.group(process, number, sorted(seats))
        super()._broadcast(seats[group or ""])

    def _collect_deliveries(self, peer: int) -> None:
        """An event in one group of a process may be what another group waits for."""
        process = self._seat_of[peer].process
        while any(self._advance(each) for each in list(self._seats[process])):
            pass

    def _advance(self, address: int) -> bool:
        """Whether the application received a message at this address, or the process has begun here."""
        member = self.members[address]
        phase = member.phase
        self._apply(address, member.refresh(self._clock(address)))
        self._start(member)
        delivered = self._deliver_next(address)
        self._admit_all(member)
        return delivered or member.phase != phase

    # Joining.

    def _contacts(self) -> list[int]:
        return self._active_in(self._asking.group)

    def _outsider(self, address: int) -> ChangingMember:
        return self.members[0].outsider_of(self._asking.group, address, address + 1)

    def _add_process(self, member: ChangingMember, process: list[int]) -> None:
        super()._add_process(member, process)
        seats = self._seats[self._asking.process]
        seats.append(member.me)
        self._seat_of.append(self._asking)
        past = self.members[seats[0]].past
        ChangingMultigroup.connect([self.members[each] for each in seats], past)
        self._show_place(member.me, self._asking)

    def _joining(self, process: int) -> set[str]:
        """The groups that a process waits to be admitted to: at most one."""
        waiting = (each for each in self._seats[process] if self.members[each].phase == Phase.JOINING)
        return {self._seat_of[each].group for each in waiting}

    def _is_in(self, seat: Seat) -> bool:
        own = (each for each in self._seats[seat.process] if self._seat_of[each].group == seat.group)
        return any(self.members[each].phase in (Phase.MEMBER, Phase.LEAVING) for each in own)

    def _join(self, change: Join) -> None:
        found = self._draw_join(change)
        if found is None:
            return
        process, group, contact = found
        if process == len(self._seats):
            self._seats.append([])
        elif self._is_process_down(process) or self._joining(process):
            self._try_again(change._replace(group=group, peer=process))
            return
        self._asking = Seat(process, group)
        self._begin_attempt([], self.now, contact)

    def _draw_join(self, change: Join) -> tuple[int, str, int | None] | None:
        """Draw which process joins which group, and the address of the member that it asks."""
        contacts = [] if change.contact is None else self._member_seats(change.contact)
        groups = [self._seat_of[each].group for each in contacts] or self._groups_there
        group = change.group or self._pick(groups)
        contact = next((each for each in contacts if self._seat_of[each].group == group), None)
        chosen = change.peer is not None or change.group is not None or change.contact is not None
        if not chosen and len(self._active_in(group)) >= 2 * self._founders_of[group]:
            return None
        process = len(self._seats) if change.peer is None else change.peer
        if change.any_process and change.peer is None:
            outside = [
                each
                for each in range(len(self._seats))
                if not self._is_in(Seat(each, group)) and not self._is_process_down(each)
            ]
            process = self._pick([*outside, process])
        if process > len(self._seats) or (
            process < len(self._seats)
            and (self._is_in(Seat(process, group)) or group in self._joining(process))
        ):
            return None
        return process, group, contact

    def _member_seats(self, process: int) -> list[int]:
        """The addresses at which a process is a member, even if it is down."""
        seats = self._seats[process] if process < len(self._seats) else []
        return [each for each in seats if self.members[each].is_member]

    def _ask_again(self, address: int) -> None:
        self._asking = self._seat_of[address]
        if self.members[address].welcome is not None:
            self._try_again(Ask(address))  # It waits for the causes of the snapshot in its other groups.
        elif not self._is_in(self._asking):
            super()._ask_again(address)

    def _return(self, address: int) -> None:
        self._asking = self._seat_of[address]
        joining = self._joining(self._asking.process)
        if self._is_in(self._asking) or self._asking.group in joining:
            return
        if joining:
            self._try_again(Return(address))
        else:
            super()._return(address)

    # Changes.

    def _on_change(self, peer: int, source: int, change: Any) -> None:
        match change:
            case Remove(_, process, by, group):
                self._changes_left -= 1
                self._remove_process(process, by, group)
            case _LeaveSeat(address):
                self._changes_left -= 1
                self._leave_at(address)
            case _:
                super()._on_change(peer, source, change)

    def _crash(self, peer: int, until: int) -> None:
        """A process stops in all its groups."""
        if peer >= len(self._seats) or self._is_process_down(peer):
            return
        self._process_down_until[peer] = until
        before = self.meter.counts["crashes"]
        for address in self._seats[peer]:
            super()._crash(address, until)
        self.meter.counts["crashes"] = before + 1

    def _leave(self, change: Leave) -> None:
        if change.peer is None:
            choices = [each for each in self._active() if self._is_enough_without(each)]
            if choices:
                self._leave_at(self._pick(choices))
            return
        for address in self._member_seats(change.peer):
            if change.group in (None, self._seat_of[address].group):
                self._leave_at(address)

    def _is_enough_without(self, address: int) -> bool:
        group = self._seat_of[address].group
        stable, lost = self._stable_and_lost_in(group)
        most_gone = max(2, self._founders_of[group] // 2)
        return len(self._active_in(group)) > most_gone and (not lost or stable - 1 > 2 * lost)

    def _leave_at(self, address: int) -> None:
        member = self.members[address]
        if not self._is_active(address):
            return
        if not member.may_leave():
            self._try_again(_LeaveSeat(address))
            return
        self.meter.counts["leaves"] += 1
        self._apply(address, member.leave(self._clock(address)))
        self._collect_deliveries(address)

    def _remove_process(self, process: int, by: int | None, group: str | None) -> None:
        for address in self._member_seats(process):
            here = self._seat_of[address].group
            others = [each for each in self._active_in(here) if self._seat_of[each].process != process]
            removers = [each for each in others if by in (None, self._seat_of[each].process)]
            if removers and group in (None, here):
                self._remove(address, removers[0])

    def _crash_any(self) -> None:
        """Any process crashes, provided that in each of its groups the remaining members suffice to remove
        it."""
        choices = []
        for process in range(len(self._seats)):
            seats = self._active_seats(process)
            groups = (self._stable_and_lost_in(self._seat_of[each].group) for each in seats)
            if seats and all(stable - 1 > 2 * (lost + 1) for stable, lost in groups):
                choices.append(process)
        if choices:
            self._crash(self._pick(choices), NEVER)

    def _stable_and_lost_in(self, group: str) -> tuple[int, int]:
        return self._stable_and_lost(self._active_in(group))

    def _change_suspicion(self, suspicion: Suspicion, suspects: bool) -> None:
        """Suspicions of a process in all groups that it shares with the suspecting members."""
        for address in self._member_seats(suspicion.peer):
            group = self._seat_of[address].group
            observers = (
                self._active_in(group)
                if suspicion.by is None
                else [each for each in self._active_in(group) if self._seat_of[each].process == suspicion.by]
            )
            for each in observers:
                super()._change_suspicion(suspicion._replace(peer=address, by=each), suspects)

    # The end.

    def _has_forgotten(self, active: Sequence[ChangingMember]) -> bool:
        for group in self._groups_there:
            members = [self.members[each] for each in self._active_in(group)]
            if any(each.held for each in members) or not super()._has_forgotten(members):
                return False
        return True


class DiagnosingOverlapWorld(OverlappingGroupsWorld, DiagnosingWorld):
    """The same, with failure detection by VCube's tests."""
