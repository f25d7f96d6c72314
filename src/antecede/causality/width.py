"""Depth and width of a dependency graph.

The depth is the longest chain. The width is the largest antichain: the most messages of which none happened
before another. By Dilworth's theorem it equals the least number of chains that cover all messages. That
number is a minimum flow through the graph of immediate dependencies in which every message takes at least one
unit. A greedy path cover is improved in phases of disjoint augmenting paths, as Hopcroft and Karp do for
matchings: as long as the end of one path can be joined to the beginning of another, rerouting the paths
between if need be, there is one path less. As in König's theorem, what can be reached from the remaining ends
then yields an antichain with as many messages as there are paths, so the answer proves itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain


@njit_plain
def depths(start: Any, cause: Any, order: Any) -> Any:
    """For each message, the length of the longest chain that ends with it."""
    depth = np.ones(len(order), np.int32)
    for message in order:
        for edge in range(start[message], start[message + 1]):
            depth[message] = max(depth[message], depth[cause[edge]] + 1)
    return depth


@njit_plain
def largest_frontier(start: Any, cause: Any, order: Any) -> Any:
    """The most messages that have no effect yet at any time, if they arrive in this order."""
    has_effect = np.zeros(len(order), np.bool_)
    frontier, most = 0, 0
    for message in order:
        frontier += 1
        for edge in range(start[message], start[message + 1]):
            frontier -= not has_effect[cause[edge]]
            has_effect[cause[edge]] = True
        most = max(most, frontier)
    return most


def largest_antichain(start: np.ndarray, cause: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A largest set of messages of which none happened before another."""
    size = len(order)
    by_cause = np.argsort(cause, kind="stable")
    effect = np.repeat(np.arange(size), np.diff(start))
    effect_start = np.searchsorted(cause[by_cause], np.arange(size + 1))
    begins, ends, through = np.ones(size, np.int64), np.ones(size, np.int64), np.ones(size, np.int64)
    flow = np.zeros(len(cause), np.int64)
    greedy_path_cover(start, cause, order, begins, ends, flow)
    visited = np.empty(2 * size, np.bool_)
    while augment(start, cause, effect_start, by_cause, effect, begins, ends, through, flow, visited):
        pass
    antichain: np.ndarray = np.flatnonzero(visited[1::2] & ~visited[::2])
    return antichain


@njit_plain
def greedy_path_cover(start: Any, cause: Any, order: Any, begins: Any, ends: Any, flow: Any) -> Any:
    """A first path cover: each message extends the path of a cause that is still a path's end."""
    for message in order:
        for edge in range(start[message], start[message + 1]):
            if ends[cause[edge]]:
                ends[cause[edge]] = begins[message] = 0
                flow[edge] = 1
                break


@njit_plain
def augment(
    start: Any, cause: Any, effect_start: Any, by_cause: Any, effect: Any,
    begins: Any, ends: Any, through: Any, flow: Any, visited: Any,
) -> Any:  # fmt: skip
    """Join ends of paths to beginnings of others along disjoint augmenting paths. Returns how many were
    joined.

    Every message is two nodes of the flow network: 2m, where it is entered, and 2m + 1, where it is left.
    Each node is visited once.
    """
    size = len(begins)
    joined = 0
    visited[:] = False
    edge_to = np.empty(2 * size, np.int64)
    stack, next_edge = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
    for last in range(size):
        while ends[last] > 0 and not visited[2 * last + 1]:
            height = find_augmenting_path(
                start, cause, effect_start, by_cause, effect,
                begins, through, flow, visited, last, stack, next_edge, edge_to,
            )  # fmt: skip
            if height == 0:
                continue
            joined += 1
            ends[last] -= 1
            begins[stack[height - 1] >> 1] -= 1
            for above in range(1, height):
                to = stack[above]
                edge = edge_to[to]
                if edge < 0:
                    through[to >> 1] += 1 if to & 1 else -1
                else:
                    flow[edge] += -1 if to & 1 else 1
    return joined


@njit_plain
def find_augmenting_path(
    start: Any, cause: Any, effect_start: Any, by_cause: Any, effect: Any,
    begins: Any, through: Any, flow: Any, visited: Any, last: Any, stack: Any, next_edge: Any, edge_to: Any,
) -> Any:  # fmt: skip
    """Depth-first search from the end `last` to the beginning of another path: `stack` holds the nodes on the
    way, as many as the result says; 0 if there is no way. `edge_to` is the edge by which each was reached, -1
    within a message."""
    height = 1
    stack[0], next_edge[0] = 2 * last + 1, 0
    visited[2 * last + 1] = True
    while height:
        node, choice = stack[height - 1], next_edge[height - 1]
        message = node >> 1
        next_edge[height - 1] += 1
        to, edge = np.int64(-1), np.int64(-1)
        if node & 1:
            # Go on to an effect; or, if several paths pass through this message, remove this one.
            if choice < effect_start[message + 1] - effect_start[message]:
                edge = by_cause[effect_start[message] + choice]
                to = 2 * effect[edge]
            elif choice == effect_start[message + 1] - effect_start[message]:
                to = 2 * message if through[message] > 1 else to
            else:
                height -= 1
                continue
        elif begins[message] > 0:
            return height
        # Push back a path that enters from a cause; or pass through this message once more.
        elif choice < start[message + 1] - start[message]:
            edge = start[message] + choice
            to = 2 * cause[edge] + 1 if flow[edge] > 0 else to
        elif choice == start[message + 1] - start[message]:
            to = 2 * message + 1
        else:
            height -= 1
            continue
        if to >= 0 and not visited[to]:
            visited[to] = True
            edge_to[to] = edge
            stack[height], next_edge[height] = to, 0
            height += 1
    return 0
