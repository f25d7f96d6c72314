"""Picks the few events that show one violation: its path, what the process lacked, and their neighbours.

`select_rows` takes them from all rows (`excerpt_on_spark` does the same on Spark); `build_excerpt` gives each
its role.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import Finding
from antecede.errors import InputError
from antecede.trace.schema import message_key, shown_message

NEIGHBOURS = 2
"""How many neighbouring sends and deliveries are shown before and after each event of the path."""
COLUMNS = ("process", "index", "kind", "origin", "seq", "time")


class MessageAtProcess(NamedTuple):
    """A message at a process."""

    run: str
    process: str
    origin: str
    seq: int


class ExcerptEvent(msgspec.Struct, frozen=True):
    """A send or a delivery."""

    process: str
    index: int
    place: int
    """The position among the process's sends and deliveries, from 0."""
    kind: str
    message: str
    """The displayed name of the message."""
    time: int
    key: str
    """The message as origin:seq."""


class Hop(msgspec.Struct, frozen=True):
    """A message of the path, from its send to the event that passes it on."""

    message: str
    sent: ExcerptEvent
    arrived: ExcerptEvent
    """Its delivery at the sender of the next message; that next send, if both have the same sender; at the
    end of the path, the fault."""

    @property
    def stays(self) -> bool:
        """Whether the hop leads from one send of a process to its next send."""
        return self.sent.process == self.arrived.process


class Excerpt(msgspec.Struct, frozen=True):
    """The events of a violation."""

    finding: Finding
    hops: list[Hop]
    """From the send of the cause to the delivery of the effect that came too early."""
    late: ExcerptEvent | None
    """When the process received the cause afterwards; None if it never did."""
    others: list[ExcerptEvent]
    """What these processes did just before and after."""

    @property
    def fault(self) -> ExcerptEvent:
        return self.hops[-1].arrived


def split_message_id(message: str) -> tuple[str, int]:
    """The origin and the seq of a message; origins may have colons too.

    >>> split_message_id("10.0.0.1:80:3")
    ('10.0.0.1:80', 3)
    """
    origin, _, seq = message.rpartition(":")
    return origin, int(seq)


def required_messages(findings: Sequence[Finding]) -> set[MessageAtProcess]:
    """The messages whose events are needed, by process."""
    keys = set()
    for finding in findings:
        path = [split_message_id(key) for key in finding.keys]
        carriers = [*(origin for origin, _ in path), finding.process]
        for message, here, there in zip(path, carriers, carriers[1:], strict=False):
            keys |= {MessageAtProcess(finding.run, process, *message) for process in (here, there)}
        keys.add(MessageAtProcess(finding.run, finding.process, *path[0]))
    return keys


def rows_of_processes(tables: Iterable[pa.Table], findings: Sequence[Finding]) -> pa.Table:
    """The rows of the runs and processes that the findings concern."""
    keys = required_messages(findings)
    runs, processes = (
        pa.array({*names}, pa.string())
        for names in ((key.run for key in keys), (key.process for key in keys))
    )
    wanted = pc.is_in(pc.field("run"), runs) & pc.is_in(pc.field("process"), processes)
    return pa.concat_tables([table.filter(wanted) for table in tables], promote_options="default")


def select_rows(rows: pa.Table, findings: Sequence[Finding]) -> pa.Table:
    """The few rows that the findings need, each with its `place` at its process."""
    keys = required_messages(findings)
    found = []
    for run in sorted({key.run for key in keys}):
        processes = sorted({key.process for key in keys if key.run == run})
        for process in processes:
            mine = rows.filter(
                (pc.field("run") == run) & (pc.field("process") == process) & (pc.field("kind") != "receive")
            )
            found.append(_select_rows_of_process(mine.sort_by("index"), keys))
    return pa.concat_tables(found) if found else rows.slice(0, 0)


def _select_rows_of_process(mine: pa.Table, keys: set[MessageAtProcess]) -> pa.Table:
    """Of one process's rows, in its own order: those of the messages, and their neighbours."""
    origins, seqs = {key.origin for key in keys}, {key.seq for key in keys}
    likely = pc.and_(
        pc.is_in(mine.column("origin"), pa.array(origins, pa.string())),
        pc.is_in(mine.column("seq"), pa.array(seqs, pa.int64())),
    )
    places = np.flatnonzero(likely.to_numpy())
    seen, chosen = set(), set()
    for place, row in zip(places.tolist(), mine.take(places).to_pylist(), strict=True):
        key = MessageAtProcess(row["run"], row["process"], row["origin"], row["seq"])
        if key in keys and (key, row["kind"]) not in seen:
            seen.add((key, row["kind"]))
            chosen |= {*range(max(0, place - NEIGHBOURS), min(mine.num_rows, place + NEIGHBOURS + 1))}
    selected = pa.array(sorted(chosen), pa.int64())
    if "message" not in mine.column_names:
        mine = mine.append_column("message", pa.nulls(mine.num_rows, pa.string()))
    return mine.take(selected).select(["run", *COLUMNS, "message"]).append_column("place", selected)


def is_in_one_group(finding: Finding, rows: pa.Table) -> bool:
    """Whether the effect was delivered at the member where the cause came too late. In groups that overlap
    and change, it may have been at another member of the process, and no excerpt is made."""
    origin, seq = split_message_id(finding.keys[-1])
    values = {"run": finding.run, "process": finding.process, "kind": "deliver", "origin": origin, "seq": seq}
    chosen = rows
    for name, value in values.items():
        chosen = chosen.filter(pc.field(name) == value)
    found: int = chosen.num_rows
    return found > 0


def build_excerpt(finding: Finding, rows: pa.Table) -> Excerpt:
    """The excerpt of a finding whose rows `select_rows` returned."""
    events = _events_of(finding, rows)
    first: dict[tuple[str, str, str], ExcerptEvent] = {}
    for event in events:
        first.setdefault((event.process, event.kind, event.key), event)
    try:
        sends = [first[split_message_id(key)[0], "send", key] for key in finding.keys]
        arrivals = [
            after if before.process == after.process else first[after.process, "deliver", before.key]
            for before, after in pairwise(sends)
        ]
        fault = first[finding.process, "deliver", finding.keys[-1]]
    except KeyError as error:
        raise InputError(
            f"run {finding.run} has changed while it was read: it has no more {error.args[0][1]} of "
            f"{error.args[0][2]} at {error.args[0][0]}"
        ) from error
    hops = [
        Hop(message, sent, arrived)
        for message, sent, arrived in zip(finding.path, sends, [*arrivals, fault], strict=True)
    ]
    # A process that delivers a message before sending it may have the cause only through that send.
    causes = [first.get((finding.process, kind, finding.keys[0])) for kind in ("deliver", "send")]
    late = next((event for event in causes if event and event.place > fault.place), None)
    shown = {event for hop in hops for event in (hop.sent, hop.arrived)} | {late}
    neighbours = _neighbours(events, {event for event in shown if event is not None})
    return Excerpt(finding, hops, late, [event for event in neighbours if event not in shown])


def _events_of(finding: Finding, rows: pa.Table) -> list[ExcerptEvent]:
    """The events of the processes on the finding's path, each process in its own order."""
    carriers = {*(split_message_id(key)[0] for key in finding.keys), finding.process}
    events = [
        ExcerptEvent(
            process=row["process"],
            index=row["index"],
            place=row["place"],
            kind=row["kind"],
            message=shown_message(row),
            time=row["time"],
            key=message_key(row),
        )
        for row in rows.filter(pc.field("run") == finding.run).to_pylist()
        if row["process"] in carriers
    ]
    return sorted(events, key=lambda event: (event.process, event.place))


def _neighbours(events: Sequence[ExcerptEvent], shown: set[ExcerptEvent]) -> list[ExcerptEvent]:
    """The events next to those shown; the rows may also serve other findings."""
    wanted = {
        (event.process, event.place + step) for event in shown for step in range(-NEIGHBOURS, NEIGHBOURS + 1)
    }
    return [event for event in events if (event.process, event.place) in wanted]
