"""The shape of a dependency graph: how deep it is, and how wide.

The width of an order is its largest antichain: the most messages of which none happened before another. By
Dilworth's theorem that is the least number of chains that cover all messages. It is found as a least flow
through the graph of immediate dependencies, every message needing one unit or more: any cover by paths is
such a flow, and as long as the end of one path can be joined to the begin of another, around all the others
if need be, there is one less. What can then be reached from the ends shows an antichain of as many
messages, so the answer proves itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain


@njit_plain
def depths(start: Any, cause: Any, order: Any) -> Any:
    """How many messages the longest chain has that ends with each one."""
    depth = np.ones(len(order), np.int32)
    for message in order:
        for link in range(start[message], start[message + 1]):
            depth[message] = max(depth[message], depth[cause[link]] + 1)
    return depth


@njit_plain
def largest_frontier(start: Any, cause: Any, order: Any) -> Any:
    """The most messages without effect at any time, if they come in this order."""
    has_effect = np.zeros(len(order), np.bool_)
    frontier, most = 0, 0
    for message in order:
        frontier += 1
        for link in range(start[message], start[message + 1]):
            frontier -= not has_effect[cause[link]]
            has_effect[cause[link]] = True
        most = max(most, frontier)
    return most


def largest_antichain(start: np.ndarray, cause: np.ndarray, order: np.ndarray) -> np.ndarray:
    """As many messages as there can be of which none happened before another."""
    size = len(order)
    by_cause = np.argsort(cause, kind="stable")
    effect = np.repeat(np.arange(size), np.diff(start))
    after = np.searchsorted(cause[by_cause], np.arange(size + 1))
    begins, ends, through = np.ones(size, np.int64), np.ones(size, np.int64), np.ones(size, np.int64)
    flow = np.zeros(len(cause), np.int64)
    cover(start, cause, order, begins, ends, flow)
    seen = np.empty(2 * size, np.bool_)
    while join(start, cause, after, by_cause, effect, begins, ends, through, flow, seen):
        pass
    antichain: np.ndarray = np.flatnonzero(seen[1::2] & ~seen[::2])
    return antichain


@njit_plain
def cover(start: Any, cause: Any, order: Any, begins: Any, ends: Any, flow: Any) -> Any:
    """Paths to begin with: each message goes on with one cause that no other goes on with."""
    for message in order:
        for link in range(start[message], start[message + 1]):
            if ends[cause[link]]:
                ends[cause[link]] = begins[message] = 0
                flow[link] = 1
                break


@njit_plain
def join(
    start: Any, cause: Any, after: Any, by_cause: Any, effect: Any,
    begins: Any, ends: Any, through: Any, flow: Any, seen: Any,
) -> Any:  # fmt: skip
    """Join what ends to what begins, each place being seen once: how many were. Place 2m is where message m
    is entered, 2m + 1 where it is left."""
    size = len(begins)
    joined = 0
    seen[:] = False
    link_to, stack, at = (
        np.empty(2 * size, np.int64),
        np.empty(2 * size, np.int64),
        np.empty(2 * size, np.int64),
    )
    for last in range(size):
        while ends[last] > 0 and not seen[2 * last + 1]:
            height = 1
            stack[0], at[0] = 2 * last + 1, 0
            seen[2 * last + 1] = True
            found = False
            while height and not found:
                place, step = stack[height - 1], at[height - 1]
                message = place >> 1
                at[height - 1] += 1
                to, link = np.int64(-1), np.int64(-1)
                if place & 1:
                    # Go on with an effect; or, if more than one path comes through, take this one away.
                    if step < after[message + 1] - after[message]:
                        link = by_cause[after[message] + step]
                        to = 2 * effect[link]
                    elif step == after[message + 1] - after[message]:
                        to = 2 * message if through[message] > 1 else to
                    else:
                        height -= 1
                        continue
                elif begins[message] > 0:
                    found = True
                    break
                # Push a path that comes in out of its way; or come through as one more.
                elif step < start[message + 1] - start[message]:
                    link = start[message] + step
                    to = 2 * cause[link] + 1 if flow[link] > 0 else to
                elif step == start[message + 1] - start[message]:
                    to = 2 * message + 1
                else:
                    height -= 1
                    continue
                if to >= 0 and not seen[to]:
                    seen[to] = True
                    link_to[to] = link
                    stack[height], at[height] = to, 0
                    height += 1
            if found:
                joined += 1
                ends[last] -= 1
                begins[stack[height - 1] >> 1] -= 1
                for above in range(1, height):
                    to = stack[above]
                    link = link_to[to]
                    if link < 0:
                        through[to >> 1] += 1 if to & 1 else -1
                    else:
                        flow[link] += -1 if to & 1 else 1
    return joined
