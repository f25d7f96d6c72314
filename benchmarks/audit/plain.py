"""The baseline: vector clocks in plain Python, as one would write them for a log of sends and deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from operator import le
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Row = tuple[int, bool, int, int]
"""Process, whether it sends, the message's origin and seq; in an order in which sends come first."""


def check(rows: Iterable[Row], processes: int) -> int:
    """The number of deliveries that preceded a message their sender had delivered."""
    delivered = [[0] * processes for _ in range(processes)]
    clocks: dict[tuple[int, int], list[int]] = {}
    violations = 0
    for process, sends, origin, seq in rows:
        mine = delivered[process]
        if sends:
            clocks[origin, seq] = mine.copy()
        elif not all(map(le, clocks[origin, seq], mine)):
            violations += 1
        mine[origin] += 1
    return violations


def read_rows(files: Iterable[Path], names: list[str], most: int) -> list[Row]:
    """The first rows of a recorded trace, which are in the order of time."""
    ranks = pa.array(names)
    rows: list[Row] = []
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(columns=["process", "kind", "origin", "seq"]):
            columns = (
                pc.index_in(batch.column("process"), ranks),
                pc.equal(batch.column("kind"), "send"),
                pc.index_in(batch.column("origin"), ranks),
                batch.column("seq"),
            )
            rows += zip(*(column.to_pylist() for column in columns), strict=True)
            if len(rows) >= most:
                return rows[:most]
    return rows
