"""The interface of network models, also for user-defined ones."""

from __future__ import annotations

import abc
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from antecede import user_classes
from antecede.causality import MessageId
from antecede.errors import ProtocolError


class Arrival(NamedTuple):
    """A packet's arrival at a peer, or at an intermediate hop."""

    time: int
    destination: int
    number: int = 0
    """Unique on its link; orders arrivals at the same instant. A user's own network need not number them."""
    transit: object | None = None
    """At an intermediate hop: what the world passes to `Network.forward` at that time."""


class Network(abc.ABC):
    """Decides when packets arrive, if they do.

    The world asks in the order of time, so a model with queues may keep state between calls. A user's own is
    created as `Class(peers, seed, **parameters)`; scenarios name it as `module:Class`.
    """

    @abc.abstractmethod
    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        """Send one packet of `size` bytes from `source` to each peer in `to`."""

    def carry(
        self, messages: Sequence[MessageId], source: int, to: Sequence[int], size: int, now: int
    ) -> list[Arrival]:
        """The same for a packet with these messages, for models in which the messages affect the delay."""
        return self.transmit(source, to, size, now)

    def forward(self, transit: object, now: int) -> list[Arrival]:
        """Send a packet on from an intermediate hop. Models without hops are never asked."""
        return []

    def figures(self, duration: int) -> dict[str, float]:
        """Measurements of the network itself, after a run of `duration` nanoseconds."""
        return {}


class UserNetwork(Network):
    """A user-defined network; its arrivals are validated, and numbered in the order of its replies."""

    def __init__(self, text: str, size: int, seed: int) -> None:
        self._text = text
        self._size = size
        self._own = user_classes.create(text, Network, "network", peers=size, seed=seed)  # type: ignore[type-abstract]
        self._numbers = 0

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        return self._checked(self._own.transmit(source, to, size, now), now)

    def carry(
        self, messages: Sequence[MessageId], source: int, to: Sequence[int], size: int, now: int
    ) -> list[Arrival]:
        return self._checked(self._own.carry(messages, source, to, size, now), now)

    def forward(self, transit: object, now: int) -> list[Arrival]:
        return self._checked(self._own.forward(transit, now), now)

    def figures(self, duration: int) -> dict[str, float]:
        return checked_figures(f"network {self._text}", self._own.figures(duration))

    def _checked(self, arrivals: Iterable[Any], now: int) -> list[Arrival]:
        checked = []
        for arrival in arrivals:
            if not isinstance(arrival, Arrival):
                raise ProtocolError(f"network {self._text} returned {arrival!r}, which is not an Arrival")
            try:
                time, peer = operator.index(arrival.time), operator.index(arrival.destination)
            except TypeError:
                time, peer = -1, 0
            if time < now or not (0 <= peer < self._size or arrival.transit is not None):
                raise ProtocolError(
                    f"network {self._text} returned {arrival!r} at {now}; the time is whole nanoseconds from "
                    f"then on, the destination a peer from 0 to {self._size - 1}"
                )
            self._numbers += 1
            checked.append(Arrival(time, peer, self._numbers, arrival.transit))
        return checked


def checked_figures(who: str, figures: Any) -> dict[str, float]:
    """The validated figures of a user-defined network or probe: numbers by name."""
    if not isinstance(figures, dict) or not all(isinstance(name, str) for name in figures):
        raise ProtocolError(f"{who}: figures() must return a dict of numbers by name, not {figures!r}")
    try:
        return {name: value if isinstance(value, int) else float(value) for name, value in figures.items()}
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{who}: figures() must return numbers: {error}") from error
