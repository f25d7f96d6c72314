"""What is in each message's past: compiled passes over vectors, without looking at deliveries again.

The causal past of a message is a count for each *stream*, the messages of one origin to one audience: whoever
sent one had sent all before it. So a vector for each message is exact, whatever was lost or overtaken. From
its sender's own log comes the latest of each stream that the sender had; those of one stream know more and
more, so the pasts of these latest are all there is to add (`close`). Taken with causes first, that is one
pass; and most of them are in the past of another already, so that few are added.

Around a cycle a message comes to be in its own past; then there is no such order, and passes go on until
nothing changes.

Costs: messages × streams × (1 + immediate dependencies a message) / 16 steps; vectors are messages × streams
× 2 bytes (4 if a stream is long), in a file if need be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain

_UNSEEN, _BEGUN, _DONE = 0, 1, 2


class MessageStreams(NamedTuple):
    """All messages, numbered stream by stream, each in its sender's order."""

    first: np.ndarray
    """The number of each stream's first message; one more at the end."""
    stream: np.ndarray
    """Of each message."""
    previous: np.ndarray
    """What its sender sent before; -1 if nothing."""


def number_type(first: np.ndarray) -> np.dtype[Any]:
    """What vectors over these streams are made of: two bytes if they can be, as less has to be moved then."""
    longest = int(np.diff(first).max(initial=0))
    return np.dtype(np.uint16 if longest < np.iinfo(np.uint16).max else np.int32)


def close(sends: MessageStreams, vectors: np.ndarray) -> bool:
    """From what each message's sender had itself to all that happened before; whether there is a cycle."""
    order, cyclic = causes_first(sends, vectors)
    if cyclic:
        while add_until_closed(sends, vectors):
            pass
    else:
        add_in_order(sends, order, vectors)
    return bool(cyclic)


@njit_plain
def causes_first(sends: Any, vectors: Any) -> Any:
    """All messages, causes before effects; and whether that cannot be, because of a cycle."""
    first, previous = sends.first, sends.previous
    size, width = vectors.shape
    order, placed = np.empty(size, np.int64), 0
    seen, resume = np.zeros(size, np.int8), np.zeros(size, np.int32)
    stack = np.empty(size, np.int64)
    for root in range(size):
        if seen[root] != _UNSEEN:
            continue
        depth, stack[0], seen[root] = 1, root, _BEGUN
        while depth:
            message = stack[depth - 1]
            before = previous[message]
            cause = np.int64(-1)
            if before >= 0 and seen[before] == _BEGUN:
                return order, True
            if before >= 0 and seen[before] == _UNSEEN:
                cause = before
            else:
                stream = resume[message]
                while stream < width and cause < 0:
                    count = vectors[message, stream]
                    if count and (before < 0 or count > vectors[before, stream]):
                        latest = first[stream] + count - 1
                        if seen[latest] == _BEGUN:
                            return order, True
                        if seen[latest] == _UNSEEN:
                            cause = latest
                    stream += 1
                resume[message] = stream
            if cause >= 0:
                seen[cause] = _BEGUN
                stack[depth] = cause
                depth += 1
            else:
                seen[message] = _DONE
                order[placed] = message
                placed += 1
                depth -= 1
    return order, False


@njit_plain
def add_in_order(sends: Any, order: Any, vectors: Any) -> Any:
    """To each message the pasts of what its sender had, latest first, except those that come with another."""
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
def add_until_closed(sends: Any, vectors: Any) -> Any:
    """The same where no order helps: how many messages learn from others. Done when none does."""
    first = sends.first
    size, width = vectors.shape
    learnt = 0
    for message in range(size):
        vector, more = vectors[message], False
        for stream in range(width):
            if vector[stream]:
                past = vectors[first[stream] + vector[stream] - 1]
                for other in range(width):
                    more |= past[other] > vector[other]
                    vector[other] = max(past[other], vector[other])
        learnt += more
    return learnt


@njit_plain
def chain(sends: Any, vectors: Any, had: Any, effect: Any) -> Any:
    """A shortest chain of messages that ends in `effect`, each sent by a process that had the one before. It
    begins with one whose sender `had` what is looked for. `vectors` are what senders had, not closed.

    Of a stream only the latest needs a look: whatever its sender had, it had before the latest as well.
    """
    size, width = vectors.shape
    towards, queue = np.full(size, -1, np.int64), np.empty(size, np.int64)
    queue[0], towards[effect] = effect, effect
    head, tail = 0, 1
    while head < tail:
        message = queue[head]
        head += 1
        if had[message]:
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
