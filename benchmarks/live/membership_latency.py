"""How long a newcomer and a healed partition take, if every link has a delay of 100 ms in each direction.

    .venv/bin/python benchmarks/live/membership_latency.py [--delay 100] [--times 5]

All members are in one process, on real sockets; a relay delays what each connection carries, and its TCP
handshake. A round
trip is twice the delay. Four figures:

- *join*: from the answer of its contact, a welcome with a snapshot, to the first causal delivery to the
  newcomer, while another member broadcasts all the time. The aim is two round trips.
- *first*: the same if that other member has been silent, and broadcasts one message when the answer arrives.
- *heal*: connections between two sides are dropped for a while, and both sides broadcast. Measured from the
  end of the partition until all members have everything. The aim is one second and one round trip.
- *namespaces* (as root on Linux): the same with a process in a network namespace for each of eight members,
  three of them apart, for one to six seconds. Packets are dropped silently. There are no delays, so the aim
  is one second.
- *routed*: the same with permanent entries for the hardware addresses of the other hosts, as if there were a
  router in between. Otherwise the kernel asks for them once a second, and nothing arrives before that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import antecede
from antecede.live.group import Group
from antecede.live.transport.wires import TcpWire
from antecede.live.trial import churn
from antecede.live.trial.networks import Namespaces, TrialNetwork, _host, _ip, create_network

_HERE = Path(__file__).parent


class DelayedLinks:
    """Relays every connection that a member makes: each byte arrives after this delay, following a TCP
    handshake."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._dial = TcpWire.dial
        self._tasks: set[asyncio.Task[None]] = set()

    async def dial(self, where: str, *options: Any) -> TcpWire:
        host, _, port = where.rpartition(":")
        await asyncio.sleep(2 * self._seconds)  # SYN, and its answer.
        there = await asyncio.open_connection(host, int(port))
        connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(self._relay(reader, there[1]))
            self._spawn(self._relay(there[0], writer))
            connected.set_result(None)

        relay = await asyncio.start_server(serve, "127.0.0.1", 0)
        place = "{}:{}".format(*relay.sockets[0].getsockname())
        wire = await self._dial(place, *options)
        await connected
        relay.close()
        return wire

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Any number of chunks may be in flight."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                under_way.put_nowait((time.monotonic() + self._seconds, data))

        self._spawn(read())
        while True:
            at, data = await under_way.get()
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if not data:
                break
            writer.write(data)
        writer.close()


class Member:
    """A member, and the messages delivered to its application, with times."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.times: list[float] = []
        self.restored = 0.0
        self.group: Group

    async def join(self, **options: Any) -> None:
        self.group = await antecede.join(
            "latency", snapshot=self.dump, restore=self.load, sync=False, listen=":0", **options
        )
        self.reading = asyncio.create_task(self._read())

    def dump(self) -> bytes:
        return json.dumps(self.bodies).encode()

    def load(self, state: bytes) -> None:
        self.bodies, self.restored = json.loads(state), time.monotonic()

    async def _read(self) -> None:
        async for message in self.group:
            self.bodies.append(message.body)
            self.times.append(time.monotonic())

    async def close(self) -> None:
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        await self.group.aclose()


async def begin(folder: Path, names: list[str]) -> dict[str, Member]:
    """A founder, and others that join."""
    members = {name: Member() for name in names}
    first = names[0]
    await members[first].join(me=first, founders=[first], store=folder / first)
    for name in names[1:]:
        at = f"{first}@{members[first].group.address}"
        await members[name].join(me=name, contact=at, store=folder / name)
    everyone = [member.group for member in members.values()]
    while not all(len(each.view) == len(names) == len(each.connected) + 1 for each in everyone):
        await asyncio.sleep(0.01)
    return members


async def measure_join(folder: Path, times: int) -> list[float]:
    members = await begin(folder, ["ana", "bo", "cy"])
    found = []

    async def talk() -> None:
        while True:
            await members["bo"].group.broadcast("tick")
            await asyncio.sleep(0.01)

    talking = asyncio.create_task(talk())
    for number in range(times):
        newcomer = Member()
        at = f"ana@{members['ana'].group.address}"
        await newcomer.join(me=f"new{number}", contact=at, store=folder / f"new{number}")
        while not newcomer.times:
            await asyncio.sleep(0.001)
        found.append(newcomer.times[0] - newcomer.restored)
        await newcomer.group.leave()
        await newcomer.close()
    talking.cancel()
    for member in members.values():
        await member.close()
    return found


async def measure_first(folder: Path, times: int) -> list[float]:
    members = await begin(folder, ["ana", "bo", "cy"])
    found = []
    for number in range(times):
        newcomer = Member()
        at = f"ana@{members['ana'].group.address}"
        joining = asyncio.create_task(
            newcomer.join(me=f"new{number}", contact=at, store=folder / f"new{number}")
        )
        while not newcomer.restored:
            await asyncio.sleep(0.001)
        await members["bo"].group.broadcast("first")
        while not newcomer.times:
            await asyncio.sleep(0.001)
        found.append(newcomer.times[0] - newcomer.restored)
        await joining
        await newcomer.group.leave()
        await newcomer.close()
    for member in members.values():
        await member.close()
    return found


async def measure_heal(folder: Path, times: int, apart_seconds: float) -> list[float]:
    members = await begin(folder, ["ana", "bo", "cy", "dee"])
    sides = [["ana", "bo"], ["cy", "dee"]]
    found = []
    for number in range(times):
        for side, other in (sides, reversed(sides)):
            for name in side:
                members[name].group._connections.cut_off(list(other))
        expected = set[str]()
        until = time.monotonic() + apart_seconds
        while time.monotonic() < until:
            for name, member in members.items():
                expected.add(body := f"{name} {number} {len(expected)}")
                await member.group.broadcast(body)
            await asyncio.sleep(0.05)
        for member in members.values():
            member.group._connections.cut_off([])
        began = time.monotonic()
        while not all(expected <= set(member.bodies) for member in members.values()):
            await asyncio.sleep(0.002)
        found.append(time.monotonic() - began)
    for member in members.values():
        await member.close()
    return found


def _fix_neighbours(network: TrialNetwork, slots: int) -> None:
    """Give each host permanent entries for the hardware addresses of the others, as for a router."""
    if not isinstance(network, Namespaces):
        return
    names = {slot: network._namespace(slot) for slot in range(1, slots + 1)}
    hardware = {slot: f"02:00:00:00:00:{slot:02x}" for slot in names}
    for slot, name in names.items():
        _ip("-n", name, "link", "set", "eth0", "address", hardware[slot])
        for other in names.keys() - {slot}:
            where = [_host(other), "lladdr", hardware[other], "dev", "eth0", "nud", "permanent"]
            _ip("-n", name, "neigh", "replace", *where)


async def measure_namespaces(folder: Path, times: int, has_neighbours: bool) -> list[float]:
    """Empty if this process may not create namespaces."""
    folder.mkdir()
    plan = churn.ChurnPlan(size=8, rate=1.0, seconds=10.0, messages=500)
    trial = churn.ChurnTrial(plan, folder, None, lambda *_: None)
    trial._network = create_network(plan.size)
    if has_neighbours:
        _fix_neighbours(trial._network, plan.size)
    found: list[float] = []
    try:
        await trial._processes.open()
        try:
            await trial._found()
            workers = list(trial._workers.values())
            for number in range(times if trial._network.can_divide else 0):
                await asyncio.gather(*(each.ask("broadcast", may=True) for each in workers))
                await asyncio.sleep(2.0)
                await trial._divide([each.name for each in workers[:3]])
                await asyncio.sleep(1.0 + 5.0 * number / max(1, times - 1))
                await asyncio.gather(*(each.ask("broadcast", may=False) for each in workers))
                began = time.monotonic()
                await trial._divide([])
                states = ["", "-"]
                while len(set(states)) > 1:
                    states = [(await each.ask("status"))["state"] for each in workers]
                found.append(time.monotonic() - began)
        finally:
            await trial._processes.close()
    finally:
        trial._network.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=int, default=100, help="milliseconds in each direction")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--apart", type=float, default=3.0, help="seconds of a partition")
    options = parser.parse_args()
    TcpWire.dial = DelayedLinks(options.delay / 1000).dial  # type: ignore[method-assign,assignment]
    results: dict[str, Any] = {"delay_ms": options.delay, "round_trip_ms": 2 * options.delay}
    with tempfile.TemporaryDirectory() as folder:
        join = asyncio.run(measure_join(Path(folder) / "join", options.times))
        first = asyncio.run(measure_first(Path(folder) / "first", options.times))
        namespaces, routed = (
            asyncio.run(measure_namespaces(Path(folder) / name, options.times, name == "routed"))
            for name in ("namespaces", "routed")
        )
        heal = asyncio.run(measure_heal(Path(folder) / "heal", options.times, options.apart))
    for name, values, aim in (
        ("join", join, 4 * options.delay / 1000),
        ("first", first, 4 * options.delay / 1000),
        ("heal", heal, 1 + 2 * options.delay / 1000),
        ("namespaces", namespaces, 1.0),
        ("routed", routed, 1.0),
    ):
        if not values:
            continue
        results[name] = {
            "seconds": [round(value, 3) for value in values],
            "median": round(statistics.median(values), 3),
            "worst": round(max(values), 3),
            "aim": aim,
        }
    print(json.dumps(results, indent=2))
    with contextlib.suppress(OSError):
        (_HERE / "membership_latency.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
