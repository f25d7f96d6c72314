"""Where and when a run went wrong: its counts by process, by origin and over time."""

from __future__ import annotations

import msgspec


class ByProcess(msgspec.Struct, frozen=True):
    """What one process delivered, and what was wrong with it."""

    process: str
    deliveries: int
    causal_deliveries: int
    missing: int
    duplicates: int


class ByOrigin(msgspec.Struct, frozen=True):
    """How often one sender's messages were lacking when something delivered needed them."""

    origin: str
    messages: int
    late: int
    never: int


class OverTime(msgspec.Struct, frozen=True):
    """Deliveries in equal stretches of time, in nanoseconds from `start`."""

    start: int
    width: int
    deliveries: list[int]
    causal_deliveries: list[int]


class Tally(msgspec.Struct, frozen=True):
    """The counts of one run, the worst first."""

    by_process: list[ByProcess]
    by_origin: list[ByOrigin]
    over_time: OverTime | None
