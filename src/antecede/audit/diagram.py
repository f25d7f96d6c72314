"""The space-time diagram of a violation: the path from cause to effect, and the process that lacked the
cause.

Processes are ordered as on the path, so it descends from line to line, its messages numbered. The lowest
line is the process that delivered the effect without the cause. A red band leads from the fault, a crossed
ring, to the delivery of the cause, or to the end if there is none.
"""

from __future__ import annotations

from itertools import pairwise

from antecede.audit.diagram_layout import DiagramLayout, lay_out
from antecede.audit.excerpt import Excerpt, ExcerptEvent, Hop
from antecede.report.svg import arrow, hover, tag, text
from antecede.report.text_width import cells, cells_unjoined, shorten
from antecede.terminal import printable

WIDTH = 1000
_TOP, _LETTER, _BOLD = 44, 7.0, 7.7
_MAX_NAME = 22
_MIN_SCALE = 0.8
"""A wide picture is scaled down this far to fit; beyond that it is scrolled."""
_UNITS = (("ns", 1), ("µs", 10**3), ("ms", 10**6), ("s", 10**9), ("min", 60 * 10**9), ("h", 3600 * 10**9))


def short(name: str, most: int = _MAX_NAME) -> str:
    """A name cut to fit, without characters that would move other text.

    >>> short("a-service-with-a-very-long-name:17"), short("p3:1")
    ('a-service-…ong-name:17', 'p3:1')
    """
    return shorten(printable(name), most)


def isolated(name: str) -> str:
    """A name in an element with a text direction of its own: otherwise a right-to-left name would reorder the
    words and numbers after it."""
    return tag("tspan", text(name), class_="name")


def span(nanoseconds: int) -> str:
    """A duration in the largest unit that it fills.

    >>> span(0), span(1_500_000), span(90_000_000_000), span(250)
    ('0', '1.5 ms', '1.5 min', '250 ns')
    """
    if not nanoseconds:
        return "0"
    name, size = [unit for unit in _UNITS if unit[1] <= abs(nanoseconds)][-1]
    return (
        f"{nanoseconds / size:,.3g} {name}"
        if abs(nanoseconds) < 1000 * size
        else f"{nanoseconds / size:,.0f} {name}"
    )


def diagram(shown: Excerpt, label: str) -> tuple[str, str]:
    """The picture, and a sentence that says what its horizontal axis means."""
    left = 30 + _BOLD * max(cells_unjoined(short(name, 18)) for name in _processes(shown))
    names = {hop.message: 16 + _BOLD * cells(short(hop.message)) for hop in shown.hops}
    placed = lay_out(shown, WIDTH - left - _right(shown), names)
    return _Drawing(shown, placed, left).svg(label), _axis_note(placed)


def _right(shown: Excerpt) -> float:
    """The width to leave after the last event: more if the cause never arrives and a band shows that."""
    return 112 if shown.late else 210


def _processes(shown: Excerpt) -> set[str]:
    return {event.process for hop in shown.hops for event in (hop.sent, hop.arrived)}


def _axis_note(placed: DiagramLayout) -> str:
    if placed.clock == "time":
        return (
            "Time goes to the right, stretched where events are close; it is counted from the cause's send."
        )
    why = (
        "The trace has no usable times"
        if placed.clock == "none"
        else "The processes' clocks disagree with the order"
    )
    return f"{why}, so left and right show only what came first: at each process, and from send to delivery."


class _Drawing:
    def __init__(self, shown: Excerpt, placed: DiagramLayout, left: float) -> None:
        self.shown, self.placed, self.left = shown, placed, left
        self.row = 76 if len(placed.lanes) <= 6 else 60 if len(placed.lanes) <= 9 else 52
        self.width = max(WIDTH, left + placed.width + _right(shown))
        self.end = self.width - 24
        self.y = {process: _TOP + number * self.row for number, process in enumerate(placed.lanes)}
        self.bottom = max(self.y.values())
        self.start = shown.hops[0].sent.time

    def x(self, event: ExcerptEvent) -> float:
        return self.left + 14 + self.placed.x[event]

    def at(self, event: ExcerptEvent) -> tuple[float, float]:
        return self.x(event), self.y[event.process]

    def svg(self, label: str) -> str:
        height = self.bottom + (92 if self.placed.clock == "time" else 66)
        body = [
            *(self.lane(process) for process in self.placed.lanes),
            self.others(),
            self.band(),
            self.direct(),
            *self.path(),
            self.fault(),
        ]
        if self.placed.clock == "time":
            body.insert(0, self.axis(height - 10))
        return tag(
            "svg", *body, class_="violation", viewBox=f"0 0 {self.width:.0f} {height}", role="img",
            aria_label=label, style=f"min-width: {_MIN_SCALE * self.width:.0f}px",
        )  # fmt: skip

    def lane(self, process: str) -> str:
        y = self.y[process]
        name = tag("text", hover(process), isolated(short(process, 18)), x=self.left - 14, y=y + 5,
                   text_anchor="end")  # fmt: skip
        faulty = " faulty" if process == self.shown.finding.process else ""
        line = tag("line", x1=self.left, x2=self.end, y1=y, y2=y)
        return tag("g", line, name, class_=f"lane{faulty}")

    def describe(self, event: ExcerptEvent) -> str:
        verb = "sends" if event.kind == "send" else "delivers"
        when = (
            f", {span(event.time - self.start)} after the cause's send" if self.placed.clock == "time" else ""
        )
        return f"{event.process} {verb} {event.message} (index {event.index}{when})"

    def others(self) -> str:
        events = [event for event in self.shown.others if event in self.placed.x]
        sends = {event.message: event for event in (*events, *(hop.sent for hop in self.placed.hops))
                 if event.kind == "send"}  # fmt: skip
        parts = []
        for event in events:
            sent = sends.get(event.message)
            if event.kind == "deliver" and sent is not None and self.x(sent) + 5 < self.x(event):
                parts.append(tag("path", d=arrow(*self.at(sent), *self.at(event))))
        for event in events:
            x, y = self.at(event)
            parts.append(tag("circle", hover(self.describe(event)), class_=event.kind, cx=x, cy=y, r=3.2))
        return tag("g", *parts, class_="others")

    def band(self) -> str:
        """The time during which the process had the effect but not the cause."""
        x, y = self.at(self.shown.fault)
        end = self.x(self.shown.late) if self.shown.late else self.end
        finding = self.shown.finding
        title = hover(f"here {finding.process} has {finding.effect} and not its cause {finding.cause}")
        return tag("line", title, class_="lacks", x1=x, x2=end, y1=y, y2=y)

    def direct(self) -> str:
        """The arrow of the cause itself to the process that lacked it."""
        sent, late = self.shown.hops[0].sent, self.shown.late
        x, y = self.at(late) if late else (self.end, self.bottom)
        never = "" if late else " never"
        x1, y1 = self.at(sent)
        bend = x1 + 0.78 * (x - x1), y1 + 0.22 * (y - y1)  # Away from the path.
        title = hover(f"{sent.message} to {self.shown.finding.process}")
        way = tag("path", title, d=arrow(x1, y1, x, y, 9, bend))
        end = tag("circle", hover(self.describe(late)) if late else "", cx=x, cy=y, r=6.5)
        return tag("g", way, end, class_=f"direct{never}")

    def path(self) -> list[str]:
        placed, parts = self.placed, []
        if placed.last:
            (x1, y1), (x2, y2) = self.at(placed.first[-1].arrived), self.at(placed.last[0].sent)
            note = tag(
                "text", text(f"… {placed.left_out:,} more messages …"), x=(x1 + x2) / 2 + 12, y=(y1 + y2) / 2
            )
            parts.append(
                tag("g", tag("path", d=f"M{x1:.1f},{y1:.1f} L{x2:.1f},{y2:.1f}"), note, class_="ellipsis")
            )
        for part in (placed.first, placed.last):
            for before, after in pairwise(part):
                if not before.stays:
                    parts.append(self.wait(before.arrived, after.sent))
        numbers = [*range(1, len(placed.first) + 1)]
        total = len(self.shown.hops)
        numbers += range(total - len(placed.last) + 1, total + 1)
        pairs = list(zip(numbers, placed.hops, strict=True))
        parts += [self.way(number, hop) for number, hop in pairs]
        parts += [self.ends(number, hop) for number, hop in pairs]
        return parts

    def role(self, number: int) -> str:
        return "cause" if number == 1 else "effect" if number == len(self.shown.hops) else "link"

    def wait(self, arrived: ExcerptEvent, sent: ExcerptEvent) -> str:
        """From the delivery of one message to the send of the next."""
        (x1, y), (x2, _) = self.at(arrived), self.at(sent)
        title = hover(f"{arrived.process} has {arrived.message} when it sends {sent.message}")
        return tag("line", title, class_="step", x1=x1, x2=x2, y1=y, y2=y)

    def way(self, number: int, hop: Hop) -> str:
        (x1, y1), (x2, y2) = self.at(hop.sent), self.at(hop.arrived)
        title = f"{number}: {self.describe(hop.sent)}; {self.describe(hop.arrived)}"
        stop = 12 if hop.arrived is self.shown.fault else 6
        line = tag("path", hover(title), d=arrow(x1, y1, x2, y2, stop))
        middle = 0.5 if not hop.stays else 0.45
        x, y = x1 + (x2 - x1) * middle, y1 + (y2 - y1) * middle
        badge = tag("circle", cx=x, cy=y, r=10 if number < 100 else 13)
        count = tag("text", text(number), x=x, y=y + 4.5, text_anchor="middle")
        return tag("g", line, tag("g", badge, count, class_="badge"), class_=f"hop {self.role(number)}")

    def ends(self, number: int, hop: Hop) -> str:
        x, y = self.at(hop.sent)
        dot = tag("circle", hover(self.describe(hop.sent)), class_="send", cx=x, cy=y, r=6)
        name = tag("text", hover(hop.message), isolated(short(hop.message)), x=x - 3, y=y - 13)
        parts = [dot, name]
        if not hop.stays and hop.arrived is not self.shown.fault:
            parts.append(
                tag(
                    "circle",
                    hover(self.describe(hop.arrived)),
                    cx=self.x(hop.arrived),
                    cy=self.y[hop.arrived.process],
                    r=4.5,
                )
            )
        return tag("g", *parts, class_=f"event {self.role(number)}")

    def fault(self) -> str:
        """The crossed ring, and its explanation in two lines that do not overlap."""
        finding, late = self.shown.finding, self.shown.late
        x, y = self.at(self.shown.fault)
        ring = tag("circle", hover(self.describe(self.shown.fault)), cx=x, cy=y, r=10)
        cross = tag("path", d=f"M{x - 4.5:.1f},{y - 4.5:.1f} l9,9 m0,-9 l-9,9")
        cause, effect = short(finding.cause), short(finding.effect)
        here = self.note(["delivers ", effect, " without its cause ", cause], x, y + 30, "wrong")
        if late is None:
            then = self.note(["", cause, " is never delivered here"], self.end, y + 50, "then")
        else:
            after = []
            if self.placed.clock == "time":
                after.append(span(late.time - self.shown.fault.time))
            between = late.place - self.shown.fault.place - 1
            if between:
                after.append(f"{between:,} other event{'' if between == 1 else 's'}")
            delay = f", after {' and '.join(after)}" if after else ""
            then = self.note(["", cause, f" arrives only here{delay}"], self.x(late), y + 50, "then")
        return tag("g", ring, cross, here, then, class_="fault")

    def note(self, parts: list[str], x: float, y: float, kind: str) -> str:
        """A line of text centred at x, shifted to stay inside the picture; every other part is a name."""
        half = _BOLD * cells("".join(parts)) / 2
        x = min(max(x, self.left + half), self.width - 8 - half)
        words = [isolated(part) if place % 2 else text(part) for place, part in enumerate(parts)]
        return tag("text", *words, x=x, y=y, text_anchor="middle", class_=kind)

    def axis(self, y: float) -> str:
        """The time axis: the times of the path's events, as many as fit."""
        hops = self.placed.hops
        events = [hops[0].sent, self.shown.fault, *([self.shown.late] if self.shown.late else [])]
        events += [event for hop in hops for event in (hop.sent, hop.arrived)]
        occupied: list[tuple[float, float]] = []
        marks = []
        for event in dict.fromkeys(events):
            words = span(event.time - self.start)
            words = f"+{words}" if words != "0" else words
            half = _LETTER * len(words) / 2 + 6
            x = self.x(event)
            if all(x + half < left or x - half > right for left, right in occupied):
                occupied.append((x - half, x + half))
                marks.append(tag("line", x1=x, x2=x, y1=self.y[event.process] + 14, y2=y - 14))
                marks.append(tag("text", text(words), x=x, y=y, text_anchor="middle"))
        return tag("g", *marks, class_="grid times")
