"""Topological sorting, causes before effects: Kahn's algorithm on explicit edges, depth-first search on
vectors.

`kahn` needs every message's causes and effects as edges, and costs messages + edges. `depth_first` reads the
causes off vectors of counts (see `transitive_closure`), which would be messages × streams edges if they were
written down; it costs that many steps and 21 bytes per message.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain

_UNVISITED, _ON_PATH, _SORTED = 0, 1, 2


@njit_plain
def kahn(cause_start: Any, effect_start: Any, effects: Any) -> Any:
    """The messages in topological order, and how many there are: fewer than all if there is a cycle.

    Message m has cause_start[m + 1] - cause_start[m] causes; its effects are
    effects[effect_start[m]:effect_start[m + 1]]. The output doubles as the queue of messages that are ready.
    """
    size = len(cause_start) - 1
    order, unsorted_causes = np.empty(size, np.int64), np.diff(cause_start)
    count = 0
    for message in range(size):
        if unsorted_causes[message] == 0:
            order[count] = message
            count += 1
    head = 0
    while head < count:
        message = order[head]
        head += 1
        for edge in range(effect_start[message], effect_start[message + 1]):
            effect = effects[edge]
            unsorted_causes[effect] -= 1
            if unsorted_causes[effect] == 0:
                order[count] = effect
                count += 1
    return order, count


@njit_plain
def depth_first(first: Any, previous: Any, vectors: Any) -> Any:
    """The messages in topological order, and whether there is none because of a cycle.

    The causes of a message are its sender's previous one and, in each stream, the latest that its vector
    counts; `first` is the first message of each stream, `previous` is -1 for a sender's first message.
    """
    size, width = vectors.shape
    order, count = np.empty(size, np.int64), 0
    state, next_stream = np.zeros(size, np.int8), np.zeros(size, np.int32)
    path = np.empty(size, np.int64)
    for root in range(size):
        if state[root] != _UNVISITED:
            continue
        depth, path[0], state[root] = 1, root, _ON_PATH
        while depth:
            message = path[depth - 1]
            before = previous[message]
            cause = np.int64(-1)
            if before >= 0 and state[before] == _ON_PATH:
                return order, True
            if before >= 0 and state[before] == _UNVISITED:
                cause = before
            else:
                stream = next_stream[message]
                while stream < width and cause < 0:
                    sent = vectors[message, stream]
                    if sent and (before < 0 or sent > vectors[before, stream]):
                        latest = first[stream] + sent - 1
                        if state[latest] == _ON_PATH:
                            return order, True
                        if state[latest] == _UNVISITED:
                            cause = latest
                    stream += 1
                next_stream[message] = stream
            if cause >= 0:
                state[cause] = _ON_PATH
                path[depth] = cause
                depth += 1
            else:
                state[message] = _SORTED
                order[count] = message
                count += 1
                depth -= 1
    return order, False
