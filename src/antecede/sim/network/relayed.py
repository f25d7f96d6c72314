"""Links through a relay, so that a flat protocol can run where paper 000 has a super peer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.sim import counter_rng
from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import Delay, parse_delay
from antecede.sim.network.direct import DirectNetwork


class RelayedNetwork(Network):
    """Packets to and from the first `behind` peers go through the relay and take two delays, all others one.

    The relay only passes packets on. A message goes to it once, so all of its copies leave the relay at the
    same time; the delay from there is each copy's own.
    """

    def __init__(self, seed: int, delay: Delay, behind: int) -> None:
        self._first = DirectNetwork(seed, delay, fifo=False)
        self._second = DirectNetwork(counter_rng.mix(seed), delay, fifo=False)
        self._behind = behind

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        relayed = [peer for peer in to if source < self._behind or peer < self._behind]
        arrivals = self._first.transmit(source, [peer for peer in to if peer not in set(relayed)], size, now)
        # No peer sends to itself, so that link can stand for the one to the relay.
        (at_relay,) = self._first.transmit(source, (source,), size, now)
        return arrivals + self._second.transmit(source, relayed, size, at_relay.time)


class RelayedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="relayed", tag_field="model"):
    """Parameters of a relayed network: `behind` peers behind the relay, the same `delay` on every link."""

    behind: int
    delay: str

    def __post_init__(self) -> None:
        parse_delay(self.delay)

    def build(self, size: int, seed: int) -> RelayedNetwork:
        return RelayedNetwork(seed, parse_delay(self.delay), self.behind)
