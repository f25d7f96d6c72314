"""Delays, links, faults and workloads, by hand-computed cases."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.sim.network import ClippedNormal, DirectNetwork, Fixed, LogUniform, Uniform, parse_delay
from antecede.sim.network.faults import Duplicate, Loss, Reorder, Spike, parse_fault
from antecede.sim.workload import Periodic, Poisson
from antecede.units import SECOND, parse_duration, parse_range

MS = 1_000_000
bits64 = st.integers(0, 2**64 - 1)


@given(bits64)
def test_delays_stay_in_their_interval(bits: int) -> None:
    for delay in (Uniform(3, 9), ClippedNormal(3, 9), LogUniform(3, 900), LogUniform(0, 1)):
        assert delay.low <= delay.sample(bits) <= delay.high
    assert Fixed(5).sample(bits) == 5


def test_a_clipped_normal_has_a_quarter_of_its_interval_as_deviation() -> None:
    delay = ClippedNormal(0, 100 * MS)
    assert delay.sample(1 << 63) == pytest.approx(50 * MS, abs=1)
    assert delay.sample(round(0.8413447 * 2**64)) == pytest.approx(75 * MS, rel=1e-6)
    assert (delay.sample(0), delay.sample(2**64 - 1)) == (0, 100 * MS)


def arrivals(network: DirectNetwork, count: int) -> list[int]:
    return [a.time for n in range(count) for a in network.transmit(0, [1], 10, n * MS)]


def test_fifo_links_keep_order_and_others_do_not() -> None:
    kept = arrivals(DirectNetwork(1, Uniform(0, 50 * MS), fifo=True), 50)
    loose = arrivals(DirectNetwork(1, Uniform(0, 50 * MS), fifo=False), 50)
    assert kept == sorted(kept)
    assert loose != sorted(loose)
    assert all(late >= early for late, early in zip(kept, loose, strict=True))


def test_a_spike_delays_a_fifo_link_without_breaking_it() -> None:
    spike = [Spike(10 * MS, 20 * MS, 500 * MS), Loss(0.2)]
    times = arrivals(DirectNetwork(1, Uniform(0, 5 * MS), fifo=True, faults=spike), 50)
    assert times == sorted(times)
    assert max(times) > 500 * MS
    reordered = arrivals(DirectNetwork(1, Uniform(0, 5 * MS), fifo=True, faults=[Reorder(0.3, 50 * MS)]), 50)
    assert reordered != sorted(reordered)


def test_a_delay_belongs_to_its_link_and_number_whoever_asks_first() -> None:
    one, other = (DirectNetwork(9, Uniform(0, SECOND), fifo=False) for _ in range(2))
    together = one.transmit(0, [1, 2], 10, 0)
    apart = [*other.transmit(0, [2], 99, 0), *other.transmit(0, [1], 5, 0)]
    assert sorted(together) == sorted(apart)
    assert one.transmit(1, [0], 10, 0) != together[:1]


def test_faults_strike_as_written() -> None:
    always = 0
    assert Spike(10, 20, 5).apply([100], 10, always) == [105]
    assert Spike(10, 20, 5).apply([100], 20, always) == [100]
    assert Duplicate(1.0, 0).apply([100], 0, always) == [100, 100]
    assert Duplicate(0.0, 9).apply([100], 0, always) == [100]
    assert Reorder(1.0, 0).apply([100], 0, always) == [100]
    assert Loss(1.0).apply([100], 0, always) == []
    assert Duplicate(1.0, 9).apply([], 0, always) == []


def test_a_fault_changes_nothing_for_the_packets_it_spares() -> None:
    plain = DirectNetwork(4, Uniform(0, SECOND), fifo=False)
    faulty = DirectNetwork(4, Uniform(0, SECOND), fifo=False, faults=[Loss(0.5)])
    expected = arrivals(plain, 100)
    spared = arrivals(faulty, 100)
    assert 20 < len(spared) < 80
    assert set(spared) < set(expected)


def test_periodic_sends_come_at_their_interval_and_never_backwards() -> None:
    steady = Periodic(1, interval=100, jitter=0)
    times = [steady.next_send(3, n, 0) for n in range(5)]
    assert {late - early for early, late in itertools.pairwise(times)} == {100}
    assert 0 <= times[0] < 100
    wild = Periodic(1, interval=100, jitter=1000)
    previous = 0
    for n in range(50):
        time = wild.next_send(0, n, previous)
        assert time >= previous
        previous = time


def test_poisson_sends_come_at_their_rate() -> None:
    workload, time = Poisson(1, interval=1000), 0
    for n in range(5000):
        time = workload.next_send(0, n, time)
    assert time == pytest.approx(5_000_000, rel=0.05)


def test_replies_are_decided_by_who_and_what() -> None:
    half = Poisson(1, 1000, reply=0.5)
    answers = [half.replies(0, MessageId(1, seq)) for seq in range(200)]
    assert answers == [half.replies(0, MessageId(1, seq)) for seq in range(200)]
    assert 60 < sum(answers) < 140
    assert not any(Poisson(1, 1000).replies(0, MessageId(1, seq)) for seq in range(50))


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-5ms", "1e3ms", "5 parsecs", "normal:5ms", "odd:1-2ms", "9-1ms", "1-", "fixed:"]
)
def test_a_delay_that_cannot_be_read_is_said_to_be_one(text: str) -> None:
    with pytest.raises(InputError):
        parse_delay(text)


@pytest.mark.parametrize("text", ["", "loss", "loss:2", "loss:x", "spike:1s", "duplicate:1%", "flood:1%"])
def test_a_fault_that_cannot_be_read_is_said_to_be_one(text: str) -> None:
    with pytest.raises(InputError):
        parse_fault(text)


def test_durations() -> None:
    assert parse_duration("1.5s") == 1_500_000_000
    assert parse_range("1us-1s") == (1_000, SECOND)
    assert parse_range("1-100ms") == (MS, 100 * MS)
