"""Failure detectors on the same network: time-outs learnt from heartbeats, VCube's tests, and SWIM.

Of `SIZES` members one crashes in the middle of a run. Reported are messages a second and member, how long
it takes until the first and until every member knows, and how often a living member is suspected. Usage:
detection.py [size ...]; writes detection.json beside it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import swim
from network import SECOND, Network

from antecede.membership.failure_detection import Diagnosis, HeartbeatDetector, VCubeDetector

SIZES = {10: 20, 100: 2, 1000: 1}
"""The number of members, and of runs."""
SECONDS = {10: 60, 100: 60, 1000: 40}
"""The duration of a run, by size."""
CRASH_AT = 20
REMOVE_AFTER = 2 * SECOND
"""How long members of Antecede's groups suspect another before the first of them removes it."""
OBSERVERS = {10: 9, 100: 9, 1000: 3}
"""Heartbeats are simulated towards this many members only: each hears from all, independently of the
others."""


Removed = dict[tuple[int, int, int], bool]
"""A removal: the member, its remover, since when it has been suspected, and whether wrongly."""


def note_removals(network: Network, observer: int, suspected: dict[int, int], removed: Removed) -> None:
    for member, since in suspected.items():
        if network.now - since >= REMOVE_AFTER:
            removed.setdefault((observer, member, since), network.is_up(member))


def heartbeats(network: Network, interval: float) -> dict[str, Any]:
    nanoseconds = round(interval * SECOND)
    size = network.size
    observers = range(1, 1 + OBSERVERS[size])
    detectors = {each: HeartbeatDetector(nanoseconds) for each in observers}
    found: dict[int, int] = {}
    removed: Removed = {}
    false = 0

    def beat(member: int) -> None:
        if network.is_up(member):
            for to in observers:
                if to != member:
                    network.send(member, to, hear, to, member)
            network.after(interval, beat, member)

    def hear(observer: int, member: int) -> None:
        detectors[observer].hear(member, network.now, is_report=True)

    def check(observer: int) -> None:
        nonlocal false
        for member in detectors[observer].check(network.now):
            if network.is_up(member):
                false += 1
            else:
                found.setdefault(observer, network.now)
        note_removals(network, observer, detectors[observer].suspected, removed)
        network.after(interval, check, observer)

    for member in range(size):
        network.after(network.random.uniform(0, interval), beat, member)
    for observer in observers:
        detectors[observer].watch([each for each in range(size) if each != observer], 0)
        network.after(network.random.uniform(0, interval), check, observer)
    network.at(CRASH_AT * SECOND, network.crash, 0)
    network.run()
    return {
        "messages": (size - 1) / interval,
        "found": [each - CRASH_AT * SECOND for each in found.values()],
        "observers": len(observers),
        "false": false * (size - 1) / len(observers),
        "false_deaths": sum(removed.values()) * (size - 1) / len(observers),
    }


def vcube(network: Network, interval: float) -> dict[str, Any]:
    size = network.size
    detectors = [VCubeDetector(me, SECOND // 10) for me in range(size)]
    waiting: dict[tuple[int, int], int] = {}
    found: dict[int, int] = {}
    removed: Removed = {}
    false = 0
    tests = 0

    def follow(observer: int, diagnosis: Diagnosis) -> None:
        nonlocal false
        for member in diagnosis.suspected:
            if network.is_up(member):
                false += 1
            else:
                found.setdefault(observer, network.now)

    def round_of(me: int) -> None:
        nonlocal tests
        if not network.is_up(me):
            return
        note_removals(network, me, detectors[me].suspected, removed)
        for target in detectors[me].targets():
            if (me, target) not in waiting:
                tests += 1
                waiting[me, target] = tests
                network.send(me, target, on_test, me, target, tests, network.now)
                network.at(network.now + detectors[me].timeout(target), on_timeout, me, target, tests)
        network.after(interval, round_of, me)

    def on_test(me: int, target: int, number: int, sent: int) -> None:
        network.send(target, me, on_answer, me, target, number, sent, detectors[target].answer())

    def on_answer(me: int, target: int, number: int, sent: int, events: dict[int, int]) -> None:
        if waiting.get((me, target)) == number:
            del waiting[me, target]
        follow(me, detectors[me].on_answer(target, events, network.now - sent, network.now))

    def on_timeout(me: int, target: int, number: int) -> None:
        if waiting.get((me, target)) == number and network.is_up(me):
            del waiting[me, target]
            follow(me, detectors[me].on_timeout(target, network.now))

    for me in range(size):
        detectors[me].watch(range(size))
        network.after(network.random.uniform(0, interval), round_of, me)
    network.at(CRASH_AT * SECOND, network.crash, 0)
    network.run()
    return {
        "messages": network.sent / size / SECONDS[size],
        "found": [each - CRASH_AT * SECOND for each in found.values()],
        "observers": size - 1,
        "false": false,
        "false_deaths": sum(removed.values()),
    }


def swim_run(network: Network) -> dict[str, Any]:
    group = swim.Group(network)
    network.at(CRASH_AT * SECOND, network.crash, 0)
    network.run()
    found = [
        when for (_, member), when in group.dead_known.items() if member == 0 and when >= CRASH_AT * SECOND
    ]
    first = group.suspected.get(0)
    return {
        "messages": network.sent / network.size / SECONDS[network.size],
        "suspected": None if first is None else (first - CRASH_AT * SECOND) / SECOND,
        "found": [each - CRASH_AT * SECOND for each in found],
        "observers": network.size - 1,
        "false": group.false_suspicions,
        "false_deaths": group.false_deaths,
    }


DETECTORS = {
    "heartbeats, 100 ms": lambda network: heartbeats(network, 0.1),
    "heartbeats, 1 s": lambda network: heartbeats(network, 1.0),
    "vcube tests, 1 s": lambda network: vcube(network, 1.0),
    "SWIM (memberlist)": swim_run,
}


def row(name: str, size: int, stalls: bool) -> dict[str, Any]:
    start = time.process_time()
    runs = [DETECTORS[name](Network(size, SECONDS[size], seed, stalls)) for seed in range(SIZES[size])]
    latest = [max(run["found"]) / SECOND for run in runs if len(run["found"]) == run["observers"]]
    hours = len(runs) * size * SECONDS[size] / 3600
    suspected = [run["suspected"] for run in runs if run.get("suspected") is not None]
    first = suspected or [min(run["found"]) / SECOND for run in runs if run["found"]]
    return {
        "detector": name,
        "members": size,
        "stalls": stalls,
        "runs": len(runs),
        "messages a second and member": round(fmean(run["messages"] for run in runs), 2),
        "first suspicion, s": round(fmean(first), 2) if first else None,
        "known to all, s": round(fmean(latest), 2) if latest else None,
        "known to all in runs": len(latest),
        "false suspicions a member and hour": round(sum(run["false"] for run in runs) / hours, 2),
        "false deaths a member and hour": round(sum(run.get("false_deaths", 0) for run in runs) / hours, 3),
        "cpu seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or list(SIZES)
    file = Path(__file__).with_name("detection.json")
    rows = [
        each
        for each in (json.loads(file.read_text()) if file.exists() else [])
        if each["members"] not in sizes
    ]
    for size in sizes:
        for stalls in (False, True):
            for name in DETECTORS:
                rows.append(row(name, size, stalls))
                print(rows[-1], flush=True)
                file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
