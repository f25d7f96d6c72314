"""Nodes with a queue, as in paper 004: packets are processed, queued, transmitted and propagated.

A node has one FIFO queue for all it sends. A packet to several peers is copied for each, and each copy takes
one transmission time; a packet larger than the MTU takes one for each fragment. The paper does not say
whether received packets are processed by the same server, packet by packet or message by message, nor which
unit has a propagation time of its own; both can be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from antecede.causality import MessageId
from antecede.sim import counter_rng
from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import Delay, parse_delay
from antecede.units import parse_duration

Queue = Literal["sends", "node", "messages"]
Drawn = Literal["copy", "message", "link"]


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
        queue: Queue = "sends",
        drawn: Drawn = "copy",
    ) -> None:
        self._seed = seed
        self._propagation = propagation.sample
        self._processing = processing
        self._transmission = transmission
        self._max_payload = mtu - header
        self._one_server = queue != "sends"
        self._by_message = queue == "messages"
        self._drawn = drawn
        self._key = counter_rng.key(seed, counter_rng.PROPAGATION)
        self._idle_at = [0] * size
        """When each node's queue will be empty."""
        self._copies = 0
        self.packets = 0
        self.queued = 0
        """Time spent waiting in queues before being sent, summed over packets."""

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        return self.carry((), source, to, size, now)

    def carry(
        self, messages: Sequence[MessageId], source: int, to: Sequence[int], size: int, now: int
    ) -> list[Arrival]:
        processing = self._processing * (max(1, len(messages)) if self._by_message else 1)
        first = messages[0] if messages else None
        fragments = max(1, -(-size // self._max_payload))
        arrivals = []
        for peer in to:
            start = max(now, self._idle_at[source])
            self._idle_at[source] = start + fragments * self._transmission
            self._copies += 1
            self.packets += fragments
            self.queued += start - now
            time = self._idle_at[source] + self._propagation(self._bits(first, source, peer))
            if self._one_server:
                arrivals.append(Arrival(time, peer, self._copies, (peer, self._copies, processing)))
            else:
                arrivals.append(Arrival(time + self._processing, peer, self._copies))
        return arrivals

    def _bits(self, message: MessageId | None, source: int, peer: int) -> int:
        if self._drawn == "link":
            one, other = min(source, peer), max(source, peer)
            return counter_rng.draw(counter_rng.key(self._seed, counter_rng.PROPAGATION, one), other)
        if message is None or self._drawn == "copy":
            return counter_rng.draw(self._key, self._copies)
        key = counter_rng.key(self._seed, counter_rng.PROPAGATION, message.origin)
        return counter_rng.draw(key, message.seq)

    def forward(self, transit: object, now: int) -> list[Arrival]:
        """A packet has reached its node, whose one server processes it in its turn."""
        peer, number, processing = cast(tuple[int, int, int], transit)
        self._idle_at[peer] = max(now, self._idle_at[peer]) + processing
        return [Arrival(self._idle_at[peer], peer, number)]

    def figures(self, duration: int) -> dict[str, float]:
        return {"packets": self.packets, "queued_mean_ns": self.queued / max(1, self._copies)}


class NodesModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="nodes", tag_field="model"):
    """Parameters of such a network; the defaults are paper 004's, with 1 ms for its unit of time."""

    propagation: str = "gauss:100ms,25ms,1ms"
    processing: str = "1ms"
    transmission: str = "1ms"
    header: int = 20
    mtu: int = 1500
    queue: Queue = "sends"
    """What waits in a node's queue: outgoing packets; or also received ones to be processed, each packet, or
    each message of a packet, for the same time."""
    drawn: Drawn = "copy"
    """What has a propagation time of its own: each copy of a packet, each message on all of its ways (a
    packet then takes that of its first message), or each link, in both directions and for the whole run."""

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
            queue=self.queue,
            drawn=self.drawn,
        )
