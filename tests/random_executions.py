"""Random executions with every kind of fault a log may have, and the tables that record them."""

from __future__ import annotations

import random

import pyarrow as pa

from antecede.causality import Execution, Kind, MessageId, Step
from antecede.trace.schema import FIELDS, Members

COLUMNS = ("run", "group", "process", "index", "kind", "origin", "seq", "time", "destinations")


def any_execution(source: random.Random) -> Execution:
    """A valid execution in overlapping groups, with messages then lost, duplicated, displaced or orphaned."""
    size = source.randrange(1, 6)
    everyone = range(size)
    groups = [frozenset(everyone)]
    if source.random() < 0.5:
        groups = [frozenset(source.sample(everyone, source.randrange(1, size + 1))) for _ in range(3)]
    histories: list[list[Step]] = [[] for _ in everyone]
    due: list[list[MessageId]] = [[] for _ in everyone]
    audiences: dict[MessageId, frozenset[int]] = {}
    for _ in range(source.randrange(120)):
        peer = source.randrange(size)
        if source.random() < 0.3:
            seq = 1 + sum(message.origin == peer for message in audiences)
            message = MessageId(peer, seq)
            audiences[message] = source.choice(groups)
            histories[peer].append(Step(Kind.SEND, message))
            for other in audiences[message] - {peer}:
                due[other].append(message)
        elif due[peer]:
            place = source.randrange(len(due[peer])) if source.random() < 0.2 else 0
            histories[peer].append(Step(Kind.DELIVER, due[peer].pop(place)))
    for peer in everyone:
        if source.random() < 0.7:
            histories[peer] += [Step(Kind.DELIVER, message) for message in due[peer]]
    for _ in range(source.randrange(4)):
        spoil(source, source.choice(histories), size)
    return Execution(histories, audiences)


def spoil(source: random.Random, history: list[Step], size: int) -> None:
    anywhere = source.randrange(len(history) + 1)
    if not history:
        return
    step = source.choice(history)
    match source.randrange(4):
        case 0 if step.kind is Kind.DELIVER:
            history.remove(step)
        case 1:
            history.insert(anywhere, Step(Kind.DELIVER, step.message))
        case 2 if step.kind is Kind.DELIVER:
            history.remove(step)
            history.insert(anywhere, step)
        case 3:
            history.insert(anywhere, Step(Kind.DELIVER, MessageId(source.randrange(size + 1), 99)))


def as_rows(source: random.Random, given: Execution) -> tuple[pa.Table, Members]:
    """The same as a table, its rows in any order; audiences as groups, known or not, or as destinations."""
    names = [f"p{peer}" for peer in range(len(given.histories) + 1)]
    how = source.choice(("members", "rows", "destinations"))
    rows = []
    for peer, history in enumerate(given.histories):
        for place, (kind, message) in enumerate(history):
            audience = sorted(given.audiences.get(message, range(len(given.histories))))
            row = {
                "run": "r", "process": names[peer], "index": 3 * place, "time": place,
                "group": "all" if how == "destinations" else "-".join(map(str, audience)),
                "kind": kind.name.lower(), "origin": names[message.origin], "seq": message.seq,
            }  # fmt: skip
            rows.append(row)
            if source.random() < 0.2:
                rows.append({**row, "index": 3 * place + 1, "kind": "receive"})
            if how == "destinations" and kind is Kind.SEND:
                row["destinations"] = [names[other] for other in audience]
    source.shuffle(rows)
    members: dict[str, list[str]] = {}
    if how == "members":
        audiences = {*given.audiences.values(), frozenset(range(len(given.histories)))}
        members = {
            "-".join(map(str, sorted(group))): [names[other] for other in group] for group in audiences
        }
    schema = pa.schema([(name, FIELDS[name][0]) for name in COLUMNS])
    return pa.Table.from_pylist(rows, schema=schema), members
