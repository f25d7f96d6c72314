"""Random schedules of changing groups. Schedule r of seed s is always the same, so both replay a failure."""

from __future__ import annotations

import random
from typing import Any, Self

from antecede.check.changing.bursts import Bursts
from antecede.check.changing.oracle import ChangingOracle
from antecede.check.changing.quorum import has_quorum
from antecede.check.changing.world import ChangingWorld, ScheduleEvent
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase

_MOST_JOINS = 3
_ENCODED = 0.1
"""The share of schedules in which packets travel as bytes."""
_FORWARDING = 0.5
"""The share of schedules in which members forward to the members they admit."""
_ROUNDS = 60
_ROUNDS_WITHOUT_QUORUM = 10
"""Rounds at the end of schedules in which removed members stay where they are for ever."""
_ROUNDS_APART = 4
"""Of these, the rounds for which a paused or cut-off process stays so: long enough to be removed."""


class RandomSchedule:
    """Draws the next event; at the end lets everything arrive."""

    def __init__(
        self,
        kind: type[ChangingMember],
        seed: int | str,
        steps: int | None = None,
        world: type[ChangingWorld] = ChangingWorld,
    ) -> None:
        self.random = random.Random(seed)
        self._later = random.Random(f"{seed}:later")
        founders = self.random.choice([2, 3, 4, 5, 5, 6])
        self.world = world(kind, founders, founders + _MOST_JOINS)
        self.steps = steps or self.random.choice([30, 60, 120, 250])
        self.drawn = 0
        """The number of drawn events; those after them let everything arrive."""
        choose = self.random.choice
        self.weights = {
            "broadcast": choose([0.5, 1, 2, 4]),
            "deliver": choose([1, 2, 4, 8]),
            "transmit": choose([2, 4, 8, 16]),
            "report": choose([0.3, 1, 2, 4]),
            "join": choose([0.0, 0.2, 0.5]),
            "ask": choose([0.0, 0.2]),
            "leave": choose([0.0, 0.2]),
            "remove": choose([0.0, 0.1, 0.4]),
            "crash": choose([0.0, 0.0, 0.1]),
            "freeze": choose([0.0, 0.0, 0.1]),
            "suspect": choose([0.0, 0.5]),
            "trust": 0.5,
            "return": choose([0.0, 0.1, 0.5]),
            "cut": choose([0.0, 0.0, 0.1, 0.5]),
            "partition": choose([0.0, 0.0, 0.05]),
            "heal": choose([0.02, 0.1]),
        }
        self.is_reckless = choose([False, False, False, True])
        """Whether so many members are removed that there may be no quorum."""
        self._spread = choose([0, 0, 1, 2, 3])
        """Some links are slower than others, by up to this power of ten."""
        self._speeds: dict[tuple[int, int], float] = {}
        self.world.is_encoded = self.random.random() < _ENCODED
        self._forwards = random.Random(f"{seed}:forward").random() < _FORWARDING
        self.bursts = Bursts(seed)
        if self.bursts.are_there:
            self._draw_bursts()
            founders = self.bursts.draw_founders()
            self._replace_world(world(kind, founders, founders + self.bursts.draw_joins()))

    def _draw_bursts(self) -> None:
        self.steps = self.bursts.draw_steps()
        self.weights |= self.bursts.draw_weights()

    def _replace_world(self, world: ChangingWorld) -> None:
        world.is_encoded = self.world.is_encoded
        self.world = world

    @classmethod
    def of_world(cls, world: ChangingWorld) -> Self:
        """Continue a world that has run a schedule of its own; what follows is deterministic."""
        schedule = cls.__new__(cls)
        schedule.random, schedule.world = random.Random(0), world
        return schedule

    def run(self) -> ChangingWorld:
        if self._forwards:
            self.world.apply(("forward", 0, -1))
        kinds, weights = list(self.weights), list(self.weights.values())
        for kind in self.random.choices(kinds, weights, k=self.steps):
            event = getattr(self, f"draw_{kind}", self.draw_own)(kind)
            if event is not None:
                self.world.apply(event)
        self._switch_off()
        self.drawn = len(self.world.schedule)
        self.settle()
        return self.world

    # What happens next.

    def draw_own(self, kind: str) -> ScheduleEvent | None:
        return self._event(kind, self._pick(self.world.active()), -1)

    def draw_transmit(self, kind: str) -> ScheduleEvent | None:
        links = self.world.open_links()
        if not links:
            return None
        (link,) = self.random.choices(links, [self._speed(link) for link in links])
        return kind, *link

    def _speed(self, link: tuple[int, int]) -> float:
        if link not in self._speeds:
            self._speeds[link] = 10 ** -self.random.uniform(0, self._spread)
        return self._speeds[link]

    def draw_join(self, kind: str) -> ScheduleEvent | None:
        return self._event(kind, self._pick(self._in_phase(Phase.OUTSIDE)), self._contact())

    def draw_ask(self, kind: str) -> ScheduleEvent | None:
        joining = [each for each in self._in_phase(Phase.JOINING) if len(self.world.attempts[each]) < 3]
        return self._event(kind, self._pick(joining), self._contact())

    def _in_phase(self, phase: Phase) -> list[int]:
        world = self.world
        return [each.me for each in world.members if each.phase == phase and world.can_act(each.me)]

    def draw_return(self, kind: str) -> ScheduleEvent | None:
        world = self.world
        removed = [each.address for each in world.lives if each.end == "removed"]
        return self._event(
            kind, self._pick([each for each in removed if each not in world.returned_to]), self._contact()
        )

    def draw_leave(self, kind: str) -> ScheduleEvent | None:
        address = self._pick(self.world.active())
        return (kind, address, -1) if address is not None and self._may_spare(address) else None

    def draw_remove(self, kind: str) -> ScheduleEvent | None:
        active = self.world.active()
        remover = self._pick(active)
        if remover is None:
            return None
        view = self.world.members[remover].addresses.values()
        other = self._pick(sorted(set(view) - {remover}))
        return (kind, remover, other) if other is not None and self._may_remove(other) else None

    def draw_crash(self, kind: str) -> ScheduleEvent | None:
        address = self._pick(self.world.active())
        if address is None or self.is_reckless or not self._may_remove(address):
            return None
        self.world.removed.add(self.world.members[address].stream)
        return kind, address, self.random.choice([0, 1, 2, 99])

    def draw_freeze(self, kind: str) -> ScheduleEvent | None:
        return None if self.world.frozen else self.draw_own(kind)

    def draw_suspect(self, kind: str) -> ScheduleEvent | None:
        address = self._pick(self.world.active())
        if address is None:
            return None
        view = self.world.members[address].addresses.values()
        return self._event(kind, address, self._pick(sorted(set(view) - {address})))

    draw_trust = draw_suspect

    def draw_cut(self, kind: str) -> ScheduleEvent | None:
        """Two members cannot reach each other."""
        active = self.world.active()
        return self._event(kind, *self.random.sample(active, 2)) if len(active) > 1 else None

    def draw_partition(self, kind: str) -> None:
        """Part of the group cannot reach the rest."""
        active = self.world.active()
        side = {each for each in active if self.random.random() < 0.5}
        for one in sorted(side):
            for other in sorted(set(active) - side):
                self.world.apply(("cut", one, other))

    def draw_heal(self, kind: str) -> ScheduleEvent | None:
        cut = self._pick(sorted(map(sorted, self.world.cuts)))
        return self._event(kind, *cut) if cut else None

    def draw_burst(self, kind: str) -> None:
        """Everything arrives, except at and from a few processes."""
        world = self.world
        apart = self._with_all_seats(self.bursts.draw_apart(world.reporting()))
        for _ in range(self.bursts.draw_rounds()):
            for address in world.reporting():
                if address not in apart:
                    world.apply(("report", address, -1))
            self._let_all_arrive(apart)
        self._let_all_arrive(apart)

    def _with_all_seats(self, addresses: frozenset[int]) -> frozenset[int]:
        """These addresses, and all others of the same processes."""
        return addresses

    def _event(self, kind: str, address: int | None, other: int | None) -> ScheduleEvent | None:
        return None if address is None or other is None else (kind, address, other)

    def _pick(self, choices: list[Any]) -> Any:
        return self.random.choice(choices) if choices else None

    def _contact(self) -> int | None:
        contact: int | None = self._pick(self.world.active())
        return contact

    def _switch_off(self) -> None:
        """Sometimes a member that has left is down after a while, terminated or not, so that packets still in
        flight from it are lost. Drawn from random numbers of its own."""
        world = self.world
        left = [life.address for life in world.lives if life.end == "left" and world.can_act(life.address)]
        if not left or not (world.cuts or world.frozen) or self._later.random() < 0.5:
            return
        for _ in range(self._later.choice([2, 4])):
            for address in world.reporting():
                world.apply(("report", address, -1))
            self._let_all_arrive()
        for address in left:
            if world.members[address].phase is Phase.ENDED or self._may_remove(address):
                world.apply(("crash", address, 0))

    # A removal needs a quorum: surviving members whose admission is stable outnumber the removed.

    def _may_remove(self, address: int) -> bool:
        if self.bursts.are_there:
            stream = self.world.members[address].stream
            return self.is_reckless or has_quorum(self._group_of(address), removing=frozenset({stream}))
        gone = self.world.removed | {self.world.members[address].stream}
        return self.is_reckless or self._founders_without(gone) > len(gone)

    def _may_spare(self, address: int) -> bool:
        if self.bursts.are_there:
            group, stream = self._group_of(address), self.world.members[address].stream
            return len(group.active()) > 2 and has_quorum(group, leaving=frozenset({stream}))
        gone = self.world.removed
        leaving = self._founders_without(gone | {self.world.members[address].stream})
        return len(self.world.active()) > 2 and (not gone or leaving > len(gone))

    def _group_of(self, address: int) -> ChangingWorld:
        return self.world

    def _founders_without(self, gone: set[int]) -> int:
        founders = self.world.members[: self.world.founders]
        return sum(self.world.is_active(each.me) and each.stream not in gone for each in founders)

    # The end: everything arrives, crashed members are removed, removed members return.

    def settle(self) -> None:
        world = self.world
        for attempt in range(_ROUNDS):
            if attempt == _ROUNDS_APART:
                for address in sorted(world.frozen):
                    world.apply(("thaw", address, -1))
                for one, other in sorted(map(sorted, world.cuts)):
                    world.apply(("heal", one, other))
            self._let_all_arrive()
            if attempt and not world.frozen and not world.cuts and self._is_settled():
                return
            if attempt == _ROUNDS_WITHOUT_QUORUM and not self.oracle().has_quorum():
                return
            self._let_all_in()
            if attempt % 2:
                self._remove_the_dead(attempt // 2)
            for address in world.reporting():
                world.apply(("report", address, -1))

    def _let_all_arrive(self, apart: frozenset[int] = frozenset()) -> None:
        world, active = self.world, True
        while active:
            active = False
            while links := sorted(self._links_without(apart)):  # The rest is the same, whatever led here.
                self.random.shuffle(links)
                for link in links:
                    active |= world.apply(("transmit", *link))
            for address in world.active():
                while address not in apart and world.apply(("deliver", address, -1)):
                    active = True

    def _links_without(self, apart: frozenset[int]) -> list[tuple[int, int]]:
        links = self.world.open_links()
        return [link for link in links if apart.isdisjoint(link)] if apart else links

    def _is_settled(self) -> bool:
        oracle = self.oracle()
        joining = self._in_phase(Phase.JOINING)
        returning = any(
            life.end == "removed" and life.address not in self.world.returned_to for life in self.world.lives
        )
        return not joining and not returning and not oracle.judge_memory()

    def oracle(self) -> ChangingOracle:
        return ChangingOracle(self.world)

    def _let_all_in(self) -> None:
        world = self.world
        for life in list(world.lives):
            if life.end == "removed" and (contact := self._contact()) is not None:
                world.apply(("return", life.address, contact))
        for address in self._in_phase(Phase.JOINING):
            # The member that was asked is gone.
            if address == world.attempts[address][-1] and (contact := self._contact()) is not None:
                world.apply(("ask", address, contact))

    def _remove_the_dead(self, turn: int) -> None:
        """One member removes all members that it knows have crashed. Members take turns, since one of them
        may have been removed without knowing it."""
        world = self.world
        if not (active := world.active()):
            return
        remover = active[turn % len(active)]
        for address in sorted(world.crashed):
            if address in world.members[remover].addresses.values():
                world.apply(("remove", remover, address))
        for each in world.reporting():
            member = world.members[each]
            waits_for = member.progress.coming if member.is_member else member.awaiting
            waits_for = waits_for - member.ended
            if not member.is_member and any(map(world.is_active, member.addresses.values())):
                waits_for = waits_for - member.sent_to  # Other members tell it which are gone.
            for address in sorted(world.crashed) if waits_for else ():
                if world.members[address].stream in waits_for:
                    world.apply(("remove", each, address))


def judge_schedule(kind: type[ChangingMember], seed: int, steps: int | None = None) -> list[str]:
    """The violation in a random schedule; empty if the protocol is correct."""
    return ChangingOracle(RandomSchedule(kind, seed, steps).run()).violations()
