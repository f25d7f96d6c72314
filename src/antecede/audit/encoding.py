"""From the rows of a run to numbers that compiled passes take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.passes import DELIVER, SEND, TIMES, Rows, Streams
from antecede.errors import InputError
from antecede.trace.execution_from_rows import Members, destinations
from antecede.trace.schema import KINDS, REQUIRED

_SEND, _RECEIVE, _DELIVER = range(len(KINDS))
_LATEST = (1 << 63) - 1


class EncodedRun(NamedTuple):
    """A run in numbers."""

    names: list[str]
    """Of the processes, by rank."""
    rows: Rows
    times: np.ndarray
    """Of each row."""
    began: int
    """When the first of all happened, and how long a stretch of time is."""
    stretch: int
    streams: Streams
    origins: np.ndarray
    seqs: np.ndarray
    """Of each message, by number."""
    orphans: int
    repeated_orphans: int


def encode_run(rows: pa.Table, members: Members) -> EncodedRun:
    """The rows of one run, in whatever order they come. Whom messages are meant for is as in `execution`."""
    for name in REQUIRED:
        if rows.column(name).null_count:
            raise InputError(f"field {name} is empty in {rows.column(name).null_count:,} rows")
    addressed = destinations(rows)
    present = rows.column("process").unique().to_pylist()
    names = sorted({*present}.union(*members.values(), *addressed.values()))
    strangers = sorted({*rows.column("origin").unique().to_pylist()} - {*names})
    process = _ranks(rows.column("process"), names)
    origin = _ranks(rows.column("origin"), names + strangers)
    kind = _ranks(rows.column("kind"), KINDS, rows)
    index, seq, time = (rows.column(name).to_numpy() for name in ("index", "seq", "time"))
    groups = rows.column("group").unique().to_pylist()
    group = _ranks(rows.column("group"), groups)
    order = np.lexsort((index, process))
    process, index, kind, origin, seq, group, time = (
        column[order] for column in (process, index, kind, origin, seq, group, time)
    )
    _check(names + strangers, process, index, kind, origin, seq)
    seen = np.zeros((len(groups), len(names)), np.bool_)
    seen[group, process] = True
    audiences: list[frozenset[int]] = []
    rank = {name: place for place, name in enumerate(names)}
    for place, name in enumerate(groups):
        those = [rank[each] for each in members[name]] if name in members else np.flatnonzero(seen[place])
        audiences.append(frozenset(int(each) for each in those))
    kept = kind != _RECEIVE
    process, kind, origin, seq, group, time = (
        column[kept] for column in (process, kind, origin, seq, group, time)
    )
    return _numbered(names, process, kind, origin, seq, time, group, audiences, addressed, rank)


def _numbered(
    names: list[str],
    process: np.ndarray,
    kind: np.ndarray,
    origin: np.ndarray,
    seq: np.ndarray,
    time: np.ndarray,
    group: np.ndarray,
    audiences: list[frozenset[int]],
    addressed: dict[tuple[str, int], list[str]],
    rank: dict[str, int],
) -> EncodedRun:
    sends = np.flatnonzero(kind == _SEND)
    audience = group[sends].copy()
    for place, send in enumerate(sends) if addressed else ():
        those = addressed.get((names[origin[send]], int(seq[send])))
        if those is not None:
            audiences.append(frozenset(rank[name] for name in those))
            audience[place] = len(audiences) - 1
    known: dict[frozenset[int], int] = {}
    same = np.array([known.setdefault(those, len(known)) for those in audiences], np.int64)
    audience = same[audience]
    # Stream by stream, each in its sender's order, in which the rows are.
    in_order = np.lexsort((np.arange(len(sends)), audience, origin[sends]))
    sends, audience = sends[in_order], audience[in_order]
    new = np.ones(len(sends), np.bool_)
    new[1:] = (np.diff(origin[sends]) != 0) | (np.diff(audience) != 0)
    firsts = np.flatnonzero(new)
    meant = np.zeros((len(names), len(firsts)), np.bool_)
    sets = list(known)
    for stream, first in enumerate(firsts):
        meant[[*sets[audience[first]], origin[sends[first]]], stream] = True
    streams = Streams(
        np.append(firsts, len(sends)).astype(np.int64), origin[sends[firsts]].astype(np.int32), meant
    )
    by_key = np.lexsort((seq[sends], origin[sends]))
    message = _found(origin[sends][by_key], seq[sends][by_key], origin, seq)
    message = np.where(message >= 0, by_key[message], -1) if len(sends) else np.full(len(seq), -1)
    lost = message < 0
    distinct = len({*zip(process[lost].tolist(), origin[lost].tolist(), seq[lost].tolist(), strict=True)})
    start = np.searchsorted(process, np.arange(len(names) + 1))
    began, stretch = time_buckets(int(time.min(initial=_LATEST)), int(time.max(initial=-1 - _LATEST)))
    own = Rows(
        np.arange(len(names)),
        start,
        np.where(kind == _SEND, SEND, DELIVER).astype(np.int8),
        message,
        bucket_of(time, began, stretch),
    )
    repeated = int(lost.sum()) - distinct
    return EncodedRun(
        names, own, time, began, stretch, streams, origin[sends], seq[sends], distinct, repeated
    )


def time_buckets(earliest: int, latest: int) -> tuple[int, int]:
    """When the first stretch of time begins, and how long each is."""
    return (earliest, (latest - earliest) // TIMES + 1) if latest >= earliest else (0, 1)


def bucket_of(time: np.ndarray, began: int, stretch: int) -> np.ndarray:
    """In which stretch each time lies; unsigned, because times may be as far apart as numbers can be."""
    since = time.view(np.uint64) - np.uint64(began % (1 << 64))
    return (since // np.uint64(stretch)).astype(np.int8)


def _found(origins: np.ndarray, seqs: np.ndarray, origin: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """Where each (origin, seq) is among pairs in their order; -1 if it is not."""
    every = np.concatenate([np.stack([origins, seqs]), np.stack([origin, seq])], axis=1).astype(np.int64)
    order = np.lexsort((np.arange(every.shape[1]), every[1], every[0]))
    known = order < len(origins)
    last = np.maximum.accumulate(np.where(known, np.arange(len(order)), -1))
    place = np.where(last >= 0, order[np.maximum(last, 0)], -1)
    found = np.empty(len(order), np.int64)
    same = (place >= 0) & (every[:, order] == every[:, np.maximum(place, 0)]).all(axis=0)
    found[order] = np.where(same, place, -1)
    return found[len(origins) :]


def _ranks(column: pa.ChunkedArray, names: Sequence[str], rows: pa.Table | None = None) -> np.ndarray:
    """Each name's place among `names`; the rows are given where a name may be none of them."""
    places = pc.index_in(column, pa.array(names, pa.string()))
    if rows is not None and places.null_count:
        row = rows.slice(places.is_null().to_pylist().index(True), 1).to_pylist()[0]
        raise no_kind(row["process"], row["index"], row["kind"])
    ranks: np.ndarray = places.to_numpy().astype(np.int64)
    return ranks


def _check(
    names: list[str],
    process: np.ndarray,
    index: np.ndarray,
    kind: np.ndarray,
    origin: np.ndarray,
    seq: np.ndarray,
) -> None:
    """What no log can say."""
    twice = np.flatnonzero((np.diff(process) == 0) & (np.diff(index) == 0))
    for row in twice[:1]:
        raise same_index(names[process[row]], index[row])
    for row in np.flatnonzero(seq < 1)[:1]:
        raise no_seq(names[process[row]], index[row], seq[row])
    sends = np.flatnonzero(kind == _SEND)
    for row in sends[origin[sends] != process[sends]][:1]:
        raise not_its_own(names[process[row]], index[row], names[origin[row]])
    by_key = sends[np.lexsort((index[sends], seq[sends], origin[sends]))]
    again = (np.diff(origin[by_key]) == 0) & (np.diff(seq[by_key]) == 0)
    for row in by_key[1:][again][:1]:
        raise sent_twice(names[origin[row]], seq[row], index[row])


def no_kind(process: str, index: int, kind: str) -> InputError:
    expected = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
    return InputError(f"process {process}, index {index}: kind '{kind}' is not {expected}")


def same_index(process: str, index: int) -> InputError:
    return InputError(f"process {process} has two events with index {index}")


def no_seq(process: str, index: int, seq: int) -> InputError:
    return InputError(f"process {process}, index {index}: seq {seq} is not 1 or more")


def not_its_own(process: str, index: int, origin: str) -> InputError:
    return InputError(f"process {process}, index {index}: it sends a message of {origin}")


def sent_twice(origin: str, seq: int, index: int) -> InputError:
    return InputError(f"{origin}:{seq} is sent twice, again at index {index}")
