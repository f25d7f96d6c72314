"""Fault injection: what a network does to packets beyond delaying them.

A fault maps the arrival times of one packet's copies to new ones. Each fault draws its own random bits, so
adding one leaves everything else in a run unchanged.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from antecede.errors import InputError
from antecede.sim import counter_rng
from antecede.units import parse_duration, parse_range


class Fault(abc.ABC):
    """What may happen to packets on a link: delays, losses, copies."""

    breaks_order: ClassVar[bool]
    """Whether packets may overtake each other even on a FIFO link."""

    @abc.abstractmethod
    def apply(self, times: list[int], now: int, bits: int) -> list[int]:
        """The arrival times of the copies of a packet sent at `now`, after the fault."""


@dataclass(frozen=True)
class Spike(Fault):
    """Packets sent between `start` and `end` take `extra` longer."""

    breaks_order: ClassVar[bool] = False

    start: int
    end: int
    extra: int

    def apply(self, times: list[int], now: int, bits: int) -> list[int]:
        return [t + self.extra for t in times] if self.start <= now < self.end else times


@dataclass(frozen=True)
class Duplicate(Fault):
    """A share of packets arrives twice, the second copy up to `within` later."""

    breaks_order: ClassVar[bool] = True

    share: float
    within: int

    def apply(self, times: list[int], now: int, bits: int) -> list[int]:
        if not times or not counter_rng.happens(bits, self.share):
            return times
        return [*times, times[0] + counter_rng.between(counter_rng.mix(bits), 0, self.within + 1)]


@dataclass(frozen=True)
class Reorder(Fault):
    """A share of packets is late by up to `by`, and may be overtaken even on FIFO links."""

    breaks_order: ClassVar[bool] = True

    share: float
    by: int

    def apply(self, times: list[int], now: int, bits: int) -> list[int]:
        if not counter_rng.happens(bits, self.share):
            return times
        extra = counter_rng.between(counter_rng.mix(bits), 0, self.by + 1)
        return [t + extra for t in times]


@dataclass(frozen=True)
class Loss(Fault):
    """A share of packets never arrives, which no protocol here tolerates."""

    breaks_order: ClassVar[bool] = False

    share: float

    def apply(self, times: list[int], now: int, bits: int) -> list[int]:
        return [] if counter_rng.happens(bits, self.share) else times


def parse_fault(text: str) -> Fault:
    """Parse a fault as scenarios write it.

    >>> parse_fault("duplicate:1%:50ms"), parse_fault("spike:1-2s:300ms")
    (Duplicate(share=0.01, within=50000000), Spike(start=1000000000, end=2000000000, extra=300000000))
    """
    name, *arguments = text.split(":")
    match name, arguments:
        case "spike", [when, extra]:
            return Spike(*parse_range(when), parse_duration(extra))
        case "duplicate", [share, within]:
            return Duplicate(parse_share(share), parse_duration(within))
        case "reorder", [share, by]:
            return Reorder(parse_share(share), parse_duration(by))
        case "loss", [share]:
            return Loss(parse_share(share))
    raise InputError(
        f"'{text}' is not a fault; write spike:1-2s:300ms, duplicate:1%:50ms, reorder:10%:200ms, loss:1%, "
        "crash:1s:3, crash:1-2s:3, suspect:1-2s:3 or partition:1-2s:0,1,2"
    )


def parse_share(text: str) -> float:
    """A share, written as 1% or 0.01."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"'{text}' is not a share; write one like 1% or 0.01")
    return value
