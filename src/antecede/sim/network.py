"""Networks: when a packet that is sent now arrives, if it does.

A network model is asked once a `Send`, with the packet's size, and answers with arrivals; one with
queues keeps its own state, because it is asked in the order of time. `Direct` joins every pair of
peers by a link with an independent delay, FIFO or not.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from antecede.errors import InputError
from antecede.sim import counter_rng
from antecede.sim.faults import Fault
from antecede.units import duration, span

LINK = 1


class Arrival(NamedTuple):
    time: int
    destination: int
    number: int
    """Unique on its link; orders arrivals of the same instant."""
    onward: object | None = None
    """Where it only passes through: what the network wants back then."""


class Network(abc.ABC):
    @abc.abstractmethod
    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        """Send one packet of `size` bytes from `source` to each of `to`."""

    def relay(self, onward: object, now: int) -> list[Arrival]:
        """Something that passes through has come to where it said; where nothing does, nobody asks."""
        return []

    def figures(self, duration: int) -> dict[str, float]:
        """What it has to say of itself after a run of so many nanoseconds."""
        return {}


class Delay(abc.ABC):
    """How long a packet takes: a function of 64 random bits."""

    @abc.abstractmethod
    def of(self, bits: int) -> int:
        """Nanoseconds."""

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """No delay is longer."""


@dataclass(frozen=True)
class Fixed(Delay):
    value: int

    @property
    def longest(self) -> int:
        return self.value

    def of(self, bits: int) -> int:
        return self.value


@dataclass(frozen=True)
class Between(Delay):
    """A delay from `low` to `high`."""

    low: int
    high: int

    @property
    def longest(self) -> int:
        return self.high


@dataclass(frozen=True)
class Uniform(Between):
    def of(self, bits: int) -> int:
        return counter_rng.between(bits, self.low, self.high + 1)


@dataclass(frozen=True)
class ClippedNormal(Between):
    """Around the middle of an interval with a quarter of it as deviation, clipped to its ends."""

    def of(self, bits: int) -> int:
        middle, quarter = (self.low + self.high) / 2, (self.high - self.low) / 4
        return min(max(int(middle + quarter * counter_rng.normal(bits)), self.low), self.high)


@dataclass(frozen=True)
class Wild(Between):
    """Over orders of magnitude: every doubling between `low` and `high` is equally likely."""

    def of(self, bits: int) -> int:
        doublings = max(1, (self.high // max(1, self.low)).bit_length())
        floor = max(1, self.low) << counter_rng.between(bits, 0, doublings)
        return min(floor + counter_rng.between(counter_rng.mix(bits), 0, floor), self.high)


@dataclass(frozen=True)
class Normal(Delay):
    """Whole units around a mean, drawn again if negative."""

    mean: int
    deviation: int
    unit: int

    def of(self, bits: int) -> int:
        while (
            value := int(self.mean + self.deviation * counter_rng.normal(bits)) // self.unit * self.unit
        ) < 0:
            bits = counter_rng.mix(bits + 1)
        return value

    @property
    def longest(self) -> int:
        return self.mean + 9 * self.deviation  # no 53 random bits are further out


@dataclass(frozen=True)
class Quantiles(Delay):
    """As somebody measured them: as many delays are between each two neighbours of `values` as between any
    other two, evenly."""

    values: tuple[int, ...]

    def of(self, bits: int) -> int:
        place = counter_rng.between(bits, 0, len(self.values) - 1)
        return counter_rng.between(counter_rng.mix(bits), self.values[place], self.values[place + 1] + 1)

    @property
    def longest(self) -> int:
        return self.values[-1]


_MODELS: dict[str, type[Uniform | ClippedNormal | Wild]] = {
    "uniform": Uniform,
    "normal": ClippedNormal,
    "wild": Wild,
}


def parse_delay(text: str) -> Delay:
    """A delay model as it is written in a scenario.

    >>> parse_delay("20ms"), parse_delay("1-100ms"), parse_delay("normal:0-50ms")
    (Fixed(value=20000000), Uniform(low=1000000, high=100000000), ClippedNormal(low=0, high=50000000))
    """
    model, colon, interval = text.partition(":")
    if not colon:
        return Uniform(*span(text)) if "-" in text.strip()[1:] else Fixed(duration(text))
    if model == "gauss":
        parts = interval.split(",")
        if len(parts) != 3 or duration(parts[2]) < 1:
            raise InputError(f"'{text}' must be like gauss:100ms,25ms,1ms: mean, deviation, whole units")
        return Normal(*(duration(part) for part in parts))
    if model == "quantiles":
        values = tuple(duration(part, "ns") for part in interval.split(","))
        if len(values) < 2 or list(values) != sorted(values):
            raise InputError(
                f"'{text[:40]}' must be like quantiles:1ms,3ms,20ms: two or more, in their order"
            )
        return Quantiles(values)
    if model == "fixed":
        return Fixed(duration(interval))
    if model not in _MODELS:
        raise InputError(f"no delay model '{model}'; there are fixed, gauss, quantiles, {', '.join(_MODELS)}")
    return _MODELS[model](*span(interval))


class _Link:
    __slots__ = ("delay", "key", "last", "sent")

    def __init__(self, key: int, delay: Callable[[int], int]) -> None:
        self.key = key
        self.delay = delay
        self.sent = 0
        self.last = 0


class Direct(Network):
    """A link between every two peers, each packet with a delay of its own.

    Peers at the same one of `sites` may have a `local` delay between them.
    """

    def __init__(
        self,
        seed: int,
        delay: Delay,
        fifo: bool,
        faults: Sequence[Fault] = (),
        local: Delay | None = None,
        sites: Sequence[int] = (),
    ) -> None:
        self._seed = seed
        self._delay = delay.of
        self._local = (local or delay).of
        self._sites = sites
        self._fifo = fifo
        self._faults = [(fault, number) for number, fault in enumerate(faults)]
        self._links: dict[tuple[int, int], _Link] = {}

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        arrivals = []
        for destination in to:
            link = self._links.get((source, destination))
            if link is None:
                near = bool(self._sites) and self._sites[source] == self._sites[destination]
                link = _Link(
                    counter_rng.key(self._seed, LINK, source, destination),
                    self._local if near else self._delay,
                )
                self._links[source, destination] = link
            times = [now + link.delay(counter_rng.draw(link.key, link.sent))]
            times = self._strike(times, now, link, breaking=False)
            if self._fifo and times:
                times = [max(time, link.last) for time in times]
                link.last = times[-1]
            times = self._strike(times, now, link, breaking=True)
            # Copies of a packet keep its number and follow it, however late they come.
            arrivals += [Arrival(t, destination, link.sent << 8 | i) for i, t in enumerate(times)]
            link.sent += 1
        return arrivals

    def _strike(self, times: list[int], now: int, link: _Link, breaking: bool) -> list[int]:
        for fault, number in self._faults:
            if fault.breaks_order is breaking:
                bits = counter_rng.draw(counter_rng.key(link.key, number), link.sent)
                times = fault.strike(times, now, bits)
        return times


class Relayed(Network):
    """The first `behind` peers reach everyone, each other too, through a relay: two delays. Others have one.

    So a flat protocol runs where paper 000 has a super peer, which then only passes packets on.
    """

    def __init__(self, seed: int, delay: Delay, behind: int) -> None:
        self._near = Direct(seed, delay, fifo=False)
        self._far = Direct(counter_rng.mix(seed), delay, fifo=False)
        self._behind = behind

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        arrivals = []
        for arrival in self._near.transmit(source, to, size, now):
            if source < self._behind or arrival.destination < self._behind:
                (second,) = self._far.transmit(source, (arrival.destination,), size, arrival.time)
                arrivals.append(second)
            else:
                arrivals.append(arrival)
        return arrivals


class RelayedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="relayed", tag_field="model"):
    """How to make one: `behind` peers behind the relay, every link with the same `delay`."""

    behind: int
    delay: str

    def __post_init__(self) -> None:
        parse_delay(self.delay)

    def build(self, size: int, seed: int) -> Relayed:
        return Relayed(seed, parse_delay(self.delay), self.behind)
