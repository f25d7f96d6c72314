"""Traces with a violation that was put there, for pages and excerpts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa

from antecede.trace.judge import Finding, judge_run
from antecede.trace.schema import SCHEMA


def table(events: Iterable[tuple[str, str, str, int]], run: str = "r") -> pa.Table:
    """Rows from (process, kind, message, milliseconds), in the order of each process."""
    counts: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    for process, kind, message, time in events:
        origin, _, seq = message.rpartition(":")
        index = counts[process] = counts.get(process, -1) + 1
        place = {"run": run, "group": "all", "process": process, "index": index, "time": time * 10**6}
        rows.append(place | {"kind": kind, "origin": origin, "seq": int(seq)})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def chain(hops: int, late: bool = True, name: str = "n{}") -> list[tuple[str, str, str, int]]:
    """Each sends once it has the message of the one before; the last gets the first message late or never."""
    names = [name.format(number) for number in range(hops + 1)]
    events = []
    for number, (here, there) in enumerate(pairwise(names)):
        events.append((here, "send", f"{here}:1", 20 * number))
        events.append((there, "deliver", f"{here}:1", 20 * number + 12))
    if late:
        events.append((names[-1], "deliver", f"{names[0]}:1", 20 * hops + 30))
    return events


def violation(rows: pa.Table, process: str, cause: str) -> Finding:
    """What the audit finds at a process for a cause."""
    run = rows.column("run")[0].as_py()
    found = judge_run(run, rows, {}).findings
    (one,) = [each for each in found if (each.process, each.cause) == (process, cause)]
    return one


def busy() -> pa.Table:
    """A chain of two whose processes have much else to do, and get the path's messages again."""
    mine = ("n0", "n1", "n2")
    events = [("x", "send", f"x:{number}", 0) for number in range(1, 101)]
    events += [(process, "deliver", f"x:{number}", 1) for process in mine for number in range(1, 51)]
    events += chain(2)
    events += [(process, "deliver", f"x:{number}", 99) for process in mine for number in range(51, 101)]
    events += [("n2", "deliver", "n0:1", 100)] * 40 + [("n1", "deliver", "n0:1", 100)] * 40
    return table(events)
