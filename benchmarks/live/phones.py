"""What a message costs a group of two super peers with many phones, whose members come and go.

    python benchmarks/live/phones.py [--phones 200] [--rate 20] [--seconds 20] [--web] [--parts] [--profile]
                                     [--save]

Each super peer is a process of its own, and half of the phones are behind each; all phones are in one more
process, and broadcast 8 bytes in turns, `--rate` messages a second over the group. Links are unencrypted, on
the loopback interface: TCP, or WebSockets with `--web`. Nobody has a store. Measured are, for each message:
milliseconds of CPU of one super peer, and bytes that are written to sockets over the whole group: packets
with messages, counts (reports of members and phones, numbers of messages, what is stable), acks of links and
the rest. Latency is from `broadcast` to the last phone. Bytes are told apart only with `--parts`, and then
the CPU is not that of the group alone.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import os
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from antecede.live.joining import join
from antecede.live.transport import wires
from antecede.live.transport.frames import add_lengths

HERE = Path(__file__).parent
FIRST_PORT = 20_900
_FRAMES = {2: "packets", 3: "acks", 8: "heartbeats", 42: "presence"}
_MESSAGES = {1, 6, 15, 60}
"""Tags of packets with messages; all other packets count as counts."""
written: Counter[str] = Counter()


class Plan(msgspec.Struct):
    phones: int
    rate: float
    seconds: float
    web: bool
    parts: bool
    profile: bool

    @property
    def messages(self) -> int:
        return max(1, round(self.rate * self.seconds))


def count_writes(parts: bool) -> None:
    """Count the bytes written to sockets from now on; on a WebSocket a frame has at least two bytes more."""
    for kind in (wires.TcpWire, wires.WebWire):

        def counted(write: Any) -> Any:
            async def call(self: Any, frames: list[bytes]) -> None:
                written["bytes"] += len(add_lengths(frames))
                for frame in frames if parts else ():
                    _count_parts(frame)
                await write(self, frames)

            return call

        kind.write = counted(kind.write)  # type: ignore[method-assign]


def _count_parts(frame: bytes) -> None:
    content = msgspec.msgpack.decode(frame, strict=False)
    name = _FRAMES.get(content[0], "other")
    if name != "packets":
        written[name] += len(frame) + 4
        return
    tags = [msgspec.msgpack.decode(body, strict=False)[0] for body in content[2]]
    counts = sum(len(body) for tag, body in zip(tags, content[2], strict=True) if tag not in _MESSAGES)
    # The rest of a frame belongs to its messages, if it has any.
    if any(tag in _MESSAGES for tag in tags):
        written["counts"] += counts
        written["messages"] += len(frame) + 4 - counts
    else:
        written["counts"] += len(frame) + 4


def super_peer_options(plan: Plan, me: int) -> dict[str, Any]:
    places = [f"s{each}@127.0.0.1:{FIRST_PORT + each}" for each in range(2)]
    web = f"127.0.0.1:{FIRST_PORT + 10 + me}" if plan.web else None
    return {
        "me": f"s{me}",
        "listen": f"127.0.0.1:{FIRST_PORT + me}",
        "web": web,
        "founders": places,
        "protocol": "freescale",
        "insecure": True,
    }


async def run_super_peer(plan: Plan, me: int, barrier: Any) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    profile = cProfile.Profile()
    async with join("phones", **super_peer_options(plan, me)) as group:

        async def read() -> None:
            async for _ in group:
                pass

        reader = asyncio.create_task(read())
        await loop.run_in_executor(None, barrier.wait)  # All phones are connected.
        before, cpu = Counter(written), time.process_time()
        if plan.profile:
            profile.enable()
        await loop.run_in_executor(None, barrier.wait)
        result: dict[str, float] = {"cpu": time.process_time() - cpu}
        if plan.profile:
            profile.disable()
            profile.dump_stats(f"phones-{me}.prof")
        result |= {f"written {name}": count for name, count in (written - before).items()}
        await loop.run_in_executor(None, barrier.wait)
        reader.cancel()
    return result


async def run_phones(plan: Plan, barrier: Any) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    sent_at: dict[bytes, float] = {}
    seen: Counter[bytes] = Counter()
    latencies: list[float] = []
    began = time.monotonic()
    place = f"ws://127.0.0.1:{FIRST_PORT + 10}" if plan.web else f"127.0.0.1:{FIRST_PORT}"

    async def start(number: int) -> Any:
        at = f"{place[:-1]}{number % 2}"
        return await join("phones", me=f"p{number:03}", super_peers=[f"s{number % 2}@{at}"], insecure=True)

    phones = []
    for first in range(0, plan.phones, 20):
        batch = range(first, min(first + 20, plan.phones))
        phones += await asyncio.gather(*(start(number) for number in batch))
    result = {"connected": time.monotonic() - began}

    async def read(group: Any) -> None:
        async for message in group:
            seen[message.body] += 1
            if seen[message.body] == plan.phones:
                latencies.append(time.monotonic() - sent_at[message.body])

    readers = [asyncio.create_task(read(group)) for group in phones]
    await asyncio.sleep(1)
    await loop.run_in_executor(None, barrier.wait)
    before, start_at = Counter(written), time.monotonic()
    for number in range(plan.messages):
        wait = start_at + number / plan.rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        body = os.urandom(8)
        sent_at[body] = time.monotonic()
        await phones[number * 7 % plan.phones].broadcast(body)
    while len(latencies) < plan.messages:
        await asyncio.sleep(0.02)
    result["delivered"] = time.monotonic() - start_at
    await asyncio.sleep(2)
    await loop.run_in_executor(None, barrier.wait)
    result |= {f"written {name}": count for name, count in (written - before).items()}
    await loop.run_in_executor(None, barrier.wait)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*(group.aclose() for group in phones))
    result["median"], result["worst"] = statistics.median(latencies), max(latencies)
    return result


def part_main(plan: Plan, part: int, barrier: Any, results: Any) -> None:
    count_writes(plan.parts)
    run = run_super_peer(plan, part, barrier) if part < 2 else run_phones(plan, barrier)
    results.put((part, asyncio.run(run)))


def measure(plan: Plan) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    parts = [context.Process(target=part_main, args=(plan, part, barrier, results)) for part in range(3)]
    for each in parts:
        each.start()
    found = dict(results.get() for _ in parts)
    for each in parts:
        each.join()
    messages = plan.messages
    row: dict[str, Any] = {
        "phones": plan.phones,
        "rate": plan.rate,
        "messages": messages,
        "web": plan.web,
        "connected_s": round(found[2]["connected"], 2),
        "delivered_s": round(found[2]["delivered"], 2),
        "super_peer_cpu_ms_a_message": round(1000 * max(found[0]["cpu"], found[1]["cpu"]) / messages, 2),
        "median_latency_ms": round(1000 * found[2]["median"], 1),
        "worst_latency_ms": round(1000 * found[2]["worst"], 1),
    }
    names = sorted({name for each in found.values() for name in each if name.startswith("written ")})
    for name in names:
        total = sum(each.get(name, 0) for each in found.values())
        row[f"{name.removeprefix('written ')}_a_message"] = round(total / messages, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--phones", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--web", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    plan = Plan(options.phones, options.rate, options.seconds, options.web, options.parts, options.profile)
    row = measure(plan)
    print(json.dumps(row), flush=True)
    if options.save:
        (HERE / "phones.json").write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
