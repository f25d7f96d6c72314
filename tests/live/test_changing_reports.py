"""Reports of progress in groups that change: their size in bytes, and that they delay no member."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from antecede.causality import MessageId
from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Founded
from antecede.live.changing.report_deltas import ReportDelta, apply_delta, decode, encode_report
from antecede.live.events import AckReceived, Life, Opened, PacketReceived, PartnerMet
from antecede.live.ready import send_and_advance
from antecede.live.transport.frames import Ack, Packets, encode
from antecede.live.versions import CHANGING_WIRE
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.packets import ProgressReport
from antecede.protocols.base import RemoteError

SECOND = 1_000_000_000
_LENGTH = 4
"""Bytes in front of each frame."""


class Mesh:
    """Founders without stores, whose packets arrive at once; every frame is counted."""

    def __init__(self, size: int) -> None:
        contacts = [Contact(f"m{number:03}") for number in range(size)]
        self.cores = [ChangingCore(ChangingMbcp, each.name, durable=False) for each in contacts]
        for core in self.cores:
            core.step(Opened(core.name, 0, max(CHANGING_WIRE)))
            core.step(Founded(contacts, 0))
            for link in list(core.links):
                core.step(PartnerMet(link, [Life("life", 0)], 0, max(CHANGING_WIRE)))
        self._at = {core.address: core for core in self.cores}
        self.now = self.bytes = 0

    def exchange(self) -> None:
        for core in self.cores:
            send_and_advance(cast("Any", core), core.ready())
            for link, (mine, theirs) in core.links.items():
                box = core.outboxes[link]
                if box.packets:
                    self._carry(core, link, self._at[theirs], mine, theirs)
        for core in self.cores:
            while core.next_delivery(self.now, acks=True) is not None:
                pass

    def _carry(self, core: ChangingCore, link: int, other: ChangingCore, mine: int, theirs: int) -> None:
        box, back = core.outboxes[link], other.find_link(theirs, mine)
        assert back is not None
        frame = Packets(box.acked + 1, list(box.packets.values()), box.chain[box.acked])
        for number, data in box.packets.items():
            other.step(PacketReceived(back, number, data, self.now))
        ack = Ack(other.durably_received[back], other.durable_chain[back])
        self.bytes += len(encode(frame)) + len(encode(ack)) + 2 * _LENGTH
        core.step(AckReceived(link, ack.number, ack.chain))

    def tick(self) -> None:
        for core in self.cores:
            if (report := core.reports.due(core.member, self.now)) is not None:
                core.step(report)
        self.exchange()

    def broadcast(self, count: int, rate: float) -> None:
        """So many messages of 8 bytes, in turns."""
        for number in range(count):
            self.cores[number * 7 % len(self.cores)].broadcast(b"12345678", self.now)
            self.exchange()
            self.now += int(SECOND / rate)
            self.tick()

    @property
    def unstable(self) -> int:
        return sum(core.retained_bytes for core in self.cores)


@pytest.mark.parametrize("rate", [2, 20])
def test_a_message_of_8_bytes_costs_a_group_of_50_less_than_10_kilobytes(rate: float) -> None:
    mesh = Mesh(50)
    mesh.broadcast(250, rate)
    for _ in range(70):  # and what is not reported yet
        mesh.now += 10 * SECOND
        mesh.tick()
    assert not mesh.unstable
    # The messages alone take 3,500 and their acks 1,200.
    assert mesh.bytes / 250 < 9_000


def test_messages_in_a_small_group_are_stable_within_a_second() -> None:
    mesh = Mesh(3)
    mesh.broadcast(3, 10)
    for _ in range(5):
        mesh.now += SECOND // 5
        mesh.tick()
    assert not mesh.unstable


def test_a_member_waiting_for_reports_gets_them_at_once() -> None:
    mesh = Mesh(20)
    mesh.broadcast(3, 10)
    ana = mesh.cores[0]
    assert ana.retained_bytes
    ana.reports.wants = True
    mesh.now += SECOND
    mesh.tick()  # it asks
    mesh.now += SECOND
    mesh.tick()
    assert not ana.retained_bytes


def test_many_unstable_bytes_trigger_an_early_report() -> None:
    mesh = Mesh(20)
    mesh.cores[0].broadcast(bytes(2_000_000), 0)
    mesh.exchange()
    mesh.now += SECOND // 5
    mesh.tick()
    assert not mesh.cores[0].retained_bytes


def draw_report(draw: random.Random, before: ProgressReport) -> ProgressReport:
    counts = {stream: count + draw.choice((0, 0, 1, 300)) for stream, count in before.delivered.items()}
    for stream in draw.sample(sorted(counts), draw.randrange(2)):
        del counts[stream]
    for _ in range(draw.randrange(3)):
        counts[draw.randrange(1 << 62)] = draw.randrange(10)
    closed = dict(before.closed) if draw.random() < 0.5 else {draw.randrange(1 << 62): 7}
    done, chain = frozenset(closed), {5: MessageId(1, 2)} if draw.random() < 0.2 else {}
    return ProgressReport(3, counts, closed, done, draw.random() < 0.1, chain)


def test_the_last_report_plus_a_delta_equals_the_new_report() -> None:
    draw = random.Random(1)
    last = ProgressReport(3, dict.fromkeys(range(40), 5), {}, frozenset())
    for _ in range(300):
        report = draw_report(draw, last)
        delta = decode(encode_report(last, report))
        assert isinstance(delta, ReportDelta)
        assert apply_delta(last, delta) == report
        last = report


def test_a_count_that_grows_takes_two_bytes_however_long_its_stream_is() -> None:
    streams = [1 << 62 | number << 30 for number in range(50)]
    last = ProgressReport(streams[0], dict.fromkeys(streams, 9), {}, frozenset())
    report = ProgressReport(streams[0], dict.fromkeys(streams, 100), {}, frozenset())
    assert len(encode_report(last, report)) == 100 + len(encode_report(last, last))
    assert len(encode_report(last, last)) < 10


@pytest.mark.parametrize(
    "counts", [b"\x80", b"\x01", b"\x00\x01\x63\x01", b"\xff" * 12 + b"\x01", b"\x00\x01\x00"]
)
def test_malformed_report_deltas_are_refused(counts: bytes) -> None:
    last = ProgressReport(3, {1: 1, 2: 2}, {}, frozenset())
    with pytest.raises(RemoteError):
        apply_delta(last, ReportDelta(counts, {}, [], None))
    with pytest.raises(RemoteError):
        apply_delta(None, ReportDelta(b"", {}, [], None))
