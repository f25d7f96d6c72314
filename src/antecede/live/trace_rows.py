"""What a core leaves for its member's trace, by ranks; `operations/trace.py` writes it by names."""

from __future__ import annotations

from typing import NamedTuple

SEND, RECEIVE, DELIVER = range(3)
"""The codes of `trace.schema`, which a member without a trace cannot import: it needs Arrow."""


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


class TraceBuffer:
    """Rows that nobody has taken yet. `length` counts all rows ever, so it is the index of the next."""

    def __init__(self) -> None:
        self.length = 0
        self._rows: list[TraceRow] = []

    def add(self, row: TraceRow) -> None:
        self._rows.append(row)
        self.length += 1

    def take(self) -> tuple[int, list[TraceRow]] | None:
        """The rows since the last time, and the index of the first."""
        if not self._rows:
            return None
        rows, self._rows = self._rows, []
        return self.length - len(rows), rows
