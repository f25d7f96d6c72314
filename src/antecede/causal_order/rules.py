"""How rows are to be ordered, and the account of it; without what does it, so that it is quick to import."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from antecede.causal_order.dependency_edges import Columns
from antecede.causal_order.segments import TAIL_BYTES

ARRIVED = "_antecede_arrived"
DIGEST = "_antecede_digest"
"""Columns that rows of a stream have besides their own: when they came; what tells rows of one id apart."""


class OnMissing(StrEnum):
    """What becomes of a row whose cause does not come."""

    HOLD = "hold"
    RELEASE = "release"
    QUARANTINE = "quarantine"


class Rules(NamedTuple):
    """How to go about it."""

    columns: Columns
    on_missing: OnMissing
    timeout_ms: int
    """How long a row waits before the rule for missing causes holds; of no account if rows are held."""
    horizon_ms: int
    """How long opaque ids that came out are remembered."""
    made: tuple[str, ...] = (ARRIVED, DIGEST)
    """Columns that do not come out."""
    tail_bytes: int = TAIL_BYTES
    """How much of what is kept of a group is written anew each time."""


class Counts(msgspec.Struct):
    """What became of rows. Those that came in are all the others together; `held` is how many more wait."""

    rows: int = 0
    ordered: int = 0
    released: int = 0
    late: int = 0
    quarantined: int = 0
    duplicates: int = 0
    held: int = 0
