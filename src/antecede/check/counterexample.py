"""The smallest schedule in which a protocol fails: with the fewest messages, processes, and steps."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from antecede.check.bounds import Bounds
from antecede.check.events import Event
from antecede.check.explore import Exploration
from antecede.check.group import CheckedGroup, CheckState, CheckViolation
from antecede.protocols.base import Protocol


class CounterExample(NamedTuple):
    """A schedule, and what is wrong at its end."""

    group: CheckedGroup
    events: list[Event]
    states: list[CheckState]
    """Before each event, and after the last unless that is the violation."""
    violation: CheckViolation


def find_smallest(kind: type[Protocol], bounds: Bounds, max_states: int) -> CounterExample | None:
    """The smallest counter-example within bounds; None if there is none among so many states."""
    for total in range(1, bounds.peers * bounds.messages + 1):
        for peers in _sizes(bounds):
            smaller = msgspec.structs.replace(bounds, peers=peers, total=total)
            found = find_shortest(CheckedGroup(kind, smaller), max_states)
            if found is not None:
                return found
    return None


def _sizes(bounds: Bounds) -> range:
    fixed = bounds.groups is not None or bounds.layout is not None
    return range(bounds.peers if fixed else min(2, bounds.peers), bounds.peers + 1)


def find_shortest(group: CheckedGroup, max_states: int) -> CounterExample | None:
    """A counter-example with the fewest steps. No order of events is left out: that would make it longer."""
    explored = Exploration(group, order=False)
    initial = group.initial
    came_from: dict[CheckState, tuple[CheckState, Event] | None] = {initial: None}
    level = [initial]
    while level and len(came_from) < max_states:
        following = []
        for state in level:
            events = explored.events(state)
            violation = group.judge_end(state) if not events else None
            if violation is not None:
                return _trace_back(group, came_from, state, [], violation)
            for event in events:
                after = group.apply(state, event)
                if isinstance(after, CheckViolation):
                    return _trace_back(group, came_from, state, [event], after)
                if after not in came_from:
                    came_from[after] = state, event
                    following.append(after)
        level = following
    return None


def _trace_back(
    group: CheckedGroup,
    came_from: dict[CheckState, tuple[CheckState, Event] | None],
    state: CheckState,
    last: list[Event],
    violation: CheckViolation,
) -> CounterExample:
    events, states = last, [state]
    while (step := came_from[state]) is not None:
        state, event = step
        events.insert(0, event)
        states.insert(0, state)
    return CounterExample(group, events, states, violation)
