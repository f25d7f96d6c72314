"""The diagram of a counter-example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from antecede.check.counterexample import CounterExample
from antecede.check.events import EventKind
from antecede.check.group import CheckedGroup
from antecede.check.schedule import describe_control
from antecede.report.schedule_diagram import (
    Arrow,
    DrawnEvent,
    DrawnPacket,
    DrawnSchedule,
    Hold,
    Opening,
    draw_schedule,
)


def draw(found: CounterExample) -> str:
    """A space-time diagram, as an SVG document: every step, and what each packet carried."""
    label = f"The smallest schedule in which {found.group.kind.name} fails; its steps are listed beside it"
    return draw_schedule(_CounterExampleDrawing(found).schedule, label)


class _CounterExampleDrawing:
    def __init__(self, found: CounterExample) -> None:
        self.group = found.group
        self.schedule = DrawnSchedule([f"p{rank}" for rank in range(self.group.size)])
        self.schedule.end = len(found.events)
        self._sent: dict[int, list[DrawnPacket]] = {}
        """Packets in flight, by number."""
        self._held: dict[tuple[int, int, int], int] = {}
        """A process, a message that it holds, the cause, and the time since when."""
        for time, event in enumerate(found.events, 1):
            kind, process, detail, step = event
            if kind in (EventKind.RECEIVE, EventKind.REPEAT):
                self._receive(process, detail, time, kind == EventKind.REPEAT)
            if kind == EventKind.OPEN:
                self.schedule.links.append(Opening(f"p{process}", f"p{detail}", time))
            if step is None:
                self._send_all(_new_packets(found, time), time)
            else:
                if kind in (EventKind.BROADCAST, EventKind.DELIVER) and step.message >= 0:
                    self._tell(kind, process, step.message, time)
                self._send_all(step.sends, time)
                self._note_held(process, step.after, time)
        kind, process, _, step = found.events[-1]
        message = self.group.name(step.message) if step is not None and step.message >= 0 else ""
        if message and kind == EventKind.DELIVER and step is not None:
            state = found.states[self.schedule.end - 1]
            missing = (
                self.group.missing_causes(state, process, step) if state.pasts[step.message] >= 0 else []
            )
            self.schedule.missing = [self.group.name(cause) for cause in missing]
        if not self.schedule.missing:
            self.schedule.wrong = found.violation.text.removeprefix("it ")
        end = self.schedule.end
        self.schedule.faults.append(DrawnEvent(f"p{found.violation.process}", end, message))
        self._leave_in_flight(end + 1)

    def _send_all(self, packets: Iterable[int], time: int) -> None:
        for packet in packets:
            self._sent.setdefault(packet, []).append(_name(self.group, packet, time))

    def _tell(self, kind: int, process: int, message: int, time: int) -> None:
        event = DrawnEvent(f"p{process}", time, self.group.name(message))
        if kind == EventKind.BROADCAST:
            self.schedule.messages.append(event.message)
            self.schedule.sends.append(event)
        else:
            self.schedule.deliveries.append(event)

    def _receive(self, process: int, packet: int, time: int, stays: bool) -> None:
        flights = self._sent[packet]
        flight = flights[0] if stays else flights.pop(0)
        source = self.group.processes.packets[packet].source
        self.schedule.arrows.append(Arrow(f"p{source}", f"p{process}", flight, time, True))

    def _note_held(self, process: int, number: int, time: int) -> None:
        held = {(process, *each) for each in self.group.processes.held[number]}
        for key in sorted(held - self._held.keys()):
            self._held[key] = time
        for key in [key for key in self._held if key[0] == process and key not in held]:
            self._end_hold(key, time)

    def _end_hold(self, key: tuple[int, int, int], time: int) -> None:
        process, message, cause = key
        start = self._held.pop(key)
        why = f"waits for {self.group.name(cause)}" if cause >= 0 else "waits"
        if start < time:
            self.schedule.holds.append(Hold(f"p{process}", self.group.name(message), why, start, time))

    def _leave_in_flight(self, end: int) -> None:
        """Draw held messages and packets in flight up to the end."""
        for key in list(self._held):
            self._end_hold(key, end)
        for packet, flights in self._sent.items():
            sent = self.group.processes.packets[packet]
            for flight in flights:
                self.schedule.lost.append(Arrow(f"p{sent.source}", f"p{sent.to}", flight, end, False))


def _new_packets(found: CounterExample, time: int) -> Iterable[int]:
    """The packets sent by an event at several processes, or redelivered after a crash."""
    if time == len(found.states):
        return ()
    before, after = found.states[time - 1 : time + 1]
    return (Counter(after.in_flight) - Counter(before.in_flight)).elements()


def _name(group: CheckedGroup, packet: int, time: int) -> DrawnPacket:
    decoded = group.kind.decode(group.processes.packets[packet].data)
    name = "+".join(f"p{origin}:{seq}" for origin, seq in decoded.message_ids()) or decoded.metric_prefix()
    return DrawnPacket(name, f"{name} {describe_control(decoded)}", time)
