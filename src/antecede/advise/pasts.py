"""The causal past of every message: of a log with deliveries, or of a table of dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import allocate_pasts
from antecede.audit.encoding import EncodedRun, encode_run, without_own_deliveries
from antecede.audit.passes import DELIVER, SEND, compute_pasts, create_message_streams
from antecede.causality.transitive_reduction import immediate_dependencies, past_sizes
from antecede.errors import InputError
from antecede.jit import njit_plain
from antecede.trace.dependencies import Dependencies, dependencies
from antecede.trace.schema import Members
from antecede.trace.validate import destinations, refuse_empty_columns


class Pasts(NamedTuple):
    """The messages of a run and their causal pasts, grouped by sender, each sender's in its own order."""

    names: list[str]
    """The names of the processes, by rank."""
    senders: np.ndarray
    numbers: np.ndarray
    """The position of each message among its sender's messages, from 1."""
    columns: np.ndarray
    """The process that each column of `vectors` belongs to."""
    vectors: np.ndarray
    previous: np.ndarray
    """The previous message of the same sender; -1 if none."""
    start: np.ndarray
    cause: np.ndarray
    """The immediate dependencies of each message."""
    order: np.ndarray
    """All messages, causes first."""
    unordered: int = 0
    """How many messages of a table do not depend on their own sender's previous one."""


def single_group_rows(run: str, rows: pa.Table, members: Members) -> tuple[pa.Table, list[str]]:
    """The rows of a run in which every message goes to all processes, and these processes; other runs are
    refused."""
    groups = sorted(str(name) for name in rows.column("group").unique().to_pylist())
    if len(groups) > 1:
        raise InputError(
            f"run {run} has messages to {len(groups):,} groups ({', '.join(groups[:3])} …); of all protocols "
            "only multigroup keeps order across groups, so there is nothing to choose; advise takes one group"
        )
    try:
        refuse_empty_columns(rows)
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    present = rows.column("process").unique().to_pylist()
    addressed = destinations(rows)
    everyone = {*present}.union(*addressed.values(), *(members.get(group, []) for group in groups))
    for (origin, seq), those in addressed.items():
        left_out = sorted(everyone - {*those, origin})
        if left_out:
            raise InputError(
                f"run {run}: {origin}:{seq} does not go to {left_out[0]}; the protocols that advise weighs "
                "send every message to the whole group, and for groups that overlap there is only multigroup"
            )
    columns = [name for name in rows.column_names if name not in ("group", "destinations")]
    rows = without_own_deliveries(rows)
    single = rows.select(columns).append_column("group", pa.repeat(pa.scalar("", pa.string()), rows.num_rows))
    return single, sorted(everyone)


def stated_dependencies(run: str, rows: pa.Table) -> Dependencies:
    """The causes that the sends of a log without deliveries name in `deps`."""
    _encode(run, rows, {})  # Refuses invalid rows.
    sends = rows.filter(pc.equal(rows.column("kind"), "send"))
    named = sends.column("deps") if "deps" in rows.column_names else None
    if sends.num_rows and (named is None or named.null_count == sends.num_rows):
        raise InputError(
            f"run {run} has sends only: no deliveries, and no deps that say what depends on what; "
            "a table of dependencies (see Dependency graphs in the documentation) can be advised on too"
        )
    nodes = pc.binary_join_element_wise(sends.column("origin"), sends.column("seq").cast(pa.string()), ":")
    if "message" in rows.column_names:  # The log's own ids, which its deps use too.
        nodes = pc.coalesce(sends.column("message"), nodes)
    table = pa.table({"node": nodes, "process": sends.column("process"), "parents": named or []})
    return dependencies(table, run, f"run {run}, the sends and their deps")


@contextmanager
def pasts_of_run(run: str, rows: pa.Table, everyone: list[str]) -> Iterator[tuple[Pasts, EncodedRun]]:
    """The pasts of the rows that `single_group_rows` returns, and the run in numbers."""
    encoded = _encode(run, rows, {"": everyone})
    first = encoded.streams.first
    with allocate_pasts(run, first) as vectors:
        compute_pasts(encoded.rows, encoded.streams, vectors, create_message_streams(encoded.streams))
        yield _pasts(encoded.names, first, encoded.streams.origin.astype(np.int64), vectors), encoded


def _encode(run: str, rows: pa.Table, members: Members) -> EncodedRun:
    try:
        return encode_run(rows, members)
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error


@contextmanager
def pasts_of_dependencies(table: Dependencies) -> Iterator[Pasts]:
    """The pasts of a table. A sender has seen its own earlier messages, whatever the table says."""
    rank = np.argsort(np.argsort(np.array(table.senders, object)))
    size = len(table.order)
    place = np.empty(size, np.int64)
    place[table.order] = np.arange(size)
    process = rank[table.process]
    by_sender = np.lexsort((place, process))
    number_of = np.empty(size, np.int64)
    number_of[by_sender] = np.arange(size)
    first = np.searchsorted(process[by_sender], np.arange(len(rank) + 1))
    with allocate_pasts(table.run, first) as vectors:
        unordered = collect_pasts(table.order, process, number_of, first, table.start, table.cause, vectors)
        found = _pasts(sorted(table.senders), first, np.arange(len(rank)), vectors)
        yield found._replace(unordered=int(unordered))


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
def collect_pasts(
    order: Any, process: Any, number_of: Any, first: Any, start: Any, cause: Any, vectors: Any
) -> Any:
    """Compute the past of every message of a table, causes first, into `vectors`; return how many messages do
    not depend on their sender's previous one."""
    unordered = 0
    for row in order:
        me, message = process[row], number_of[row]
        vector, number = vectors[message], message - first[me] + 1
        for link in range(start[row], start[row + 1]):
            other = number_of[cause[link]]
            past = vectors[other]
            for column in range(len(past)):
                vector[column] = max(vector[column], past[column])
            sender = process[cause[link]]
            vector[sender] = max(vector[sender], other - first[sender] + 1)
        if number > 1 and vector[me] < number - 1:
            unordered += 1
            past = vectors[message - 1]
            for column in range(len(past)):
                vector[column] = max(vector[column], past[column])
            vector[me] = number - 1
    return unordered


def send_times(encoded: EncodedRun) -> np.ndarray:
    """When each message was sent, by the log's times."""
    times = np.zeros(encoded.streams.messages, np.int64)
    sends = encoded.rows.kind == SEND
    times[encoded.rows.message[sends]] = encoded.times[sends]
    return times


def delivery_delays(encoded: EncodedRun, sent: np.ndarray) -> np.ndarray:
    """How long each delivery took, from the send."""
    those = (encoded.rows.kind == DELIVER) & (encoded.rows.message >= 0)
    delays: np.ndarray = encoded.times[those] - sent[encoded.rows.message[those]]
    return delays


def link_delays(rows: pa.Table, encoded: EncodedRun, sent: np.ndarray) -> np.ndarray:
    """The delay of packets from send to receive, for those received from the sender directly; empty if the
    log does not say."""
    if "link" not in rows.column_names:
        return np.empty(0, np.int64)
    direct = pc.and_(
        pc.equal(rows.column("kind"), "receive"), pc.equal(rows.column("link"), rows.column("origin"))
    )
    rows = rows.filter(pc.fill_null(direct, False))
    ranks = pc.index_in(rows.column("origin"), pa.array(encoded.names, pa.string()))
    known = pc.fill_null(ranks, -1).to_numpy().astype(np.int64)
    seqs, times = rows.column("seq").to_numpy(), rows.column("time").to_numpy()
    # Messages are sorted by sender, and nearly always by seq within a sender.
    ids = np.lexsort((encoded.seqs, encoded.origins))
    key = _key(encoded.origins[ids], encoded.seqs[ids])
    wanted = _key(known, seqs)
    place = np.minimum(np.searchsorted(key, wanted), max(0, len(key) - 1))
    found = (known >= 0) & (key[place] == wanted) if len(key) else np.zeros(len(wanted), np.bool_)
    delays: np.ndarray = times[found] - sent[ids[place[found]]]
    return delays


def _key(origins: np.ndarray, seqs: np.ndarray) -> np.ndarray:
    """Origin and number as one integer; numbers beyond 2^40 are not counts."""
    both: np.ndarray = (origins.astype(np.int64) << 40) + np.minimum(seqs, (1 << 40) - 1)
    return both
