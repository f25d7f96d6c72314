"""Nodes with a send queue, as in paper 004: packets are processed, queued, transmitted and propagated.

A node has one FIFO queue for all it sends. A packet to several peers is copied for each, and each copy takes
one transmission time; a packet larger than the MTU takes one for each fragment.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.sim import counter_rng
from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import Delay, parse_delay
from antecede.units import parse_duration


class QueuedNodes(Network):
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
        self._propagation = propagation.sample
        self._processing = processing
        self._transmission = transmission
        self._max_payload = mtu - header
        self._key = counter_rng.key(seed, counter_rng.PROPAGATION)
        self._idle_at = [0] * size
        """When each node's queue will be empty."""
        self._copies = 0
        self.packets = 0
        self.queued = 0
        """Time spent waiting in queues, summed over packets."""

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        fragments = max(1, -(-size // self._max_payload))
        arrivals = []
        for peer in to:
            start = max(now, self._idle_at[source])
            self._idle_at[source] = start + fragments * self._transmission
            self._copies += 1
            bits = counter_rng.draw(self._key, self._copies)
            time = self._idle_at[source] + self._propagation(bits) + self._processing
            arrivals.append(Arrival(time, peer, self._copies))
            self.packets += fragments
            self.queued += start - now
        return arrivals

    def figures(self, duration: int) -> dict[str, float]:
        return {"packets": self.packets, "queued_mean_ns": self.queued / max(1, self._copies)}


class NodesModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="nodes", tag_field="model"):
    """Parameters of such a network; the defaults are paper 004's, with 1 ms for its unit of time."""

    propagation: str = "gauss:100ms,25ms,1ms"
    processing: str = "1ms"
    transmission: str = "1ms"
    header: int = 20
    mtu: int = 1500

    def __post_init__(self) -> None:
        parse_delay(self.propagation)
        parse_duration(self.processing)
        parse_duration(self.transmission)
        if not 0 <= self.header < self.mtu:
            raise ValueError("header must be from 0 to less than mtu")

    def build(self, size: int, seed: int) -> QueuedNodes:
        return QueuedNodes(
            size,
            seed,
            parse_delay(self.propagation),
            processing=parse_duration(self.processing),
            transmission=parse_duration(self.transmission),
            header=self.header,
            mtu=self.mtu,
        )
