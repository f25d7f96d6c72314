"""Strongly connected components: the cycles of a graph.

Records that no cycle reaches, or that reach none, are removed first (Kahn's algorithm in both directions, in
compiled code); a log without cycles ends there. Tarjan's algorithm, without recursion, runs on the rest. Time
and memory are linear in nodes and edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.causality.topological_sort import kahn
from antecede.jit import njit_plain


def components(size: int, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """The components of more than one node, and the nodes with an edge to themselves; nodes ascend.

    >>> [each.tolist() for each in components(4, np.array([0, 1, 2, 3]), np.array([1, 0, 3, 3]))]
    [[0, 1], [3]]
    """
    left = _on_cycles_forwards(size, source, target)
    if not left.any():
        return []
    inside = left[source] & left[target]
    source, target = source[inside], target[inside]
    left &= _on_cycles_forwards(size, target, source)
    inside = left[source] & left[target]
    source, target = source[inside], target[inside]
    nodes = np.flatnonzero(left)
    place = np.full(size, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    by_source = np.argsort(place[source], kind="stable")
    starts = np.searchsorted(place[source][by_source], np.arange(len(nodes) + 1))
    number = component_numbers(starts, place[target][by_source])
    members = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number))
    loops = np.zeros(size, np.bool_)
    loops[source[source == target]] = True
    found = (nodes[each] for each in np.split(members, ends[:-1]))
    cycles = (each for each in found if len(each) > 1 or loops[each[0]])
    return sorted(cycles, key=lambda each: int(each[0]))


def _on_cycles_forwards(size: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The nodes that Kahn's algorithm cannot sort: on cycles, or after them."""
    by_source = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[by_source], np.arange(size + 1))
    incoming = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=size), out=incoming[1:])
    order, count = kahn(incoming, starts, target[by_source])
    left = np.ones(size, np.bool_)
    left[order[:count]] = False
    return left


@njit_plain
def component_numbers(start: Any, target: Any) -> Any:
    """For each node the number of its strongly connected component (Tarjan 1972, without recursion).

    The successors of node v are target[start[v]:start[v + 1]].
    """
    nodes = len(start) - 1
    component = np.full(nodes, -1, np.int32)
    index, low = np.full(nodes, -1, np.int32), np.zeros(nodes, np.int32)
    next_row = start[:nodes].copy()
    open_nodes, calls = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    opened = found = count = 0
    for root in range(nodes):
        if index[root] >= 0:
            continue
        depth = 0
        calls[0] = root
        while depth >= 0:
            node = calls[depth]
            if index[node] < 0:
                index[node] = low[node] = count
                count += 1
                open_nodes[opened] = node
                opened += 1
            descended = False
            while next_row[node] < start[node + 1]:
                successor = target[next_row[node]]
                next_row[node] += 1
                if index[successor] < 0:
                    depth += 1
                    calls[depth] = successor
                    descended = True
                    break
                if component[successor] < 0:
                    low[node] = min(low[node], index[successor])
            if descended:
                continue
            if low[node] == index[node]:
                while True:
                    opened -= 1
                    component[open_nodes[opened]] = found
                    if open_nodes[opened] == node:
                        break
                found += 1
            depth -= 1
            if depth >= 0:
                low[calls[depth]] = min(low[calls[depth]], low[node])
    return component
