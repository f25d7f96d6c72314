"""A trial: a group of real processes on this machine, with fault injection and SIGKILLs.

The application in every process logs its deliveries (`worker`). In the end these logs are compared: each
accepted message was delivered at every member, including its author, exactly once; or again if that was
marked `redelivered` and the process had been killed with the message in flight.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from antecede.causality import BitWindow
from antecede.errors import InputError, require
from antecede.live.settings import FaultInjection, Settings
from antecede.live.subgroups.settings import LIVE as WITH_SUBGROUPS
from antecede.live.transport.wires import CUT
from antecede.live.trial.ports import free_ports
from antecede.units import parse_range

_LONGEST_DELAY, _SKEW = 400_000_000, 60_000_000
"""The promised bounds of subgroups on real time, in nanoseconds: more than processes need on a busy machine
while none is killed."""
OnProgress = Callable[[int, int, int], None]
"""Called with deliveries so far, how many there will be, and kills so far."""


class TrialPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, and which faults to inject."""

    size: int
    protocol: str = "mbcp"
    messages: int = 1_000
    """Messages in all, divided equally among the members."""
    seconds: float = 20.0
    """The approximate duration of broadcasting; 0 for full speed."""
    payload: int = 100
    delay: str = "0ms-0ms"
    loss: float = 0.0
    kill_every: float | None = None
    """Seconds between SIGKILLs."""
    victims: frozenset[str] = frozenset()
    """The members to kill; if empty, any."""
    cut_every: str | None = None
    super_peers: int = 0
    """With subgroups: the number of gateways; every other member is behind one of them."""
    internal: int = 0
    """Phones behind each super peer."""
    levels: int = 1
    """Levels of super peers. All remaining members are behind those of the lowest level."""
    sync: bool = True
    security: Literal["none", "tls", "signed"] = "none"
    """Whether links are encrypted by a shared secret, and messages signed too."""
    limit: int = 32 * 1024 * 1024
    seed: int = 0
    patience: float = 60.0
    """Seconds without progress after which the trial has failed."""


class TrialMember(msgspec.Struct):
    """The results of one member."""

    name: str
    kind: str
    accepted: int = 0
    delivered: int = 0
    redelivered: int = msgspec.field(default=0, name="again")
    """Redelivered, because the process was killed with it in flight."""
    kills: int = 0


class ClusterResult(msgspec.Struct):
    members: list[TrialMember]
    faults: list[str]
    """Descriptions of all violations and failures."""
    seconds: float
    kills: int
    cuts: int
    """Broken connections, counted at both ends."""
    store_bytes: int


def configure(plan: TrialPlan, folder: Path, trace: Path | None) -> list[Settings]:
    """The settings of every member, at free ports of this machine."""
    # Members read relative paths as relative to their configuration.
    folder, trace = folder.resolve(), trace.resolve() if trace else None
    if plan.protocol in WITH_SUBGROUPS:
        return _configure_subgroups(plan, folder, trace)
    if plan.size < 2:
        raise InputError("a cluster has at least two members")
    names, behind = _arrange(plan) if plan.levels == 1 else _arrange_levels(plan)
    supers = {*behind.values()} or {*names[: plan.super_peers]}
    phones = behind.keys() - supers
    ports = free_ports(2 * plan.size)
    at = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=False)}
    web = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports[plan.size :], strict=False)}
    secret = folder / "secret"
    if plan.security != "none" and not secret.exists():
        require("antecede.live.security.keys", "live").new_secret(secret)
    scheme = "ws" if plan.security == "none" else "wss"
    settings = []
    for rank, me in enumerate(names):
        peers = [
            {
                "name": name,
                "at": None if name in phones else f"{scheme}://{web[name]}" if me in phones else at[name],
                "behind": behind.get(name),
            }
            for name in names
            if name != me
        ]
        settings.append(
            Settings.create(
                group=f"trial {plan.seed}",
                me=me,
                peers=peers,
                protocol=plan.protocol,
                behind=behind.get(me),
                listen=None if me in phones else at[me],
                web=web[me] if me in supers else None,
                store=str(folder / f"{me}-store"),
                sync=plan.sync,
                secret=None if plan.security == "none" else str(secret),
                sign=plan.security == "signed",
                limit=plan.limit,
                trace=str(trace) if trace else None,
                faults=FaultInjection(plan.delay, plan.loss, plan.cut_every, rank),
            )
        )
    settings[0].roster()  # rejects invalid plans before anything is started
    return settings


def _arrange(plan: TrialPlan) -> tuple[list[str], dict[str, str]]:
    """All names, and who is behind whom: super peers, their phones, and others."""
    supers = [f"super{number}" for number in range(plan.super_peers)]
    behind = {f"{relay}-phone{number}": relay for relay in supers for number in range(plan.internal)}
    others = plan.size - len(supers) - len(behind)
    if others < 0:
        raise InputError(
            f"{len(supers)} super peers and {len(behind)} internal peers are more than {plan.size} members"
        )
    return [*supers, *behind, *(f"peer{number:0{len(str(others))}}" for number in range(others))], behind


def _arrange_levels(plan: TrialPlan) -> tuple[list[str], dict[str, str]]:
    """The same with super peers behind super peers."""
    lowest = [f"super{number}" for number in range(plan.super_peers)]
    names, behind = list(lowest), dict[str, str]()
    for _ in range(plan.levels - 1):
        below = {f"{relay}-{number}": relay for relay in lowest for number in range(plan.internal)}
        lowest = list(below)
        names += lowest
        behind |= below
    left = plan.size - len(names)
    if left < 1 or not lowest:
        raise InputError(
            f"{plan.levels} levels of super peers are {len(names)}, with {plan.size} members in all"
        )
    for number in range(left):
        relay = lowest[number % len(lowest)]
        names.append(f"{relay}-phone{number // len(lowest)}")
        behind[names[-1]] = relay
    return names, behind


def _configure_subgroups(plan: TrialPlan, folder: Path, trace: Path | None) -> list[Settings]:
    """Subgroups on real, linear and vector clocks in turn; their clocks differ by as much as is promised."""
    if not 1 <= plan.super_peers <= plan.size:
        raise InputError(f"{plan.super_peers} gateways in a group of {plan.size}")
    gateways = [f"site{number}" for number in range(plan.super_peers)]
    behind = {
        f"{gateways[number % len(gateways)]}-local{number // len(gateways)}": gateways[number % len(gateways)]
        for number in range(plan.size - len(gateways))
    }
    names = [*gateways, *behind]
    at = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(plan.size), strict=True)}
    longest = max(_LONGEST_DELAY, 2 * parse_range(plan.delay)[1])
    clocks = [f"real {longest}ns {_SKEW}ns", "linear", "vector"]
    settings = []
    for rank, me in enumerate(names):
        peers = [{"name": name, "at": at[name], "behind": behind.get(name)} for name in names if name != me]
        ahead = f"{'-' if me in behind else ''}{_SKEW // 2}ns"
        settings.append(
            Settings.create(
                group=f"trial {plan.seed}",
                me=me,
                peers=peers,
                protocol=plan.protocol,
                behind=behind.get(me),
                subgroups={name: clocks[number % len(clocks)] for number, name in enumerate(gateways)},
                listen=at[me],
                store=str(folder / f"{me}-store"),
                sync=plan.sync,
                limit=plan.limit,
                trace=str(trace) if trace else None,
                faults=FaultInjection(plan.delay, plan.loss, plan.cut_every, rank, ahead),
            )
        )
    settings[0].roster()
    return settings


class MemberProcess:
    """One member: its process, which may be killed, and its application's log, which survives."""

    def __init__(self, settings: Settings, folder: Path, messages: int, pause: float, payload: int) -> None:
        self.name = settings.me
        self._config, self._application_log = folder / f"{self.name}.json", folder / f"{self.name}.delivered"
        self._log = (folder / f"{self.name}.log").open("ab")
        self._config.write_bytes(msgspec.json.encode(settings))
        self._arguments = [
            str(self._config),
            str(self._application_log),
            str(messages),
            str(pause),
            str(payload),
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._read_until = 0
        self.kills = 0
        self.is_up = False
        """Whether its application has started since the process was last started."""
        self._was_up = True
        """The same for the previous process, at the time it was killed."""
        self.accepted = 0
        """How many messages it has broadcast: counted by completed calls, or restored after a restart."""
        self.seen: dict[str, BitWindow] = {}
        self.delivered = self.redelivered = 0
        self.faults: list[str] = []
        self._last: tuple[str, int] | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "antecede.live.trial.worker",
            *self._arguments,
            stderr=self._log,
            stdout=self._log,
        )

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._was_up, self.is_up = self.is_up, False
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
            self.kills += 1

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
        self._log.close()

    @property
    def may_be_killed(self) -> bool:
        """A process may be killed before it is up, but not twice in a row: on a busy machine none would ever
        come up."""
        return self.is_up or self._was_up

    @property
    def ended_badly(self) -> bool:
        return self._process is not None and self._process.returncode not in (None, 0, -signal.SIGKILL)

    def read_log(self) -> None:
        """Read what is new in the application's log."""
        if not self._application_log.exists():
            return
        with self._application_log.open("rb") as file:
            file.seek(self._read_until)
            data = file.read()
        complete = data.rfind(b"\n") + 1
        self._read_until += complete
        for line in data[:complete].decode().splitlines():
            kind, *rest = line.split()
            if kind in "s+":
                self.is_up = True
                self.accepted = max(self.accepted, int(rest[0]))
            else:
                self._on_delivered(rest[0], int(rest[1]), kind == "r")

    def _on_delivered(self, origin: str, seq: int, redelivered: bool) -> None:
        """Count a delivery: a second one is allowed if the message was in flight when the process was
        killed."""
        if self.seen.setdefault(origin, BitWindow()).add(seq):
            self.delivered += 1
        elif redelivered and self._last == (origin, seq):
            self.redelivered += 1
        else:
            self.faults.append(f"{origin}:{seq} was delivered twice at {self.name}")
        self._last = (origin, seq)

    def cuts(self) -> int:
        """How many of its own connections it has cut."""
        return Path(self._log.name).read_text(errors="replace").count(CUT)

    def tail_of_log(self) -> str:
        text = Path(self._log.name).read_text(errors="replace").strip().splitlines()
        return text[-1] if text else "its log is empty"


async def run(plan: TrialPlan, folder: Path, trace: Path | None, on_progress: OnProgress) -> ClusterResult:
    """Start all members, let them broadcast, kill some, and check that everything is delivered everywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = configure(plan, folder, trace)
    share, more = divmod(plan.messages, plan.size)
    quota = [share + (rank < more) for rank in range(plan.size)]
    processes = [
        MemberProcess(one, folder, count, plan.seconds / max(count, 1), plan.payload)
        for one, count in zip(settings, quota, strict=True)
    ]
    began = time.monotonic()
    faults: list[str] = []
    try:
        await asyncio.gather(*(process.start() for process in processes))
        faults = await _supervise(plan, processes, quota, on_progress)
    finally:
        await asyncio.gather(*(process.end() for process in processes), return_exceptions=True)
    for process in processes:
        process.read_log()
    members = [
        _compare(process, one, processes, faults) for process, one in zip(processes, settings, strict=True)
    ]
    store_bytes = sum(file.stat().st_size for file in folder.glob("*-store/*"))
    kills = sum(process.kills for process in processes)
    cuts = sum(process.cuts() for process in processes)
    return ClusterResult(members, faults, time.monotonic() - began, kills, cuts, store_bytes)


async def _supervise(
    plan: TrialPlan, processes: list[MemberProcess], quota: list[int], on_progress: OnProgress
) -> list[str]:
    """Kill members at intervals, until everything is delivered everywhere or there is no more progress."""
    rng = random.Random(plan.seed)
    due = sum(quota) * plan.size
    moved_at, before = time.monotonic(), -1
    kill_at = time.monotonic() + (plan.kill_every or 0)
    while True:
        await asyncio.sleep(0.1)
        for process in processes:
            process.read_log()
        sent = [process.accepted for process in processes]
        done = sum(process.delivered for process in processes)
        on_progress(done, due, sum(process.kills for process in processes))
        if done >= due and sent == quota:
            return []
        now = time.monotonic()
        if done + sum(sent) != before:
            moved_at, before = now, done + sum(sent)
        if now - moved_at > plan.patience:
            return [f"nothing has moved for {plan.patience:.0f} s; {done:,} of {due:,} deliveries are done"]
        broken = [process for process in processes if process.ended_badly]
        if broken:
            return [f"{process.name} exited: {process.tail_of_log()}" for process in broken]
        if plan.kill_every is not None and now >= kill_at and sent != quota:
            kill_at = now + plan.kill_every
            victim = rng.choice([each for each in processes if each.name in plan.victims] or processes)
            if victim.may_be_killed:
                await victim.kill()
                await asyncio.sleep(rng.uniform(0, 0.5))
                await victim.start()


def _compare(
    process: MemberProcess, settings: Settings, processes: list[MemberProcess], faults: list[str]
) -> TrialMember:
    """Compare what one member's application logged with what all have broadcast."""
    kind = settings.roster().create_protocol(process.name).role()
    faults += process.faults
    for other in processes:
        seen = process.seen.get(other.name, BitWindow())
        missing = [seq for seq in range(seen.base + 1, other.accepted + 1) if seq not in seen]
        if missing:
            more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            faults.append(f"{process.name} never delivered {other.name}:{missing[0]}{more}")
    return TrialMember(
        process.name, kind, process.accepted, process.delivered, process.redelivered, process.kills
    )


def summary(result: ClusterResult) -> dict[str, Any]:
    """The result as JSON."""
    return {"ok": not result.faults, **msgspec.to_builtins(result)}
