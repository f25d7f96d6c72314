"""Space-time diagrams: a line a process, time to the right, an arrow a packet.

A message that arrives before its cause is held: a thick bar from its arrival to its delivery. The
diagram shows what the trace says, event by event, with the details on hover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from antecede.order import CausalOrder, Execution, Kind, MessageId, Step
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
    """Every wait in a run, longest first; `events` are one run's rows.

    What released a message is the last of its causes to be delivered while it waited.
    """
    by_process = _by_process(events)
    order = _order(by_process)
    found = []
    for process, rows in by_process.items():
        arrived: dict[str, int] = {}
        delivered: list[str] = []
        had: dict[str, int] = {}
        for row in rows:
            message = _message(row)
            if row["kind"] == "receive":
                arrived.setdefault(message, row["time"])
                had.setdefault(message, len(delivered))
            elif row["kind"] == "deliver":
                if row["time"] > arrived.get(message, row["time"]):
                    meanwhile = reversed(delivered[had[message] :])
                    cause = next((each for each in meanwhile if order(each, message)), None)
                    found.append(Hold(process, message, cause, arrived[message], row["time"]))
                delivered.append(message)
    return sorted(found, key=lambda hold: (hold.arrived - hold.delivered, hold.process))


def _order(by_process: dict[str, list[dict[str, Any]]]) -> Callable[[str, str], bool]:
    """Happened-before between messages as they are written, from the run's own events."""
    ranks = {process: rank for rank, process in enumerate(by_process)}
    kinds = {"send": Kind.SEND, "deliver": Kind.DELIVER}
    ids: dict[str, MessageId] = {}
    histories: list[list[Step]] = []
    for rows in by_process.values():
        steps = []
        for row in rows:
            if row["kind"] in kinds:
                rank = ranks.setdefault(row["origin"], len(ranks))
                ids[_message(row)] = message = MessageId(rank, row["seq"])
                steps.append(Step(kinds[row["kind"]], message))
        histories.append(steps)
    causal = CausalOrder(Execution(histories))

    def before(earlier: str, later: str) -> bool:
        known = ids[earlier] in causal.position and ids[later] in causal.position
        return known and causal.happened_before(ids[earlier], ids[later])

    return before


def excerpt(
    events: Sequence[dict[str, Any]], waits: Sequence[Hold], most: int = 8
) -> tuple[list[dict[str, Any]], list[Hold]]:
    """The longest wait's message, its cause, and those sent nearest to it in time."""
    sends = {_message(row): row["time"] for row in events if row["kind"] == "send"}
    star = waits[0] if waits else None
    chosen = {star.message, star.cause or star.message} if star else set()
    middle = sends[star.message] if star else min(sends.values(), default=0)
    for message in sorted(sends, key=lambda message: abs(sends[message] - middle)):
        if len(chosen) < most:
            chosen.add(message)
    return [row for row in events if _message(row) in chosen], [w for w in waits if w.message in chosen]


def spacetime(events: Sequence[dict[str, Any]], waits: Sequence[Hold], label: str) -> str:
    """The diagram of a few messages. The longest wait is drawn with its cause; the rest are quiet."""
    lanes = {process: _TOP + row * _ROW for row, process in enumerate(sorted(_by_process(events)))}
    times = [row["time"] for row in events]
    across = _Time(min(times), max(times))
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
    """Round times, about six of them."""
    rough = (across.end - across.start) / 6
    size = 10 ** max(0, len(str(int(rough))) - 1)
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first = -(-across.start // step) * step
    marks = [
        tag("text", text(_milliseconds(time)), x=across(time), y=y, text_anchor="middle")
        for time in range(first, across.end + 1, step)
    ]
    return tag("g", *marks, class_="grid")


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.{0 if nanoseconds % 1_000_000 == 0 or nanoseconds > 1e7 else 2}f} ms"
