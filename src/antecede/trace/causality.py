"""What happened before what, in a log of any shape: compiled passes over the processes' own rows.

The causal past of a message is a count for each *stream*, the messages of one origin to one audience: whoever
sent one had sent all before it. So a vector for each message is exact, whatever was lost or overtaken. It
is what its sender had delivered, and the pasts of all that. Where everything came in order, what the sender
had delivered is closed already, and one pass that finds nothing to add proves it; otherwise passes go on
until there is nothing to add, and each repairs only what changed. Around a cycle a message comes to be in
its own past: then there are deliveries before their own send, which are taken out, and all is done again.

`order/` says the same in Python's integers and is the judge of this.

Messages are numbered stream by stream. State is processes × (streams × 12 + messages / 4) bytes for
those that are looked at together; vectors are messages × streams × 4, in a file if need be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import compiled

SEND, DELIVER = 0, 1
_EVERYTHING = np.int32((1 << 31) - 1)
_1 = np.uint64(1)

DELIVERIES, DUPLICATES, CAUSAL, CAUSAL_LATE, PAIRS_LATE, PAIRS_NEVER, FIFO, MISSING, _COUNTS = range(9)


class Streams(NamedTuple):
    """Who sends to whom."""

    first: np.ndarray
    """The number of each stream's first message; one more at the end."""
    origin: np.ndarray
    """The process that sends each."""
    audience: np.ndarray
    """Processes × streams: whether it is meant for them; one's own always are."""

    @property
    def messages(self) -> int:
        return int(self.first[-1])


class Rows(NamedTuple):
    """What some processes did, each in its own order, one after the other."""

    process: np.ndarray
    """The rank of each of these processes."""
    start: np.ndarray
    """Where its rows begin; one more at the end."""
    kind: np.ndarray
    message: np.ndarray
    """The message's number; -1 if nobody sent it, so that it stands in no order."""


class State(NamedTuple):
    """What is known of these processes so far."""

    counts: np.ndarray
    ever: np.ndarray
    """Bits: what each has at the end."""
    so_far: np.ndarray
    base: np.ndarray
    """Of each stream, how many from the first on need not be waited for."""
    knows: np.ndarray
    """What has happened before, as each knows it."""
    aside: np.ndarray
    """Whether a row passes nothing on: what the process had already, or has before it was sent."""


class Root(NamedTuple):
    """What a process did not have in time, and what came of it."""

    process: int
    cause: int
    late: int
    """1 if it came afterwards, 0 if it never came."""
    effect: int
    """The row of the first delivery that needed it."""
    consequences: int
    """How many did."""


class Settled(NamedTuple):
    state: State
    impossible: int
    roots: list[Root]
    """In the order of processes, and in that of each's own rows."""


def fresh(rows: Rows, streams: Streams) -> State:
    size, words = len(rows.process), (streams.messages >> 6) + 1
    counts = len(streams.origin)
    return State(
        counts=np.zeros(_COUNTS, np.int64),
        ever=np.zeros((size, words), np.uint64),
        so_far=np.zeros((size, words), np.uint64),
        base=np.zeros((size, counts), np.int32),
        knows=np.zeros((size, counts), np.int32),
        aside=np.zeros(len(rows.kind), np.bool_),
    )


def settle(rows: Rows, streams: Streams, vectors: np.ndarray, most_roots: int = 0) -> Settled:
    """All passes over the rows of all processes. `vectors` are zeros; in the end, every message's past."""
    state, impossible = find_pasts(rows, streams, vectors)
    roots = np.zeros((most_roots, len(Root._fields)), np.int64)
    found = count(rows, streams, state, _stream_of(streams), vectors, roots)
    return Settled(state, impossible, [Root(*root) for root in roots[: min(found, most_roots)].tolist()])


def find_pasts(rows: Rows, streams: Streams, vectors: np.ndarray) -> tuple[State, int]:
    """Every message's past, into `vectors`, which are zeros; and how many deliveries were impossible."""
    state = fresh(rows, streams)
    stream_of = _stream_of(streams)
    gather(rows, streams, state)
    _agree(rows, streams, state, stream_of, vectors)
    impossible = 0
    if in_own_past(streams, stream_of, vectors):
        impossible = cut_cycles(rows, streams, state, stream_of, vectors)
        vectors[:] = 0
        _agree(rows, streams, state, stream_of, vectors)
    return state, impossible


def _stream_of(streams: Streams) -> np.ndarray:
    return np.repeat(np.arange(len(streams.origin)), np.diff(streams.first)).astype(np.int32)


def _agree(rows: Rows, streams: Streams, state: State, stream_of: np.ndarray, vectors: np.ndarray) -> None:
    while learn(rows, streams, state, stream_of, vectors):
        pass


@compiled
def gather(rows: Any, streams: Any, state: Any) -> Any:
    """What each process has in the end; what it lacks or has twice."""
    for place in range(len(rows.process)):
        me, ever = rows.process[place], state.ever[place]
        for row in range(rows.start[place], rows.start[place + 1]):
            message = rows.message[row]
            if rows.kind[row] == DELIVER:
                state.counts[DELIVERIES] += 1
                if message < 0:
                    continue
                if ever[message >> 6] >> np.uint64(message & 63) & _1:
                    state.counts[DUPLICATES] += 1
                    state.aside[row] = True
                    continue
            ever[message >> 6] |= _1 << np.uint64(message & 63)
        for stream in range(len(streams.origin)):
            if streams.audience[me, stream] or streams.origin[stream] == me:
                for message in range(streams.first[stream], streams.first[stream + 1]):
                    state.counts[MISSING] += ever[message >> 6] >> np.uint64(message & 63) & _1 == 0


@compiled
def learn(rows: Any, streams: Any, state: Any, stream_of: Any, vectors: Any) -> Any:
    """Every process goes through its rows and tells its messages what it knows: how many learn from it."""
    told = 0
    first = streams.first
    for place in range(len(rows.process)):
        knows = state.knows[place]
        for stream in range(len(knows)):
            knows[stream] = 0
        for row in range(rows.start[place], rows.start[place + 1]):
            message = rows.message[row]
            if message < 0 or state.aside[row]:
                continue
            stream = stream_of[message]
            number = np.int32(message - first[stream] + 1)
            vector = vectors[message]
            if rows.kind[row] == SEND:
                more = False
                for other in range(len(knows)):
                    more |= knows[other] > vector[other]
                    vector[other] = max(knows[other], vector[other])
                told += more
            else:
                for other in range(len(knows)):
                    knows[other] = max(knows[other], vector[other])
            knows[stream] = max(knows[stream], number)
    return told


@compiled
def in_own_past(streams: Any, stream_of: Any, vectors: Any) -> Any:
    """Whether any message is."""
    for message in range(len(vectors)):
        stream = stream_of[message]
        if vectors[message, stream] > message - streams.first[stream]:
            return True
    return False


@compiled
def cut_cycles(rows: Any, streams: Any, state: Any, stream_of: Any, vectors: Any) -> Any:
    """Mark deliveries from which their own send can be reached: by the process's next send, which is that one
    or is in its past. How many there are."""
    found = 0
    for place in range(len(rows.process)):
        after = np.int64(-1)
        for row in range(rows.start[place + 1] - 1, rows.start[place] - 1, -1):
            message = rows.message[row]
            if rows.kind[row] == SEND:
                after = message
            elif message >= 0 and after >= 0 and not state.aside[row]:
                stream = stream_of[after]
                if after == message or vectors[message, stream] > after - streams.first[stream]:
                    state.aside[row] = True
                    found += 1
    return found


@compiled
def count(rows: Any, streams: Any, state: Any, stream_of: Any, vectors: Any, roots: Any) -> Any:
    """What each delivery came before; how many roots there are, of which as many are kept as fit."""
    found, root_of = 0, np.full(len(vectors), -1, np.int64)
    first, counts = streams.first, state.counts
    width = len(streams.origin)
    for place in range(len(rows.process)):
        me, base = rows.process[place], state.base[place]
        begun = found
        ever, so_far = state.ever[place], state.so_far[place]
        gaps = 0
        for stream in range(width):
            if not streams.audience[me, stream] and streams.origin[stream] != me:
                base[stream] = _EVERYTHING
                continue
            for message in range(first[stream], first[stream + 1]):
                gaps += ever[message >> 6] >> np.uint64(message & 63) & _1 == 0
            base[stream] = advanced(first, stream, ever, so_far, 0)
        never = np.empty(gaps, np.int64)
        gaps = 0
        for stream in range(width):
            if base[stream] != _EVERYTHING:
                for message in range(first[stream], first[stream + 1]):
                    if ever[message >> 6] >> np.uint64(message & 63) & _1 == 0:
                        never[gaps] = message
                        gaps += 1
        for row in range(rows.start[place], rows.start[place + 1]):
            message = rows.message[row]
            if message < 0 or so_far[message >> 6] >> np.uint64(message & 63) & _1:
                continue
            vector = vectors[message]
            stream = stream_of[message]
            if rows.kind[row] == DELIVER:
                lacking = False
                for other in range(width):
                    lacking |= vector[other] > base[other]
                late, fifo = 0, False
                if lacking:
                    for other in range(width):
                        before = late
                        for number in range(base[other], vector[other]):
                            one = first[other] + number
                            if (ever[one >> 6] & ~so_far[one >> 6]) >> np.uint64(one & 63) & _1:
                                late += 1
                                found = noted(roots, root_of, found, place, one, 1, row)
                        fifo |= late > before and streams.origin[other] == streams.origin[stream]
                lost = 0
                for gap in range(gaps):
                    other = stream_of[never[gap]]
                    if vector[other] > never[gap] - first[other]:
                        lost += 1
                        found = noted(roots, root_of, found, place, never[gap], 0, row)
                        fifo |= streams.origin[other] == streams.origin[stream]
                if late or lost:
                    counts[CAUSAL] += 1
                    counts[CAUSAL_LATE] += late > 0
                    counts[PAIRS_LATE] += late
                    counts[PAIRS_NEVER] += lost
                    counts[FIFO] += fifo
            so_far[message >> 6] |= _1 << np.uint64(message & 63)
            if base[stream] != _EVERYTHING:
                base[stream] = advanced(first, stream, ever, so_far, base[stream])
        for root in range(begun, min(found, len(roots))):
            root_of[roots[root, 1]] = -1
    return found


@compiled
def noted(roots: Any, root_of: Any, found: Any, process: Any, cause: Any, late: Any, row: Any) -> Any:
    """A delivery needed what the process has not: one more, or one that is known."""
    root = root_of[cause]
    if root >= 0:
        roots[root, 4] += 1
        return found
    if found < len(roots):
        root_of[cause] = found
        roots[found, 0], roots[found, 1], roots[found, 2], roots[found, 3] = process, cause, late, row
        roots[found, 4] = 1
        return found + 1
    return found


def chain(rows: Rows, state: State, cause: int, effect: int, messages: int) -> list[int]:
    """A shortest chain of messages from cause to effect, each sent by a process that had the one before."""
    level, parent = np.full(messages, -1, np.int32), np.full(messages, -1, np.int64)
    level[cause], step = 0, 0
    while level[effect] < 0 and carry(rows, state.aside, level, parent, step):
        step += 1
    found = [effect]
    while found[-1] != cause:
        found.append(int(parent[found[-1]]))
    return found[::-1]


@compiled
def carry(rows: Any, aside: Any, level: Any, parent: Any, step: Any) -> Any:
    """Who has a message of this level says so with all that it sends afterwards: how many are new."""
    reached = 0
    for place in range(len(rows.process)):
        has = np.int64(-1)
        for row in range(rows.start[place], rows.start[place + 1]):
            message = rows.message[row]
            if message < 0 or aside[row]:
                continue
            if has >= 0 and rows.kind[row] == SEND and level[message] < 0:
                level[message], parent[message] = step + 1, has
                reached += 1
            if has < 0 and level[message] == step:
                has = message
    return reached


@compiled
def advanced(first: Any, stream: Any, ever: Any, so_far: Any, base: Any) -> Any:
    """How many from the first on are there, or will never be."""
    message = first[stream] + base
    while message < first[stream + 1]:
        word, bit = message >> 6, np.uint64(message & 63)
        if (ever[word] & ~so_far[word]) >> bit & _1:
            break
        message += 1
    return np.int32(message - first[stream])
