"""A routed network, as in paper 002: store and forward over links of a random graph, each with a FIFO queue.

Packets take a shortest path by hops; where there are several, always the same one, so packets between two
peers stay in order. A packet to many is either sent to each or, as multicast, once over every link of the
tree of their paths. What is larger than the MTU travels in fragments, each with a header; a packet has
arrived when its last fragment has. A fragment costs one queue operation a hop; routes cost O(n²) memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from antecede.sim import counter_rng
from antecede.sim.network import Arrival, Delay, Network, parse_delay

_GRAPH, _LENGTH = 8, 9

Graph = list[list[int]]
"""The neighbours of each node."""


def random_graph(size: int, degree: float, seed: int) -> Graph:
    """Every two nodes are joined with the same chance, `degree` neighbours each on average; what is not
    connected then is joined to the rest by one link more."""
    drawn = counter_rng.key(seed, _GRAPH)
    share = min(1.0, degree / max(1, size - 1))
    joined = [
        (one, other)
        for one in range(size)
        for other in range(one + 1, size)
        if counter_rng.happens(counter_rng.draw(drawn, one * size + other), share)
    ]
    graph: Graph = [[] for _ in range(size)]
    for one, other in joined:
        graph[one].append(other)
        graph[other].append(one)
    reached = set(_distances(graph, 0)) if size else set()
    for node in range(size):
        if node not in reached:
            bits = counter_rng.draw(drawn, size * size + node)
            other = sorted(reached)[counter_rng.between(bits, 0, len(reached))]
            graph[node].append(other)
            graph[other].append(node)
            reached |= set(_distances(graph, node))
    return [sorted(neighbours) for neighbours in graph]


def _distances(graph: Graph, start: int) -> dict[int, int]:
    found = {start: 0}
    todo = deque([start])
    while todo:
        node = todo.popleft()
        for other in graph[node]:
            if other not in found:
                found[other] = found[node] + 1
                todo.append(other)
    return found


class _Line:
    """One direction of a link."""

    __slots__ = ("busy", "ends", "length", "start")

    def __init__(self, start: int, length: int) -> None:
        self.start = start
        self.length = length
        self.busy = 0
        self.ends: deque[int] = deque()
        """When each fragment that is in the queue or on its way onto the line will have left it."""


class _Branch:
    """Part of a tree of paths: a line, the node it leads to, and what goes on from there."""

    __slots__ = ("branches", "line", "node", "target")

    def __init__(self, line: _Line, node: int, target: bool, branches: tuple[_Branch, ...]) -> None:
        self.line = line
        self.node = node
        self.target = target
        """Whether the packet is for this node too."""
        self.branches = branches


_Fragment = tuple[_Branch, int, bool]
"""Something that has come to the end of a branch, the nanoseconds it takes onto a line, and whether it is the
last of its packet."""


class Routed(Network):
    """See the module. `load` and the other counts are of the whole run so far."""

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
    ) -> None:
        self._graph = graph
        self._ns_per_byte = 8e9 / bits_per_second
        self._header = header
        self._room = mtu - header
        self._multicast = multicast
        lengths = counter_rng.key(seed, _LENGTH)
        self._lines: dict[tuple[int, int], _Line] = {}
        for one, neighbours in enumerate(graph):
            for other in neighbours:
                low, high = sorted((one, other))
                length = delay.of(counter_rng.draw(lengths, low * len(graph) + high))
                self._lines[one, other] = _Line(one, length)
        self._next: dict[int, list[int]] = {}
        self._trees: dict[tuple[int, tuple[int, ...]], tuple[_Branch, ...]] = {}
        self._numbers = 0
        self.fragments = 0
        """Each counted once a logical destination, whatever the way."""
        self.sent_bytes = 0
        """The same in bytes, headers included."""
        self.hops = 0
        """Each fragment once a link that it crosses."""
        self.longest_queue = 0
        self.longest_queue_at = 0
        """The node before it."""
        self.time_on_links = 0
        """Summed over fragments, from joining a link's queue to having left the link's near end."""

    @property
    def lines(self) -> int:
        """How many directed links there are."""
        return len(self._lines)

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        sizes = list(self._cut(size))
        self.fragments += len(to) * len(sizes)
        self.sent_bytes += len(to) * sum(sizes)
        onto = [round(part * self._ns_per_byte) for part in sizes]
        arrivals: list[Arrival] = []
        for targets in [tuple(to)] if self._multicast else [(peer,) for peer in to]:
            branches = self._tree(source, targets)
            for place, nanoseconds in enumerate(onto, 1):
                self._cross(branches, nanoseconds, place == len(onto), now, arrivals)
        return arrivals

    def _cut(self, size: int) -> Iterator[int]:
        while size > self._room:
            yield self._room + self._header
            size -= self._room
        yield size + self._header

    def relay(self, onward: Any, now: int) -> list[Arrival]:
        fragment: _Fragment = onward
        branch, onto, final = fragment
        arrivals: list[Arrival] = []
        if final and branch.target:
            self._numbers += 1
            arrivals.append(Arrival(now, branch.node, self._numbers))
        self._cross(branch.branches, onto, final, now, arrivals)
        return arrivals

    def _cross(
        self, branches: Sequence[_Branch], onto: int, final: bool, now: int, arrivals: list[Arrival]
    ) -> None:
        """A fragment joins the queues of these branches' lines."""
        for branch in branches:
            line = branch.line
            ends = line.ends
            while ends and ends[0] <= now:
                ends.popleft()
            if len(ends) > self.longest_queue:
                self.longest_queue, self.longest_queue_at = len(ends), line.start
            line.busy = busy = max(now, line.busy) + onto
            ends.append(busy)
            self.hops += 1
            self.time_on_links += busy - now
            if branch.branches or final:
                self._numbers += 1
                onward = (branch, onto, final) if branch.branches else None
                arrivals.append(Arrival(busy + line.length, branch.node, self._numbers, onward))

    def _tree(self, node: int, to: tuple[int, ...]) -> tuple[_Branch, ...]:
        """The ways from `node` to each of `to`, as far as they are the same only once."""
        known = self._trees.get((node, to))
        if known is None:
            by_hop: dict[int, list[int]] = {}
            for peer in to:
                by_hop.setdefault(self._toward(peer)[node], []).append(peer)
            known = tuple(self._branch(node, hop, peers) for hop, peers in by_hop.items())
            self._trees[node, to] = known
        return known

    def _branch(self, node: int, hop: int, peers: list[int]) -> _Branch:
        beyond = tuple(peer for peer in peers if peer != hop)
        return _Branch(self._lines[node, hop], hop, len(beyond) < len(peers), self._tree(hop, beyond))

    def _toward(self, peer: int) -> list[int]:
        """For each node its next hop on the way to `peer`: the lowest of the nearest."""
        known = self._next.get(peer)
        if known is None:
            far = _distances(self._graph, peer)
            known = [
                min((other for other in neighbours if far[other] == far[node] - 1), default=node)
                for node, neighbours in enumerate(self._graph)
            ]
            self._next[peer] = known
        return known

    def figures(self, duration: int) -> dict[str, float]:
        return {
            "fragments": self.fragments,
            "sent_bytes": self.sent_bytes,
            "hops": self.hops,
            "longest_link_queue": self.longest_queue,
            "longest_link_queue_at": self.longest_queue_at,
            "mean_link_queue": self.time_on_links / max(1, duration * self.lines),
        }


class RoutedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="routed", tag_field="model"):
    """How to make a routed network; the defaults are paper 002's, `edge` as a first reading of it."""

    edge: float | None = None
    """The chance that two nodes are joined; by default 4 neighbours on average, or 1 % where that is more."""
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

    def build(self, size: int, seed: int) -> Routed:
        edge = max(0.01, 4 / size) if self.edge is None else self.edge
        return Routed(
            random_graph(size, edge * (size - 1), seed),
            seed,
            parse_delay(self.delay),
            bits_per_second=self.bits_per_second,
            header=self.header,
            mtu=self.mtu,
            multicast=self.multicast,
        )
