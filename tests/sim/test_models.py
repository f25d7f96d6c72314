"""The papers' networks and workloads, checked against cases worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antecede.errors import InputError
from antecede.overlay.random_graph import random_graph
from antecede.sim.counter_rng import GRAPH, Draws
from antecede.sim.engines import simulate
from antecede.sim.network import (
    Arrival,
    Fixed,
    NodesModel,
    Normal,
    QueuedNodes,
    RoutedModel,
    RoutedNetwork,
    parse_delay,
)
from antecede.sim.scenario import scenario
from antecede.sim.workload import Once, RandomIntervals, Rounds

MS = 1_000_000
LINE = [[1], [0, 2, 3], [1], [1]]
"""0 - 1 - 2, with 3 hanging on 1 too."""


def routed(multicast: bool, graph: list[list[int]] = LINE, mtu: int = 1500) -> RoutedNetwork:
    """1 Mbit/s: a byte takes 8 µs; every link is 1 ms long; headers of 25 bytes."""
    return RoutedNetwork(graph, 1, Fixed(MS), bits_per_second=1e6, header=25, mtu=mtu, multicast=multicast)


def run(network: RoutedNetwork, *sends: tuple[int, int, list[int], int]) -> list[tuple[int, int]]:
    """(time, peer) of every arrival, for sends of (time, source, to, size)."""
    todo: list[tuple[int, int, Any]] = [(time, -1, [source, to, size]) for time, source, to, size in sends]
    arrived = []
    while todo:
        todo.sort(key=lambda each: each[:2])
        time, _, what = todo.pop(0)
        if isinstance(what, list):
            source, to, size = what
            made = network.transmit(source, to, size, time)
        else:
            made = network.forward(what, time)
        for arrival in made:
            if arrival.transit is None:
                arrived.append((arrival.time, arrival.destination))
            else:
                todo.append((arrival.time, arrival.number, arrival.transit))
    return sorted(arrived)


def test_a_packet_is_stored_and_forwarded_at_every_hop() -> None:
    """100 + 25 bytes take 1 ms onto a link, 1 ms along it; twice."""
    network = routed(multicast=False)
    assert run(network, (0, 0, [2], 100)) == [(4 * MS, 2)]
    assert (network.fragments, network.sent_bytes, network.hops) == (1, 125, 2)
    assert network.longest_queue == 0
    assert network.figures(2 * MS)["mean_link_queue"] == pytest.approx(2 / (2 * 6))


def test_packets_to_many_queue_for_the_first_link_one_after_the_other() -> None:
    network = routed(multicast=False)
    assert run(network, (0, 0, [1, 2, 3], 100)) == [(2 * MS, 1), (5 * MS, 2), (6 * MS, 3)]
    assert (network.fragments, network.hops, network.longest_queue) == (3, 5, 2)
    assert network.longest_queue_at == 0


def test_multicast_crosses_every_link_of_the_tree_once() -> None:
    network = routed(multicast=True)
    assert run(network, (0, 0, [1, 2, 3], 100)) == [(2 * MS, 1), (4 * MS, 2), (4 * MS, 3)]
    assert (network.fragments, network.sent_bytes, network.hops) == (3, 375, 3)
    assert network.longest_queue == 0


def test_links_are_shared_and_fifo_and_one_direction_does_not_disturb_the_other() -> None:
    network = routed(multicast=False)
    arrived = run(network, (0, 0, [1], 100), (MS // 2, 0, [1], 100), (0, 1, [0], 100))
    assert arrived == [(2 * MS, 0), (2 * MS, 1), (3 * MS, 1)]


def test_what_is_larger_than_the_mtu_travels_in_fragments_each_with_a_header() -> None:
    """MTU 125: 250 bytes are 100 + 100 + 50, so 1 + 1 + 0.6 ms onto a link. The last leaves the first link at
    2.6 ms, is at node 1 at 3.6, waits for the second until 4, leaves at 4.6 and is at node 2 at 5.6."""
    network = routed(multicast=False, mtu=125)
    assert run(network, (0, 0, [2], 250)) == [(5 * MS + 600_000, 2)]
    assert (network.fragments, network.sent_bytes, network.hops) == (3, 325, 6)


def test_fragments_of_a_multicast_go_on_where_they_branch() -> None:
    """Three fragments as above, to 1, 2 and 3: at node 1 the last is there at 3.6 ms and the packet with it;
    to 2 and to 3 it goes on side by side. Three fragments on three links are nine hops. The last waits for
    two on the first link, and for nobody but the one before it on the others."""
    network = routed(multicast=True, mtu=125)
    arrived = run(network, (0, 0, [1, 2, 3], 250))
    assert arrived == [(3 * MS + 600_000, 1), (5 * MS + 600_000, 2), (5 * MS + 600_000, 3)]
    assert (network.fragments, network.sent_bytes, network.hops) == (9, 975, 9)
    assert (network.longest_queue, network.longest_queue_at) == (2, 0)


def test_a_queue_may_be_longest_where_ways_meet() -> None:
    """From 0 and 3 at once by 1 to 2, three packets each, 1 ms apart on their own links: six meet at node 1,
    two at a time, at 2, 3 and 4 ms. One leaves each millisecond, so when the last comes two have left, one
    is leaving and three wait."""
    network = routed(multicast=False)
    sends = [(0, source, [2], 100) for source in (0, 3) for _ in range(3)]
    assert run(network, *sends) == [(time * MS, 2) for time in range(4, 10)]
    assert (network.longest_queue, network.longest_queue_at) == (3, 1)


def test_routes_are_shortest_and_always_the_same() -> None:
    """A square: from 0 to 3 by 1, the lower of the two."""
    square = [[1, 2], [0, 3], [0, 3], [1, 2]]
    network = routed(multicast=False, graph=square)
    (hop,) = network.transmit(0, [3], 100, 0)
    assert hop.destination == 1


def draws(seed: int) -> Draws:
    return Draws(seed, GRAPH)


def test_random_graphs_are_connected_and_as_dense_as_asked() -> None:
    for seed in range(20):
        graph = random_graph(60, 3.0, draws(seed))
        seen, todo = {0}, [0]
        while todo:
            for other in graph[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        assert len(seen) == 60
        assert all(one in graph[other] for one in range(60) for other in graph[one])
    degrees = [sum(map(len, random_graph(200, 6.0, draws(seed)))) / 200 for seed in range(20)]
    assert sum(degrees) / 20 == pytest.approx(6, abs=0.2)
    assert random_graph(1, 3.0, draws(1)) == [[]]


def nodes(mtu: int = 120) -> QueuedNodes:
    return QueuedNodes(3, 1, Fixed(100 * MS), processing=MS, transmission=2 * MS, header=20, mtu=mtu)


def test_copies_take_their_turn_in_the_senders_queue() -> None:
    """Two copies: out at 2 and 4 ms, there 100 ms later and processed in 1. A third waits for both."""
    network = nodes()
    times = [arrival.time for arrival in network.transmit(0, [1, 2], 50, 0)]
    assert times == [103 * MS, 105 * MS]
    (third,) = network.transmit(0, [1], 50, MS)
    assert third.time == 107 * MS
    (other,) = network.transmit(1, [0], 50, MS)
    assert other.time == 104 * MS
    assert network.figures(0) == {"packets": 4, "queued_mean_ns": (2 + 3) * MS / 4}


def test_what_is_larger_than_a_packet_takes_several_turns() -> None:
    network = nodes()
    (arrival,) = network.transmit(0, [1], 201, 0)
    assert (arrival.time, network.packets) == (107 * MS, 3)
    (exact,) = nodes().transmit(0, [1], 100, 0)
    assert exact == Arrival(103 * MS, 1, 1)


def test_gaussian_delays_are_whole_units_and_never_negative() -> None:
    delay = parse_delay("gauss:10ms,20ms,1ms")
    assert delay == Normal(10 * MS, 20 * MS, MS)
    drawn = [delay.sample(bits * 0x9E3779B97F4A7C15 % 2**64) for bits in range(2000)]
    assert min(drawn) == 0
    assert {value % MS for value in drawn} == {0}
    assert max(drawn) <= delay.longest
    steady = [
        parse_delay("gauss:100ms,25ms,1ms").sample(bits * 0x9E3779B97F4A7C15 % 2**64) for bits in range(4000)
    ]
    assert sum(steady) / 4000 == pytest.approx(99.5 * MS, rel=0.02)
    for wrong in ("gauss:1ms", "gauss:1ms,1ms,0", "gauss:a,b,c"):
        with pytest.raises(InputError):
            parse_delay(wrong)


def test_rounds_are_bursts() -> None:
    rounds = Rounds(1, 10 * MS, burst=2)
    assert [rounds.next_send(2, number, 0) for number in range(5)] == [0, 0, 10 * MS, 10 * MS, 20 * MS]


@pytest.mark.parametrize("workload", ["periodic", "poisson", "drawn", "once", "rounds", "windows"])
def test_some_peers_send(workload: str) -> None:
    made = scenario(protocol="timestamp", peers=6, senders=3, workload=workload, seconds=3)
    assert made.sending_peers() == [0, 2, 4]
    senders: set[int] = set()

    class Senders:
        def send(self, process: int, *_: object) -> None:
            senders.add(process)

        def receive(self, *_: object) -> None: ...

        def deliver(self, *_: object) -> None: ...

    simulate(made, [Senders()])
    assert senders == {0, 2, 4}


def test_once_is_once_and_intervals_are_drawn() -> None:
    once = Once(1, 50 * MS)
    assert all(0 <= once.next_send(peer, 0, 0) < 50 * MS for peer in range(100))
    assert once.next_send(3, 1, 0) > 10**18
    drawn = RandomIntervals(1, parse_delay("normal:70-90ms"))
    first = [drawn.next_send(peer, 0, 0) for peer in range(200)]
    assert 0 <= min(first) < 5 * MS < 70 * MS < max(first) < 90 * MS
    assert all(70 * MS <= drawn.next_send(1, number, 5) - 5 <= 90 * MS for number in range(1, 100))


def test_scenarios_name_their_network() -> None:
    made = scenario(
        protocol="timestamp", peers=20, seconds=0.01, workload="rounds", rate=1000, senders=4, burst=2,
        payload=0, count="paper", network={"model": "routed", "multicast": True},
    )  # fmt: skip
    assert isinstance(made.network, RoutedModel)
    metrics = simulate(made).metrics
    assert (metrics.messages, metrics.deliveries, metrics.stuck) == (80, 80 * 19, 0)
    assert metrics.measured["fragments"] == 80 * 19
    assert metrics.measured["sent_bytes"] == 80 * 19 * (32 + 4 * 20)
    vcube = scenario(protocol="vcube", peers=16, seconds=0.5, workload="once", network={"model": "nodes"})
    assert vcube.network == NodesModel()
    assert simulate(vcube).metrics.measured["packets"] == 16 * 15
    assert msgspec.convert(msgspec.to_builtins(made), type(made)) == made


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ({"model": "paper"}, "paper"),
        ({"model": "routed", "mtu": 10}, "header"),
        ({"model": "routed", "edge": 2.0}, "edge"),
        ({"model": "routed", "delay": "soon"}, "soon"),
        ({"model": "nodes", "processing": "1"}, "duration"),
        ({"model": "nodes", "size": 3}, "size"),
    ],
)
def test_networks_that_cannot_be(network: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        scenario(protocol="mbcp", network=network)
