"""Delays with long tails: their parameters, means and quantiles, and protocols that need a bound."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.errors import InputError
from antecede.sim import counter_rng, parse_delay, scenario, simulate
from antecede.sim.engines import choose
from antecede.sim.kernels.runtime.counter_rng import delay_of, model
from antecede.units import MAX_DURATION
from event_log import EventLog

MS = 1_000_000
SAMPLES = 40_000


def quantile(text: str, share: float) -> float:
    """The exact quantile of a distribution: the delay for the bits of that share."""
    return parse_delay(text).sample(int(share * 2**64)) / MS


def drawn(text: str) -> list[float]:
    delay = parse_delay(text)
    key = counter_rng.key(7, counter_rng.LINK, 1, 2)
    return sorted(delay.sample(counter_rng.draw(key, number)) / MS for number in range(SAMPLES))


@pytest.mark.parametrize(
    ("text", "mean", "median", "tail"),
    [
        ("exp:20ms", 20, 20 * math.log(2), 20 * math.log(100)),
        ("lognormal:20ms,0.5", 20 * math.exp(0.125), 20, 20 * math.exp(0.5 * 2.3263479)),
        ("lognormal:20ms,1", 20 * math.exp(0.5), 20, 20 * math.exp(2.3263479)),
        ("pareto:5ms,3", 7.5, 5 * 2 ** (1 / 3), 5 * 100 ** (1 / 3)),
    ],
)
def test_distributions_have_their_means_and_quantiles(
    text: str, mean: float, median: float, tail: float
) -> None:
    values = drawn(text)
    assert fmean(values) == pytest.approx(mean, rel=0.02)
    assert values[SAMPLES // 2] == pytest.approx(median, rel=0.02)
    assert values[SAMPLES * 99 // 100] == pytest.approx(tail, rel=0.05)
    exact = {round(quantile(text, share), 3) for share in (0.01, 0.99)}
    assert round(tail, 3) in exact


def test_tails_are_unbounded_unless_they_are_clipped() -> None:
    for text in ("exp:20ms", "lognormal:20ms,0.5", "pareto:5ms,1.5"):
        assert parse_delay(text).longest is None
        clipped = parse_delay(f"{text},30ms")
        assert clipped.longest == 30 * MS
        assert max(clipped.sample(bits) for bits in (0, 2**64 - 1)) == 30 * MS
        assert clipped.sample(2**63) == parse_delay(text).sample(2**63)
    assert parse_delay("pareto:1s,0.01").sample(0) == MAX_DURATION
    assert parse_delay("lognormal:1s,100").sample(2**64 - 1) == MAX_DURATION


def test_the_exponential_function_is_exact_to_the_last_digits() -> None:
    for number in range(-2000, 2000):
        assert counter_rng.exp(number / 7) == pytest.approx(math.exp(number / 7), rel=1e-15)
    assert counter_rng.exp(0.0) == 1.0
    assert counter_rng.exp(1e9) == counter_rng.exp(700.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("exp:", "is not a duration"),
        ("exp:1ms,2ms,3ms", "mean, and perhaps the longest"),
        ("exp:20ms,1ms", "the longest delay is shorter"),
        ("lognormal:20ms", "must be like lognormal:20ms,0.5"),
        ("lognormal:20ms,nan", "from 0.01 to 100"),
        ("pareto:5ms,0", "from 0.01 to 100"),
        ("pareto:5ms,1.5,1s,2s", "must be like pareto"),
        ("weibull:5ms", "no delay model 'weibull'; there are fixed, .*exp, lognormal, pareto"),
    ],
)
def test_an_invalid_setting_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        scenario(protocol="mbcp", delay=text)


def test_a_protocol_that_needs_a_delay_bound_is_refused_without_one() -> None:
    with pytest.raises(InputError, match="hcg needs to know the longest delay: exp:20ms has no upper bound"):
        scenario(protocol="hcg", delay="exp:20ms")
    scenario(protocol="hcg", delay="exp:20ms", local_delay="1-2ms")
    assert simulate(scenario(protocol="hcg", peers=6, delay="exp:20ms,200ms")).metrics.stuck == 0
    assert simulate(scenario(protocol="freescale", peers=6, delay="exp:20ms")).metrics.stuck == 0


@pytest.mark.parametrize("delay", ["exp:20ms", "lognormal:20ms,1", "pareto:5ms,1.5"])
def test_runs_with_long_tails_are_ordered(delay: str) -> None:
    metrics = simulate(scenario(protocol="mbcp", peers=6, delay=delay)).metrics
    assert metrics.stuck == 0
    assert metrics.held > 0


LONG_TAILS = ["exp:20ms", "exp:20ms,90ms", "lognormal:20ms,1", "lognormal:3ms,0.123456,5ms", "pareto:5ms,3"]


@given(st.integers(0, 2**64 - 1), st.sampled_from([*LONG_TAILS, "pareto:5ms,1.5", "lognormal:1s,100"]))
def test_compiled_delays_are_the_same_to_the_last_bit(bits: int, text: str) -> None:
    delay = parse_delay(text)
    assert delay_of(*model(delay), np.uint64(bits)) == delay.sample(bits)


@pytest.mark.parametrize("delay", LONG_TAILS)
@pytest.mark.parametrize("protocol", ["mbcp", "flooding"])
def test_compiled_engines_give_the_same_events(protocol: str, delay: str) -> None:
    setting = scenario(protocol=protocol, peers=7, delay=delay, workload="drawn", interval="exp:50ms")
    compiled, reference = EventLog(), EventLog()
    metrics = simulate(setting, [reference], engine="reference").metrics
    assert simulate(setting, [compiled], engine="event").metrics == metrics
    assert compiled.events == reference.events
    if protocol == "mbcp":
        assert simulate(setting, engine="recurrence").metrics == metrics


def test_unbounded_delays_fall_back_to_the_reference_with_a_reason() -> None:
    setting = scenario(protocol="mbcp", delay="pareto:5ms,1.5")
    reason = "its delays may be very long, unless they are clipped, as in pareto:5ms,1.5,60s"
    assert choose(setting, False, long=True) == ("reference", reason, False)
    clipped = scenario(protocol="mbcp", delay="pareto:5ms,1.5,60s")
    assert choose(clipped, False, long=True).engine == "recurrence"
