"""A ring of groups that overlap, as real processes on this machine: each is in two groups, and is killed with
`kill -9` again and again. The oracle judges what their applications were given.

    ./dev python benchmarks/live/overlapping.py --processes 12 --groups 6 --messages 10000 --kill-every 0.5

`--one-group` sends the same to one group of everybody, for comparison of bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import antecede
from antecede.causality.execution import Execution, Kind, MessageId, Step
from antecede.causality.oracle import judge

_PAUSE = 0.02


def ring(processes: int, groups: int) -> dict[str, list[str]]:
    """Group g has the processes of its place and of the next one."""
    names = [f"p{each:02}" for each in range(processes)]
    return {
        f"g{group}": [
            name for rank, name in enumerate(names) if rank % groups in (group, (group + 1) % groups)
        ]
        for group in range(groups)
    }


# One process


async def work(folder: Path, me: str) -> None:
    setup = json.loads((folder / "setup.json").read_text())
    groups, ports = setup["groups"], setup["ports"]
    log = folder / f"{me}.log"
    lines = log.read_text().splitlines() if log.exists() else []
    sent = sum(line.startswith("send") for line in lines)
    seen = {line for line in lines if line.startswith("deliver")}
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = folder / me
    async with antecede.connect(me=me, listen=f":{ports[me]}", store=store, sync=False) as node:
        joined = [
            await node.join(group, founders=[f"{name}@127.0.0.1:{ports[name]}" for name in members])
            for group, members in groups.items()
            if me in members
        ]

        async def read() -> None:
            async for message in node:
                line = f"deliver {message.group} {message.body.rstrip()}"  # type: ignore[attr-defined]
                if not message.redelivered or line not in seen:
                    seen.add(line)
                    os.write(out, (line + "\n").encode())

        async def write() -> None:
            nonlocal sent
            while sent < setup["each"]:
                sent += 1
                group = joined[sent % len(joined)]
                os.write(out, f"send {group.name} {me}:{sent}\n".encode())
                await group.broadcast(f"{me}:{sent}".ljust(setup["bytes"]))
                os.write(out, f"accepted {me}:{sent}\n".encode())
                await asyncio.sleep(_PAUSE)

        async def count() -> None:
            while True:
                await asyncio.sleep(0.5)
                total = sum(group.counts["wire bytes"] for group in joined)
                (folder / f"{me}.bytes.{os.getpid()}").write_text(f"{total} {node.connections}")

        readers = asyncio.gather(read(), write(), count())
        while not (folder / "stop").exists():
            await asyncio.sleep(0.2)
            if readers.done():
                readers.result()
        readers.cancel()


# All of them


class Trial:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        if options.one_group:
            self.groups = {"all": [f"p{each:02}" for each in range(options.processes)]}
        else:
            self.groups = ring(options.processes, options.groups)
        self.names = sorted({name for members in self.groups.values() for name in members})
        self.each = options.messages // len(self.names)
        self.random = random.Random(options.seed)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.kills = 0
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in self.names]
        ports = {name: each.getsockname()[1] for name, each in zip(self.names, sockets, strict=True)}
        for each in sockets:
            each.close()
        setup = {"groups": self.groups, "ports": ports, "each": self.each, "bytes": options.bytes}
        (folder / "setup.json").write_text(json.dumps(setup))

    def start(self, name: str) -> None:
        errors = (self.folder / f"{name}.err").open("ab")
        command = [sys.executable, __file__, "--worker", name, "--folder", str(self.folder)]
        self.running[name] = subprocess.Popen(command, stderr=errors)

    def run(self) -> None:
        for name in self.names:
            self.start(name)
        due = time.monotonic()
        deadline = due + self.options.seconds
        while time.monotonic() < deadline and not self.is_done():
            time.sleep(0.3)
            for name, process in list(self.running.items()):
                if process.poll() is not None:
                    raise SystemExit(f"{name} has ended by itself; see {self.folder / name}.err")
            is_due = self.options.kill_every and time.monotonic() >= due
            if is_due and all(map(self.lines, self.names)) and not self.has_sent():
                name = self.random.choice(self.names)
                self.running[name].send_signal(signal.SIGKILL)
                self.running[name].wait()
                self.start(name)
                self.kills += 1
                due = time.monotonic() + self.options.kill_every
        (self.folder / "stop").touch()
        for process in self.running.values():
            process.wait(30)

    def lines(self, name: str) -> list[list[str]]:
        log = self.folder / f"{name}.log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def has_sent(self) -> bool:
        return all(sum(each[0] == "send" for each in self.lines(name)) >= self.each for name in self.names)

    def is_done(self) -> bool:
        if not self.has_sent():
            return False
        given = {name: {each[2] for each in self.lines(name) if each[0] == "deliver"} for name in self.names}
        for name in self.names:
            for kind, group, message in (each for each in self.lines(name) if each[0] != "accepted"):
                has = [message in given[other] for other in self.groups[group]]
                if kind == "send" and any(has) and not all(has):
                    return False
        accepted = {each[1] for name in self.names for each in self.lines(name) if each[0] == "accepted"}
        return accepted <= set().union(*given.values())

    def execution(self) -> tuple[Execution, Counter[str]]:
        rank = {name: place for place, name in enumerate(self.names)}
        lines = {name: self.lines(name) for name in self.names}
        everything = [each for name in self.names for each in lines[name]]
        accepted = {each[-1] for each in everything if each[0] in ("accepted", "deliver")}
        audiences: dict[MessageId, frozenset[int]] = {}
        ids: dict[str, MessageId] = {}
        counts: Counter[str] = Counter()
        for name in self.names:
            for kind, group, message in (each for each in lines[name] if each[0] == "send"):
                if message in accepted:
                    number = sum(1 for each in ids.values() if each.origin == rank[name]) + 1
                    ids[message] = MessageId(rank[name], number)
                    audiences[ids[message]] = frozenset(rank[each] for each in self.groups[group])
                else:
                    counts[f"{kind} in the moment of a kill"] += 1
        histories = []
        for name in self.names:
            steps = []
            for kind, *_, message in lines[name]:
                if kind != "accepted" and message in ids:
                    counts[kind] += 1
                    if kind == "send" or ids[message].origin != rank[name]:
                        steps.append(Step(Kind.SEND if kind == "send" else Kind.DELIVER, ids[message]))
            histories.append(steps)
        return Execution(histories, audiences, self.names), counts

    def wire_bytes(self) -> tuple[int, list[int]]:
        texts = [each.read_text().split() for each in self.folder.glob("*.bytes.*")]
        files = [each for each in texts if len(each) == 2]  # one may have been killed while it wrote
        return sum(int(each[0]) for each in files), sorted({int(each[1]) for each in files})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=300.0, help="after which it ends in any case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one-group", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        asyncio.run(work(options.folder, options.worker))
        return
    with tempfile.TemporaryDirectory() as temporary:
        trial = Trial(options.folder or Path(temporary), options)
        began = time.monotonic()
        trial.run()
        execution, counts = trial.execution()
        verdict = judge(execution).verdict
        total, connections = trial.wire_bytes()
        found: dict[str, Any] = {
            "seconds": round(time.monotonic() - began, 1),
            "kills": trial.kills,
            "messages": verdict.messages,
            "deliveries": verdict.deliveries,
            "clean": verdict.clean,
            "verdict": verdict.counts(),
            "sends in the moment of a kill": counts["send in the moment of a kill"],
            "wire bytes a message": round(total / max(verdict.messages, 1)),
            "connections of a process": connections,
        }
        print(json.dumps(found, indent=1))
        if not verdict.clean:
            for violation, _ in zip(judge(execution).violations(), range(3), strict=False):
                print(judge(execution).explain(violation))
            raise SystemExit(1)


if __name__ == "__main__":
    main()
