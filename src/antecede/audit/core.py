"""Judging a trace, one run at a time: what Spark does in its tasks, and what small traces need only.

Each run is judged whole by compiled passes (`causality`); its messages' pasts are in a file if they are many.
Violations are told by their roots: what a process did not have in time, and how many deliveries needed it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.encoding import encode_run
from antecede.audit.passes import (
    CAUSAL,
    CAUSAL_LATE,
    DELIVERIES,
    DUPLICATES,
    FIFO,
    MISSING,
    PAIRS_LATE,
    PAIRS_NEVER,
    Root,
    find_violations,
)
from antecede.audit.tally import ByOrigin, ByProcess, OverTime, Tally
from antecede.causality import Verdict
from antecede.causality.transitive_closure import count_dtype
from antecede.errors import InputError
from antecede.trace.execution_from_rows import Members
from antecede.trace.reader import read_batches, read_metas
from antecede.trace.schema import Meta

MAX_BYTES = 16 << 30
_IN_MEMORY = 1 << 28
MAX_VIOLATIONS = 1_000

COUNTS = tuple(field.name for field in fields(Verdict))
Keys = Mapping[int, tuple[int, int]]
"""The origin and seq of messages, by their number."""


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


def judge_run(run: str, rows: pa.Table, members: Members, most: int = MAX_VIOLATIONS) -> RunAudit:
    """Judge one run's rows; of what was not there in time at most `most` are written out, all are counted."""
    try:
        log = encode_run(rows, members)
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    with allocate_pasts(run, log.streams.first) as vectors:
        found = find_violations(log.rows, log.streams, vectors, most)
    state, names = found.state, log.names
    verdict = build_verdict(
        state.counts, log.streams.messages, log.orphans, log.repeated_orphans, found.impossible
    )
    sent = np.bincount(log.origins, minlength=len(names))
    tally = build_tally(
        names, sent, state.counts, state.by_origin, state.by_time, log.start_time, log.bucket_width
    )
    told = {message for path in found.paths for message in path}
    keys = {message: (int(log.origins[message]), int(log.seqs[message])) for message in told}
    findings = [
        finding(run, names, keys, root, path) for root, path in zip(found.roots, found.paths, strict=True)
    ]
    return RunAudit(run, verdict, findings, tally)


def build_verdict(
    counts: np.ndarray, messages: int, orphans: int, repeated_orphans: int, impossible: int
) -> Verdict:
    """The verdict from what was counted for each process."""
    sums = counts.sum(axis=0)
    return Verdict(
        processes=len(counts),
        messages=messages,
        deliveries=int(sums[DELIVERIES]),
        causal_violations=int(sums[CAUSAL]),
        causal_late_deliveries=int(sums[CAUSAL_LATE]),
        causal_pairs_late=int(sums[PAIRS_LATE]),
        causal_pairs_never=int(sums[PAIRS_NEVER]),
        fifo_violations=int(sums[FIFO]),
        missing=int(sums[MISSING]),
        duplicates=int(sums[DUPLICATES]) + repeated_orphans,
        orphans=orphans,
        impossible=impossible,
    )


def build_tally(
    names: list[str],
    sent: np.ndarray,
    counts: np.ndarray,
    by_origin: np.ndarray,
    by_time: np.ndarray,
    start_time: int,
    bucket_width: int,
) -> Tally:
    """The counts by process, by origin and over time, under their names."""
    by_name = [
        ByProcess(name, *(int(row[each]) for each in (DELIVERIES, CAUSAL, MISSING, DUPLICATES)))
        for name, row in zip(names, counts, strict=True)
    ]
    lacking = [
        ByOrigin(name, int(count), int(late), int(never))
        for name, count, (late, never) in zip(names, sent, by_origin, strict=False)
        if count
    ]
    by_name.sort(key=lambda each: (-each.causal_deliveries, -each.missing, -each.duplicates))
    lacking.sort(key=lambda each: (-each.late - each.never, -each.messages))
    return Tally(
        by_name, lacking, OverTime(start_time, bucket_width, *(column.tolist() for column in by_time.T))
    )


@contextmanager
def allocate_pasts(run: str, first: np.ndarray) -> Iterator[np.ndarray]:
    """Room for the past of every message of these streams: in memory, or in a file if it is much."""
    shape, kind = (int(first[-1]), len(first) - 1), count_dtype(first)
    size = shape[0] * shape[1] * kind.itemsize
    if size > MAX_BYTES:
        raise InputError(
            f"run {run} has {shape[0]:,} messages in {shape[1]:,} streams, whose pasts would take "
            f"{size >> 30:,} GiB; up to {MAX_BYTES >> 30} GiB can be judged"
        )
    if size <= _IN_MEMORY:
        yield np.zeros(shape, kind)
    else:
        with tempfile.TemporaryFile() as file:
            yield np.memmap(file, kind, "w+", shape=shape)


def finding(run: str, names: list[str], keys: Keys, root: Root, path: list[int]) -> Finding:
    """A root in words."""
    shown = [f"{names[origin]}:{seq}" for origin, seq in (keys[message] for message in path)]
    process, cause, effect = names[root.place], shown[0], shown[-1]
    links = []
    for before, after in pairwise(range(len(path))):
        origin = keys[path[after]][0]
        had = "sent" if keys[path[before]][0] == origin else "delivered"
        links.append(f"{names[origin]} {had} {shown[before]} and then sent {shown[after]}")
    fault = "before its cause" if root.late else "and never its cause"
    more = f" {root.consequences - 1:,} more of its deliveries needed it." if root.consequences > 1 else ""
    return Finding(
        run=run,
        process=process,
        cause=cause,
        effect=effect,
        late=bool(root.late),
        path=shown,
        text=f"{process} delivered {effect} {fault} {cause}: {'; '.join(links)}.{more}",
        consequences=root.consequences,
    )


def severity(finding: Finding) -> tuple[bool, int, str, str, str]:
    """Late ones first, as they are the order's own fault; then those that most deliveries needed."""
    return not finding.late, -finding.consequences, finding.run, finding.process, finding.effect


def judge_files(path: Path, files: list[Path], most: int = MAX_VIOLATIONS) -> Iterator[RunAudit]:
    """Judge a small local trace here and now, without Spark; the answer is the same."""
    members = members_by_run(read_metas(path))
    tables = [table for file in files for table in read_batches(file)]
    events = pa.concat_tables(tables, promote_options="default")
    for run in sorted(events.column("run").unique().to_pylist()):
        rows = events.filter(pc.equal(events.column("run"), run))
        try:
            yield judge_run(run, rows, members.get(run, {}), most)
        except InputError as error:
            raise InputError(f"{path}, {error}") from error


def members_by_run(about: Iterable[Meta]) -> dict[str, Members]:
    """The members of each run's groups; a run that is described in two ways is refused."""
    found: dict[str, Members] = {}
    for meta in about:
        if found.setdefault(meta.run, meta.groups) != meta.groups:
            raise InputError(f"run {meta.run} has two meta.json that name different members")
    return found


def total(verdicts: list[Verdict]) -> Verdict:
    """The counts of several runs together."""
    return Verdict(**{name: sum(getattr(each, name) for each in verdicts) for name in COUNTS})
