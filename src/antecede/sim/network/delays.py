"""Delay distributions, each a pure function of 64 random bits."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from antecede.errors import InputError
from antecede.sim import counter_rng
from antecede.units import parse_duration, parse_range


class Delay(abc.ABC):
    """A distribution of delays in nanoseconds."""

    @abc.abstractmethod
    def sample(self, bits: int) -> int:
        """The delay for these 64 random bits."""

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """An upper bound."""


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
        return self.mean + 9 * self.deviation  # 53 random bits do not reach further out


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
    if model == "gauss":
        return _parse_normal(text, arguments)
    if model == "quantiles":
        return _parse_quantiles(text, arguments)
    if model == "fixed":
        return Fixed(parse_duration(arguments))
    if model not in _BOUNDED:
        names = ", ".join(_BOUNDED)
        raise InputError(f"no delay model '{model}'; there are fixed, gauss, quantiles, {names}")
    return _BOUNDED[model](*parse_range(arguments))


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
