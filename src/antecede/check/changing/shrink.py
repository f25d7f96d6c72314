"""Shrinks a failing schedule of a changing group to a small one that fails in the same way.

Events are left out, in ever smaller parts, as long as the rest fails (delta debugging); an event that is no
longer possible does nothing. The events after the schedule, which let everything arrive, are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from antecede.check.changing.kinds import schedule_type, world_type
from antecede.check.changing.world import ChangingWorld, ScheduleEvent
from antecede.membership.member import ChangingMember

_MOST_REPLAYS = 4_000


def replay(
    kind: type[ChangingMember],
    founders: int,
    size: int,
    schedule: Sequence[ScheduleEvent],
    world: type[ChangingWorld] | None = None,
) -> ChangingWorld:
    """The result of a schedule, after which everything arrives."""
    played = (world or world_type(kind))(kind, founders, size)
    for event in schedule:
        if played.has_addresses(event):
            played.apply(event)
    schedule_type(kind).of_world(played).settle()
    return played


def fault(world: ChangingWorld) -> str:
    """The kind of the first violation, without its numbers; empty if there is none."""
    try:
        violations = schedule_type(world.kind).of_world(world).oracle().violations()
    except Exception as error:  # An exception from a member is a fault of the protocol.
        return type(error).__name__
    return re.sub(r"\d+", "n", violations[0]) if violations else ""


def shrink(
    kind: type[ChangingMember],
    founders: int,
    size: int,
    schedule: Sequence[ScheduleEvent],
    world: type[ChangingWorld] | None = None,
    drawn: int = 0,
) -> list[ScheduleEvent]:
    """A smallest schedule that fails in the same way: no event of it can be left out. If `drawn` events of it
    were drawn, the events after them may be left out altogether, since everything arrives anyway."""

    def outcome(events: Sequence[ScheduleEvent]) -> str:
        try:
            return fault(replay(kind, founders, size, events, world))
        except Exception as error:  # See above.
            return type(error).__name__

    wanted, replays = outcome(schedule), 0
    if not wanted:
        return list(schedule)
    left = list(schedule)
    if drawn and outcome(left[:drawn]) == wanted:
        left = left[:drawn]
    part = max(1, len(left) // 2)
    while part and replays < _MOST_REPLAYS:
        at, progressed = 0, False
        while at < len(left) and replays < _MOST_REPLAYS:
            without = left[:at] + left[at + part :]
            replays += 1
            if outcome(without) == wanted:
                left, progressed = without, True
            else:
                at += part
        part = part if part == 1 and progressed else part // 2
    return left
