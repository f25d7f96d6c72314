"""A thousand joins and leaves through a group of 8: do messages and saved states shrink back?

With `freescale`, `hcg` and `basic`, phones or local processes of a gateway join and leave.

Nothing changes for 90 s, then every 200 ms a process joins, and leaves half a second later; then nothing
changes for 20 s again. Numbers of messages take one byte up to 127 and two up to 255, so a young group's
messages grow by themselves: in 90 s at four messages a second all numbers come to three bytes, where they
stay for hours. The last 20 s before the first join are compared with the last 15 s. Writes churn.csv and
churn.svg beside this file: control bytes of a message, and bytes of a saved state, by second. Usage: churn.py
[protocol ...].
"""

from __future__ import annotations

import contextlib
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
WITH_PHONES = ("freescale", "hcg", "basic")
PROTOCOLS = (
    "mbcp", "timestamp", "timestamp-diff", "depseq", "multigroup", "vcube", "vcube-agg", "pc", *WITH_PHONES,
)  # fmt: skip
FOUNDERS = 8
JOINS = 1000
WARM_UP, QUIET, EVERY, STAY = 90.0, 20.0, 0.2, 0.5
RATE = 4
"""Messages per second and member: the first message with number 256 comes after 64 s."""


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
        sizes = [len(member.save()) for member in members if member.is_member and member.me < FOUNDERS]
        self.state.setdefault(self.now // SECOND, []).extend(sizes)


def run(protocol: str, count: int) -> list[tuple[int, float, float]]:
    last = WARM_UP + count * EVERY + STAY
    churn = []
    for number in range(count):
        begin = WARM_UP + number * EVERY
        join, leave = ("attach", "detach") if protocol in WITH_PHONES else ("join", "leave")
        churn += [f"{join}:{begin:.3f}s", f"{leave}:{begin + STAY:.3f}s:{FOUNDERS + number}"]
    chosen = scenario(
        protocol=protocol, peers=FOUNDERS, seconds=last + QUIET, rate=RATE, delay="1-30ms", churn=churn,
        detector="adaptive,report=250ms",
    )  # fmt: skip
    probe = BySecond()
    # More often while nothing changes: a state includes the messages in flight.
    begin, end, tenth = round(WARM_UP * SECOND), round(last * SECOND), SECOND // 10
    quiet = begin - round(QUIET * SECOND)
    times = [*range(0, quiet, SECOND), *range(quiet, begin, tenth), *range(begin, end, 2 * SECOND)]
    times += range(end, round((last + QUIET) * SECOND), tenth)
    world = chosen.world(chosen.members(), [], [probe], times)
    world.run()
    figures = world.figures()
    prefix = "phone_" if protocol in WITH_PHONES else ""
    joins, leaves = int(figures[f"{prefix}joins"]), int(figures[f"{prefix}leaves"])
    print(f"{protocol}: {joins} joins, {leaves} leaves, {world.packets:,} packets")
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


def drawn(title: str, panels: dict[str, list[tuple[int, float, float]]]) -> str:
    """A panel for each protocol, each curve relative to its mean before the first join."""
    width, high, left, top = 720, 96, 120, 58
    body, size = "", top + high * len(panels) + 24
    for number, (protocol, rows) in enumerate(panels.items()):
        base = top + high * (number + 1) - 12
        end = rows[-1][0]
        body += f'<text x="4" y="{base - 36}">{protocol}</text>'
        body += f'<path d="M{left},{base}H{width - 10}" stroke="#999"/>'
        for column, colour in ((1, "#2563eb"), (2, "#d97706")):
            before, after = ends(rows, column)
            most = max(max(row[1] / ends(rows, 1)[0], row[2] / ends(rows, 2)[0]) for row in rows)
            scale = (high - 24) / most / before
            points = " ".join(
                f"{left + (width - left - 10) * row[0] / end:.1f},{base - scale * row[column]:.1f}"
                for row in rows
                if row[column]
            )
            body += f'<polyline points="{points}" fill="none" stroke="{colour}"/>'
            text = f"{before:,.0f} → {after:,.0f}"
            body += f'<text x="4" y="{base - 36 + 16 * column}" fill="{colour}">{text}</text>'
    end = next(iter(panels.values()))[-1][0]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {size}" '
        f'font-family="sans-serif" font-size="12"><rect width="{width}" height="{size}" fill="#fff"/>'
        f'<text x="4" y="16" font-weight="bold">{title}</text>'
        f'<text x="4" y="34" fill="#2563eb">control bytes of a message, before and after</text>'
        f'<text x="300" y="34" fill="#d97706">bytes of a saved state, before and after</text>'
        f'{body}<text x="{left}" y="{size - 8}">0 s</text>'
        f'<text x="{width - 46}" y="{size - 8}">{end} s</text></svg>\n'
    )


def main() -> None:
    file = HERE / "churn.csv"
    panels: dict[str, list[tuple[int, float, float]]] = {}
    with contextlib.suppress(FileNotFoundError), file.open(newline="") as old:
        for row in csv.DictReader(old):
            figures = int(row["second"]), float(row["control_bytes"]), float(row["state_bytes"])
            panels.setdefault(row["protocol"], []).append(figures)
    for protocol in sys.argv[1:] or PROTOCOLS:
        start = time.process_time()
        panels[protocol] = run(protocol, JOINS)
        for name, column in (("control bytes a message", 1), ("saved state", 2)):
            before, after = ends(panels[protocol], column)
            print(f"{name}: {before:.1f} before, {after:.1f} after ({after / before - 1:+.1%})")
        print(f"{time.process_time() - start:.0f} CPU s", flush=True)
        panels = {each: panels[each] for each in PROTOCOLS if each in panels}
        with file.open("w", newline="") as new:
            writer = csv.writer(new, lineterminator="\n")
            writer.writerow(["protocol", "second", "control_bytes", "state_bytes"])
            for each, rows in panels.items():
                writer.writerows((each, at, f"{control:.2f}", f"{state:.1f}") for at, control, state in rows)
        title = f"{JOINS:,} joins and leaves through a group of 8"
        (HERE / "churn.svg").write_text(drawn(title, panels), encoding="utf-8")


if __name__ == "__main__":
    main()
