"""Shortest paths through the graph of causal steps and demands, compiled: breadth first, with steps along a
session counted as one.

Session order is transitive, so from a transaction to any later one of its session is one step. The graph has
only the steps to the next one; all but the first of a run are free (0-1 breadth-first search on nodes that
remember whether they were reached along a session).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain

_CALL = 500
"""The number of visits that take as long as one call of a search."""


class Finder:
    """Searches one graph from many nodes; memory is allocated once."""

    def __init__(self, start: Any, target: Any, session_of: Any) -> None:
        nodes = len(session_of)
        self._graph = start, target, session_of
        self._length, self._parent = np.empty(2 * nodes, np.int32), np.empty(2 * nodes, np.int32)
        self._stamp, self._round = np.full(2 * nodes, -1, np.int64), 0
        self._queue = np.empty(4 * nodes + 4, np.int32), np.empty(4 * nodes + 4, np.int32)
        self.visits = 0
        """Nodes visited so far, and the calls in the same unit, for callers with a limit."""

    def length(self, source: int, goal: int, below: int) -> int:
        """The number of steps from `source` to `goal`, at least 1 unless they are the same; `below` if not
        fewer."""
        if source == goal:
            return 0
        self._round += 1
        length, visits = _search(
            *self._graph,
            source,
            goal,
            below,
            self._round,
            self._stamp,
            self._length,
            self._parent,
            *self._queue,
        )
        self.visits += visits + _CALL
        return int(length)

    def path(self, source: int, goal: int) -> list[int]:
        """The transactions from `source` to `goal`, both included; none from the initial values."""
        if source < 0 or self.length(source, goal, 2**30) == 2**30:
            return []
        states = [2 * goal + min((0, 1), key=lambda riding: self._reached(2 * goal + riding))]
        while states[-1] // 2 != source:
            states.append(int(self._parent[states[-1]]))
        turns = [
            state
            for place, state in enumerate(states)
            if place == 0 or states[place - 1] % 2 == 0 or state % 2 == 0
        ]
        return [state // 2 for state in reversed(turns)]

    def _reached(self, state: int) -> int:
        return int(self._length[state]) if self._stamp[state] == self._round else 2**30


@njit_plain
def _search(
    start: Any,
    target: Any,
    session_of: Any,
    source: Any,
    goal: Any,
    below: Any,
    stamp_now: Any,
    stamp: Any,
    length: Any,
    parent: Any,
    now: Any,
    later: Any,
) -> Any:
    """State 2·v: v was reached by a read or a demand; 2·v + 1: along its session. Two queues, one per
    distance."""
    now[0] = 2 * source
    stamp[2 * source], length[2 * source], parent[2 * source] = stamp_now, 0, -1
    size, distance, visits = 1, 0, 0
    while size > 0 and distance < below:
        size_later, place = 0, 0
        while place < size:
            state = now[place]
            place += 1
            if length[state] < distance:
                continue  # It was reached with fewer steps meanwhile.
            visits += 1
            node, riding = state >> 1, state & 1
            if node == goal:
                return distance, visits
            for row in range(start[node], start[node + 1]):
                there = target[row]
                session_step = there == node + 1 and session_of[there] == session_of[node]
                cost = 0 if session_step and riding else 1
                successor = 2 * there + (1 if session_step else 0)
                if stamp[successor] == stamp_now and length[successor] <= distance + cost:
                    continue
                stamp[successor], length[successor], parent[successor] = stamp_now, distance + cost, state
                if cost == 0:
                    now[size] = successor
                    size += 1
                else:
                    later[size_later] = successor
                    size_later += 1
        now, later = later, now
        size = size_later
        distance += 1
    return below, visits
