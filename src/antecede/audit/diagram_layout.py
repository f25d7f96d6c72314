"""Places the events of a violation from left to right: by their times, if these agree with the order.

A process's events go to the right in its own order, and every delivery is right of its send. Where the clocks
contradict that, or say nothing, the order alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from antecede.audit.excerpt import Excerpt, ExcerptEvent, Hop

Clock = Literal["time", "none", "skewed"]
_GAP_SAME, _GAP_OTHER, _GAP_BESIDE = 54.0, 84.0, 17.0
"""The least distances between events of the path at one process and at two, and to events beside the path."""
_AFTER_FAULT = 150.0
_ELLIPSIS = 150.0
_MIN_TIGHTNESS = 0.5
"""How far these distances may shrink for a long path."""
MAX_HOPS, _HOPS_AT_EACH_END = 13, 6


class DiagramLayout(NamedTuple):
    """A violation, ready to be drawn."""

    first: list[Hop]
    last: list[Hop]
    """The path, or the two ends of a long one."""
    left_out: int
    lanes: list[str]
    """The processes from top to bottom, as on the path."""
    x: Mapping[ExcerptEvent, float]
    width: float
    clock: Clock

    @property
    def hops(self) -> list[Hop]:
        return [*self.first, *self.last]


def lay_out(shown: Excerpt, room: float, names: Mapping[str, float]) -> DiagramLayout:
    """Place events from 0 to the right, over a width of `room` or more; `names` has the widths of the
    names."""
    whole = shown.hops
    first, last = (
        (whole, []) if len(whole) <= MAX_HOPS else (whole[:_HOPS_AT_EACH_END], whole[-_HOPS_AT_EACH_END:])
    )
    hops = [*first, *last]
    core = [event for hop in hops for event in (hop.sent, hop.arrived)]
    if shown.late:
        core.append(shown.late)
    lanes = list(dict.fromkeys(event.process for event in core))
    others = [event for event in shown.others if event.process in lanes]
    events = list(dict.fromkeys([*core, *others]))
    tightness = max(_MIN_TIGHTNESS, min(1.0, (room - _AFTER_FAULT) / (len(hops) * (_GAP_SAME + _GAP_OTHER))))
    before = _before(events, {*core}, tightness)
    for hop in hops:
        if hop.stays and hop.sent.place < hop.arrived.place:
            before[hop.arrived][hop.sent] = max(_GAP_SAME, names[hop.message])
    if shown.late:
        before[shown.late][shown.fault] = _AFTER_FAULT
    if last:
        before[last[0].sent][first[-1].arrived] = _ELLIPSIS
    order = _topological(events, before)
    for constrained in ({*core}, set[ExcerptEvent]()):
        # A delivery before its own send makes a cycle: its constraint is dropped, so its arrow points to the
        # left.
        if order is None:
            before = _only_own_order(before, constrained)
            order = _topological(events, before)
    if order is None:
        raise AssertionError("a process's own order has no cycle")
    clock = _clock(order, before)
    if clock == "time":
        x = _by_time(order, before, core, room)
    else:
        x = _by_order(order, before, {*core})
        scale = room / max(max(x.values()), 1.0)
        if scale > 1:
            x = {event: at * min(scale, 1.6) for event, at in x.items()}
    return DiagramLayout(first, last, len(whole) - len(hops), lanes, x, max(x.values()), clock)


Before = dict[ExcerptEvent, dict[ExcerptEvent, float]]
"""For each event, those to its left and the least distance to each."""


def _before(events: Sequence[ExcerptEvent], core: set[ExcerptEvent], tightness: float) -> Before:
    before: Before = {event: {} for event in events}
    sends = {event.message: event for event in events if event.kind == "send"}
    last: dict[str, ExcerptEvent] = {}
    for event in sorted(events, key=lambda event: (event.process, event.place)):
        if event.process in last:
            both = event in core and last[event.process] in core
            before[event][last[event.process]] = _GAP_SAME * tightness if both else _GAP_BESIDE
        last[event.process] = event
        sent = sends.get(event.message)
        if event.kind == "deliver" and sent is not None and sent.process != event.process:
            before[event][sent] = _GAP_OTHER * tightness if event in core else _GAP_BESIDE
    return before


def _only_own_order(before: Before, constrained: set[ExcerptEvent]) -> Before:
    """Only the order within each process, except for constrained events."""
    return {
        event: {
            cause: gap
            for cause, gap in causes.items()
            if event in constrained or cause.process == event.process
        }
        for event, causes in before.items()
    }


def _topological(events: Sequence[ExcerptEvent], before: Before) -> list[ExcerptEvent] | None:
    """The events by Kahn's algorithm, ties by time; None if there is a cycle."""
    waiting = {event: len(causes) for event, causes in before.items()}
    after: dict[ExcerptEvent, list[ExcerptEvent]] = {event: [] for event in events}
    for event, causes in before.items():
        for cause in causes:
            after[cause].append(event)
    ready = [event for event in events if not waiting[event]]
    order = []
    while ready:
        ready.sort(key=lambda event: event.time, reverse=True)
        order.append(ready.pop())
        for event in after[order[-1]]:
            waiting[event] -= 1
            if not waiting[event]:
                ready.append(event)
    return order if len(order) == len(events) else None


def _clock(order: Sequence[ExcerptEvent], before: Before) -> Clock:
    if len({event.time for event in order}) == 1 or all(event.time == event.index for event in order):
        return "none"
    wrong = any(cause.time > event.time for event in order for cause in before[event])
    return "skewed" if wrong else "time"


def _by_time(
    order: Sequence[ExcerptEvent], before: Before, core: Sequence[ExcerptEvent], room: float
) -> dict[ExcerptEvent, float]:
    """As close together as allowed; the remaining room is distributed by time."""
    start, end = min(event.time for event in core), max(event.time for event in core)
    x: dict[ExcerptEvent, float] = {}
    furthest = 0.0
    for event in order:
        x[event] = max([furthest, *(x[cause] + gap for cause, gap in before[event].items())])
        furthest = x[event]
    spare = max(0.0, room - furthest)

    def share(event: ExcerptEvent) -> float:
        return min(1.0, max(0.0, (event.time - start) / max(end - start, 1)))

    return {event: at + spare * share(event) for event, at in x.items()}


def _by_order(
    order: Sequence[ExcerptEvent], before: Before, core: set[ExcerptEvent]
) -> dict[ExcerptEvent, float]:
    """As far left as allowed; events beside the path are placed close to those that follow them."""
    x: dict[ExcerptEvent, float] = {}
    for event in order:
        x[event] = max([0.0, *(x[cause] + gap for cause, gap in before[event].items())])
    after: dict[ExcerptEvent, list[tuple[ExcerptEvent, float]]] = {event: [] for event in order}
    for event in order:
        for cause, gap in before[event].items():
            after[cause].append((event, gap))
    for event in reversed(order):
        if event not in core and after[event]:
            x[event] = min(x[later] - gap for later, gap in after[event])
    return x
