"""Judging a trace, one run at a time: what Spark does in its tasks, and what small traces need only.

Each run is judged whole by the oracle, in memory that grows with the square of its messages; a run
beyond `MOST_MESSAGES` is refused rather than begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.order import Judgement, Verdict, Violation, judge
from antecede.trace.executions import Members, execution
from antecede.trace.reader import metas, read_batches
from antecede.trace.schema import Meta

MOST_MESSAGES = 100_000
MOST_VIOLATIONS = 1_000

COUNTS = tuple(field.name for field in fields(Verdict))


class Finding(msgspec.Struct, frozen=True):
    """A causal violation and its witness: who, what, and the chain of messages that says why."""

    run: str
    process: str
    cause: str
    effect: str
    late: bool
    path: list[str]
    text: str


class RunAudit(msgspec.Struct, frozen=True):
    """The verdict on one run, and its first violations."""

    run: str
    verdict: Verdict
    findings: list[Finding]


def judge_run(run: str, rows: pa.Table, members: Members, most: int = MOST_VIOLATIONS) -> RunAudit:
    """Judge one run's rows; at most `most` violations are written out, all are counted."""
    messages = pc.sum(pc.equal(rows.column("kind"), "send")).as_py() or 0
    if messages > MOST_MESSAGES:
        raise InputError(f"run {run} has {messages:,} messages; up to {MOST_MESSAGES:,} a run can be judged")
    try:
        judgement = judge(execution(rows, members))
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    found = islice(judgement.violations(), most)
    return RunAudit(run, judgement.verdict, [_finding(run, judgement, each) for each in found])


def _finding(run: str, judgement: Judgement, violation: Violation) -> Finding:
    show = judgement.execution.show
    return Finding(
        run=run,
        process=judgement.execution.name(violation.process),
        cause=show(violation.cause),
        effect=show(violation.effect),
        late=violation.late,
        path=[show(message) for message in judgement.path(violation)],
        text=judgement.explain(violation),
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
