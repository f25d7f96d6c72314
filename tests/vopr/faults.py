"""The faults of an execution and their times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.causality import MessageId
from vopr.disk import SimulatedDisk
from vopr.judge import ViolationError
from vopr.liar import MESH, Liar
from vopr.network import MILLISECOND
from vopr.node import Member, Process

if TYPE_CHECKING:
    from vopr.world import World

HOUR = 3_600_000_000_000
KINDS = (
    *("honest",) * 14, "unsynced", "unsynced power", *("corrupt",) * 3, *("fork",) * 3, *("liar",) * 4,
)  # fmt: skip
"""Kinds of executions: most have only faults that must neither lose anything nor get a member refused."""
_ALWAYS = ("kill", "kill later", "full", "stop", "cut", "half-open", "silence", "partition", "slow", "clock")


class Faults:
    """The faults of one execution: a random few of all kinds, and how many."""

    def __init__(self, world: World, kind: str | None = None) -> None:
        self.world = world
        self.kind = kind or KINDS[world.below(len(KINDS))]
        names = list(_ALWAYS)
        if self.kind not in ("unsynced", "unsynced power"):
            names += ["power", "power", "power later"]
        self._enabled = [name for name in names if world.random() < 0.5]
        self._count = world.below(9)
        self.next_kill_is_power = False
        self.twins: list[Member] = []
        """Further processes on copies of a member's store."""
        self.forked: Member | None = None
        self.may_not_rest = False
        """Whether the group may fail to come to rest, so that only safety is judged."""

    def plan(self, duration: int) -> None:
        world = self.world
        network = world.network
        network.loss = (0.0, 0.0, 0.1, 0.3)[world.below(4)]
        network.late_greetings = (0.0, 0.0, 0.3)[world.below(3)]
        network.delay = (1, 3, 20, 100)[world.below(4)] * MILLISECOND
        if network.loss:
            world.count("packets lost")
        if self.kind == "corrupt":
            for _ in range(1 + world.below(4)):
                world.push(world.below(duration), None, self._corrupt, None)
        elif self.kind == "unsynced power":
            world.push(world.below(duration), None, self._lose_unsynced, None)
        elif self.kind == "fork":
            world.push(world.below(duration // 2), None, self._copy_store, duration)
        elif self.kind == "liar":
            world.is_signed = world.random() < 0.7
            self.may_not_rest = world.protocol not in MESH
            liar = Liar(world, world.below(len(world.members)))
            for _ in range(1 + world.below(20)):
                world.push(world.below(duration), None, liar.lie, None)
        for _ in range(self._count if self._enabled else 0):
            when = world.below(duration // MILLISECOND) * MILLISECOND
            world.push(when, None, self._inject, self._enabled[world.below(len(self._enabled))])

    def _inject(self, name: str) -> None:
        world = self.world
        member = world.members[world.below(len(world.members))]
        process = member.process
        if process is None or not process.is_up:
            return
        world.count(name)
        if name == "kill":
            member.die("is killed", notice=world.random() < 0.7)
        elif name == "power":
            member.die("loses power", power=True)
        elif name in ("kill later", "power later"):
            self.next_kill_is_power = name == "power later"
            member.disk.operations_left = world.below(12)
        elif name == "full":
            member.disk.is_full = True
            world.push(world.now + world.below(250) * MILLISECOND, None, self._empty, member)
        elif name == "stop":
            world.guard(process, lambda _: process.stop(), None)
        elif name == "clock":
            jump = int((world.random() - 0.5) * 4 * HOUR)
            world.tell(member.name, f"has its clock set by {jump / 1e9:.0f} s")
            member.wall_offset += jump
        elif name == "partition":
            self.sever(process, world.below(len(world.members)))
        elif name == "slow":
            world.network.delay = (1, 5, 50, 200)[world.below(4)] * MILLISECOND
        else:
            peers = list(process.serving)
            if peers:
                self._break(process, peers[world.below(len(peers))], name)

    def sever(self, process: Process, other: int) -> None:
        """Two members cannot reach each other for a while."""
        world, pair = self.world, (process.rank, other)
        world.network.severed.add(pair)
        world.push(world.now + world.below(400) * MILLISECOND, None, self._join, pair)
        self._break(process, other, "silence")

    def _break(self, process: Process, peer: int, how: str) -> None:
        """Break a connection: both sides notice, one does, or neither."""
        end = process.serving.get(peer)
        if end is None:
            return
        self.world.tell(process.name, f"has its connection to {self.world.roster.names[peer]} broken: {how}")
        if how == "cut":
            end.other.is_dumb = False
            process._close(end)
        elif how == "half-open":
            end.is_dumb = True
            process._close(end)
        else:
            end.is_dumb = end.other.is_dumb = True

    # Damaged and copied stores

    def _corrupt(self, _: object) -> None:
        """A member's store is damaged while it is down."""
        world = self.world
        damaged = [member for member in world.members if member.was_corrupted]
        member = damaged[0] if damaged else world.members[world.below(len(world.members))]
        if member.is_gone or (member.process is None and member.lost_cursor):
            # After a power failure nothing tells a damaged last record from one that was being written; the
            # partners notice.
            return
        if member.process is not None:
            member.die("is killed")
        member.was_corrupted = True
        world.count("corrupt")
        world.tell(member.name, member.disk.corrupt(world.random))
        # A damaged slot of the cursor's file is noticed, and what may have been seen is marked.
        member.lost_cursor = True
        self.may_not_rest = world.protocol not in MESH

    def _lose_unsynced(self, _: object) -> None:
        """The power fails where nothing is synced: the store is older than it was, or cannot be read."""
        world = self.world
        member = world.members[world.below(len(world.members))]
        if member.process is None:
            return
        self._begin_fork(member)
        member.was_corrupted = True
        world.count("unsynced power")
        member.die("loses power, and what was not synced", power=True)

    def _copy_store(self, duration: int) -> None:
        world = self.world
        member = world.members[world.below(len(world.members))]
        world.tell(member.name, "has its store copied")
        copy = member.disk.copy()
        is_twin = world.random() < 0.5
        when = world.now + world.below(duration - world.now)
        world.push(when, None, self._run_twin if is_twin else self._restore_copy, (member, copy))

    def _begin_fork(self, member: Member) -> None:
        world = self.world
        world.may_be_forged.add(member.rank)
        world.is_honest = world.checks_order = False
        self.may_not_rest = True
        member.witness.is_exact = False
        self.forked = member

    def _restore_copy(self, case: tuple[Member, SimulatedDisk]) -> None:
        """The older copy is brought back."""
        member, copy = case
        self._begin_fork(member)
        self.world.count("store restored from a copy")
        member.die("is killed")
        member.disk = copy
        self.world.tell(member.name, "has the copy of its store restored")

    def _run_twin(self, case: tuple[Member, SimulatedDisk]) -> None:
        """A second process runs on the copy."""
        member, copy = case
        self._begin_fork(member)
        self.world.count("two processes on copies of a store")
        twin = Member(self.world, member.rank, copy)
        twin.witness.is_exact = False
        self.twins.append(twin)
        self.world.tell(member.name, "runs on a copy of its store as well")
        twin.start()

    def _judge_fork(self, forked: Member) -> None:
        """Every member that delivered a different message than others under one id, or met a life unknown to
        the present store, has reported it."""
        world = self.world
        if world.faults_injected["fork reported"]:
            return
        seen: dict[MessageId, bytes] = {}
        for member in world.members:
            if member is not forked:
                for message, record in member.witness.applied.items():
                    if seen.setdefault(message, record.body) != record.body:
                        raise ViolationError(f"{message} has two bodies, and nobody has noticed")
        if forked.process is None:
            return
        lineage = forked.process.core.lineage
        for member in world.members:
            if member is not forked and member.process is not None:
                known = member.process.core.partner_lineages.get(forked.rank)
                if known and known[-1] not in lineage:
                    raise ViolationError(
                        f"{member.name} has met another life of {forked.name}, and nobody said so"
                    )

    def _empty(self, member: Member) -> None:
        member.disk.is_full = False

    def _join(self, pair: tuple[int, int]) -> None:
        self.world.network.severed.discard(pair)

    def heal(self) -> None:
        """End all faults: every member restarts."""
        world = self.world
        network = world.network
        network.loss, network.late_greetings, network.delay = 0.0, 0.0, 2 * MILLISECOND
        network.severed.clear()
        for member in (*world.members, *self.twins):
            member.disk.is_full = False
            member.disk.operations_left = -1
        world.tell("", "faults are over")

    @property
    def are_all_there(self) -> bool:
        """Whether nobody lied, forked, or was refused its store."""
        members = self.world.members
        return self.forked is None and self.world.is_honest and not any(each.is_gone for each in members)

    def judge(self) -> None:
        if self.forked is not None:
            self._judge_fork(self.forked)
        elif self.are_all_there:
            self.world.judge_complete()
