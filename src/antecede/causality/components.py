"""Strongly connected components: the cycles of a graph.

Records that no cycle reaches, or that reach none, are removed first (Kahn's algorithm in both directions, in
compiled code); a log without cycles ends there. On what is left, Tarjan's algorithm, without recursion.
"""

from __future__ import annotations

import numpy as np

from antecede.causality.topological_sort import kahn


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
    nodes = np.flatnonzero(left)
    place = np.full(size, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    found = _tarjan(len(nodes), place[source[inside]], place[target[inside]])
    return sorted((nodes[np.sort(each)] for each in found), key=lambda each: int(each[0]))


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


def _tarjan(size: int, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    by_source = np.argsort(source, kind="stable")
    targets = target[by_source].tolist()
    starts = np.searchsorted(source[by_source], np.arange(size + 1)).tolist()
    loops = set(source[source == target].tolist())
    number, low, on_stack = [-1] * size, [0] * size, [False] * size
    following = starts[:size]
    stack: list[int] = []
    found: list[np.ndarray] = []
    count = 0
    for root in range(size):
        path = [root] if number[root] < 0 else []
        while path:
            node = path[-1]
            if number[node] < 0:
                number[node] = low[node] = count
                count += 1
                stack.append(node)
                on_stack[node] = True
            if following[node] < starts[node + 1]:
                each = targets[following[node]]
                following[node] += 1
                if number[each] < 0:
                    path.append(each)
                elif on_stack[each]:
                    low[node] = min(low[node], number[each])
                continue
            path.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[node])
            if low[node] == number[node]:
                component: list[int] = []
                while not component or component[-1] != node:
                    component.append(stack.pop())
                    on_stack[component[-1]] = False
                if len(component) > 1 or node in loops:
                    found.append(np.array(component, np.int64))
    return found
