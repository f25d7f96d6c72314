"""A long run of a live group: memory and stores over a million messages.

    python benchmarks/live/soak.py [MESSAGES] [MEMBERS]

Writes soak.csv and soak.svg beside this file. Members are processes of `antecede cluster` at full speed, with
stores that wait for the operating system (sync off), so that the disk does not set the pace.
"""

from __future__ import annotations

import asyncio
import csv
import os
import sys
import tempfile
import time
from pathlib import Path

from antecede.live.trial.cluster import TrialPlan, run

HERE = Path(__file__).parent
_SAMPLE_SECONDS = 2.0
LIMIT = 4 * 1024 * 1024
"""Small, so that a flat line is due to the limit and not to a short run."""


def resident(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * 4096


def workers() -> list[int]:
    """The processes of the cluster: this one's children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid():
            found.append(int(folder.name))
    return found


async def sampled(plan: TrialPlan, folder: Path) -> list[tuple[float, int, float, float, float]]:
    """Seconds, deliveries, and megabytes: the largest member, the largest store, all stores."""
    rows: list[tuple[float, int, float, float, float]] = []
    began = time.monotonic()

    def on_progress(done: int, _due: int, _kills: int) -> None:
        now = time.monotonic() - began
        if not rows or now - rows[-1][0] >= _SAMPLE_SECONDS:
            memory = max((resident(pid) for pid in workers()), default=0)
            stores: dict[str, int] = {}
            for file in folder.glob("*.db/*"):
                name = file.name.partition(".")[0]
                stores[name] = stores.get(name, 0) + file.stat().st_size
            rows.append(
                (now, done, memory / 1e6, max(stores.values(), default=0) / 1e6, sum(stores.values()) / 1e6)
            )
            print(*(f"{value:.1f}" for value in rows[-1]), flush=True)

    result = await run(plan, folder, None, on_progress)
    for fault in result.faults:
        print("fault:", fault)
    print(f"{plan.messages:,} messages, {plan.size} members, {result.seconds:.0f} s")
    return rows


def drawn(rows: list[tuple[float, int, float, float, float]], plan: TrialPlan) -> str:
    """Memory and store of the largest member, over deliveries."""
    width, height, left, bottom = 720, 300, 60, 40
    most = max(max(row[2], row[3]) for row in rows) * 1.15
    last = rows[-1][1] or 1

    def line(column: int, colour: str) -> str:
        points = " ".join(
            f"{left + (width - left - 20) * row[1] / last:.1f},"
            f"{(height - bottom) * (1 - row[column] / most) + 10:.1f}"
            for row in rows
        )
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    ticks = ""
    for part in range(5):
        value = most * part / 4
        y = (height - bottom) * (1 - part / 4) + 10
        ticks += f'<line x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>'
        ticks += f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.0f}</text>'
    title = f"{plan.messages:,} messages, {plan.size} members: megabytes of the largest member, by deliveries"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 30}" '
        'font-family="sans-serif" font-size="12" fill="#666">'
        f'<text x="{left}" y="{height + 22}">{title}</text>{ticks}'
        f"{line(2, '#2563eb')}{line(3, '#d97706')}"
        f'<text x="{width - 24}" y="{height - 12}" text-anchor="end">{last:,}</text>'
        f'<text x="{left + 10}" y="24" fill="#2563eb">memory</text>'
        f'<text x="{left + 80}" y="24" fill="#d97706">store</text></svg>\n'
    )


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    plan = TrialPlan(size=size, messages=messages, seconds=0.0, sync=False, limit=LIMIT)
    with tempfile.TemporaryDirectory(prefix="antecede-soak-") as folder:
        rows = asyncio.run(sampled(plan, Path(folder)))
    with (HERE / "soak.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "deliveries", "memory_mb", "store_mb", "stores_mb"])
        writer.writerows([f"{value:.3f}" for value in row] for row in rows)
    (HERE / "soak.svg").write_text(drawn(rows, plan))


if __name__ == "__main__":
    main()
