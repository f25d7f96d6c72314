"""Saves a schedule to a file, and replays it step by step on the current protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from antecede.check.bounds import Bounds
from antecede.check.counterexample import CounterExample
from antecede.check.events import Event, EventKind
from antecede.check.group import CheckedGroup, CheckState, CheckViolation
from antecede.check.schedule import ShownStep, show_event
from antecede.errors import InputError
from antecede.protocols.catalog import find_protocol


class SavedStep(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step: the event, its process, and the packet, group or peer it concerns."""

    kind: str
    process: int = -1
    source: int = -1
    """The sender of the packet."""
    packet: str = ""
    """The bytes of the packet, in hexadecimal."""
    about: int = -1
    text: str = ""
    """The packet in words."""


class SavedSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule of a protocol that ends in a violation."""

    protocol: str
    bounds: Bounds
    violation: str
    steps: list[SavedStep]


class ImpossibleStepError(InputError):
    """A step of a saved schedule that the current protocol does not allow any more."""

    def __init__(self, number: int, step: str) -> None:
        super().__init__(
            f"step {number} cannot happen now: {step}; "
            "the protocol has changed since the schedule was written"
        )


class ReplayedStep(NamedTuple):
    """A step that was replayed, and its effects."""

    shown: ShownStep
    held: list[str]
    """The held messages of processes afterwards, and what they wait for."""
    violation: CheckViolation | None


def save_schedule(found: CounterExample, protocol: str, path: Path) -> None:
    """Write a counter-example to a file."""
    group = found.group
    steps = [_save(group, event) for event in found.events]
    violation = f"p{found.violation.process}: {found.violation.text}"
    saved = SavedSchedule(protocol, group.bounds, violation, steps)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=2) + b"\n")


def _save(group: CheckedGroup, event: Event) -> SavedStep:
    kind, process, detail, _ = event
    name, text = EventKind(kind).name.lower(), show_event(group, event).text
    if kind in (EventKind.RECEIVE, EventKind.REPEAT, EventKind.LOSE):
        packet = group.processes.packets[detail]
        return SavedStep(name, process, packet.source, packet.data.hex(), text=text)
    return SavedStep(name, process, about=detail, text=text)


def read_schedule(path: Path) -> SavedSchedule:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedSchedule)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a schedule that `antecede check --out` wrote: {error}") from error


def replay(saved: SavedSchedule) -> Iterator[ReplayedStep]:
    """Replay a schedule on the current protocol; an `ImpossibleStepError` names a step that is not
    possible."""
    group = CheckedGroup(find_protocol(saved.protocol), saved.bounds)
    state = group.initial
    for number, step in enumerate(saved.steps, 1):
        event = _find(group, state, step)
        if event is None:
            raise ImpossibleStepError(number, f"{step.text or step.kind} at p{step.process}")
        after = group.apply(state, event)
        if isinstance(after, CheckViolation):
            yield ReplayedStep(show_event(group, event), [], after)
            return
        state = after
        is_end = number == len(saved.steps) and not group.events(state)
        violation = group.judge_end(state) if is_end else None
        yield ReplayedStep(show_event(group, event), _held(group, state), violation)


def _find(group: CheckedGroup, state: CheckState, step: SavedStep) -> Event | None:
    def is_same(event: Event) -> bool:
        return _key(_save(group, event)) == _key(step)

    return next(filter(is_same, group.events(state)), None)


def _key(step: SavedStep) -> tuple[Any, ...]:
    return step.kind, step.process, step.source, step.packet, step.about


def _held(group: CheckedGroup, state: CheckState) -> list[str]:
    return [
        f"p{process} holds {group.name(message)}" + (f" for {group.name(cause)}" if cause >= 0 else "")
        for process, number in enumerate(state.processes)
        for message, cause in group.processes.held[number]
    ]
