"""Counter-based randomness: the same values in any order of calls, with the stated distributions."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.sim import counter_rng

bits64 = st.integers(0, 2**64 - 1)


def test_values_never_change_between_versions() -> None:
    """A change here changes the trace of every existing seed."""
    assert counter_rng.mix(0) == 0
    assert counter_rng.mix(1) == 0x5692161D100B05E5
    assert counter_rng.key(7, 1, 2, 3) == 0x553383BC6C38FBE4
    assert [counter_rng.draw(counter_rng.key(1, 2), n) for n in (2, 0)] == [
        0xCFBF573D37E6C924,
        0x3CD07F30C01A9E8,
    ]
    assert counter_rng.normal(counter_rng.key(5)).hex() == (-0.37277104262421307).hex()
    assert counter_rng.normal(1 << 40).hex() == (-5.294704084514203).hex()
    assert counter_rng.exponential(counter_rng.key(9), 1e9) == 235861897


@given(st.floats(1e-300, 1e300))
def test_log_is_the_logarithm(x: float) -> None:
    assert counter_rng.log(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-15)


@given(bits64)
def test_normal_is_the_quantile(bits: int) -> None:
    expected = statistics.NormalDist().inv_cdf(counter_rng.unit(bits))
    assert counter_rng.normal(bits) == pytest.approx(expected, rel=1e-12, abs=1e-13)


@given(bits64, st.integers(-1000, 1000), st.integers(1, 10**12))
def test_between_stays_between(bits: int, low: int, width: int) -> None:
    assert low <= counter_rng.between(bits, low, low + width) < low + width
    assert 0.0 < counter_rng.unit(bits) < 1.0


def test_distributions_have_their_moments() -> None:
    sequence = counter_rng.key(42)
    draws = [counter_rng.draw(sequence, n) for n in range(20_000)]
    normal = [counter_rng.normal(bits) for bits in draws]
    waits = [counter_rng.exponential(bits, 1e9) for bits in draws]
    assert statistics.fmean(normal) == pytest.approx(0.0, abs=0.03)
    assert statistics.stdev(normal) == pytest.approx(1.0, abs=0.03)
    assert statistics.fmean(waits) == pytest.approx(1e9, rel=0.03)
    assert sum(counter_rng.happens(bits, 0.1) for bits in draws) == pytest.approx(2_000, rel=0.1)
