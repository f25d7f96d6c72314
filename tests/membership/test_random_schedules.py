"""Groups whose members join, leave, crash, are removed and return, on random schedules, by an oracle."""

from __future__ import annotations

import pytest

from antecede.check.changing.oracle import ChangingOracle
from antecede.check.changing.random_schedules import RandomSchedule, judge_schedule
from antecede.check.changing.world import ChangingWorld
from antecede.membership.catalog import CHANGING

_SCHEDULES = 60


@pytest.mark.parametrize("name", list(CHANGING))
def test_random_schedules_of_changing_groups(name: str) -> None:
    for seed in range(_SCHEDULES):
        assert judge_schedule(CHANGING[name], seed) == [], f"seed {seed}"


@pytest.mark.parametrize("name", list(CHANGING))
def test_a_member_continues_from_its_saved_state(name: str) -> None:
    """The same schedule, with members that are saved and restored again and again, ends in the same way."""
    kind = CHANGING[name]
    world = RandomSchedule(kind, 7).run()
    again = ChangingWorld(kind, world.founders, world.members[0].size)
    for number, event in enumerate(world.schedule):
        again.apply(event)
        if number % 5 == 0:
            again.members = [kind.restore(each.save()) for each in again.members]
    assert [life.events for life in again.lives] == [life.events for life in world.lives]
    assert again.members == world.members


def test_schedules_have_every_kind_of_event() -> None:
    kind, seen = CHANGING["mbcp"], set[str]()
    for seed in range(40):
        seen |= {event[0] for event in RandomSchedule(kind, seed).run().schedule}
    assert seen >= {"broadcast", "join", "ask", "leave", "remove", "return", "crash", "freeze", "suspect"}


def test_the_oracle_detects_duplicate_and_missing_deliveries() -> None:
    world = RandomSchedule(CHANGING["mbcp"], 3).run()
    assert ChangingOracle(world).violations() == []
    life = next(each for each in world.lives if sum(kind == "deliver" for kind, _ in each.events) > 1)
    last = max(at for at, (kind, _) in enumerate(life.events) if kind == "deliver")
    event = life.events[last]
    life.events.append(event)
    assert any("twice" in each for each in ChangingOracle(world).violations())
    del life.events[last], life.events[-1]
    assert any("never delivers" in each for each in ChangingOracle(world).violations())
