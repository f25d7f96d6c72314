"""Driving a group as fast as it goes, or at a rate: real processes, and figures from all of them.

Latency is from when a message was due to be sent, not from when it could be: at a rate, a group that stands
still for a second does not have one slow message but a second's worth of them (what is known as coordinated
omission). At full speed there is no such time, and latency is from the call of `broadcast`.
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
from antecede.live.trial.cluster import Plan, configure

_TIME = struct.Struct("<q")
_AT_ONCE = 256
"""Broadcasts that wait for the store together."""
_CONNECT_SECONDS = 30.0


class Job(msgspec.Struct, frozen=True):
    """One member's part."""

    settings: Settings
    messages: int
    """To send."""
    expected: int
    """To be given."""
    size: int
    rate: float
    """Messages a second from this member; 0 for full speed."""


class Report(msgspec.Struct):
    """What one member saw."""

    name: str
    delivered: int
    last: int
    """When it was given the last message, by a clock that all processes of a machine share."""
    latencies: dict[int, int]
    """How many messages took about so many nanoseconds."""
    wire_bytes: int
    cpu: float
    memory: int


class Result(msgspec.Struct):
    """A whole load."""

    members: int
    messages: int
    size: int
    seconds: float
    deliveries_a_second: float
    """At each member, on average."""
    p50_ms: float
    p99_ms: float
    most_ms: float
    control_bytes: float
    """What crosses links besides the bodies, a delivery: control information, framing, confirmations."""
    cpu_seconds: float
    memory_mb: float
    """Of the largest member."""


def bucket(nanoseconds: int) -> int:
    """The number rounded down to seven binary digits: within one percent."""
    shift = max(0, nanoseconds.bit_length() - 7)
    return nanoseconds >> shift << shift


def quantile(counts: dict[int, int], share: float) -> float:
    """In milliseconds."""
    wanted = share * sum(counts.values())
    for value, count in sorted(counts.items()):
        wanted -= count
        if wanted <= 0:
            return value / 1e6
    return max(counts, default=0) / 1e6


async def work(job: Job) -> Report:
    """One member's part: say `ready`, wait for a line, send and listen, and report."""
    async with Joining(job.settings) as group:
        partners = group.partners
        deadline = time.monotonic() + _CONNECT_SECONDS
        while set(group.connected) != set(partners):
            if time.monotonic() > deadline:
                raise AntecedeError(f"{group.me} has no connection to all of {', '.join(partners)}")
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        start = int(await asyncio.to_thread(sys.stdin.readline))
        await asyncio.sleep(max(0.0, (start - time.monotonic_ns()) / 1e9))
        report = Report(group.me, 0, 0, {}, 0, 0.0, 0)
        began = time.process_time()
        sending = asyncio.create_task(_send(group, job, start))
        await _listen(group, job.expected, report)
        await sending
        report.cpu = time.process_time() - began
        report.wire_bytes = group.counts["wire bytes"]
        report.memory = _memory()
        # The others may still need what only this member has.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await group.drain()
    return report


async def _send(group: Group, job: Job, start: int) -> None:
    padding = b"\0" * max(0, job.size - _TIME.size)
    numbers = iter(range(job.messages))

    async def one_after_another() -> None:
        for number in numbers:
            due = time.monotonic_ns()
            if job.rate:
                due = start + int(number / job.rate * 1e9)
                await asyncio.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
            await group.broadcast(_TIME.pack(due) + padding)

    lanes = _AT_ONCE if job.settings.store is not None or job.rate else 1
    await asyncio.gather(*(one_after_another() for _ in range(lanes)))


async def _listen(group: Group, expected: int, report: Report) -> None:
    latencies: dict[int, int] = {}
    if not expected:
        return
    async for message in group:
        now = time.monotonic_ns()
        report.delivered += 1
        place = bucket(now - _TIME.unpack_from(message.body)[0])
        latencies[place] = latencies.get(place, 0) + 1
        if report.delivered == expected:
            break
    report.last, report.latencies = time.monotonic_ns(), latencies


def _memory() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def drive(
    plan: Plan, folder: Path, rate: float, senders: int, durable: bool, progress: Callable[[str], None]
) -> Result:
    """Start all members, let go of them at one moment, and put together what they saw."""
    settings = [
        msgspec.structs.replace(each, rough=None, store=each.store if durable else None)
        for each in configure(plan, folder, None)
    ]
    share, more = divmod(plan.messages, senders)
    quota = [(share + (rank < more)) if rank < senders else 0 for rank in range(plan.size)]
    jobs = [
        Job(each, count, plan.messages - count, plan.payload, rate / senders)
        for each, count in zip(settings, quota, strict=True)
    ]
    processes = [await _started(job) for job in jobs]
    try:
        progress("connecting")
        for process in processes:
            await _line(process)
        start = time.monotonic_ns() + 200_000_000
        for process in processes:
            if process.stdin is not None:
                process.stdin.write(f"{start}\n".encode())
        progress("running")
        reports = [msgspec.json.decode(await _line(process), type=Report) for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
    return together(plan, reports, start)


async def _started(job: Job) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "antecede.live.trial.load", stdin=pipe, stdout=pipe, limit=1 << 24
    )
    if process.stdin is not None:
        process.stdin.write(msgspec.json.encode(job) + b"\n")
    return process


async def _line(process: asyncio.subprocess.Process) -> bytes:
    line = await process.stdout.readline() if process.stdout is not None else b""
    if not line:
        raise AntecedeError("a member of the group ended before its time; what it said is above")
    return line


def together(plan: Plan, reports: list[Report], start: int) -> Result:
    latencies: dict[int, int] = {}
    for report in reports:
        for value, count in report.latencies.items():
            latencies[value] = latencies.get(value, 0) + count
    listeners = [report for report in reports if report.delivered]
    rates = [report.delivered / max(1e-9, (report.last - start) / 1e9) for report in listeners]
    deliveries = sum(report.delivered for report in reports)
    return Result(
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
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    try:
        report = asyncio.run(work(job))
    except AntecedeError as error:
        sys.exit(f"{job.settings.me}: {error}")
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
