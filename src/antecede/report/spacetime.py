"""Space-time diagrams: a line a process, time to the right, an arrow a packet.

A message that arrives before its cause is held: a thick bar from its arrival to its delivery. The
diagram shows what the trace says, event by event, with the details on hover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antecede.report.svg import hover, tag, text

WIDTH = 1000
_LEFT, _RIGHT, _TOP, _ROW = 64, 24, 48, 84


@dataclass(frozen=True)
class Hold:
    """A message that waited at a process, and the delivery that released it."""

    process: str
    message: str
    cause: str | None
    arrived: int
    delivered: int


def holds(events: Sequence[dict[str, Any]]) -> list[Hold]:
    """Every wait in a run, longest first; `events` are one run's rows."""
    found = []
    for process, rows in _by_process(events).items():
        arrived: dict[str, int] = {}
        released_by: str | None = None
        for row in rows:
            message = _message(row)
            if row["kind"] == "receive":
                arrived.setdefault(message, row["time"])
                released_by = None
            elif row["kind"] == "deliver":
                if row["time"] > arrived.get(message, row["time"]):
                    found.append(Hold(process, message, released_by, arrived[message], row["time"]))
                released_by = message
    return sorted(found, key=lambda hold: (hold.arrived - hold.delivered, hold.process))


def spacetime(events: Sequence[dict[str, Any]], label: str) -> str:
    """The diagram of one small run. The longest wait is drawn with its cause; the rest are quiet."""
    lanes = {process: _TOP + row * _ROW for row, process in enumerate(sorted(_by_process(events)))}
    times = [row["time"] for row in events]
    across = _Time(min(times), max(times))
    waits = holds(events)
    star = waits[0] if waits else None
    marked = {star.message: "effect", star.cause or "": "cause"} if star else {}
    body = [_lane(process, y) for process, y in lanes.items()]
    body += [_arrows(row, events, lanes, across, marked) for row in events if row["kind"] == "send"]
    body += [_bar(hold, lanes, across, hold is star) for hold in reversed(waits)]
    body += [_dot(row, lanes, across, marked) for row in events if row["kind"] != "receive"]
    height = _TOP + _ROW * len(lanes) - 20
    body.append(_time_axis(across, height - 8))
    return tag(
        "svg", *body, class_="spacetime", viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label
    )


class _Time:
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, max(end, start + 1)

    def __call__(self, time: int) -> float:
        share = (time - self.start) / (self.end - self.start)
        return _LEFT + 16 + share * (WIDTH - _LEFT - _RIGHT - 16)


def _by_process(events: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    processes: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(events, key=lambda row: row["index"]):
        processes.setdefault(row["process"], []).append(row)
    return processes


def _message(row: dict[str, Any]) -> str:
    return f"{row['origin']}:{row['seq']}"


def _lane(process: str, y: float) -> str:
    name = tag("text", text(process), x=_LEFT - 12, y=y + 5, text_anchor="end")
    return tag("g", tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y), name, class_="lane")


def _arrows(
    sent: dict[str, Any],
    events: Sequence[dict[str, Any]],
    lanes: dict[str, int],
    across: _Time,
    marked: dict[str, str],
) -> str:
    message = _message(sent)
    x1, y1 = across(sent["time"]), lanes[sent["process"]]
    lines = []
    for row in events:
        if row["kind"] == "receive" and _message(row) == message:
            x2, y2 = across(row["time"]), lanes[row["process"]]
            took = _milliseconds(row["time"] - sent["time"])
            title = hover(f"{message}: {sent['process']} to {row['process']}, {took}")
            lines.append(tag("path", title, d=_arrow(x1, y1, x2, y2)))
    return tag("g", *lines, class_=f"packet {marked.get(message, '')}".strip())


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line that stops short of where it points, with a head."""
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    along_x, along_y = (x2 - x1) / length, (y2 - y1) / length
    tip_x, tip_y = x2 - 4 * along_x, y2 - 4 * along_y
    barbs = [
        (tip_x - 8 * along_x + side * 3.5 * along_y, tip_y - 8 * along_y - side * 3.5 * along_x)
        for side in (1, -1)
    ]
    head = " ".join(f"M{x:.1f},{y:.1f} L{tip_x:.1f},{tip_y:.1f}" for x, y in barbs)
    return f"M{x1:.1f},{y1:.1f} L{tip_x:.1f},{tip_y:.1f} {head}"


def _bar(hold: Hold, lanes: dict[str, int], across: _Time, star: bool) -> str:
    y = lanes[hold.process]
    x1, x2 = across(hold.arrived), across(hold.delivered)
    waited = _milliseconds(hold.delivered - hold.arrived)
    because = f" for {hold.cause}" if hold.cause else ""
    title = hover(f"{hold.process} holds {hold.message} {waited}{because}")
    parts = [tag("line", title, x1=x1, x2=x2, y1=y, y2=y)]
    if star:
        note = f"{hold.message} waits {waited}{because}"
        parts.append(tag("text", text(note), x=(x1 + x2) / 2, y=y - 14, text_anchor="middle"))
    return tag("g", *parts, class_="hold star" if star else "hold")


def _dot(row: dict[str, Any], lanes: dict[str, int], across: _Time, marked: dict[str, str]) -> str:
    message = _message(row)
    x, y = across(row["time"]), lanes[row["process"]]
    at = _milliseconds(row["time"])
    title = hover(f"{row['process']} {row['kind']}s {message} at {at}")
    kind = f"{row['kind']} {marked.get(message, '')}".strip()
    if row["kind"] == "deliver":
        return tag("circle", title, class_=kind, cx=x, cy=y, r=3.5)
    name = tag("text", text(message), x=x, y=y + 22, text_anchor="middle")
    return tag("g", tag("circle", title, cx=x, cy=y, r=5.5), name, class_=kind)


def _time_axis(across: _Time, y: float) -> str:
    marks = [
        tag("text", text(_milliseconds(across.start + (across.end - across.start) * step // 4)),
            x=across(across.start + (across.end - across.start) * step // 4), y=y,
            text_anchor="start" if step == 0 else "end" if step == 4 else "middle")
        for step in range(5)
    ]  # fmt: skip
    return tag("g", *marks, class_="grid")


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.0f} ms"
