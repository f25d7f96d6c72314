"""Every schedule of a small group, level by level: the states after one event, after two, and so on.

Two reductions leave out schedules that cannot give another verdict.

*Order.* What happens at different processes in either order leads to the same state. If a protocol sends
packets only when its application broadcasts, a process that has nothing more to broadcast influences nobody.
So its events are put off until the others have broadcast all of theirs, and then these processes finish one
after the other. In the terms of partial-order reduction, the events that are explored in a state are a
persistent set.

*Symmetry.* If all peers of a protocol are alike, exchanging two of them changes no verdict. So only schedules
are explored in which peers broadcast for the first time in the order of their ranks.

States are told apart by hashes of 64 bits. Among 10^8 states, two share one with a probability of 3 in
10,000. Memory: 8 bytes a state, and the states of the last level.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from antecede.check.events import Event, EventKind
from antecede.check.group import CheckedGroup, CheckState, CheckViolation


class ExplorationProgress(msgspec.Struct):
    """How far an exploration is."""

    states: int = 1
    transitions: int = 0
    depth: int = 0
    ends: int = 0
    """States in which nothing more can happen."""
    is_complete: bool = False
    violation: CheckViolation | None = None


class Exploration:
    """Explores one group. `order` and `symmetry` are the reductions, where the protocol allows them."""

    def __init__(self, group: CheckedGroup, order: bool = True, symmetry: bool = True) -> None:
        self.group = group
        self.uses_order = order and not group.kind.relays
        self.uses_symmetry = symmetry and group.kind.symmetric and group.has_equal_members
        self.progress = ExplorationProgress()

    @property
    def reductions(self) -> list[str]:
        """Those in use, by name."""
        return ["order"] * self.uses_order + ["symmetry"] * self.uses_symmetry

    def run(self, max_states: int) -> Iterator[ExplorationProgress]:
        """Yields after each level, until everything is explored, something is wrong, or it is too much."""
        progress = self.progress
        level = {hash(self.group.initial): self.group.initial}
        seen: npt.NDArray[np.int64] = np.array(list(level), dtype=np.int64)
        while level and progress.violation is None and progress.states < max_states:
            following = self._expand(level)
            hashes = np.fromiter(following, dtype=np.int64, count=len(following))
            for known in hashes[np.isin(hashes, seen)].tolist():
                del following[known]
            seen = np.concatenate([seen, np.fromiter(following, dtype=np.int64, count=len(following))])
            level = following
            progress.states += len(level)
            progress.depth += bool(level)
            progress.is_complete = not level and progress.violation is None
            yield progress

    def _expand(self, level: dict[int, CheckState]) -> dict[int, CheckState]:
        group, progress = self.group, self.progress
        following: dict[int, CheckState] = {}
        for state in level.values():
            events = self.events(state)
            progress.transitions += len(events)
            for event in events:
                after = group.apply(state, event)
                if isinstance(after, CheckViolation):
                    progress.violation = after
                    return following
                following[hash(after)] = after
            if not events:
                progress.ends += 1
                if (violation := group.judge_end(state)) is not None:
                    progress.violation = violation
                    return following
        return following

    def events(self, state: CheckState) -> list[Event]:
        """The events to explore in a state."""
        group = self.group
        events = self._events_in_order(state) if self.uses_order else group.events(state)
        if self.uses_symmetry:
            return [
                event for event in events if event[0] != EventKind.BROADCAST or self._is_next(state, event[1])
            ]
        return events

    def _events_in_order(self, state: CheckState) -> list[Event]:
        group, states = self.group, self.group.processes.states
        quota = group.bounds.messages if group.may_broadcast(state) else 0
        unfinished = [
            each
            for each, number in enumerate(state.processes)
            if states[number].sent < quota and group.bounds.may_send(each)
        ]
        if unfinished:
            return group.events(state, unfinished)
        for process in range(group.size):
            if events := group.events(state, (process,)):
                return events
        return []

    def _is_next(self, state: CheckState, process: int) -> bool:
        """Whether a process may broadcast: it has, or all before it have."""
        states = self.group.processes.states
        return states[state.processes[process]].sent > 0 or all(
            states[number].sent for number in state.processes[:process]
        )
