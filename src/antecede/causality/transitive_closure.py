"""The causal past of every message, as vectors: the transitive closure of "its sender had it", compiled.

A *stream* is the messages of one origin to one audience. The sender of a message of a stream had sent all
earlier ones, so one count for each stream, a vector clock, describes a message's past exactly, even if
messages are lost or overtaken. A sender's log gives the latest message of each stream that the sender had.
Later messages of a stream know more than earlier ones, so only the pasts of these latest messages have to be
added (`close_transitively`). In topological order one pass is enough, and few pasts are added, because most
of the latest messages are already in the past of another.

On a cycle a message is in its own past, and there is no topological order. Passes are then repeated until
nothing changes.

Cost: messages × streams × (1 + immediate dependencies a message) / 16 steps. The vectors take messages ×
streams × 2 bytes (4 if a stream is long); they may be memory-mapped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.causality.topological_sort import depth_first
from antecede.jit import njit_plain


class MessageStreams(NamedTuple):
    """All messages, numbered stream by stream, and within a stream in the order sent."""

    first: np.ndarray
    """The first message of each stream, and the number of messages at the end."""
    stream: np.ndarray
    """The stream of each message."""
    previous: np.ndarray
    """The message that the same sender sent before; -1 if there is none."""


def count_dtype(first: np.ndarray) -> np.dtype[Any]:
    """The type of the counts in vectors over these streams: two bytes if they suffice, to move less
    memory."""
    longest = int(np.diff(first).max(initial=0))
    return np.dtype(np.uint16 if longest < np.iinfo(np.uint16).max else np.int32)


def close_transitively(sends: MessageStreams, vectors: np.ndarray) -> bool:
    """Extend each vector, in place, from the sender's direct knowledge to the whole causal past; returns
    whether there is a cycle."""
    order, cyclic = depth_first(sends.first, sends.previous, vectors)
    if cyclic:
        while add_pasts(sends, vectors):
            pass
    else:
        add_pasts_in_order(sends, order, vectors)
    return bool(cyclic)


@njit_plain
def add_pasts_in_order(sends: Any, order: Any, vectors: Any) -> Any:
    """In topological order, add to each message the pasts of the messages its sender had: the latest first,
    skipping those in the past of one already added."""
    first = sends.first
    size, width = vectors.shape
    position = np.empty(size, np.int64)
    for place in range(size):
        position[order[place]] = place
    latest, streams = np.empty(width, np.int64), np.empty(width, np.int64)
    added = np.empty(width, vectors.dtype)
    for message in order:
        vector, before = vectors[message], sends.previous[message]
        if before >= 0:
            added[:] = vectors[before]
        else:
            added[:] = 0
        count = 0
        for stream in range(width):
            if vector[stream] > added[stream]:
                latest[count] = position[first[stream] + vector[stream] - 1]
                streams[count] = stream
                count += 1
        for place in np.argsort(-latest[:count]):
            stream = streams[place]
            if added[stream] < vector[stream]:
                past = vectors[order[latest[place]]]
                for other in range(width):
                    added[other] = max(added[other], past[other])
        for stream in range(width):
            vector[stream] = max(vector[stream], added[stream])


@njit_plain
def add_pasts(sends: Any, vectors: Any) -> Any:
    """One pass in any order, for graphs with cycles. Returns how many vectors grew; at 0, the closure is
    complete."""
    first = sends.first
    size, width = vectors.shape
    changed = 0
    for message in range(size):
        vector, grew = vectors[message], False
        for stream in range(width):
            if vector[stream]:
                past = vectors[first[stream] + vector[stream] - 1]
                for other in range(width):
                    grew |= past[other] > vector[other]
                    vector[other] = max(past[other], vector[other])
        changed += grew
    return changed


@njit_plain
def shortest_chain(sends: Any, vectors: Any, is_start: Any, effect: Any) -> Any:
    """A shortest chain of messages from one that `is_start` marks to `effect`, by breadth-first search:
    each is sent by a process that had the one before. Empty if there is none. `vectors` say what senders
    had; they are not closed.

    Only the latest message of each stream is visited: what the sender of an earlier one had, it still had
    when it sent the latest.
    """
    size, width = vectors.shape
    towards, queue = np.full(size, -1, np.int64), np.empty(size, np.int64)
    queue[0], towards[effect] = effect, effect
    head, tail = 0, 1
    while head < tail:
        message = queue[head]
        head += 1
        if is_start[message]:
            length, at = 1, message
            while at != effect:
                at = towards[at]
                length += 1
            path, at = np.empty(length, np.int64), message
            for place in range(length):
                path[place] = at
                at = towards[at]
            return path
        for stream in range(width):
            count = vectors[message, stream]
            if count:
                latest = sends.first[stream] + count - 1
                if towards[latest] < 0:
                    towards[latest] = message
                    queue[tail] = latest
                    tail += 1
    return np.empty(0, np.int64)
