"""Saves a schedule of a changing group to a file, and replays it on the current protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from antecede.check.changing.describe import DescribedWorld, described_world, show_schedule
from antecede.check.changing.kinds import schedule_type
from antecede.check.changing.world import EVENT_KINDS, ChangingViolation, ScheduleEvent, as_violation
from antecede.check.replay import ImpossibleStepError
from antecede.check.schedule import ShownCounterExample, ShownStep
from antecede.errors import InputError
from antecede.membership.member import ChangingMember
from antecede.protocols.catalog import as_file_name

_ABOUT_ANOTHER = frozenset(
    {"transmit", "join", "ask", "remove", "suspect", "trust", "cut", "heal", "return"}
    | {"attach", "move", "expel"}
)
"""Events that concern a second process."""
_MOST_ADDRESSES = 64
_MOST_EVENTS = 100_000


class SavedChangingSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule of a changing group that ends in a violation."""

    protocol: str
    founders: int
    size: int
    violation: str
    changes: list[ScheduleEvent]

    def __post_init__(self) -> None:
        if not 1 <= self.founders <= self.size <= _MOST_ADDRESSES:
            raise ValueError(
                f"a group has 1 to {_MOST_ADDRESSES} addresses, the first of which are founders'"
            )
        if len(self.changes) > _MOST_EVENTS:
            raise ValueError(f"it has more than {_MOST_EVENTS:,} events")
        for kind, address, other in self.changes:
            if kind not in EVENT_KINDS:
                raise ValueError(f"there are no events '{kind}'; there are {', '.join(sorted(EVENT_KINDS))}")
            if address < 0 or other < -1 or (kind in _ABOUT_ANOTHER and other < 0):
                raise ValueError(f"an event of process {address} about {other}")


class ReplayedChange(NamedTuple):
    """A step that was replayed, and its effects."""

    shown: ShownStep
    held: list[str]
    """The held messages of members afterwards."""
    violation: ChangingViolation | None


def write_schedule(
    kind: type[ChangingMember],
    saved: SavedChangingSchedule,
    violation: ChangingViolation,
    out: Path | None,
) -> tuple[ShownCounterExample, list[str]]:
    """A counter-example for people; with a folder, also its schedule and its diagram as files there."""
    shown, svg = show_schedule(kind, saved.founders, saved.size, saved.changes, violation)
    if out is None:
        return shown, []
    out.mkdir(parents=True, exist_ok=True)
    file, diagram = (out / f"{as_file_name(saved.protocol)}.{suffix}" for suffix in ("json", "svg"))
    file.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=2) + b"\n")
    diagram.write_text(svg + "\n", encoding="utf-8")
    return shown, [str(file), str(diagram)]


def read_changes(path: Path) -> SavedChangingSchedule | None:
    """The schedule in a file, if it is one of a changing group: it has a list of changes."""
    try:
        read = msgspec.json.decode(path.read_bytes())
        is_changing = isinstance(read, dict) and "changes" in read
        return msgspec.convert(read, SavedChangingSchedule) if is_changing else None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a schedule that `antecede check --out` wrote: {error}") from error


def saved_schedule(
    protocol: str, founders: int, size: int, schedule: Sequence[ScheduleEvent], violation: ChangingViolation
) -> SavedChangingSchedule:
    text = f"p{violation.address}: {violation.text}"
    return SavedChangingSchedule(protocol, founders, size, text, list(schedule))


def replay_changes(kind: type[ChangingMember], saved: SavedChangingSchedule) -> Iterator[ReplayedChange]:
    """Replay a schedule on the current protocol. The result is judged at its end, once everything in flight
    has arrived."""
    world = described_world(kind, saved.founders, saved.size)
    last = None
    for number, event in enumerate(saved.changes, 1):
        if last is not None:
            yield last
        if not world.has_addresses(event):
            raise InputError(
                f"step {number} cannot happen now: {event[0]} at p{event[1]}, which does not exist then"
            )
        if not world.apply(event):
            raise ImpossibleStepError(number, f"{event[0]} at p{event[1]}")
        last = ReplayedChange(world.steps[-1], _held(world), None)
    if last is not None:
        schedule = schedule_type(kind).of_world(world)
        schedule.settle()
        violations = schedule.oracle().violations()
        yield last._replace(violation=as_violation(violations[0]) if violations else None)


def _held(world: DescribedWorld) -> list[str]:
    return [
        f"p{member.me} holds {world.name(each.message)}"
        + (f" for {world.name(each.cause)}" if each.cause is not None else "")
        for member in world.members
        for each in member.waiting()
    ]
