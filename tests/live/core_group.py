"""Cores that are joined by links in memory, with real journals, and killed at any moment.

It does what a driver does, in the order that a story or chance says: links bring packets under their numbers,
break, and go on from what the receiver has safe; batches are taken, written and confirmed at moments of
their own; an application takes message after message. A member that is killed leaves its files behind.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from antecede.causality import Execution, Judgement, Kind, MessageId, Step, judge
from antecede.live import core as core_module
from antecede.live.core import Batch, Core, Event, Popped
from antecede.live.envelope import opened
from antecede.live.settings import Member, Roster
from antecede.live.store.journal import Journal
from antecede.live.transport import frames
from antecede.protocols.freescale import FreescaleLayout

LIVE = (
    "mbcp", "timestamp", "timestamp-diff", "depseq", "freescale", "vcube", "vcube-agg", "flooding", "pc",
)  # fmt: skip
HANDING_ON = LIVE[:-2]
"""Those in which members help each other to what a dead one has sent to some of them only."""


core_module.MANY_PACKETS = 1  # so that small groups also skip what is everywhere,
core_module._TOGETHER_BYTES, core_module._MAX_TOGETHER = 300, 3  # and runs end for every reason


def roster(protocol: str, size: int, layout: int = 0, ack_every: int = 32) -> Roster:
    """`size` members; `layout` says who is behind whom, where the protocol has super peers."""
    members = [Member(f"m{rank}") for rank in range(size)]
    if protocol == "freescale":
        supers = layout % (size // 2 + 1)
        for rank in range(supers, size):
            layout //= 3
            if supers and layout % 3:
                members[rank] = Member(f"m{rank}", behind=f"m{layout % supers}")
    made = Roster.of(protocol, members)
    if made.layout is not None:
        made = msgspec.structs.replace(made, layout=FreescaleLayout(made.layout.inside, ack_every=ack_every))
    return made


@dataclass
class Did:
    """Something that changed what a member's next message depends on; a crash may undo it."""

    kind: Kind
    message: MessageId
    body: object
    place: int = 0
    causes: dict[int, int] = field(default_factory=dict)


def _taken(popped: Popped) -> Did:
    said = opened(popped.envelope)
    return Did(Kind.DELIVER, popped.message, said, popped.place, popped.causes)


class Peer:
    """One member through all its lives, and its application."""

    def __init__(self, roster: Roster, rank: int, folder: Path) -> None:
        self.roster, self.rank, self.folder = roster, rank, folder
        self.life = 0
        self.did: list[Did] = []
        self.durable = 0
        """How much of `did` is written, as far as it is broadcasts."""
        self.shown: list[MessageId] = []
        """What the application has seen, what was in its hand when it was killed once."""
        self._start()

    def _start(self) -> None:
        name = self.roster.names[self.rank]
        store = self.folder / f"{name}-{self.life}" / "store"
        self.journal = Journal(store, {"group": "test", "me": name}, sync=False)
        self.core = Core(self.roster.make(name), traced=True)
        self.core.restore(self.journal)
        self.alive = True
        self.batch: Batch | None = None
        self.batch_holds = 0
        self.in_hand: Popped | None = None

    # The application

    def say(self, body: str, now: int) -> MessageId:
        message = self.core.broadcast(body, now)
        self.did.append(Did(Kind.SEND, message, body))
        return message

    def finish(self) -> None:
        """The application is done with what it has in hand."""
        if self.in_hand is not None:
            self.journal.taken = 2 * self.in_hand.place
            self.core.final(self.in_hand.place)
            self.in_hand = None

    def take(self, now: int) -> bool:
        """The application asks for the next message; False if there is none that a crash would not undo.

        As a driver does it: what was in hand is final by the same number that says what is now.
        """
        done = self.in_hand.place if self.in_hand else self.journal.taken // 2
        popped = next((each for each in self.core.hand if each.place > done), None) or self.core.pop(now)
        if popped is not None and not self.did_take(popped.place):
            self.did.append(_taken(popped))
        if popped is None or not self.core.is_written(popped.message):
            self.finish()
            return False
        assert popped.place == done + 1
        self.core.final(done)
        self.journal.taken = 2 * done + 1
        self.core.given(popped.message)
        self.in_hand = popped
        if len(self.shown) == done:
            self.shown.append(popped.message)
        assert self.shown[done:] == [popped.message]
        return True

    def did_take(self, place: int) -> bool:
        return any(did.place == place for did in self.did)

    # The journal

    def begin_batch(self, whole: bool) -> None:
        if self.batch is None:
            self.batch, self.batch_holds, self.is_durable = self.core.batch(whole), len(self.did), False

    def write_batch(self) -> None:
        if self.batch is not None and not self.is_durable:
            self.journal.write(self.batch.rows, self.batch.changes)
            self.durable, self.is_durable = self.batch_holds, True

    def end_batch(self) -> None:
        if self.batch is not None and self.is_durable:
            self.core.written(self.batch)
            self.batch = None

    def flush(self, whole: bool = False) -> None:
        """All that there is, written; what was under way first."""
        for _ in range(2):
            self.write_batch()
            self.end_batch()
            self.begin_batch(whole)
        self.write_batch()
        self.end_batch()

    # Its deaths

    def kill(self, sudden: bool = True) -> None:
        """`sudden` leaves the files as they are at this moment; otherwise SQLite tidies up."""
        self.alive = False
        if sudden:
            here = self.journal.path
            there = self.folder / f"{self.roster.names[self.rank]}-{self.life + 1}"
            there.mkdir()
            for suffix in ("", "-wal", "-taken"):
                if (file := here.with_name(here.name + suffix)).exists():
                    shutil.copy(file, there)
            self.life += 1
        self.journal.close()

    def revive(self) -> None:
        self._start()
        final, in_hand = divmod(self.journal.taken, 2)
        core, before = self.core, self.did
        assert core.popped >= final + in_hand
        self.did = [
            did
            for index, did in enumerate(before)
            if (index < self.durable if did.kind is Kind.SEND else did.place <= core.popped)
        ]
        sends = [did for did in self.did if did.kind is Kind.SEND]
        assert core.progress.known[self.rank][self.rank] == len(sends)
        if sends:  # what a written message depends on is as lasting as itself
            until = before.index(sends[-1])
            assert all(did.place <= core.popped for did in before[:until])
        taken = [did for did in self.did if did.kind is Kind.DELIVER]
        assert [did.place for did in taken] == list(range(1, core.popped + 1))
        assert [_taken(popped) for popped in core.hand] == taken[final:]
        assert len(self.shown) == final + in_hand
        self.durable = len(self.did)

    def events(self) -> list[Event]:
        """The trace, as far as it is in the journal."""
        self.flush(whole=True)
        return [
            event
            for _, data in self.journal.events()
            for event in msgspec.msgpack.decode(data, type=list[Event])
        ]


class Group:
    """All members, and the connections between them."""

    def __init__(self, roster: Roster, folder: Path) -> None:
        self.roster = roster
        self.peers = [Peer(roster, rank, folder) for rank in range(len(roster.members))]
        self.now = 0
        self.said = 0
        self.at: dict[tuple[int, int], int] = {}
        """For each direction of each connection, the number of the last packet that went."""
        self.told: dict[tuple[int, int], dict[int, list[int]]] = {}
        self.connect_all()

    def close(self) -> None:
        for peer in self.peers:
            if peer.alive:
                peer.journal.close()

    def ways(self) -> list[tuple[int, int]]:
        """Both directions of each pair of partners."""
        return [(peer.rank, partner) for peer in self.peers for partner in peer.core.partners]

    def connect(self, one: int, other: int) -> None:
        if (one, other) in self.at or not (self.peers[one].alive and self.peers[other].alive):
            return
        for source, to in ((one, other), (other, one)):
            got = self.peers[to].core.safe[source]
            self.peers[source].core.outboxes[to].confirm(got)
            self.at[source, to] = got
            self.told[source, to] = {}

    def connect_all(self) -> None:
        for way in self.ways():
            self.connect(*way)

    def cut(self, one: int, other: int) -> None:
        for way in ((one, other), (other, one)):
            self.at.pop(way, None)

    def kill(self, rank: int, sudden: bool = True) -> None:
        for partner in self.peers[rank].core.partners:
            self.cut(rank, partner)
        self.peers[rank].kill(sudden)

    def say(self, rank: int, padding: int = 0) -> MessageId:
        """Something that nobody has ever said."""
        self.said += 1
        return self.peers[rank].say(f"{self.said}" + "." * padding, self.now)

    def carry(self, source: int, to: int, most: int = 1_000_000) -> int:
        """Packets arrive, in order and at most so many; how many."""
        box = self.peers[source].core.outboxes[to]
        at = max(self.at[source, to], box.confirmed)
        packets = box.after(at, most_bytes=1 << 20)[:most]
        for number, data in enumerate(packets, at + 1):
            self.peers[to].core.receive(source, number, data, self.now)
        self.at[source, to] = at + len(packets)
        return len(packets)

    def confirm(self, source: int, to: int) -> None:
        """The receiver says what is safe."""
        self.peers[source].core.outboxes[to].confirm(self.peers[to].core.safe[source])

    def gossip(self, source: int, to: int) -> bool:
        """One tells the other how far members are, as frames do; False if there was no news."""
        core = self.peers[source].core
        core.skip_stable()
        rows: dict[int, dict[int, int]] = {}
        for turn in range(core.size):
            rows |= core.progress.news(self.told[source, to], turn)
        frame = frames.decode(frames.encode(frames.Have(rows)))
        assert isinstance(frame, frames.Have)
        self.peers[to].core.progress.learn(source, frame.rows)
        return bool(rows)

    def recover(self, rank: int, patience: int) -> bool:
        """A member asks for what it lacks."""
        core = self.peers[rank].core
        asked = core.progress.wanted(self.now, patience, [to for source, to in self.at if source == rank])
        if asked is None:
            return False
        helper, spans = asked
        came = [core.on_repair(data, self.now) for data in self.peers[helper].core.progress.found(spans)]
        return any(came)

    def settle(self, gone: frozenset[int] = frozenset()) -> None:
        """All come back but those that are gone; then everything is carried, taken and told."""
        for peer in self.peers:
            if peer.rank in gone and peer.alive:
                self.kill(peer.rank)
            elif peer.rank not in gone and not peer.alive:
                peer.revive()
        self.connect_all()
        quiet = 0
        while quiet < 5:
            self.now += 1
            moved = False
            for peer in self.peers:
                if peer.alive:
                    moved |= peer.core.is_unwritten
                    peer.flush()
                    while peer.take(self.now):
                        moved = True
                    if gone:
                        moved |= self.recover(peer.rank, patience=0)
            for way in self.at:
                moved |= self.carry(*way) > 0
                self.confirm(*way)
                moved |= self.gossip(*way)
            quiet = 0 if moved else quiet + 1
            assert self.now < 100_000, "it never comes to rest"

    def judged(self) -> Judgement:
        """By the oracle; and whatever anybody took is what its sender said, and names its causes right."""
        judgement = judge(Execution([[Step(d.kind, d.message) for d in peer.did] for peer in self.peers]))
        verdict = judgement.verdict
        assert not verdict.causal_violations, [judgement.explain(each) for each in judgement.violations()]
        assert (verdict.duplicates, verdict.orphans, verdict.impossible) == (0, 0, 0)
        said = {d.message: d.body for peer in self.peers for d in peer.did if d.kind is Kind.SEND}
        for peer in self.peers:
            for did in peer.did:
                assert did.body == said[did.message]
                if did.kind is Kind.DELIVER:
                    assert sorted(did.causes.items()) == sorted(
                        judgement.order.immediate_dependencies(did.message)
                    )
        return judgement
