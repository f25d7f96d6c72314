"""Crashes in fixed overlays and in VCube's trees.

1. Paper 002: a hypercube of n nodes has log2 n paths between any two, so flooding loses nothing with up to
   log2 n - 1 crashes. Processes crash at random moments, each in the midst of sending: any part of what it
   has in flight is lost. A run loses something if survivors do not deliver the same messages, or not all
   that survivors sent. With log2 n crashes it may: the last column crashes all neighbours of one node.
2. Paper 004: `vcube` in a changing group, where members find out who is down by reports. Latency and packets
   by the number of crashed nodes, compared with a reliable broadcast in which every member forwards every
   message to all others.

Usage: crashes.py [runs]; writes crashes.json beside it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from antecede.causality import MessageId
from antecede.overlay.hypercube import hypercube
from antecede.protocols.flooding import Flooding
from antecede.protocols.pc import Pc
from antecede.sim import DirectNetwork, Periodic, parse_delay, scenario, simulate
from antecede.sim.changes import Crash
from antecede.sim.faulty_world import FaultyWorld
from antecede.sim.metrics import Meter
from antecede.units import SECOND

SENDING = SECOND // 2


class Seen:
    """What each process has sent and delivered."""

    def __init__(self, size: int) -> None:
        self.sent: list[set[MessageId]] = [set() for _ in range(size)]
        self.seen: list[set[MessageId]] = [set() for _ in range(size)]

    def send(self, process: int, message: MessageId, *_: Any) -> None:
        self.sent[process].add(message)
        self.seen[process].add(message)

    def receive(self, *_: Any) -> None:
        pass

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self.seen[process].add(message)

    def lost(self, crashed: set[int]) -> bool:
        """Whether a survivor lacks a message that another survivor has or has sent."""
        alive = [process for process in range(len(self.seen)) if process not in crashed]
        owed = set().union(*(self.seen[process] for process in alive))
        return any(owed - self.seen[process] for process in alive)


def flooded(
    kind: Any, overlay: list[tuple[int, ...]], crashes: list[Crash], seed: int
) -> tuple[Seen, Meter, FaultyWorld]:
    size = len(overlay)
    network = DirectNetwork(seed, parse_delay("1-100ms"), fifo=True)
    seen, meter = Seen(size), Meter()
    workload = Periodic(seed, SECOND // 10, SECOND // 20)
    world = FaultyWorld(
        kind.on_overlay(overlay),
        network,
        workload,
        [seen, meter],
        changes=crashes,
        seed=seed,
        until=SENDING,
        payload=b"x" * 100,
    )
    world.run()
    return seen, meter, world


def losses(kind: Any, size: int, count: int, runs: int, neighbours_only: bool = False) -> int:
    """The number of runs in which something is lost."""
    found = 0
    overlay = hypercube(size)
    for seed in range(runs):
        pick = random.Random(seed)
        victims = list(overlay[pick.randrange(size)]) if neighbours_only else pick.sample(range(size), count)
        crashes = sorted(Crash(pick.randrange(SENDING), victim) for victim in victims)
        seen, _, _ = flooded(kind, overlay, crashes, seed)
        found += seen.lost(set(victims))
    return found


def hypercubes(runs: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for kind in (Flooding, Pc):
        for size in (8, 16):
            degree = size.bit_length() - 1
            for count in range(1, degree + 1):
                row: dict[str, Any] = {"protocol": kind.name, "nodes": size, "crashes": count, "runs": runs}
                row["runs that lose"] = losses(kind, size, count, runs)
                if count == degree:
                    row["all neighbours of one crash: runs that lose"] = losses(kind, size, count, runs, True)
                rows.append(row)
                print(row, flush=True)
    return rows


def trees(runs: int, size: int = 16) -> list[dict[str, Any]]:
    everybody = [tuple(other for other in range(size) if other != peer) for peer in range(size)]
    rows: list[dict[str, Any]] = []
    for count in (0, 1, 2, 4, 6):
        vcube, flood = [], []
        for seed in range(runs):
            pick = random.Random(seed)
            crashes = [Crash(pick.randrange(SENDING), victim) for victim in pick.sample(range(size), count)]
            faults = [f"crash:{crash.time}ns:{crash.peer}" for crash in crashes]
            chosen = scenario(
                protocol="vcube", peers=size, seconds=SENDING / SECOND, rate=10, delay="1-100ms", seed=seed,
                faults=faults, detector="adaptive,report=100ms,remove=1s",
            )  # fmt: skip
            metrics = simulate(chosen).metrics
            reports = (
                metrics.measured["report_packets"]
                + metrics.measured["removal_packets"] * metrics.measured["removals"]
            )
            vcube.append((metrics, (metrics.packets - reports) / metrics.messages))
            _, meter, world = flooded(Flooding, everybody, crashes, seed)
            measured = meter.metrics(world.packets, 0, 0, 0, {})
            flood.append((measured, measured.packets / measured.messages))
        row: dict[str, Any] = {"nodes": size, "crashes": count, "runs": runs}
        for name, found in (("vcube", vcube), ("all to all", flood)):
            row[f"{name}: mean latency, ms"] = round(
                fmean(each.latency_mean_ns for each, _ in found) / 1e6, 1
            )
            row[f"{name}: longest latency, ms"] = round(max(each.latency_max_ns for each, _ in found) / 1e6)
            row[f"{name}: packets a message"] = round(fmean(packets for _, packets in found), 1)
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    start = time.process_time()
    found: dict[str, Any] = {"hypercubes": hypercubes(runs), "trees": trees(max(1, runs // 10))}
    found["cpu seconds"] = round(time.process_time() - start)
    Path(__file__).with_name("crashes.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
