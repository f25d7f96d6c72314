"""A routed network, as in paper 002: store and forward over a random graph's links, with FIFO queues.

Packets take a shortest path by hops, always the same one of several, so packets between two peers stay in
order. A packet to many peers is sent to each or, with multicast, once over every link of the tree of their
paths. A packet larger than the MTU travels in fragments, each with a header, and arrives with its last one.
A graph from a file may give each link's delay; then paths are those of least total delay (`GraphModel`).
Cost: one queue operation for each fragment and hop; O(n²) memory for routes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from antecede.overlay.random_graph import Graph, hop_counts, random_graph
from antecede.sim import counter_rng
from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import Delay, parse_delay


class DirectedLink:
    """One direction of a link."""

    __slots__ = ("departures", "idle_at", "propagation", "start")

    def __init__(self, start: int, propagation: int) -> None:
        self.start = start
        self.propagation = propagation
        self.idle_at = 0
        self.departures: deque[int] = deque()
        """When each fragment that is queued or being transmitted will have left."""


class Branch:
    """One edge of a multicast tree: a link, the node it leads to, and the edges below."""

    __slots__ = ("branches", "is_destination", "link", "node")

    def __init__(
        self, link: DirectedLink, node: int, is_destination: bool, branches: tuple[Branch, ...]
    ) -> None:
        self.link = link
        self.node = node
        self.is_destination = is_destination
        self.branches = branches


_Fragment = tuple[Branch, int, bool]
"""A fragment at the end of a branch: its transmission time, and whether it is the last of its packet."""


class RoutedNetwork(Network):
    """A routed network, as described in the module. Counts cover the whole run so far."""

    def __init__(
        self,
        graph: Graph,
        seed: int,
        delay: Delay,
        *,
        bits_per_second: float,
        header: int,
        mtu: int,
        multicast: bool,
        propagation: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """`propagation` has the delays of links that are known, with the lower node first; if it has any,
        packets take paths of least delay, not of fewest hops."""
        self.graph = graph
        self._is_weighted = bool(propagation)
        self.ns_per_byte = 8e9 / bits_per_second
        self.header = header
        self.max_payload = mtu - header
        self.multicast = multicast
        key = counter_rng.key(seed, counter_rng.LENGTH)
        self.links: dict[tuple[int, int], DirectedLink] = {}
        for one, neighbours in enumerate(graph):
            for other in neighbours:
                low, high = sorted((one, other))
                known = (propagation or {}).get((low, high))
                sampled = delay.sample(counter_rng.draw(key, low * len(graph) + high))
                self.links[one, other] = DirectedLink(one, sampled if known is None else known)
        self.next_hops: dict[int, list[int]] = {}
        self._trees: dict[tuple[int, tuple[int, ...]], tuple[Branch, ...]] = {}
        self._numbers = 0
        self.fragments = 0
        """Fragments sent, counted once for each destination, whatever the path."""
        self.sent_bytes = 0
        """The bytes of those, headers included."""
        self.hops = 0
        """Transmissions, one for each fragment and link that it crosses."""
        self.longest_queue = 0
        self.longest_queue_at = 0
        """The node whose link this was."""
        self.time_on_links = 0
        """From joining a link's queue to leaving its near end, summed over fragments."""

    @property
    def directed_links(self) -> int:
        return len(self.links)

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        sizes = list(self._fragment_sizes(size))
        self.fragments += len(to) * len(sizes)
        self.sent_bytes += len(to) * sum(sizes)
        transmissions = [round(part * self.ns_per_byte) for part in sizes]
        arrivals: list[Arrival] = []
        for destinations in [tuple(to)] if self.multicast else [(peer,) for peer in to]:
            branches = self.tree(source, destinations)
            for place, transmission in enumerate(transmissions, 1):
                self._enqueue(branches, transmission, place == len(sizes), now, arrivals)
        return arrivals

    def _fragment_sizes(self, size: int) -> Iterator[int]:
        while size > self.max_payload:
            yield self.max_payload + self.header
            size -= self.max_payload
        yield size + self.header

    def forward(self, transit: Any, now: int) -> list[Arrival]:
        fragment: _Fragment = transit
        branch, transmission, last = fragment
        arrivals: list[Arrival] = []
        if last and branch.is_destination:
            self._numbers += 1
            arrivals.append(Arrival(now, branch.node, self._numbers))
        self._enqueue(branch.branches, transmission, last, now, arrivals)
        return arrivals

    def _enqueue(
        self, branches: Sequence[Branch], transmission: int, last: bool, now: int, arrivals: list[Arrival]
    ) -> None:
        """Put a fragment into the queue of each branch's link."""
        for branch in branches:
            link = branch.link
            departures = link.departures
            while departures and departures[0] <= now:
                departures.popleft()
            if len(departures) > self.longest_queue:
                self.longest_queue, self.longest_queue_at = len(departures), link.start
            link.idle_at = departure = max(now, link.idle_at) + transmission
            departures.append(departure)
            self.hops += 1
            self.time_on_links += departure - now
            if branch.branches or last:
                self._numbers += 1
                transit = (branch, transmission, last) if branch.branches else None
                arrivals.append(Arrival(departure + link.propagation, branch.node, self._numbers, transit))

    def tree(self, node: int, destinations: tuple[int, ...]) -> tuple[Branch, ...]:
        """The paths from `node` to each destination, merged into a tree."""
        tree = self._trees.get((node, destinations))
        if tree is None:
            by_hop: dict[int, list[int]] = {}
            for peer in destinations:
                by_hop.setdefault(self._next_hops_to(peer)[node], []).append(peer)
            tree = tuple(self._branch(node, hop, peers) for hop, peers in by_hop.items())
            self._trees[node, destinations] = tree
        return tree

    def _branch(self, node: int, hop: int, peers: list[int]) -> Branch:
        beyond = tuple(peer for peer in peers if peer != hop)
        return Branch(self.links[node, hop], hop, len(beyond) < len(peers), self.tree(hop, beyond))

    def _next_hops_to(self, peer: int) -> list[int]:
        """Each node's next hop on a shortest path to `peer`: the neighbour with the lowest number."""
        hops = self.next_hops.get(peer)
        if hops is None:
            hops = self.next_hops[peer] = self._by_delay(peer) if self._is_weighted else self._by_hops(peer)
        return hops

    def _by_hops(self, peer: int) -> list[int]:
        distance = hop_counts(self.graph, peer)
        return [
            min((other for other in neighbours if distance[other] == distance[node] - 1), default=node)
            for node, neighbours in enumerate(self.graph)
        ]

    def _by_delay(self, peer: int) -> list[int]:
        """By Dijkstra's algorithm; of paths of the same delay the one with fewer hops."""
        hops = list(range(len(self.graph)))
        pending = [(0, 0, peer, peer)]
        reached: set[int] = set()
        while pending:
            delay, count, node, towards = heapq.heappop(pending)
            if node in reached:
                continue
            reached.add(node)
            hops[node] = towards
            for other in self.graph[node]:
                if other not in reached:
                    link = self.links[other, node]
                    heapq.heappush(pending, (delay + link.propagation, count + 1, other, node))
        return hops

    def figures(self, duration: int) -> dict[str, float]:
        return {
            "fragments": self.fragments,
            "sent_bytes": self.sent_bytes,
            "hops": self.hops,
            "longest_link_queue": self.longest_queue,
            "longest_link_queue_at": self.longest_queue_at,
            "mean_link_queue": self.time_on_links / max(1, duration * self.directed_links),
        }


class RoutedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="routed", tag_field="model"):
    """Parameters of a routed network; the defaults are paper 002's, as far as it prints them."""

    edge: float | None = None
    """Probability that two nodes are linked; by default 4 neighbours on average, or 1 % if that is more."""
    bits_per_second: float = 10e6
    delay: str = "0-1ms"
    header: int = 32
    mtu: int = 1500
    multicast: bool = False

    def __post_init__(self) -> None:
        parse_delay(self.delay)
        if not (self.bits_per_second > 0 and 0 <= self.header < self.mtu):
            raise ValueError("bits_per_second must be more than 0, and header from 0 to less than mtu")
        if self.edge is not None and not 0 <= self.edge <= 1:
            raise ValueError(f"edge is {self.edge}; it must be from 0 to 1")

    def build(self, size: int, seed: int) -> RoutedNetwork:
        edge = max(0.01, 4 / size) if self.edge is None else self.edge
        return RoutedNetwork(
            random_graph(size, edge * (size - 1), counter_rng.Draws(seed, counter_rng.GRAPH)),
            seed,
            parse_delay(self.delay),
            bits_per_second=self.bits_per_second,
            header=self.header,
            mtu=self.mtu,
            multicast=self.multicast,
        )
