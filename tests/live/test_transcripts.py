"""Transcripts of cores: commands, and what each core's `Ready` asks for, as text that a person can read.

A file in `transcripts/` is a story in the style of etcd/raft's `testdata`. A line that starts with `>` is a
command; the lines below it are what the cores did. After a change that is intended, regenerate the files and
read the difference:

    ./dev test tests/live/test_transcripts.py --rewrite

Commands:

    group PROTOCOL NAME...         cores with journals, connected to each other
    broadcast NAME BODY...         the application broadcasts messages, in a row
    ready NAME [checkpoint]        take a Ready
    persist NAME                   write its records or checkpoint to the journal
    advance NAME                   send its packets, and advance
    run NAME                       ready, persist and advance
    carry FROM TO [COUNT]          packets that wait in the outbox arrive
    again FROM TO                  the last packet that was carried arrives a second time
    ack FROM TO                    TO acknowledges to FROM what is durable
    next NAME                      the application asks for the next message
    done NAME                      the application acknowledges the message in flight
    progress FROM TO               FROM reports to TO what it knows of deliveries
    repair NAME                    NAME asks a connected member for what it lacks
    cut A B / connect A B          the connection between two members
    crash NAME / restart NAME      lose memory; restore from the journal
    show NAME                      what is held, unstable and unacked
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from core_group import Group, Peer

from antecede.causality import MessageId
from antecede.live.envelope import decode_body, unwrap
from antecede.live.events import Broadcast, Delivered, LogRecord, PacketReceived, RepairReceived
from antecede.live.ready import Ready
from antecede.live.settings import Member, Roster
from antecede.protocols.base import Delivery, RemoteError

FOLDER = Path(__file__).parent / "transcripts"
STORIES = sorted(FOLDER.glob("*.txt"))


class Transcript:
    """Executes commands on cores, and describes what happens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: list[str] = []
        self.group: Group
        self._commands: dict[str, Callable[..., None]] = {
            "group": self._group,
            "broadcast": self._broadcast,
            "ready": self._ready,
            "persist": self._persist,
            "advance": self._advance,
            "run": self._run,
            "carry": self._carry,
            "again": self._again,
            "ack": self._ack,
            "next": self._next,
            "done": self._done,
            "progress": self._progress,
            "repair": self._repair,
            "cut": lambda one, other: self.group.cut(self._rank(one), self._rank(other)),
            "connect": lambda one, other: self.group.connect(self._rank(one), self._rank(other)),
            "crash": lambda name: self.group.kill(self._rank(name)),
            "restart": self._restart,
            "show": self._show,
        }

    def execute(self, line: str) -> list[str]:
        """What a command prints."""
        self._lines = []
        name, *arguments = line.split()
        if name != "group":
            self.group.now += 1
        try:
            self._commands[name](*arguments)
        except RemoteError as error:
            self._lines.append(f"RemoteError: {error}")
        return self._lines

    def close(self) -> None:
        self.group.close()

    # Commands

    def _group(self, protocol: str, *names: str) -> None:
        self.group = Group(Roster.create(protocol, [Member.parse(name) for name in names]), self._folder)

    def _broadcast(self, name: str, *bodies: str) -> None:
        for body in bodies:
            message = self._peer(name).broadcast(body, self.group.now)
            self._print(f"stages {self._id(message)}")

    def _ready(self, name: str, checkpoint: str = "") -> None:
        peer = self._peer(name)
        peer.take_ready(checkpoint == "checkpoint")
        assert peer.pending is not None
        self._describe(peer, peer.pending)

    def _persist(self, name: str) -> None:
        self._peer(name).persist()

    def _advance(self, name: str) -> None:
        peer = self._peer(name)
        before = dict(peer.core.durably_received)
        peer.advance()
        for link, number in peer.core.durably_received.items():
            if number > before[link]:
                self._print(f"may acknowledge packet {number} of {self._name(link)}")

    def _run(self, name: str) -> None:
        self._ready(name)
        self._persist(name)
        self._advance(name)

    def _carry(self, source: str, to: str, count: str = "1000") -> None:
        sender, receiver = self._rank(source), self._rank(to)
        before = self.group.sent[sender, receiver]
        carried = self.group.carry(sender, receiver, int(count))
        for number in range(before + 1, before + carried + 1):
            data = self.group.peers[sender].core.outboxes[receiver].packets[number]
            self._print(f"packet {number}: {self._packet(data)}")

    def _again(self, source: str, to: str) -> None:
        sender, receiver = self._rank(source), self._rank(to)
        number = self.group.sent[sender, receiver]
        data = self.group.peers[sender].core.outboxes[receiver].packets[number]
        core = self.group.peers[receiver].core
        before = core.has_ready
        core.step(PacketReceived(sender, number, data, self.group.now))
        self._print(f"packet {number}: {'changes' if core.has_ready != before else 'changes nothing'}")

    def _ack(self, source: str, to: str) -> None:
        sender, receiver = self._rank(source), self._rank(to)
        self.group.ack(sender, receiver)
        box = self.group.peers[sender].core.outboxes[receiver]
        self._print(f"packets for {to}: {box.acked} acknowledged, {len(box.packets)} retained")

    def _next(self, name: str) -> None:
        peer = self._peer(name)
        if not peer.take(self.group.now):
            self._print("nothing that is durable")
            return
        core = peer.core
        again = ", redelivered" if core.application.attempts > 1 else ""
        self._print(f"delivers {self._delivery(core.application.unacked[0])}{again}")

    def _done(self, name: str) -> None:
        peer = self._peer(name)
        peer.ack()
        self._print(f"has acked {peer.journal.cursor.acked}")

    def _progress(self, source: str, to: str) -> None:
        self.group.gossip(self._rank(source), self._rank(to))
        core = self._peer(to).core
        clock = "; ".join(f"{self._name(rank)} {row}" for rank, row in enumerate(core.stability.matrix_clock))
        self._print(f"matrix clock at {to}: {clock}")

    def _repair(self, name: str) -> None:
        rank = self._rank(name)
        core = self.group.peers[rank].core
        connected = [to for source, to in self.group.sent if source == rank]
        core.repair.request(self.group.now, 0, connected)
        request = core.repair.request(self.group.now, 0, connected)
        if request is None:
            self._print("has nobody to ask")
            return
        helper, spans = request
        for origin, first, last in spans:
            self._print(f"asks {self._name(helper)} for {self._name(origin)}:{first} to {last}")
        for data in self.group.peers[helper].core.repair.reply(spans):
            self._print(f"receives {self._packet(data)}")
            core.step(RepairReceived(helper, data, self.group.now, spans))

    def _restart(self, name: str) -> None:
        peer = self._peer(name)
        peer.revive()
        core = peer.core
        state = "a checkpoint" if peer.journal.state() else "no checkpoint"
        self._print(f"restores {state}, log records: {len(list(peer.journal.records()))}")
        self._print(f"has broadcast {core.broadcasts}, received {self._by_name(core.received)} packets")
        queue = core.application
        self._print(f"has acked {queue.acked}, unacked {self._ids(each.message for each in queue.unacked)}")

    def _show(self, name: str) -> None:
        core = self._peer(name).core
        held = [
            f"{self._id(wait.message)} for {self._id(wait.cause) if wait.cause else 'a number'}"
            for wait in core.protocol.waiting()
        ]
        unstable = (
            MessageId(origin, seq) for origin, seqs in enumerate(core.stability.unstable) for seq in seqs
        )
        self._print(f"holds {', '.join(held) or 'nothing'}")
        self._print(f"unstable {self._ids(unstable)}")
        self._print(f"unacked {self._ids(delivery.message for delivery in core.application.unacked)}")

    # Descriptions

    def _describe(self, peer: Peer, ready: Ready) -> None:
        if not (ready.records or ready.checkpoint or ready.packets):
            self._print("Ready: nothing")
            return
        if ready.checkpoint is not None:
            stored = len(ready.checkpoint.packets)
            self._print(f"persist: a checkpoint with {stored} stored packet{'s' * (stored != 1)}")
        for record in ready.records:
            self._print(f"persist: {self._record(peer, record)}")
        for link, packets in ready.packets.items():
            for number, body in enumerate(packets.bodies, packets.first):
                self._print(f"send to {self._name(link)}: packet {number}: {self._packet(body)}")
        for message, link in ready.repaired:
            self._print(f"repaired: {self._id(message)} by {self._name(link)}")

    def _record(self, peer: Peer, record: LogRecord) -> str:
        match record:
            case Broadcast(payloads):
                return f"Broadcast {', '.join(repr(decode_body(unwrap(payload))) for payload in payloads)}"
            case PacketReceived(link, number, data):
                return f"PacketReceived {number} from {self._name(link)}: {self._packet(data)}"
            case RepairReceived(link, data):
                return f"RepairReceived from {self._name(link)}: {self._packet(data)}"
            case Delivered(count):
                return f"Delivered {count}"
        return type(record).__name__

    def _packet(self, data: bytes) -> str:
        if not data:
            return "skipped"
        packet = self.group.peers[0].core.protocol.decode(data)
        return f"{type(packet).__name__} {self._ids(packet.message_ids())}"

    def _delivery(self, delivery: Delivery) -> str:
        return f"{self._id(delivery.message)} {decode_body(unwrap(delivery.payload))!r}"

    def _ids(self, messages: object) -> str:
        assert hasattr(messages, "__iter__")
        return ", ".join(self._id(message) for message in messages) or "nothing"

    def _id(self, message: MessageId) -> str:
        return f"{self._name(message.origin)}:{message.seq}"

    def _by_name(self, counts: dict[int, int]) -> str:
        return ", ".join(f"{count} of {self._name(rank)}" for rank, count in counts.items())

    def _name(self, rank: int) -> str:
        return self.group.roster.names[rank]

    def _rank(self, name: str) -> int:
        return self.group.roster.names.index(name)

    def _peer(self, name: str) -> Peer:
        return self.group.peers[self._rank(name)]

    def _print(self, text: str) -> None:
        self._lines.append(f"  {text}")


def play(text: str, folder: Path) -> str:
    """The transcript with the output of its commands."""
    transcript, lines = Transcript(folder), list[str]()
    try:
        for line in text.splitlines():
            if line.startswith(">"):
                lines += [line, *transcript.execute(line.removeprefix(">"))]
            elif not line.startswith(" "):
                lines.append(line)
    finally:
        transcript.close()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_core_reproduces_its_transcript(path: Path, tmp_path: Path, rewrite: bool) -> None:
    played = play(path.read_text(), tmp_path)
    if rewrite:
        path.write_text(played)
    assert played == path.read_text()
