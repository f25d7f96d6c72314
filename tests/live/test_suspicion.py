"""Suspicion: time-outs derived from heartbeat intervals, which scale with group size."""

from __future__ import annotations

import pytest

from antecede.live.settings import Settings
from antecede.live.suspicion import Suspicions

SECOND = 1_000_000_000


class SetClock:
    """Shows what the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return int(self.seconds * SECOND)

    def start_after(self, last: int) -> None:
        self.seconds = max(self.seconds, last / SECOND)


def suspicions(members: int, **options: str) -> tuple[Suspicions, SetClock]:
    clock = SetClock()
    found = Suspicions(Settings.create(group="room", me="ana", **options), clock)
    found.watch(range(1, members))
    return found, clock


@pytest.mark.parametrize(("members", "seconds"), [(3, 3.0), (16, 3.0), (50, 9.375), (60, 10.0), (200, 10.0)])
def test_heartbeats_are_less_frequent_in_large_groups_within_a_bound(members: int, seconds: float) -> None:
    assert suspicions(members)[0].heartbeat == pytest.approx(seconds)


def test_an_interval_that_is_set_does_not_depend_on_the_size_of_the_group() -> None:
    assert suspicions(200, heartbeat="2s")[0].heartbeat == 2.0


@pytest.mark.parametrize("members", [3, 50, 200])
def test_a_silent_member_is_suspected_within_42_seconds_in_any_group_size(members: int) -> None:
    found, clock = suspicions(members)
    suspected: set[int] = set()
    while not suspected:
        clock.seconds += 0.2
        suspected |= set(found.check())
    assert suspected == set(range(1, members))
    assert clock.seconds < 42


def test_an_active_member_is_not_suspected_while_the_group_grows() -> None:
    found, clock = suspicions(3)
    due = dict.fromkeys(range(1, 200), 0.0)
    for step in range(1, 1500):
        clock.seconds = step * 0.2
        size = min(200, 3 + step // 5)
        found.watch(range(1, size))
        for member in range(1, size):
            if clock.seconds - due[member] >= found.heartbeat:
                due[member] = clock.seconds
                found.hear(member)
        assert found.check() == []
