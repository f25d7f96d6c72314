"""What every message depends on: of a log with deliveries, or of a table of dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import allocate_pasts
from antecede.audit.encoding import EncodedRun, encode_run
from antecede.audit.passes import DELIVER, SEND, compute_pasts, create_message_streams
from antecede.causality.transitive_reduction import immediate_dependencies, past_sizes
from antecede.errors import InputError
from antecede.jit import njit_plain
from antecede.trace.dependencies import Dependencies, dependencies
from antecede.trace.execution_from_rows import Members
from antecede.trace.validate import destinations


class Pasts(NamedTuple):
    """The messages of a run, sender by sender, each sender's in its own order, and what they depend on."""

    names: list[str]
    """Of the processes, by rank."""
    senders: np.ndarray
    numbers: np.ndarray
    """Of each message among its sender's, from 1."""
    columns: np.ndarray
    """The process that each column of `vectors` is about."""
    vectors: np.ndarray
    previous: np.ndarray
    """What its sender sent before; -1 if nothing."""
    start: np.ndarray
    cause: np.ndarray
    """The immediate dependencies of each."""
    order: np.ndarray
    """All messages, causes first."""
    out_of_turn: int = 0
    """Messages that a table has beside their own sender's previous one, not after it."""


def single_group_rows(run: str, rows: pa.Table, members: Members) -> tuple[pa.Table, list[str]]:
    """The rows of a run in which everybody gets everything, and who that is; no other run can be advised."""
    groups = sorted(str(name) for name in rows.column("group").unique().to_pylist())
    if len(groups) > 1:
        raise InputError(
            f"run {run} has messages to {len(groups):,} groups ({', '.join(groups[:3])} …); of all protocols "
            "only multigroup keeps order across groups, so there is nothing to choose; advise takes one group"
        )
    present = rows.column("process").unique().to_pylist()
    if None in present:
        raise InputError(f"run {run}: field process is empty in some rows")
    addressed = destinations(rows)
    everyone = {*present}.union(*addressed.values(), *(members.get(group, []) for group in groups))
    for (origin, seq), those in addressed.items():
        left_out = sorted(everyone - {*those, origin})
        if left_out:
            raise InputError(
                f"run {run}: {origin}:{seq} does not go to {left_out[0]}; the protocols that advise weighs "
                "send every message to the whole group, and for groups that overlap there is only multigroup"
            )
    there = [name for name in rows.column_names if name not in ("group", "destinations")]
    plain = rows.select(there).append_column("group", pa.repeat(pa.scalar("", pa.string()), rows.num_rows))
    return plain, sorted(everyone)


def stated(run: str, rows: pa.Table) -> Dependencies:
    """What the sends of a log without deliveries name as their causes."""
    _coded(run, rows, {})
    sends = rows.filter(pc.equal(rows.column("kind"), "send"))
    named = sends.column("deps") if "deps" in rows.column_names else None
    if sends.num_rows and (named is None or named.null_count == sends.num_rows):
        raise InputError(
            f"run {run} has sends only: no deliveries, and no deps that say what depends on what; "
            "a table of dependencies (docs/graph.md) can be advised on too"
        )
    nodes = pc.binary_join_element_wise(sends.column("origin"), sends.column("seq").cast(pa.string()), ":")
    table = pa.table({"node": nodes, "process": sends.column("process"), "parents": named or []})
    return dependencies(table, run, f"run {run}, the sends and their deps")


@contextmanager
def pasts_of_run(run: str, rows: pa.Table, everyone: list[str]) -> Iterator[tuple[Pasts, EncodedRun]]:
    """Those of the rows of one run (as `single_group_rows` gives them), and the run in numbers."""
    log = _coded(run, rows, {"": everyone})
    first = log.streams.first
    with allocate_pasts(run, first) as vectors:
        compute_pasts(log.rows, log.streams, vectors, create_message_streams(log.streams))
        yield _pasts(log.names, first, log.streams.origin.astype(np.int64), vectors), log


def _coded(run: str, rows: pa.Table, members: Members) -> EncodedRun:
    try:
        return encode_run(rows, members)
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error


@contextmanager
def pasts_of_dependencies(given: Dependencies) -> Iterator[Pasts]:
    """Those of a table. Who sends twice has seen its own first, whatever the table says."""
    rank = np.argsort(np.argsort(np.array(given.senders, object)))
    size = len(given.order)
    place = np.empty(size, np.int64)
    place[given.order] = np.arange(size)
    process = rank[given.process]
    by_sender = np.lexsort((place, process))
    number_of = np.empty(size, np.int64)
    number_of[by_sender] = np.arange(size)
    first = np.searchsorted(process[by_sender], np.arange(len(rank) + 1))
    with allocate_pasts(given.run, first) as vectors:
        aside = gather(given.order, process, number_of, first, given.start, given.cause, vectors)
        found = _pasts(sorted(given.senders), first, np.arange(len(rank)), vectors)
        yield found._replace(out_of_turn=int(aside))


def _pasts(names: list[str], first: np.ndarray, columns: np.ndarray, vectors: np.ndarray) -> Pasts:
    counts = np.diff(first)
    previous = np.arange(-1, first[-1] - 1)
    previous[first[:-1][counts > 0]] = -1
    sizes = past_sizes(vectors)
    start, cause = immediate_dependencies(first, previous, vectors, sizes, 0, len(vectors))
    numbers = np.arange(first[-1]) - np.repeat(first[:-1], counts) + 1
    order = np.argsort(sizes, kind="stable")
    return Pasts(names, np.repeat(columns, counts), numbers, columns, vectors, previous, start, cause, order)


@njit_plain
def gather(order: Any, process: Any, number_of: Any, first: Any, start: Any, cause: Any, vectors: Any) -> Any:
    """The past of every message of a table, causes first, into `vectors`; how many of them do not follow
    their sender's previous message by themselves."""
    aside = 0
    for row in order:
        me, message = process[row], number_of[row]
        vector, number = vectors[message], message - first[me] + 1
        for link in range(start[row], start[row + 1]):
            other = number_of[cause[link]]
            known = vectors[other]
            for column in range(len(known)):
                vector[column] = max(vector[column], known[column])
            whose = process[cause[link]]
            vector[whose] = max(vector[whose], other - first[whose] + 1)
        if number > 1 and vector[me] < number - 1:
            aside += 1
            known = vectors[message - 1]
            for column in range(len(known)):
                vector[column] = max(vector[column], known[column])
            vector[me] = number - 1
    return aside


def send_times(log: EncodedRun) -> np.ndarray:
    """When each message was sent, as the log says."""
    times = np.zeros(log.streams.messages, np.int64)
    sends = log.rows.kind == SEND
    times[log.rows.message[sends]] = log.times[sends]
    return times


def delivery_delays(log: EncodedRun, sent: np.ndarray) -> np.ndarray:
    """From send to deliver."""
    those = (log.rows.kind == DELIVER) & (log.rows.message >= 0)
    delays: np.ndarray = log.times[those] - sent[log.rows.message[those]]
    return delays


def link_delays(rows: pa.Table, log: EncodedRun, sent: np.ndarray) -> np.ndarray:
    """From send to receive, of what came from its sender directly; none where a log does not say."""
    if "link" not in rows.column_names:
        return np.empty(0, np.int64)
    direct = pc.and_(
        pc.equal(rows.column("kind"), "receive"), pc.equal(rows.column("link"), rows.column("origin"))
    )
    rows = rows.filter(pc.fill_null(direct, False))
    ranks = pc.index_in(rows.column("origin"), pa.array(log.names, pa.string()))
    known = pc.fill_null(ranks, -1).to_numpy().astype(np.int64)
    seqs, times = rows.column("seq").to_numpy(), rows.column("time").to_numpy()
    # Messages are in the order of senders, and of one sender nearly always in that of seqs.
    ids = np.lexsort((log.seqs, log.origins))
    key = _key(log.origins[ids], log.seqs[ids])
    wanted = _key(known, seqs)
    place = np.minimum(np.searchsorted(key, wanted), max(0, len(key) - 1))
    found = (known >= 0) & (key[place] == wanted) if len(key) else np.zeros(len(wanted), np.bool_)
    delays: np.ndarray = times[found] - sent[ids[place[found]]]
    return delays


def _key(origins: np.ndarray, seqs: np.ndarray) -> np.ndarray:
    """Origin and number as one; numbers beyond 2^40 are no counts."""
    both: np.ndarray = (origins.astype(np.int64) << 40) + np.minimum(seqs, (1 << 40) - 1)
    return both
