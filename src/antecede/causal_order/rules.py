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
"""A column that rows of a stream have besides their own: when they arrived, in milliseconds."""
DIGEST = "_antecede_digest"
"""A column that rows have besides their own: a hash of the row, which tells rows with the same id apart."""
PLACE = "_antecede_place"
"""A column that rows of files have besides their own: the number of the file, from 0, and in its last
ROW_BITS that of the row, from 1; in a stream, instead of the file, the time when it was modified. Of rows
with one id the first by it is ordered, and the others are listed as duplicates; of rows without it the first
by DIGEST, and the others are dropped."""
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
    """How long a row waits for a missing cause until `on_missing` applies; unused if rows are held."""
    horizon_ms: int
    """How long opaque ids are remembered after their rows were emitted."""
    named: Mapping[str, str | None] = MappingProxyType({})
    """The caller's names for the columns, by role, of which none can change while rows are held."""
    internal_columns: tuple[str, ...] = (ARRIVED, DIGEST)
    """Columns that are removed from the result."""
    tail_bytes: int = TAIL_BYTES
    """How much of a group's rows is rewritten in every micro-batch."""
    merge: MergeRules | None = None
    """If the rows are records of topics, which are to be merged."""


class RowCounts(msgspec.Struct):
    """Rows by outcome. `rows` is the number that came in, and the sum of all others."""

    rows: int = 0
    ordered: int = 0
    released: int = 0
    late: int = 0
    quarantined: int = 0
    duplicates: int = 0
    held: int = 0
    """In the counts of one micro-batch: how many more are held than before."""
