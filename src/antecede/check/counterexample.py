"""The smallest schedule in which a protocol fails: with the fewest messages, processes, and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from antecede.check.bounds import Bounds
from antecede.check.events import Event, EventKind
from antecede.check.explore import Exploration
from antecede.check.group import CheckedGroup, CheckState, CheckViolation
from antecede.protocols.base import Protocol


class CounterExample(NamedTuple):
    """A schedule, and the violation at its end."""

    group: CheckedGroup
    events: list[Event]
    states: list[CheckState]
    """The states before each event, and the last one unless the last event is the violation."""
    violation: CheckViolation
    explored: int = 0
    """The number of states explored until it was found."""
    is_smallest: bool = False
    """Whether no smaller one exists within the bounds; False if something smaller was not explored
    completely."""

    @property
    def messages(self) -> int:
        return sum(kind == EventKind.BROADCAST for kind, *_ in self.events)

    @property
    def size(self) -> tuple[int, int, int]:
        """The measure to minimise: its messages, its processes, its steps."""
        return self.messages, self.group.size, len(self.events)


class _ShortestSearch(NamedTuple):
    found: CounterExample | None
    explored: int
    is_complete: bool


def find_smallest(
    kind: type[Protocol],
    bounds: Bounds | Sequence[Bounds],
    max_states: int,
    most_messages: int | None = None,
    max_explored: int | None = None,
    symmetry: bool = True,
) -> CounterExample | None:
    """The smallest counter-example within bounds, with fewer members too, or within exactly one of several
    bounds. None if there is none among so many states of each number of messages and of each group, and
    among `max_explored` in all. `symmetry` is the reduction of that name."""
    sizes = sorted(
        _sizes(bounds) if isinstance(bounds, Bounds) else bounds, key=lambda each: (each.peers, each.messages)
    )
    explored, is_complete = 0, True
    most = max(each.peers * each.messages for each in sizes)
    for total in range(1, (most if most_messages is None else min(most, most_messages)) + 1):
        for each in sizes:
            if max_explored is not None and explored >= max_explored:
                return None
            if total <= each.peers * each.messages:
                group = CheckedGroup(kind, msgspec.structs.replace(each, total=total))
                search = _find_shortest(group, max_states, symmetry)
                explored += search.explored
                if search.found is not None:
                    return search.found._replace(explored=explored, is_smallest=is_complete)
                is_complete &= search.is_complete
    return None


def _sizes(bounds: Bounds) -> list[Bounds]:
    """The same bounds, for groups of fewer members too if members need no layout."""
    if bounds.groups is not None or bounds.layout is not None or bounds.clocks:
        return [bounds]
    sizes = range(min(2, bounds.peers), bounds.peers + 1)
    return [msgspec.structs.replace(bounds, peers=peers) for peers in sizes]


def _find_shortest(group: CheckedGroup, max_states: int, symmetry: bool) -> _ShortestSearch:
    """A counter-example with the fewest steps. No partial-order reduction is used: it would make the
    counter-example longer."""
    exploration = Exploration(group, False, symmetry)
    initial = group.initial
    came_from: dict[CheckState, tuple[CheckState, Event] | None] = {initial: None}
    level = [initial]
    while level and len(came_from) < max_states:
        following = []
        for state in level:
            events = exploration.events(state)
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
    return _ShortestSearch(None, len(came_from), not level)


def _trace_back(
    group: CheckedGroup,
    came_from: dict[CheckState, tuple[CheckState, Event] | None],
    state: CheckState,
    last: list[Event],
    violation: CheckViolation,
) -> _ShortestSearch:
    events, states = last, [state]
    while (step := came_from[state]) is not None:
        state, event = step
        events.insert(0, event)
        states.insert(0, state)
    return _ShortestSearch(CounterExample(group, events, states, violation), len(came_from), False)
