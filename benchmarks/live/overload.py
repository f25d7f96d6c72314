"""Overload: one consumer stops for a minute under full load, then one link is throttled to 1 %.

    python benchmarks/live/overload.py [SECONDS OF EACH DISTURBANCE]

Four members broadcast as fast as they may. Memory of every process stays bounded, nothing is dropped, and the
group is back at full speed soon after. Writes overload.csv and overload.svg. The throttled link is a relay
between two members, in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import antecede
from antecede.live.trial.cluster import TrialPlan, configure

HERE = Path(__file__).parent
LIMIT = 8 * 1024 * 1024
SIZE, BYTES = 4, 1000
QUIET = 15.0
"""Seconds of full speed before, between and after the disturbances."""


async def member(config: dict[str, Any]) -> None:
    """Broadcast and receive; obey `pause`, `resume` and `end`; report twice a second."""
    listening = asyncio.Event()
    listening.set()
    counts = {"sent": 0, "delivered": 0, "stop": False}
    last: dict[str, int] = {}
    async with antecede.join(**config) as group:

        async def send() -> None:
            while not counts["stop"]:
                await group.broadcast(os.urandom(8) + b"\0" * (BYTES - 8))
                counts["sent"] += 1

        async def listen() -> None:
            async for message in group:
                if message.seq != last.get(message.origin, 0) + 1:
                    raise RuntimeError(f"{message.id} came after {last}")
                last[message.origin] = message.seq
                counts["delivered"] += 1
                if not listening.is_set():
                    await listening.wait()

        async def report() -> None:
            while True:
                await asyncio.sleep(0.5)
                memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                print(json.dumps(counts | {"memory": memory, "unstable": group.unstable_bytes}), flush=True)

        tasks = [asyncio.create_task(work()) for work in (send, listen, report)]
        while (line := (await asyncio.to_thread(sys.stdin.readline)).strip()) and line != "end":
            (listening.clear if line == "pause" else listening.set)()
        counts["stop"] = True
        await tasks[0]
        await group.drain()
        for task in tasks[1:]:
            task.cancel()
        print(json.dumps(counts | {"memory": 0, "unstable": 0, "ended": True}), flush=True)


class Relay:
    """A link that can be throttled."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.rate: float | None = None
        self.carried = 0

    async def start(self) -> int:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 14):
                self.carried += len(data)
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
                writer.write(data)
                await writer.drain()
        writer.close()


async def run(trouble: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="antecede-overload-") as folder:
        settings = configure(TrialPlan(size=SIZE, protocol="mbcp"), Path(folder), None)
        relay = Relay(int(str(settings[1].listen).rpartition(":")[2]))
        port = await relay.start()
        processes = []
        for each in settings:
            peers = []
            for peer in each.members():
                at: str | None = peer.at
                if each.me == settings[0].me and peer.name == settings[1].me:
                    at = f"127.0.0.1:{port}"
                elif each.me == settings[1].me and peer.name == settings[0].me:
                    at = None
                peers.append(f"{peer.name}@{at}" if at else peer.name)
            config = {
                "group": "overload",
                "me": each.me,
                "listen": each.listen,
                "peers": peers,
                "limit": LIMIT,
            }
            pipe = asyncio.subprocess.PIPE
            processes.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, __file__, "member", json.dumps(config), stdin=pipe, stdout=pipe
                )
            )
        rows: list[dict[str, Any]] = []
        began = time.monotonic()
        phase = ["full speed"]

        async def watch(number: int, process: asyncio.subprocess.Process) -> None:
            while process.stdout is not None and (line := await process.stdout.readline()):
                rows.append(
                    {
                        "time": time.monotonic() - began,
                        "member": number,
                        "phase": phase[0],
                        **json.loads(line),
                    }
                )

        watching = [asyncio.create_task(watch(*each)) for each in enumerate(processes)]

        def say(number: int, word: str) -> None:
            stdin = processes[number].stdin
            if stdin is not None:
                stdin.write(f"{word}\n".encode())

        async def stage(name: str, seconds: float) -> None:
            phase[0] = name
            print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)
            await asyncio.sleep(seconds)

        await stage("full speed", QUIET)
        say(3, "pause")
        await stage("a consumer is stopped", trouble)
        say(3, "resume")
        before = relay.carried
        await stage("full speed again", QUIET)
        relay.rate = max(1000.0, (relay.carried - before) / QUIET / 100)
        await stage("a link has 1 %", trouble)
        relay.rate = None
        await stage("full speed once more", QUIET)
        for number in range(SIZE):
            say(number, "end")
        phase[0] = "end"
        await asyncio.gather(*watching)
        ends = [row for row in rows if row.get("ended")]
        sent = sum(row["sent"] for row in ends)
        for row in ends:
            missing = sent - row["sent"] - row["delivered"]
            print(
                f"member {row['member']}: sent {row['sent']:,}, "
                f"delivered {row['delivered']:,}, missing {missing}"
            )
        return rows


def drawn(rows: list[dict[str, Any]]) -> str:
    """Messages a second delivered at the others, and the memory of the largest member."""
    width, height, left = 760, 300, 56
    end = max(row["time"] for row in rows)
    buckets: dict[int, list[float]] = {}
    before: dict[int, tuple[float, int]] = {}
    for row in rows:
        if row.get("ended"):
            continue
        then, count = before.get(row["member"], (row["time"], row["delivered"]))
        if row["time"] > then and row["member"] != 3:
            buckets.setdefault(int(row["time"]), []).append((row["delivered"] - count) / (row["time"] - then))
        before[row["member"]] = (row["time"], row["delivered"])
    speed = {second: sum(those) / len(those) for second, those in buckets.items()}
    memory: dict[int, float] = {}
    for row in rows:
        memory[int(row["time"])] = max(memory.get(int(row["time"]), 0.0), row["memory"] / 1e6)
    fastest, largest = max(speed.values()), max(memory.values()) * 1.1

    def line(values: dict[int, float], most: float, colour: str) -> str:
        points = " ".join(
            f"{left + (width - left - 60) * second / end:.1f},{(height - 50) * (1 - value / most) + 20:.1f}"
            for second, value in sorted(values.items())
        )
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    starts: dict[str, float] = {}
    for row in rows:
        starts.setdefault(row["phase"], row["time"])
    across = (width - left - 60) / end
    marks = ""
    for place, (name, at) in enumerate(starts.items()):
        if name != "end":
            x = left + across * at
            marks += f'<line x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{height - 30}" stroke="#8886"/>'
            marks += f'<text x="{x + 4:.1f}" y="{height - 14 + 14 * (place % 2)}">{name}</text>'
    fast = f"deliveries a second at the others: up to {fastest:,.0f}"
    large = f"memory of the largest member: up to {max(memory.values()):.0f} MB"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 10}" '
        f'font-family="sans-serif" font-size="11" fill="#666">{marks}'
        f"{line(speed, fastest * 1.1, '#2563eb')}{line(memory, largest, '#d97706')}"
        f'<text x="4" y="14" fill="#2563eb">{fast}</text>'
        f'<text x="{width - 4}" y="14" text-anchor="end" fill="#d97706">{large}</text></svg>\n'
    )


def main() -> None:
    if sys.argv[1:2] == ["member"]:
        asyncio.run(member(json.loads(sys.argv[2])))
        return
    rows = asyncio.run(run(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
    with (HERE / "overload.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "phase", "member", "sent", "delivered", "memory_mb", "unstable_mb"])
        for row in rows:
            figures = [round(row["memory"] / 1e6, 1), round(row["unstable"] / 1e6, 2)]
            counts = [round(row["time"], 1), row["phase"], row["member"], row["sent"], row["delivered"]]
            writer.writerow(counts + figures)
    (HERE / "overload.svg").write_text(drawn(rows))
    print(f"largest memory {max(row['memory'] for row in rows) / 1e6:.0f} MB, limit {LIMIT / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
