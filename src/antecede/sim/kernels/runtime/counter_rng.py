"""The twin of `sim/counter_rng.py` and of the delays in `sim/network/delays.py`: the same bits, compiled.

All of it is integers and exactly rounded operations, so it agrees to the last bit. Keys of random sequences
are 64-bit words; a number that is combined with one must be unsigned too, or numba turns both into floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from antecede.compiled.splitmix64 import STEP, mix
from antecede.jit import njit_plain
from antecede.sim import counter_rng
from antecede.sim.network import (
    ClippedNormal,
    Delay,
    Exponential,
    Fixed,
    LogNormal,
    LogUniform,
    Normal,
    Pareto,
    Uniform,
)
from antecede.sim.network.delays import MILLION

_1, _12, _32 = (np.uint64(value) for value in (1, 12, 32))
LOW_HALF = np.uint64(0xFFFFFFFF)

FIXED, UNIFORM, CLIPPED_NORMAL, LOG_UNIFORM, NORMAL, EXPONENTIAL, LOG_NORMAL, PARETO = range(8)
Model = tuple[int, int, int, int]
"""A distribution of delays: its kind and three parameters."""


def model(delay: Delay) -> Model:
    """A delay distribution as kernels take it."""
    match delay:
        case Fixed(value):
            return FIXED, value, 0, 0
        case Uniform(low, high):
            return UNIFORM, low, high, 0
        case ClippedNormal(low, high):
            return CLIPPED_NORMAL, low, high, 0
        case LogUniform(low, high):
            return LOG_UNIFORM, low, high, 0
        case Normal(mean, deviation, unit):
            return NORMAL, mean, deviation, unit
        case Exponential(mean):
            return EXPONENTIAL, mean, 0, delay.most
        case LogNormal(median, sigma):
            return LOG_NORMAL, median, sigma, delay.most
        case Pareto(least, shape):
            return PARETO, least, shape, delay.most
    raise TypeError(f"kernels do not know the delay {delay}")


@njit_plain
def extended(key: Any, part: Any) -> Any:
    """The key of the parts of `key` and one more part, as `counter_rng.key` makes it."""
    return mix((key + STEP) ^ mix(np.uint64(part) + STEP))


@njit_plain
def draw(sequence: Any, number: Any) -> Any:
    return mix(sequence + np.uint64(number) * STEP)


@njit_plain
def between(bits: Any, low: Any, high: Any) -> Any:
    """The upper half of a 128-bit product, from the halves of its factors."""
    span = np.uint64(high - low)
    upper, lower = bits >> _32, bits & LOW_HALF
    above, below = span >> _32, span & LOW_HALF
    middle = (lower * below >> _32) + upper * below
    carried = (middle & LOW_HALF) + lower * above
    return low + np.int64(upper * above + (middle >> _32) + (carried >> _32))


@njit_plain
def unit(bits: Any) -> Any:
    return (np.float64(np.int64(bits >> _12)) + 0.5) * 2.0**-52


@njit_plain
def happens(bits: Any, share: Any) -> Any:
    return unit(bits) < share


_LN2 = counter_rng._LN2
_ATANH = tuple(counter_rng._ATANH)
_CENTRE_ABOVE, _CENTRE_BELOW = counter_rng._CENTRE
_TAIL_ABOVE, _TAIL_BELOW = counter_rng._TAIL
_FAR_ABOVE, _FAR_BELOW = counter_rng._FAR_TAIL


@njit_plain
def log(x: Any) -> Any:
    m, exponent = math.frexp(x)
    if m < 0.7071067811865476:
        m, exponent = m * 2.0, exponent - 1
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = 0.0
    for coefficient in _ATANH:
        series = series * square + coefficient
    return exponent * _LN2 + 2.0 * s * series


_LN2_HIGH, _LN2_LOW = counter_rng._LN2_HIGH, counter_rng._LN2_LOW
_TAYLOR = tuple(counter_rng._TAYLOR)
_MAX_EXPONENT = counter_rng._MAX_EXPONENT


@njit_plain
def exp(x: Any) -> Any:
    x = min(max(x, -_MAX_EXPONENT), _MAX_EXPONENT)
    k = math.floor(x / _LN2 + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = 0.0
    for coefficient in _TAYLOR:
        series = series * r + coefficient
    return math.ldexp(series, k)


@njit_plain
def exponential(bits: Any, mean: Any) -> Any:
    return np.int64(-log(unit(bits)) * mean)


@njit_plain
def normal(bits: Any) -> Any:
    p = unit(bits)
    q = p - 0.5
    above, below = 0.0, 0.0
    if abs(q) <= 0.425:
        x = 0.180625 - q * q
        for place in range(8):
            above = above * x + _CENTRE_ABOVE[place]
            below = below * x + _CENTRE_BELOW[place]
        return above / below * q
    r = math.sqrt(-log(min(p, 1.0 - p)))
    if r <= 5.0:
        r -= 1.6
        for place in range(8):
            above = above * r + _TAIL_ABOVE[place]
            below = below * r + _TAIL_BELOW[place]
    else:
        r -= 5.0
        for place in range(8):
            above = above * r + _FAR_ABOVE[place]
            below = below * r + _FAR_BELOW[place]
    tail = above / below
    return -tail if q < 0.0 else tail


@njit_plain
def long_tailed(kind: Any, scale: Any, millionths: Any, most: Any, bits: Any) -> Any:
    """A delay from a distribution with a long tail, clipped to `most`."""
    if kind == EXPONENTIAL:
        delay = -log(unit(bits)) * scale
    elif kind == LOG_NORMAL:
        delay = scale * exp(millionths / MILLION * normal(bits))
    else:
        delay = scale * exp(-log(unit(bits)) / (millionths / MILLION))
    return most if delay >= most else np.int64(delay)


@njit_plain
def delay_of(kind: Any, one: Any, two: Any, three: Any, bits: Any) -> Any:
    """A delay in nanoseconds: the twin of `Delay.of`."""
    if kind == FIXED:
        return one
    if kind == UNIFORM:
        return between(bits, one, two + 1)
    if kind == CLIPPED_NORMAL:
        middle, quarter = (one + two) / 2, (two - one) / 4
        return min(max(np.int64(middle + quarter * normal(bits)), one), two)
    if kind == LOG_UNIFORM:
        least = max(1, one)
        ratio, doublings = two // least, 0
        while ratio:
            ratio, doublings = ratio >> 1, doublings + 1
        floor = least << between(bits, 0, max(1, doublings))
        return min(floor + between(mix(bits), 0, floor), two)
    if kind >= EXPONENTIAL:
        return long_tailed(kind, one, two, three, bits)
    while True:
        value = np.int64(one + two * normal(bits)) // three * three
        if value >= 0:
            return value
        bits = mix(bits + _1)
