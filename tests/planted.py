"""Traces with planted violations, for pages and excerpts; and random faults planted in any run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import Finding, judge_run
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
    """Each process sends after it delivers the one before; the last gets the first message late or never."""
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
    """A chain of two whose processes deliver much else, and the path's messages again."""
    mine = ("n0", "n1", "n2")
    events = [("x", "send", f"x:{number}", 0) for number in range(1, 101)]
    events += [(process, "deliver", f"x:{number}", 1) for process in mine for number in range(1, 51)]
    events += chain(2)
    events += [(process, "deliver", f"x:{number}", 99) for process in mine for number in range(51, 101)]
    events += [("n2", "deliver", "n0:1", 100)] * 40 + [("n1", "deliver", "n0:1", 100)] * 40
    return table(events)


class Spoilt(NamedTuple):
    """A run with faults, and how many there are of each kind."""

    rows: pa.Table
    displaced: int
    repeated: int
    dropped: int


def spoil(rows: pa.Table, seed: int, faults: int, reach: int = 1 << 30) -> Spoilt:
    """Displace, repeat or drop a number of deliveries of one run at random, and renumber the indices.

    What is displaced or repeated comes at most `reach` events from where it was.
    """
    source = np.random.default_rng(seed)
    process = rows.column("process").combine_chunks().dictionary_encode().indices.to_numpy()
    place = rows.column("index").to_numpy().astype(np.float64)
    deliveries = np.flatnonzero(pc.equal(rows.column("kind"), "deliver"))
    chosen = source.choice(deliveries, faults, replace=False)
    displaced, repeated, dropped = np.split(chosen, np.sort(source.integers(faults + 1, size=2)))
    moved = np.concatenate([displaced, repeated])
    by_process = np.lexsort((place, process))
    first, end = (np.searchsorted(process[by_process], process[moved], side) for side in ("left", "right"))
    was = np.argsort(by_process)[moved]
    neighbour = by_process[source.integers(np.maximum(first, was - reach), np.minimum(end, was + reach + 1))]
    kept = np.setdiff1d(np.arange(len(rows)), np.concatenate([displaced, dropped]))
    taken = np.concatenate([kept, moved])
    place = np.concatenate([place[kept], place[neighbour] + source.uniform(-0.9, 0.9, len(moved))])
    taken = taken[np.lexsort((place, process[taken]))]
    index = np.arange(len(taken)) - np.searchsorted(process[taken], process[taken])
    made = rows.take(taken)
    made = made.set_column(made.column_names.index("index"), "index", pa.array(index))
    return Spoilt(made, len(displaced), len(repeated), len(dropped))
