"""Nodes that take time, as in paper 004: a packet is processed, queued, transmitted and propagated.

Each node has one queue for all that it sends: a packet to several is copied for each, and each copy takes
the transmission time in turn. What is larger than the MTU takes as many turns as it needs packets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.sim import counter_rng
from antecede.sim.network import Arrival, Delay, Network, parse_delay
from antecede.units import duration

_PROPAGATION = 10


class Nodes(Network):
    def __init__(
        self,
        size: int,
        seed: int,
        propagation: Delay,
        *,
        processing: int,
        transmission: int,
        header: int,
        mtu: int,
    ) -> None:
        self._propagation = propagation.of
        self._processing = processing
        self._transmission = transmission
        self._room = mtu - header
        self._drawn = counter_rng.key(seed, _PROPAGATION)
        self._free = [0] * size
        """When each node's queue will be empty."""
        self._copies = 0
        self.packets = 0
        self.queued = 0
        """Summed over packets: how long they waited for their turn."""

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        turns = max(1, -(-size // self._room))
        arrivals = []
        for peer in to:
            start = max(now, self._free[source])
            self._free[source] = start + turns * self._transmission
            self._copies += 1
            bits = counter_rng.draw(self._drawn, self._copies)
            time = self._free[source] + self._propagation(bits) + self._processing
            arrivals.append(Arrival(time, peer, self._copies))
            self.packets += turns
            self.queued += start - now
        return arrivals

    def figures(self, duration: int) -> dict[str, float]:
        return {"packets": self.packets, "queued_mean_ns": self.queued / max(1, self._copies)}


class NodesModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="nodes", tag_field="model"):
    """How to make a network of such nodes; the defaults are paper 004's, with 1 ms for its unit of time."""

    propagation: str = "gauss:100ms,25ms,1ms"
    processing: str = "1ms"
    transmission: str = "1ms"
    header: int = 20
    mtu: int = 1500

    def __post_init__(self) -> None:
        parse_delay(self.propagation)
        duration(self.processing)
        duration(self.transmission)
        if not 0 <= self.header < self.mtu:
            raise ValueError("header must be from 0 to less than mtu")

    def build(self, size: int, seed: int) -> Nodes:
        return Nodes(
            size,
            seed,
            parse_delay(self.propagation),
            processing=duration(self.processing),
            transmission=duration(self.transmission),
            header=self.header,
            mtu=self.mtu,
        )
