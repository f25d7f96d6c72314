"""Every schedule of a small group in which members join, leave, crash and are removed.

As in `check`, processes are tabulated: what an event does to a process in a given state is computed once. A
state of the group is the states of its processes, the packets on their way, and for each message those that
happened before it. Deliveries are judged when they happen. In a final state, all outstanding packets arrive,
members report their progress until they agree, and the oracle judges the rest.

Memory: 8 bytes a state, and the states of the last level; for a counter-example, how each was reached.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from antecede.causality import MessageId
from antecede.check.bounds import counted
from antecede.check.changing.oracle import ChangingOracle
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.world import (
    ChangingViolation,
    ChangingWorld,
    IncarnationRecord,
    ScheduleEvent,
    as_violation,
)
from antecede.check.processes import canonical_state
from antecede.errors import InputError
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Stream
from antecede.membership.state import Phase
from antecede.protocols.base import Effects, Send


class ChangeBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much may happen in a group that changes."""

    peers: int = 3
    messages: int = 1
    """Messages broadcast by each member."""
    total: int | None = None
    """Messages broadcast by all members together."""
    joins: int = 0
    leaves: int = 0
    removals: int = 0
    crashes: int = 0
    """Crashes for good: of the packets that the process has sent, those that have not arrived are lost."""
    reports: int = 0
    """Progress reports, besides those at the end."""

    def __post_init__(self) -> None:
        if self.peers < 1 or self.messages < 0 or (self.peers + self.joins) * self.messages > 60:
            raise InputError("check: at least one peer, and at most 60 messages in all")

    @property
    def size(self) -> int:
        return self.peers + self.joins

    def in_words(self) -> str:
        """What is explored, for people: "2 members, 1 message each, 1 join"."""
        changes = {
            "join": self.joins,
            "leave": self.leaves,
            "removal": self.removals,
            "failure": self.crashes,
            "progress report": self.reports,
        }
        total = [] if self.total is None else [f"{counted(self.total, 'message')} in all"]
        size = [counted(self.peers, "member"), f"{counted(self.messages, 'message')} each", *total]
        return ", ".join([*size, *(counted(count, what) for what, count in changes.items() if count)])


class ExploredProcess(NamedTuple):
    """One process, with what its application has seen."""

    saved: bytes
    seen: int = 0
    """The messages that the process has sent or delivered, or that were in its snapshot, as bits."""
    sent: int = 0
    stream: Stream = -1
    is_crashed: bool = False


class ExploredStep(NamedTuple):
    """What an event does to a process."""

    after: int
    sends: tuple[int, ...] = ()
    message: int = -1
    """The message that was broadcast or delivered."""
    fault: str = ""


class ChangingState(NamedTuple):
    """A whole group at one moment."""

    processes: tuple[int, ...]
    in_flight: tuple[int, ...]
    """Packets, by link and in link order."""
    pasts: tuple[int, ...]
    """For each message the messages that happened before it, as bits; -1 if it is not sent yet."""
    left: tuple[int, int, int, int, int, int]
    """How many messages, joins, leaves, removals, crashes and reports are still allowed."""
    removed: frozenset[int] = frozenset()
    """The addresses of members that somebody removes, or that have crashed."""


_MESSAGES, _JOINS, _LEAVES, _REMOVALS, _CRASHES, _REPORTS = range(6)
_BUDGET = {
    "broadcast": _MESSAGES,
    "join": _JOINS,
    "leave": _LEAVES,
    "remove": _REMOVALS,
    "crash": _CRASHES,
    "report": _REPORTS,
    "attach": _JOINS,
    "move": _JOINS,
    "detach": _LEAVES,
    "expel": _REMOVALS,
}


class ExploredGroup:
    """A changing group within bounds: its initial state, the events possible in a state, and the states they
    lead to."""

    def __init__(self, kind: type[ChangingMember], bounds: ChangeBounds, reduce: bool = True) -> None:
        self.kind, self.bounds, self.size = kind, bounds, bounds.size
        self.is_reduced = reduce
        self.has_equal_founders = reduce and kind.ordering.symmetric
        self.states: list[ExploredProcess] = []
        self.packets: list[tuple[int, int, bytes]] = []
        self._numbers: dict[ExploredProcess, int] = {}
        self._packet_numbers: dict[tuple[int, int, bytes], int] = {}
        self._steps: dict[tuple[int, str, int], ExploredStep | None] = {}
        self._own_events: dict[int, list[tuple[str, int]]] = {}
        self._links: list[int] = []
        self._judged: dict[ChangingState, ChangingViolation | None] = {}
        self._ends: dict[tuple[int, tuple[int, ...], tuple[int, ...]], frozenset[int] | None] = {}
        members = self.create_members()
        processes = tuple(self._number(ExploredProcess(b"", stream=each.stream), each) for each in members)
        total = bounds.size * bounds.messages if bounds.total is None else bounds.total
        left = (total, bounds.joins, bounds.leaves, bounds.removals, bounds.crashes, bounds.reports)
        self.initial = ChangingState(processes, (), (-1,) * (bounds.size * bounds.messages), left)

    @property
    def addresses(self) -> int:
        """The number of addresses of members."""
        return self.size

    def create_members(self) -> list[ChangingMember]:
        return list(self.kind.founders(self.bounds.peers, self.bounds.size))

    def create_world(self) -> ChangingWorld:
        return NumberedWorld(self.kind, self.bounds.peers, self.size)

    def create_schedule(self, world: ChangingWorld) -> RandomSchedule:
        return RandomSchedule.of_world(world)

    # Processes

    def _number(self, state: ExploredProcess, member: ChangingMember) -> int:
        member.take_changes()
        state = state._replace(saved=canonical_state(member), stream=member.stream)
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def step(self, state: int, kind: str, about: int) -> ExploredStep | None:
        """What an event does in a state; None if it cannot happen there."""
        key = state, kind, about
        if key not in self._steps:
            try:
                self._steps[key] = self._compute(self.states[state], kind, about)
            except Exception as error:  # An exception from a member is a fault of the protocol.
                self._steps[key] = ExploredStep(state, fault=f"raises {type(error).__name__}: {error}")
        return self._steps[key]

    def _compute(self, before: ExploredProcess, kind: str, about: int) -> ExploredStep | None:
        member = self.kind.restore(before.saved)
        if kind == "receive":
            return self._receive(member, before, about)
        if kind == "broadcast":
            if not member.is_member or before.sent == self.bounds.messages:
                return None
            number = member.me * self.bounds.messages + before.sent
            effects = member.broadcast(bytes([number]), 0)
            after = before._replace(seen=before.seen | 1 << number, sent=before.sent + 1)
            return self._follow(member, after, effects, number)
        if kind == "deliver":
            return self._deliver(member, before)
        if kind == "report":
            return self._follow(member, before, member.report(0)) if member.is_member else None
        if kind == "leave":
            return self._follow(member, before, member.leave(0)) if member.may_leave() else None
        if kind == "join":
            return self._follow(member, before, member.join(about, 0))
        stream = member.stream_at.get(about)
        if not member.is_member or stream not in member.addresses:
            return None
        return self._follow(member, before, member.remove(stream, 0))

    def _receive(self, member: ChangingMember, before: ExploredProcess, packet: int) -> ExploredStep:
        source, _, data = self.packets[packet]
        effects = member.receive(source, self.kind.decode(data), 0)
        sends = list(effects.sends)
        snapshot = member.take_snapshot()
        if snapshot is not None:
            before = before._replace(seen=int.from_bytes(snapshot, "little"))
        sends += self._answer_requests(member, before.seen.to_bytes(8, "little"))
        return self._follow(member, before, Effects(tuple(sends)))

    def _answer_requests(self, member: ChangingMember, snapshot: bytes) -> list[Send]:
        """Admit processes that have asked, once the application has received all that counts as delivered."""
        sends: list[Send] = []
        while member.requests and not member.undelivered:
            sends += member.sponsor(member.requests[0], snapshot, 0).sends
        return sends

    def _deliver(self, member: ChangingMember, before: ExploredProcess) -> ExploredStep | None:
        deliveries = member.deliveries
        delivery = member.deliver(0)
        if delivery is None and member.deliveries == deliveries:
            return None
        effects, number = member.pending_effects(0), -1
        if delivery is not None:
            number = delivery.payload[0]
            if before.seen >> number & 1:
                return ExploredStep(0, fault=f"delivers {self.name(number)} twice")
            before = before._replace(seen=before.seen | 1 << number)
        answers = self._answer_requests(member, before.seen.to_bytes(8, "little"))
        return self._follow(member, before, Effects((*effects.sends, *answers)), number)

    def _follow(
        self, member: ChangingMember, after: ExploredProcess, effects: Effects, message: int = -1
    ) -> ExploredStep:
        sends = tuple(
            self._number_packet((member.me, to, self.kind.encode(send.packet)))
            for send in effects.sends
            for to in send.to
        )
        return ExploredStep(self._number(after, member), sends, message)

    def _number_packet(self, packet: tuple[int, int, bytes]) -> int:
        number = self._packet_numbers.setdefault(packet, len(self.packets))
        if number == len(self.packets):
            self.packets.append(packet)
            self._links.append(packet[0] * self.size + packet[1])
        return number

    def name(self, message: int) -> str:
        return f"p{message // self.bounds.messages}:{message % self.bounds.messages + 1}"

    # Events

    def events(self, state: ChangingState) -> Iterator[ScheduleEvent]:
        """What can happen in a state."""
        links, equal = self._links, self._equal_founders(state)
        for at, packet in enumerate(state.in_flight):
            if at == 0 or links[packet] != links[state.in_flight[at - 1]]:
                source, to, _ = self.packets[packet]
                if to not in equal:
                    yield "transmit", source, to
        for address, number in enumerate(state.processes):
            if self.states[number].is_crashed or address in equal:
                continue
            for kind, about in self._own(address, number):
                if kind == "deliver" or state.left[_BUDGET[kind]]:
                    if about in equal and not (kind == "remove" and self._is_next(about, address, equal)):
                        continue
                    yield kind, address, about

    def _equal_founders(self, state: ChangingState) -> dict[int, int]:
        """Symmetry: the founders that differ only in name from an earlier one, which represents them.

        Nothing has happened to them, the same packets are in flight to them, and nobody removes them.
        Whatever happens first to one of them may as well happen to the first.
        """
        if not self.has_equal_founders:
            return {}
        peers, initial = range(self.bounds.peers), self.initial.processes
        untouched = [
            each for each in peers if state.processes[each] == initial[each] and each not in state.removed
        ]
        if len(untouched) < 2:
            return {}
        coming: dict[int, list[tuple[int, bytes]]] = {each: [] for each in untouched}
        for packet in state.in_flight:
            source, to, data = self.packets[packet]
            if to in coming:
                coming[to].append((source, data))
        equal: dict[int, int] = {}
        first: dict[tuple[tuple[int, bytes], ...], int] = {}
        for each in untouched:
            stands_for = first.setdefault(tuple(coming[each]), each)
            if stands_for != each:
                equal[each] = stands_for
        return equal

    def _is_next(self, about: int, address: int, equal: dict[int, int]) -> bool:
        """Whether the first of its equals removes it, and it is the first of the others."""
        alike = [each for each, first in equal.items() if first == address]
        return bool(alike) and alike[0] == about

    def _own(self, address: int, number: int) -> list[tuple[str, int]]:
        found = self._own_events.get(number)
        if found is None:
            others = [each for each in range(self.size) if each != address]
            possible = [("broadcast", -1), ("deliver", -1), ("report", -1), ("leave", -1)]
            possible += [("remove", each) for each in others if self.bounds.removals]
            found = [each for each in possible if self.step(number, *each) is not None]
            member = self.kind.restore(self.states[number].saved)
            if member.phase == Phase.OUTSIDE:
                found += [("join", each) for each in range(self.bounds.peers)]
            if member.is_member:
                found.append(("crash", 0))
            self._own_events[number] = found
        return found

    def apply(self, state: ChangingState, event: ScheduleEvent) -> ChangingState | ChangingViolation:
        """The state after an event, or the violation."""
        kind, address, about = event
        if kind == "crash":
            return self._crash(state, address)
        processes, in_flight, pasts, left, removed = state
        at = address
        if kind == "transmit":
            at = about
            place = next(
                place for place, each in enumerate(in_flight) if self.packets[each][:2] == (address, about)
            )
            packet, in_flight = in_flight[place], in_flight[:place] + in_flight[place + 1 :]
            step = self.step(processes[at], "receive", packet)
        else:
            step = self.step(processes[at], kind, about)
        if step is None or step.fault:
            return ChangingViolation(at, step.fault if step else "that cannot happen")
        if kind == "deliver" and step.message >= 0:
            past = pasts[step.message]
            if missing := past & ~self.states[step.after].seen:
                cause = (missing & -missing).bit_length() - 1
                text = f"delivers {self.name(step.message)} before {self.name(cause)}"
                return ChangingViolation(at, text)
        elif kind == "broadcast":
            seen = self.states[processes[at]].seen
            pasts = (*pasts[: step.message], seen, *pasts[step.message + 1 :])
        elif kind == "remove":
            removed = removed | {about}
        if kind in _BUDGET:
            spent = _BUDGET[kind]
            left = (*left[:spent], left[spent] - 1, *left[spent + 1 :])  # type: ignore[assignment]
        if step.sends:
            sends = step.sends
            if self.bounds.crashes:
                sends = tuple(each for each in sends if not self._is_lost(each, processes))
            in_flight = tuple(sorted(in_flight + sends, key=self._links.__getitem__))
        processes = (*processes[:at], step.after, *processes[at + 1 :])
        return ChangingState(processes, in_flight, pasts, left, removed)

    def _is_lost(self, packet: int, processes: tuple[int, ...]) -> bool:
        """Whether a packet is for a process that has crashed."""
        return self.states[processes[self.packets[packet][1]]].is_crashed

    def _crash(self, state: ChangingState, address: int) -> ChangingState:
        crashed = self.states[state.processes[address]]._replace(is_crashed=True)
        number = self._numbers.setdefault(crashed, len(self.states))
        if number == len(self.states):
            self.states.append(crashed)
        left = state.left
        return ChangingState(
            (*state.processes[:address], number, *state.processes[address + 1 :]),
            tuple(each for each in state.in_flight if address not in self.packets[each][:2]),
            state.pasts,
            (*left[:_CRASHES], left[_CRASHES] - 1, *left[_CRASHES + 1 :]),  # type: ignore[arg-type]
            state.removed | {address},
        )

    # The end

    def ends(self, state: ChangingState) -> list[ChangingState] | None:
        """Commuting receipts: the final states if nobody sends anything more, in any order of arrival.

        Then processes do not influence each other, and each is explored by itself. None if a process may send
        something, or violates a rule: such states are explored like others.
        """
        if not self.is_reduced or any(state.left):
            return None
        coming: list[list[int]] = [[] for _ in state.processes]
        for packet in state.in_flight:
            coming[self.packets[packet][1]].append(packet)
        found = [
            self._local_ends(number, tuple(packets), state.pasts)
            for number, packets in zip(state.processes, coming, strict=True)
        ]
        if any(each is None for each in found):
            return None
        choices = itertools.product(*(sorted(each) for each in found if each is not None))
        return [state._replace(processes=processes, in_flight=()) for processes in choices]

    def _local_ends(
        self, number: int, coming: tuple[int, ...], pasts: tuple[int, ...]
    ) -> frozenset[int] | None:
        """The states that a process may reach once these packets have arrived and everything is delivered."""
        key = number, coming, pasts
        if key not in self._ends:
            self._ends[key] = self._find_local_ends(number, coming, pasts)
        return self._ends[key]

    def _find_local_ends(
        self, number: int, coming: tuple[int, ...], pasts: tuple[int, ...]
    ) -> frozenset[int] | None:
        links = self._links
        steps = []
        for at, packet in enumerate(coming):
            if at == 0 or links[packet] != links[coming[at - 1]]:
                steps.append((self.step(number, "receive", packet), coming[:at] + coming[at + 1 :]))
        if not self.states[number].is_crashed and (step := self.step(number, "deliver", -1)) is not None:
            steps.append((step, coming))
        ends: set[int] = set() if steps else {number}
        for step, left in steps:
            if step is None or step.fault or step.sends:
                return None
            if step.message >= 0 and pasts[step.message] & ~self.states[step.after].seen:
                return None
            following = self._local_ends(step.after, left, pasts)
            if following is None:
                return None
            ends |= following
        return frozenset(ends)

    def judge_end(self, state: ChangingState) -> ChangingViolation | None:
        """The violation that remains once everything has arrived and members agree, if any."""
        if state not in self._judged:
            self._judged[state] = self._judge_end(state)
        return self._judged[state]

    def _judge_end(self, state: ChangingState) -> ChangingViolation | None:
        world = self._world(state)
        schedule = self.create_schedule(world)
        schedule.settle()
        violations = self._oracle(schedule.oracle(), state).violations()
        if not violations:
            return None
        return as_violation(violations[0])

    def _world(self, state: ChangingState) -> ChangingWorld:
        """The group in this state, ready to continue from there."""
        world = self.create_world()
        processes = [self.states[number] for number in state.processes]
        world.members = [self.kind.restore(each.saved) for each in processes]
        world.lives = [
            IncarnationRecord(address, each.stream, _ids(each.seen), end="crashed" if each.is_crashed else "")
            for address, each in enumerate(processes)
        ]
        for member, life in zip(world.members, world.lives, strict=True):
            if member.phase in (Phase.LEAVING, Phase.ENDED) and not life.end:
                life.end = "left"
            elif member.phase == Phase.REMOVED:
                life.end = "removed"
            own = self.bounds.messages * life.address
            life.own = tuple(each for each in life.snapshot if own <= each.seq < own + self.bounds.messages)
        world.crashed = {each.address for each in world.lives if each.end == "crashed"}
        world.removed = {processes[address].stream for address in state.removed}
        for packet in state.in_flight:
            source, to, data = self.packets[packet]
            world.links.setdefault((source, to), deque()).append(self.kind.decode(data))
        return world

    def _oracle(self, oracle: ChangingOracle, state: ChangingState) -> ChangingOracle:
        oracle.numbers = {MessageId(0, number): number for number in range(len(state.pasts))}
        oracle.pasts = [max(0, past) for past in state.pasts]
        oracle.names = {message: self.name(number) for message, number in oracle.numbers.items()}
        return oracle


class NumberedWorld(ChangingWorld):
    """Continues with messages distinguished by their numbers, which are their payloads."""

    def _deliver(self, address: int, _: int) -> bool:
        member = self.members[address]
        if not member.is_member:
            return False
        before = member.deliveries
        delivery = member.deliver(0)
        if delivery is not None:
            self.lives[address].events.append(("deliver", MessageId(0, delivery.payload[0])))
        self._carry_out(address, member.pending_effects(0))
        return delivery is not None or member.deliveries != before


def _ids(bits: int) -> tuple[MessageId, ...]:
    return tuple(MessageId(0, number) for number in range(bits.bit_length()) if bits >> number & 1)


class ChangingCounterExample(NamedTuple):
    """A schedule that fails, and its violation."""

    schedule: list[ScheduleEvent]
    violation: ChangingViolation


class ChangingProgress(msgspec.Struct):
    """The progress of an exploration."""

    states: int = 1
    transitions: int = 0
    depth: int = 0
    ends: int = 0
    is_complete: bool = False
    found: ChangingCounterExample | None = None


def explore(group: ExploredGroup, max_states: int) -> Iterator[ChangingProgress]:
    """Yields after each level, until everything is explored, a violation is found, or a limit is reached."""
    progress = ChangingProgress()
    came_from: dict[int, tuple[int, ScheduleEvent] | None] = {hash(group.initial): None}
    level = {hash(group.initial): group.initial}
    shared: dict[ScheduleEvent, ScheduleEvent] = {}
    while level and progress.states < max_states:
        following: dict[int, ChangingState] = {}
        for key, state in level.items():
            ends = group.ends(state)
            if ends is not None and not any(map(group.judge_end, ends)):
                progress.ends += len(ends)
                continue
            events = list(group.events(state))
            for event in events:
                progress.transitions += 1
                after = group.apply(state, event)
                if isinstance(after, ChangingViolation):
                    progress.found = _trace_back(came_from, key, [event], after)
                    yield progress
                    return
                number = hash(after)
                if number not in came_from:
                    came_from[number] = key, shared.setdefault(event, event)
                    following[number] = after
            if _is_at_rest(events):
                progress.ends += 1
                if (violation := group.judge_end(state)) is not None:
                    progress.found = _trace_back(came_from, key, [], violation)
                    yield progress
                    return
        level = following
        progress.states += len(level)
        progress.depth += bool(level)
        progress.is_complete = not level
        yield progress


def _is_at_rest(events: list[ScheduleEvent]) -> bool:
    """Whether nothing happens without an action of an application or operator, or a failure. Then the group
    must satisfy the oracle, whatever else may still be possible."""
    return all(kind not in ("transmit", "deliver") for kind, _, _ in events)


def _trace_back(
    came_from: dict[int, tuple[int, ScheduleEvent] | None],
    key: int,
    last: list[ScheduleEvent],
    violation: ChangingViolation,
) -> ChangingCounterExample:
    schedule = last
    while (step := came_from[key]) is not None:
        key, event = step
        schedule.insert(0, event)
    return ChangingCounterExample(schedule, violation)
