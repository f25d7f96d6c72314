"""Other message buses, each with members that send to all and receive from all: NATS and ZeroMQ.

    python other_buses.py nats|zeromq MEMBER MEMBERS MESSAGES BYTES PORT

A member prints `ready`, waits for a line with the start time, sends its share, receives what all others
send, and reports as the members of `antecede load` do. Both keep FIFO order and store nothing on disk;
JGroups (Jgroups.java) also has total order.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import Any

_TIME = struct.Struct("<qq")


class Received:
    """The messages that a member has received."""

    def __init__(self, me: int, expected: int) -> None:
        self.me, self.expected = me, expected
        self.delivered = 0
        self.latencies: dict[int, int] = {}
        self.done = asyncio.Event()
        self.last = 0
        if not expected:
            self.done.set()

    def add(self, data: bytes) -> None:
        now = time.monotonic_ns()
        sent, origin = _TIME.unpack_from(data)
        if origin == self.me:
            return
        self.delivered += 1
        took = now - sent
        shift = max(0, took.bit_length() - 7)
        place = took >> shift << shift
        self.latencies[place] = self.latencies.get(place, 0) + 1
        if self.delivered == self.expected:
            self.last = now
            self.done.set()

    def report(self, began: float) -> None:
        report = {
            "name": str(self.me),
            "delivered": self.delivered,
            "last": self.last,
            "latencies": {str(value): count for value, count in self.latencies.items()},
            "wire_bytes": 0,
            "cpu": time.process_time() - began,
            "memory": 0,
        }
        print(json.dumps(report), flush=True)


async def begin() -> float:
    """Print `ready`, and wait for the common start."""
    print("ready", flush=True)
    start = int(await asyncio.to_thread(sys.stdin.readline))
    await asyncio.sleep(max(0.0, (start - time.monotonic_ns()) / 1e9))
    return time.process_time()


def body(me: int, size: int) -> bytes:
    return _TIME.pack(time.monotonic_ns(), me) + b"\0" * (size - _TIME.size)


async def nats(me: int, members: int, messages: int, size: int, port: int) -> None:
    """Every member publishes to one subject and subscribes to it, through nats-py."""
    import nats as library

    received = Received(me, messages * (members - 1))
    connection: Any = await library.connect(f"nats://127.0.0.1:{port}", pending_size=1 << 26)

    async def receive(message: Any) -> None:
        received.add(message.data)

    await connection.subscribe("room", cb=receive, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await connection.flush()
    began = await begin()
    for number in range(messages):
        await connection.publish("room", body(me, size))
        if number % 256 == 255:
            await asyncio.sleep(0)
    await received.done.wait()
    received.report(began)
    # The others may not have received everything yet.
    await asyncio.sleep(1.0)
    await connection.close()


async def zeromq(me: int, members: int, messages: int, size: int, port: int) -> None:
    """Every member binds a publisher and subscribes to all others, through pyzmq."""
    import zmq
    import zmq.asyncio

    context = zmq.asyncio.Context()
    publisher, subscriber = context.socket(zmq.PUB), context.socket(zmq.SUB)
    publisher.set_hwm(0)
    subscriber.set_hwm(0)
    publisher.bind(f"tcp://127.0.0.1:{port + me}")
    subscriber.subscribe(b"")
    for other in range(members):
        if other != me:
            subscriber.connect(f"tcp://127.0.0.1:{port + other}")
    await asyncio.sleep(2.0)  # Subscriptions travel; a message published before they arrive is lost.
    received = Received(me, messages * (members - 1))
    began = await begin()

    async def listen() -> None:
        while not received.done.is_set():
            received.add(await subscriber.recv())

    async def send() -> None:
        for number in range(messages):
            await publisher.send(body(me, size))
            if number % 256 == 255:
                await asyncio.sleep(0)

    await asyncio.gather(listen(), send())
    received.report(began)
    await asyncio.sleep(1.0)
    context.destroy(linger=0)


if __name__ == "__main__":
    who, *rest = sys.argv[1:]
    asyncio.run({"nats": nats, "zeromq": zeromq}[who](*map(int, rest)))
