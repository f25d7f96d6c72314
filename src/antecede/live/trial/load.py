"""Load: drives a group of real processes at full speed or at a rate, and measures throughput and latency.

At a rate, latency counts from when a message was due to be sent, not from when it could be. Otherwise a
group that stalls for a second would show one slow message instead of a second's worth of them (*coordinated
omission*). At full speed nothing is due, and latency counts from the call of `broadcast`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from antecede.errors import AntecedeError
from antecede.live.group import Group
from antecede.live.joining import Joining
from antecede.live.settings import Settings
from antecede.live.trial.cluster import TrialPlan, configure

_TIME = struct.Struct("<q")
_CONCURRENT = 256
"""Maximum number of concurrent broadcasts that wait for the store."""
_CONNECT_SECONDS = 30.0


class LoadTask(msgspec.Struct, frozen=True):
    """The task of one member."""

    settings: Settings
    messages: int
    """To broadcast."""
    expected: int
    """Messages to be delivered here, including its own if they are delivered to it."""
    size: int
    rate: float
    """Messages a second from this member; 0 for full speed."""


class LoadReport(msgspec.Struct):
    """What one member measured."""

    name: str
    delivered: int
    """Messages of others that were delivered."""
    last: int
    """When the last of them was delivered, by the machine's shared monotonic clock."""
    latencies: dict[int, int]
    """How many messages took about this many nanoseconds."""
    wire_bytes: int
    cpu: float
    memory: int


class LoadResult(msgspec.Struct):
    """What the whole group achieved."""

    members: int
    messages: int
    size: int
    seconds: float
    deliveries_a_second: float
    """Deliveries at each member, on average."""
    p50_ms: float
    p99_ms: float
    most_ms: float
    control_bytes: float
    """Per delivery, the bytes on links besides the bodies: control information, framing, acks."""
    cpu_seconds: float
    memory_mb: float
    """Memory of the largest member."""


def bucket(nanoseconds: int) -> int:
    """The number rounded down to seven significant bits: within one percent."""
    shift = max(0, nanoseconds.bit_length() - 7)
    return nanoseconds >> shift << shift


def quantile(counts: dict[int, int], share: float) -> float:
    """A quantile of the latency, in milliseconds."""
    wanted = share * sum(counts.values())
    for value, count in sorted(counts.items()):
        wanted -= count
        if wanted <= 0:
            return value / 1e6
    return max(counts, default=0) / 1e6


async def run_member(task: LoadTask) -> LoadReport:
    """One member's task: print `ready`, wait for the start time, broadcast and iterate, and report."""
    async with Joining(task.settings) as group:
        partners = group.partners
        deadline = time.monotonic() + _CONNECT_SECONDS
        while set(group.connected) != set(partners):
            if time.monotonic() > deadline:
                raise AntecedeError(f"{group.me} has no connection to all of {', '.join(partners)}")
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        start = int(await asyncio.to_thread(sys.stdin.readline))
        await asyncio.sleep(max(0.0, (start - time.monotonic_ns()) / 1e9))
        report = LoadReport(group.me, 0, 0, {}, 0, 0.0, 0)
        began = time.process_time()
        sending = asyncio.create_task(_broadcast(group, task, start))
        await _receive(group, task.expected, report)
        await sending
        report.cpu = time.process_time() - began
        report.wire_bytes = group.counts["wire bytes"]
        report.memory = _memory()
        # Others may still need messages that only this member has.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await group.drain()
    return report


async def _broadcast(group: Group, task: LoadTask, start: int) -> None:
    padding = b"\0" * max(0, task.size - _TIME.size)
    numbers = iter(range(task.messages))

    async def one_after_another() -> None:
        for number in numbers:
            due = time.monotonic_ns()
            if task.rate:
                due = start + int(number / task.rate * 1e9)
                await asyncio.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
            await group.broadcast(_TIME.pack(due) + padding)

    lanes = _CONCURRENT if task.settings.store is not None or task.rate else 1
    await asyncio.gather(*(one_after_another() for _ in range(lanes)))


async def _receive(group: Group, expected: int, report: LoadReport) -> None:
    """Receive everything. Only messages of others are measured: a member's own cross no link."""
    latencies, left = report.latencies, expected
    if not left:
        return
    async for message in group:
        if not message.own:
            now = time.monotonic_ns()
            report.delivered += 1
            place = bucket(now - _TIME.unpack_from(message.body)[0])
            latencies[place] = latencies.get(place, 0) + 1
            report.last = now
        left -= 1
        if not left:
            group.ack(message)
            break


def _memory() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def drive(
    plan: TrialPlan,
    folder: Path,
    rate: float,
    senders: int,
    durable: bool,
    progress: Callable[[str], None],
    own: bool = True,
) -> LoadResult:
    """Start all members, release them at the same moment, and merge their measurements."""
    settings = [
        msgspec.structs.replace(one, faults=None, store=one.store if durable else None, own=own)
        for one in configure(plan, folder, None)
    ]
    share, more = divmod(plan.messages, senders)
    quota = [(share + (rank < more)) if rank < senders else 0 for rank in range(plan.size)]
    tasks = [
        LoadTask(one, count, plan.messages - (0 if own else count), plan.payload, rate / senders)
        for one, count in zip(settings, quota, strict=True)
    ]
    processes = [await _start(task) for task in tasks]
    try:
        progress("connecting")
        for process in processes:
            await _read_line(process)
        start = time.monotonic_ns() + 200_000_000
        for process in processes:
            if process.stdin is not None:
                process.stdin.write(f"{start}\n".encode())
        progress("running")
        reports = [msgspec.json.decode(await _read_line(process), type=LoadReport) for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
    return merge_reports(plan, reports, start)


async def _start(task: LoadTask) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "antecede.live.trial.load", stdin=pipe, stdout=pipe, limit=1 << 24
    )
    if process.stdin is not None:
        process.stdin.write(msgspec.json.encode(task) + b"\n")
    return process


async def _read_line(process: asyncio.subprocess.Process) -> bytes:
    line = await process.stdout.readline() if process.stdout is not None else b""
    if not line:
        raise AntecedeError("a member of the group exited early; its error is above")
    return line


def merge_reports(plan: TrialPlan, reports: list[LoadReport], start: int) -> LoadResult:
    latencies: dict[int, int] = {}
    for report in reports:
        for value, count in report.latencies.items():
            latencies[value] = latencies.get(value, 0) + count
    listeners = [report for report in reports if report.delivered]
    rates = [report.delivered / max(1e-9, (report.last - start) / 1e9) for report in listeners]
    deliveries = sum(report.delivered for report in reports)
    return LoadResult(
        plan.size,
        plan.messages,
        plan.payload,
        max(report.last - start for report in listeners) / 1e9,
        sum(rates) / len(rates),
        quantile(latencies, 0.5),
        quantile(latencies, 0.99),
        max(latencies) / 1e6,
        sum(report.wire_bytes for report in reports) / max(1, deliveries) - plan.payload,
        sum(report.cpu for report in reports),
        max(report.memory for report in reports) / 1e6,
    )


def main() -> None:
    task = msgspec.json.decode(sys.stdin.readline(), type=LoadTask)
    try:
        report = asyncio.run(run_member(task))
    except AntecedeError as error:
        sys.exit(f"{task.settings.me}: {error}")
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
