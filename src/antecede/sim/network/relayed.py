"""Links through a relay, so that a flat protocol can run where paper 000 has a super peer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.sim import counter_rng
from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import Delay, parse_delay
from antecede.sim.network.direct import DirectNetwork


class RelayedNetwork(Network):
    """Packets to and from the first `behind` peers take two delays, all others one.

    The relay only passes packets on.
    """

    def __init__(self, seed: int, delay: Delay, behind: int) -> None:
        self._first = DirectNetwork(seed, delay, fifo=False)
        self._second = DirectNetwork(counter_rng.mix(seed), delay, fifo=False)
        self._behind = behind

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        arrivals = []
        for arrival in self._first.transmit(source, to, size, now):
            if source < self._behind or arrival.destination < self._behind:
                arrivals += self._second.transmit(source, (arrival.destination,), size, arrival.time)
            else:
                arrivals.append(arrival)
        return arrivals


class RelayedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="relayed", tag_field="model"):
    """Parameters of a relayed network: `behind` peers behind the relay, the same `delay` on every link."""

    behind: int
    delay: str

    def __post_init__(self) -> None:
        parse_delay(self.delay)

    def build(self, size: int, seed: int) -> RelayedNetwork:
        return RelayedNetwork(seed, parse_delay(self.delay), self.behind)
