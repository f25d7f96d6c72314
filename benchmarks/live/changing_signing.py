"""CPU a message with and without signatures in a live group that changes, over TLS on one machine.

Three founders and one that has joined, all in one process, without stores; each broadcasts in turn. CPU time
is that of the whole process: each message is sent by one member and received by three. Both kinds take turns.

    .venv/bin/python benchmarks/live/changing_signing.py
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from pathlib import Path

import antecede
from antecede.live.group import Group
from antecede.live.security import keys

NAMES = ["ana", "bo", "cy", "dana"]
MESSAGES, BODY, ROUNDS = 600, b"x" * 100, 3


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def read(group: Group) -> None:
    count = 0
    async for _ in group:
        count += 1
        if count == MESSAGES:
            return


async def measure(folder: Path, sign: bool) -> float:
    """Seconds of CPU for all messages."""
    ports = dict(zip(NAMES[:3], free_ports(3), strict=True))
    founders = [f"{name}@127.0.0.1:{port}" for name, port in ports.items()]
    joining = [
        antecede.join(
            "room", me=name, founders=founders, listen=f":{ports[name]}", keys=folder / name, sign=sign
        )
        for name in NAMES[:3]
    ]
    groups: list[Group] = list(await asyncio.gather(*joining))
    groups.append(
        await antecede.join(
            "room", me="dana", contact=founders[:1], listen=":0", keys=folder / "dana", sign=sign
        )
    )
    reading = [asyncio.create_task(read(group)) for group in groups]
    while any(len(group.connected) < 3 for group in groups):
        await asyncio.sleep(0.05)
    start = time.process_time()
    for number in range(MESSAGES):
        await groups[number % len(groups)].broadcast(BODY)
    await asyncio.gather(*reading)
    used = time.process_time() - start
    for group in groups:
        await group.aclose()
    return used


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys.make_keys(folder, "room", NAMES, [], 30, {}, [])
        used: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(ROUNDS):
            for sign in (False, True):
                used[sign].append(asyncio.run(measure(folder, sign)))
    without, signed = (1e6 * statistics.median(used[each]) / MESSAGES for each in (False, True))
    print(f"CPU a message, 4 members: {without:,.0f} µs without, {signed:,.0f} µs with signatures")
    print(f"ratio {signed / without:.2f}; {(signed - without):,.0f} µs for one signature and 3 verifications")


if __name__ == "__main__":
    main()
