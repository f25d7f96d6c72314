"""What a message costs a group in which everybody has a link to everybody, with a fixed list and with members
that may change.

    python benchmarks/live/mesh.py [--sizes 8,50] [--kinds fixed,changing] [--rate 10] [--seconds 20]
                                   [--protocols mbcp] [--processes 1] [--parts] [--save]

All members are in one process, or in a few, and talk over sockets of the loopback interface, without stores
and without encryption. Members broadcast 8 bytes in turns, `--rate` messages a second over the group.
Measured are the seconds until all are connected to all, and for each message, over the group: bytes that are
written to sockets and milliseconds of CPU, from the first broadcast until `--rest` seconds after the last
delivery.
`--parts` says what the bytes are; then the CPU is not that of the group alone. `--save` writes mesh.json.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from antecede.live.joining import join
from antecede.live.transport import wires
from antecede.live.transport.frames import add_lengths

HERE = Path(__file__).parent
FIRST_PORT = 21_000
"""Below the ports that the operating system assigns to clients."""
_FRAMES = {2: "packets", 3: "acks", 5: "progress", 8: "heartbeats"}
_REPORTS = dict.fromkeys((40, 56, 57), "reports")
written: Counter[str] = Counter()


class Plan(msgspec.Struct):
    """One group, and its workload."""

    kind: str
    protocol: str
    size: int
    rate: float
    seconds: float
    rest: float
    processes: int
    parts: bool

    @property
    def messages(self) -> int:
        return max(1, round(self.rate * self.seconds))


def count_writes(parts: bool) -> None:
    """Count the bytes written to sockets from now on."""
    write = wires.TcpWire.write

    async def counted(self: wires.TcpWire, frames: list[bytes]) -> None:
        written["bytes"] += len(add_lengths(frames))
        written["frames"] += len(frames)
        if parts:
            for frame in frames:
                _count_parts(frame)
        await write(self, frames)

    wires.TcpWire.write = counted  # type: ignore[method-assign]


def _count_parts(frame: bytes) -> None:
    content = msgspec.msgpack.decode(frame, strict=False)
    name = _FRAMES.get(content[0], "other frames")
    written[name] += len(frame) + 4
    if name == "packets":
        for body in content[2]:
            tag = msgspec.msgpack.decode(body, strict=False)[0]
            written[f"packets: {_REPORTS.get(tag, 'messages' if tag in (1, 15) else 'other')}"] += len(body)


def join_member(plan: Plan, me: int) -> Any:
    places = [f"m{each:03}@127.0.0.1:{FIRST_PORT + each}" for each in range(plan.size)]
    options: dict[str, Any] = {"me": f"m{me:03}", "listen": f"127.0.0.1:{FIRST_PORT + me}", "insecure": True}
    options["protocol"] = plan.protocol
    if plan.kind == "fixed":
        return join("mesh", peers=[each for rank, each in enumerate(places) if rank != me], **options)
    return join("mesh", founders=places, **options)


async def run_part(plan: Plan, part: int, began: float, barrier: Any) -> dict[str, float]:
    """The members of one process: every `processes`-th of the group."""
    loop = asyncio.get_running_loop()
    mine = range(part, plan.size, plan.processes)
    groups = dict(zip(mine, await asyncio.gather(*(join_member(plan, each) for each in mine)), strict=True))
    while any(len(group.connected) < plan.size - 1 for group in groups.values()):
        await asyncio.sleep(0.1)
    result = {"connected": time.time() - began, "connecting_cpu": time.process_time()}
    counts = dict.fromkeys(groups, 0)

    async def read(me: int, group: Any) -> None:
        async for _ in group:
            counts[me] += 1

    readers = [asyncio.create_task(read(me, group)) for me, group in groups.items()]
    await loop.run_in_executor(None, barrier.wait)
    await asyncio.sleep(1)
    before, cpu, start = Counter(written), time.process_time(), time.monotonic()
    for number in range(plan.messages):
        wait = start + number / plan.rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        me = number * 7 % plan.size
        if me in groups:
            await groups[me].broadcast(os.urandom(8))
    while any(count < plan.messages for count in counts.values()):
        await asyncio.sleep(0.02)
    result["delivered"] = time.monotonic() - start
    await asyncio.sleep(plan.rest)
    result["cpu"] = time.process_time() - cpu
    result |= {f"written {name}": count for name, count in (written - before).items()}
    await loop.run_in_executor(None, barrier.wait)
    for task in readers:
        task.cancel()
    await asyncio.gather(*(group.aclose() for group in groups.values()))
    return result


def part_main(plan: Plan, part: int, began: float, barrier: Any, results: Any) -> None:
    count_writes(plan.parts)
    results.put(asyncio.run(run_part(plan, part, began, barrier)))


def measure(plan: Plan) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(plan.processes), context.Queue()
    parts = [
        context.Process(target=part_main, args=(plan, part, time.time(), barrier, results))
        for part in range(plan.processes)
    ]
    for each in parts:
        each.start()
    found = [results.get() for _ in parts]
    for each in parts:
        each.join()
    messages = plan.messages
    names = sorted({name for each in found for name in each if name.startswith("written ")})
    row: dict[str, Any] = {
        "kind": plan.kind,
        "protocol": plan.protocol,
        "members": plan.size,
        "rate": plan.rate,
        "messages": messages,
        "connected_s": round(max(each["connected"] for each in found), 2),
        "connecting_cpu_s": round(sum(each["connecting_cpu"] for each in found), 2),
        "delivered_s": round(max(each["delivered"] for each in found), 2),
        "cpu_ms_a_message": round(1000 * sum(each["cpu"] for each in found) / messages, 2),
    }
    for name in names:
        row[f"{name.removeprefix('written ')}_a_message"] = round(
            sum(each.get(name, 0) for each in found) / messages, 1
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--sizes", default="8,50")
    parser.add_argument("--kinds", default="fixed,changing")
    parser.add_argument("--protocols", default="mbcp")
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rest", type=float, default=2.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    rows = []
    for size in map(int, options.sizes.split(",")):
        for kind, protocol in itertools.product(options.kinds.split(","), options.protocols.split(",")):
            plan = Plan(
                kind,
                protocol,
                size,
                options.rate,
                options.seconds,
                options.rest,
                options.processes,
                options.parts,
            )
            rows.append(measure(plan))
            print(json.dumps(rows[-1]), flush=True)
    if options.save:
        (HERE / "mesh.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
