"""The network with a relay in place of paper 000's super peer."""

from __future__ import annotations

from antecede.sim import counter_rng
from antecede.sim.network import DirectNetwork, RelayedNetwork, parse_delay

DELAY = parse_delay("normal:0-50ms")
PEERS, BEHIND = 12, 5


def test_a_message_reaches_the_relay_once() -> None:
    """The time of each copy minus its path from the relay is the same for all."""
    network = RelayedNetwork(3, DELAY, BEHIND)
    onward, direct = DirectNetwork(counter_rng.mix(3), DELAY, fifo=False), DirectNetwork(3, DELAY, fifo=False)
    for source in (0, 7):
        for now in (0, 1000):
            to = [peer for peer in range(PEERS) if peer != source]
            taken = {each.destination: each.time - now for each in network.transmit(source, to, 10, now)}
            assert set(taken) == set(to)
            relayed = [peer for peer in to if source < BEHIND or peer < BEHIND]
            last = {each.destination: each.time for each in onward.transmit(source, relayed, 10, 0)}
            assert len({taken[peer] - last[peer] for peer in relayed}) == 1
            others = [peer for peer in to if peer not in relayed]
            for each in direct.transmit(source, others, 10, 0):
                assert taken[each.destination] == each.time


def test_a_relay_with_nobody_behind_it_changes_nothing() -> None:
    to = range(1, PEERS)
    direct = DirectNetwork(3, DELAY, fifo=False).transmit(0, to, 10, 0)
    assert RelayedNetwork(3, DELAY, 0).transmit(0, to, 10, 0) == direct
