"""The steps by which several Spark tasks judge one run that is too large for one of them.

Processes are partitioned into *blocks*, one task each. A task reads its block's rows one *slice* at a time,
in the order of their index, so it holds `AuditState` in memory and not the rows. Everything travels in
*chunks*: rows of `CHUNK` whose payload packs thousands of events, or a vector, as bytes. Python workers are
fast with those and slow with single rows.

1. `pack_rows` packs events into chunks.
2. `collect_block` finds the sender's clock at each send, and what each process has in the end.
3. `close_pasts`, one task, turns these clocks into the past of every message.
4. `count_block` compares each delivery with that past. Every block gets every message's past before its rows.

If there are cycles, `mark_impossible_block` finds the deliveries that precede their own send, and 2 and 3 are
repeated without them. `find_paths`, one task again, finds why the cause of a violation is a cause.

Steps take and return Arrow batches and know nothing of Spark; `audit.distributed` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from antecede.audit.core import allocate_pasts
from antecede.audit.encoding import bucket_of
from antecede.audit.passes import (
    DELIVER,
    DUPLICATE,
    SEND,
    SEND_ONLY,
    TIME_BUCKETS,
    AuditState,
    Rows,
    Streams,
    collect_sender_clocks,
    count_violations,
    create_message_streams,
    create_state,
    find_gaps,
    mark_impossible,
    next_sends,
)
from antecede.audit.passes import IMPOSSIBLE as IMPOSSIBLE_DELIVERY
from antecede.audit.roots import Root, worst_missing, worst_roots
from antecede.causality.transitive_closure import MessageStreams, close_transitively, shortest_chain
from antecede.errors import InputError

ENCODED = pa.schema(
    [("rank", pa.int32()), ("index", pa.int64()), ("event", pa.int64()), ("time", pa.int64())]
)
"""Events in numbers. `event` is the message delivered, -1 for an orphan, or -2 less the message sent; of a
`SEND_ONLY` less `SEND_ONLY_EVENT` too."""
SEND_ONLY_EVENT = 1 << 32
_SEND_ONLY_TIME = 64
"""Added to the time bucket of a packed `SEND_ONLY`; a bucket takes six bits."""
CHUNK = pa.schema(
    [
        ("block", pa.int32()),
        ("part", pa.int64()),
        ("number", pa.int64()),
        ("previous", pa.int64()),
        ("index", pa.int64()),
        ("payload", pa.binary()),
    ]
)
"""`part` is the number of a slice of rows, from 0, or says what else the payload holds. Chunks are sorted by
it, so everything a block needs first precedes its rows. The meaning of `number` depends on the part."""
DUPLICATE_ROWS, IMPOSSIBLE_ROWS, MISSING_ROWS = range(-18, -15)
START, ERROR, CYCLIC, ORPHANS, ROOTS, PATH, IMPOSSIBLE = range(-15, -8)
DELIVERED_EVER, COUNTS, ORIGINS, OVER_TIME, SENDER_CLOCK, FULL_PAST, SEQ, NAME = range(-8, 0)
"""Parts other than slices of rows."""
MARKED = pa.schema([(name, pa.int64()) for name in ("rank", "message", "index")])
"""Faulty deliveries, one by one."""
MAX_MESSAGE = (1 << 31) - 3
PACKED_ROWS = 1 << 20
_EMITTED_BYTES = 1 << 24

Batches = Iterable[pa.RecordBatch]
Chunk = tuple[int, int, int, int, int, Any]
BatchStep = Callable[[Batches], Iterator[pa.RecordBatch]]


class BlockPlan(NamedTuple):
    """What every task needs to know about the run."""

    run: str
    first: np.ndarray
    """The number of each stream's first message; one more at the end."""
    origin: np.ndarray
    audience: np.ndarray
    """The number of each stream's audience."""
    audiences: np.ndarray
    """Audiences × processes."""
    blocks: int
    start_time: int
    bucket_width: int
    lowest_index: int
    slice_width: int
    """The number of indices in a slice."""

    @property
    def messages(self) -> int:
        return int(self.first[-1])

    @property
    def processes(self) -> int:
        return int(self.audiences.shape[1])

    @property
    def packed_event(self) -> np.dtype[Any]:
        """An event in a chunk's payload."""
        offset = "u2" if self.slice_width <= 1 << 16 else "u8"
        return np.dtype([("offset", offset), ("event", "i4"), ("time", "i1")])

    def ranks(self, block: int) -> np.ndarray:
        """The ranks of the processes of a block."""
        return np.arange(block, self.processes, self.blocks)

    def streams(self, ranks: np.ndarray) -> Streams:
        """The streams as seen by some processes."""
        addressed = self.audiences[self.audience][:, ranks].T
        return Streams(self.first, self.origin, addressed | (self.origin[None, :] == ranks[:, None]))


def pack_rows(plan: BlockPlan) -> BatchStep:
    """From rows of `ENCODED`, in any order, to chunks: a process's events of one slice together."""

    def step(batches: Batches) -> Iterator[pa.RecordBatch]:
        for table in _combine(batches, PACKED_ROWS):
            yield pack(plan, *(table.column(name).to_numpy() for name in ENCODED.names))

    return step


def pack(
    plan: BlockPlan, rank: np.ndarray, index: np.ndarray, event: np.ndarray, time: np.ndarray
) -> pa.RecordBatch:
    """Pack some events into chunks."""
    since = index.view(np.uint64) - np.uint64(plan.lowest_index % (1 << 64))
    part, offset = np.divmod(since, np.uint64(plan.slice_width))
    order = np.argsort(rank.astype(np.uint16) if plan.processes < 1 << 16 else rank, kind="stable")
    if (np.diff(since[order].view(np.int64))[np.diff(rank[order]) == 0] < 0).any():
        order = np.lexsort((since, rank))
    rank, part = rank[order], part[order].view(np.int64)
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(rank) != 0) | (np.diff(part) != 0)
    begin = np.flatnonzero(new)
    events = np.empty(len(order), plan.packed_event)
    only_sent = event < -SEND_ONLY_EVENT
    event = np.where(only_sent, event + SEND_ONLY_EVENT, event)
    time = bucket_of(time, plan.start_time, plan.bucket_width) + _SEND_ONLY_TIME * only_sent
    events["offset"], events["event"], events["time"] = offset[order], event[order], time[order]
    bounds = (np.append(begin, len(order)) * plan.packed_event.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(events)]
    payload = pa.Array.from_buffers(pa.binary(), len(begin), buffers)
    zeros = pa.array(np.zeros(len(begin), np.int64))
    rank = rank[begin].astype(np.int64)
    columns = [pa.array((rank % plan.blocks).astype(np.int32)), pa.array(part[begin])]
    columns += [pa.array(rank // plan.blocks), zeros, zeros, payload]
    return pa.RecordBatch.from_arrays(columns, schema=CHUNK)


def collect_block(plan: BlockPlan) -> BatchStep:
    """The clock of each send, what each process has in the end, and the counts that this takes.

    Chunks of `IMPOSSIBLE` deliveries may come first; they create no causal order.
    """

    def work(block: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        ranks = plan.ranks(block)
        streams = plan.streams(ranks)
        state, messages = create_state(streams), create_message_streams(streams)
        vector_row, orphans = np.zeros(plan.messages, np.int64), 0
        for rows, index in _slices(plan, ranks, _load_state(chunks, state)):
            orphans += int((rows.message < 0).sum())
            sends = rows.kind != DELIVER
            sent = rows.message[sends]
            vector_row[sent] = np.arange(len(sent))
            vectors = np.empty((len(sent), len(plan.origin)), state.vector_clock.dtype)
            collect_sender_clocks(rows, state, messages, vector_row, vectors)
            at = index[sends].tolist()
            yield from _marked(block, DUPLICATE_ROWS, DUPLICATE, ranks, rows, index)
            for message, place, vector in zip(sent.tolist(), at, vectors, strict=True):
                yield block, SENDER_CLOCK, message, int(messages.previous[message]), place, vector.tobytes()
        yield block, ORPHANS, orphans, 0, 0, b""
        yield block, OVER_TIME, 0, 0, 0, state.by_time.tobytes()
        for place in range(len(ranks)):
            yield block, COUNTS, place, 0, 0, state.counts[place].tobytes()
            yield block, DELIVERED_EVER, place, 0, 0, state.delivered_ever[place].tobytes()

    return _on_one_block(work)


def close_pasts(plan: BlockPlan) -> BatchStep:
    """Close senders' clocks to full pasts; yields those that grew, and whether there is a cycle."""

    def work(_: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        messages = create_message_streams(plan.streams(np.arange(0)))
        with allocate_pasts(plan.run, plan.first) as vectors:
            for _, _, message, previous, _, payload in chunks:
                vectors[message] = np.frombuffer(payload, vectors.dtype)
                messages.previous[message] = previous
            size = _sizes(vectors)
            cyclic = close_transitively(messages, vectors)
            yield 0, CYCLIC, int(cyclic), 0, 0, b""
            for message in np.flatnonzero(_sizes(vectors) > size).tolist():
                yield 0, FULL_PAST, message, int(messages.previous[message]), 0, vectors[message].tobytes()

    return _on_one_block(work)


def _sizes(vectors: np.ndarray) -> np.ndarray:
    sizes: np.ndarray = vectors.sum(axis=1, dtype=np.int64)
    return sizes


def mark_impossible_block(plan: BlockPlan) -> BatchStep:
    """The deliveries that precede their own send, as bits for each process; every past comes first."""

    def work(block: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        ranks = plan.ranks(block)
        streams = plan.streams(ranks)
        state, messages = create_state(streams), create_message_streams(streams)
        with allocate_pasts(plan.run, plan.first) as vectors:
            rest = _load_state(chunks, state, vectors, messages)
            origins = plan.origin[messages.stream]
            following, first_sent = next_sends(messages.previous, origins, plan.processes)
            next_send, count = first_sent[ranks], 0
            for rows, index in _slices(plan, ranks, rest):
                count += mark_impossible(rows, state, messages, vectors, following, next_send)
                yield from _marked(block, IMPOSSIBLE_ROWS, IMPOSSIBLE_DELIVERY, ranks, rows, index)
        for place in range(len(ranks)):
            yield block, IMPOSSIBLE, place, count if place == 0 else 0, 0, state.impossible[place].tobytes()

    return _on_one_block(work)


def count_block(plan: BlockPlan, most: int) -> BatchStep:
    """The violations of each delivery; every past, and what `collect_block` found of the block, come
    first."""

    def work(block: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        ranks = plan.ranks(block)
        streams = plan.streams(ranks)
        state, messages = create_state(streams, most, plan.processes), create_message_streams(streams)
        with allocate_pasts(plan.run, plan.first) as vectors:
            rest = _load_state(chunks, state, vectors, messages)
            gaps = find_gaps(streams, state)
            for rows, _ in _slices(plan, ranks, rest):
                count_violations(rows, streams, state, gaps, messages.stream, vectors)
        for place, rank in enumerate(ranks.tolist()):
            yield block, COUNTS, rank, 0, 0, state.counts[place].tobytes()
        yield block, ORIGINS, 0, 0, 0, state.by_origin.tobytes()
        yield block, OVER_TIME, 0, 0, 0, state.by_time.tobytes()
        roots = worst_roots(state.late_roots, gaps, streams, most)
        for part, found in ((ROOTS, roots), (MISSING_ROWS, worst_missing(gaps, streams, most))):
            named = [(int(ranks[process]), *rest) for process, *rest in found]
            yield block, part, 0, 0, 0, np.array(named, np.int64).tobytes()

    return _on_one_block(work)


def _marked(
    block: int, part: int, mark: int, ranks: np.ndarray, rows: Rows, index: np.ndarray
) -> Iterator[Chunk]:
    """A chunk of the rows of a slice that carry a mark, if there are any."""
    places = np.flatnonzero(rows.fault & mark)
    if len(places):
        process = ranks[np.repeat(rows.process, np.diff(rows.start))[places]]
        marked = np.stack([process, rows.message[places], index[places]], axis=1).astype(np.int64)
        yield block, part, 0, 0, 0, marked.tobytes()


def unpack_marked(batches: Batches) -> Iterator[pa.RecordBatch]:
    """From chunks of `DUPLICATE_ROWS` or `IMPOSSIBLE_ROWS` to rows of `MARKED`."""
    for *_, payload in read_chunks(batches):
        columns = np.frombuffer(payload, np.int64).reshape(-1, len(MARKED)).T
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=MARKED)


def find_paths(plan: BlockPlan, roots: list[Root]) -> BatchStep:
    """For each root a shortest chain of messages from the cause to the effect.

    Takes senders' clocks, `IMPOSSIBLE` deliveries, and chunks of `PATH`: at which of its own indices
    (`previous`) a process (`index`) got the cause of which root (`number`).
    """

    def work(_: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        messages = create_message_streams(plan.streams(np.arange(0)))
        origins, sent_at = plan.origin[messages.stream], np.zeros(plan.messages, np.int64)
        never = np.iinfo(np.int64).max
        delivered_at = np.full((len(roots), plan.processes), never)
        impossible: dict[int, np.ndarray] = {}
        with allocate_pasts(plan.run, plan.first) as vectors:
            for block, part, number, previous, index, payload in chunks:
                if part == SENDER_CLOCK:
                    vectors[number] = np.frombuffer(payload, vectors.dtype)
                    sent_at[number] = index
                elif part == IMPOSSIBLE:
                    impossible[int(plan.ranks(block)[number])] = np.frombuffer(payload, np.uint64)
                elif part == PATH:
                    delivered_at[number, index] = min(delivered_at[number, index], previous)
            for place, root in enumerate(roots):
                for process, bits in impossible.items():
                    if int(bits[root.cause >> 6]) >> (root.cause & 63) & 1:
                        delivered_at[place, process] = never
                delivered_at[place, origins[root.cause]] = sent_at[root.cause]
                effects = shortest_chain(
                    messages, vectors, delivered_at[place][origins] < sent_at, root.effect
                )
                yield 0, PATH, place, 0, 0, np.append(root.cause, effects).astype(np.int64).tobytes()

    return _on_one_block(work)


def _load_state(
    chunks: Iterator[Chunk],
    state: AuditState,
    vectors: np.ndarray | None = None,
    messages: MessageStreams | None = None,
) -> Iterator[Chunk]:
    """Load the chunks that precede the rows; return the chunks of rows."""
    for chunk in chunks:
        _, part, number, previous, _, payload = chunk
        if part >= 0:
            return _with_first(chunk, chunks)
        if part == DELIVERED_EVER:
            state.delivered_ever[number] = np.frombuffer(payload, np.uint64)
        elif part == COUNTS:
            state.counts[number] = np.frombuffer(payload, np.int64)
        elif part == OVER_TIME:
            state.by_time[:] = np.frombuffer(payload, np.int64).reshape(TIME_BUCKETS, 2)
        elif part == IMPOSSIBLE:
            state.impossible[number] = np.frombuffer(payload, np.uint64)
        elif part in (SENDER_CLOCK, FULL_PAST) and vectors is not None and messages is not None:
            vectors[number] = np.frombuffer(payload, vectors.dtype)
            messages.previous[number] = previous
    return iter(())


def _with_first(first: Chunk, others: Iterator[Chunk]) -> Iterator[Chunk]:
    yield first
    yield from others


def _slices(plan: BlockPlan, ranks: np.ndarray, chunks: Iterator[Chunk]) -> Iterator[tuple[Rows, np.ndarray]]:
    """The rows of one slice after the other, process by process, and each row's index."""
    waiting: list[Chunk] = []
    for chunk in chunks:
        if waiting and chunk[1] != waiting[0][1]:
            yield _unpack(plan, ranks, waiting)
            waiting = []
        waiting.append(chunk)
    if waiting:
        yield _unpack(plan, ranks, waiting)


def _unpack(plan: BlockPlan, ranks: np.ndarray, chunks: list[Chunk]) -> tuple[Rows, np.ndarray]:
    """The rows of one slice."""
    events = np.frombuffer(b"".join(chunk[5] for chunk in chunks), plan.packed_event)
    sizes = [len(chunk[5]) // plan.packed_event.itemsize for chunk in chunks]
    process = np.repeat(np.array([chunk[2] for chunk in chunks]), sizes)
    offset, event, time = events["offset"].astype(np.int64), events["event"], events["time"]
    same = np.diff(process) == 0
    if (np.diff(offset)[same] < 0).any():
        order = np.lexsort((offset, process))
        process, offset, event, time = process[order], offset[order], event[order], time[order]
        same = np.diff(process) == 0
    index = plan.lowest_index + chunks[0][1] * plan.slice_width + offset
    for row in np.flatnonzero(same & (np.diff(offset) == 0))[:1]:
        raise _DuplicateIndexError(int(ranks[process[row]]), int(index[row]))
    begin = np.flatnonzero(np.append(True, ~same))
    sends = event < -1
    only_sent = time >= _SEND_ONLY_TIME
    rows = Rows(
        process=process[begin],
        start=np.append(begin, len(process)),
        kind=np.where(only_sent, SEND_ONLY, np.where(sends, SEND, DELIVER)).astype(np.int8),
        message=np.where(sends, -2 - event, event).astype(np.int64),
        time=time - (_SEND_ONLY_TIME * only_sent).astype(np.int8),
        fault=np.zeros(len(process), np.uint8),
    )
    return rows, index


class _DuplicateIndexError(Exception):
    """A process (by rank) has two events with one index."""


def _on_one_block(work: Callable[[int, Iterator[Chunk]], Iterator[Chunk]]) -> BatchStep:
    """A step that applies `work` to the chunks of a partition, which belong to one block.

    Errors become chunks too: the driver raises them with names instead of ranks.
    """

    def step(batches: Batches) -> Iterator[pa.RecordBatch]:
        chunks = read_chunks(batches)
        first = next(chunks, None)
        if first is None:
            return
        block = first[0]
        waiting: list[Chunk] = []
        size = 0
        try:
            for chunk in work(block, _with_first(first, chunks)):
                waiting.append(chunk)
                size += len(chunk[5])
                if size > _EMITTED_BYTES:
                    yield _batch(waiting)
                    waiting, size = [], 0
        except _DuplicateIndexError as duplicate:
            rank, index = duplicate.args
            waiting.append((block, ERROR, rank, 0, index, b""))
        except InputError as error:
            waiting.append((block, ERROR, -1, 0, 0, str(error).encode()))
        if waiting:
            yield _batch(waiting)

    return step


def _batch(chunks: list[Chunk]) -> pa.RecordBatch:
    columns = zip(*chunks, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, CHUNK.types, strict=True)], schema=CHUNK
    )


def read_chunks(batches: Batches) -> Iterator[Chunk]:
    """The chunks of each batch, one by one; payloads are not copied."""
    for batch in batches:
        numbers = [batch.column(name).to_pylist() for name in CHUNK.names[:-1]]
        payloads = batch.column("payload")
        for row, (block, part, number, previous, index) in enumerate(zip(*numbers, strict=True)):
            yield block, part, number, previous, index, payloads[row].as_buffer()


def _combine(batches: Batches, rows: int) -> Iterator[pa.Table]:
    """Tables of about `rows` rows each."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += len(batch)
        if size >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if size:
        yield pa.Table.from_batches(waiting)
