"""The precedence graph of transactions: causal steps and demands, and its topological order. Compiled,
linear.

A graph is in compressed sparse rows: the successors of node v are `target[start[v] : start[v + 1]]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.causality.topological_sort import kahn
from antecede.jit import njit_plain
from antecede.transactions.reads_from import ReadsFrom


def causal_graph(resolved: ReadsFrom) -> tuple[Any, Any]:
    """Session order (its immediate steps) and reads-from."""
    none = np.zeros(0, np.int32)
    return with_demands(resolved, none, none)


def with_demands(resolved: ReadsFrom, before: Any, after: Any) -> tuple[Any, Any]:
    """The causal graph with a step from each of `before` to its `after`; those to initial values are left
    out."""
    start, target = _build(
        resolved.session_start,
        resolved.read_start,
        resolved.read_writer,
        np.asarray(before),
        np.asarray(after),
    )
    return start, target


@njit_plain
def _build(session_start: Any, read_start: Any, read_writer: Any, before: Any, after: Any) -> Any:
    nodes = len(read_start) - 1
    start = np.zeros(nodes + 2, np.int64)
    for session in range(len(session_start) - 1):
        for node in range(session_start[session], session_start[session + 1] - 1):
            start[node + 2] += 1
    for row in range(len(read_writer)):
        if read_writer[row] >= 0:
            start[read_writer[row] + 2] += 1
    for row in range(len(before)):
        if after[row] >= 0:
            start[before[row] + 2] += 1
    for node in range(nodes):
        start[node + 2] += start[node + 1]
    target = np.empty(start[nodes + 1], np.int32)
    # start[v + 1] is the next free place of v's successors, and their end when all are entered.
    for session in range(len(session_start) - 1):
        for node in range(session_start[session], session_start[session + 1] - 1):
            target[start[node + 1]] = node + 1
            start[node + 1] += 1
    for node in range(nodes):
        for row in range(read_start[node], read_start[node + 1]):
            writer = read_writer[row]
            if writer >= 0:
                target[start[writer + 1]] = node
                start[writer + 1] += 1
    for row in range(len(before)):
        if after[row] >= 0:
            target[start[before[row] + 1]] = after[row]
            start[before[row] + 1] += 1
    return start[: nodes + 1], target


def topological_order(start: Any, target: Any) -> Any:
    """The nodes in topological order; fewer than all of them if there is a cycle."""
    incoming = np.zeros(len(start), np.int64)
    np.cumsum(np.bincount(target, minlength=len(start) - 1), out=incoming[1:])
    order, count = kahn(incoming, start, target)
    return order[:count].astype(np.int32)


@njit_plain
def causal_past(order: Any, session_of: Any, read_start: Any, read_writer: Any, last: Any) -> Any:
    """For each transaction, whether it is `last` or causally precedes it; `order` contains the causal
    order."""
    inside = np.zeros(len(order), np.bool_)
    inside[last] = True
    for place in range(len(order) - 1, -1, -1):
        node = order[place]
        if inside[node]:
            if node > 0 and session_of[node - 1] == session_of[node]:
                inside[node - 1] = True
            for row in range(read_start[node], read_start[node + 1]):
                if read_writer[row] >= 0:
                    inside[read_writer[row]] = True
    return inside
