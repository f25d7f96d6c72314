"""Builds the execution that the oracle judges from the rows of a run."""

from __future__ import annotations

import pyarrow as pa

from antecede.causality import Execution, Kind, MessageId, Step
from antecede.trace.schema import Members
from antecede.trace.validate import check_run, destinations

_COLUMNS = ("process", "kind", "origin", "seq", "group")
_KIND = {"send": Kind.SEND, "deliver": Kind.DELIVER}


def execution(rows: pa.Table, members: Members) -> Execution:
    """The execution that the rows of one run record, in whatever order they come.

    A message goes to its row's `destinations`; without them to the members of its group, as `members` has
    them; without those to every process that the group's rows name.
    """
    check_run(rows)
    own_deliveries: set[MessageId] = set()
    rows = rows.sort_by([("process", "ascending"), ("index", "ascending")])
    columns = [rows.column(name).to_pylist() for name in _COLUMNS]
    marked = "own_delivery" in rows.column_names
    marks = rows.column("own_delivery").to_pylist() if marked else [None] * rows.num_rows
    addressed = destinations(rows)
    names = sorted({*columns[0]}.union(*members.values(), *addressed.values()))
    ranks = {name: rank for rank, name in enumerate(names)}
    histories: list[list[Step]] = [[] for _ in names]
    sent_to: dict[MessageId, str] = {}
    seen_in: dict[str, set[int]] = {}
    for process, kind, origin, seq, group, mark in zip(*columns, marks, strict=True):
        if group not in members:
            seen_in.setdefault(group, set()).add(ranks[process])
        if kind not in _KIND:
            continue
        # Origins without rows of their own sent only orphans; they get ranks past the processes.
        message = MessageId(ranks.setdefault(origin, len(ranks)), seq)
        histories[ranks[process]].append(Step(_KIND[kind], message))
        if kind == "send":
            sent_to[message] = group
        elif mark == 1 and process == origin:
            own_deliveries.add(message)
    groups = {group: frozenset(seen) for group, seen in seen_in.items()}
    groups |= {group: frozenset(ranks[name] for name in those) for group, those in members.items()}
    audiences = {message: groups[group] for message, group in sent_to.items()}
    for (origin, seq), names in addressed.items():
        audiences[MessageId(ranks[origin], seq)] = frozenset(ranks[name] for name in names)
    return Execution(histories, audiences, list(ranks), frozenset(own_deliveries))
