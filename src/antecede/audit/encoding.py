"""Encodes the rows of one run as the numbers that the compiled passes take.

Processes become ranks in the order of their names. Messages are numbered stream by stream, where a *stream*
is what one origin sends to one audience; within a stream they keep their sender's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.passes import DELIVER, SEND, SEND_ONLY, TIME_BUCKETS, Rows, Streams
from antecede.trace import schema, validate
from antecede.trace.schema import Members

_MAX_INT64 = (1 << 63) - 1


class EncodedRun(NamedTuple):
    """A run in numbers."""

    names: list[str]
    """The names of the processes, by rank."""
    rows: Rows
    times: np.ndarray
    """The time of each row."""
    start_time: int
    """The time of the first event."""
    bucket_width: int
    """The width of each of the `TIME_BUCKETS`."""
    streams: Streams
    origins: np.ndarray
    seqs: np.ndarray
    """Origin and seq of each message, by number."""
    positions: np.ndarray
    """The index of each row."""
    table_rows: np.ndarray
    """The position of each row in the table."""
    send_rows: np.ndarray
    """The position of each message's send in the table."""
    orphans: int
    repeated_orphans: int


class _Columns(NamedTuple):
    """The rows as numbers, in the order of process and index."""

    process: np.ndarray
    position: np.ndarray
    """The index of each row; a tuple cannot have a field of that name."""
    kind: np.ndarray
    origin: np.ndarray
    seq: np.ndarray
    group: np.ndarray
    time: np.ndarray
    row: np.ndarray
    """The position of each row in the table."""
    own_delivery: np.ndarray
    """Whether the row is the sender's own delivery that is judged."""

    def take(self, rows: np.ndarray) -> _Columns:
        return _Columns(*(column[rows] for column in self))


def encode_run(rows: pa.Table, members: Members) -> EncodedRun:
    """Validate and encode the rows of one run, in any order.

    A message's audience is determined as in `execution_from_rows.execution`.
    """
    validate.refuse_empty_columns(rows)
    addressed = validate.destinations(rows)
    kind = validate.kind_codes(rows.column("kind"))
    present = rows.column("process").unique().to_pylist()
    names = sorted({*present}.union(*members.values(), *addressed.values()))
    strangers = sorted({*rows.column("origin").unique().to_pylist()} - {*names})
    groups = rows.column("group").unique().to_pylist()
    columns = _Columns(
        process=_ranks(rows.column("process"), names),
        position=rows.column("index").to_numpy(),
        kind=kind,
        origin=_ranks(rows.column("origin"), names + strangers),
        seq=rows.column("seq").to_numpy(),
        group=_ranks(rows.column("group"), groups),
        time=rows.column("time").to_numpy(),
        row=np.arange(rows.num_rows),
        own_delivery=_own_deliveries(rows),
    )
    order = np.lexsort((columns.position, columns.process))
    columns = columns.take(order)
    validate.check_encoded_run(names + strangers, rows.column("kind"), order, *columns[:5])
    rank = {name: place for place, name in enumerate(names)}
    audiences = _group_audiences(groups, members, rank, columns)
    columns = columns.take((columns.kind == schema.SEND) | (columns.kind == schema.DELIVER))
    sends = np.flatnonzero(columns.kind == schema.SEND)
    sends, audience, distinct = _sends_by_stream(columns, sends, audiences, addressed, names, rank)
    streams = _streams(columns.origin[sends], audience, distinct, len(names))
    return _numbered(names, columns, sends, streams)


def _own_deliveries(rows: pa.Table) -> np.ndarray:
    if "own_delivery" not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    marked = pc.fill_null(pc.equal(rows.column("own_delivery"), 1), False)
    delivered = pc.equal(rows.column("kind"), "deliver")
    own = pc.equal(rows.column("process"), rows.column("origin"))
    judged: np.ndarray = pc.and_(marked, pc.and_(delivered, own)).to_numpy()
    return judged


def without_own_deliveries(rows: pa.Table) -> pa.Table:
    """The rows without senders' deliveries of their own messages: their send already counts as the
    delivery."""
    own = _own_deliveries(rows)
    return rows.filter(pa.array(~own)) if own.any() else rows


def message_names(origins: np.ndarray, seqs: np.ndarray, names: list[str]) -> pa.Array:
    """Messages as origin:seq."""
    origin = pa.DictionaryArray.from_arrays(origins, pa.array(names, pa.string())).cast(pa.string())
    return pc.binary_join_element_wise(origin, pa.array(seqs).cast(pa.string()), ":")


def shown_messages(rows: pa.Table, encoded: EncodedRun) -> pa.Array:
    """The displayed name of each message: its own id, or origin:seq."""
    keys = message_names(encoded.origins, encoded.seqs, encoded.names)
    if "message" not in rows.column_names:
        return keys
    ids = rows.column("message").take(pa.array(encoded.send_rows))
    return pc.coalesce(ids, keys)


def _ranks(column: pa.ChunkedArray, names: Sequence[str]) -> np.ndarray:
    """The index of each name in `names`, which contains all of them."""
    ranks: np.ndarray = pc.index_in(column, pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return ranks


def _group_audiences(
    groups: list[str], members: Members, rank: dict[str, int], columns: _Columns
) -> list[frozenset[int]]:
    """The members of each group; otherwise the processes that its rows name."""
    seen = np.zeros((len(groups), len(rank)), np.bool_)
    seen[columns.group, columns.process] = True
    return [
        frozenset(rank[member] for member in members[name])
        if name in members
        else frozenset(np.flatnonzero(seen[place]).tolist())
        for place, name in enumerate(groups)
    ]


def _sends_by_stream(
    columns: _Columns,
    sends: np.ndarray,
    audiences: list[frozenset[int]],
    addressed: dict[tuple[str, int], list[str]],
    names: list[str],
    rank: dict[str, int],
) -> tuple[np.ndarray, np.ndarray, list[frozenset[int]]]:
    """The sends, stream by stream; the number of the audience of each, and the distinct audiences."""
    audience = columns.group[sends].copy()
    for place, send in enumerate(sends) if addressed else ():
        destinations = addressed.get((names[columns.origin[send]], int(columns.seq[send])))
        if destinations is not None:
            audiences.append(frozenset(rank[name] for name in destinations))
            audience[place] = len(audiences) - 1
    distinct = {those: place for place, those in enumerate(canonical_order(audiences))}
    audience = np.array([distinct[those] for those in audiences], np.int64)[audience]
    # The rows are in their sender's order, which a stable sort keeps.
    by_stream = np.lexsort((np.arange(len(sends)), audience, columns.origin[sends]))
    return sends[by_stream], audience[by_stream], list(distinct)


def canonical_order(audiences: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """The distinct audiences in an order that depends on nothing else; messages are numbered by it."""
    return sorted({*audiences}, key=sorted)


def _streams(
    origin: np.ndarray, audience: np.ndarray, distinct: list[frozenset[int]], processes: int
) -> Streams:
    """The streams of sends sorted by origin and audience."""
    new = np.ones(len(origin), np.bool_)
    new[1:] = (np.diff(origin) != 0) | (np.diff(audience) != 0)
    firsts = np.flatnonzero(new)
    addressed = np.zeros((processes, len(firsts)), np.bool_)
    for stream, first in enumerate(firsts):
        addressed[[*distinct[audience[first]], origin[first]], stream] = True
    return Streams(
        np.append(firsts, len(origin)).astype(np.int64), origin[firsts].astype(np.int32), addressed
    )


def _numbered(names: list[str], columns: _Columns, sends: np.ndarray, streams: Streams) -> EncodedRun:
    """The rows with message numbers."""
    process, origin, seq, time = columns.process, columns.origin, columns.seq, columns.time
    origins, seqs = origin[sends], seq[sends]
    by_key = np.lexsort((seqs, origins))
    message = _find_keys(origins[by_key], seqs[by_key], origin, seq)
    message = np.where(message >= 0, by_key[message], -1) if len(sends) else np.full(len(seq), -1)
    orphan = message < 0
    keys = zip(process[orphan].tolist(), origin[orphan].tolist(), seq[orphan].tolist(), strict=True)
    orphans = len({*keys})
    earliest, latest = int(time.min(initial=_MAX_INT64)), int(time.max(initial=-1 - _MAX_INT64))
    start_time, bucket_width = time_buckets(earliest, latest)
    delivered_apart = np.zeros(len(sends), np.bool_)
    delivered_apart[message[columns.own_delivery & ~orphan]] = True
    kind = np.where(columns.kind == schema.SEND, SEND, DELIVER).astype(np.int8)
    kind[sends[delivered_apart]] = SEND_ONLY
    rows = Rows(
        np.arange(len(names)),
        np.searchsorted(process, np.arange(len(names) + 1)),
        kind,
        message,
        bucket_of(time, start_time, bucket_width),
        np.zeros(len(time), np.uint8),
    )
    return EncodedRun(
        names=names,
        rows=rows,
        times=time,
        start_time=start_time,
        bucket_width=bucket_width,
        streams=streams,
        origins=origins,
        seqs=seqs,
        positions=columns.position,
        table_rows=columns.row,
        send_rows=columns.row[sends],
        orphans=orphans,
        repeated_orphans=int(orphan.sum()) - orphans,
    )


def _find_keys(origins: np.ndarray, seqs: np.ndarray, origin: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """The index of each (origin, seq) among the sorted pairs (origins, seqs); -1 if absent."""
    every = np.concatenate([np.stack([origins, seqs]), np.stack([origin, seq])], axis=1).astype(np.int64)
    order = np.lexsort((np.arange(every.shape[1]), every[1], every[0]))
    is_key = order < len(origins)
    last = np.maximum.accumulate(np.where(is_key, np.arange(len(order)), -1))
    place = np.where(last >= 0, order[np.maximum(last, 0)], -1)
    same = (place >= 0) & (every[:, order] == every[:, np.maximum(place, 0)]).all(axis=0)
    found = np.empty(len(order), np.int64)
    found[order] = np.where(same, place, -1)
    return found[len(origins) :]


def time_buckets(earliest: int, latest: int) -> tuple[int, int]:
    """The start of the first of `TIME_BUCKETS` equal buckets, and their width."""
    return (earliest, (latest - earliest) // TIME_BUCKETS + 1) if latest >= earliest else (0, 1)


def bucket_of(time: np.ndarray, start_time: int, bucket_width: int) -> np.ndarray:
    """The bucket of each time. Unsigned arithmetic: times may be 2⁶⁴ apart."""
    since = time.view(np.uint64) - np.uint64(start_time % (1 << 64))
    return (since // np.uint64(bucket_width)).astype(np.int8)
