"""Changing groups that overlap: worlds, random schedules, and the verdict.

A process has an address for each of its groups, and everything that happens to a member happens there.
Crashes, pauses and partitions affect the process as a whole. The processes and groups are determined by the
numbers of founders and addresses.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple, cast

from antecede.causality import MessageId
from antecede.check.changing.oracle import ChangingOracle
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.world import ChangingWorld, IncarnationRecord, ScheduleEvent
from antecede.membership.group_order import ONLY_GROUP, BroughtBack
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.packets import Stream
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery

_GROUPS = "abc"
MOST_IN_ONE_GROUP = 3
"""With more founders than this, there are several groups."""


def draw_layout(founders: int, size: int) -> list[tuple[int, str]]:
    """The process and the group of each address. With up to three founders there is one group, as `check`
    explores it; otherwise each group has at least two."""
    if founders <= MOST_IN_ONE_GROUP:
        return [(each, ONLY_GROUP) for each in range(size)]
    draw = random.Random(f"{founders}:{size}")
    groups = _GROUPS[: 2 if founders < 6 or draw.random() < 0.4 else 3]
    processes = max(3, -(-size // len(groups))) + draw.choice([0, 0, 1, 2])
    seats: list[tuple[int, str]] = []
    for group in groups:
        seats += [(each, group) for each in draw.sample(range(processes), 2)]
    rest = [(each, group) for each in range(processes) for group in groups if (each, group) not in seats]
    draw.shuffle(rest)
    return (seats + rest)[:size]


class OverlapWorld(ChangingWorld):
    """Processes with members in several groups."""

    def __init__(self, kind: type[ChangingMember], founders: int, size: int) -> None:
        super().__init__(kind, 0, 0)
        self.group_kind = cast(type[ChangingMultigroup], kind)
        self.founders, self.size = founders, size
        layout = self.layout()
        self.process_of = [process for process, _ in layout]
        self.group_of = [group for _, group in layout]
        groups: dict[str, list[int]] = {}
        for address in range(founders):
            groups.setdefault(self.group_of[address], []).append(address)
        found = {each.me: each for each in self.group_kind.founders_of(groups, size)}
        for address in range(size):
            outside = self.group_kind.outsider_of(self.group_of[address], address, size)
            self._add(found.get(address, outside))
        self.seen: list[tuple[int, str, int, tuple[MessageId, ...], MessageId | None]] = []
        """What applications have seen: process, kind of event, address, messages, and the message as which a
        lost message was rebroadcast."""

    def layout(self) -> list[tuple[int, str]]:
        """The process and the group of each address; the first ones are founders."""
        return draw_layout(self.founders, self.size)

    def _add(self, member: ChangingMember) -> None:
        self.members.append(member)
        self.lives.append(IncarnationRecord(member.me, member.stream))
        self.attempts[member.me] = [member.me]
        self._connect(self.process_of[member.me])

    def _connect(self, process: int) -> None:
        self.group_kind.connect([self.member(each) for each in self.seats(process)])

    def member(self, address: int) -> ChangingMultigroup:
        member = self.members[address]
        assert isinstance(member, ChangingMultigroup)  # noqa: S101
        return member

    def seats(self, process: int) -> list[int]:
        """The addresses of a process."""
        return [each.me for each in self.members if self.process_of[each.me] == process]

    def apply(self, event: ScheduleEvent) -> bool:
        kind, address, other = event
        if kind in ("join", "ask", "return") and self.group_of[address] != self.group_of[other]:
            return False
        if not super().apply(event):
            return False
        at = other if kind == "transmit" else address
        if self.can_act(at):
            for each in self.seats(self.process_of[at]):
                member = self.member(each)
                effects = member.refresh(0)
                self._start(member)
                if effects.sends or member.phase is Phase.REMOVED:
                    self._carry_out(each, effects)
                self._admit(member)
        return True

    # What processes do.

    def _broadcast(self, address: int, other: int) -> bool:
        done = super()._broadcast(address, other)
        if done:
            self._note("send", address, (self.lives[address].events[-1][1],))
        return done

    def _give(self, address: int, delivery: Delivery) -> None:
        super()._give(address, delivery)
        copy = delivery.copy if isinstance(delivery, BroughtBack) else None
        self._note("deliver", address, (delivery.message,), copy)

    def _start(self, member: ChangingMember) -> None:
        before = self.lives[member.me].snapshot
        super()._start(member)
        if self.lives[member.me].snapshot != before:
            self._note("start", member.me, self.lives[member.me].snapshot)

    def _note(
        self, kind: str, address: int, messages: tuple[MessageId, ...], copy: MessageId | None = None
    ) -> None:
        self.seen.append((self.process_of[address], kind, address, messages, copy))

    def _join(self, address: int, contact: int) -> bool:
        return not self._is_busy(address) and super()._join(address, contact)

    def _return(self, address: int, contact: int) -> bool:
        self._asking = self.process_of[address]
        return not self._is_busy(address) and super()._return(address, contact)

    def _is_busy(self, address: int) -> bool:
        """A process joins one group at a time."""
        seats = self.seats(self.process_of[address])
        group = self.group_of[address]
        return any(
            self.members[each].phase == Phase.JOINING
            or (self.members[each].is_member and self.group_of[each] == group)
            for each in seats
        )

    def _begin_attempt(self, process: list[int], contact: int) -> ChangingMember:
        me, group = len(self.members), self.group_of[contact]
        self.process_of.append(self._asking)
        self.group_of.append(group)
        fresh = self.group_kind.outsider_of(group, me, me + 1)
        self._add(fresh)
        process.append(me)
        self.attempts[me] = process
        self._carry_out(me, fresh.join(contact, 0))
        return fresh

    _asking = 0
    """The process that begins the attempt."""

    def _ask(self, address: int, contact: int) -> bool:
        self._asking = self.process_of[address]
        return self.member(address).welcome is None and super()._ask(address, contact)

    # What happens to processes.

    def _crash(self, address: int, kept: int) -> bool:
        for each in self.seats(self.process_of[address]):
            super()._crash(each, kept)
        return True

    def _freeze(self, address: int, _: int) -> bool:
        self.frozen.update(self.seats(self.process_of[address]))
        return True

    def _thaw(self, address: int, _: int) -> bool:
        found = self.frozen.intersection(self.seats(self.process_of[address]))
        self.frozen -= found
        return bool(found)

    def _pairs(self, address: int, other: int) -> set[frozenset[int]]:
        one, two = (self.seats(self.process_of[each]) for each in (address, other))
        return {frozenset((a, b)) for a in one for b in two if a != b}

    def _cut(self, address: int, other: int) -> bool:
        self.cuts |= self._pairs(address, other)
        return True

    def _heal(self, address: int, other: int) -> bool:
        found = self.cuts & self._pairs(address, other)
        self.cuts -= found
        return bool(found)


class GroupView:
    """One group of a world, as if there were no others."""

    def __init__(self, world: OverlapWorld, group: str) -> None:
        self._world = world
        is_here = [each == group for each in world.group_of]
        self.members = [each for each in world.members if is_here[each.me]]
        self.lives = [
            each if is_here[each.address] else IncarnationRecord(each.address) for each in world.lives
        ]
        streams = {each.stream for each in self.members} | {each.stream for each in self.lives}
        tables = (table for each in self.members for table in (each.order.delivered, each.tombstones))
        known = {stream for table in tables for stream in table}
        self.removed = world.removed & (streams | known)
        self.faults: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


class _Appearance(NamedTuple):
    """A message of an application as the group first had it, or as a rebroadcast copy."""

    message: MessageId
    is_copy: bool = False
    lost_copy: MessageId | None = None
    """The copy as which it was rebroadcast, if it was lost too. All copies that were not lost count as
    one."""


class OverlapOracle(ChangingOracle):
    """Each group is judged by itself, and then the order across groups.

    Once a process has delivered m, or received a snapshot with m, no message that happened before m is
    delivered to it later, in any group, unless that message was lost and rebroadcast. The copy may be lost in
    the same way, and be rebroadcast again.
    """

    world: OverlapWorld

    def _groups(self) -> list[ChangingOracle]:
        views = [GroupView(self.world, each) for each in sorted(set(self.world.group_of))]
        return [ChangingOracle(cast(ChangingWorld, each)) for each in views]

    def has_quorum(self) -> bool:
        return all(each.has_quorum() for each in self._groups())

    def violations(self) -> list[str]:
        groups = self._groups()
        found = [text for each in groups for text in (*each.judge_order(), *each.judge_one_group())]
        found += [*self.judge_across(), *self.world.faults]
        if all(each.has_quorum() for each in groups):
            for each in groups:
                found += each.violations()
            found += self.judge_pasts()
        return list(dict.fromkeys(found))

    def judge_memory(self) -> list[str]:
        found = [text for each in self._groups() for text in each.judge_memory()]
        return found + self.judge_pasts()

    def judge_pasts(self) -> list[str]:
        """A process names no streams of its own groups that are gone, and holds nothing that waits for
        them."""
        world, found = self.world, []
        for group in sorted(set(world.group_of)):
            living = [each for each in self.survivors() if world.group_of[each.me] == group]
            alive = {each.stream for each in living}
            for each in living:
                member = world.member(each.me)
                if set(member.past.entries.get(group, {})) - alive:
                    found.append(f"p{each.me} names streams that are gone")
                if member.held or member.reported_gone:
                    found.append(f"p{each.me} holds messages for ever")
        return found

    def judge_across(self) -> list[str]:
        numbers: dict[_Appearance, int] = {}
        pasts: list[int] = []
        known: dict[int, int] = {}
        received: dict[int, int] = {}
        found = []
        ends = self._ends()
        for process, kind, address, messages, copy in self.world.seen:
            past = known.get(process, 0)
            lost_copy = copy if copy is not None and self._is_lost(copy, ends) else None
            for message in messages:
                key = _Appearance(message, copy is not None, lost_copy)
                if key not in numbers:
                    numbers[key] = len(pasts)
                    original = numbers.get(_Appearance(message))
                    pasts.append(past if kind == "send" else pasts[original] if original is not None else 0)
                number = numbers[key]
                bit = 1 << number
                if kind == "deliver" and past & bit and not received.get(process, 0) & bit:
                    found.append(f"p{address} delivers {self.show(message)} after what it precedes")
                past |= bit | pasts[number]
                received[process] = received.get(process, 0) | bit
            known[process] = past
        return found

    def _ends(self) -> dict[Stream, int]:
        """Where ended streams end."""
        ends: dict[Stream, int] = {}
        for member in self.world.members:
            for stream, end in (*member.tombstones.items(), *member.ends.items()):
                ends[stream] = max(end, ends.get(stream, end))
        return ends

    def _is_lost(self, message: MessageId, ends: dict[Stream, int]) -> bool:
        """Whether a message lies beyond the end of its stream, or the admission of its sender, or of one of
        its sponsors, does."""
        members = (each for each in self.world.members if each.stream == message.origin)
        admissions = next((each.admissions for each in members), {})
        judged: set[MessageId] = set()
        place: MessageId | None = message
        while place is not None and place not in judged:
            if place.seq > ends.get(place.origin, place.seq):
                return True
            judged.add(place)
            place = admissions.get(place.origin)
        return False


class OverlapSchedule(RandomSchedule):
    """Random schedules of groups that overlap."""

    world: OverlapWorld

    def __init__(self, kind: type[Any], seed: int | str, steps: int | None = None) -> None:
        super().__init__(kind, seed, steps)
        choose = self.random.choice
        founders = choose([4, 5, 6, 7, 8, 9, 10, 12])
        is_encoded = self.world.is_encoded
        self.world = OverlapWorld(kind, founders, founders + choose([0, 1, 2, 3, 4]))
        self.world.is_encoded = is_encoded
        self.steps = steps or choose([60, 120, 250, 500])
        self.weights |= {
            "broadcast": choose([2, 4, 8]),
            "deliver": choose([4, 8, 16]),
            "transmit": choose([8, 16, 32]),
            "join": choose([0.2, 0.5, 2]),
            "leave": choose([0.0, 0.1, 0.3]),
            "remove": choose([0.0, 0.1, 0.4, 1]),
            "crash": choose([0.0, 0.0, 0.1, 0.3]),
            "return": choose([0.0, 0.1, 0.5, 2]),
            "suspect": 0.0,
            "trust": 0.0,
        }
        self._spread = choose([0, 1, 2, 3, 3])
        if self.bursts.are_there:
            founders = self.bursts.random.choice([4, 5, 6, 7, 8])
            self._replace_world(OverlapWorld(kind, founders, founders + self.bursts.draw_joins()))
            self._draw_bursts()

    def _with_all_seats(self, addresses: frozenset[int]) -> frozenset[int]:
        world = self.world
        return frozenset(seat for each in addresses for seat in world.seats(world.process_of[each]))

    def _group_of(self, address: int) -> ChangingWorld:
        return cast(ChangingWorld, GroupView(self.world, self.world.group_of[address]))

    def _contact_in(self, address: int | None) -> int | None:
        """A member of the same group to ask."""
        if address is None:
            return None
        world = self.world
        group = [each for each in world.active() if world.group_of[each] == world.group_of[address]]
        contact: int | None = self._pick(group)
        return contact

    def draw_join(self, kind: str) -> ScheduleEvent | None:
        address = self._pick(self._in_phase(Phase.OUTSIDE))
        return self._event(kind, address, self._contact_in(address))

    def draw_ask(self, kind: str) -> ScheduleEvent | None:
        joining = [each for each in self._in_phase(Phase.JOINING) if len(self.world.attempts[each]) < 3]
        address = self._pick(joining)
        return self._event(kind, address, self._contact_in(address))

    def draw_return(self, kind: str) -> ScheduleEvent | None:
        world = self.world
        removed = [each.address for each in world.lives if each.end == "removed"]
        address = self._pick([each for each in removed if each not in world.returned_to])
        return self._event(kind, address, self._contact_in(address))

    def draw_crash(self, kind: str) -> ScheduleEvent | None:
        world, address = self.world, self._pick(self.world.active())
        if address is None or self.is_reckless:
            return None
        seats = [each for each in world.seats(world.process_of[address]) if world.is_active(each)]
        if not all(map(self._may_remove, seats)):
            return None
        world.removed.update(world.members[each].stream for each in seats)
        return kind, address, self.random.choice([0, 1, 2, 99])

    def _removed_in(self, address: int) -> set[int]:
        """The streams of the same group that are being removed."""
        return set(GroupView(self.world, self.world.group_of[address]).removed)

    def _may_remove(self, address: int) -> bool:
        if self.bursts.are_there:
            return super()._may_remove(address)
        gone = self._removed_in(address) | {self.world.members[address].stream}
        return self.is_reckless or self._staying(address, gone) > len(gone)

    def _may_spare(self, address: int) -> bool:
        if self.bursts.are_there:
            return super()._may_spare(address)
        gone = self._removed_in(address)
        staying = self._staying(address, gone | {self.world.members[address].stream})
        return staying > 1 and (not gone or staying > len(gone))

    def _staying(self, address: int, gone: set[int]) -> int:
        world = self.world
        return sum(
            world.is_active(each.me)
            and each.stream not in gone
            and world.group_of[each.me] == world.group_of[address]
            for each in world.members[: world.founders]
        )

    def _let_all_in(self) -> None:
        world = self.world
        for life in list(world.lives):
            if life.end == "removed" and (contact := self._contact_in(life.address)) is not None:
                world.apply(("return", life.address, contact))
        for address in self._in_phase(Phase.JOINING):
            is_last = address == world.attempts[address][-1]
            if is_last and (contact := self._contact_in(address)) is not None:
                world.apply(("ask", address, contact))

    def oracle(self) -> ChangingOracle:
        return OverlapOracle(self.world)
