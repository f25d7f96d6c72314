"""From rows of events to executions that the oracle can judge."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from antecede.causality import Execution, Kind, MessageId, Step
from antecede.errors import InputError
from antecede.trace.schema import KINDS, REQUIRED

Members = Mapping[str, list[str]]
"""The members of each group of one run."""

_COLUMNS = ("process", "index", "kind", "origin", "seq", "group")
_KIND = {"send": Kind.SEND, "deliver": Kind.DELIVER}


def execution(rows: pa.Table, members: Members) -> Execution:
    """The execution that the rows of one run record, in whatever order they come.

    A message goes to its row's `destinations`; without them to the members of its group as
    `members` has them; without those to every process that the group's rows name.
    """
    for name in REQUIRED:
        if rows.column(name).null_count:
            raise InputError(f"field {name} is empty in {rows.column(name).null_count:,} rows")
    rows = rows.sort_by([("process", "ascending"), ("index", "ascending")])
    columns = [rows.column(name).to_pylist() for name in _COLUMNS]
    addressed = destinations(rows)
    names = sorted({*columns[0]}.union(*members.values(), *addressed.values()))
    ranks = {name: rank for rank, name in enumerate(names)}
    histories: list[list[Step]] = [[] for _ in names]
    sent_in: dict[MessageId, str] = {}
    seen_in: dict[str, set[int]] = {}
    before: tuple[str, int] | None = None
    for process, index, kind, origin, seq, group in zip(*columns, strict=True):
        if (process, index) == before:
            raise InputError(f"process {process} has two events with index {index}")
        before = (process, index)
        if kind not in KINDS:
            raise InputError(f"process {process}, index {index}: kind '{kind}' is not {_kinds()}")
        if seq < 1:
            raise InputError(f"process {process}, index {index}: seq {seq} is not 1 or more")
        if kind == "send" and origin != process:
            raise InputError(f"process {process}, index {index}: it sends a message of {origin}")
        if group not in members:
            seen_in.setdefault(group, set()).add(ranks[process])
        if kind == "receive":
            continue
        # Origins that no process bears belong to orphans only; they get ranks past the others.
        message = MessageId(ranks.setdefault(origin, len(ranks)), seq)
        histories[ranks[process]].append(Step(_KIND[kind], message))
        if kind == "send":
            if message in sent_in:
                raise InputError(f"{origin}:{seq} is sent twice, again at index {index}")
            sent_in[message] = group
    groups = {group: frozenset(seen) for group, seen in seen_in.items()}
    groups |= {group: frozenset(ranks[name] for name in those) for group, those in members.items()}
    audiences = {message: groups[group] for message, group in sent_in.items()}
    for (origin, seq), those in addressed.items():
        audiences[MessageId(ranks[origin], seq)] = frozenset(ranks[name] for name in those)
    return Execution(histories, audiences, list(ranks))


def destinations(rows: pa.Table) -> dict[tuple[str, int], list[str]]:
    """Where sends say whom they go to."""
    if "destinations" not in rows.column_names:
        return {}
    says = pc.and_(pc.equal(rows.column("kind"), "send"), pc.is_valid(rows.column("destinations")))
    given = rows.filter(says)
    ids = zip(given.column("origin").to_pylist(), given.column("seq").to_pylist(), strict=True)
    named: dict[tuple[str, int], list[str]] = {}
    for (origin, seq), names in zip(ids, given.column("destinations").to_pylist(), strict=True):
        if None in names:
            raise InputError(f"the destinations of {origin}:{seq} have an empty name among them")
        named[origin, seq] = names
    return named


def _kinds() -> str:
    return f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
