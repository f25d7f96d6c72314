"""Cores joined by in-memory links, with real journals, killed at any moment.

It does what the driver does, in an order set by a story or at random: links carry packets under their
numbers, break, and resume from what is durable at the receiver; a `Ready` is taken, persisted and advanced at
moments of its own; an application asks for message after message. A member that is killed leaves its files.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from memory_disk import MemoryDisk

from antecede.causality import Execution, Judgement, Kind, MessageId, Step, judge
from antecede.live import core as core_module
from antecede.live import repair as repair_module
from antecede.live.core import Core
from antecede.live.envelope import decode_body, immediate_causes, unwrap
from antecede.live.events import (
    AckReceived,
    DeliveryAcked,
    PacketReceived,
    Parked,
    ProgressReceived,
    RepairReceived,
    TimerFired,
    Unparked,
)
from antecede.live.ready import Ready, send_and_advance
from antecede.live.recovery import restore
from antecede.live.settings import Member, Roster
from antecede.live.stability import Row
from antecede.live.store.journal import Journal
from antecede.live.subgroups.settings import Subgroup
from antecede.live.trace_rows import TraceRow
from antecede.live.transport import frames
from antecede.protocols.base import Delivery
from antecede.protocols.freescale import FreescaleLayout
from antecede.protocols.freescale.hierarchy import Hierarchy

LIVE = (
    "mbcp", "timestamp", "timestamp-diff", "depseq", "freescale", "hierarchy", "vcube", "vcube-agg",
    "flooding", "pc", "hcg", "basic",
)  # fmt: skip
WITH_REPAIR = LIVE[:-4]
"""Protocols in which members repair messages that a dead sender sent to only some of them."""


repair_module.MANY_PACKETS = 1  # so that small groups also skip stable packets
core_module._MAX_BATCH_BYTES, core_module._MAX_BATCH = 300, 3  # and batches end for every reason


def roster(protocol: str, size: int, layout: int = 0, ack_every: int = 32) -> Roster:
    """`size` members; `layout` says which members are behind which, if the protocol has super peers or
    gateways."""
    members = [Member(f"m{rank}") for rank in range(size)]
    if protocol in ("hcg", "basic"):
        gateways = 1 + layout % size
        for rank in range(gateways, size):
            layout //= 3
            members[rank] = Member(f"m{rank}", behind=f"m{layout % gateways}")
        clocks = ["real 20ns 5ns", "linear", "vector"]
        subgroups = {f"m{rank}": clocks[(rank + ack_every) % 3] for rank in range(gateways)}
        return Roster.create(protocol, members, {each: Subgroup.parse(subgroups[each]) for each in subgroups})
    if protocol == "hierarchy":
        return tree(size, layout, ack_every)
    if protocol == "freescale":
        supers = layout % (size // 2 + 1)
        for rank in range(supers, size):
            layout //= 3
            if supers and layout % 3:
                members[rank] = Member(f"m{rank}", behind=f"m{layout % supers}")
    created = Roster.create(protocol, members)
    if created.layout is not None:
        created = msgspec.structs.replace(
            created, layout=FreescaleLayout(created.layout.inside, ack_every=ack_every)
        )
    return created


def tree(size: int, layout: int, ack_every: int) -> Roster:
    """Super peers behind super peers, if there are enough members; `layout` places members below others."""
    highest = 1 + layout % max(1, size - 2)
    members = [Member(f"m{rank}") for rank in range(highest)]
    for rank in range(highest, size):
        layout //= 3
        above = layout % highest if rank == highest else rank - 1 if rank == highest + 1 else None
        above = max(0, rank - 1 - layout % 4) if above is None else above
        members.append(Member(f"m{rank}", behind=f"m{above}"))
    created = Roster.create("freescale", members)
    if created.protocol is Hierarchy:
        layout_of = msgspec.structs.replace(created.layout, ack_every=ack_every)
        created = msgspec.structs.replace(created, layout=layout_of)
    return created


@dataclass
class Action:
    """An action that changed the causes of a member's next message; a crash may undo it."""

    kind: Kind
    message: MessageId
    body: object
    position: int = 0
    """Among the deliveries."""
    causes: dict[int, int] = field(default_factory=dict)
    own: bool = False
    """Whether it is a broadcast that its author is also to receive, or that delivery."""


def delivery_action(delivery: Delivery, position: int, size: int) -> Action:
    body = decode_body(unwrap(delivery.payload))
    return Action(Kind.DELIVER, delivery.message, body, position, immediate_causes(delivery, size))


class Macs:
    """Signatures that are quick to compute, by keys that each member uses as if they were its own alone."""

    def __init__(self, me: int) -> None:
        self._me = me
        self.certificates: list[bytes] = []

    def sign(self, statement: bytes) -> bytes:
        return _mac(self._me, statement)

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        return b"its only key" if hmac.compare_digest(_mac(member, statement), signature) else None

    def is_revoked(self, member: int, key: bytes) -> bool:
        return False

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        return False

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """They have none."""


def _mac(member: int, statement: bytes) -> bytes:
    return hmac.digest(bytes([member]) * 32, statement, "sha512")


class Peer:
    """One member through all its lives, and its application."""

    def __init__(self, roster: Roster, rank: int, folder: Path, own: bool, sync: bool, signed: bool) -> None:
        self.roster, self.rank, self.sync = roster, rank, sync
        self.signatures = Macs(rank) if signed else None
        self.disk = MemoryDisk(folder / roster.names[rank])
        self._sometimes_own, self._starts = own, 0
        self.actions: list[Action] = []
        self.durable_actions = 0
        """How many of the broadcasts are durable."""
        self.seen: list[MessageId] = []
        """Messages delivered to the application; one in flight at a kill counts once."""
        self.attempts: list[int] = []
        """How many times each was delivered to it."""
        self.seen_before = 0
        """How many had been delivered before a power failure, which may have reset its cursor to an older
        one."""
        self.parks: list[Parked | Unparked] = []
        """Messages it has parked and unparked; a crash may undo that."""
        self.durable_parks = 0
        self.start()

    def start(self) -> None:
        name = self.roster.names[self.rank]
        self.journal = Journal(self.disk, {"group": "test", "me": name}, self.sync)
        # The setting may change between two lives: a message is delivered to its author if it was on at the
        # time.
        self.own = self._sometimes_own and (self.rank + self._starts) % 3 != 2
        self._starts += 1
        self.core = Core(
            self.roster.create_protocol(name), traced=True, own=self.own, signatures=self.signatures
        )
        restore(self.core, self.journal)
        self.alive, self.is_holding = True, False
        self.pending: Ready | None = None
        """Taken and not advanced."""
        self.pending_actions = self.pending_parks = 0

    # The application

    def broadcast(self, body: str, now: int) -> MessageId:
        message = self.core.broadcast(body, now)
        self.record_deliveries()  # earlier broadcasts may have filled a packet
        self.actions.append(Action(Kind.SEND, message, body, own=self.own))
        return message

    def ack(self) -> None:
        """The application acks the message in flight."""
        if self.is_holding:
            self.core.step(DeliveryAcked())
            self.journal.cursor = self.core.application.cursor
            self.is_holding = False

    def nack(self) -> None:
        """The application nacks it: the message is redelivered."""
        self.is_holding = False

    def park(self, now: int) -> None:
        """The application parks the message."""
        if self.is_holding:
            self.parks.append(
                Parked(self.core.application.acked + 1, self.core.application.attempts, "too hard", now)
            )
            self.core.step(self.parks[-1])
            self.is_holding = False

    def unpark(self, now: int) -> None:
        """The application has processed the message that was parked first."""
        for position in self.core.application.parked:
            self.parks.append(Unparked(position, now))
            self.core.step(self.parks[-1])
            break

    def take(self, now: int) -> bool:
        """The application asks for the next message; False if there is none that is durable."""
        core = self.core
        delivery = core.next_delivery(now, acks=self.is_holding)
        self.is_holding = False
        self.record_deliveries()
        self.journal.cursor = core.application.cursor
        if delivery is None:
            return False
        acked = core.application.acked
        if len(self.seen) == acked:
            self.seen.append(delivery.message)
            self.attempts.append(0)
        self.attempts[acked] += 1
        assert core.application.deliveries > 1 or acked >= self.seen_before
        assert core.application.attempts == self.attempts[acked]
        assert self.seen[acked:] == [delivery.message]
        self.is_holding = True
        return True

    def record_deliveries(self) -> None:
        """Deliveries the core has made since the last call."""
        core = self.core
        known = max((action.position for action in self.actions), default=0)
        for position in range(known + 1, core.application.delivered + 1):
            delivery = core.application.unacked[position - core.application.acked - 1]
            self.actions.append(delivery_action(delivery, position, core.size))
            self.actions[-1].own = delivery.message.origin == self.rank

    # The driver

    def take_ready(self, checkpoint: bool) -> None:
        if self.pending is None:
            self.pending, self.pending_parks = self.core.ready(checkpoint), len(self.parks)
            self.record_deliveries()
            self.pending_actions = len(self.actions)
            self.is_persisted = False

    def persist(self) -> None:
        if self.pending is not None and not self.is_persisted:
            self.journal.write(self.pending.records, self.pending.checkpoint)
            self.durable_actions, self.is_persisted = self.pending_actions, True
            self.durable_parks = self.pending_parks

    def advance(self) -> None:
        if self.pending is not None and self.is_persisted:
            send_and_advance(self.core, self.pending)
            self.pending = None

    def flush(self, checkpoint: bool = False) -> None:
        """Carry out everything, starting with what was in progress."""
        for _ in range(2):
            self.persist()
            self.advance()
            self.take_ready(checkpoint)
        self.persist()
        self.advance()

    # Its deaths

    def kill(self, sudden: bool = True, power: int | None = None) -> None:
        """`sudden` leaves the files as they are at this moment; otherwise the journal is closed. With
        `power`, unsynced data is lost: all of it, none of it or a part."""
        self.alive = False
        if power is not None:
            self.disk = self.disk.after_power_failure(power % 2 == 0, (None, 0.0, 0.5, 1.0)[power % 4])
            self.seen_before = max(self.seen_before, len(self.seen))
        elif sudden:
            self.disk = self.disk.killed()
        else:
            self.journal.close()

    def revive(self) -> None:
        self.start()
        core, before = self.core, self.actions
        del self.parks[self.durable_parks :]
        positions = {each.position for each in self.parks if isinstance(each, Parked)}
        removed = {each.position for each in self.parks if isinstance(each, Unparked)}
        assert core.application.parked.keys() == positions - removed
        acked, in_flight = core.application.acked, core.application.attempts > 0
        if len(self.seen) <= self.seen_before:
            del self.seen[acked + in_flight :], self.attempts[acked + in_flight :]
            self.attempts[acked:] = [core.application.attempts] * in_flight
        assert acked == max(self.journal.cursor.acked, 0, *positions)
        assert core.application.delivered >= acked + in_flight
        same = self._same_deliveries()
        self.actions = [
            action
            for index, action in enumerate(before)
            if (index < self.durable_actions if action.kind is Kind.SEND else action.position <= same)
        ]
        if self.journal.uncertain_until:
            self.record_deliveries()  # after a power failure, those possibly seen
        sends = [action for action in self.actions if action.kind is Kind.SEND]
        assert core.stability.matrix_clock[self.rank][self.rank] == len(sends)
        if sends:  # the causes of a durable message are as durable as itself
            until = before.index(sends[-1])
            assert all(action.position <= core.application.delivered for action in before[:until])
        deliveries = [action for action in self.actions if action.kind is Kind.DELIVER]
        assert [action.position for action in deliveries] == list(range(1, core.application.delivered + 1))
        unacked = [
            delivery_action(delivery, position, core.size)
            for position, delivery in enumerate(core.application.unacked, core.application.acked + 1)
        ]
        for action in unacked:
            action.own = action.message.origin == self.rank
        assert unacked == deliveries[acked:]
        assert len(self.seen) == acked + in_flight
        self.durable_actions = len(self.actions)

    def _same_deliveries(self) -> int:
        """How many earlier deliveries are unchanged. After a power failure, deliveries that nothing durable
        depends on may be reordered."""
        core = self.core
        known = {action.position: action.message for action in self.actions}
        for position, delivery in enumerate(core.application.unacked, core.application.acked + 1):
            if self.journal.uncertain_until and known.get(position) != delivery.message:
                return position - 1
        return core.application.delivered

    def history(self) -> list[Action]:
        """Its broadcasts, and deliveries of others' messages: for the sender, sending is the delivery."""
        return [a for a in self.actions if a.kind is Kind.SEND or not a.own]

    def trace(self) -> list[TraceRow]:
        """The trace, as far as it is in the journal."""
        self.flush(checkpoint=True)
        return self.journal.contents().checkpoint.checkpoint.trace


class Group:
    """All members and the connections between them. With `own`, members receive their own messages in most of
    their lives."""

    def __init__(
        self, roster: Roster, folder: Path, own: bool = False, sync: bool = False, signed: bool = False
    ) -> None:
        self.roster = roster
        self.peers = [Peer(roster, rank, folder, own, sync, signed) for rank in range(len(roster.members))]
        self.now = 0
        self.broadcasts = 0
        self.sent: dict[tuple[int, int], int] = {}
        """For each direction of each connection, the number of the last packet that went."""
        self.reported: dict[tuple[int, int], dict[int, list[int]]] = {}
        self.connect_all()

    def close(self) -> None:
        for peer in self.peers:
            if peer.alive:
                peer.journal.close()

    def ways(self) -> list[tuple[int, int]]:
        """Both directions of each pair of partners."""
        return [(peer.rank, partner) for peer in self.peers for partner in peer.core.partners]

    def connect(self, one: int, other: int) -> None:
        if (one, other) in self.sent or not (self.peers[one].alive and self.peers[other].alive):
            return
        for source, to in ((one, other), (other, one)):
            self.ack(source, to)
            self.sent[source, to] = self.peers[to].core.durably_received[source]
            self.reported[source, to] = {}

    def connect_all(self) -> None:
        for way in self.ways():
            self.connect(*way)

    def cut(self, one: int, other: int) -> None:
        for way in ((one, other), (other, one)):
            self.sent.pop(way, None)

    def kill(self, rank: int, sudden: bool = True, power: int | None = None) -> None:
        for partner in self.peers[rank].core.partners:
            self.cut(rank, partner)
        self.peers[rank].kill(sudden, power)

    def broadcast(self, rank: int, padding: int = 0) -> MessageId:
        """A message with a body of its own."""
        self.broadcasts += 1
        return self.peers[rank].broadcast(f"{self.broadcasts}" + "." * padding, self.now)

    def carry(self, source: int, to: int, most: int = 1_000_000) -> int:
        """Deliver at most so many packets of a link, in order; returns how many."""
        box = self.peers[source].core.outboxes[to]
        sent = max(self.sent[source, to], box.acked)
        packets = box.after(sent, 1 << 20, most)
        for number, data in enumerate(packets, sent + 1):
            self.peers[to].core.step(PacketReceived(source, number, data, self.now))
        self.sent[source, to] = sent + len(packets)
        return len(packets)

    def ack(self, source: int, to: int) -> None:
        """The receiver acknowledges the packets that are durable at its end."""
        receiver = self.peers[to].core
        durable, value = receiver.durably_received[source], receiver.durable_chain[source]
        self.peers[source].core.step(AckReceived(to, durable, value))

    def gossip(self, source: int, to: int) -> bool:
        """One reports progress to the other, as a frame would; False if there was none to report."""
        core = self.peers[source].core
        core.repair.skip_stable(core.protocol, core.outboxes.values())
        rows: list[Row] = []
        for turn in range(core.size):
            rows += core.stability.changes_since(to, self.reported[source, to], turn)
        frame = frames.decode(frames.encode(frames.Progress(rows)))
        assert isinstance(frame, frames.Progress)
        self.peers[to].core.step(ProgressReceived(source, frame.rows))
        return bool(rows)

    def repair(self, rank: int, patience: int) -> bool:
        """A member requests repair; returns whether it received something."""
        core = self.peers[rank].core
        connected = [to for source, to in self.sent if source == rank]
        request = core.repair.request(self.now, patience, connected)
        if request is None:
            return False
        helper, spans = request
        before = [window.to_bytes() for window in core.stability.received]
        for data in self.peers[helper].core.repair.reply(spans):
            core.step(RepairReceived(helper, data, self.now, spans))
        return before != [window.to_bytes() for window in core.stability.received]

    def fire(self) -> None:
        """Fire the timers of all members that are due."""
        for peer in self.peers:
            if peer.alive and peer.core.has_timer_due(self.now):
                peer.core.step(TimerFired(self.now))

    def settle(self, gone: frozenset[int] = frozenset()) -> None:
        """All members but those in `gone` restart; then everything is carried, delivered and reported."""
        for peer in self.peers:
            if peer.rank in gone and peer.alive:
                self.kill(peer.rank)
            elif peer.rank not in gone and not peer.alive:
                peer.revive()
        self.connect_all()
        quiet = 0
        while quiet < 5:
            self.now += 1
            moved = any(peer.alive and bool(peer.core.timers) for peer in self.peers)
            self.fire()
            for peer in self.peers:
                if peer.alive:
                    moved |= peer.core.has_ready
                    peer.flush()
                    while peer.take(self.now):
                        moved = True
                    if gone:
                        moved |= self.repair(peer.rank, patience=0)
            for way in self.sent:
                moved |= self.carry(*way) > 0
                self.ack(*way)
                moved |= self.gossip(*way)
            quiet = 0 if moved else quiet + 1
            assert self.now < 100_000, "it never comes to rest"

    def judged(self) -> Judgement:
        """Judged by the oracle; every delivery must equal the broadcast, with the right causes."""
        judgement = judge(
            Execution([[Step(a.kind, a.message) for a in peer.history()] for peer in self.peers])
        )
        verdict = judgement.verdict
        assert not verdict.causal_violations, [judgement.explain(each) for each in judgement.violations()]
        assert (verdict.duplicates, verdict.orphans, verdict.impossible) == (0, 0, 0)
        bodies = {a.message: a.body for peer in self.peers for a in peer.actions if a.kind is Kind.SEND}
        for peer in self.peers:
            came_back = [a.message for a in peer.actions if a.kind is Kind.DELIVER and a.own]
            sent = [a.message for a in peer.actions if a.kind is Kind.SEND and a.own]
            assert came_back == sent[: len(came_back)]
            for action in peer.actions:
                assert action.body == bodies[action.message]
                if action.kind is Kind.DELIVER:
                    immediate = judgement.order.immediate_dependencies(action.message)
                    named = immediate if peer.core.names_causes or peer.core.protocol.names_causes else []
                    assert sorted(action.causes.items()) == sorted(named)
        return judgement
