"""A plant on real time, an office on vector clocks: nobody sees an action before the reading that caused it.

    python examples/sensors/plant.py

The gauge reports a pressure. The valve acts when it is too high, and says so. The boiler is the gateway of
the plant, the office that of the desk. The links of the gauge are slow now and then: if messages were
delivered as they arrive, what the valve does would often come before what it has read. The clocks differ by
up to 20 ms, and links take up to 250 ms.
"""

from __future__ import annotations

import asyncio
import random
import socket

import antecede

BEHIND = {"gauge": "boiler", "valve": "boiler", "desk": "office"}
NAMES = ["boiler", "gauge", "valve", "office", "desk"]
CLOCKS = {"boiler": "real 250ms 20ms", "office": "vector"}
TOO_HIGH = 8.0
READINGS = 20


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Post:
    """One member, and what it has read so far."""

    def __init__(self, name: str, ports: dict[str, int], clock: str, delay: str = "0ms-2ms") -> None:
        self.name, self.read = name, list[dict[str, object]]()
        self.early = 0
        """The number of actions that came before the reading that they answer."""
        self.joining = antecede.join(
            "plant",
            me=name,
            behind=BEHIND.get(name),
            listen=f":{ports[name]}",
            protocol="hcg",
            subgroups=CLOCKS,
            peers=[
                antecede.Member(other, f"127.0.0.1:{ports[other]}", BEHIND.get(other))
                for other in NAMES
                if other != name
            ],
            faults=antecede.FaultInjection(delay=delay, clock=clock),
        )

    async def start(self) -> None:
        self.group = await self.joining
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self.group:
            body = message.body
            self.read.append(body)
            if "closed for" in body:
                cause = {"reading": body["closed for"], "pressure": body["at"]}
                self.early += cause not in self.read
            if self.name == "valve" and body.get("pressure", 0) > TOO_HIGH:
                await self.group.broadcast({"closed for": body["reading"], "at": body["pressure"]})

    async def stop(self) -> None:
        self.listening.cancel()
        await self.group.aclose()


async def run() -> None:
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    clocks = {"boiler": "5ms", "gauge": "-5ms", "valve": "10ms"}
    posts = {
        name: Post(name, ports, clocks.get(name, "0ms"), "0ms-80ms" if name == "gauge" else "0ms-2ms")
        for name in NAMES
    }
    for post in posts.values():
        await post.start()
    rng, high = random.Random(1), 0
    for reading in range(READINGS):
        pressure = round(rng.uniform(6, 10), 1)
        high += pressure > TOO_HIGH
        await posts["gauge"].group.broadcast({"reading": reading, "pressure": pressure})
        await asyncio.sleep(0.05)
    while any(len(post.read) < READINGS + high for post in posts.values()):
        await asyncio.sleep(0.02)
    for name, post in posts.items():
        actions = sum("closed for" in body for body in post.read)
        print(f"{name}: {READINGS} readings, {actions} actions, {post.early} before their reading")
    for post in posts.values():
        await post.stop()


async def start_with_a_wrong_clock() -> None:
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    posts = {name: Post(name, ports, "-500ms" if name == "gauge" else "0ms") for name in NAMES}
    for post in posts.values():
        await post.start()
    try:
        await posts["gauge"].group.broadcast({"reading": 0, "pressure": 9.9})
    except antecede.InputError as error:
        print(str(error).split(": ")[0])
    for post in posts.values():
        await post.stop()


def main() -> None:
    asyncio.run(run())
    asyncio.run(start_with_a_wrong_clock())


if __name__ == "__main__":
    main()
