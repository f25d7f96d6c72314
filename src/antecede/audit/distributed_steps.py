"""A run that is too large for one worker, judged by several: what each does with what it is given.

Processes are dealt out to *blocks*, and each block's rows are gone through a part at a time, in the order of
their index, so that memory is for what has to be remembered and not for rows. Everything travels as *parcels*
of bytes, thousands of rows in each, because workers are fast with those and slow with single rows:

1. `pack` makes parcels of rows;
2. `gather_block` says of each message what its sender had then, and what each process has in the end;
3. `close_all`, one worker, makes of these the past of every message (`pasts`);
4. `count_block` compares each delivery with that. Every block gets every message's past before its rows.

If there are cycles, `bar_block` finds the deliveries before their own send, and 2 and 3 are done anew without
them. `paths`, one worker again, says why the cause of a violation is a cause.
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
    SEND,
    TIME_BUCKETS,
    AuditState,
    Root,
    Rows,
    Streams,
    bar,
    count,
    create_sends,
    create_state,
    find_gaps,
    gather,
    next_sends,
    worst_roots,
)
from antecede.causality.transitive_closure import MessageStreams, close_transitively, shortest_chain
from antecede.errors import InputError

CODED = pa.schema([("rank", pa.int32()), ("index", pa.int64()), ("what", pa.int64()), ("time", pa.int64())])
"""Rows in numbers. `what` is the message delivered, or -1 if nobody sent it, or -2 less the message sent."""
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
HELLO, ERROR, CYCLIC, ORPHANS, ROOTS, PATH, BARRED = range(-14, -7)
EVER, COUNTS, ORIGINS, OVER_TIME, VECTOR, CLOSED, KEY = range(-7, 0)
"""Parts that are not rows; those of rows are counted from 0."""
LARGEST_MESSAGE = (1 << 31) - 3
PACKED_ROWS = 1 << 20
_EMITTED_BYTES = 1 << 24

Batches = Iterable[pa.RecordBatch]
Chunk = tuple[int, int, int, int, int, Any]


class BlockPlan(NamedTuple):
    """What every worker has to know of the run."""

    run: str
    first: np.ndarray
    """The number of each stream's first message; one more at the end."""
    origin: np.ndarray
    audience: np.ndarray
    """Of each stream, which of the audiences it is for."""
    audiences: np.ndarray
    """Audiences × processes."""
    blocks: int
    start_time: int
    bucket_width: int
    lowest: int
    """The least index, and how many go into a part."""
    width: int

    @property
    def messages(self) -> int:
        return int(self.first[-1])

    @property
    def processes(self) -> int:
        return int(self.audiences.shape[1])

    @property
    def row(self) -> np.dtype[Any]:
        """A row in a parcel."""
        offset = "u2" if self.width <= 1 << 16 else "u8"
        return np.dtype([("offset", offset), ("what", "i4"), ("time", "i1")])

    def ranks(self, block: int) -> np.ndarray:
        """The processes of a block."""
        return np.arange(block, self.processes, self.blocks)

    def streams(self, ranks: np.ndarray) -> Streams:
        """The streams as some processes see them."""
        meant = self.audiences[self.audience][:, ranks].T
        return Streams(self.first, self.origin, meant | (self.origin[None, :] == ranks[:, None]))


def pack(plan: BlockPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Rows of `CODED`, in any order, to parcels: a process's rows of one part together."""

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        for table in _many(batches, PACKED_ROWS):
            yield packed(plan, *(table.column(name).to_numpy() for name in CODED.names))

    return work


def packed(
    plan: BlockPlan, rank: np.ndarray, index: np.ndarray, what: np.ndarray, time: np.ndarray
) -> pa.RecordBatch:
    """The parcels of some rows."""
    since = index.view(np.uint64) - np.uint64(plan.lowest % (1 << 64))
    part, offset = np.divmod(since, np.uint64(plan.width))
    order = np.argsort(rank.astype(np.uint16) if plan.processes < 1 << 16 else rank, kind="stable")
    if (np.diff(since[order].view(np.int64))[np.diff(rank[order]) == 0] < 0).any():
        order = np.lexsort((since, rank))
    rank, part = rank[order], part[order].view(np.int64)
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(rank) != 0) | (np.diff(part) != 0)
    begin = np.flatnonzero(new)
    rows = np.empty(len(order), plan.row)
    rows["offset"], rows["what"] = offset[order], what[order]
    rows["time"] = bucket_of(time, plan.start_time, plan.bucket_width)[order]
    bounds = (np.append(begin, len(order)) * plan.row.itemsize).astype(np.int32)
    payload = pa.Array.from_buffers(pa.binary(), len(begin), [None, pa.py_buffer(bounds), pa.py_buffer(rows)])
    nothing = pa.array(np.zeros(len(begin), np.int64))
    rank = rank[begin].astype(np.int64)
    columns = [pa.array((rank % plan.blocks).astype(np.int32)), pa.array(part[begin])]
    columns += [pa.array(rank // plan.blocks), nothing, nothing, payload]
    return pa.RecordBatch.from_arrays(columns, schema=CHUNK)


def gather_block(plan: BlockPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """What each sender had at each send, what each process has in the end, and what is to be counted of it.
    What a process has before it was sent may come first, and passes nothing on then."""

    def work(block: int, parcels: Iterator[Chunk]) -> Iterator[Chunk]:
        ranks = plan.ranks(block)
        streams = plan.streams(ranks)
        state, sends = create_state(streams), create_sends(streams)
        where, orphans = np.zeros(plan.messages, np.int64), 0
        for rows, index in _parts(plan, ranks, _head(parcels, state)):
            orphans += int((rows.message < 0).sum())
            sent = rows.message[rows.kind == SEND]
            where[sent] = np.arange(len(sent))
            vectors = np.empty((len(sent), len(plan.origin)), state.knows.dtype)
            gather(rows, state, sends, where, vectors)
            at = index[rows.kind == SEND].tolist()
            for message, place, vector in zip(sent.tolist(), at, vectors, strict=True):
                yield block, VECTOR, message, int(sends.previous[message]), place, vector.tobytes()
        yield block, ORPHANS, orphans, 0, 0, b""
        yield block, OVER_TIME, 0, 0, 0, state.by_time.tobytes()
        for place in range(len(ranks)):
            yield block, COUNTS, place, 0, 0, state.counts[place].tobytes()
            yield block, EVER, place, 0, 0, state.ever[place].tobytes()

    return _by_block(work)


def close_all(plan: BlockPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """From what senders had to every message's past: those that are more. And whether there is a cycle."""

    def work(_: int, parcels: Iterator[Chunk]) -> Iterator[Chunk]:
        sends = create_sends(plan.streams(np.arange(0)))
        with allocate_pasts(plan.run, plan.first) as vectors:
            for _, _, message, previous, _, payload in parcels:
                vectors[message] = np.frombuffer(payload, vectors.dtype)
                sends.previous[message] = previous
            size = _sizes(vectors)
            cyclic = close_transitively(sends, vectors)
            yield 0, CYCLIC, int(cyclic), 0, 0, b""
            for message in np.flatnonzero(_sizes(vectors) > size).tolist():
                yield 0, CLOSED, message, int(sends.previous[message]), 0, vectors[message].tobytes()

    return _by_block(work)


def _sizes(vectors: np.ndarray) -> np.ndarray:
    sizes: np.ndarray = vectors.sum(axis=1, dtype=np.int64)
    return sizes


def bar_block(plan: BlockPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Deliveries from which their own send can be reached, as bits for each process; given every past."""

    def work(block: int, parcels: Iterator[Chunk]) -> Iterator[Chunk]:
        ranks = plan.ranks(block)
        streams = plan.streams(ranks)
        state, sends = create_state(streams), create_sends(streams)
        with allocate_pasts(plan.run, plan.first) as vectors:
            rest = _head(parcels, state, vectors, sends)
            origins = plan.origin[sends.stream]
            following, begin = next_sends(sends.previous, origins, plan.processes)
            after, found = begin[ranks], 0
            for rows, _ in _parts(plan, ranks, rest):
                found += bar(rows, state, sends, vectors, following, after)
        for place in range(len(ranks)):
            yield block, BARRED, place, found if place == 0 else 0, 0, state.barred[place].tobytes()

    return _by_block(work)


def count_block(plan: BlockPlan, most: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """What each delivery came before; given every past, and what `gather_block` says of these processes."""

    def work(block: int, parcels: Iterator[Chunk]) -> Iterator[Chunk]:
        ranks = plan.ranks(block)
        streams = plan.streams(ranks)
        state, sends = create_state(streams, most), create_sends(streams)
        with allocate_pasts(plan.run, plan.first) as vectors:
            rest = _head(parcels, state, vectors, sends)
            gaps = find_gaps(streams, state)
            for rows, _ in _parts(plan, ranks, rest):
                count(rows, streams, state, gaps, sends.stream, vectors)
        for place, rank in enumerate(ranks.tolist()):
            yield block, COUNTS, rank, 0, 0, state.counts[place].tobytes()
        yield block, ORIGINS, 0, 0, 0, state.by_origin.tobytes()
        yield block, OVER_TIME, 0, 0, 0, state.by_time.tobytes()
        found = [
            root._replace(place=int(ranks[root.place])) for root in worst_roots(state, gaps, streams, most)
        ]
        yield block, ROOTS, 0, 0, 0, np.array(found, np.int64).tobytes()

    return _by_block(work)


def paths(plan: BlockPlan, roots: list[Root]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For each root a shortest chain from the cause to the effect; given what senders had, and as `PATH`
    when (by its own index, `previous`) a process (`index`) had which root's cause (`number`)."""

    def work(_: int, parcels: Iterator[Chunk]) -> Iterator[Chunk]:
        sends = create_sends(plan.streams(np.arange(0)))
        origins, at = plan.origin[sends.stream], np.zeros(plan.messages, np.int64)
        never = np.iinfo(np.int64).max
        got = np.full((len(roots), plan.processes), never)
        barred: dict[int, np.ndarray] = {}
        with allocate_pasts(plan.run, plan.first) as vectors:
            for block, part, number, previous, index, payload in parcels:
                if part == VECTOR:
                    vectors[number] = np.frombuffer(payload, vectors.dtype)
                    at[number] = index
                elif part == BARRED:
                    barred[int(plan.ranks(block)[number])] = np.frombuffer(payload, np.uint64)
                elif part == PATH:
                    got[number, index] = min(got[number, index], previous)
            for place, root in enumerate(roots):
                for process, bits in barred.items():
                    if int(bits[root.cause >> 6]) >> (root.cause & 63) & 1:
                        got[place, process] = never
                got[place, origins[root.cause]] = at[root.cause]
                found = shortest_chain(sends, vectors, got[place][origins] < at, root.effect)
                yield 0, PATH, place, 0, 0, np.append(root.cause, found).astype(np.int64).tobytes()

    return _by_block(work)


def _head(
    parcels: Iterator[Chunk],
    state: AuditState,
    vectors: np.ndarray | None = None,
    sends: MessageStreams | None = None,
) -> Iterator[Chunk]:
    """Take in what comes before the rows; the rows are left."""
    for parcel in parcels:
        _, part, number, previous, _, payload = parcel
        if part >= 0:
            return _with_first(parcel, parcels)
        if part == EVER:
            state.ever[number] = np.frombuffer(payload, np.uint64)
        elif part == COUNTS:
            state.counts[number] = np.frombuffer(payload, np.int64)
        elif part == OVER_TIME:
            state.by_time[:] = np.frombuffer(payload, np.int64).reshape(TIME_BUCKETS, 2)
        elif part == BARRED:
            state.barred[number] = np.frombuffer(payload, np.uint64)
        elif part in (VECTOR, CLOSED) and vectors is not None and sends is not None:
            vectors[number] = np.frombuffer(payload, vectors.dtype)
            sends.previous[number] = previous
    return iter(())


def _with_first(first: Chunk, others: Iterator[Chunk]) -> Iterator[Chunk]:
    yield first
    yield from others


def _parts(plan: BlockPlan, ranks: np.ndarray, parcels: Iterator[Chunk]) -> Iterator[tuple[Rows, np.ndarray]]:
    """The rows of one part after the other, process by process, and their index."""
    waiting: list[Chunk] = []
    for parcel in parcels:
        if waiting and parcel[1] != waiting[0][1]:
            yield _unpacked(plan, ranks, waiting)
            waiting = []
        waiting.append(parcel)
    if waiting:
        yield _unpacked(plan, ranks, waiting)


def _unpacked(plan: BlockPlan, ranks: np.ndarray, parcels: list[Chunk]) -> tuple[Rows, np.ndarray]:
    rows = np.frombuffer(b"".join(parcel[5] for parcel in parcels), plan.row)
    sizes = [len(parcel[5]) // plan.row.itemsize for parcel in parcels]
    place = np.repeat(np.array([parcel[2] for parcel in parcels]), sizes)
    offset, what, time = rows["offset"].astype(np.int64), rows["what"], rows["time"]
    same = np.diff(place) == 0
    if (np.diff(offset)[same] < 0).any():
        order = np.lexsort((offset, place))
        place, offset, what, time = place[order], offset[order], what[order], time[order]
        same = np.diff(place) == 0
    index = plan.lowest + parcels[0][1] * plan.width + offset
    for row in np.flatnonzero(same & (np.diff(offset) == 0))[:1]:
        raise _Twice(int(ranks[place[row]]), int(index[row]))
    begin = np.flatnonzero(np.append(True, ~same))
    sends = what < -1
    message = np.where(sends, -2 - what, what).astype(np.int64)
    kind = np.where(sends, SEND, DELIVER).astype(np.int8)
    return Rows(place[begin], np.append(begin, len(place)), kind, message, np.ascontiguousarray(time)), index


class _Twice(Exception):  # noqa: N818
    """A process has two events with one index."""


def _by_block(
    work: Callable[[int, Iterator[Chunk]], Iterator[Chunk]],
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """From what is done with a block's parcels to what is done with a partition, which has one block."""

    def on_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
        parcels = read_chunks(batches)
        first = next(parcels, None)
        if first is None:
            return
        block = first[0]
        waiting: list[Chunk] = []
        size = 0
        try:
            for parcel in work(block, _with_first(first, parcels)):
                waiting.append(parcel)
                size += len(parcel[5])
                if size > _EMITTED_BYTES:
                    yield _batch(waiting)
                    waiting, size = [], 0
        except _Twice as twice:
            rank, index = twice.args
            waiting.append((block, ERROR, rank, 0, index, b""))
        except InputError as error:
            waiting.append((block, ERROR, -1, 0, 0, str(error).encode()))
        if waiting:
            yield _batch(waiting)

    return on_batches


def _batch(parcels: list[Chunk]) -> pa.RecordBatch:
    columns = zip(*parcels, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, CHUNK.types, strict=True)], schema=CHUNK
    )


def read_chunks(batches: Batches) -> Iterator[Chunk]:
    for batch in batches:
        numbers = [batch.column(name).to_pylist() for name in CHUNK.names[:-1]]
        payloads = batch.column("payload")
        for row, (block, part, number, previous, index) in enumerate(zip(*numbers, strict=True)):
            yield block, part, number, previous, index, payloads[row].as_buffer()


def _many(batches: Batches, rows: int) -> Iterator[pa.Table]:
    """Batches, so many put together that there are about `rows` rows."""
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
