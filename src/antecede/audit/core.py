"""Judges a trace, one run at a time, with Arrow and compiled passes and without Spark.

A Spark task calls `judge_run` for its run; a small local trace is judged by `judge_files`. Violations are
reported by their roots: a message that a process did not have in time, and how many deliveries needed it.

Memory: the run's rows, and messages × streams × 2 bytes for the messages' pasts, in a file if that is much.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.across_groups import LateMessage, count_effects, find_late, has_several_groups
from antecede.audit.changes import ChangingGroup, count_faults, has_changes
from antecede.audit.encoding import EncodedRun, encode_run
from antecede.audit.faults import (
    DeliveryFault,
    MessageKey,
    MessageKeys,
    describe_faults,
    limit_kinds,
    worst_first,
    wrong_deliveries,
)
from antecede.audit.passes import (
    CAUSAL,
    CAUSAL_LATE,
    DELIVERIES,
    DUPLICATES,
    FIFO,
    MISSING,
    PAIRS_LATE,
    PAIRS_NEVER,
    Violations,
    find_violations,
)
from antecede.audit.roots import Root
from antecede.audit.tally import ByOrigin, ByProcess, OverTime, Tally
from antecede.causality import Verdict
from antecede.causality.transitive_closure import count_dtype
from antecede.errors import InputError
from antecede.jit import interpreted_if_quick
from antecede.trace.bad_rows import BadRows
from antecede.trace.reader import read_metas, read_table
from antecede.trace.schema import Members, Meta

MAX_BYTES = 16 << 30
"""Bytes of memory for the causal pasts of a run's messages."""
_MAX_BYTES_IN_MEMORY = 1 << 28
MAX_VIOLATIONS = 1_000

COUNTS = tuple(field.name for field in fields(Verdict))


class Finding(msgspec.Struct, frozen=True):
    """A violation: a process delivered `effect` before `cause`, and the chain of messages between them."""

    run: str
    process: str
    cause: str
    effect: str
    late: bool
    path: list[str]
    text: str
    consequences: int
    """How many deliveries at that process needed the cause and lacked it; `effect` was the first."""
    keys: list[str]
    """The messages of the path as origin:seq; `path` uses their own ids where they have any."""


class RunAudit(msgspec.Struct, frozen=True):
    """The verdict on one run, and its worst violations and other faults."""

    run: str
    verdict: Verdict
    findings: list[Finding]
    tally: Tally
    faults: list[DeliveryFault]
    """Missing, duplicate, orphan and impossible deliveries, the worst of each kind."""


def judge_files(
    path: Path, files: list[Path], most: int = MAX_VIOLATIONS, bad: BadRows | None = None
) -> Iterator[RunAudit]:
    """Judge a small local trace in this process; `bad` counts its rows."""
    metas, events = read_metas(path), read_table(files, bad)
    members = members_by_run(metas)
    for run, rows in split_runs(events):
        try:
            yield judge_run(run, rows, members.get(run, {}), most)
        except InputError as error:
            raise InputError(f"{path}, {error}") from error


def split_runs(events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each run, in the order of the runs' names."""
    for run in sorted(events.column("run").unique().to_pylist()):
        yield run, events.filter(pc.equal(events.column("run"), run))


def members_by_run(metas: Iterable[Meta]) -> dict[str, Members]:
    """The members of each run's groups; a run that two files describe differently is refused."""
    members: dict[str, Members] = {}
    for meta in metas:
        if members.setdefault(meta.run, meta.groups) != meta.groups:
            raise InputError(f"run {meta.run} has two meta.json that name different members")
    return members


def judge_run(run: str, rows: pa.Table, members: Members, most: int = MAX_VIOLATIONS) -> RunAudit:
    """Judge one run's rows. Everything is counted; the worst `most` of each kind are listed."""
    try:
        if not has_changes(rows):
            return _judge(run, rows, members, most)
        if has_several_groups(rows):
            return _judge_overlapping(run, rows, members, most)
        return _judge(run, rows, members, most, ChangingGroup(rows, members))
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error


def _judge_overlapping(run: str, rows: pa.Table, members: Members, most: int) -> RunAudit:
    """Judge each changing group by itself, and then the order across the groups."""
    audits: list[RunAudit] = []
    ends: dict[str, int] = {}
    for name in sorted(rows.column("group").unique().to_pylist()):
        here = rows.filter(pc.equal(rows.column("group"), name))
        group = ChangingGroup(here, {name: members[name]} if name in members else {}, overlaps=True)
        audits.append(_judge(run, here, {}, most, group))
        ends |= group.ends
    late = find_late(rows, ends)
    verdict = sum_verdicts([each.verdict for each in audits])
    effects, pairs = count_effects(late)
    verdict = replace(
        verdict,
        causal_violations=verdict.causal_violations + effects,
        causal_late_deliveries=verdict.causal_late_deliveries + effects,
        causal_pairs_late=verdict.causal_pairs_late + pairs,
    )
    findings = [*(_describe_late(run, each) for each in late), *(f for each in audits for f in each.findings)]
    faults = worst_first(fault for each in audits for fault in each.faults)
    tallies = [each.tally for each in audits]
    tally = Tally(
        [each for tally in tallies for each in tally.by_process],
        [each for tally in tallies for each in tally.by_origin],
        None,
    )
    return RunAudit(run, verdict, sorted(findings, key=severity)[:most], tally, limit_kinds(faults, most))


def _describe_late(run: str, late: LateMessage) -> Finding:
    keys = [f"{origin}:{seq}" for origin, seq in late.path]
    chain = " before ".join(keys)
    more = f" {len(late.effects) - 1:,} more of its deliveries needed it." if len(late.effects) > 1 else ""
    return Finding(
        run=run,
        process=late.process,
        cause=keys[0],
        effect=keys[-1],
        late=True,
        path=keys,
        text=f"{late.process} delivered {keys[0]} after its process had {keys[-1]} in another group: {chain}."
        f"{more}",
        consequences=len(late.effects),
        keys=keys,
    )


def _judge(
    run: str, rows: pa.Table, members: Members, most: int, group: ChangingGroup | None = None
) -> RunAudit:
    if group is not None:
        rows, members = group.table, group.members
    encoded = encode_run(rows, members)
    adjust = None if group is None else partial(group.adjust, encoded)
    with allocate_pasts(run, encoded.streams.first) as vectors:

        def work() -> Violations:
            vectors[:] = 0
            encoded.rows.fault[:] = 0
            return find_violations(encoded.rows, encoded.streams, vectors, most, adjust)

        found = interpreted_if_quick(work, steps_of(encoded))
    state, names = found.state, encoded.names
    verdict = build_verdict(
        state.counts, encoded.streams.messages, encoded.orphans, encoded.repeated_orphans, found.impossible
    )
    sent = np.bincount(encoded.origins, minlength=len(names))
    tally = build_tally(
        names,
        sent,
        state.counts,
        state.by_origin,
        state.by_time,
        encoded.start_time,
        encoded.bucket_width,
        # In tables without times, the time column is a copy of the index.
        timed=not np.array_equal(encoded.times, encoded.positions),
    )
    wrong = wrong_deliveries(rows, encoded, found.missing, most)
    shown = wrong.messages().union(*found.paths)
    keys = message_keys(rows, encoded, shown)
    findings = [
        describe_root(run, names, keys, root, path)
        for root, path in zip(found.roots, found.paths, strict=True)
    ]
    faults = describe_faults(run, names, keys, wrong, most)
    if group is not None:
        changes = group.faults(run, encoded)
        verdict = replace(verdict, messages=group.messages, **count_faults(changes))
        faults = worst_first([*faults, *limit_kinds(changes, most)])
    return RunAudit(run, verdict, findings, tally, faults)


def steps_of(encoded: EncodedRun) -> int:
    """Roughly how many steps the passes take if few deliveries lack a cause."""
    streams = encoded.streams
    return len(encoded.rows.kind) * (16 + len(streams.origin))


def message_keys(rows: pa.Table, encoded: EncodedRun, messages: Iterable[int]) -> dict[int, MessageKey]:
    """The names of some messages of a run."""
    ids = rows.column("message") if "message" in rows.column_names else None
    found = {}
    for message in messages:
        origin, seq = int(encoded.origins[message]), int(encoded.seqs[message])
        own = ids[int(encoded.send_rows[message])].as_py() if ids is not None else None
        found[message] = MessageKey(origin, seq, own or f"{encoded.names[origin]}:{seq}")
    return found


@contextmanager
def allocate_pasts(run: str, first: np.ndarray) -> Iterator[np.ndarray]:
    """An array for the causal past of every message of these streams: in memory, or in a file if it is
    large."""
    shape, kind = (int(first[-1]), len(first) - 1), count_dtype(first)
    size = shape[0] * shape[1] * kind.itemsize
    if size > MAX_BYTES:
        raise InputError(
            f"run {run} has {shape[0]:,} messages in {shape[1]:,} streams, whose pasts would take "
            f"{size >> 30:,} GiB; up to {MAX_BYTES >> 30} GiB can be judged"
        )
    if size <= _MAX_BYTES_IN_MEMORY:
        yield np.zeros(shape, kind)
    else:
        with tempfile.TemporaryFile() as file:
            yield np.memmap(file, kind, "w+", shape=shape)


def build_verdict(
    counts: np.ndarray, messages: int, orphans: int, repeated_orphans: int, impossible: int
) -> Verdict:
    """The verdict from the counts of each process."""
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
    timed: bool,
) -> Tally:
    """The counts by process, by origin and, if the events are `timed`, over time, with names in place of
    ranks."""
    processes = [
        ByProcess(name, *(int(row[each]) for each in (DELIVERIES, CAUSAL, MISSING, DUPLICATES, CAUSAL)))
        for name, row in zip(names, counts, strict=True)
    ]
    origins = [
        ByOrigin(name, int(count), int(late), int(never))
        for name, count, (late, never) in zip(names, sent, by_origin, strict=False)
        if count
    ]
    processes.sort(key=lambda each: (-each.causal_violations, -each.missing, -each.duplicates))
    origins.sort(key=lambda each: (-each.late - each.never, -each.messages))
    deliveries, violations = by_time.T.tolist()
    over_time = OverTime(start_time, bucket_width, deliveries, violations, violations)
    return Tally(processes, origins, over_time if timed else None)


def describe_root(run: str, names: list[str], keys: MessageKeys, root: Root, path: list[int]) -> Finding:
    """A root in words, with the chain of messages that makes its cause a cause."""
    shown = [keys[message].shown for message in path]
    process, cause, effect = names[root.process], shown[0], shown[-1]
    links = []
    for before, after in pairwise(range(len(path))):
        origin = keys[path[after]].origin
        verb = "sent" if keys[path[before]].origin == origin else "delivered"
        links.append(f"{names[origin]} {verb} {shown[before]} and then sent {shown[after]}")
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
        keys=[f"{names[keys[message].origin]}:{keys[message].seq}" for message in path],
    )


def severity(finding: Finding) -> tuple[int, bool, str]:
    """A sort key for findings in the order of their runs: most consequences first, late before never."""
    return -finding.consequences, not finding.late, finding.run


def sum_verdicts(verdicts: list[Verdict]) -> Verdict:
    """The sum of the counts of several runs."""
    return Verdict(**{name: sum(getattr(each, name) for each in verdicts) for name in COUNTS})
