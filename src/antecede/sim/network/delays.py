"""Delay distributions, each a pure function of 64 random bits.

A user-defined distribution is a subclass of `Delay`, which scenarios name as `module:Class`.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from antecede import user_classes
from antecede.errors import InputError, ProtocolError
from antecede.sim import counter_rng
from antecede.units import MAX_DURATION, parse_duration, parse_range

MILLION = 1_000_000


class Delay(abc.ABC):
    """A distribution of delays in nanoseconds."""

    @abc.abstractmethod
    def sample(self, bits: int) -> int:
        """The delay for these 64 random bits: the same for the same bits."""

    @property
    def longest(self) -> int | None:
        """An upper bound; None if there is none. Some protocols need one."""
        return None


@dataclass(frozen=True)
class Fixed(Delay):
    value: int

    @property
    def longest(self) -> int:
        return self.value

    def sample(self, bits: int) -> int:
        return self.value


@dataclass(frozen=True)
class Bounded(Delay):
    """A delay from `low` to `high`."""

    low: int
    high: int

    @property
    def longest(self) -> int:
        return self.high


@dataclass(frozen=True)
class Uniform(Bounded):
    def sample(self, bits: int) -> int:
        return counter_rng.between(bits, self.low, self.high + 1)


@dataclass(frozen=True)
class ClippedNormal(Bounded):
    """Normal around the middle of the interval, with a quarter of it as deviation, clipped to its ends."""

    def sample(self, bits: int) -> int:
        middle, quarter = (self.low + self.high) / 2, (self.high - self.low) / 4
        return min(max(int(middle + quarter * counter_rng.normal(bits)), self.low), self.high)


@dataclass(frozen=True)
class LogUniform(Bounded):
    """Over orders of magnitude: every doubling from `low` to `high` is equally likely."""

    def sample(self, bits: int) -> int:
        doublings = max(1, (self.high // max(1, self.low)).bit_length())
        floor = max(1, self.low) << counter_rng.between(bits, 0, doublings)
        return min(floor + counter_rng.between(counter_rng.mix(bits), 0, floor), self.high)


@dataclass(frozen=True)
class Normal(Delay):
    """Normal, rounded down to whole units; negative values are drawn again."""

    mean: int
    deviation: int
    unit: int

    def sample(self, bits: int) -> int:
        while (value := self._truncated(bits)) < 0:
            bits = counter_rng.mix(bits + 1)
        return value

    def _truncated(self, bits: int) -> int:
        return int(self.mean + self.deviation * counter_rng.normal(bits)) // self.unit * self.unit

    @property
    def longest(self) -> int:
        return self.mean + 9 * self.deviation  # 53 random bits do not reach further out.


@dataclass(frozen=True)
class Quantiles(Delay):
    """An empirical distribution: any two neighbouring `values` have equally many delays between them, spread
    uniformly."""

    values: tuple[int, ...]

    def sample(self, bits: int) -> int:
        place = counter_rng.between(bits, 0, len(self.values) - 1)
        return counter_rng.between(counter_rng.mix(bits), self.values[place], self.values[place + 1] + 1)

    @property
    def longest(self) -> int:
        return self.values[-1]


@dataclass(frozen=True)
class _HeavyTailed(Delay):
    """An unbounded distribution, or a clipped one: delays longer than `limit` take exactly that long."""

    limit: int | None = field(default=None, kw_only=True)

    @property
    def longest(self) -> int | None:
        return self.limit

    @property
    def most(self) -> int:
        """No delay is longer than this."""
        return MAX_DURATION if self.limit is None else self.limit

    def _clip(self, delay: float) -> int:
        return self.most if delay >= self.most else int(delay)


@dataclass(frozen=True)
class Exponential(_HeavyTailed):
    mean: int

    def sample(self, bits: int) -> int:
        return self._clip(-counter_rng.log(counter_rng.unit(bits)) * self.mean)


@dataclass(frozen=True)
class LogNormal(_HeavyTailed):
    """The logarithm of the delay is normal, with standard deviation sigma, here in millionths; the mean is
    median * exp(sigma² / 2)."""

    median: int
    sigma: int

    def sample(self, bits: int) -> int:
        return self._clip(self.median * counter_rng.exp(self.sigma / MILLION * counter_rng.normal(bits)))


@dataclass(frozen=True)
class Pareto(_HeavyTailed):
    """At least `least`, and longer than x with probability (least / x)^shape; here the shape is in
    millionths. The mean is least * shape / (shape - 1), and infinite for a shape up to 1."""

    least: int
    shape: int

    def sample(self, bits: int) -> int:
        exponent = -counter_rng.log(counter_rng.unit(bits)) / (self.shape / MILLION)
        return self._clip(self.least * counter_rng.exp(exponent))


class UserDelay(Delay):
    """A user-defined distribution, whose values are validated."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._own = user_classes.create(text, Delay, "delay")  # type: ignore[type-abstract]
        try:
            bound = self._own.longest
        except (Exception, SystemExit) as error:
            reason = user_classes.what_was_raised(error)
            raise InputError(f"delay {text}: longest raised {reason}") from error
        self._longest = None if bound is None else self._duration(bound, "longest is")

    @property
    def longest(self) -> int | None:
        return self._longest

    def sample(self, bits: int) -> int:
        delay = self._duration(self._own.sample(bits), "sample() returned")
        if self._longest is not None and delay > self._longest:
            raise ProtocolError(
                f"delay {self._text}: sample() returned {delay}, but longest is {self._longest}"
            )
        return delay

    def _duration(self, value: Any, what: str) -> int:
        try:
            duration = operator.index(value)
        except TypeError:
            duration = -1
        if not 0 <= duration <= MAX_DURATION:
            raise ProtocolError(
                f"delay {self._text}: {what} {value!r}; it must be nanoseconds as a whole number from 0 on"
            )
        return duration


_BOUNDED: dict[str, type[Uniform | ClippedNormal | LogUniform]] = {
    "uniform": Uniform,
    "normal": ClippedNormal,
    "wild": LogUniform,
}


def parse_delay(text: str) -> Delay:
    """Parse a delay as scenarios write it.

    >>> parse_delay("20ms"), parse_delay("1-100ms"), parse_delay("normal:0-50ms")
    (Fixed(value=20000000), Uniform(low=1000000, high=100000000), ClippedNormal(low=0, high=50000000))
    """
    model, colon, arguments = text.partition(":")
    if not colon:
        return Uniform(*parse_range(text)) if "-" in text.strip()[1:] else Fixed(parse_duration(text))
    if model in _PARSERS:
        return _PARSERS[model](text, arguments)
    if model in _BOUNDED:
        return _BOUNDED[model](*parse_range(arguments))
    if user_classes.names_user_class(text):
        return UserDelay(text)
    names = ", ".join([*_PARSERS, *_BOUNDED])
    raise InputError(f"no delay model '{model}'; there are {names}, or your own as module:Class")


def upper_bound(text: str) -> int:
    """The upper bound of a delay as scenarios write it, which it must have."""
    longest = parse_delay(text).longest
    if longest is None:
        raise InputError(
            f"{text} has no upper bound; take a delay like 1-100ms, or name the longest, as in exp:20ms,1s"
        )
    return longest


def reach(text: str) -> int:
    """How long a delay can be at most, whether it is bounded or not: 64 random bits reach no further."""
    delay = parse_delay(text)
    extremes = delay.sample(0), delay.sample((1 << 64) - 1)
    return max(extremes) if delay.longest is None else delay.longest


def _parse_exponential(text: str, arguments: str) -> Exponential:
    mean, *limit = arguments.split(",")
    if len(limit) > 1:
        raise InputError(f"'{text}' must be like exp:20ms or exp:20ms,1s: mean, and perhaps the longest")
    return Exponential(parse_duration(mean), limit=_parse_limit(text, parse_duration(mean), limit))


def _parse_log_normal(text: str, arguments: str) -> LogNormal:
    example = "lognormal:20ms,0.5 or lognormal:20ms,0.5,1s: median, sigma, and perhaps the longest"
    median, sigma, limit = _parse_heavy_tailed(text, arguments, example)
    return LogNormal(median, sigma, limit=limit)


def _parse_pareto(text: str, arguments: str) -> Pareto:
    example = "pareto:5ms,1.5 or pareto:5ms,1.5,1s: shortest, shape, and perhaps the longest"
    least, shape, limit = _parse_heavy_tailed(text, arguments, example)
    return Pareto(least, shape, limit=limit)


def _parse_heavy_tailed(text: str, arguments: str, example: str) -> tuple[int, int, int | None]:
    """A duration, a number from 0.01 to 100 in millionths, and the longest delay if it is given."""
    scale, *others = arguments.split(",")
    try:
        number = float(others[0])
    except (IndexError, ValueError):
        number = 0.0
    if len(others) > 2 or not 0.01 <= number <= 100:
        raise InputError(f"'{text}' must be like {example}; the number is from 0.01 to 100")
    return (
        parse_duration(scale),
        round(number * MILLION),
        _parse_limit(text, parse_duration(scale), others[1:]),
    )


def _parse_limit(text: str, least: int, limit: list[str]) -> int | None:
    longest = parse_duration(limit[0]) if limit else None
    if longest is not None and longest < least:
        raise InputError(f"'{text}': the longest delay is shorter than the first")
    return longest


def _parse_normal(text: str, arguments: str) -> Normal:
    parts = arguments.split(",")
    if len(parts) != 3 or parse_duration(parts[2]) < 1:
        raise InputError(f"'{text}' must be like gauss:100ms,25ms,1ms: mean, deviation, unit")
    return Normal(*(parse_duration(part) for part in parts))


def _parse_quantiles(text: str, arguments: str) -> Quantiles:
    values = tuple(parse_duration(part, "ns") for part in arguments.split(","))
    if len(values) < 2 or list(values) != sorted(values):
        raise InputError(f"'{text[:40]}' must be like quantiles:1ms,3ms,20ms: two or more, ascending")
    return Quantiles(values)


_PARSERS: dict[str, Callable[[str, str], Delay]] = {
    "fixed": lambda _, arguments: Fixed(parse_duration(arguments)),
    "gauss": _parse_normal,
    "quantiles": _parse_quantiles,
    "exp": _parse_exponential,
    "lognormal": _parse_log_normal,
    "pareto": _parse_pareto,
}
"""Distributions whose parameters are separated by commas."""
