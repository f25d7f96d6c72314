"""Shrinks a failing run: fewer messages, then fewer processes, then fewer steps.

A part of a schedule is replayed on the protocol's objects, leaving out impossible events: a packet that was
not sent does not arrive. The part is kept if it fails in the same way. Messages are left out in halves, in
quarters, and so on (delta debugging); then processes and steps one at a time. At the end every schedule of
groups that are no larger is explored, as far as time allows, and the smallest failing run is taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from antecede.check.bounds import Bounds
from antecede.check.counterexample import CounterExample, find_smallest
from antecede.check.events import Event, EventKind
from antecede.check.group import CheckedGroup, CheckState, CheckViolation
from antecede.check.recording import PacketKey, RecordedStep
from antecede.errors import InputError
from antecede.protocols.base import LocalError, Protocol

_MAX_DRAINED = 5_000
_MAX_TRIALS = 800
_MAX_LAYOUTS = 200
_ARRIVALS = (EventKind.RECEIVE, EventKind.REPEAT)


class _Schedule(NamedTuple):
    """Steps in a group."""

    bounds: Bounds
    steps: tuple[RecordedStep, ...]


def shrink(
    kind: type[Protocol], bounds: Bounds, steps: Sequence[RecordedStep], max_states: int
) -> CounterExample | None:
    """The smallest run found that fails like these steps; None if they do not fail. The steps are those of a
    `Recording`, in a group that `bounds` describes."""
    if kind.links.bounded_delays:
        return None  # Its behaviour depends on time.
    shrinking = _Shrinking(kind, _Schedule(bounds, tuple(steps)))
    if shrinking.found is None:
        return None
    size = None
    while size != shrinking.found.size:  # With fewer steps, fewer messages may suffice.
        size = shrinking.found.size
        shrinking.leave_out_messages()
        shrinking.leave_out_processes()
        shrinking.leave_out_steps()
    return _explored(kind, shrinking.found, max_states)


def failure_of(violation: CheckViolation) -> str:
    """The kind of failure, without messages and numbers."""
    return re.sub(r"MessageId\([^)]*\)|p?\d+(:\d+)?", "…", violation.text)


def _explored(kind: type[Protocol], found: CounterExample, max_states: int) -> CounterExample:
    """The smallest failing run among all schedules that are no larger than the given one."""
    messages, bounds = found.messages, found.group.bounds
    if bounds.groups is None and bounds.layout is None:
        bounds = msgspec.structs.replace(bounds, total=None, messages=min(bounds.messages, messages))
    try:
        smaller = find_smallest(kind, bounds, max_states, most_messages=messages)
    except InputError:
        return found
    is_same = smaller is not None and failure_of(smaller.violation) == failure_of(found.violation)
    if smaller is None or not is_same or smaller.size > found.size:
        return found
    return smaller


class _Shrinking:
    def __init__(self, kind: type[Protocol], schedule: _Schedule) -> None:
        self.kind, self._schedule = kind, schedule
        self._trials = 0
        self._failure: str | None = None
        self.found = self._play(schedule)
        if self.found is not None:
            self._failure = failure_of(self.found.violation)
            self._accept(schedule, self.found)

    def leave_out_messages(self) -> None:
        self._leave_out_concurrent()
        size = len(self._broadcasts())
        while size := size // 2:
            first = 0
            while first < len(self._broadcasts()):
                left_out = {step.number for step in self._broadcasts()[first : first + size]}
                if not self._try_without(lambda step, out=left_out: step.number in out):  # type: ignore[misc]
                    first += size
            if size == 1:
                break
        # One at a time until none can be left out: a step that was needed may no longer be.
        while any(
            self._try_without(lambda step, out=each.number: step.number == out)  # type: ignore[misc]
            for each in self._broadcasts()
        ):
            pass

    def _leave_out_concurrent(self) -> None:
        """Leave out at once everything that did not happen before the failing message: most of it is
        irrelevant."""
        if self.found is None or (step := self.found.events[-1][3]) is None or step.message < 0:
            return
        state, group = self.found.states[-1], self.found.group
        needed = state.pasts[step.message] | 1 << step.message
        broadcast = [
            (event[3].message, played.number)
            for event, played in zip(self.found.events, self._schedule.steps, strict=True)
            if event[0] == EventKind.BROADCAST and event[3] is not None
        ]
        left_out = {number for message, number in broadcast if not needed >> message & 1}
        if left_out and group.size > 1:
            self._try_without(lambda step: step.number in left_out)

    def leave_out_processes(self) -> None:
        process = self._schedule.bounds.peers - 1
        while process >= 0:
            if not any(self._try(each) for each in _without_process(self._schedule, process)):
                process -= 1
            process = min(process, self._schedule.bounds.peers - 1)

    def leave_out_steps(self) -> None:
        place = len(self._schedule.steps) - 1
        while place >= 0:
            number = self._schedule.steps[place].number
            self._try_without(lambda step, out=number: step.number == out)  # type: ignore[misc]
            place = min(place, len(self._schedule.steps)) - 1

    def _broadcasts(self) -> list[RecordedStep]:
        return [step for step in self._schedule.steps if step.kind == EventKind.BROADCAST]

    def _try_without(self, is_left_out: Callable[[RecordedStep], bool]) -> bool:
        bounds, steps = self._schedule
        return self._try(_Schedule(bounds, tuple(step for step in steps if not is_left_out(step))))

    def _try(self, schedule: _Schedule) -> bool:
        """Whether a schedule fails in the same way; if so, it replaces the present one."""
        self._trials += 1
        if self._trials > _MAX_TRIALS:
            return False
        found = self._play(schedule)
        if found is None or failure_of(found.violation) != self._failure:
            return False
        self._accept(schedule, found)
        return True

    def _accept(self, schedule: _Schedule, found: CounterExample) -> None:
        played = self._played
        self.found, self._schedule = found, _Schedule(schedule.bounds, tuple(played))

    def _play(self, schedule: _Schedule) -> CounterExample | None:
        try:
            playing = _Playing(self.kind, schedule)
        except (InputError, LocalError):
            return None
        is_end = self._failure is None or self._failure.startswith("it never") or "for ever" in self._failure
        found = playing.play(to_the_end=is_end)
        self._played = playing.played
        return found


class _Playing:
    """Replays the steps that are possible."""

    def __init__(self, kind: type[Protocol], schedule: _Schedule) -> None:
        self._steps = schedule.steps
        self.group = CheckedGroup(kind, _bounds_of(schedule))
        self.played: list[RecordedStep] = []
        self._events: list[Event] = []
        self._states: list[CheckState] = [self.group.initial]
        self._packets: dict[PacketKey, int] = {}
        self._next = 1 + max((step.number for step in schedule.steps), default=0)

    def play(self, to_the_end: bool) -> CounterExample | None:
        left = Counter(step.packet for step in self._steps)
        for step in self._steps:
            left[step.packet] -= 1
            event = self._event(step, left[step.packet] > 0)
            if event is not None and (violation := self._apply(step, event)) is not None:
                return self._found(violation)
        if not to_the_end:
            return None
        for _ in range(_MAX_DRAINED):
            events = [event for event in self.group.events(self._states[-1]) if event[0] < EventKind.REPEAT]
            if not events:
                violation = self.group.judge_end(self._states[-1])
                return None if violation is None else self._found(violation)
            if (violation := self._apply(self._as_step(events[0]), events[0])) is not None:
                return self._found(violation)
        return None

    def _found(self, violation: CheckViolation) -> CounterExample:
        states = self._states[: len(self._events) + 1]
        return CounterExample(self.group, self._events, states, violation)

    def _event(self, step: RecordedStep, arrives_again: bool) -> Event | None:
        state = self._states[-1]
        if step.kind in _ARRIVALS:
            packet = self._packets.get(step.packet) if step.packet is not None else None
            if packet is None:
                return None
            return self.group.event(
                state, EventKind.REPEAT if arrives_again else EventKind.RECEIVE, step.process, packet
            )
        return self.group.event(state, step.kind, step.process, step.about)

    def _apply(self, step: RecordedStep, event: Event) -> CheckViolation | None:
        before = self._states[-1]
        self._events.append(event)
        self.played.append(step)
        after = self.group.apply(before, event)
        if isinstance(after, CheckViolation):
            return after
        self._states.append(after)
        if event[3] is not None:
            self._note_sent(step.number, event[3].sends)
        else:
            self._note_sent(step.number, (Counter(after.in_flight) - Counter(before.in_flight)).elements())
        return None

    def _note_sent(self, step: int, packets: Any) -> None:
        counts: Counter[tuple[int, int]] = Counter()
        for packet in packets:
            sent = self.group.processes.packets[packet]
            link = sent.source, sent.to
            self._packets[PacketKey(step, *link, counts[link])] = packet
            counts[link] += 1

    def _as_step(self, event: Event) -> RecordedStep:
        """A step for an event that the recording does not contain."""
        kind, process, detail, _ = event
        self._next += 1
        key = None
        if kind in _ARRIVALS:
            key = next((key for key, packet in self._packets.items() if packet == detail), None)
            detail = -1
        return RecordedStep(EventKind(kind), process, self._next, detail, key)


def _bounds_of(schedule: _Schedule) -> Bounds:
    """Bounds that allow only these steps, their packets and their deliveries."""
    sent = Counter(step.process for step in schedule.steps if step.kind == EventKind.BROADCAST)
    arrivals = Counter(step.packet for step in schedule.steps if step.packet is not None)
    changes = sum(step.kind in (EventKind.OPEN, EventKind.CLOSE) for step in schedule.steps)
    return msgspec.structs.replace(
        schedule.bounds,
        messages=max(sent.values(), default=1),
        total=sum(sent.values()),
        duplicates=sum(count - 1 for count in arrivals.values()),
        link_changes=changes,
        wakes=sum(step.kind == EventKind.WAKE for step in schedule.steps),
    )


def _without_process(schedule: _Schedule, process: int) -> Iterator[_Schedule]:
    """The same schedule in a group without one process: the ranks above it move down."""
    bounds, steps = schedule
    if bounds.peers < 2:
        return

    def rank(old: int) -> int:
        return old - (old > process)

    def moved(step: RecordedStep) -> RecordedStep:
        about = rank(step.about) if step.kind in (EventKind.OPEN, EventKind.CLOSE) else step.about
        key = step.packet
        if key is not None:
            key = key._replace(source=rank(key.source), to=rank(key.to))
        return step._replace(process=rank(step.process), about=about, packet=key)

    kept = tuple(
        moved(step)
        for step in steps
        if step.process != process
        and not (step.kind in (EventKind.OPEN, EventKind.CLOSE) and step.about == process)
        and (step.packet is None or step.packet.source != process)
    )
    groups = bounds.groups
    if groups is not None:
        names = {
            name: tuple(rank(each) for each in group if each != process) for name, group in groups.items()
        }
        groups = {name: group or (0,) for name, group in names.items()}
    for layout in [None] if bounds.layout is None else _smaller(bounds.layout):
        yield _Schedule(
            msgspec.structs.replace(bounds, peers=bounds.peers - 1, groups=groups, layout=layout), kept
        )


def _smaller(layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Layouts that may fit one member less: unchanged, or with one number smaller, including numbers in items
    such as rt:3."""
    yield layout
    for field, values in layout.items():
        for place, value in enumerate(values) if isinstance(values, list) else ():
            kind, _, text = str(value).rpartition(":")
            count = int(text) if text.isdecimal() else 0
            before, after = values[:place], values[place + 1 :]
            if count > 0 and isinstance(value, int):
                yield {**layout, field: [*before, count - 1, *after]}
            elif count > 1:
                yield {**layout, field: [*before, f"{kind}:{count - 1}", *after]}
            elif count == 1 or value == 0:
                yield {**layout, field: [*before, *after]}


def smaller_layouts(layout: dict[str, Any], peers: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Layouts of smaller groups, with the number of their members; not all of them are valid."""
    level = [layout]
    for size in range(peers - 1, 0, -1):
        following = {msgspec.json.encode(each): each for larger in level for each in _smaller(larger)}
        level = list(following.values())[:_MAX_LAYOUTS]
        for each in level:
            yield size, each
