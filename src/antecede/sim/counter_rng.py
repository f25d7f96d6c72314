"""Counter-based random numbers: every value is a hash of its purpose and index, not the next of a stream.

A delay is a function of (seed, link, packet number), a send time of (seed, peer, message number), so every
engine sees the same schedule in whatever order it asks. The hash is SplitMix64's finaliser. Distributions use
integers and the exactly rounded operations + - * / and sqrt only, so values are the same on every machine; a
C library's log is not.
"""

from __future__ import annotations

import math

LINK, PHASE, SEND, REPLY, SCENARIO, GROUP, CHURN, GRAPH, LENGTH, PROPAGATION, CLOCK, OVERLAY = range(1, 13)
"""Purposes of random values: the second part of a `key`, after the seed."""

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """SplitMix64's finaliser: 64 bits to 64 bits, every bit of the result depending on every bit of the
    input."""
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def key(*parts: int) -> int:
    """The key of a sequence of random values, from the seed, its purpose and its owner."""
    value = 0
    for part in parts:
        value = mix(value + _STEP ^ mix(part + _STEP))
    return value


def draw(sequence: int, number: int) -> int:
    """The `number`-th 64 random bits of a sequence."""
    return mix(sequence + number * _STEP)


def between(bits: int, low: int, high: int) -> int:
    """An integer in [low, high), uniformly."""
    return low + (bits * (high - low) >> 64)


class Draws:
    """A sequence of random values by index."""

    def __init__(self, *parts: int) -> None:
        self._key = key(*parts)

    def happens(self, number: int, probability: float) -> bool:
        return happens(draw(self._key, number), probability)

    def between(self, number: int, low: int, high: int) -> int:
        return between(draw(self._key, number), low, high)


class RandomStream:
    """The values of a sequence one after the other, for callers that make many small choices."""

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence
        self._number = 0

    def below(self, high: int) -> int:
        """The next integer in [0, high)."""
        self._number += 1
        return between(draw(self._sequence, self._number), 0, high)


def unit(bits: int) -> float:
    """A number strictly between 0 and 1, exact in 53 bits."""
    return ((bits >> 12) + 0.5) * 2.0**-52


def happens(bits: int, probability: float) -> bool:
    """True with this probability."""
    return unit(bits) < probability


def exponential(bits: int, mean: float) -> int:
    """The time until the next event of a Poisson process with one event every `mean`."""
    return int(-log(unit(bits)) * mean)


_LN2 = 0.6931471805599453
_ATANH = [1.0 / (2 * k + 1) for k in range(13, -1, -1)]


def log(x: float) -> float:
    """The natural logarithm to about 1e-16, as 2 atanh((m - 1) / (m + 1)) on m in [0.7, 1.4)."""
    m, exponent = math.frexp(x)
    if m < 0.7071067811865476:
        m, exponent = m * 2.0, exponent - 1
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = 0.0
    for coefficient in _ATANH:
        series = series * square + coefficient
    return exponent * _LN2 + 2.0 * s * series


_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""ln 2 in two parts; the first has so few bits that small multiples of it are exact."""
_TAYLOR = [1.0 / math.factorial(k) for k in range(14, -1, -1)]
_MAX_EXPONENT = 700.0
"""e to this is about 1e304, near the greatest number there is."""


def exp(x: float) -> float:
    """e to the power of x to about 1e-16, as 2^k e^r with |r| <= ln 2 / 2; x is at most 700."""
    x = min(max(x, -_MAX_EXPONENT), _MAX_EXPONENT)
    k = math.floor(x / _LN2 + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = 0.0
    for coefficient in _TAYLOR:
        series = series * r + coefficient
    return math.ldexp(series, k)


# Wichura, Algorithm AS241 (1988): numerator and denominator, highest power first.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
     2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def normal(bits: int) -> float:
    """A standard normal value, by inverting the distribution function at a uniform one."""
    p = unit(bits)
    q = p - 0.5
    if abs(q) <= 0.425:
        return _ratio(_CENTRE, 0.180625 - q * q) * q
    r = math.sqrt(-log(min(p, 1.0 - p)))
    tail = _ratio(_TAIL, r - 1.6) if r <= 5.0 else _ratio(_FAR_TAIL, r - 5.0)
    return -tail if q < 0.0 else tail


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: float) -> float:
    above, below = 0.0, 0.0
    for numerator, denominator in zip(*polynomials, strict=True):
        above = above * x + numerator
        below = below * x + denominator
    return above / below
