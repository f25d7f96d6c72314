"""Where and when a run violates causal order: its counts by process, by origin and over time."""

from __future__ import annotations

import msgspec


class ByProcess(msgspec.Struct, frozen=True):
    """What one process delivered, and what was wrong with it."""

    process: str
    deliveries: int
    causal_violations: int
    missing: int
    duplicates: int
    causal_deliveries: int
    """Deprecated: the former name of `causal_violations`, which stays for one release."""


class ByOrigin(msgspec.Struct, frozen=True):
    """How often one sender's messages were lacking when an effect was delivered."""

    origin: str
    messages: int
    late: int
    never: int


class OverTime(msgspec.Struct, frozen=True):
    """Deliveries in equal buckets of time, `width` nanoseconds each, from `start`."""

    start: int
    width: int
    deliveries: list[int]
    causal_violations: list[int]
    causal_deliveries: list[int]
    """Deprecated: the former name of `causal_violations`, which stays for one release."""


class Tally(msgspec.Struct, frozen=True):
    """The counts of one run, the worst first."""

    by_process: list[ByProcess]
    by_origin: list[ByOrigin]
    over_time: OverTime | None
