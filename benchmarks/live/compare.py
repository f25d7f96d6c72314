"""Live groups compared with other message buses, on one machine.

    PYTHONPATH=<nats-py and pyzmq> python benchmarks/live/compare.py [--messages 120000] [--turns 2]

Needs Debian's nats-server and libjgroups-java with a JDK; what is not installed is skipped. All have the same
number of members; each sends its share at full speed and receives what all others send. Antecede keeps causal
order; the others keep FIFO order, and JGroups with SEQUENCER total order. Turns alternate; the better one of
each counts. Writes results.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import msgspec

from antecede.live.trial.cluster import TrialPlan
from antecede.live.trial.load import LoadReport, LoadResult, drive, merge_reports

HERE = Path(__file__).parent
JGROUPS = Path("/usr/share/java/jgroups.jar")
_PATIENCE_SECONDS = 240


def free_port(count: int = 1) -> int:
    """The first of so many consecutive ports that are probably free."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
        if port + count < 60_000:
            return port


async def members(commands: list[list[str]], plan: TrialPlan, pause: float = 0.0) -> LoadResult:
    """Start one member per command, release them together, and merge their reports."""
    pipe = asyncio.subprocess.PIPE
    processes = []
    for command in commands:
        processes.append(
            await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=1 << 24
            )
        )
        await asyncio.sleep(pause)

    async def line(process: asyncio.subprocess.Process, mark: bytes) -> bytes:
        while process.stdout is not None:
            found = await process.stdout.readline()
            if not found:
                break
            if found.startswith(mark):
                return found
        raise RuntimeError(f"{' '.join(commands[0])}: a member ended before its time")

    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            for process in processes:
                await line(process, b"ready")
            start = time.monotonic_ns() + 300_000_000
            for process in processes:
                if process.stdin is not None:
                    process.stdin.write(f"{start}\n".encode())
            found = await asyncio.gather(*(line(process, b"{") for process in processes))
        reports = [msgspec.json.decode(each, type=LoadReport, strict=False) for each in found]
        await asyncio.gather(*(process.wait() for process in processes))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return merge_reports(plan, reports, start)


async def antecede(plan: TrialPlan, durable: bool) -> LoadResult:
    with tempfile.TemporaryDirectory(prefix="antecede-load-") as folder:
        return await drive(plan, Path(folder), 0.0, plan.size, durable, lambda _: None)


def python_peer(name: str, plan: TrialPlan, port: int) -> list[list[str]]:
    share = plan.messages // plan.size
    return [
        [
            sys.executable,
            str(HERE / "other_buses.py"),
            name,
            *map(str, (me, plan.size, share, plan.payload, port)),
        ]
        for me in range(plan.size)
    ]


@contextlib.asynccontextmanager
async def nats_server() -> AsyncIterator[int]:
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        shutil.which("nats-server") or "nats-server", "-a", "127.0.0.1", "-p", str(port),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await asyncio.sleep(1.0)
        yield port
    finally:
        server.terminate()
        await server.wait()


async def nats(plan: TrialPlan) -> LoadResult:
    async with nats_server() as port:
        return await members(python_peer("nats", plan, port), plan)


async def zeromq(plan: TrialPlan) -> LoadResult:
    return await members(python_peer("zeromq", plan, free_port(plan.size)), plan)


async def jgroups(plan: TrialPlan, total: bool) -> LoadResult:
    """JGroups' own TCP stack as it ships, with SEQUENCER added for total order."""
    with tempfile.TemporaryDirectory(prefix="antecede-jgroups-") as name:
        folder = Path(name)
        stack = zipfile.ZipFile(JGROUPS).read("tcp.xml").decode()
        # As shipped, its pool has no queue and discards; the last messages are then missing for most of a
        # minute.
        stack = stack.replace('thread_pool.queue_enabled="false"', 'thread_pool.queue_enabled="true"')
        stack = stack.replace('thread_pool.queue_max_size="100"', 'thread_pool.queue_max_size="100000"')
        if total:
            stack = stack.replace("<UFC ", "<SEQUENCER/>\n    <UFC ", 1)
        (folder / "stack.xml").write_text(stack)
        javac = ["javac", "-cp", str(JGROUPS), "-d", name, str(HERE / "Jgroups.java")]
        subprocess.run(javac, check=True, capture_output=True)
        share = plan.messages // plan.size
        port = free_port(plan.size)
        hosts = ",".join(f"127.0.0.1[{port + each}]" for each in range(plan.size))
        java = [
            "java", "-Xmx1g", "-Djava.net.preferIPv4Stack=true", "-Djgroups.bind_addr=127.0.0.1",
            f"-Djgroups.tcpping.initial_hosts={hosts}", "-cp", f"{JGROUPS}:{name}", "Jgroups",
        ]  # fmt: skip
        commands = []
        for me in range(plan.size):
            mine = folder / f"stack{me}.xml"
            mine.write_text(stack.replace('bind_port="7800"', f'bind_port="{port + me}"'))
            commands.append([*java, str(mine), *map(str, (me, plan.size, share, plan.payload))])
        # Members that start together form groups of their own, and merge only after half a minute.
        return await members(commands, plan, pause=7.0)


async def secured(plan: TrialPlan, security: Literal["tls", "signed"], durable: bool) -> LoadResult:
    return await antecede(msgspec.structs.replace(plan, security=security), durable)


def contenders() -> dict[str, Callable[[TrialPlan], object]]:
    found: dict[str, Callable[[TrialPlan], object]] = {
        "antecede mbcp, in memory": lambda plan: antecede(plan, durable=False),
        "antecede mbcp, store, operating system has it": lambda plan: antecede(
            msgspec.structs.replace(plan, sync=False), durable=True
        ),
        "antecede mbcp, store, disk has it": lambda plan: antecede(plan, durable=True),
    }
    securities: tuple[Literal["tls", "signed"], ...] = ("tls", "signed")
    for security in securities:
        for durable, where in ((False, "in memory"), (True, "store, disk has it")):
            found[f"antecede mbcp, {where}, {security}"] = functools.partial(
                secured, security=security, durable=durable
            )
    if shutil.which("nats-server"):
        found["NATS, nats-py (FIFO)"] = nats
    found["ZeroMQ PUB/SUB, pyzmq (FIFO)"] = zeromq
    if JGROUPS.exists() and shutil.which("javac"):
        found["JGroups 2.12 tcp (FIFO)"] = lambda plan: jgroups(plan, total=False)
        found["JGroups 2.12 tcp, SEQUENCER (total order)"] = lambda plan: jgroups(plan, total=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=120_000)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results: dict[str, dict[str, LoadResult]] = {}
    for size in options.bytes:
        plan = TrialPlan(size=options.members, messages=options.messages, payload=size, sync=True)
        best: dict[str, LoadResult] = {}
        for _ in range(options.turns):
            for name, run in contenders().items():
                if options.only not in name:
                    continue
                try:
                    found: LoadResult = asyncio.run(run(plan))  # type: ignore[arg-type]
                except (RuntimeError, TimeoutError, OSError, subprocess.CalledProcessError) as error:
                    print(f"{size:>5} {name:<48} failed: {error}", flush=True)
                    continue
                if name not in best or found.deliveries_a_second > best[name].deliveries_a_second:
                    best[name] = found
                print(
                    f"{size:>5} {name:<48} {found.deliveries_a_second:>9,.0f} deliveries/s a node, p50 "
                    f"{found.p50_ms:,.0f} ms, p99 {found.p99_ms:,.0f} ms",
                    flush=True,
                )
        results[f"{size} bytes"] = best
    if not options.only:
        document = {
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "messages": options.messages,
            "members": options.members,
            "results": msgspec.to_builtins(results),
        }
        (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
