"""The few rows that show one violation: its path, what its process lacked, and what happened beside them.

`near` takes them out of all rows (`spark.excerpt` does the same on Spark); `excerpt` says what each is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import Finding
from antecede.errors import InputError

AROUND = 2
"""How many sends and deliveries before and after each that matters are taken along."""
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
    """From 0, among the process's sends and deliveries."""
    kind: str
    message: str
    time: int


class Hop(msgspec.Struct, frozen=True):
    """A message of the path, from its send to where it is passed on."""

    message: str
    sent: ExcerptEvent
    got: ExcerptEvent
    """Its delivery by who sends the next; that next send, if both have one sender; in the end, the fault."""

    @property
    def stays(self) -> bool:
        return self.sent.process == self.got.process


class Excerpt(msgspec.Struct, frozen=True):
    """A violation in events."""

    finding: Finding
    hops: list[Hop]
    """From the cause's send to the delivery of the effect that came too early."""
    late: ExcerptEvent | None
    """When the process got the cause afterwards; None if it never did."""
    others: list[ExcerptEvent]
    """What these processes did just before and after."""

    @property
    def fault(self) -> ExcerptEvent:
        return self.hops[-1].got


def split(message: str) -> tuple[str, int]:
    """The origin and the number of a message; origins may have colons too.

    >>> split("10.0.0.1:80:3")
    ('10.0.0.1:80', 3)
    """
    origin, _, seq = message.rpartition(":")
    return origin, int(seq)


def needed(findings: Sequence[Finding]) -> set[MessageAtProcess]:
    """Which messages are looked for at which processes."""
    keys = set()
    for finding in findings:
        path = [split(message) for message in finding.path]
        carriers = [*(origin for origin, _ in path), finding.process]
        for message, here, there in zip(path, carriers, carriers[1:], strict=False):
            keys |= {
                MessageAtProcess(finding.run, here, *message),
                MessageAtProcess(finding.run, there, *message),
            }
        keys.add(MessageAtProcess(finding.run, finding.process, *path[0]))
    return keys


def near(rows: pa.Table, findings: Sequence[Finding]) -> pa.Table:
    """Of any number of rows, the few that findings need, with their places."""
    keys = needed(findings)
    found = []
    for run in sorted({key.run for key in keys}):
        processes = sorted({key.process for key in keys if key.run == run})
        for process in processes:
            mine = rows.filter(
                (pc.field("run") == run) & (pc.field("process") == process) & (pc.field("kind") != "receive")
            )
            found.append(_near_one(mine.sort_by("index"), keys))
    return pa.concat_tables(found) if found else rows.slice(0, 0)


def _near_one(mine: pa.Table, keys: set[MessageAtProcess]) -> pa.Table:
    """Of one process's rows, in their order."""
    origins, seqs = {key.origin for key in keys}, {key.seq for key in keys}
    likely = pc.and_(
        pc.is_in(mine.column("origin"), pa.array(origins, pa.string())),
        pc.is_in(mine.column("seq"), pa.array(seqs, pa.int64())),
    )
    places = np.flatnonzero(likely.to_numpy())
    seen, kept = set(), set()
    for place, row in zip(places.tolist(), mine.take(places).to_pylist(), strict=True):
        key = MessageAtProcess(row["run"], row["process"], row["origin"], row["seq"])
        if key in keys and (key, row["kind"]) not in seen:
            seen.add((key, row["kind"]))
            kept |= {*range(max(0, place - AROUND), min(mine.num_rows, place + AROUND + 1))}
    chosen = pa.array(sorted(kept), pa.int64())
    return mine.take(chosen).select(["run", *COLUMNS]).append_column("place", chosen)


def excerpt(finding: Finding, rows: pa.Table) -> Excerpt:
    """One of the findings whose rows `near` gave."""
    carriers = {*(split(message)[0] for message in finding.path), finding.process}
    events = [
        ExcerptEvent(row["process"], row["index"], row["place"], row["kind"],
              f"{row['origin']}:{row['seq']}", row["time"])
        for row in rows.filter(pc.field("run") == finding.run).to_pylist()
        if row["process"] in carriers
    ]  # fmt: skip
    events.sort(key=lambda event: (event.process, event.place))
    first: dict[tuple[str, str, str], ExcerptEvent] = {}
    for event in events:
        first.setdefault((event.process, event.kind, event.message), event)
    try:
        sends = [first[split(message)[0], "send", message] for message in finding.path]
        passed = [
            after if before.process == after.process else first[after.process, "deliver", before.message]
            for before, after in pairwise(sends)
        ]
        fault = first[finding.process, "deliver", finding.effect]
    except KeyError as error:
        raise InputError(
            f"run {finding.run} has changed while it was read: it has no more {error.args[0][1]} of "
            f"{error.args[0][2]} at {error.args[0][0]}"
        ) from error
    hops = [
        Hop(message, sent, got)
        for message, sent, got in zip(finding.path, sends, [*passed, fault], strict=True)
    ]
    # Whoever delivers what it has yet to send may even have the cause only by sending it.
    had = [first.get((finding.process, kind, finding.cause)) for kind in ("deliver", "send")]
    late = next((event for event in had if event and event.place > fault.place), None)
    shown = {event for hop in hops for event in (hop.sent, hop.got)} | {late}
    beside = _neighbours(events, {event for event in shown if event is not None})
    return Excerpt(finding, hops, late, [event for event in beside if event not in shown])


def _neighbours(events: Sequence[ExcerptEvent], shown: set[ExcerptEvent]) -> list[ExcerptEvent]:
    """The rows may serve other findings too; these are beside those that are shown."""
    wanted = {(event.process, event.place + step) for event in shown for step in range(-AROUND, AROUND + 1)}
    return [event for event in events if (event.process, event.place) in wanted]
