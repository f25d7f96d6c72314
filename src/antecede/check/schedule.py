"""A schedule for people: what happens at which process, in words and as text in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antecede.causality.bit_window import OffsetBitmap
from antecede.check.counterexample import CounterExample
from antecede.check.events import Event, EventKind
from antecede.check.group import CheckedGroup, immediate_causes
from antecede.protocols.base import Packet
from antecede.protocols.program import ProgramPacket

_VERBS = {
    EventKind.RECEIVE: "receives",
    EventKind.REPEAT: "receives, not for the last time,",
    EventKind.LOSE: "never receives",
    EventKind.CRASH: "crashes and starts again",
    EventKind.WAKE: "is woken",
    EventKind.TICK: "time passes",
    EventKind.OPEN: "opens a link to",
    EventKind.CLOSE: "closes the link to",
    EventKind.BROADCAST: "broadcasts",
    EventKind.DELIVER: "delivers",
}


_RANKS = {"source", "target"}
"""Fields of packets that are ranks of peers, where 0 is a valid peer."""


class ShownStep(msgspec.Struct, frozen=True):
    """One step of a schedule."""

    process: str
    """Empty if the step concerns all processes."""
    text: str


class ShownCounterExample(msgspec.Struct, frozen=True):
    """A schedule that fails, in words."""

    peers: int
    messages: int
    process: str
    """The process at which it fails."""
    violation: str
    why: list[str]
    """The dependencies that the message carried, and its actual ones."""
    steps: list[ShownStep]
    is_listed: bool = False
    """Whether its steps are shown in a list, since there are too many processes for columns."""


def show_steps(found: CounterExample) -> list[ShownStep]:
    """The steps of a counter-example in words."""
    return [show_event(found.group, event) for event in found.events]


def show_event(group: CheckedGroup, event: Event) -> ShownStep:
    """The event in words."""
    kind, process, detail, step = event
    words = _VERBS[EventKind(kind)]
    if kind in (EventKind.BROADCAST, EventKind.DELIVER):
        words += f" {group.name(step.message)}" if step is not None and step.message >= 0 else " a message"
        if kind == EventKind.BROADCAST and len(group.members) > 1:
            words += f" to {group.bounds.audiences()[detail][0]}"
    elif kind in (EventKind.RECEIVE, EventKind.REPEAT, EventKind.LOSE):
        words += f" {describe_packet(group, detail)}"
    elif kind in (EventKind.OPEN, EventKind.CLOSE):
        words += f" p{detail}"
    return ShownStep(f"p{process}" if process >= 0 else "", words)


def describe_packet(group: CheckedGroup, number: int) -> str:
    """The messages of a packet, or its kind; and its sender, unless that is the origin."""
    sent = group.processes.packets[number]
    packet = group.kind.decode(sent.data)
    messages = [f"p{origin}:{seq}" for origin, seq in packet.message_ids()]
    prefix = packet.metric_prefix()
    name = " and ".join(messages) or f"{'an' if prefix[0] in 'aeiou' else 'a'} {prefix}"
    is_relayed = any(origin != sent.source for origin, _ in packet.message_ids())
    return f"{name} from p{sent.source}" if is_relayed or not messages else name


def columns(steps: Sequence[ShownStep], processes: int) -> list[str]:
    """One line for each step, under the process where it happens."""
    names = [f"p{number}" for number in range(processes)]
    widths = [max([len(name), *(len(step.text) for step in steps if step.process == name)]) for name in names]
    header = "  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True))
    lines = [f"  step  {header}".rstrip()]
    for number, step in enumerate(steps, 1):
        cells = [step.text if step.process == name else "" for name in names]
        if not step.process:
            cells[0] = step.text
        row = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {number:4}  {row}".rstrip())
    return lines


def listed(steps: Sequence[ShownStep]) -> list[str]:
    """One line for each step, with the process where it happens."""
    return [f"  {number:4}  {step.process} {step.text}" for number, step in enumerate(steps, 1)]


def carried(found: CounterExample) -> list[str]:
    """The dependencies that the message of a violation carried and those it should have carried, in words."""
    group, state = found.group, found.states[-1]
    process, message = found.violation.process, found.violation.message
    if message < 0 or state.pasts[message] < 0:
        return []
    name, immediate = group.name(message), immediate_causes(state.pasts, message)
    needs = " and ".join(group.name(cause) for cause in immediate) or "nothing"
    told = f"It depends immediately on {needs}."
    packets = _packets_with(found, process, message)
    if not packets:
        return [f"{name} never arrived at p{process}.", told]
    carries = describe_control(packets[0]) or "no control information"
    times = {1: "", 2: " twice, first"}.get(len(packets), f" {len(packets)} times, first")
    return [f"{name} arrived at p{process}{times} with {carries}.", told]


def _packets_with(found: CounterExample, process: int, message: int) -> list[Any]:
    """The packets in which a message arrived at a process."""
    group = found.group
    received = [
        group.kind.decode(group.processes.packets[detail].data)
        for kind, where, detail, _ in found.events
        if kind in (EventKind.RECEIVE, EventKind.REPEAT) and where == process
    ]
    return [packet for packet in received if group.processes.message(message) in packet.message_ids()]


def describe_control(packet: Any) -> str:
    """The control information of a packet, without ids and bodies of its messages and without empty
    fields."""
    if isinstance(packet, ProgramPacket):
        return packet.document.decode(errors="replace")
    left_out = {"payload", "payloads", "origin", "seq"}
    fields = {name: getattr(packet, name) for name in packet.__struct_fields__ if name not in left_out}
    shown = {
        name: value for name, value in fields.items() if name in _RANKS or (value and value != OffsetBitmap())
    }
    if any(isinstance(each, Packet) for value in shown.values() if isinstance(value, list) for each in value):
        parts = [each for value in shown.values() if isinstance(value, list) for each in value]
        return ", ".join(describe_control(each) for each in parts)
    return " ".join(f"{name} {_short(value)}" for name, value in (shown or fields).items())


def _short(value: Any) -> str:
    """Counts by peer as they are written elsewhere, {p0:1, p2:3}, and numbers that a bitmap has, {#1, #4}."""
    if isinstance(value, OffsetBitmap):
        return "{" + ", ".join(f"#{number}" for number in value.numbers()) + "}"
    if isinstance(value, dict) and all(isinstance(key, int) for key in value):
        return "{" + ", ".join(f"p{peer}:{_short(entry)}" for peer, entry in value.items()) + "}"
    return str(value)
