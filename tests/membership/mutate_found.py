"""Looks for faults near those that were found: `python tests/membership/mutate_found.py NAME [SEED] [RUNS]`.

Takes schedules in which something went wrong once, leaves events out, puts others in, lets everything
arrive between some of the members, goes on with another such schedule, and judges what comes of it on a
protocol. What fails is shrunk and written to standard output. The same seed gives the same schedules.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import test_found_group_schedules
import test_found_schedules
import test_found_site_schedules

from antecede.check.changing.kinds import schedule_type, world_type
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.run import find_changing
from antecede.check.changing.shrink import shrink
from antecede.check.changing.sites import SiteWorld
from antecede.check.changing.world import ScheduleEvent
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup

Found = tuple[int, int, list[ScheduleEvent]]
"""How many founders and addresses a group has, and what happens."""


def found_schedules(kind: type[ChangingMember]) -> list[Found]:
    """The schedules that a protocol can play."""
    overlapping = _parameters(test_found_group_schedules)
    if issubclass(kind, ChangingMultigroup):
        return overlapping
    of_phones = _parameters(test_found_site_schedules) if issubclass(kind, ChangingFreescale) else []
    return [*_parameters(test_found_schedules), *of_phones]


def _parameters(module: object) -> list[Found]:
    found: dict[str, Found] = {}
    for name, test in vars(module).items():
        for mark in getattr(test, "pytestmark", ()) if name.startswith("test_") else ():
            for row in mark.args[1]:
                sizes = [each for each in row if isinstance(each, int)]
                schedule = next((each for each in row if isinstance(each, list)), None)
                if schedule and len(sizes) == 2:
                    found[str(schedule)] = sizes[0], sizes[1], schedule
    return list(found.values())


_OF_MEMBERS = {"join", "ask", "leave", "remove", "report", "suspect", "trust"}


class Mutation:
    """One schedule that is made of known ones."""

    def __init__(self, kind: type[ChangingMember], corpus: list[Found], seed: str) -> None:
        self.random = random.Random(seed)
        self.founders, self.size, self.events = self.random.choice(corpus)
        self.corpus = corpus
        self.schedule: RandomSchedule = schedule_type(kind)(kind, seed)
        self.schedule.bursts.are_there = True  # only what leaves a quorum
        self.schedule.world = world_type(kind)(kind, self.founders, self.size)
        self._left_out = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self._put_in = self.random.choice([0.02, 0.05, 0.2])

    def run(self) -> list[str]:
        """The violations of a schedule."""
        try:
            if self.random.random() < 0.5:
                self.schedule.world.apply(("forward", 0, -1))
            for event in self._all_events():
                if self.random.random() >= self._left_out and self._may_happen(event):
                    self.schedule.world.apply(event)
                while self.random.random() < self._put_in:
                    self._draw()
            for _ in range(self.random.choice([0, 2, 5])):
                self._draw()
            self.schedule.settle()
            return self.schedule.oracle().violations()
        except Exception as error:  # whatever a member raises is its fault
            return [f"raises {type(error).__name__}: {error}"]

    def _may_happen(self, event: ScheduleEvent) -> bool:
        """Phones may have the addresses that members had."""
        kind, address, other = event
        world = self.schedule.world
        if not world.has_addresses(event):
            return False
        if kind == "remove" and not world.members[address].is_member:
            return other in world.crashed  # a member that has left gets truthful reports
        return not (isinstance(world, SiteWorld) and world.is_phone(address) and kind in _OF_MEMBERS)

    def _all_events(self) -> Iterator[ScheduleEvent]:
        """The events of one schedule, or a prefix of it followed by another one's, perhaps at other
        members."""
        how = self.random.choice(["whole", "whole", "spliced", "repeated"])
        first = self.events
        if how == "whole":
            yield from first
            return
        yield from first[: self.random.randrange(len(first) + 1)]
        other = first if how == "repeated" else self.random.choice(self.corpus)[2]
        places = list(range(self.founders))
        self.random.shuffle(places)
        renamed = dict(enumerate(places))
        for kind, address, about in other[self.random.randrange(len(other)) // 2 :]:
            other_address = about if kind == "crash" else renamed.get(about, about)
            yield kind, renamed.get(address, address), other_address

    def _draw(self) -> None:
        weights = {
            "burst": 4.0,
            "broadcast": 2.0,
            "transmit": 2.0,
            "deliver": 2.0,
            "report": 1.0,
            "join": 1.0,
            "leave": 1.0,
            "remove": 1.0,
            "return": 1.0,
            "cut": 0.5,
            "heal": 0.5,
            "crash": 0.5,
            "freeze": 0.2,
            "partition": 0.1,
        }
        of_phones = {"attach": 1.0, "move": 1.0, "expel": 0.5, "detach": 0.5, "orphan": 1.0}
        of_phones |= {"phone_broadcast": 2.0, "phone_deliver": 1.0, "thaw": 0.5}
        if hasattr(self.schedule, "draw_attach"):
            weights |= of_phones
        (kind,) = self.random.choices(list(weights), list(weights.values()))
        event = getattr(self.schedule, f"draw_{kind}", self.schedule.draw_own)(kind)
        if event is not None:
            self.schedule.world.apply(event)


def main(name: str, seed: int = 1, runs: int = 1_000) -> int:
    """How many of them fail."""
    kind, failed = find_changing(name), 0
    corpus = found_schedules(kind)
    for run in range(runs):
        mutation = Mutation(kind, corpus, f"{name}:{seed}:{run}")
        if violations := mutation.run():
            failed += 1
            small = shrink(kind, mutation.founders, mutation.size, mutation.schedule.world.schedule)
            sys.stdout.write(
                f"{name} {seed}:{run}: {violations[0]}\n"
                f"{mutation.founders} founders of {mutation.size}: {small}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"{name}: {failed} of {runs} fail\n")
    return failed


if __name__ == "__main__":
    found_any = main(sys.argv[1], *map(int, sys.argv[2:]))
    sys.exit(1 if found_any else 0)
