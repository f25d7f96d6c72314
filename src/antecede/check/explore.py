"""Every schedule of a small group, level by level: the states after one event, after two, and so on.

Reductions leave out schedules that cannot change the verdict, if the protocol declares the properties that
they need. Declared properties are tested at every step.

*Order* (`reduction`): of schedules that differ only in the order of what happens at different processes, few
are explored.

*Copies*: a packet that changes nothing, now or later, is not received; it may stay in flight for ever.

*Deliveries*: where messages are delivered in the order of their receipt, a process that has nothing more to
broadcast delivers at the end, when nothing else can happen.

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
from antecede.check.reduction import PersistentSets

_UNBOUNDED = (EventKind.RECEIVE, EventKind.DELIVER, EventKind.BROADCAST)


class ExplorationProgress(msgspec.Struct):
    """The progress of an exploration."""

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
        self.group, known, bounds = group, group.processes, group.bounds
        self.uses_symmetry = symmetry and group.kind.symmetric and group.has_equal_members
        is_static = not (group.is_timed or bounds.link_changes)
        self.uses_order = order and is_static and known.declares_forwards()
        # A process that crashes depends on what it has received since it last saved its state.
        is_lasting = self.uses_order and not bounds.crashes
        self.uses_copies = is_lasting and group.kind.ignores_copies
        self.uses_deliveries = is_lasting and group.kind.delivers_as_received
        known.relies_on_forwards, known.relies_on_copies = self.uses_order, self.uses_copies
        known.relies_on_receipts, group.leaves_out_copies = self.uses_deliveries, self.uses_copies
        self._sets = PersistentSets(group, self.uses_symmetry)
        self.progress = ExplorationProgress()

    @property
    def reductions(self) -> list[str]:
        """Those in use, by name."""
        used = {
            "order": self.uses_order,
            "copies": self.uses_copies,
            "deliveries": self.uses_deliveries,
            "symmetry": self.uses_symmetry,
        }
        return [name for name, is_used in used.items() if is_used]

    def run(self, max_states: int) -> Iterator[ExplorationProgress]:
        """Yields after each level, until everything is explored, a violation is found, or a limit is
        reached."""
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
        """The events of the first set of processes that has one which consumes no shared bound: timers and
        faults are bounded for the group as a whole."""
        group = self.group
        last: list[Event] = []
        for processes in self._sets.candidates(state):
            events = group.events(state, processes)
            if self.uses_deliveries:
                last += [event for event in events if self._is_last(state, event)]
                events = [event for event in events if not self._is_last(state, event)]
            if any(event[0] in _UNBOUNDED for event in events):
                return events
        return last[:1] or group.events(state)

    def _is_last(self, state: CheckState, event: Event) -> bool:
        """Whether an event is a delivery at a process that has nothing more to broadcast."""
        sent = self.group.processes.states[state.processes[event[1]]].sent
        return event[0] == EventKind.DELIVER and sent == self.group.bounds.messages

    def _is_next(self, state: CheckState, process: int) -> bool:
        """Whether a process may broadcast: it has, or all before it have."""
        states = self.group.processes.states
        return states[state.processes[process]].sent > 0 or all(
            states[number].sent for number in state.processes[:process]
        )
