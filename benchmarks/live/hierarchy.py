"""Control bytes of a live group of 200 on the wire: super peers on one and two levels, and `mbcp`.

    ./dev python benchmarks/live/hierarchy.py [--members 200] [--save]

The cores, links and frames of live members, in one process, with a clock of their own: every frame is
encoded, counted, carried with a delay of 5 to 50 ms, in order on each link, and decoded. Members have no
store, and applications accept deliveries at once. All members broadcast 8 bytes at random times, 100 or 1,000
messages a second in all; then the group continues until every member knows that everything is stable. What is
not body is control information: of *packets* what protocols and envelopes add (who, when, numbers, causes),
and of the other frames all (acks, and reports of what is delivered).
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from antecede.live.core import Core
from antecede.live.events import Life
from antecede.live.ready import send_and_advance
from antecede.live.settings import Member, Roster
from antecede.live.transport.frames import Ack, Frame, Greeting, Packets, Progress, decode, encode
from antecede.live.transport.links import Links
from antecede.live.transport.outbox import CHAIN_START

HERE = Path(__file__).parent
SECOND = 1_000_000_000
TICK = SECOND // 5
BODY = b"12345678"
LENGTH = 4
"""Bytes in front of each frame."""
MESSAGES = {100: 100, 1000: 250}
"""The number of messages broadcast at each rate, by messages per second."""
KINDS = {Packets: "packets", Ack: "acks", Progress: "reports"}


def levels(members: int, supers: int, inner: int) -> list[Member]:
    """Super peers of the highest level, `inner` more of a second one, and phones behind the lowest."""
    top = [Member(f"super{number}") for number in range(supers)]
    middle = [Member(f"inner{number:02}", behind=f"super{number % supers}") for number in range(inner)]
    homes = middle or top
    phones = range(members - supers - inner)
    return [*top, *middle, *(Member(f"p{each:03}", behind=homes[each % len(homes)].name) for each in phones)]


def arrangements(members: int) -> dict[str, tuple[str, list[Member]]]:
    return {
        "mbcp": ("mbcp", [Member(f"p{number:03}") for number in range(members)]),
        "8 super peers": ("freescale", levels(members, 8, 0)),
        "8 super peers behind 2": ("freescale", levels(members, 2, 8)),
    }


class Network:
    """Members whose frames are delayed."""

    def __init__(self, protocol: str, members: list[Member], seed: int) -> None:
        self.roster = Roster.create(protocol, members)
        self.cores = [
            Core(self.roster.create_protocol(name), durable=False, own=False) for name in self.roster.names
        ]
        self.links = [Links(core, Counter()) for core in self.cores]
        self.random = random.Random(seed)
        self.now = SECOND
        self.deliveries = 0
        self.events: list[tuple[int, int, int, int, bytes]] = []
        self.last: dict[tuple[int, int], int] = {}
        self.bytes: Counter[str] = Counter()
        self.packets: Counter[str] = Counter()
        for core, links in zip(self.cores, self.links, strict=True):
            for peer, link in links.by_peer.items():
                link.open(self._greeting(peer, core.me), self.seconds)

    def _greeting(self, me: int, you: int) -> Greeting:
        names, name = self.roster.names, self.roster.protocol.name
        lives = [Life("life", 0)]
        return Greeting(5, "g", name, [], names[me], names[you], lives, [], 1, 0, CHAIN_START)

    @property
    def seconds(self) -> float:
        return self.now / SECOND

    def broadcast(self) -> None:
        rank = self.random.randrange(len(self.cores))
        self.cores[rank].broadcast(BODY, self.now)
        self.go_on(rank)

    def go_on(self, rank: int, heard: Iterable[int] = ()) -> None:
        """Process the consequences at a member that has received frames: deliveries, and frames that leave
        it."""
        core, links = self.cores[rank], self.links[rank].by_peer
        ready = core.ready()
        send_and_advance(core, ready)
        while core.next_delivery(self.now, acks=True) is not None:
            self.deliveries += 1
        for peer in {*ready.packets, *heard}:
            for frame in links[peer].take_frames(self.seconds):
                self._send(rank, peer, frame)

    def _send(self, rank: int, peer: int, frame: Frame) -> None:
        data = encode(frame)
        kind = KINDS.get(type(frame), "others")
        self.bytes[kind] += len(data) + LENGTH
        if isinstance(frame, Packets):
            self._count_packets(frame.bodies)
        arrival = self.now + self.random.randint(SECOND // 200, SECOND // 20)
        arrival = self.last[rank, peer] = max(arrival, self.last.get((rank, peer), 0) + 1)
        heapq.heappush(self.events, (arrival, len(self.last), rank, peer, data))

    def _count_packets(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            packet = self.cores[0].protocol.decode(body)
            name = packet.metric_prefix()
            carries = len(packet.message_ids()) or len(packet.spans())
            self.packets[name] += 1
            self.packets[f"{name} bytes"] += len(body) - carries * len(BODY)
            self.bytes["bodies"] += carries * len(BODY)
            self.packets[f"{name} bits"] += self.cores[0].protocol.paper_bytes(packet)

    def run_until(self, end: int) -> None:
        """Deliver frames, and let every member report five times a second."""
        while self.events and self.events[0][0] <= end:
            self.now, _, rank, peer, data = heapq.heappop(self.events)
            self.links[peer].by_peer[rank].receive(decode(data), self.seconds, self.now)
            self.go_on(peer, [rank])
        self.now = end

    def tick(self) -> None:
        for rank, links in enumerate(self.links):
            links.gossip(self.now, SECOND)
            self.go_on(rank, links.by_peer)

    @property
    def is_stable(self) -> bool:
        return not any(core.stability.unstable_bytes for core in self.cores)


def measure(protocol: str, members: list[Member], messages: int, rate: float, seed: int) -> dict[str, Any]:
    network = Network(protocol, members, seed)
    times = [network.random.uniform(0, messages / rate) for _ in range(messages)]
    due, next_tick = sorted(SECOND + round(each * SECOND) for each in times), SECOND + TICK
    while due or not network.is_stable:
        end = min(due[0], next_tick) if due else next_tick
        network.run_until(end)
        if due and due[0] == end:
            due.pop(0)
            network.broadcast()
        else:
            network.tick()
            next_tick += TICK
    deliveries = messages * (len(members) - 1)
    if network.deliveries != deliveries:
        raise AssertionError(f"{network.deliveries} deliveries of {deliveries}")
    kinds = {
        name: {
            "packets": count,
            "control_bytes": network.packets[f"{name} bytes"] / count,
            "paper_bytes": network.packets[f"{name} bits"] / count,
        }
        for name, count in sorted(network.packets.items())
        if " " not in name
    }
    network.bytes["packets"] -= network.bytes.pop("bodies")
    return {
        "messages": messages,
        "deliveries": deliveries,
        "seconds_until_stable": network.seconds - 1,
        "packets": kinds,
        "a_delivery": {kind: count / deliveries for kind, count in sorted(network.bytes.items())},
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--members", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--save", action="store_true")
    chosen = options.parse_args()
    results: dict[str, Any] = {"members": chosen.members, "seed": chosen.seed}
    for rate, messages in MESSAGES.items():
        found = results[f"{rate} a second"] = {}
        for name, (protocol, members) in arrangements(chosen.members).items():
            began = time.process_time()
            found[name] = measure(protocol, members, messages, rate, chosen.seed)
            show(f"{rate} a second, {name}", found[name], time.process_time() - began)
    if chosen.save:
        (HERE / "hierarchy.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def show(title: str, found: dict[str, Any], spent: float) -> None:
    costs = ", ".join(f"{kind} {each['control_bytes']:.1f} B" for kind, each in found["packets"].items())
    wire = ", ".join(f"{kind} {each:.1f} B" for kind, each in found["a_delivery"].items())
    print(f"{title}: in a packet {costs}; a delivery {wire}; {spent:.0f} s CPU", flush=True)


if __name__ == "__main__":
    main()
