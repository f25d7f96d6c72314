"""One execution of a changing group: time, chance, faults and changes, in one thread and from one seed."""

from __future__ import annotations

import heapq
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from antecede.live.changing import forgetting, history, reporting, seals, snapshots, transfer
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.protocols import LIVE, WITH_PHONES
from antecede.live.changing.super_peer import SuperPeerCore
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase
from vopr.changing.application import SentMessage
from vopr.changing.host import TICK, Host, Process
from vopr.disk import Killed
from vopr.judge import ViolationError
from vopr.network import MILLISECOND, Network
from vopr.world import Result
from vopr.world import short_times as short_link_times

SECOND = 1000 * MILLISECOND
PROTOCOLS = sorted(LIVE.keys() - WITH_PHONES.keys())
"""Those whose members are all alike."""
_MAX_REST = 60 * SECOND
_FAULTS = (
    "kill",
    "kill",
    "kill later",
    "power",
    "power later",
    "cut",
    "half-open",
    "silence",
    "partition",
    "slow",
)
_CHANGES = ("join", "join", "join", "leave", "remove", "remove wrongly", "lose store")


@contextmanager
def short_times() -> Iterator[None]:
    """As for fixed groups: everything that waits waits for less."""
    before = reporting.RETRY, forgetting.IDLE, seals.MAX_PARTED
    reporting.RETRY, forgetting.IDLE, seals.MAX_PARTED = 150 * MILLISECOND, 600 * MILLISECOND, 4
    sizes = snapshots.MAX_INLINE, snapshots.CHUNK, transfer.MAX_TAIL, history.SEGMENT_BYTES
    snapshots.MAX_INLINE, snapshots.CHUNK, transfer.MAX_TAIL, history.SEGMENT_BYTES = 60, 100, 200, 500
    try:
        with short_link_times():
            yield
    finally:
        reporting.RETRY, forgetting.IDLE, seals.MAX_PARTED = before
        snapshots.MAX_INLINE, snapshots.CHUNK, transfer.MAX_TAIL, history.SEGMENT_BYTES = sizes


class World:
    """One execution."""

    signs = True
    """Whether the group signs, for every second seed."""

    may_mix: ClassVar[bool] = True

    def __init__(
        self,
        seed: int,
        is_told: bool = False,
        protocol: str = ChangingMbcp.name,
        encrypts: bool = False,
    ) -> None:
        self.seed, self.is_told, self.encrypts = seed, is_told, encrypts
        self.kind = LIVE[protocol]
        self.is_signed = self.signs and bool(seed % 2)
        source = random.Random(seed)
        self.random, self.random_bytes = source.random, source.randbytes
        self.story: list[str] = []
        self.now, self.epoch = 0, 10**18
        self._events: list[tuple[int, int, Process | None, Callable[[Any], None], Any]] = []
        self._pushed = self.deliveries = 0
        self.faults: Counter[str] = Counter()
        self.records: dict[bytes, SentMessage] = {}
        self.later: set[bytes] = set()
        """Messages that are only in the latest version of the wire format."""
        self.is_healing = False
        self.retains = seed % 5 == 4
        """Whether all members retain everything, and newcomers ask for that instead of a snapshot. Then
        nobody leaves or is removed: who comes back would retain only what follows."""
        self.is_mixed = self.may_mix and seed % 2 == 0 and not self.retains
        """Whether some hosts speak only the first version of the wire format, and are upgraded later."""
        self.unjudged = 0
        """The liar's messages, as bits: members may have different ones in their places, or none."""
        founders = 2 + self.below(4)
        joiners = 1 + self.below(3)
        self.hosts = [Host(self, rank, rank < founders) for rank in range(founders + joiners)]
        self.founders = self.hosts[:founders]
        self.by_place = {host.place: host for host in self.hosts}
        self.network = Network(cast("Any", self))
        self.removals_left = (founders - 1) // 2
        self.next_kill_is_power = False

    # Time and chance

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def pick(self, hosts: list[Host]) -> Host | None:
        return hosts[self.below(len(hosts))] if hosts else None

    def push(self, time: int, process: Any, action: Callable[[Any], None], argument: object) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (time, self._pushed, process, action, argument))

    def run_until(self, end: int) -> None:
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, process, action, argument = heapq.heappop(events)
            if process is None:
                action(argument)
            elif process.is_alive:
                self.guard(process, action, argument)
        self.now = end

    def guard(self, process: Process, action: Callable[[Any], None], argument: object) -> None:
        try:
            action(argument)
        except Killed:
            self.count("killed at a disk operation")
            process.host.die("is killed at a disk operation", self.next_kill_is_power)

    def count(self, fault: str) -> None:
        self.faults[fault] += 1

    def tell(self, who: str, text: str) -> None:
        if self.is_told:
            self.story.append(f"{self.now / 1e9:9.6f} {who:4} {text}")

    def new_body(self, name: str) -> bytes:
        return b"%s-%d" % (name.encode(), len(self.records))

    def body_of(self, bits: int) -> bytes:
        first = bits & -bits
        return next(body for body, record in self.records.items() if record.bit == first)

    # The execution

    def run(self) -> None:
        for host in self.founders:
            self.push(self.below(50) * MILLISECOND, None, host.start, None)
        duration = (400 + self.below(2_000)) * MILLISECOND
        network = self.network
        network.loss = (0.0, 0.0, 0.1)[self.below(3)]
        network.late_greetings = (0.0, 0.0, 0.3)[self.below(3)]
        network.delay = (1, 3, 20, 100)[self.below(4)] * MILLISECOND
        for _ in range(3 + self.below(30)):
            self.push(self._moment(duration), None, self._burst, None)
        self.schedule_changes(duration)
        enabled = [fault for fault in _FAULTS if self.random() < 0.5]
        for _ in range(self.below(10) if enabled else 0):
            self.push(self._moment(duration), None, self._inject, enabled[self.below(len(enabled))])
        self.run_until(duration)
        self._heal()
        self.rest()

    def schedule_changes(self, duration: int) -> None:
        for _ in range(1 + self.below(6)):
            change = _CHANGES[self.below(3 if self.retains else len(_CHANGES))]
            self.push(self._moment(duration), None, self._change, change)

    def rest(self) -> None:
        """Run until nothing more happens, and judge the end."""
        reason, end = self.unrest(), self.now + _MAX_REST
        while reason is not None:
            if self.now >= end:
                raise ViolationError(f"the group does not come to rest: {reason}")
            self.run_until(self.now + TICK)
            self._remove_the_dead()
            reason = self.unrest()
        self.judge()

    def _moment(self, duration: int) -> int:
        return self.below(duration // MILLISECOND) * MILLISECOND

    def _burst(self, _: object) -> None:
        host = self.pick([*self.active(), *self.active_phones()])
        if host is not None and host.process is not None:
            for _ in range(1 + self.below(4)):
                host.process.broadcast()

    def is_honest(self, name: str) -> bool:
        return True

    def may_refuse(self, one: int, other: int) -> bool:
        """Whether a host may refuse another: not if both are honest."""
        return False

    def active_phones(self) -> list[Host]:
        return []

    def machines(self) -> list[Host]:
        """All hosts with a running process that may fail."""
        return self.hosts

    def active(self) -> list[Host]:
        """Hosts whose application is active."""
        return [
            each
            for each in self.hosts
            if each.process and each.process.is_up and each.process.core.is_started
        ]

    def pick_contact(self, host: Host) -> Host:
        """The host that is asked for admission; it need not be a member."""
        others = [each for each in self.hosts if each is not host]
        return others[self.below(len(others))]

    # Changes

    def _change(self, kind: str) -> None:
        if kind == "join":
            host = self.pick([each for each in self.hosts if not each.is_wanted and not each.is_dead])
            if host is not None:
                host.is_wanted = True
                host.start()
        elif kind == "leave":
            host = self.pick([each for each in self.active() if not each.is_founder or self._may_spare(each)])
            if host is not None and host.process is not None and host.process.leave():
                self.count("leave")
                if host.is_founder:
                    self.removals_left = 0
        elif self.removals_left:
            host = self.pick([each for each in self.active() if each.is_founder or kind != "remove wrongly"])
            if host is not None and host.process is not None:
                self.removals_left -= 1
                self.count(kind)
                stream = host.process.core.me
                if kind != "remove wrongly":
                    host.is_wanted = False
                    host.die("dies for good", for_good=True, notice=self.random() < 0.5)
                if kind == "lose store":
                    self._replace(host)
                self.push(self.now + self.below(300) * MILLISECOND, None, self._remove, (host, stream))

    def _replace(self, host: Host) -> None:
        """A member of the same name begins with an empty store, and joins."""
        new = self.create_host(host.name)
        new.is_wanted = True
        self.hosts.append(new)
        self.by_place[new.place] = new
        self.push(self.now + self.below(300) * MILLISECOND, None, new.start, None)

    def create_host(self, name: str) -> Host:
        return Host(self, len(self.hosts), False, name)

    def _may_spare(self, founder: Host) -> bool:
        """Whether a founder may leave: removals need a quorum, for which only stable members count."""
        staying = [each for each in self.founders if each.is_wanted and each is not founder]
        return len(staying) > 2 and not self.faults["remove"] and not self.faults["remove wrongly"]

    def _remove(self, case: tuple[Host, int]) -> None:
        host, stream = case
        remover = self.pick([each for each in self.active() if each is not host])
        if remover is not None and remover.process is not None and remover.process.remove(stream):
            host.was_removed = True

    def _remove_the_dead(self) -> None:
        """Members take turns: one of them may have been removed without knowing it."""
        remover = self.pick(self.active())
        if remover is None or remover.process is None or self.below(5):
            return
        dead = {address for host in self.hosts if host.is_dead for address in host.addresses}
        for stream, address in list(remover.process.core.member.addresses.items()):
            if address in dead:
                remover.process.remove(stream)

    # Faults

    def _inject(self, name: str) -> None:
        host = self.pick([each for each in self.machines() if each.process and each.process.is_up])
        if host is None or host.process is None:
            return
        process = host.process
        self.count(name)
        if name == "kill":
            host.die("is killed", notice=self.random() < 0.7)
        elif name == "power":
            host.die("loses power", power=True)
        elif name in ("kill later", "power later"):
            self.next_kill_is_power = name == "power later"
            host.disk.operations_left = self.below(12)
        elif name == "partition":
            others = self.machines()
            pair = host.rank, others[self.below(len(others))].rank
            self.network.severed.add(pair)
            self.push(self.now + self.below(800) * MILLISECOND, None, self._join, pair)
            for end in list(process.ends):
                if end.peer == pair[1]:
                    end.is_dumb = end.other.is_dumb = True
        elif name == "slow":
            self.network.delay = (1, 5, 50, 200)[self.below(4)] * MILLISECOND
        elif process.ends:
            end = list(process.ends)[self.below(len(process.ends))]
            if name == "silence":
                end.is_dumb = end.other.is_dumb = True
            else:
                end.is_dumb |= name == "half-open"
                process._close(end)

    def _join(self, pair: tuple[int, int]) -> None:
        self.network.severed.discard(pair)

    def _heal(self) -> None:
        self.is_healing = True
        network = self.network
        network.loss, network.late_greetings, network.delay = 0.0, 0.0, 2 * MILLISECOND
        network.severed.clear()
        for host in self.machines():
            host.disk.operations_left = -1
        self.tell("", "faults are over")

    # The end

    def unrest(self) -> str | None:
        """Why the group is not at rest."""
        wanted = [host.name for host in self.hosts if host.is_wanted]
        for host in self.hosts:
            process = host.process
            if host.is_dead or (process is None and not host.is_wanted and not host.lives):
                continue
            if process is None or not process.is_up:
                return f"{host.name} is down"
            core = process.core
            if not host.is_wanted:
                if core.phase == Phase.LEAVING:
                    return f"{host.name} has left and is not let go"
                if core.phase == Phase.REMOVED:
                    host.was_removed = True
                continue
            if not core.is_started:
                return f"{host.name} is {core.phase.name}"
            if core.has_ready or core.application.unacked:
                return f"{host.name} has {len(core.application.unacked)} unacked"
            names = sorted(
                contact.name for each in core.member.addresses if (contact := core.contact_of(each))
            )
            if names != sorted(wanted):
                return f"{host.name} has the view {names}, not {sorted(wanted)}"
            if reason := _remembers(core.member) or _keeps(core):
                return f"{host.name} {reason}"
        return None

    def judge(self) -> None:
        """At rest: every member's application has the same, and all that is owed."""
        members = [host for host in self.machines() if host.is_wanted]
        owed: dict[bytes, None] = {}
        for host in members:
            owed |= host.witness.applied
        for host in self.machines():
            if host in members or (not host.is_dead and not host.was_removed):
                owed |= {each.body: None for each in host.witness.sends}
        for host in members:
            missing = [body for body in owed if body not in host.witness.applied]
            if missing:
                raise ViolationError(f"{host.name} never applies {missing[0]!r} and {len(missing) - 1} more")


def _remembers(member: ChangingMember) -> str:
    alive = member.view
    tables = {
        "delivered": member.order.delivered,
        "ends": member.ends,
        "known": member.progress.known,
        "removed": member.removals.removed,
        "admissions": member.admissions,
        "unstable": member.unstable,
        "unstable admissions": member.unstable_admissions,
        "forgotten": member.forgotten,
        "early": member.early,
    }
    if member.unstable or member.waiting() or member.early or member.unstable_admissions:
        return f"retains or holds {len(member.unstable)}, {len(member.waiting())}, {len(member.early)}"
    for name, table in tables.items():
        if gone := set(table) - alive:
            return f"remembers {len(gone)} that are gone ({name})"
    return ""


def _keeps(core: ChangingCore) -> str:
    """What a core keeps of processes that are gone, or that it was."""
    member = core.member
    others = set(member.addresses.values()) - {core.address}
    if isinstance(core, SuperPeerCore):
        others |= core.phones.keys()
        # What a phone without a slot has not acknowledged is kept: it may come back, and must be told.
        others |= {core.links[link][1] for link, box in core.outboxes.items() if box.packets}
    if core.members.keys() != {core.address}:
        return f"keeps {len(core.members)} addresses of its own"
    if core.greeted.keys() - others:
        return "keeps contacts of others"
    if member.contacts.keys() - member.addresses.keys() - member.tombstones.keys():
        return "keeps contacts of streams"
    if {theirs for _, theirs in core.links.values()} != others:
        return f"keeps {len(core.links)} links to {len(others)} others"
    for name, value in vars(core).items():
        if isinstance(value, dict | set) and name in _BY_LINK and set(value) - core.links.keys():
            return f"keeps links ({name})"
    return ""


_BY_LINK = (
    "outboxes",
    "sent",
    "received",
    "received_chain",
    "durably_received",
    "durable_chain",
    "partner_lineages",
    "strangers",
    "void",
)


class AdmissionWorld(World):
    """Two members, a third that joins, and one of them is killed at one operation of its disk meanwhile."""

    may_mix = False

    def __init__(self, victim: int, operation: int, power: bool) -> None:
        super().__init__(1000 * victim + operation)
        self.hosts = [Host(self, rank, rank < 2) for rank in range(3)]
        self.founders = self.hosts[:2]
        self.by_place = {host.place: host for host in self.hosts}
        self._victim, self._operation, self.next_kill_is_power = self.hosts[victim], operation, power

    def pick_contact(self, host: Host) -> Host:
        return self.hosts[0]

    def run(self) -> None:
        for host in self.founders:
            host.start()
        for moment in range(100, 1_500, 100):
            self.push(moment * MILLISECOND, None, self._burst, None)
        self.run_until(500 * MILLISECOND)
        self._victim.disk.operations_left = self._operation
        self.hosts[2].is_wanted = True
        self.hosts[2].start()
        self.run_until(2 * SECOND)
        self._heal()
        self.rest()


def protocol_of(seed: int) -> str:
    """The protocol of a group, by its seed; not by a draw of its world, so that each protocol can have each
    of the worlds."""
    return random.Random(f"protocol {seed}").choice(PROTOCOLS)


def execute(seed: int, is_told: bool = False, protocol: str | None = None, encrypts: bool = False) -> Result:
    """Run one execution; any error counts as a violation."""
    return run_world(World(seed, is_told, protocol or protocol_of(seed), encrypts))


def run_world(world: World) -> Result:
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
    return Result(world.seed, world.deliveries, dict(world.faults), violation, world.story)
