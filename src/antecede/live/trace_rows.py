"""The rows that a core adds to its member's trace, by rank; `operations/trace.py` writes them with names."""

from __future__ import annotations

from typing import NamedTuple

SEND, RECEIVE, DELIVER, ADMIT, LEAVE, REMOVE, CLOSE = range(7)
"""The codes of `trace.schema`, which requires Arrow: a member without a trace must not import it."""
MAX_ROWS = 100_000
"""Maximum number of rows in memory that are not in the trace's folder yet."""


class TraceRow(NamedTuple):
    """A row of the trace."""

    kind: int
    origin: int
    seq: int
    time: int
    control: int = 0
    payload: int = 0
    link: int = -1
    causes: list[tuple[int, int]] | None = None
    member: int = -1
    """The member that a change of the group concerns."""
    process: int = -1
    """The stream at which it happened, if a process is one member after another."""


class TraceBuffer:
    """Rows that are not in the trace's folder yet. The first has the index `first`, the next will have
    `length`.

    A folder that cannot be written must not exhaust the memory: beyond `MAX_ROWS`, the oldest rows are
    dropped.
    """

    def __init__(self, durable: int) -> None:
        self.first = 0
        self.rows: list[TraceRow] = []
        self.durable = durable
        """Rows before this index would be the same after a crash, so they may be written to the folder."""

    @property
    def length(self) -> int:
        return self.first + len(self.rows)

    def add(self, row: TraceRow) -> None:
        self.rows.append(row)
        if len(self.rows) > MAX_ROWS:
            self.drop_before(self.first + MAX_ROWS // 10)

    def durable_rows(self) -> tuple[int, list[TraceRow]]:
        """The rows that may be written, and the index of the first."""
        return self.first, self.rows[: max(0, self.durable - self.first)]

    def drop_before(self, index: int) -> None:
        """Forget rows that are in the folder."""
        count = min(max(0, index - self.first), len(self.rows))
        del self.rows[:count]
        self.first += count
