"""A trial of overlapping groups: a ring of them, as real processes on this machine, with faults.

Each process is in two groups, and its application logs its broadcasts and deliveries (`ring_log`).
`ring_judge` judges these logs alone: every member of a group has each of its messages once, and each message
is delivered after its causes, across groups too. If membership does not change, the oracle judges the logs as
well.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from antecede.causality import Verdict
from antecede.causality.execution import Execution, Kind, MessageId, Step
from antecede.causality.oracle import Judgement
from antecede.causality.oracle import judge as judge_execution
from antecede.errors import InputError
from antecede.live.transport.wires import CUT
from antecede.live.trial import ring_judge
from antecede.live.trial.ports import free_ports
from antecede.live.trial.ring_changes import RingChanges
from antecede.live.trial.ring_log import author_of, group_of
from antecede.live.trial.ring_processes import RingProcess

OnProgress = Callable[[int, int, int], None]
"""Called with deliveries so far, how many there will be, and kills so far."""

_WORKER = (sys.executable, "-m", "antecede.live.trial.ring_worker")
_SHOWN_FAULTS = 20
_SHOWN_VIOLATIONS = 3
_MOST_DOWN = 0.75
"""Processes are killed only while more than this many are up."""
_RESTART_SECONDS = 0.5
"""The longest time for which a killed process is down."""
MIN_MEMBERS = 4
"""The smallest dynamic group, so that the others are a quorum if one is removed or away."""
_SUSPECT_SOON = {"heartbeat": "500ms", "suspect_after": "2s"}


def ring(size: int, groups: int) -> dict[str, list[str]]:
    """The names of processes by group: each group has those of its own place and of the next.

    >>> ring(3, 3)
    {'g0': ['p0', 'p1'], 'g1': ['p1', 'p2'], 'g2': ['p0', 'p2']}
    """
    digits = len(str(size - 1))
    names = [f"p{rank:0{digits}}" for rank in range(size)]
    return {
        f"g{group}": [
            name for rank, name in enumerate(names) if rank % groups in (group, (group + 1) % groups)
        ]
        for group in range(groups)
    }


class RingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, and which faults to inject."""

    size: int
    groups: int = 0
    """How many groups there are; 0 for half as many as processes, and 1 for a single group of all."""
    messages: int = 1_000
    """Messages in all, divided equally among the processes."""
    seconds: float = 20.0
    """The approximate duration of broadcasting."""
    payload: int = 100
    kill_every: float | None = None
    """Seconds between SIGKILLs."""
    kills: int = 0
    """Alternatively, this many SIGKILLs, spread evenly over the broadcasts."""
    cut_every: str | None = None
    """The mean time after which a connection breaks."""
    delay: str = "0-0ms"
    churn: float | None = None
    """Maximum rate per second of changes: a process leaves a group and rejoins it, is removed although it is
    alive, is stopped, or loses its disk."""
    sync: bool = True
    seed: int = 0
    patience: float = 60.0
    """Seconds without progress after which the trial has failed."""

    def members(self) -> dict[str, list[str]]:
        """The processes in each group."""
        if self.size < 2:
            raise InputError("a cluster has at least two members")
        groups = self.groups or max(self.size // 2, min(self.size, 3))
        if groups > self.size:
            raise InputError(f"{groups} groups are more than {self.size} processes")
        found = ring(self.size, groups)
        if self.churn and min(map(len, found.values())) < MIN_MEMBERS:
            raise InputError(
                f"--churn needs groups of at least {MIN_MEMBERS} members, so that the others are a quorum; "
                f"{self.size} processes in {groups} groups are too few"
            )
        return {"all": found["g0"]} if groups == 1 else found


class RingSetup(msgspec.Struct, frozen=True):
    """The configuration that every process of a trial reads."""

    groups: dict[str, list[str]]
    ports: dict[str, int]
    each: int
    """How many messages each process broadcasts."""
    pause: float
    payload: int
    sync: bool
    seed: int = 0
    delay: str = "0-0ms"
    cut_every: str | None = None
    settings: dict[str, Any] = {}
    """The addresses of all processes."""


class RingMember(msgspec.Struct):
    """The results of one process."""

    name: str
    groups: list[str]
    accepted: int = 0
    delivered: int = 0
    redelivered: int = msgspec.field(default=0, name="again")
    """Redelivered, because the process was killed with it in flight."""
    kills: int = 0


class RingResult(msgspec.Struct):
    members: list[RingMember]
    faults: list[str]
    """What went wrong, in words."""
    judged: ring_judge.RingVerdict | None
    """The verdict on the applications' logs; None if the trial failed earlier."""
    verdict: Verdict | None
    """The oracle's verdict, if membership does not change."""
    seconds: float
    kills: int
    cuts: int
    store_bytes: int
    steps: dict[str, int]
    """How many changes were made, by kind."""
    unaccepted: int = 0
    """Broadcasts that had not returned when their process was killed, and that were never delivered."""


class RingRecord(NamedTuple):
    """The steps of the applications."""

    execution: Execution
    times: list[list[int]]
    """The time of each step, by process."""
    groups: dict[str, list[str]]
    group_of: dict[MessageId, str]
    unaccepted: int


async def run(
    plan: RingPlan, folder: Path, on_progress: OnProgress, program: tuple[str, ...] = _WORKER
) -> tuple[RingResult, RingRecord | None]:
    """Start all processes, let them broadcast, inject faults, and judge the deliveries to their
    applications."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = plan.members()
    names = sorted({name for members in groups.values() for name in members})
    each = -(-plan.messages // len(names))
    setup = RingSetup(
        groups=groups,
        ports=dict(zip(names, free_ports(len(names)), strict=True)),
        each=each,
        pause=plan.seconds / max(each, 1),
        payload=plan.payload,
        sync=plan.sync,
        seed=plan.seed,
        delay=plan.delay,
        cut_every=plan.cut_every,
        settings=_SUSPECT_SOON if plan.churn else {},
    )
    (folder / "setup.json").write_bytes(msgspec.json.encode(setup))
    processes = [
        RingProcess(name, [group for group in groups if name in groups[group]], folder, program)
        for name in names
    ]
    changes = RingChanges(processes, plan.churn or 0.0, random.Random(f"changes {plan.seed}"))
    began, faults = time.monotonic(), []
    try:
        await asyncio.gather(*(process.start() for process in processes))
        faults = await _supervise(plan, setup, processes, changes, on_progress)
    finally:
        await asyncio.gather(*(process.end() for process in processes), return_exceptions=True)
    seconds = time.monotonic() - began
    for process in processes:
        process.read_log()
    judged, verdict, record = None, None, None
    if not faults:
        judged = ring_judge.judge([process.lines for process in processes])
        faults = judged.faults[:_SHOWN_FAULTS]
        if not plan.churn:
            record = _record(setup, processes)
            judgement = judge_execution(record.execution)
            verdict, faults = judgement.verdict, faults + _explain(judgement)
    store_bytes = sum(file.stat().st_size for file in folder.glob("*-store/*"))
    result = RingResult(
        members=[_member(process) for process in processes],
        faults=faults,
        judged=judged,
        verdict=verdict,
        seconds=seconds,
        kills=sum(process.kills for process in processes),
        cuts=sum(process.errors.read_text(errors="replace").count(CUT) for process in processes),
        store_bytes=store_bytes,
        steps=dict(changes.steps),
        unaccepted=record.unaccepted if record else 0,
    )
    return result, record


def _member(process: RingProcess) -> RingMember:
    application = process.application
    return RingMember(
        name=process.name,
        groups=process.groups,
        accepted=len(application.accepted),
        delivered=application.delivered,
        redelivered=application.redelivered,
        kills=process.kills,
    )


async def _supervise(
    plan: RingPlan,
    setup: RingSetup,
    processes: list[RingProcess],
    changes: RingChanges,
    on_progress: OnProgress,
) -> list[str]:
    """Inject faults at intervals, until everything is delivered everywhere or there is no more progress."""
    rng = random.Random(plan.seed)
    total = setup.each * len(processes)
    copies = sum(len(setup.groups[group]) / len(each.groups) for each in processes for group in each.groups)
    moved_at, before, kills = time.monotonic(), -1, 0
    kill_at = time.monotonic() + (plan.kill_every or 0)
    while True:
        await asyncio.sleep(0.1)
        for process in processes:
            process.read_log()
        sent = sum(process.application.sent for process in processes)
        done = sum(process.application.delivered for process in processes)
        on_progress(done, int(setup.each * copies), kills)
        if sent >= total and not changes.is_changing and is_complete(setup, processes):
            return []
        now = time.monotonic()
        if sent + done != before:
            moved_at, before = now, sent + done
        if now - moved_at > plan.patience:
            return [
                f"nothing has moved for {plan.patience:.0f} s; {sent:,} of {total:,} messages are sent, and "
                f"there were {done:,} deliveries{changes.explain()}"
            ]
        if broken := [process for process in processes if process.ended_badly]:
            return [f"{process.name} exited: {process.tail_of_errors()}" for process in broken]
        await changes.look(now, may_begin=sent < total)
        if plan.kills:
            is_due = kills < plan.kills and sent >= total * (kills + 1) / (plan.kills + 1)
        else:
            is_due = plan.kill_every is not None and now >= kill_at
        present = sum(process.is_present for process in processes)
        if is_due and sent < total and present > len(processes) * _MOST_DOWN:
            kill_at = now + (plan.kill_every or 0)
            victim = rng.choice([process for process in processes if process.is_back])
            await victim.kill()
            await asyncio.sleep(rng.uniform(0, _RESTART_SECONDS))
            await victim.start()
            kills += 1


def is_complete(setup: RingSetup, processes: list[RingProcess]) -> bool:
    """Whether all members of each group have the same messages, including all that were accepted on surviving
    disks."""
    if any(not each.is_present or each.application.is_broadcasting for each in processes):
        return False
    final = {}
    for group, members in setup.groups.items():
        states = [each.application.have[group] for each in processes if each.name in members]
        final[group] = states[0]
        if any(state.ranges() != states[0].ranges() for state in states):
            return False
    return all(
        message in final[group_of(message)]
        for each in processes
        for message in each.application.accepted
        if author_of(message) == each.application.author
    )


def _record(setup: RingSetup, processes: list[RingProcess]) -> RingRecord:
    """The steps of all applications. A broadcast that was never delivered is omitted: it was lost when its
    process was killed."""
    rank = {process.name: place for place, process in enumerate(processes)}
    final = {group: process.application.have[group] for process in processes for group in process.groups}
    ids: dict[str, MessageId] = {}
    groups_of: dict[MessageId, str] = {}
    unaccepted = 0
    for process in processes:
        seq = 0
        for line in process.lines:
            if line.kind != "send":
                continue
            if line.message not in process.application.accepted and line.message not in final[line.group]:
                unaccepted += 1
                continue
            seq += 1
            ids[line.message] = MessageId(rank[process.name], seq)
            groups_of[ids[line.message]] = line.group
    histories, times = [], []
    for process in processes:
        steps = [step for step in _steps(process) if step[1] in ids]
        histories.append([Step(kind, ids[message]) for kind, message, _ in steps])
        times.append([now for _, _, now in steps])
    members = {group: frozenset(rank[each] for each in names) for group, names in setup.groups.items()}
    audiences = {message: members[group] for message, group in groups_of.items()}
    execution = Execution(histories, audiences, [process.name for process in processes])
    return RingRecord(execution, times, setup.groups, groups_of, unaccepted)


def _steps(process: RingProcess) -> list[tuple[Kind, str, int]]:
    """The steps of one application: its sends, which count as its own deliveries, and other deliveries."""
    found: list[tuple[Kind, str, int]] = []
    seen: set[str] = set()
    for line in process.lines:
        if line.kind == "send":
            found.append((Kind.SEND, line.message, line.time))
            seen.add(line.message)
        elif line.kind in ("deliver", "again") and line.message not in seen:
            found.append((Kind.DELIVER, line.message, line.time))
            seen.add(line.message)
    return found


def write_trace(record: RingRecord, folder: Path) -> None:
    """Write the applications' steps as a trace."""
    import numpy as np

    from antecede.trace.event_tables import EventTables
    from antecede.trace.schema import DELIVER, SEND, Meta
    from antecede.trace.writer import TraceWriter

    groups, names = list(record.groups), record.execution.names
    place = {group: number for number, group in enumerate(groups)}
    meta = Meta("cluster", record.groups, "multigroup")
    tables = EventTables(meta.run, groups, names)
    columns = ("run", "group", "process", "index", "kind", "origin", "seq", "time")
    with TraceWriter(folder, meta, columns) as writer:
        for rank, (steps, times) in enumerate(zip(record.execution.histories, record.times, strict=True)):
            rows = [
                (SEND if step.kind == Kind.SEND else DELIVER, rank, *step.message, now, -1, 0)
                for step, now in zip(steps, times, strict=True)
            ]
            if rows:
                where = np.array([place[record.group_of[step.message]] for step in steps])
                table = tables.build(
                    np.array(rows, np.int64), np.arange(len(rows)), np.zeros(len(rows), np.int64), where
                )
                writer.extend(table.select(columns))


def _explain(judgement: Judgement) -> list[str]:
    verdict = judgement.verdict
    if verdict.clean:
        return []
    counts = ", ".join(f"{name} {count}" for name, count in verdict.counts().items() if count)
    shown = zip(range(_SHOWN_VIOLATIONS), judgement.violations(), strict=False)
    return [f"the oracle finds {counts}", *(judgement.explain(violation) for _, violation in shown)]


def summary(result: RingResult) -> dict[str, Any]:
    """The result as JSON."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    verdict = result.verdict
    found["verdict"] = None if verdict is None else {"clean": verdict.clean, **verdict.counts()}
    return {"ok": not result.faults, **found}
