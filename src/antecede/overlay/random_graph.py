"""Connected random graphs (Erdős–Rényi), and distances in them."""

from __future__ import annotations

from collections import deque
from typing import Protocol

Graph = list[list[int]]
"""The neighbours of each node."""


class IndexedRandom(Protocol):
    """Random values by index, so that a graph does not depend on the order of drawing."""

    def happens(self, number: int, probability: float) -> bool: ...
    def between(self, number: int, low: int, high: int) -> int: ...


def random_graph(size: int, degree: float, random: IndexedRandom) -> Graph:
    """Link every two nodes with the same probability, `degree` neighbours each on average.

    Components that are left apart are joined to the rest by one more link each.
    """
    probability = min(1.0, degree / max(1, size - 1))
    graph: Graph = [[] for _ in range(size)]
    for one in range(size):
        for other in range(one + 1, size):
            if random.happens(one * size + other, probability):
                graph[one].append(other)
                graph[other].append(one)
    reached = set(hop_counts(graph, 0)) if size else set()
    for node in range(size):
        if node not in reached:
            other = sorted(reached)[random.between(size * size + node, 0, len(reached))]
            graph[node].append(other)
            graph[other].append(node)
            reached |= set(hop_counts(graph, node))
    return [sorted(neighbours) for neighbours in graph]


def hop_counts(graph: Graph, start: int) -> dict[int, int]:
    """How many links each reachable node is away from `start`, by breadth-first search."""
    distance = {start: 0}
    pending = deque([start])
    while pending:
        node = pending.popleft()
        for other in graph[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                pending.append(other)
    return distance
