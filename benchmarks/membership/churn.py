"""A thousand joins and leaves through a group of 8: do messages and saved states shrink back?

Nothing changes for 90 s, then every 200 ms a process joins, and leaves half a second later; then nothing
changes for 20 s again. Numbers of messages take one byte up to 127 and two up to 255, so a young group's
messages grow by themselves: in 90 s at four messages a second all numbers come to three bytes, where they
stay for hours. The last 20 s before the first join are compared with the last 15 s. Writes churn.csv and
churn.svg beside this file: control bytes of a message, and bytes of a saved state, by second. Usage: churn.py
[protocol [joins]].
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from antecede.causality import MessageId
from antecede.sim import scenario
from antecede.sim.probes import Probe
from antecede.units import SECOND

HERE = Path(__file__).parent
WARM_UP, QUIET, EVERY, STAY = 90.0, 20.0, 0.2, 0.5
RATE = 4
"""Messages a second and member: the first one number 256 comes after 64 s."""


class BySecond(Probe):
    """Control bytes of messages, and saved states of members, by second."""

    def __init__(self) -> None:
        super().__init__()
        self.control: dict[int, list[int]] = {}
        self.state: dict[int, list[int]] = {}
        self.now = 0

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self.control.setdefault(time // SECOND, []).append(control)

    def transmit(self, member: Any, to: Sequence[int], packet: Any, now: int) -> None:
        self.now = now

    def sample(self, members: Sequence[Any]) -> None:
        sizes = [len(member.save()) for member in members if member.is_member]
        self.state.setdefault(self.now // SECOND, []).extend(sizes)


def run(protocol: str, joins: int) -> list[tuple[int, float, float]]:
    last = WARM_UP + joins * EVERY + STAY
    churn = []
    for number in range(joins):
        begin = WARM_UP + number * EVERY
        churn += [f"join:{begin:.3f}s", f"leave:{begin + STAY:.3f}s:{8 + number}"]
    chosen = scenario(
        protocol=protocol, peers=8, seconds=last + QUIET, rate=RATE, delay="1-30ms", churn=churn,
        detector="adaptive,report=250ms",
    )  # fmt: skip
    probe = BySecond()
    # More often while nothing changes: a state has the messages that are on their way.
    begin, end, tenth = round(WARM_UP * SECOND), round(last * SECOND), SECOND // 10
    quiet = begin - round(QUIET * SECOND)
    times = [*range(0, quiet, SECOND), *range(quiet, begin, tenth), *range(begin, end, 2 * SECOND)]
    times += range(end, round((last + QUIET) * SECOND), tenth)
    world = chosen.world(chosen.members(), [], [probe], times)
    world.run()
    figures = world.figures()
    print(
        f"{protocol}: {figures['joins']:.0f} joins, {figures['leaves']:.0f} leaves, {world.packets:,} packets"
    )
    seconds = sorted(probe.control)
    return [
        (second, fmean(probe.control[second]), fmean(probe.state.get(second) or [0])) for second in seconds
    ]


def ends(rows: list[tuple[int, float, float]], column: int) -> tuple[float, float]:
    """The mean before the first join, and after the last leave has settled."""
    end = rows[-1][0]
    before = [row[column] for row in rows if WARM_UP - QUIET <= row[0] < WARM_UP and row[column]]
    after = [row[column] for row in rows if row[0] > end - QUIET + 5 and row[column]]
    return fmean(before), fmean(after)


def drawn(rows: list[tuple[int, float, float]], title: str) -> str:
    width, height, left = 720, 260, 50
    most = [max(row[column] for row in rows) or 1 for column in (1, 2)]
    lines = ""
    for column, colour in ((1, "#2563eb"), (2, "#d97706")):
        scale = (height - 60) / most[column - 1]
        points = " ".join(
            f"{left + (width - left - 10) * row[0] / rows[-1][0]:.1f},{height - 10 - scale * row[column]:.1f}"
            for row in rows
            if row[column]
        )
        lines += f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 30}" '
        f'font-family="sans-serif" font-size="12"><text x="{left}" y="16">{title}</text>'
        f'<text x="{left}" y="34" fill="#2563eb">control bytes a message, at most {most[0]:.0f}</text>'
        f'<text x="{left + 260}" y="34" fill="#d97706">saved state, at most {most[1]:,.0f} bytes</text>'
        f"{lines}"
        f'<text x="{left}" y="{height + 16}">0 s</text>'
        f'<text x="{width - 60}" y="{height + 16}">{rows[-1][0]} s</text></svg>\n'
    )


def main() -> None:
    protocol = sys.argv[1] if len(sys.argv) > 1 else "mbcp"
    joins = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    start = time.process_time()
    rows = run(protocol, joins)
    for name, column in (("control bytes a message", 1), ("saved state", 2)):
        before, after = ends(rows, column)
        print(f"{name}: {before:.1f} before, {after:.1f} after ({after / before - 1:+.1%})")
    print(f"{time.process_time() - start:.0f} CPU s")
    name = "churn" if protocol == "mbcp" else f"churn-{protocol}"
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["second", "control_bytes", "state_bytes"])
        writer.writerows((second, f"{control:.2f}", f"{state:.1f}") for second, control, state in rows)
    title = f"{joins} joins and leaves through a group of 8 ({protocol})"
    (HERE / f"{name}.svg").write_text(drawn(rows, title))


if __name__ == "__main__":
    main()
