"""What an audit of a dependency log finds, as sentences; the same on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from antecede.trace.bad_rows import brief
from antecede.units import format_duration

_MAX_SHOWN_PATH = 8
RECORD_COLUMNS = ("id", "process", "seq", "file", "row")
"""The columns of a log that a `LogRecord` has."""


class LogRecord(NamedTuple):
    """A record that a finding names."""

    id: str
    process: str
    seq: int | None
    file: str
    row: int
    counted: str = "row"
    """What `row` counts: rows, spans, commits …"""

    @property
    def name(self) -> str:
        return brief(self.id)

    @property
    def place(self) -> str:
        return f"{self.file}, {self.counted} {self.row:,}"

    @property
    def described(self) -> str:
        return f"{self.name} of {brief(self.process)}"


class MissingCause(msgspec.Struct):
    """An id that records name as a cause, and that no record has."""

    id: str
    effects: int
    """How many records name it."""
    text: str


class DuplicateId(msgspec.Struct):
    """An id that several records have."""

    id: str
    records: int
    text: str


class CausalCycle(msgspec.Struct):
    """Records that are causes of each other."""

    records: int
    path: list[str]
    """A shortest cycle among them: each is a cause of the next, and the last a cause of the first."""
    text: str


class EffectBeforeCause(msgspec.Struct):
    """A record that precedes one of its causes in its own process."""

    process: str
    effect: str
    cause: str
    path: list[str]
    """From the cause to the effect; each is a cause of the next."""
    text: str


class ClockSkew(msgspec.Struct):
    """Effects whose time is earlier than that of their cause at another process."""

    cause_process: str
    effect_process: str
    effects: int
    """The number of pairs of a direct cause and its effect."""
    of: int
    """The number of such pairs that have times."""
    largest: int
    """In nanoseconds."""
    cause: str
    effect: str
    text: str


class DependencyVerdict(msgspec.Struct):
    """What the audit found. Counts are complete; lists hold the worst of each kind, up to the requested
    number."""

    records: int
    processes: int
    causes: int
    missing_ids: int
    """The number of distinct missing ids."""
    missing_causes: int
    """How often missing ids are named."""
    duplicate_records: int
    """Records that repeat the id of an earlier record."""
    cycles: int
    records_on_cycles: int
    effects_before_causes: int
    skewed_pairs: int
    missing: list[MissingCause]
    duplicates: list[DuplicateId]
    cycle_list: list[CausalCycle]
    before_causes: list[EffectBeforeCause]
    skew: list[ClockSkew]

    @property
    def clean(self) -> bool:
        wrong = (self.missing_ids, self.duplicate_records, self.cycles, self.effects_before_causes)
        return not any(wrong)


def missing_cause(name: str, effects: int, first: LogRecord) -> MissingCause:
    """A missing cause with this many effects; `first` is the first of them in the log."""
    others = "" if effects == 1 else f" and {effects - 1:,} more"
    text = f"{brief(name)} is missing: it is a cause of {first.described} ({first.place}){others}"
    return MissingCause(name, effects, text)


def duplicate_id(records: int, first: LogRecord, second: LogRecord) -> DuplicateId:
    """An id shared by this many records."""
    more = "" if records == 2 else f", and {records - 2:,} more"
    text = f"{first.described} occurs {records:,} times: {first.place} and {second.place}{more}"
    return DuplicateId(first.id, records, text)


def causal_cycle(records: int, path: Sequence[LogRecord]) -> CausalCycle:
    """A cycle of this many records, with a shortest path around it."""
    names = [record.name for record in path]
    if len(path) == 1:
        text = f"{path[0].described} is its own cause ({path[0].place})"
    else:
        shown = " → ".join([*_shortened(names), names[0]])
        text = f"{records:,} records are causes of each other: {shown}"
    return CausalCycle(records, [record.id for record in path], text)


def effect_before_cause(path: Sequence[LogRecord]) -> EffectBeforeCause:
    """An effect that precedes its cause in its own process; the path leads from the cause to the effect."""
    cause, effect = path[0], path[-1]
    names = [record.name for record in path]
    through = "" if len(path) == 2 else f", through {' → '.join(_shortened(names))}"
    text = (
        f"{brief(effect.process)} has {effect.name} at {effect.seq:,} ({effect.place}) before its "
        f"cause {cause.name} at {cause.seq:,} ({cause.place}){through}"
    )
    return EffectBeforeCause(effect.process, effect.id, cause.id, [record.id for record in path], text)


def clock_skew(cause: LogRecord, effect: LogRecord, largest: int, effects: int, of: int) -> ClockSkew:
    """The clock skew between two processes; cause and effect are the pair with the largest difference."""
    text = (
        f"{effects:,} of {of:,} effects at {brief(effect.process)} have a time before their cause's at "
        f"{brief(cause.process)}, by up to {format_duration(largest)}: {effect.name} before {cause.name}"
    )
    return ClockSkew(cause.process, effect.process, effects, of, largest, cause.id, effect.id, text)


def _shortened(names: list[str]) -> list[str]:
    return names if len(names) <= _MAX_SHOWN_PATH else [*names[: _MAX_SHOWN_PATH - 2], "…", names[-1]]
