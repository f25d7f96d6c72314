"""Compiled passes over the events of a run that find every causal-order violation.

1. `collect_sender_clocks` replays each process and records, for every send, what the sender had then: a
   vector clock with one entry per stream. It also records what each process has in the end.
2. `causality.transitive_closure.close_transitively` turns these clocks into complete causal pasts.
3. `count_violations` replays each process again and compares every delivery's past with what the process has.

In a cycle, some deliveries precede their own send. `mark_impossible` finds them; they create no causal order,
and steps 1 and 2 are repeated without them.

A pass may process the rows of all processes at once, or those of some processes one slice at a time: all
state between slices is in `AuditState`. So a run may be larger than memory and be divided among workers. The
oracle in `causality` computes the same with Python's integers and is the reference for this.

Cost: rows × streams / 16 steps. `AuditState` takes processes × (streams × 5 + messages / 2) bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from antecede.audit.roots import (
    LateRoots,
    MissingMessage,
    Root,
    add_consequences,
    close_root,
    create_late_roots,
    open_root,
    worst_missing,
    worst_roots,
)
from antecede.causality.transitive_closure import (
    MessageStreams,
    close_transitively,
    count_dtype,
    shortest_chain,
)
from antecede.jit import njit_plain

SEND, DELIVER, SEND_ONLY = 0, 1, 2
"""A send counts as the sender's own delivery; after a `SEND_ONLY` that is an event of its own."""
DUPLICATE, IMPOSSIBLE = 1, 2
TIME_BUCKETS = 60
"""The number of equal spans of time by which deliveries are counted."""
_EVERYTHING = np.int32((1 << 31) - 1)
"""More than any stream contains, even if only its lower half is stored."""
_1 = np.uint64(1)
_0 = np.uint64(0)

DELIVERIES, DUPLICATES, CAUSAL, CAUSAL_LATE, PAIRS_LATE, PAIRS_NEVER, FIFO, MISSING, COUNTED = range(9)
"""The columns of `AuditState.counts`; the last is their number."""


class Streams(NamedTuple):
    """Who sends to whom. A stream is what one origin sends to one audience."""

    first: np.ndarray
    """The number of each stream's first message; one more at the end."""
    origin: np.ndarray
    """The process that sends each stream."""
    audience: np.ndarray
    """Processes × streams: whether the stream is addressed to the process, or sent by it."""

    @property
    def messages(self) -> int:
        return int(self.first[-1])

    def of_messages(self) -> np.ndarray:
        """The stream of each message."""
        return np.repeat(np.arange(len(self.origin), dtype=np.int32), np.diff(self.first))


class Rows(NamedTuple):
    """The sends and deliveries of some processes, each in its own order, one process after the other."""

    process: np.ndarray
    start: np.ndarray
    """Where each process's rows begin; one more at the end."""
    kind: np.ndarray
    message: np.ndarray
    """The message's number; -1 for an orphan, which nobody sent."""
    time: np.ndarray
    """The time bucket."""
    fault: np.ndarray
    """What the passes found wrong with each row: `DUPLICATE`, `IMPOSSIBLE`, both or 0."""


class AuditState(NamedTuple):
    """What the passes know so far of the processes they look at."""

    counts: np.ndarray
    """Processes × counts."""
    by_origin: np.ndarray
    """How often messages of each origin were lacking, because they were late or never delivered."""
    by_time: np.ndarray
    """Deliveries in each time bucket, and how many of them violate causal order."""
    delivered_ever: np.ndarray
    """Bits: the messages that each process has in the end."""
    delivered: np.ndarray
    """Bits: the messages that each process has so far."""
    late_causes: np.ndarray
    """Bits: the messages that each process lacked when it delivered an effect, and delivered later."""
    impossible: np.ndarray
    """Bits: the messages that each process delivered before they were sent; these deliveries create no causal
    order."""
    prefix: np.ndarray
    """How many messages of each stream, from the first on, the process has or never gets."""
    vector_clock: np.ndarray
    """The latest message of each stream that each process has."""
    last_sent: np.ndarray
    """The last message that each process sent; -1 if none."""
    late_roots: LateRoots


class Gaps(NamedTuple):
    """The messages that each process never delivers, stream by stream."""

    start: np.ndarray
    """Where each process's streams begin in `stream`; one more at the end."""
    stream: np.ndarray
    begin: np.ndarray
    """Where each stream's numbers begin in `number`; one more at the end."""
    number: np.ndarray
    """The missing message's place in its stream, from 0, ascending."""
    needed: np.ndarray
    """For each stream, how many of its gaps some delivery needed."""
    effect: np.ndarray
    """For each number, the first delivered message that needed it."""
    reached: np.ndarray
    """For each number, how many deliveries needed it and none above it."""


class Violations(NamedTuple):
    """What the passes found in a run."""

    state: AuditState
    impossible: int
    roots: list[Root]
    """The worst roots: those with the most consequences first."""
    paths: list[list[int]]
    """For each root, a shortest chain of messages from the cause to the effect."""
    missing: list[MissingMessage]
    """The worst missing messages, as many as roots."""


def create_state(streams: Streams, max_roots: int = 0, processes_of_run: int = 0) -> AuditState:
    """The state before any row, with room for the worst `max_roots` roots.

    If these are only some processes of a run, `processes_of_run` says how many it has.
    """
    size, width = streams.audience.shape
    kind = count_dtype(streams.first)
    bits = (size, (streams.messages >> 6) + 1)
    return AuditState(
        counts=np.zeros((size, COUNTED), np.int64),
        by_origin=np.zeros((int(streams.origin.max(initial=-1)) + 1, 2), np.int64),
        by_time=np.zeros((TIME_BUCKETS, 2), np.int64),
        delivered_ever=np.zeros(bits, np.uint64),
        delivered=np.zeros(bits, np.uint64),
        late_causes=np.zeros(bits, np.uint64),
        impossible=np.zeros(bits, np.uint64),
        prefix=np.zeros((size, width), kind),
        vector_clock=np.zeros((size, width), kind),
        last_sent=np.full(size, -1, np.int64),
        late_roots=create_late_roots(size, max_roots, max(size, processes_of_run)),
    )


def find_violations(
    rows: Rows,
    streams: Streams,
    vectors: np.ndarray,
    max_roots: int = 0,
    adjust: Callable[[AuditState, np.ndarray], None] | None = None,
) -> Violations:
    """Run all passes over the rows of all processes. `vectors` has a row per message and a column per stream.
    `adjust` may count messages as ones that processes have, once all pasts are known."""
    messages = create_message_streams(streams)
    state, impossible = compute_pasts(rows, streams, vectors, messages, max_roots)
    if adjust is not None:
        adjust(state, vectors)
    gaps = find_gaps(streams, state)
    count_violations(rows, streams, state, gaps, messages.stream, vectors)
    roots = worst_roots(state.late_roots, gaps, streams, max_roots)
    missing = worst_missing(gaps, streams, max_roots)
    paths = _shortest_paths(rows, streams, vectors, messages, state.impossible, roots)
    return Violations(state, impossible, roots, paths, missing)


def create_message_streams(streams: Streams) -> MessageStreams:
    """The messages of these streams; `collect_sender_clocks` fills in each one's predecessor."""
    return MessageStreams(streams.first, streams.of_messages(), np.full(streams.messages, -1, np.int64))


def compute_pasts(
    rows: Rows, streams: Streams, vectors: np.ndarray, messages: MessageStreams, max_roots: int = 0
) -> tuple[AuditState, int]:
    """Compute every message's past into `vectors`; return the state and the number of impossible
    deliveries."""
    vector_row = np.arange(streams.messages)
    state = create_state(streams, max_roots)
    collect_sender_clocks(rows, state, messages, vector_row, vectors)
    if not close_transitively(messages, vectors):
        return state, 0
    following, first_sent = next_sends(
        messages.previous, streams.origin[messages.stream], len(streams.audience)
    )
    impossible = mark_impossible(rows, state, messages, vectors, following, first_sent)
    state = create_state(streams, max_roots)._replace(impossible=state.impossible)
    collect_sender_clocks(rows, state, messages, vector_row, vectors)
    close_transitively(messages, vectors)
    return state, int(impossible)


def _shortest_paths(
    rows: Rows,
    streams: Streams,
    vectors: np.ndarray,
    messages: MessageStreams,
    impossible: np.ndarray,
    roots: list[Root],
) -> list[list[int]]:
    """For each root a shortest chain of messages from the cause to the effect."""
    if not roots:
        return []
    state = create_state(streams)._replace(impossible=impossible)
    collect_sender_clocks(rows, state, messages, np.arange(streams.messages), vectors)
    sent_at = np.empty(streams.messages, np.int64)
    sends = np.flatnonzero(rows.kind != DELIVER)
    sent_at[rows.message[sends]] = sends
    process = np.repeat(rows.process, np.diff(rows.start))
    origins = streams.origin[messages.stream]
    # Backwards, so that of several deliveries the first one stays.
    causes = np.flatnonzero(np.isin(rows.message, [root.cause for root in roots]))[::-1]
    by_cause = {cause: causes[rows.message[causes] == cause] for cause in {root.cause for root in roots}}
    paths = []
    for root in roots:
        never = len(rows.kind)
        delivered_at = np.full(len(streams.audience), never, np.int64)
        mine = by_cause[root.cause]
        delivered_at[process[mine]] = mine
        word, bit = root.cause >> 6, np.uint64(root.cause & 63)
        delivered_at[(impossible[:, word] >> bit & _1).astype(np.bool_)] = never
        delivered_at[origins[root.cause]] = sent_at[root.cause]
        effects = shortest_chain(messages, vectors, delivered_at[origins] < sent_at, root.effect)
        paths.append([root.cause, *effects.tolist()])
    return paths


def next_sends(previous: np.ndarray, origins: np.ndarray, processes: int) -> tuple[np.ndarray, np.ndarray]:
    """The message that each message's sender sends next, and each process's first message; -1 for none."""
    following, first_sent = np.full(len(previous), -1, np.int64), np.full(processes, -1, np.int64)
    later, firsts = np.flatnonzero(previous >= 0), np.flatnonzero(previous < 0)
    following[previous[later]] = later
    first_sent[origins[firsts]] = firsts
    return following, first_sent


@njit_plain
def is_set(bits: Any, message: Any) -> Any:
    return bits[message >> 6] >> np.uint64(message & 63) & _1 != _0


@njit_plain
def set_bit(bits: Any, message: Any) -> Any:
    bits[message >> 6] |= _1 << np.uint64(message & 63)


@njit_plain
def collect_sender_clocks(rows: Any, state: Any, messages: Any, vector_row: Any, vectors: Any) -> Any:
    """Replay each process: record what it has in the end and what it delivered twice, and for each send the
    vector clock and the sender's previous send. The clock of message m goes into `vectors[vector_row[m]]`."""
    for segment in range(len(rows.process)):
        process = rows.process[segment]
        ever, impossible = state.delivered_ever[process], state.impossible[process]
        clock = state.vector_clock[process]
        for row in range(rows.start[segment], rows.start[segment + 1]):
            message = rows.message[row]
            if rows.kind[row] == DELIVER:
                state.counts[process, DELIVERIES] += 1
                state.by_time[rows.time[row], 0] += 1
                if message < 0:
                    continue
                if is_set(ever, message):
                    state.counts[process, DUPLICATES] += 1
                    rows.fault[row] |= DUPLICATE
                    continue
            if rows.kind[row] != SEND_ONLY:
                set_bit(ever, message)
            stream = messages.stream[message]
            if rows.kind[row] != DELIVER:
                vectors[vector_row[message]] = clock
                messages.previous[message] = state.last_sent[process]
                state.last_sent[process] = message
            elif is_set(impossible, message):
                continue
            number = np.int32(message - messages.first[stream] + 1)
            if number > clock[stream]:
                clock[stream] = number


@njit_plain
def mark_impossible(
    rows: Any, state: Any, messages: Any, vectors: Any, following: Any, next_send: Any
) -> Any:
    """Mark deliveries that precede their own send: the process's next send is that message or is in its past.
    Returns their number. `next_send` is each process's next send, initially its first."""
    count = 0
    for segment in range(len(rows.process)):
        process = rows.process[segment]
        delivered = state.delivered[process]
        for row in range(rows.start[segment], rows.start[segment + 1]):
            message = rows.message[row]
            if rows.kind[row] != DELIVER:
                next_send[process] = following[message]
                if rows.kind[row] == SEND:
                    set_bit(delivered, message)
            elif message >= 0 and not is_set(delivered, message):
                set_bit(delivered, message)
                reached = next_send[process]
                if reached >= 0:
                    stream = messages.stream[reached]
                    if reached == message or vectors[message, stream] > reached - messages.first[stream]:
                        set_bit(state.impossible[process], message)
                        rows.fault[row] |= IMPOSSIBLE
                        count += 1
    return count


@njit_plain
def find_gaps(streams: Any, state: Any) -> Any:
    """Find what each process never delivers; also set the prefix of each stream after which it still
    waits."""
    first = streams.first
    size, width = streams.audience.shape
    gaps, entries = 0, 0
    for process in range(size):
        ever = state.delivered_ever[process]
        for stream in range(width):
            if streams.audience[process, stream]:
                here = gaps
                for message in range(first[stream], first[stream + 1]):
                    gaps += not is_set(ever, message)
                entries += gaps > here
    start, of = np.zeros(size + 1, np.int64), np.empty(entries, np.int32)
    begin, number = np.zeros(entries + 1, np.int64), np.empty(gaps, np.int32)
    gaps, entries = 0, 0
    for process in range(size):
        ever, prefix = state.delivered_ever[process], state.prefix[process]
        for stream in range(width):
            if not streams.audience[process, stream]:
                prefix[stream] = _EVERYTHING
                continue
            here = gaps
            for message in range(first[stream], first[stream + 1]):
                if not is_set(ever, message):
                    number[gaps] = message - first[stream]
                    gaps += 1
            if gaps > here:
                of[entries] = stream
                entries += 1
                begin[entries] = gaps
            prefix[stream] = advance_prefix(first, stream, ever, state.delivered[process], 0)
        start[process + 1] = entries
        state.counts[process, MISSING] = begin[entries] - begin[start[process]]
    return Gaps(
        start,
        of,
        begin,
        number,
        np.zeros(entries, np.int32),
        np.zeros(gaps, np.int64),
        np.zeros(gaps, np.int64),
    )


@njit_plain
def advance_prefix(first: Any, stream: Any, ever: Any, delivered: Any, prefix: Any) -> Any:
    """How many messages of a stream, from the first on, are delivered or never will be."""
    message = first[stream] + prefix
    while message < first[stream + 1] and (is_set(delivered, message) or not is_set(ever, message)):
        message += 1
    return np.int32(message - first[stream])


@njit_plain
def count_violations(rows: Any, streams: Any, state: Any, gaps: Any, stream_of: Any, vectors: Any) -> Any:
    """Replay each process and count, for every delivery, the causes that it preceded."""
    first, origin = streams.first, streams.origin
    width = len(origin)
    for segment in range(len(rows.process)):
        process = rows.process[segment]
        prefix, counts = state.prefix[process], state.counts[process]
        ever, delivered = state.delivered_ever[process], state.delivered[process]
        late_causes = state.late_causes[process]
        for row in range(rows.start[segment], rows.start[segment + 1]):
            message = rows.message[row]
            if message < 0 or is_set(delivered, message) or rows.kind[row] == SEND_ONLY:
                continue
            stream = stream_of[message]
            if rows.kind[row] == DELIVER:
                vector, mine = vectors[message], origin[stream]
                lacking = False
                for other in range(width):
                    lacking |= vector[other] > prefix[other]
                late, never, fifo = 0, 0, False
                if lacking:
                    for other in range(width):
                        if vector[other] > prefix[other]:
                            low, high = first[other] + prefix[other], first[other] + vector[other]
                            many = count_late(ever, delivered, low, high)
                            if many:
                                late += many
                                state.by_origin[origin[other], 0] += many
                                fifo |= origin[other] == mine
                                record_roots(state, process, message, ever, delivered, late_causes, low, high)
                    add_consequences(state.late_roots, process, vector, first, stream_of)
                for entry in range(gaps.start[process], gaps.start[process + 1]):
                    other = gaps.stream[entry]
                    if vector[other] > gaps.number[gaps.begin[entry]]:
                        many = count_never(gaps, entry, vector[other], message)
                        never += many
                        state.by_origin[origin[other], 1] += many
                        fifo |= origin[other] == mine
                if late or never:
                    counts[CAUSAL] += 1
                    counts[CAUSAL_LATE] += late > 0
                    counts[PAIRS_LATE] += late
                    counts[PAIRS_NEVER] += never
                    counts[FIFO] += fifo
                    state.by_time[rows.time[row], 1] += 1
            set_bit(delivered, message)
            if is_set(late_causes, message):
                close_root(state.late_roots, process, message)
            if streams.audience[process, stream]:
                prefix[stream] = advance_prefix(first, stream, ever, delivered, prefix[stream])


@njit_plain
def range_mask(word: Any, low: Any, high: Any) -> Any:
    """The bits of one word in [`low`, `high`)."""
    mask = ~_0
    if word << 6 < low:
        mask &= ~_0 << np.uint64(low & 63)
    if (word + 1) << 6 > high:
        mask &= (_1 << np.uint64(high & 63)) - _1
    return mask


@njit_plain
def count_late(ever: Any, delivered: Any, low: Any, high: Any) -> Any:
    """How many messages in [`low`, `high`) the process lacks now and delivers later."""
    many = 0
    for word in range(low >> 6, (high + 63) >> 6):
        left = ever[word] & ~delivered[word] & range_mask(word, low, high)
        while left:
            left &= left - _1
            many += 1
    return many


@njit_plain
def record_roots(
    state: Any, process: Any, effect: Any, ever: Any, delivered: Any, late_causes: Any, low: Any, high: Any
) -> Any:
    """Make roots of those late messages that no earlier delivery needed."""
    for word in range(low >> 6, (high + 63) >> 6):
        new = ever[word] & ~delivered[word] & ~late_causes[word] & range_mask(word, low, high)
        late_causes[word] |= new
        for bit in range(64 if new else 0):
            if new >> np.uint64(bit) & _1:
                open_root(state.late_roots, process, (word << 6) + bit, effect)


@njit_plain
def count_never(gaps: Any, entry: Any, count: Any, effect: Any) -> Any:
    """How many of a stream's gaps are among its first `count` messages."""
    begin = low = gaps.begin[entry]
    high = gaps.begin[entry + 1]
    while low < high:
        middle = (low + high) >> 1
        if gaps.number[middle] < count:
            low = middle + 1
        else:
            high = middle
    for gap in range(begin + gaps.needed[entry], low):
        gaps.effect[gap] = effect
        gaps.needed[entry] += 1
    gaps.reached[low - 1] += 1
    return low - begin
