"""The three clocks of subgroups beside each other: how long a delivery takes, what a message costs, and
whether any order is wrong, on one machine with links that are slow at random and clocks that are set wrong.

    ./dev python benchmarks/live/clock_kinds.py

A subgroup of a gateway and three others, and another site that is a gateway alone. Every member of the
subgroup broadcasts, and replies to every fifth message delivered to it. On real time, bounds of 100 ms and 20
ms are promised. In `real, clock set` one clock is set 300 ms ahead once the clocks have been compared. The
oracle judges what the applications delivered. Latencies are by the clock of this process, in which all
members run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

from antecede.causality.execution import Execution, Kind, MessageId, Step
from antecede.causality.oracle import judge
from antecede.live.clock import MemberClock
from antecede.live.messages import Message
from antecede.live.settings import Settings
from antecede.live.subgroups.group import SubgroupMember

INSIDE, OUTSIDE = ["g", "p", "q", "r"], "z"
NAMES = [*INSIDE, OUTSIDE]
KINDS = {
    "real": ("real 100ms 20ms", 0.0),
    "real, clock set": ("real 100ms 20ms", 0.3),
    "linear": ("linear", 0.0),
    "vector": ("vector", 0.0),
}
AHEAD = {"g": "0ms", "p": "9ms", "q": "-9ms", "r": "5ms", "z": "0ms"}
ANSWERED_EVERY = 5


class SettableClock(MemberClock):
    def __init__(self, ahead: int) -> None:
        super().__init__()
        self.ahead = ahead

    def now(self) -> int:
        return super().now() + self.ahead


class Site:
    """One member and its application."""

    def __init__(self, trial: Trial, me: str, clock: str, ports: dict[str, int], delay: str) -> None:
        self.trial, self.me, self.given, self.steps = trial, me, 0, list[Step]()
        peers = [
            {"name": name, "at": f"127.0.0.1:{ports[name]}", "behind": "g" if name in INSIDE[1:] else None}
            for name in NAMES
            if name != me
        ]
        settings = Settings.create(
            group="kinds",
            me=me,
            peers=peers,
            behind="g" if me in INSIDE[1:] else None,
            protocol="hcg",
            listen=f":{ports[me]}",
            subgroups={"g": clock},
            faults={"delay": delay, "clock": AHEAD[me]},
        )
        ahead = settings.faults.clock_offset() if settings.faults is not None else 0
        self.time = SettableClock(ahead)
        self.group = SubgroupMember(settings, self.time)

    async def send(self) -> None:
        message = await self.group.broadcast(b"12345678")
        self._note(Kind.SEND, message.origin, message.seq)
        self.trial.sent_at[message.origin, message.seq] = time.monotonic()

    def _note(self, kind: Kind, origin: str, seq: int) -> None:
        self.steps.append(Step(kind, MessageId(NAMES.index(origin), seq)))

    async def listen(self) -> None:
        async for message in self.group:
            if not message.own:
                self._take(message)
                if self.me != OUTSIDE and self.given % ANSWERED_EVERY == 0 and self.trial.is_sending:
                    await self.send()

    def _take(self, message: Message) -> None:
        self.given += 1
        self._note(Kind.DELIVER, message.origin, message.id.seq)
        took = time.monotonic() - self.trial.sent_at[message.origin, message.id.seq]
        self.trial.latencies["outside" if self.me == OUTSIDE else "inside"].append(took)


class Trial:
    def __init__(self) -> None:
        self.sent_at: dict[tuple[str, int], float] = {}
        self.latencies: dict[str, list[float]] = {"inside": [], "outside": []}
        self.is_sending = True

    async def run(self, kind: str, seconds: float, rate: float, delay: str) -> dict[str, Any]:
        clock, jump = KINDS[kind]
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NAMES]
        ports = {name: each.getsockname()[1] for name, each in zip(NAMES, sockets, strict=True)}
        for each in sockets:
            each.close()
        sites = {name: Site(self, name, clock, ports, delay) for name in NAMES}
        for site in sites.values():
            await site.group._start()
        listening = [asyncio.create_task(site.listen()) for site in sites.values()]
        await asyncio.gather(*(sites[name].send() for name in INSIDE))
        await self._until_all_have(sites)
        self.latencies = {"inside": [], "outside": []}
        before, messages = self._wire_bytes(sites), len(self.sent_at)
        if jump:
            sites["p"].time.ahead += round(jump * 1e9)
        end, problems = time.monotonic() + seconds, Counter[str]()
        while time.monotonic() < end:
            await asyncio.gather(*(sites[name].send() for name in INSIDE))
            await asyncio.sleep(1 / rate)
            problems.update({each.kind for site in sites.values() for each in site.group.problems()})
        self.is_sending = False
        await self._until_all_have(sites)
        wire, messages = self._wire_bytes(sites) - before, len(self.sent_at) - messages
        for task in listening:
            task.cancel()
        await asyncio.gather(*(site.group.aclose() for site in sites.values()))
        judgement = judge(Execution([sites[name].steps for name in NAMES], {}, NAMES))
        return {
            "kind": kind,
            "messages": messages,
            "wire bytes a message": round(wire / messages),
            **{f"{where} ms": _percentiles(found) for where, found in self.latencies.items()},
            "said that a promise is broken": bool(problems["bounds"]),
            "wrong orders": judgement.verdict.causal_violations,
            "complete": judgement.verdict.clean,
        }

    @staticmethod
    def _wire_bytes(sites: dict[str, Site]) -> int:
        return sum(site.group.counts["wire bytes"] for site in sites.values())

    async def _until_all_have(self, sites: dict[str, Site]) -> None:
        while True:
            counts = Counter(origin for origin, _ in self.sent_at)
            due = {name: len(self.sent_at) - counts[name] for name in NAMES}
            if all(site.given >= due[name] for name, site in sites.items()):
                return
            await asyncio.sleep(0.05)


def _percentiles(seconds: list[float]) -> list[float]:
    """The median and the 95th and 99th percentiles, in milliseconds."""
    found = sorted(seconds)
    return [round(1000 * found[int(len(found) * share)], 1) for share in (0.5, 0.95, 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=5.0, help="messages of each member a second")
    parser.add_argument("--delay", default="0ms-20ms")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "clock_kinds.json")
    given = parser.parse_args()
    rows = []
    for kind in KINDS:
        rows.append(asyncio.run(Trial().run(kind, given.seconds, given.rate, given.delay)))
        print(json.dumps(rows[-1]), flush=True)
    given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
