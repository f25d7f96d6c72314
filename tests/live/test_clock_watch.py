"""Clocks and links that exceed their promised bounds, as far as one member can measure."""

from __future__ import annotations

import pytest

from antecede.live.subgroups.clock_watch import PROBE_EVERY, PROBES_AT_ONCE, ClockWatch, PartnerClock
from antecede.live.transport.frames import ClockReading
from antecede.protocols.base import RemoteError

MS = 1_000_000


def exchange(clock: PartnerClock, now: int, ahead: int, there: int = MS, back: int = MS) -> int:
    """One exchange with a clock that is ahead, over a link with these delays; returns its end time."""
    probe = clock.probe(now)
    assert probe is not None
    clock.read(ClockReading(probe.sent, now + there + ahead), now + there + back)
    return now + there + back


def measured(ahead: int, there: int = MS, back: int = MS) -> tuple[ClockWatch, int]:
    watch, now = ClockWatch([1], 50 * MS, 10 * MS), 0
    for _ in range(PROBES_AT_ONCE):
        now = exchange(watch.partners[1], now, ahead, there, back)
    return watch, now


def test_probes_are_sent_back_to_back_at_first_and_then_every_second() -> None:
    watch, now = measured(0)
    clock = watch.partners[1]
    before = clock.is_measured
    assert clock.probe(now + PROBE_EVERY - 1) is None
    assert clock.probe(now + PROBE_EVERY) is not None
    clock.begin()
    assert (before, clock.is_measured) == (True, False)
    assert clock.probe(now) is not None


@pytest.mark.parametrize(("ahead", "way"), [(12 * MS, "12.0 ms ahead of"), (-12 * MS, "12.0 ms behind")])
def test_clocks_that_differ_by_more_than_is_promised(ahead: int, way: str) -> None:
    watch, now = measured(ahead)
    broken = watch.check(now)
    assert broken[1] == f"its clock is {way} this one, and 10.0 ms at most is promised"
    assert watch.refuses(broken)
    assert not watch.is_running


def test_a_bound_is_reported_broken_only_beyond_measurement_error() -> None:
    """The link takes 9 ms there and none back, which looks as if the clock were 4.5 ms ahead."""
    watch, now = measured(10 * MS, there=9 * MS, back=0)
    assert watch.check(now) == {}
    assert watch.is_running


def test_an_exchange_that_tells_nothing_changes_nothing() -> None:
    watch, now = measured(12 * MS)
    now = exchange(watch.partners[1], now + PROBE_EVERY, 12 * MS, there=40 * MS, back=0)
    assert 1 in watch.check(now)
    now = exchange(watch.partners[1], now + PROBE_EVERY, 0)
    assert watch.check(now) == {}


def test_slow_links_and_unresponsive_partners_are_reported() -> None:
    watch, now = measured(0)
    assert watch.check(now) == {}
    clock = watch.partners[1]
    for _ in range(3):
        assert watch.check(now) == {}
        now = exchange(clock, now + PROBE_EVERY, 0, 60 * MS, 60 * MS)
    assert "there and back, and 50.0 ms at most each way is promised" in watch.check(now)[1]
    assert not watch.refuses(watch.check(now)), "it runs, and holds what is not confirmed"


def test_a_member_runs_once_its_clock_agrees_with_half_of_the_others() -> None:
    watch, now = ClockWatch([1, 2], 50 * MS, 10 * MS), 0
    for _ in range(PROBES_AT_ONCE):
        now = exchange(watch.partners[1], now, 90 * MS)
    assert not watch.refuses(watch.check(now))
    for _ in range(PROBES_AT_ONCE):
        now = exchange(watch.partners[2], now, 0)
    assert watch.check(now).keys() == {1}
    assert watch.is_running
    assert ClockWatch([], 0, 0).is_running


def test_an_unsolicited_probe_answer_is_refused() -> None:
    with pytest.raises(RemoteError, match="was not sent"):
        PartnerClock(50 * MS, 10 * MS).read(ClockReading(5, 6), 7)
