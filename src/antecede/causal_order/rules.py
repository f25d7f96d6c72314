"""How rows are to be ordered, and how many of them had which outcome; quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from antecede.causal_order.dependency_edges import Columns
from antecede.causal_order.merge import MergeRules
from antecede.causal_order.segments import TAIL_BYTES

ARRIVED = "_antecede_arrived"
"""A column added to the rows of a stream: their time of arrival, in milliseconds."""
DIGEST = "_antecede_digest"
"""An added column: a hash of the row, which tells rows with the same id apart."""
PLACE = "_antecede_place"
"""A column added to rows of files: the number of the file, from 0, and in the last ROW_BITS the number of the
row, from 1; in a stream, the file's modification time takes the place of its number. Of rows with one id, the
first by this column is ordered and the others are listed as duplicates; without this column, the first by
DIGEST is ordered and the others are dropped."""
ROW_BITS = 40


class OnMissing(StrEnum):
    """What to do with a row whose cause does not arrive."""

    HOLD = "hold"
    RELEASE = "release"
    QUARANTINE = "quarantine"


class OrderRules(NamedTuple):
    """How to order a stream."""

    columns: Columns
    on_missing: OnMissing
    timeout_ms: int
    """How long a row waits for a missing cause before `on_missing` applies; unused if rows are held."""
    horizon_ms: int
    """How long opaque ids are remembered after their rows were emitted."""
    named: Mapping[str, str | None] = MappingProxyType({})
    """The caller's names for the columns, by role; none of them can change while rows are held."""
    internal_columns: tuple[str, ...] = (ARRIVED, DIGEST)
    """Columns to remove from the result."""
    tail_bytes: int = TAIL_BYTES
    """The bytes of a group's rows that every micro-batch rewrites."""
    merge: MergeRules | None = None
    """Set if the rows are records of topics to be merged."""


class RowCounts(msgspec.Struct):
    """Rows by outcome. `rows` is the number of input rows, and the sum of all others."""

    rows: int = 0
    ordered: int = 0
    released: int = 0
    late: int = 0
    quarantined: int = 0
    duplicates: int = 0
    held: int = 0
    """In the counts of one micro-batch: the increase in the number of held rows."""
