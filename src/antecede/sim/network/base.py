"""The interface of network models."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple


class Arrival(NamedTuple):
    """A packet's arrival at a peer, or at an intermediate hop."""

    time: int
    destination: int
    number: int
    """Unique on its link; orders arrivals at the same instant."""
    transit: object | None = None
    """At an intermediate hop: what the world passes to `Network.forward` at that time."""


class Network(abc.ABC):
    """Decides when packets arrive, if they do.

    The world asks in the order of time, so a model with queues may keep state between calls.
    """

    @abc.abstractmethod
    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        """Send one packet of `size` bytes from `source` to each peer in `to`."""

    def forward(self, transit: object, now: int) -> list[Arrival]:
        """Send a packet on from an intermediate hop. Models without hops are never asked."""
        return []

    def figures(self, duration: int) -> dict[str, float]:
        """Measurements of the network itself, after a run of `duration` nanoseconds."""
        return {}
