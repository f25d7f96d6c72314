"""The routed network of paper 002, on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from antecede.sim.network import Fixed, RoutedNetwork

MS = 1_000_000
LINE = [[1], [0, 2, 3], [1], [1]]
"""0 - 1 - 2, with 3 linked to 1 too."""


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
            arrivals = network.transmit(source, to, size, time)
        else:
            arrivals = network.forward(what, time)
        for arrival in arrivals:
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


def test_a_packet_above_the_mtu_travels_in_fragments_each_with_a_header() -> None:
    """MTU 125: 250 bytes are 100 + 100 + 50, so 1 + 1 + 0.6 ms onto a link. The last leaves the first link at
    2.6 ms, is at node 1 at 3.6, waits for the second until 4, leaves at 4.6 and is at node 2 at 5.6."""
    network = routed(multicast=False, mtu=125)
    assert run(network, (0, 0, [2], 250)) == [(5 * MS + 600_000, 2)]
    assert (network.fragments, network.sent_bytes, network.hops) == (3, 325, 6)


def test_fragments_of_a_multicast_are_forwarded_along_every_branch() -> None:
    """Three fragments as above, to 1, 2 and 3: at node 1 the last is there at 3.6 ms and the packet with it;
    to 2 and to 3 it goes on side by side. Three fragments on three links are nine hops. The last waits for
    two on the first link, and for nobody but the one before it on the others."""
    network = routed(multicast=True, mtu=125)
    arrived = run(network, (0, 0, [1, 2, 3], 250))
    assert arrived == [(3 * MS + 600_000, 1), (5 * MS + 600_000, 2), (5 * MS + 600_000, 3)]
    assert (network.fragments, network.sent_bytes, network.hops) == (9, 975, 9)
    assert (network.longest_queue, network.longest_queue_at) == (2, 0)


def test_a_queue_may_be_longest_where_paths_meet() -> None:
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
