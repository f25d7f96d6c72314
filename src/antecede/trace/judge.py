"""Judging a trace, one run at a time: what Spark does in its tasks, and what small traces need only.

Each run is judged whole by compiled passes (`causality`); its messages' pasts are in a file if they are many.
Violations are told by their roots: what a process did not have in time, and how many deliveries needed it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.order import Verdict
from antecede.trace.causality import (
    CAUSAL,
    CAUSAL_LATE,
    DELIVERIES,
    DUPLICATES,
    FIFO,
    MISSING,
    PAIRS_LATE,
    PAIRS_NEVER,
    Root,
    State,
    settle,
)
from antecede.trace.coded import Coded, coded
from antecede.trace.executions import Members
from antecede.trace.reader import metas, read_batches
from antecede.trace.schema import Meta
from antecede.trace.tally import ByOrigin, ByProcess, OverTime, Tally

MOST_BYTES = 16 << 30
_IN_MEMORY = 1 << 28
MOST_VIOLATIONS = 1_000

COUNTS = tuple(field.name for field in fields(Verdict))


class Finding(msgspec.Struct, frozen=True):
    """A cause that was not there in time, and its witness: who, what, and the chain of messages why."""

    run: str
    process: str
    cause: str
    effect: str
    late: bool
    path: list[str]
    text: str
    consequences: int
    """How many deliveries of that process needed the cause and did not have it; `effect` was the first."""


class RunAudit(msgspec.Struct, frozen=True):
    """The verdict on one run, and its first violations."""

    run: str
    verdict: Verdict
    findings: list[Finding]
    tally: Tally


def judge_run(run: str, rows: pa.Table, members: Members, most: int = MOST_VIOLATIONS) -> RunAudit:
    """Judge one run's rows; of what was not there in time at most `most` are written out, all are counted."""
    try:
        log = coded(rows, members)
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    with room_for_pasts(run, log.streams.messages, len(log.streams.origin)) as vectors:
        found = settle(log.rows, log.streams, vectors, most)
    counts = found.state.counts.sum(axis=0)
    verdict = verdict_of(counts, log, found.impossible)
    findings = [finding(run, log, root, path) for root, path in zip(found.roots, found.paths, strict=True)]
    return RunAudit(run, verdict, findings, tally(log, found.state))


def tally(log: Coded, state: State) -> Tally:
    """The counts by process, by origin and over time."""
    messages = np.bincount(log.origins, minlength=len(log.names))
    by_process = [
        ByProcess(name, *(int(row[each]) for each in (DELIVERIES, CAUSAL, MISSING, DUPLICATES)))
        for name, row in zip(log.names, state.counts, strict=True)
    ]
    by_origin = [
        ByOrigin(name, int(sent), int(late), int(never))
        for name, sent, (late, never) in zip(log.names, messages, state.by_origin, strict=False)
        if sent
    ]
    by_process.sort(key=lambda each: (-each.causal_deliveries, -each.missing, -each.duplicates))
    by_origin.sort(key=lambda each: (-each.late - each.never, -each.messages))
    over_time = OverTime(log.began, log.stretch, *(column.tolist() for column in state.by_time.T))
    return Tally(by_process, by_origin, over_time)


def verdict_of(counts: np.ndarray, log: Coded, impossible: int) -> Verdict:
    """The verdict from the sums over all processes."""
    return Verdict(
        processes=len(log.names),
        messages=log.streams.messages,
        deliveries=int(counts[DELIVERIES]),
        causal_deliveries=int(counts[CAUSAL]),
        causal_late_deliveries=int(counts[CAUSAL_LATE]),
        causal_pairs_late=int(counts[PAIRS_LATE]),
        causal_pairs_never=int(counts[PAIRS_NEVER]),
        fifo_deliveries=int(counts[FIFO]),
        missing=int(counts[MISSING]),
        duplicates=int(counts[DUPLICATES]) + log.repeated_orphans,
        orphans=log.orphans,
        impossible=impossible,
    )


@contextmanager
def room_for_pasts(run: str, messages: int, streams: int) -> Iterator[np.ndarray]:
    """Room for the past of every message: in memory, or in a file of its own if it is much."""
    size = 4 * messages * streams
    if size > MOST_BYTES:
        raise InputError(
            f"run {run} has {messages:,} messages in {streams:,} streams, whose pasts would take "
            f"{size >> 30:,} GiB; up to {MOST_BYTES >> 30} GiB can be judged"
        )
    if size <= _IN_MEMORY:
        yield np.zeros((messages, streams), np.int32)
    else:
        with tempfile.TemporaryFile() as file:
            yield np.memmap(file, np.int32, "w+", shape=(messages, streams))


def finding(run: str, log: Coded, root: Root, path: list[int]) -> Finding:
    """A root in words."""
    process, cause, effect = log.names[root.place], log.show(root.cause), log.show(root.effect)
    links = []
    for before, after in pairwise(path):
        had = "sent" if log.origins[before] == log.origins[after] else "delivered"
        who = log.names[log.origins[after]]
        links.append(f"{who} {had} {log.show(before)} and then sent {log.show(after)}")
    fault = "before its cause" if root.late else "and never its cause"
    more = f" {root.consequences - 1:,} more of its deliveries needed it." if root.consequences > 1 else ""
    return Finding(
        run=run,
        process=process,
        cause=cause,
        effect=effect,
        late=bool(root.late),
        path=[log.show(message) for message in path],
        text=f"{process} delivered {effect} {fault} {cause}: {'; '.join(links)}.{more}",
        consequences=root.consequences,
    )


def judge_files(path: Path, files: list[Path], most: int = MOST_VIOLATIONS) -> Iterator[RunAudit]:
    """Judge a small local trace here and now, without Spark; the answer is the same."""
    members = members_of(metas(path))
    tables = [table for file in files for table in read_batches(file)]
    events = pa.concat_tables(tables, promote_options="default")
    for run in sorted(events.column("run").unique().to_pylist()):
        rows = events.filter(pc.equal(events.column("run"), run))
        try:
            yield judge_run(run, rows, members.get(run, {}), most)
        except InputError as error:
            raise InputError(f"{path}, {error}") from error


def members_of(about: Iterable[Meta]) -> dict[str, Members]:
    """The members of each run's groups; a run that is described in two ways is refused."""
    found: dict[str, Members] = {}
    for meta in about:
        if found.setdefault(meta.run, meta.groups) != meta.groups:
            raise InputError(f"run {meta.run} has two meta.json that name different members")
    return found


def total(verdicts: list[Verdict]) -> Verdict:
    """The counts of several runs together."""
    return Verdict(**{name: sum(getattr(each, name) for each in verdicts) for name in COUNTS})
