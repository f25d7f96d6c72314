"""Space-time diagrams: one line for each process, time to the right, one arrow for each packet.

A message that arrives before its cause is held: a thick bar from its arrival to its delivery. Every event of
the trace is drawn, with its details on hover.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antecede.report.svg import arrow, hover, tag, text
from antecede.trace.explain import Wait
from antecede.trace.schema import shown_message

WIDTH = 1000
_LEFT, _RIGHT, _TOP, _ROW = 64, 24, 48, 84


def excerpt(
    events: Sequence[dict[str, Any]], waits: Sequence[Wait], most: int = 8
) -> tuple[list[dict[str, Any]], list[Wait]]:
    """The message that waits longest, its cause, and the messages sent nearest to it in time."""
    sends = {shown_message(row): row["time"] for row in events if row["kind"] == "send"}
    star = waits[0] if waits else None
    chosen = {star.message, star.cause or star.message} if star else set()
    middle = sends[star.message] if star else min(sends.values(), default=0)
    for message in sorted(sends, key=lambda message: abs(sends[message] - middle)):
        if len(chosen) < most:
            chosen.add(message)
    return [row for row in events if shown_message(row) in chosen], [w for w in waits if w.message in chosen]


def spacetime(events: Sequence[dict[str, Any]], waits: Sequence[Wait], label: str) -> str:
    """The diagram of a few messages. The longest wait and its cause are highlighted."""
    lanes = {
        process: _TOP + row * _ROW for row, process in enumerate(sorted({row["process"] for row in events}))
    }
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
    message = shown_message(sent)
    x1, y1 = across(sent["time"]), lanes[sent["process"]]
    lines = []
    for row in events:
        if row["kind"] == "receive" and shown_message(row) == message:
            x2, y2 = across(row["time"]), lanes[row["process"]]
            took = _milliseconds(row["time"] - sent["time"])
            title = hover(f"{message}: {sent['process']} to {row['process']}, {took}")
            lines.append(tag("path", title, d=arrow(x1, y1, x2, y2)))
    return tag("g", *lines, class_=f"packet {marked.get(message, '')}".strip())


def _bar(hold: Wait, lanes: dict[str, int], across: _Time, star: bool) -> str:
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
    message = shown_message(row)
    x, y = across(row["time"]), lanes[row["process"]]
    at = _milliseconds(row["time"])
    title = hover(f"{row['process']} {row['kind']}s {message} at {at}")
    kind = f"{row['kind']} {marked.get(message, '')}".strip()
    if row["kind"] == "deliver":
        return tag("circle", title, class_=kind, cx=x, cy=y, r=3.5)
    name = tag("text", text(message), x=x, y=y + 22, text_anchor="middle")
    return tag("g", tag("circle", title, cx=x, cy=y, r=5.5), name, class_=kind)


def _time_axis(across: _Time, y: float) -> str:
    """About six round times."""
    least = (across.end - across.start) / 6
    size = 10 ** max(0, len(str(int(least))) - 1)
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least)
    first = -(-across.start // step) * step
    marks = [
        tag("text", text(_milliseconds(time)), x=across(time), y=y, text_anchor="middle")
        for time in range(first, across.end + 1, step)
    ]
    return tag("g", *marks, class_="grid")


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.{0 if nanoseconds % 1_000_000 == 0 or nanoseconds > 1e7 else 2}f} ms"
