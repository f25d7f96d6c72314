"""One execution: time, chance and everything that happens, in one thread and from one seed."""

from __future__ import annotations

import heapq
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec

from antecede.live import core as core_module
from antecede.live import repair as repair_module
from antecede.live.settings import Member as RosterMember
from antecede.live.settings import Roster
from antecede.live.store import journal as journal_module
from antecede.live.transport import links as links_module
from antecede.protocols.freescale import FreescaleLayout
from vopr.alarms import AlarmedMbcp
from vopr.disk import Killed
from vopr.faults import Faults
from vopr.judge import BroadcastRecord, ViolationError, judge_by_oracle
from vopr.network import MILLISECOND, Network
from vopr.node import TICK, Member, Process

SECOND = 1000 * MILLISECOND
PROTOCOLS = (
    "mbcp", "mbcp", "mbcp", "timestamp", "timestamp-diff", "depseq", "freescale", "freescale", "vcube",
    "vcube-agg", "flooding", "pc",
)  # fmt: skip
_SIZES = (3,) * 12 + (4,) * 5 + (5, 5, 6, 7, 8)
_BATCHES = ({"_MAX_BATCH": 3, "_MAX_BATCH_BYTES": 300}, {"_MAX_BATCH": 64, "_MAX_BATCH_BYTES": 4_000})
"""How many messages share a packet."""
_MAX_REST = 30 * SECOND
"""Simulated time after which a group whose faults are over must be at rest."""


class Result(msgspec.Struct, frozen=True):
    """What one execution gave."""

    seed: int
    deliveries: int
    faults: dict[str, int]
    violation: str | None
    story: list[str]


@contextmanager
def short_times() -> Iterator[None]:
    """Everything that waits waits for less, and limits are low, so that small executions reach all of it."""
    settings: list[tuple[Any, dict[str, Any]]] = [
        (links_module, {"HEARTBEAT_SECONDS": 0.15, "SILENCE_SECONDS": 0.5, "RESEND_SECONDS": 0.2}),
        (links_module, {"REPEAT_PAUSE": 50 * MILLISECOND}),
        (repair_module, {"REPEAT_PAUSE": 50 * MILLISECOND, "MANY_PACKETS": 1}),
        (core_module, _BATCHES[0]),
        (journal_module, {"_MIN_LOG": 3_000}),
    ]
    before = [(module, {name: getattr(module, name) for name in values}) for module, values in settings]
    _assign(settings)
    try:
        yield
    finally:
        _assign(before)


def _assign(settings: list[tuple[Any, dict[str, Any]]]) -> None:
    for module, values in settings:
        for name, value in values.items():
            setattr(module, name, value)


@cache
def create_roster(protocol: str, size: int, layout: int) -> Roster:
    """`layout` says who is behind whom, where the protocol has super peers."""
    members = [RosterMember(f"m{rank}") for rank in range(size)]
    ack_every = (1, 3, 32)[layout % 3]
    if protocol == "freescale":
        supers = layout % (size // 2 + 1)
        for rank in range(supers, size):
            layout //= 3
            if supers and layout % 3:
                members[rank] = RosterMember(f"m{rank}", behind=f"m{layout % supers}")
    created = Roster.create(protocol, members)
    if created.layout is not None:
        layout_of = FreescaleLayout(created.layout.inside, ack_every=ack_every)
        created = msgspec.structs.replace(created, layout=layout_of)
    return created


class World:
    """One execution."""

    def __init__(self, seed: int, is_told: bool = False, kind: str | None = None) -> None:
        self.seed, self.is_told = seed, is_told
        source = random.Random(seed)
        self.random, self.random_bytes = source.random, source.randbytes
        self.story: list[str] = []
        self.now = 0
        self.epoch = 10**18
        self._events: list[tuple[int, int, Process | None, Callable[[Any], None], Any]] = []
        self._pushed = 0
        self.faults_injected: Counter[str] = Counter()
        self.deliveries = 0
        self.records: list[BroadcastRecord] = []
        self.is_healing = False
        self.calm = (0.95, 0.85, 0.6)[self.below(3)]
        """The share of messages that applications process at once."""
        self.protocol = PROTOCOLS[self.below(len(PROTOCOLS))]
        size = _SIZES[self.below(len(_SIZES))]
        layout = self.below(81) if self.protocol == "freescale" else 0
        self.roster = create_roster(self.protocol, size, layout)
        if self.protocol == "mbcp" and seed % 3 == 0:
            self.roster = msgspec.structs.replace(self.roster, protocol=AlarmedMbcp)
        self.identities = [
            {"group": "g", "member": name, "protocol": self.protocol, "members": self.roster.lines}
            for name in self.roster.names
        ]
        self.network = Network(self)
        self.members = [Member(self, rank) for rank in range(size)]
        self.may_be_forged: set[int] = set()
        """Ranks of members in whose name anything may be delivered: liars, and those with two stores."""
        self.is_honest = True
        """Whether every refusal is a false alarm."""
        self.checks_order = True
        """Whether causal order and causes are judged: not beside a member with two stores, nor a liar."""
        self.is_signed = self.random() < 0.25
        self.is_traced = self.random() < 0.1
        self.faults = Faults(self, kind)
        self.sync = self.faults.kind not in ("unsynced", "unsynced power")

    # Time and chance

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def push(
        self, time: int, process: Process | None, action: Callable[[Any], None], argument: object
    ) -> None:
        """Something will happen, unless its process is dead by then."""
        self._pushed += 1
        heapq.heappush(self._events, (time, self._pushed, process, action, argument))

    def run_until(self, end: int) -> None:
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= end:
            time, _, process, action, argument = pop(events)
            self.now = time
            if process is None:
                action(argument)
            elif process.is_alive:
                self.guard(process, action, argument)
        self.now = end

    def guard(self, process: Process, action: Callable[[Any], None], argument: object) -> None:
        """A process may be killed by its disk."""
        try:
            action(argument)
        except Killed:
            self.count("killed at a disk operation")
            power = self.faults.next_kill_is_power
            process.member.die("is killed at a disk operation" + power * ", by a power failure", power)

    # What happens

    def count(self, fault: str) -> None:
        self.faults_injected[fault] += 1

    def tell(self, who: str, text: str) -> None:
        if self.is_told:
            self.story.append(f"{self.now / 1e9:9.6f} {who:4} {text}")

    def new_body(self) -> bytes:
        padding = b"." * self.below(90) if self.random() < 0.2 else b"."
        return b"%d" % len(self.records) + padding

    def process_at(self, rank: int) -> Process | None:
        """Who answers at a member's address."""
        if self.faults.twins:
            living = [
                each for each in (*self.members, *self.faults.twins) if each.rank == rank and each.process
            ]
            return living[self.below(len(living))].process if living else None
        return self.members[rank].process

    # The execution

    def run(self) -> None:
        _assign([(core_module, _BATCHES[self.below(len(_BATCHES))])])
        for member in self.members:
            self.push(self.below(50) * MILLISECOND, None, member.start, None)
        duration = (150 + self.below(500)) * MILLISECOND
        self.faults.plan(duration)
        bursts = 1 + self.below(6)
        for _ in range(bursts):
            self.push(self.below(duration // MILLISECOND) * MILLISECOND, None, self._burst, None)
        self.run_until(duration)
        self.faults.heal()
        self.is_healing, self.calm = True, 1.0
        if self.faults.may_not_rest:
            self.run_until(self.now + SECOND)
        # A damaged store may be good enough to go on from: then everyone is there, and it comes to rest.
        if not self.faults.may_not_rest or self.faults.are_all_there:
            self._rest()
        self.faults.judge()

    def _burst(self, _: object) -> None:
        member = self.members[self.below(len(self.members))]
        process = member.process
        if process is not None and process.is_up:
            self.guard(process, process.application.broadcast, 1 + self.below(60 // len(self.members)))

    def _rest(self) -> None:
        """Until nothing is left to do."""
        end = self.now + _MAX_REST
        reason: str | None = "it has not begun"
        while reason is not None:
            if self.now >= end:
                raise ViolationError(f"it never comes to rest: {reason}")
            self.run_until(self.now + TICK)
            reason = self.unrest()

    def unrest(self) -> str | None:
        """Why the group is not at rest."""
        staying = [member for member in self.members if not member.is_gone]
        is_complete = len(staying) == len(self.members) and not self.may_be_forged
        for member in staying:
            if member.rank in self.may_be_forged:
                continue
            process = member.process
            if process is None or not process.is_up:
                return f"{member.name} is down"
            core, queue = process.core, process.core.application
            if core.has_ready or queue.unacked or queue.parked:
                return f"{member.name} has {len(queue.unacked)} unacked, {len(queue.parked)} parked messages"
            if isinstance(core.protocol, AlarmedMbcp) and core.protocol.due:
                return f"{member.name} was not woken at {core.protocol.due}"
            if missing := self._missing(member, staying):
                return f"{member.name} lacks {', '.join(missing[:5])}"
            if is_complete and (core.stability.unstable_bytes or core.waiting()):
                waiting = [each.message for each in core.waiting()]
                return f"{member.name} has {core.stability.unstable_bytes} bytes unstable, held: {waiting}"
            rows = core.stability.matrix_clock
            if is_complete and any(row != rows[0] for row in rows):
                return f"{member.name} has not heard of the others' progress: {rows}"
        return None

    def _missing(self, member: Member, staying: list[Member]) -> list[str]:
        """What an application lacks that was accepted by somebody who is there, or applied by one."""
        applied = member.witness.applied
        lacks = []
        for other in staying:
            if other.rank in self.may_be_forged:
                continue
            is_self = other is member
            witness = other.witness
            expected = [
                record.message
                for record in witness.sends[: witness.accepted]
                if record.message not in applied and (record.own or not is_self)
            ]
            if len(staying) < len(self.members):
                gone = [message for message in witness.applied if message not in applied]
                expected += [message for message in gone if message.origin != member.rank]
            lacks += [f"{message.origin}:{message.seq}" for message in expected]
        return lacks

    def judge_complete(self) -> None:
        """At rest, with everybody there and honest."""
        first = None
        for member in self.members:
            process, witness = member.process, member.witness
            assert process is not None
            stability = process.core.stability
            own = sum(record.own for record in witness.sends)
            expected = sum(len(each.witness.sends) for each in self.members if each is not member) + own
            if len(witness.applied) != expected:
                raise ViolationError(
                    f"{member.name} has applied {len(witness.applied)} messages of {expected}"
                )
            state = (stability.chain, stability.matrix_clock)
            if first is not None and state != first:
                raise ViolationError(
                    f"{member.name} ends with other chain values or counts than {self.roster.names[0]}"
                )
            first = state
        if self.seed % 64 == 0:
            judge_by_oracle([member.witness for member in self.members])


def execute(seed: int, is_told: bool = False, kind: str | None = None) -> Result:
    """Run one execution, of a kind (`faults.KINDS`) or any; whatever goes wrong is a violation."""
    world = World(seed, is_told, kind)
    world.tell("", f"seed {seed}: {world.protocol}, {len(world.members)} members, {world.faults.kind}")
    violation = None
    try:
        world.run()
    except ViolationError as error:
        violation = str(error)
    except Exception as error:
        violation = f"{type(error).__name__}: {error}"
        world.tell("", traceback.format_exc())
    if violation is not None:
        world.tell("", f"VIOLATION: {violation}")
    return Result(seed, world.deliveries, dict(world.faults_injected), violation, world.story)
