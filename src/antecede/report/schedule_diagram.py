"""The diagram of a schedule: a horizontal line for each process, time to the right, an arrow for each packet.

A small dot is a delivery, a large one a broadcast, a bar a message that is held, and a crossed ring what
should not have happened. An arrow that fades changed nothing; a line without a head is a packet that has not
arrived. In the diagram of a fault, a line that would touch the dot of another message is bent around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from antecede.report.svg import tag, text

_LEFT, _RIGHT, _TOP, _ROW, _STEP = 64, 76, 52, 92, 60
_LETTER, _BOLD, _HIGH = 7.0, 7.7, 15
"""The approximate width of a letter and height of a line."""
_BESIDE = 26
"""The distance between deliveries at the same instant."""
_STYLE = """
svg { --paper: #fff; --ink: #1c2330; --quiet: #667085; --rule: #d5dae1; --hold: #f0a000;
  --c0: #0b66c3; --c1: #d1480e; --c2: #0b8a5f; --c3: #a2459c; }
@media (prefers-color-scheme: dark) { svg { --paper: #12161d; --ink: #e6e9ef; --quiet: #98a2b3;
  --rule: #39424f; --hold: #ffbf3f; --c0: #6cb2ff; --c1: #ff8a5c; --c2: #4fd0a0; --c3: #e08ad9; } }
.paper { fill: var(--paper); }
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--c); text-anchor: middle;
  paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.control { --c: var(--quiet); } .send, .why { font-weight: 600; } .why { --c: var(--ink); }
.name { --c: var(--ink); font-weight: 600; text-anchor: end; } .time { --c: var(--quiet); font-size: 11px; }
.lane { stroke: var(--rule); stroke-width: 1.5; } .link { stroke: var(--quiet); stroke-dasharray: 2 4; }
path { fill: none; stroke: var(--c); stroke-width: 1.8; } .again { opacity: .45; stroke-dasharray: 5 4; }
circle { fill: var(--c); stroke: var(--paper); stroke-width: 1.5; }
.held { stroke: var(--hold); stroke-width: 9; }
"""
_FAULT_STYLE = """
svg { --wrong: #c4162a; }
@media (prefers-color-scheme: dark) { svg { --wrong: #ff6b6b; } }
.fault { --c: var(--wrong); } path.fault { stroke-width: 2.5; } text.fault { font-weight: 600; }
path.missing { stroke-width: 2.5; opacity: 1; }
.legend { --c: var(--quiet); font-size: 11px; text-anchor: start; }
.queued { opacity: .4; stroke-width: 4; }
"""
_LEGEND = (
    "large dot: broadcast; small dot: delivery; crossed ring: what is wrong; "
    "pale bar: arrived, not yet delivered",
    "amber bar: held for a cause; thin broken line: not arrived; "
    "heavy broken line: the missing cause, not arrived",
)
_BELOW = 16 * len(_LEGEND)
"""The height of the legend."""
_BENDS = (0, 22, -22, 40, -40)
"""How far a line may be bent aside, in the order of preference."""
_CLEAR = 15
"""How far a line stays from the dots of other messages."""


class DrawnPacket(NamedTuple):
    """A packet in the diagram."""

    name: str
    label: str
    """Its name, with the control information it carries."""
    sent_at: int
    packet: Any = None


class Arrow(NamedTuple):
    source: str
    to: str
    flight: DrawnPacket
    arrived_at: int
    changed: bool
    """False if it was a duplicate and changed nothing."""


class DrawnEvent(NamedTuple):
    """A send or a delivery."""

    peer: str
    time: int
    message: str


class Hold(NamedTuple):
    peer: str
    message: str
    why: str
    start: int
    end: int


class Opening(NamedTuple):
    one: str
    other: str
    time: int


@dataclass
class DrawnSchedule:
    """What happened, by the names of processes and messages."""

    peers: list[str]
    messages: list[str] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    sends: list[DrawnEvent] = field(default_factory=list)
    deliveries: list[DrawnEvent] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    links: list[Opening] = field(default_factory=list)
    lost: list[Arrow] = field(default_factory=list)
    """Packets that have not arrived by the end."""
    faults: list[DrawnEvent] = field(default_factory=list)
    """Events that violate a rule."""
    missing: list[str] = field(default_factory=list)
    """The messages that should have been delivered before them."""
    wrong: str = ""
    """The violation in words, if it is not a delivery."""
    end: int = 0


def draw_schedule(schedule: DrawnSchedule, label: str) -> str:
    """The diagram as an SVG document; `label` describes it to those who do not see it."""
    return _Picture(schedule).svg(label)


@dataclass
class Label:
    """A text, and where it may be placed, the preferred position first."""

    words: str
    kind: str
    places: list[tuple[float, float]]

    def box(self, place: tuple[float, float]) -> tuple[float, float, float, float]:
        x, y = place
        half = _half(self.words, self.kind.endswith(("send", "why")))
        return x - half, y - _HIGH + 3, x + half, y + 4


def _half(words: str, bold: bool = False) -> float:
    return len(words) * (_BOLD if bold else _LETTER) / 2 + 3


class _Picture:
    """The diagram of one schedule."""

    def __init__(self, played: DrawnSchedule) -> None:
        self.played = played
        self.lanes: dict[str, float] = {peer: _TOP + row * _ROW for row, peer in enumerate(played.peers)}
        self.width: float = _LEFT + _STEP * played.end + _RIGHT
        self.height = _TOP + _ROW * (len(self.lanes) - 1) + (66 + _BELOW if played.faults else 64)
        if played.faults:
            self.width = max(self.width, _LEFT + _half(_LEGEND[0]) * 1.75)
        self.occupied: list[tuple[float, float, float, float]] = []
        self.points: dict[int, list[tuple[float, float]]] = {}
        """Of lines that labels should not cross, by the identity of their arrows."""
        self.arrows = [arrow for arrow in played.arrows if {arrow.source, arrow.to} <= self.lanes.keys()]
        self.deliveries = [
            (event, self._beside(event)) for event in played.deliveries if event.peer in self.lanes
        ]
        for event, x in self._all_dots():
            self.occupied.append((x - 7, self.lanes[event.peer] - 7, x + 7, self.lanes[event.peer] + 7))
        self.occupied += [(x1, y - 5, x2, y + 5) for _, x1, x2, y in self._held()]

    def x(self, time: float) -> float:
        return _LEFT + _STEP * time

    def _beside(self, event: DrawnEvent) -> float:
        """The x of a delivery; those at the same instant are side by side."""
        same = [each for each in self.played.deliveries if each[:2] == event[:2]]
        return self.x(event.time) + _BESIDE * same.index(event)

    def colour(self, name: str) -> str:
        """Of a message; a packet of several has that of its last one, a control packet is grey."""
        last = name.split("+")[-1]
        return f"s{self.played.messages.index(last)}" if last in self.played.messages else "control"

    def ends(self, arrow: Arrow) -> tuple[float, float, float, float]:
        """From where it was sent to where it arrived."""
        left, right = self.x(arrow.flight.sent_at), self.x(arrow.arrived_at)
        return left, self.lanes[arrow.source], right, self.lanes[arrow.to]

    def svg(self, label: str) -> str:
        body = [
            tag("style", _STYLE + (_FAULT_STYLE if self.played.faults else "")),
            tag("rect", class_="paper", width=self.width, height=self.height),
            *self._frame(),
            *(self._arrow(arrow) for arrow in (*self.arrows, *self.played.lost)),
            *self._queues(),
            *self._bars(),
            *self._dots(),
            *self._rings(),
            *(self._place(each) for each in self._labels()),
        ]
        size = f"0 0 {self.width} {self.height}"
        return tag(
            "svg", *(f"\n{part}" for part in body), "\n", xmlns="http://www.w3.org/2000/svg", viewBox=size,
            width=self.width, height=self.height, role="img", aria_label=label,
        )  # fmt: skip

    def _frame(self) -> Iterator[str]:
        for peer, y in self.lanes.items():
            yield tag("line", class_="lane", x1=_LEFT, x2=self.width - 16, y1=y, y2=y)
            yield tag("text", text(peer), class_="name", x=_LEFT - 12, y=y + 5)
        below = 12 + _BELOW if self.played.faults else 10
        for time in range(self.played.end + 1):
            yield tag("text", text(time), class_="time", x=self.x(time), y=self.height - below)
        if self.played.faults:
            for line, words in enumerate(_LEGEND):
                y = self.height - 8 - 16 * (len(_LEGEND) - 1 - line)
                yield tag("text", text(words), class_="legend", x=_LEFT, y=y)
        for link in self.played.links:
            x, ys = self.x(link.time), (self.lanes[link.one], self.lanes[link.other])
            yield tag("line", class_="link", x1=x, x2=x, y1=ys[0], y2=ys[1])

    def _arrow(self, arrow: Arrow) -> str:
        x1, y1, x2, y2 = self.ends(arrow)
        bend_x, bend_y = self._bend(arrow)
        length = math.hypot(x2 - bend_x, y2 - bend_y)
        along_x, along_y = (x2 - bend_x) / length, (y2 - bend_y) / length
        is_lost = arrow in self.played.lost
        gap = 14 if is_lost else 5
        tip_x, tip_y = x2 - gap * along_x, y2 - gap * along_y
        is_straight = (bend_x, bend_y) == ((x1 + x2) / 2, (y1 + y2) / 2)
        line = f"M{x1:.1f},{y1:.1f} " + ("L" if is_straight else f"Q{bend_x:.1f},{bend_y:.1f} ")
        line += f"{tip_x:.1f},{tip_y:.1f}"
        for side in () if is_lost else (1, -1):
            x, y = tip_x - 9 * along_x + side * 4 * along_y, tip_y - 9 * along_y - side * 4 * along_x
            line += f" M{x:.1f},{y:.1f} L{tip_x:.1f},{tip_y:.1f}"
        again = "" if arrow.changed else " again"
        missing = " missing" if self._is_missing(arrow) else ""
        return tag("path", class_=self.colour(arrow.flight.name) + again + missing, d=line)

    def _bend(self, arrow: Arrow) -> tuple[float, float]:
        """The point towards which a line is bent: its middle, if that keeps it clear of others' dots."""
        x1, y1, x2, y2 = self.ends(arrow)
        dots = [(x, self.lanes[event.peer]) for event, x in self._all_dots() if event.peer in self.lanes]
        others = [dot for dot in dots if dot not in ((x1, y1), (x2, y2)) and dot[1] not in (y1, y2)]
        length = math.hypot(x2 - x1, y2 - y1)
        middle = (x1 + x2) / 2, (y1 + y2) / 2
        found = []
        for bend in _BENDS if self.played.faults else (0,):
            at = middle[0] + bend * (y2 - y1) / length, middle[1] - bend * (x2 - x1) / length
            points = [_curve((x1, y1), at, (x2, y2), share / 40) for share in range(41)]
            clear = min((math.dist(point, dot) for point in points for dot in others), default=math.inf)
            found.append((min(clear, _CLEAR), at))
        return max(found, key=lambda each: each[0])[1]

    def _all_dots(self) -> list[tuple[DrawnEvent, float]]:
        return [*((send, self.x(send.time)) for send in self.played.sends), *self.deliveries]

    def _is_missing(self, arrow: Arrow) -> bool:
        """Whether this packet should have arrived before the violation: a lost packet of a missing message,
        to the process that fails if there is one."""
        late = [each for each in self.played.lost if each.flight.name in self.played.missing]
        places = {fault.peer for fault in self.played.faults}
        return arrow in ([each for each in late if each.to in places] or late)

    def _queues(self) -> Iterator[str]:
        """From where a message arrived to where it is delivered, in the diagram of a fault."""
        for event, x in self.deliveries if self.played.faults else ():
            arrivals = [
                self.x(each.arrived_at)
                for each in self.arrows
                if each.to == event.peer and event.message in each.flight.name.split("+")
                if each.arrived_at < event.time
            ]
            if arrivals:
                y = self.lanes[event.peer]
                line = f"M{max(arrivals):.1f},{y:.1f} L{x:.1f},{y:.1f}"
                yield tag("path", class_=f"{self.colour(event.message)} queued", d=line)

    def _bars(self) -> Iterator[str]:
        for _, x1, x2, y in self._held():
            yield tag("line", class_="held", x1=x1, x2=x2, y1=y, y2=y)

    def _held(self) -> Iterator[tuple[Hold, float, float, float]]:
        """The bars; those of one process at the same time are below each other."""
        for hold in self.played.holds:
            if hold.peer not in self.lanes:
                continue
            over = [each for each in self.played.holds if each.peer == hold.peer and each.start < hold.end]
            above = sum(each.end > hold.start for each in over[: over.index(hold)])
            ends = [
                x for event, x in self.deliveries if event == DrawnEvent(hold.peer, hold.end, hold.message)
            ]
            yield hold, self.x(hold.start), max([self.x(hold.end), *ends]), self.lanes[hold.peer] + 13 * above

    def _dots(self) -> Iterator[str]:
        for event, x in self.deliveries:
            yield tag("circle", class_=self.colour(event.message), cx=x, cy=self.lanes[event.peer], r=5)
        for event in self.played.sends:
            y = self.lanes[event.peer]
            yield tag("circle", class_=self.colour(event.message), cx=self.x(event.time), cy=y, r=7.5)

    def _rings(self) -> Iterator[str]:
        for fault in self.played.faults:
            x, y = (
                self._beside(fault) if fault in self.played.deliveries else self.x(fault.time),
                self.lanes[fault.peer],
            )
            ring = f"M{x - 11},{y} a11,11 0 1,0 22,0 a11,11 0 1,0 -22,0"
            yield tag("path", class_="fault", d=f"{ring} M{x - 7},{y - 7} l14,14 M{x + 7},{y - 7} l-14,14")

    def _labels(self) -> Iterator[Label]:
        """The labels, those with the fewest possible positions first."""
        for event, x in self.deliveries:
            y = self.lanes[event.peer]
            if event in self.played.faults and self.played.missing:
                yield _fault_label(f"delivers {event.message} without {', '.join(self.played.missing)}", x, y)
            else:
                yield Label(event.message, self.colour(event.message), _around(x, y))
        for fault in self.played.faults if self.played.wrong else ():
            yield _fault_label(self.played.wrong, self.x(fault.time), self.lanes[fault.peer])
        yield from self._packet_labels()
        for hold, x1, x2, y in self._held():
            middle = (x1 + x2) / 2
            xs = [middle, *(middle + side * shift for shift in (20, 40, 60, 90) for side in (-1, 1))]
            ups = (-13, 22) if y == self.lanes[hold.peer] else (22, 35)
            yield Label(f"{hold.message} {hold.why}", "why", [(x, y + up) for x in xs for up in ups])
        for link in self.played.links:
            x, y = self.x(link.time), (self.lanes[link.one] + self.lanes[link.other]) / 2
            yield Label("link opens", "control", [(x, y + shift) for shift in (-16, 0, -40, 24)])

    def _packet_labels(self) -> Iterator[Label]:
        """What packets carry: at the dot where a message is sent, along an arrow where it is forwarded."""
        labelled: set[str] = set()
        lost = {arrow.flight.label for arrow in self.played.lost if self._starts_at_dot(arrow)}
        for arrow in (*sorted(self.arrows, key=lambda arrow: arrow.flight.sent_at), *self.played.lost):
            label = arrow.flight.label
            is_send = self._starts_at_dot(arrow)
            if label in labelled or (not is_send and (label in lost or arrow in self.played.lost)):
                continue  # what is only forwarded does not hide the name of what is sent
            labelled.add(label)
            x, y, _, _ = self.ends(arrow)
            near: list[tuple[float, float]] = []
            if is_send:
                asides = (0, -24, 24, -44, 44, -64, 64, _half(label, True))
                near = [(x + aside, y + up) for aside in asides for up in (-14, 26)]
                # Below each other where messages that are sent one after the other carry much.
                near += [(x + aside, y + up) for up in (-31, 43, 60) for aside in asides]
            same = [each for each in self.arrows if each.flight is arrow.flight]
            shares = (0.5, 0.4, 0.6, 0.3, 0.7, 0.25, 0.75)
            on = [_point(self.ends(each), share) for share in shares for each in same]
            along = [(x + side * (_half(label) + 11), y) for x, y in on for side in (1, -1)] + on
            yield Label(label, self.colour(arrow.flight.name) + (" send" if near else ""), near or along)

    def _starts_at_dot(self, arrow: Arrow) -> bool:
        """Whether a packet is how a message is sent, and not how it is forwarded."""
        is_message = arrow.flight.name in self.played.messages
        starts = ((event.peer, event.time) for event in self.played.sends)
        return is_message and (arrow.source, arrow.flight.sent_at) in starts

    def _place(self, label: Label) -> str:
        """At the best free position: clear of other labels and dots, and if possible of lines."""
        place = min(label.places, key=lambda place: (self._cost(label.box(place)), label.places.index(place)))
        self.occupied.append(label.box(place))
        x, y = place
        return tag("text", text(label.words), class_=label.kind, x=round(x, 1), y=round(y, 1))

    def _cost(self, box: tuple[float, float, float, float]) -> int:
        left, top, right, bottom = box
        floor = self.height - (_BELOW + 22 if self.played.faults else 22)
        outside = left < 4 or right > self.width - 4 or top < 2 or bottom > floor
        overlaps = sum(
            left < x2 and x1 < right and top < y2 and y1 < bottom for x1, y1, x2, y2 in self.occupied
        )
        lanes = sum(top < y < bottom for y in self.lanes.values())
        crossed = sum(self._crosses(box, arrow) for arrow in self.arrows)
        return 1000 * outside + 100 * overlaps + 10 * lanes + crossed

    def _crosses(self, box: tuple[float, float, float, float], arrow: Arrow) -> bool:
        """Approximately: whether any of eighty points of the line is in the box."""
        if id(arrow) not in self.points:
            x1, y1, x2, y2 = self.ends(arrow)
            bend = self._bend(arrow)
            self.points[id(arrow)] = [_curve((x1, y1), bend, (x2, y2), share / 80) for share in range(81)]
        left, top, right, bottom = box
        return any(left < x < right and top < y < bottom for x, y in self.points[id(arrow)])


def _fault_label(words: str, x: float, y: float) -> Label:
    asides = (0, -30, -60, -90, -120, -150, -180)
    return Label(words, "fault send", [(x + aside, y + up) for aside in asides for up in (32, -20)])


def _around(x: float, y: float) -> list[tuple[float, float]]:
    """Positions for the name of a delivered message."""
    return [(x, y + 22), (x, y - 12), (x - 20, y + 18), (x + 20, y + 18), (x - 20, y - 9), (x + 20, y - 9)]


def _curve(
    start: tuple[float, float], bend: tuple[float, float], end: tuple[float, float], share: float
) -> tuple[float, float]:
    """A point of a quadratic Bézier curve."""
    a, b, c = (1 - share) ** 2, 2 * share * (1 - share), share**2
    return a * start[0] + b * bend[0] + c * end[0], a * start[1] + b * bend[1] + c * end[1]


def _point(line: tuple[float, float, float, float], share: float) -> tuple[float, float]:
    x1, y1, x2, y2 = line
    return x1 + share * (x2 - x1), y1 + share * (y2 - y1) + 4
