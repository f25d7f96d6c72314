"""A thousand joins and leaves through a live group of eight: what its members keep, and what a message costs.

    python benchmarks/live/live_churn.py [--joins 1000] [--at-once 4] [--rate 40] [--window 10] [--before 0]

Each of the eight that stay is a process with a store, and they broadcast 100 bytes in turns all the time. In
another process newcomers join, each with a name and a store of its own, broadcast a message and leave, a few
at a time. Before, after and ten times in between nobody comes or goes for `--window` seconds; then memory
and stores are measured, and the bytes that are written to sockets for each message. A store is a log that a
checkpoint replaces after 4 MiB, so what a checkpoint would have now is measured, too. Writes live_churn.csv
and live_churn.svg beside this file, or to --out. `--joins 0` is the control: the same group, the same pauses,
and nobody joins. `--before 120` lets the group run so long first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import gc
import multiprocessing
import shutil
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import msgspec

import antecede
from antecede.live.changing.recovery import take_checkpoint

HERE = Path(__file__).parent
MEMBERS, PARTS = 8, 10
FIRST_PORT = 21_500
"""Below the ports that the operating system assigns to clients."""
FOUNDERS = [f"m{each}@127.0.0.1:{FIRST_PORT + each}" for each in range(MEMBERS)]
_SETTLE_SECONDS = 3.0
_LEAVE_SECONDS = 60.0


class Sample(msgspec.Struct):
    """The state of one member, or its counts since it began."""

    memory: int
    store: int
    wire: int
    broadcasts: int
    links: int
    checkpoint: int


class Row(msgspec.Struct):
    """One pause: the largest values among the members, and the group's bytes per message."""

    joins: int
    seconds: float
    memory_mb: float
    store_mb: float
    checkpoint_kb: float
    wire_bytes: float
    connections: int


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def stay(rank: int, folder: Path, rate: float, control: Connection) -> None:
    """One of the members that stay."""
    counts = {"broadcasts": 0, "deliveries": 0}

    def dump() -> bytes:
        return msgspec.json.encode(counts)

    group = await antecede.join(
        "churn",
        me=f"m{rank}",
        founders=FOUNDERS,
        listen=f"127.0.0.1:{FIRST_PORT + rank}",
        store=folder / f"m{rank}",
        sync=False,
        insecure=True,
        snapshot=dump,
        restore=lambda _: None,
    )

    async def read() -> None:
        async for _ in group:
            counts["deliveries"] += 1

    async def write() -> None:
        began, sent = time.monotonic() + rank / rate, 0
        while True:
            await asyncio.sleep(max(0.0, began + sent * MEMBERS / rate - time.monotonic()))
            sent += 1
            await group.broadcast(b"x" * 100)
            counts["broadcasts"] += 1

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, control.recv) == "sample":
        gc.collect()
        store = sum(file.stat().st_size for file in folder.glob(f"m{rank}/*"))
        state = take_checkpoint(cast("Any", group)._core)
        checkpoint = len(state.state) + sum(len(each.data) for each in state.packets)
        wire, sent, links = group.counts["wire bytes"], counts["broadcasts"], len(group.connected)
        control.send(Sample(resident(), store, wire, sent, links, checkpoint))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await group.aclose()


def stay_main(rank: int, folder: Path, rate: float, control: Connection) -> None:
    asyncio.run(stay(rank, folder, rate, control))


async def come_and_go(number: int, folder: Path) -> None:
    """One newcomer, from its request until all members have its last message."""
    store = folder / f"n{number}"
    contacts = [FOUNDERS[(number + each) % MEMBERS] for each in range(MEMBERS)]
    group = await antecede.join(
        "churn",
        me=f"n{number}",
        contact=contacts,
        listen="127.0.0.1:0",
        store=store,
        sync=False,
        insecure=True,
        restore=lambda _: None,
    )

    async def read() -> None:
        async for _ in group:
            pass

    reader = asyncio.create_task(read())
    await group.broadcast(b"y" * 100)
    await group.leave(timeout=_LEAVE_SECONDS)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    shutil.rmtree(store, ignore_errors=True)


def take_samples(controls: list[Connection]) -> list[Sample]:
    for control in controls:
        control.send("sample")
    return [control.recv() for control in controls]


async def pause(joins: int, began: float, controls: list[Connection], window: float) -> Row:
    await asyncio.sleep(_SETTLE_SECONDS)
    before = take_samples(controls)
    await asyncio.sleep(window)
    after = take_samples(controls)
    messages = sum(each.broadcasts for each in after) - sum(each.broadcasts for each in before)
    wire = sum(each.wire for each in after) - sum(each.wire for each in before)
    row = Row(
        joins,
        round(time.monotonic() - began, 1),
        round(max(each.memory for each in after) / 1e6, 2),
        round(max(each.store for each in after) / 1e6, 2),
        round(max(each.checkpoint for each in after) / 1e3, 2),
        round(wire / messages, 1),
        max(each.links for each in after),
    )
    print(msgspec.json.encode(row).decode(), flush=True)
    return row


async def churn(options: Any, folder: Path, controls: list[Connection]) -> list[Row]:
    began = time.monotonic()
    take_samples(controls)  # Once all have begun.
    await asyncio.sleep(options.before)
    rows = [await pause(0, began, controls, options.window)]
    numbers = iter(range(options.joins))
    for part in range(1, PARTS + 1):
        due = options.joins * part // PARTS
        free = asyncio.Semaphore(options.at_once)

        async def one(number: int, free: asyncio.Semaphore = free) -> None:
            async with free:
                await come_and_go(number, folder)

        mine = [number for number, _ in zip(numbers, range(due - rows[-1].joins), strict=False)]
        await asyncio.gather(*(one(number) for number in mine))
        rows.append(await pause(due, began, controls, options.window))
    return rows


def drawn(rows: list[Row]) -> str:
    """Three small charts, each from zero: memory, store and wire bytes, by joins."""
    charts = (
        ("memory of the largest member, MB", "#2563eb", [row.memory_mb for row in rows]),
        ("checkpoint of its store, kB", "#d97706", [row.checkpoint_kb for row in rows]),
        ("bytes on the wire a message", "#059669", [row.wire_bytes for row in rows]),
    )
    width, height, left, gap = 260, 160, 50, 30
    last = rows[-1].joins or 1
    parts = []
    for place, (title, colour, values) in enumerate(charts):
        x, most = place * (width + gap) + left, max(values) * 1.2 or 1.0
        for part in range(3):
            y = 30 + height * (1 - part / 2)
            parts.append(f'<line x1="{x}" x2="{x + width - left}" y1="{y:.0f}" y2="{y:.0f}" stroke="#8884"/>')
            value = f"{most * part / 2:,.0f}" if most > 50 else f"{most * part / 2:.1f}"
            parts.append(f'<text x="{x - 6}" y="{y + 4:.0f}" text-anchor="end">{value}</text>')
        points = " ".join(
            f"{x + (width - left) * row.joins / last:.1f},{30 + height * (1 - value / most):.1f}"
            for row, value in zip(rows, values, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x}" y="18" fill="{colour}">{title}</text>')
        parts.append(
            f'<text x="{x + width - left}" y="{height + 46}" text-anchor="end">{last:,} joins</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * (width + gap)} {height + 60}" '
        f'font-family="sans-serif" font-size="12" fill="#666">{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--joins", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--rate", type=float, default=40.0, help="messages a second of the eight together")
    parser.add_argument("--window", type=float, default=10.0)
    parser.add_argument("--before", type=float, default=0.0, help="seconds without joins first")
    parser.add_argument("--out", type=Path, default=HERE / "live_churn", help="without an ending")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="antecede-churn-") as name, contextlib.ExitStack() as processes:
        folder, controls = Path(name), []
        for rank in range(MEMBERS):
            here, there = context.Pipe()
            process = context.Process(target=stay_main, args=(rank, folder, options.rate, there))
            process.start()
            processes.callback(process.join)
            processes.callback(here.send, "stop")
            controls.append(here)
        rows = asyncio.run(churn(options, folder, controls))
    with options.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(row) for row in rows)
    options.out.with_suffix(".svg").write_text(drawn(rows))


if __name__ == "__main__":
    main()
