"""Delays, direct links and faults, on cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.errors import InputError
from antecede.sim.network import ClippedNormal, DirectNetwork, Fixed, LogUniform, Normal, Uniform, parse_delay
from antecede.sim.network.faults import Duplicate, Loss, Reorder, Spike, parse_fault
from antecede.units import SECOND, parse_duration, parse_range

MS = 1_000_000
bits64 = st.integers(0, 2**64 - 1)


@given(bits64)
def test_delays_stay_in_their_interval(bits: int) -> None:
    for delay in (Uniform(3, 9), ClippedNormal(3, 9), LogUniform(3, 900), LogUniform(0, 1)):
        assert delay.low <= delay.sample(bits) <= delay.high
    assert Fixed(5).sample(bits) == 5


def test_the_deviation_of_a_clipped_normal_is_a_quarter_of_its_interval() -> None:
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


def test_a_delay_depends_only_on_its_link_and_packet_number() -> None:
    one, other = (DirectNetwork(9, Uniform(0, SECOND), fifo=False) for _ in range(2))
    together = one.transmit(0, [1, 2], 10, 0)
    apart = [*other.transmit(0, [2], 99, 0), *other.transmit(0, [1], 5, 0)]
    assert sorted(together) == sorted(apart)
    assert one.transmit(1, [0], 10, 0) != together[:1]


def test_faults_change_arrival_times_as_written() -> None:
    always = 0
    assert Spike(10, 20, 5).apply([100], 10, always) == [105]
    assert Spike(10, 20, 5).apply([100], 20, always) == [100]
    assert Duplicate(1.0, 0).apply([100], 0, always) == [100, 100]
    assert Duplicate(0.0, 9).apply([100], 0, always) == [100]
    assert Reorder(1.0, 0).apply([100], 0, always) == [100]
    assert Loss(1.0).apply([100], 0, always) == []
    assert Duplicate(1.0, 9).apply([], 0, always) == []


def test_a_fault_leaves_unaffected_packets_unchanged() -> None:
    plain = DirectNetwork(4, Uniform(0, SECOND), fifo=False)
    faulty = DirectNetwork(4, Uniform(0, SECOND), fifo=False, faults=[Loss(0.5)])
    expected = arrivals(plain, 100)
    spared = arrivals(faulty, 100)
    assert 20 < len(spared) < 80
    assert set(spared) < set(expected)


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-5ms", "1e3ms", "5 parsecs", "normal:5ms", "odd:1-2ms", "9-1ms", "1-", "fixed:"]
)
def test_an_invalid_delay_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_delay(text)


@pytest.mark.parametrize("text", ["", "loss", "loss:2", "loss:x", "spike:1s", "duplicate:1%", "flood:1%"])
def test_an_invalid_fault_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_fault(text)


def test_durations() -> None:
    assert parse_duration("1.5s") == 1_500_000_000
    assert parse_range("1us-1s") == (1_000, SECOND)
    assert parse_range("1-100ms") == (MS, 100 * MS)


def test_gaussian_delays_are_whole_units_and_never_negative() -> None:
    delay = parse_delay("gauss:10ms,20ms,1ms")
    assert delay == Normal(10 * MS, 20 * MS, MS)
    drawn = [delay.sample(bits * 0x9E3779B97F4A7C15 % 2**64) for bits in range(2000)]
    assert min(drawn) == 0
    assert {value % MS for value in drawn} == {0}
    assert max(drawn) <= delay.longest
    steady = [
        parse_delay("gauss:100ms,25ms,1ms").sample(bits * 0x9E3779B97F4A7C15 % 2**64) for bits in range(4000)
    ]
    assert sum(steady) / 4000 == pytest.approx(99.5 * MS, rel=0.02)
    for wrong in ("gauss:1ms", "gauss:1ms,1ms,0", "gauss:a,b,c"):
        with pytest.raises(InputError):
            parse_delay(wrong)
