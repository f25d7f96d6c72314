"""A member that lies: besides what an honest one sends, frames that no honest one would send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from antecede.live.envelope import wrap
from antecede.live.seals import Seals
from antecede.live.stability import Row
from antecede.live.transport.frames import (
    Ack,
    Heartbeat,
    Packets,
    Progress,
    RepairReply,
    RepairRequest,
    encode,
)
from antecede.protocols.base import Span
from vopr.network import MILLISECOND
from vopr.signing import SimulatedKeyring

if TYPE_CHECKING:
    from vopr.network import End
    from vopr.node import Process
    from vopr.world import World


MESH = ("mbcp", "timestamp", "timestamp-diff", "depseq")
"""Protocols in which every member sends to every other directly, so the others do not need any one member."""


class Liar:
    """Sends a few lies to partners; all other members must stay correct towards each other."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        world.may_be_forged.add(rank)
        world.is_honest = False
        world.checks_order = False
        world.members[rank].witness.is_exact = False
        self._lies = [
            self._reply_unasked,
            self._report_for_another,
            self._report_for_another,
            self._report_too_much,
            self._ask_for_too_much,
            self._ack_too_much,
            self._leave_a_gap,
            self._send_garbage,
        ]
        if world.is_signed:
            self._lies.append(self._forge_repairs)
        if world.is_signed or world.protocol in MESH:
            # Elsewhere members pass on what others have sent, and nothing but a signature tells who has.
            self._lies.append(self._forge_origin)
        if world.protocol in MESH:
            self._lies.append(self._invent_a_cause)

    def lie(self, _: object) -> None:
        world = self.world
        process = world.members[self.rank].process
        if process is None or not process.is_up or not process.serving:
            return
        peers = list(process.serving)
        end = process.serving[peers[world.below(len(peers))]]
        tell = self._lies[world.below(len(self._lies))]
        frames = tell(process, end)
        if frames:
            name = tell.__name__[1:].replace("_", " ")
            world.count(f"lie: {name}")
            world.tell(process.name, f"lies to {world.roster.names[end.peer]}: {name}")
            end.write(frames)

    def _another(self) -> int:
        return (self.rank + 1 + self.world.below(len(self.world.members) - 1)) % len(self.world.members)

    def _next_packet(self, process: Process, rank: int, ahead: int) -> bytes | None:
        """A packet with a message of any member that follows what it has broadcast, signed by this one."""
        world = self.world
        protocol = world.roster.create_protocol(world.roster.names[rank])
        last = process.core.stability.received[rank].base + ahead
        data = None
        for seq in range(1, last + 1):
            payloads = [wrap(b"a lie", False, {})]
            if world.is_signed and seq == last:
                seals = Seals(SimulatedKeyring(self.rank))
                payloads = seals.seal(rank, seq, payloads, bytes(32), in_one_packet=True)
            sends = protocol.broadcast_all(payloads, 1).sends
            data = protocol.encode(sends[0].packet) if sends else None
        return data

    def _packets(self, process: Process, end: End, data: bytes) -> list[bytes]:
        box = process.core.outboxes[end.peer]
        return [encode(Packets(box.last + 1, [data], box.chain[box.last]))]

    def _forge_origin(self, process: Process, end: End) -> list[bytes]:
        data = self._next_packet(process, self._another(), 1)
        return self._packets(process, end, data) if data else []

    def _leave_a_gap(self, process: Process, end: End) -> list[bytes]:
        self.world.faults.may_not_rest = True  # honest members may deliver different versions of it
        data = self._next_packet(process, self.rank, 1 + self.world.below(3))
        return self._packets(process, end, data) if data else []

    def _invent_a_cause(self, process: Process, end: End) -> list[bytes]:
        """Its last message depends on one that nobody has broadcast; then it is gone."""
        world, other = self.world, self._another()
        core, names = process.core, world.roster.names
        mine, theirs = (
            world.roster.create_protocol(names[self.rank]),
            world.roster.create_protocol(names[other]),
        )
        last = core.stability.received[self.rank].base + 1
        payloads = [wrap(b"a lie", False, {other: core.stability.received[other].base + 2})]
        is_hidden = world.random() < 0.5  # in what is signed, and not named by the packet
        for _ in range(0 if is_hidden else last - 1):
            mine.broadcast_all(payloads, 1)
        for _ in range(core.stability.received[other].base + 2):
            for send in theirs.broadcast_all([wrap(b"a lie", False, {})], 1).sends:
                if self.rank in send.to:
                    mine.receive(other, send.packet, 1)
        while mine.deliver(1) is not None:
            pass
        for _ in range(last - 1 if is_hidden else 0):
            mine.broadcast_all(payloads, 1)
        if core.seals is not None:
            payloads = core.seals.seal(self.rank, last, payloads, core.stability.chain[self.rank], True)
        sends = mine.broadcast_all(payloads, 1).sends
        frames = self._packets(process, end, mine.encode(sends[0].packet))
        end.write(frames)
        process.member.die("is gone after a lie")
        process.member.is_gone = True
        return [encode(Heartbeat())]

    def _reply_unasked(self, process: Process, end: End) -> list[bytes]:
        data = self._next_packet(process, self._another(), 1)
        number = self.world.below(3)
        return [encode(RepairReply(number, [data]))] if data else []

    def _forge_repairs(self, process: Process, end: End) -> list[bytes]:
        """From now on repair requests are answered with forged messages of the requested origin."""

        def reply(spans: Iterable[Span]) -> list[bytes]:
            forged = [self._next_packet(process, origin, 1) for origin, _, _ in spans]
            return [data for data in forged if data]

        vars(process.core.repair)["reply"] = reply
        other = self._another()
        victim = self.world.members[end.peer].process
        if victim is not None and other != end.peer:
            self.world.faults.sever(victim, other)  # so that it asks this one
        return [encode(Heartbeat())]

    def _report_for_another(self, process: Process, end: End) -> list[bytes]:
        """Claims that all members have everything the partner has, one of which is unreachable."""
        world, other = self.world, self._another()
        victim = world.members[end.peer].process
        if other == end.peer or victim is None or not victim.is_up:
            return []
        world.faults.sever(victim, other)
        if not world.is_signed:
            world.faults.may_not_rest = True  # it is believed of a member that cannot be asked
        self._insist((victim, process, end, 6))
        return [encode(Heartbeat())]

    def _insist(self, lie: tuple[Process, Process, End, int]) -> None:
        """Repeat the claim: there may be more messages by now."""
        victim, process, end, times = lie
        if process.is_alive and victim.is_alive and times:
            stability = victim.core.stability
            counts = {
                origin: (count, stability._chain_at(victim.rank, origin))
                for origin, count in enumerate(stability.matrix_clock[victim.rank])
                if count
            }
            others = [rank for rank in range(len(self.world.members)) if rank != victim.rank]
            end.write([encode(Progress([Row(rank, counts) for rank in others]))])
            due = self.world.now + 50 * MILLISECOND
            self.world.push(due, None, self._insist, (victim, process, end, times - 1))

    def _report_too_much(self, process: Process, end: End) -> list[bytes]:
        counts = {end.peer: (process.core.stability.matrix_clock[self.rank][end.peer] + 100, bytes(8))}
        return [encode(Progress([Row(self.rank, counts)]))]

    def _ask_for_too_much(self, process: Process, end: End) -> list[bytes]:
        return [encode(RepairRequest(1, [(end.peer, 1, 10**9)]))]

    def _ack_too_much(self, process: Process, end: End) -> list[bytes]:
        return [
            encode(
                Ack(process.core.received[end.peer] + 1 + self.world.below(3), self.world.random_bytes(16))
            )
        ]

    def _send_garbage(self, process: Process, end: End) -> list[bytes]:
        return [self.world.random_bytes(2 + self.world.below(40))]
