"""Plays a scripted schedule on real protocol objects, and records what to draw.

A schedule has one line for each step: a time, and what happens then.

    1 ana sends m1          also: ana sends m1 to red
    3 m1: ana > bo          the packet with m1 from ana arrives at bo
    5 link ana cleo opens

Timers fire by themselves. Every packet between two processes that are drawn must arrive; others may be
omitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antecede.causality import MessageId
from antecede.protocols.base import Effects, Packet, Protocol
from antecede.report.schedule_diagram import Arrow, DrawnEvent, DrawnPacket, DrawnSchedule, Hold, Opening

_STEP = re.compile(
    r"(?P<time>\d+) (?:(?P<sender>\w+) sends (?P<new>\w+)(?: to (?P<group>\w+))?"
    r"|(?P<packet>[\w+]+): (?P<source>\w+) > (?P<to>\w+)"
    r"|link (?P<one>\w+) (?P<other>\w+) opens)"
)
_TIMER_LIMIT = 20
"""How long after the last step timers still fire."""


class Names:
    """The names of processes and messages."""

    def __init__(self, peers: Sequence[str]) -> None:
        self.peers = peers
        self._messages: dict[MessageId, str] = {}

    def assign(self, message: MessageId, name: str) -> None:
        self._messages[message] = name

    def message(self, origin: int, seq: int) -> str:
        return self._messages[MessageId(origin, seq)]

    def packet(self, packet: Packet) -> str:
        """The messages of a packet; for a control packet, the first word of its type."""
        messages = [self.message(*message) for message in packet.message_ids()]
        return "+".join(messages) or re.findall("[A-Z][a-z]*", type(packet).__name__)[0].lower()

    def pairs(self, counts: dict[int, int]) -> str:
        """Pairs, written like {ana:1, bo:2}."""
        return "{" + ", ".join(f"{self.peers[peer]}:{count}" for peer, count in counts.items()) + "}"


def waits(member: Any, names: Names) -> dict[str, str]:
    """The messages that a member holds, and why, as `waiting()` reports them."""
    return {
        names.message(*wait.message): f"waits for {names.message(*wait.cause)}"
        for wait in member.waiting()
        if wait.cause is not None
    }


def no_label(_packet: Any, _names: Names) -> str:
    return ""


class Story(NamedTuple):
    """A group, a schedule, and how to describe what a packet carries and what a member holds."""

    members: Callable[[], Sequence[Protocol]]
    peers: str
    """The names of the processes, in the order of ranks."""
    steps: str
    carries: Callable[[Any, Names], str] = no_label
    holds: Callable[[Any, Names], dict[str, str]] = waits
    drawn: str | None = None
    """The processes to draw, from top to bottom; all by default."""


class _Stage:
    def __init__(self, story: Story) -> None:
        self.story = story
        self.members: Sequence[Any] = story.members()
        self.peers = story.peers.split()
        self.names = Names(self.peers)
        self.played = DrawnSchedule((story.drawn or story.peers).split())
        self.wires: dict[tuple[str, str], list[DrawnPacket]] = {}
        self.timers: list[tuple[int, int]] = []
        self.held: dict[tuple[str, str, str], int] = {}
        self.now = 0

    def play(self) -> DrawnSchedule:
        for line in self.story.steps.split("\n"):
            step = _STEP.fullmatch(line.strip())
            if step is not None:
                self._fire_timers(int(step["time"]))
                self.played.end = self.now
                self._step(step)
            elif line.strip():
                raise ValueError(f"not a step: {line}")
        self._fire_timers(self.now + _TIMER_LIMIT)
        for (source, to), flights in self.wires.items():
            if flights and {source, to} <= set(self.played.peers):
                raise ValueError(f"{flights[0].name} never arrives from {source} at {to}")
        if self.held:
            raise ValueError(f"never delivered: {', '.join(map(str, self.held))}")
        return self.played

    def _fire_timers(self, until: int) -> None:
        if until < self.now:
            raise ValueError(f"step at {until} after one at {self.now}")
        while due := [timer for timer in self.timers if timer[0] <= until]:
            timer = min(due)
            self.timers.remove(timer)
            self.now = self.played.end = max(self.now, timer[0])
            self._carry_out(timer[1], self.members[timer[1]].wake(self.now))
        self.now = until

    def _step(self, step: re.Match[str]) -> None:
        if step["new"]:
            peer = self.peers.index(step["sender"])
            effects = self.members[peer].broadcast(b"", self.now, step["group"])
            self.names.assign(effects.message, step["new"])
            self.played.messages.append(step["new"])
            self.played.sends.append(DrawnEvent(step["sender"], self.now, step["new"]))
            self._carry_out(peer, effects)
        elif step["packet"]:
            self._arrive(step["packet"], step["source"], step["to"])
        else:
            self.played.links.append(Opening(step["one"], step["other"], self.now))
            ends = self.peers.index(step["one"]), self.peers.index(step["other"])
            for here, there in (ends, ends[::-1]):
                self._carry_out(here, self.members[here].link_opened(there, self.now))

    def _arrive(self, name: str, source: str, to: str) -> None:
        wire = self.wires.get((source, to), [])
        flight = next((each for each in wire if each.name == name), None)
        if flight is None:
            raise ValueError(f"no {name} is in flight from {source} to {to}, but {wire}")
        peer = self.peers.index(to)
        if self.members[peer].links.fifo and flight is not wire[0]:
            raise ValueError(f"{name} overtakes {wire[0].name} from {source} to {to}, on a FIFO link")
        wire.remove(flight)
        before = self.members[peer].save()
        effects = self.members[peer].receive(self.peers.index(source), flight.packet, self.now)
        changed = self.members[peer].save() != before
        self.played.arrows.append(Arrow(source, to, flight, self.now, changed))
        self._carry_out(peer, effects)

    def _carry_out(self, peer: int, effects: Effects) -> None:
        """Sends first, then deliveries, as in every driver."""
        here = self.peers[peer]
        for send in effects.sends:
            name = self.names.packet(send.packet)
            carried = self.story.carries(send.packet, self.names)
            flight = DrawnPacket(name, f"{name} {carried}".strip(), self.now, send.packet)
            for to in send.to:
                self.wires.setdefault((here, self.peers[to]), []).append(flight)
        if effects.wake_at is not None:
            self.timers.append((effects.wake_at, peer))
        while (delivery := self.members[peer].deliver(self.now)) is not None:
            self.played.deliveries.append(DrawnEvent(here, self.now, self.names.message(*delivery.message)))
        self._note_holds(peer)

    def _note_holds(self, peer: int) -> None:
        here = self.peers[peer]
        holds = {(here, *hold) for hold in self.story.holds(self.members[peer], self.names).items()}
        for hold in sorted(holds - self.held.keys()):
            self.held[hold] = self.now
        for hold in [hold for hold in self.held if hold[0] == here and hold not in holds]:
            start = self.held.pop(hold)
            if start < self.now:
                self.played.holds.append(Hold(*hold, start, self.now))


def play(story: Story) -> DrawnSchedule:
    return _Stage(story).play()
