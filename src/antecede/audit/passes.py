"""What was wrong with the order of deliveries: compiled passes over the processes' own rows.

`gather` goes through what each process did and says of each message what its sender had then; `pasts` makes
of that all that happened before it. With these, `count` compares every delivery with what the process has.
Around a cycle, some deliveries come before their own send: `bar` finds them, and the rest is done anew.

A pass can have all rows of all processes at once, or those of some processes a part at a time: what has to be
remembered is in `AuditState`. So a log may be larger than memory, and shared among workers.

`order/` says the same in Python's integers and is the judge of this.

Costs: rows × streams / 16 steps. AuditState is processes × (streams × 5 + messages / 2) bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.causality.transitive_closure import (
    MessageStreams,
    close_transitively,
    count_dtype,
    shortest_chain,
)
from antecede.jit import njit_plain

SEND, DELIVER = 0, 1
TIME_BUCKETS = 60
"""Stretches of time that deliveries are counted by."""
_LEAST_ROOTS = 1_000
_EVERYTHING = np.int32((1 << 31) - 1)
"""More than any stream has, also if only its lower half is kept."""
_1 = np.uint64(1)
_NONE = np.uint64(0)

DELIVERIES, DUPLICATES, CAUSAL, CAUSAL_LATE, PAIRS_LATE, PAIRS_NEVER, FIFO, MISSING, COUNTED = range(9)


class Streams(NamedTuple):
    """Who sends to whom."""

    first: np.ndarray
    """The number of each stream's first message; one more at the end."""
    origin: np.ndarray
    """The process that sends each."""
    audience: np.ndarray
    """Processes that are looked at × streams: whether it is meant for them, or sent by them."""

    @property
    def messages(self) -> int:
        return int(self.first[-1])

    def of_messages(self) -> np.ndarray:
        """The stream of each message."""
        return np.repeat(np.arange(len(self.origin), dtype=np.int32), np.diff(self.first))


class Rows(NamedTuple):
    """What some processes did, each in its own order, one after the other."""

    place: np.ndarray
    """Which of the processes that are looked at."""
    start: np.ndarray
    """Where its rows begin; one more at the end."""
    kind: np.ndarray
    message: np.ndarray
    """The message's number; -1 if nobody sent it, so that it stands in no order."""
    time: np.ndarray
    """Which bucket_width of the time in which all happened."""


class AuditState(NamedTuple):
    """What is known so far of the processes that are looked at."""

    counts: np.ndarray
    """Processes × what is counted."""
    by_origin: np.ndarray
    """Of each process's messages, how often they were lacking: as they came later, or never."""
    by_time: np.ndarray
    """Deliveries in each bucket_width of time, and how many of them violate causal order."""
    ever: np.ndarray
    """Bits: what each has at the end."""
    so_far: np.ndarray
    lacked: np.ndarray
    """Bits: what was not there when something delivered needed it, and came later."""
    barred: np.ndarray
    """Bits: what each has before it was sent, which passes nothing on."""
    base: np.ndarray
    """Of each stream, how many from the first on need not be waited for."""
    knows: np.ndarray
    """Of each stream, the latest that each has."""
    sent: np.ndarray
    """The last message that each has sent; -1 if none."""
    roots: np.ndarray
    """A row for each `Root` that came late, as many as there is room for."""
    found: np.ndarray
    """One number: how many of these there are."""
    waiting: np.ndarray
    """The first of each process's roots that have not come yet, then each root's next; -1 for none."""


class Gaps(NamedTuple):
    """What each process never had: those of one stream together."""

    start: np.ndarray
    """Where each process's streams begin; one more at the end."""
    stream: np.ndarray
    begin: np.ndarray
    """Where the numbers of each begin; one more at the end."""
    number: np.ndarray
    """Counted from 0 in their stream, lowest first."""
    known: np.ndarray
    """For each stream, how many of them something delivered has needed."""
    effect: np.ndarray
    """For each number, the first delivered message that needed it."""
    reached: np.ndarray
    """For each number, how many deliveries needed it and none above."""


class Root(NamedTuple):
    """What a process did not have in time, and what came of it."""

    place: int
    cause: int
    late: int
    """1 if it came afterwards, 0 if it never came."""
    effect: int
    """The first message it delivered that needed it."""
    consequences: int
    """How many did."""


def create_state(streams: Streams, most_roots: int = 0) -> AuditState:
    """What is known of the processes of `streams` at the beginning, if the worst roots are wanted."""
    size, width = streams.audience.shape
    kind = count_dtype(streams.first)
    # Which of them are the worst is known at the end only.
    most_roots = max(most_roots, _LEAST_ROOTS) if most_roots else 0
    bits = (size, (streams.messages >> 6) + 1)
    return AuditState(
        counts=np.zeros((size, COUNTED), np.int64),
        by_origin=np.zeros((int(streams.origin.max(initial=-1)) + 1, 2), np.int64),
        by_time=np.zeros((TIME_BUCKETS, 2), np.int64),
        ever=np.zeros(bits, np.uint64),
        so_far=np.zeros(bits, np.uint64),
        lacked=np.zeros(bits, np.uint64),
        barred=np.zeros(bits, np.uint64),
        base=np.zeros((size, width), kind),
        knows=np.zeros((size, width), kind),
        sent=np.full(size, -1, np.int64),
        roots=np.zeros((most_roots, len(Root._fields)), np.int64),
        found=np.zeros(1, np.int64),
        waiting=np.full(size + most_roots, -1, np.int64),
    )


class Violations(NamedTuple):
    """All that is to be known of a log."""

    state: AuditState
    impossible: int
    roots: list[Root]
    """Late ones first, then those with the most consequences."""
    paths: list[list[int]]
    """For each root a shortest chain of messages from the cause to the effect."""


def find_violations(rows: Rows, streams: Streams, vectors: np.ndarray, most_roots: int = 0) -> Violations:
    """All passes over the rows of all processes. `vectors` has a row a message and a column a stream."""
    sends = create_sends(streams)
    state, impossible = compute_pasts(rows, streams, vectors, sends, most_roots)
    gaps = find_gaps(streams, state)
    count(rows, streams, state, gaps, sends.stream, vectors)
    roots = worst_roots(state, gaps, streams, most_roots)
    return Violations(state, impossible, roots, _paths(rows, streams, vectors, sends, state.barred, roots))


def create_sends(streams: Streams) -> MessageStreams:
    """The messages of these streams; what came before each is for `gather` to find."""
    return MessageStreams(streams.first, streams.of_messages(), np.full(streams.messages, -1, np.int64))


def compute_pasts(
    rows: Rows, streams: Streams, vectors: np.ndarray, sends: MessageStreams, most_roots: int = 0
) -> tuple[AuditState, int]:
    """Every message's past, into `vectors`; and how many deliveries were impossible."""
    where = np.arange(streams.messages)
    state = create_state(streams, most_roots)
    gather(rows, state, sends, where, vectors)
    if not close_transitively(sends, vectors):
        return state, 0
    following, begin = next_sends(sends.previous, streams.origin[sends.stream], len(streams.audience))
    impossible = bar(rows, state, sends, vectors, following, begin)
    state = create_state(streams, most_roots)._replace(barred=state.barred)
    gather(rows, state, sends, where, vectors)
    close_transitively(sends, vectors)
    return state, int(impossible)


def _paths(
    rows: Rows,
    streams: Streams,
    vectors: np.ndarray,
    sends: MessageStreams,
    barred: np.ndarray,
    roots: list[Root],
) -> list[list[int]]:
    if not roots:
        return []
    gather(rows, create_state(streams)._replace(barred=barred), sends, np.arange(streams.messages), vectors)
    at = np.empty(streams.messages, np.int64)
    sent = np.flatnonzero(rows.kind == SEND)
    at[rows.message[sent]] = sent
    process = np.repeat(rows.place, np.diff(rows.start))
    origins = streams.origin[sends.stream]
    about = np.flatnonzero(np.isin(rows.message, [root.cause for root in roots]))[::-1]
    by_cause = {cause: about[rows.message[about] == cause] for cause in {root.cause for root in roots}}
    found = []
    for root in roots:
        got = np.full(len(streams.audience), len(rows.kind), np.int64)
        mine = by_cause[root.cause]
        got[process[mine]] = mine
        word, bit = root.cause >> 6, np.uint64(root.cause & 63)
        got[(barred[:, word] >> bit & _1).astype(np.bool_)] = len(rows.kind)
        got[origins[root.cause]] = at[root.cause]
        found.append([root.cause, *shortest_chain(sends, vectors, got[origins] < at, root.effect).tolist()])
    return found


def next_sends(previous: np.ndarray, origins: np.ndarray, processes: int) -> tuple[np.ndarray, np.ndarray]:
    """What the sender of each message sent next, and each process's first message; -1 if there is none."""
    following, begin = np.full(len(previous), -1, np.int64), np.full(processes, -1, np.int64)
    later, firsts = np.flatnonzero(previous >= 0), np.flatnonzero(previous < 0)
    following[previous[later]] = later
    begin[origins[firsts]] = firsts
    return following, begin


@njit_plain
def has(bits: Any, message: Any) -> Any:
    return bits[message >> 6] >> np.uint64(message & 63) & _1 != _NONE


@njit_plain
def put(bits: Any, message: Any) -> Any:
    bits[message >> 6] |= _1 << np.uint64(message & 63)


@njit_plain
def gather(rows: Any, state: Any, sends: Any, where: Any, vectors: Any) -> Any:
    """What each process has in the end, and has twice; of each send what the process had then, into the row
    of `vectors` that `where` says, and what it sent before."""
    for segment in range(len(rows.place)):
        place = rows.place[segment]
        ever, barred, knows = state.ever[place], state.barred[place], state.knows[place]
        for row in range(rows.start[segment], rows.start[segment + 1]):
            message = rows.message[row]
            if rows.kind[row] == DELIVER:
                state.counts[place, DELIVERIES] += 1
                state.by_time[rows.time[row], 0] += 1
                if message < 0:
                    continue
                if has(ever, message):
                    state.counts[place, DUPLICATES] += 1
                    continue
            put(ever, message)
            stream = sends.stream[message]
            if rows.kind[row] == SEND:
                vectors[where[message]] = knows
                sends.previous[message] = state.sent[place]
                state.sent[place] = message
            elif has(barred, message):
                continue
            number = np.int32(message - sends.first[stream] + 1)
            if number > knows[stream]:
                knows[stream] = number


@njit_plain
def bar(rows: Any, state: Any, sends: Any, vectors: Any, following: Any, after: Any) -> Any:
    """Mark deliveries from which their own send can be reached: by the process's next send, which is that one
    or is in its past. How many there are. `after` is each one's next send, at first its first."""
    found = 0
    for segment in range(len(rows.place)):
        place = rows.place[segment]
        so_far = state.so_far[place]
        for row in range(rows.start[segment], rows.start[segment + 1]):
            message = rows.message[row]
            if rows.kind[row] == SEND:
                after[place] = following[message]
                put(so_far, message)
            elif message >= 0 and not has(so_far, message):
                put(so_far, message)
                reached = after[place]
                if reached >= 0:
                    stream = sends.stream[reached]
                    if reached == message or vectors[message, stream] > reached - sends.first[stream]:
                        put(state.barred[place], message)
                        found += 1
    return found


@njit_plain
def find_gaps(streams: Any, state: Any) -> Any:
    """What each process never had; and from where on it waits for each stream."""
    first = streams.first
    size, width = streams.audience.shape
    gaps, short = 0, 0
    for place in range(size):
        ever = state.ever[place]
        for stream in range(width):
            if streams.audience[place, stream]:
                here = gaps
                for message in range(first[stream], first[stream + 1]):
                    gaps += not has(ever, message)
                short += gaps > here
    start, of, begin = np.zeros(size + 1, np.int64), np.empty(short, np.int32), np.zeros(short + 1, np.int64)
    number = np.empty(gaps, np.int32)
    gaps, short = 0, 0
    for place in range(size):
        ever, base = state.ever[place], state.base[place]
        for stream in range(width):
            if not streams.audience[place, stream]:
                base[stream] = _EVERYTHING
                continue
            here = gaps
            for message in range(first[stream], first[stream + 1]):
                if not has(ever, message):
                    number[gaps] = message - first[stream]
                    gaps += 1
            if gaps > here:
                of[short] = stream
                short += 1
                begin[short] = gaps
            base[stream] = advanced(first, stream, ever, state.so_far[place], 0)
        start[place + 1] = short
        state.counts[place, MISSING] = begin[short] - begin[start[place]]
    return Gaps(
        start,
        of,
        begin,
        number,
        np.zeros(short, np.int32),
        np.zeros(gaps, np.int64),
        np.zeros(gaps, np.int64),
    )


@njit_plain
def advanced(first: Any, stream: Any, ever: Any, so_far: Any, base: Any) -> Any:
    """How many from the first on are there, or will never be."""
    message = first[stream] + base
    while message < first[stream + 1] and (has(so_far, message) or not has(ever, message)):
        message += 1
    return np.int32(message - first[stream])


@njit_plain
def count(rows: Any, streams: Any, state: Any, gaps: Any, stream_of: Any, vectors: Any) -> Any:
    """What each delivery came before."""
    first, origin = streams.first, streams.origin
    width = len(origin)
    for segment in range(len(rows.place)):
        place = rows.place[segment]
        base, counts = state.base[place], state.counts[place]
        ever, so_far, lacked = state.ever[place], state.so_far[place], state.lacked[place]
        for row in range(rows.start[segment], rows.start[segment + 1]):
            message = rows.message[row]
            if message < 0 or has(so_far, message):
                continue
            stream = stream_of[message]
            if rows.kind[row] == DELIVER:
                vector, mine = vectors[message], origin[stream]
                lacking = False
                for other in range(width):
                    lacking |= vector[other] > base[other]
                late, lost, fifo = 0, 0, False
                if lacking:
                    for other in range(width):
                        if vector[other] > base[other]:
                            low, high = first[other] + base[other], first[other] + vector[other]
                            many = to_come(ever, so_far, low, high)
                            if many:
                                late += many
                                state.by_origin[origin[other], 0] += many
                                fifo |= origin[other] == mine
                                note(state, place, message, ever, so_far, lacked, low, high)
                    remember(state, place, vector, first, stream_of)
                for short in range(gaps.start[place], gaps.start[place + 1]):
                    other = gaps.stream[short]
                    if vector[other] > gaps.number[gaps.begin[short]]:
                        many = never_came(gaps, short, vector[other], message)
                        lost += many
                        state.by_origin[origin[other], 1] += many
                        fifo |= origin[other] == mine
                if late or lost:
                    counts[CAUSAL] += 1
                    counts[CAUSAL_LATE] += late > 0
                    counts[PAIRS_LATE] += late
                    counts[PAIRS_NEVER] += lost
                    counts[FIFO] += fifo
                    state.by_time[rows.time[row], 1] += 1
            put(so_far, message)
            if has(lacked, message):
                forget(state, place, message)
            if streams.audience[place, stream]:
                base[stream] = advanced(first, stream, ever, so_far, base[stream])


@njit_plain
def word_between(bits: Any, low: Any, high: Any) -> Any:
    """The bits of one word that lie from `low` to before `high`, as a mask."""
    mask = ~_NONE
    if bits << 6 < low:
        mask &= ~_NONE << np.uint64(low & 63)
    if (bits + 1) << 6 > high:
        mask &= (_1 << np.uint64(high & 63)) - _1
    return mask


@njit_plain
def to_come(ever: Any, so_far: Any, low: Any, high: Any) -> Any:
    """How many from `low` to before `high` are not there and will be."""
    many = 0
    for word in range(low >> 6, (high + 63) >> 6):
        left = ever[word] & ~so_far[word] & word_between(word, low, high)
        while left:
            left &= left - _1
            many += 1
    return many


@njit_plain
def note(
    state: Any, place: Any, effect: Any, ever: Any, so_far: Any, lacked: Any, low: Any, high: Any
) -> Any:
    """Those of them that nothing has needed before are roots."""
    for word in range(low >> 6, (high + 63) >> 6):
        new = ever[word] & ~so_far[word] & ~lacked[word] & word_between(word, low, high)
        lacked[word] |= new
        for bit in range(64 if new else 0):
            found = state.found[0]
            if new >> np.uint64(bit) & _1 and found < len(state.roots):
                root = state.roots[found]
                root[0], root[1], root[2], root[3], root[4] = place, (word << 6) + bit, 1, effect, 0
                size = len(state.waiting) - len(state.roots)
                state.waiting[size + found] = state.waiting[place]
                state.waiting[place] = found
                state.found[0] = found + 1


@njit_plain
def remember(state: Any, place: Any, vector: Any, first: Any, stream_of: Any) -> Any:
    """A consequence more for each of the process's roots that have not come and that this one needs."""
    size = len(state.waiting) - len(state.roots)
    root = state.waiting[place]
    while root >= 0:
        cause = state.roots[root, 1]
        stream = stream_of[cause]
        state.roots[root, 4] += vector[stream] > cause - first[stream]
        root = state.waiting[size + root]


@njit_plain
def forget(state: Any, place: Any, message: Any) -> Any:
    """A root has come."""
    size = len(state.waiting) - len(state.roots)
    at = place
    while state.waiting[at] >= 0:
        root = state.waiting[at]
        if state.roots[root, 1] == message:
            state.waiting[at] = state.waiting[size + root]
            return
        at = size + root


@njit_plain
def never_came(gaps: Any, short: Any, count: Any, effect: Any) -> Any:
    """How many of a stream's gaps are among its first `count`."""
    begin = low = gaps.begin[short]
    high = gaps.begin[short + 1]
    while low < high:
        middle = (low + high) >> 1
        if gaps.number[middle] < count:
            low = middle + 1
        else:
            high = middle
    for gap in range(begin + gaps.known[short], low):
        gaps.effect[gap] = effect
        gaps.known[short] += 1
    gaps.reached[low - 1] += 1
    return low - begin


def worst_roots(state: AuditState, gaps: Gaps, streams: Streams, most: int) -> list[Root]:
    """What was not there in time, worst first: late ones, then those with the most consequences."""
    late = [Root(*map(int, root)) for root in state.roots[: int(state.found[0])]]
    late.sort(key=lambda root: (-root.consequences, root.place, root.cause))
    room = most - len(late)
    if room <= 0 or not len(gaps.number):
        return late[:most]
    sizes = np.diff(gaps.begin)
    short = np.repeat(np.arange(len(sizes)), sizes)
    # Whoever needed one needed those below it in its stream.
    suffix = np.cumsum(gaps.reached[::-1])[::-1]
    consequences = suffix - np.append(suffix, 0)[gaps.begin[1:]][short]
    place = np.repeat(np.arange(len(gaps.start) - 1), np.diff(gaps.start))[short]
    cause = streams.first[gaps.stream[short]] + gaps.number
    worst = np.lexsort((cause, place, -consequences))[:room]
    lost = [
        Root(int(place[gap]), int(cause[gap]), 0, int(gaps.effect[gap]), int(consequences[gap]))
        for gap in worst
        if consequences[gap]
    ]
    return late + lost
