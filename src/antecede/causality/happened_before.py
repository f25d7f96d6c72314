"""Happened-before on messages, derived from a finished execution and from nothing else.

Every message gets a position in a topological order, and its causal past as a bit set over positions (a
Python integer). This is simple and evidently correct, and everything faster is tested against it. Cost:
deliveries × messages / 64 steps, messages² / 8 bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from antecede.causality.execution import Execution, Kind, MessageId, Step

StepIndex = tuple[int, int]
"""A step of the execution: the process, and its index in the history of that process."""


class CausalOrder:
    """The happened-before relation on the messages of an execution.

    `impossible` holds each (process, message) whose delivery happened before its own send, directly or around
    a cycle. Such a delivery creates no causal order, nor does the delivery of a message that nobody sent.
    Only the first delivery of a message at a process counts.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.histories = [
            _without_duplicates(history, execution.own_deliveries) for history in execution.histories
        ]
        self._sends = _find_sends(execution, self.histories)
        self.impossible: set[tuple[int, MessageId]] = set()
        if stuck := self._replay():
            self.impossible = self._deliveries_on_cycles(stuck)
            self._replay()

    def _replay(self) -> list[StepIndex]:
        """Replay every process until it delivers a message that is not sent yet. Returns where processes are
        stuck."""
        self.messages: list[MessageId] = []
        self.position: dict[MessageId, int] = {}
        self.past: list[int] = []
        self.direct: list[int] = []
        known = [0] * len(self.histories)
        had = [0] * len(self.histories)
        cursor = [0] * len(self.histories)
        waiting: defaultdict[MessageId, list[int]] = defaultdict(list)
        runnable = list(reversed(range(len(self.histories))))
        while runnable:
            process = runnable.pop()
            history = self.histories[process]
            while cursor[process] < len(history):
                kind, message = history[cursor[process]]
                if kind is Kind.SEND:
                    self.position[message] = len(self.messages)
                    self.messages.append(message)
                    self.past.append(known[process])
                    self.direct.append(had[process])
                    runnable.extend(waiting.pop(message, ()))
                elif message not in self._sends or (process, message) in self.impossible:
                    cursor[process] += 1
                    continue
                elif message not in self.position:
                    waiting[message].append(process)
                    break
                place = self.position[message]
                known[process] |= self.past[place] | 1 << place
                had[process] |= 1 << place
                cursor[process] += 1
        return [(p, at) for p, at in enumerate(cursor) if at < len(self.histories[p])]

    def _deliveries_on_cycles(self, stuck: list[StepIndex]) -> set[tuple[int, MessageId]]:
        """The deliveries from which their own send can be reached: both are in one strongly connected
        component."""
        deliveries: defaultdict[MessageId, list[StepIndex]] = defaultdict(list)
        for process, start in stuck:
            for at in range(start, len(self.histories[process])):
                kind, message = self.histories[process][at]
                if kind is Kind.DELIVER:
                    deliveries[message].append((process, at))

        def after(place: StepIndex) -> list[StepIndex]:
            process, at = place
            following = [(process, at + 1)] if at + 1 < len(self.histories[process]) else []
            kind, message = self.histories[process][at]
            return following + (deliveries[message] if kind is Kind.SEND else [])

        component = _strong_components(stuck, after)
        return {
            (place[0], message)
            for message, places in deliveries.items()
            for place in places
            if message in self._sends and component.get(self._sends[message]) == component[place]
        }

    def happened_before(self, earlier: MessageId, later: MessageId) -> bool:
        return bool(self.past[self.position[later]] >> self.position[earlier] & 1)

    def immediate_dependencies(self, message: MessageId) -> list[MessageId]:
        """The immediate dependencies: the causes with nothing between them and `message`.

        Positions are in topological order. So the highest cause that is left is in the past of no other, and
        its own past can be left out. One step for each dependency.
        """
        found = []
        rest = self.past[self.position[message]]
        while rest:
            highest = rest.bit_length() - 1
            found.append(self.messages[highest])
            rest &= ~(self.past[highest] | 1 << highest)
        return found[::-1]

    def path(self, earlier: MessageId, later: MessageId) -> list[MessageId]:
        """A shortest chain from `earlier` to `later`, each sent by a process that had the one before."""
        goal = self.position[earlier]
        came_from = {self.position[later]: -1}
        frontier = [self.position[later]]
        while goal not in came_from:
            following = []
            for place in frontier:
                for cause in _bits(self.direct[place]):
                    between = cause == goal or self.past[cause] >> goal & 1
                    if between and cause not in came_from:
                        came_from[cause] = place
                        following.append(cause)
            frontier = following
        chain = [goal]
        while (place := came_from[chain[-1]]) >= 0:
            chain.append(place)
        return [self.messages[place] for place in chain]

    def bits(self, history: Sequence[Step]) -> int:
        """The messages of a history, as a bit set of positions."""
        bits = 0
        for _, message in history:
            if message in self.position:
                bits |= 1 << self.position[message]
        return bits

    def members(self, bits: int) -> list[MessageId]:
        """The messages of a bit set of positions."""
        return [self.messages[place] for place in _bits(bits)]


def _bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _without_duplicates(history: Sequence[Step], own_deliveries: frozenset[MessageId]) -> list[Step]:
    """The histories without repeated deliveries, and without senders' deliveries of their own messages,
    except those in `own_deliveries`."""
    seen: set[MessageId] = set()
    steps = []
    for step in history:
        if step.kind is Kind.SEND or step.message not in seen:
            steps.append(step)
        if step.kind is Kind.DELIVER or step.message not in own_deliveries:
            seen.add(step.message)
    return steps


def _find_sends(execution: Execution, histories: list[list[Step]]) -> dict[MessageId, StepIndex]:
    sends: dict[MessageId, StepIndex] = {}
    for process, history in enumerate(histories):
        for at, (kind, message) in enumerate(history):
            if kind is not Kind.SEND:
                continue
            if message.origin != process:
                raise ValueError(f"{execution.show(message)} is sent by {execution.name(process)}")
            if sends.setdefault(message, (process, at)) != (process, at):
                raise ValueError(f"{execution.show(message)} is sent twice")
    return sends


def _strong_components(
    roots: list[StepIndex], after: Callable[[StepIndex], list[StepIndex]]
) -> dict[StepIndex, int]:
    """Strongly connected components, by Tarjan's algorithm without recursion."""
    index: dict[StepIndex, int] = {}
    low: dict[StepIndex, int] = {}
    component: dict[StepIndex, int] = {}
    stack: list[StepIndex] = []
    for root in roots:
        if root in index:
            continue
        work = [(root, iter(after(root)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            place, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    work.append((successor, iter(after(successor))))
                    break
                if successor not in component:
                    low[place] = min(low[place], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[place])
                if low[place] == index[place]:
                    while place not in component:
                        component[stack.pop()] = index[place]
    return component
