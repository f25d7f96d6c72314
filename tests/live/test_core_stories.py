"""Stories of live members, one for each thing that has gone wrong or could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from core_group import Group, roster

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.live.core import Core
from antecede.live.events import Cursor, PacketReceived, RepairReceived
from antecede.live.settings import Member, Roster
from antecede.live.transport.links import Links
from antecede.live.transport.outbox import Outbox
from antecede.protocols.base import RemoteError
from antecede.protocols.freescale import Freescale
from antecede.protocols.freescale.packets import DownlinkPacket, NumberAssignment
from antecede.protocols.mbcp import Mbcp


@pytest.fixture
def group_of(tmp_path: Path) -> Iterator[Callable[[Roster], Group]]:
    made: list[Group] = []

    def make(members: Roster) -> Group:
        made.append(Group(members, tmp_path))
        return made[-1]

    yield make
    for group in made:
        group.close()


Groups = Callable[[Roster], Group]
BEHIND_ANA = Roster.create("freescale", [Member("ana"), Member("bo", behind="ana"), Member("cleo")])
"""Only ana talks to everybody."""


def test_progress_is_relayed_between_members_that_are_not_connected(group_of: Groups) -> None:
    group = group_of(BEHIND_ANA)
    message = group.broadcast(1)
    group.settle()
    assert [peer.core.stability.unstable_bytes for peer in group.peers] == [0, 0, 0]
    assert group.peers[2].seen == [message]


def test_messages_not_yet_durable_are_neither_reported_nor_used_for_repair(group_of: Groups) -> None:
    """Otherwise the message that reuses its number would be mistaken for it."""
    group = group_of(roster("mbcp", 2))
    ana, bo = group.peers
    group.broadcast(0)
    group.gossip(0, 1)
    assert bo.core.stability.matrix_clock[0] == [0, 0]
    assert ana.core.repair.reply([(0, 1, 1)]) == []
    ana.take_ready(checkpoint=True)
    ana.persist()
    assert not group.gossip(0, 1)
    ana.advance()
    group.gossip(0, 1)
    assert bo.core.stability.matrix_clock[0] == [1, 0]
    assert len(ana.core.repair.reply([(0, 1, 1)])) == 1


def test_a_message_is_delivered_when_the_application_asks_for_it(group_of: Groups) -> None:
    """Not by the loop that persists and sends, which then has nothing left to do."""
    group = group_of(roster("mbcp", 2))
    ana, bo = group.peers
    message = group.broadcast(0)
    ana.flush()
    group.carry(0, 1)
    bo.flush()
    assert bo.core.application.attempts == 0
    delivery = bo.core.next_delivery(group.now, acks=False)
    assert delivery is not None
    assert delivery.message == message
    assert bo.core.application.attempts == 1
    assert not bo.core.has_ready
    assert bo.core.next_delivery(group.now, acks=True) is None


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_sequence_number_is_used_again_if_its_message_was_not_persisted(
    group_of: Groups, checkpoint: bool
) -> None:
    group = group_of(roster("mbcp", 2))
    ana, bo = group.peers
    assert group.broadcast(0) == (0, 1)
    ana.take_ready(checkpoint)
    group.kill(0)
    ana.revive()
    assert group.broadcast(0) == (0, 1)
    group.settle()
    assert [action.body for action in bo.actions] == ["2"]


def test_a_message_unblocked_by_a_control_packet_waits_until_that_is_persisted(
    group_of: Groups,
) -> None:
    """Only a foreign super peer sends them in this order."""
    group = group_of(BEHIND_ANA)
    bo = group.peers[1]
    group.broadcast(1)
    bo.core.step(
        PacketReceived(
            0, 1, Freescale.encode(DownlinkPacket(b"", 2, 1, 2, 0, OffsetBitmap.from_numbers({1}))), 1
        )
    )
    bo.flush()
    assert not bo.take(2)
    bo.core.step(PacketReceived(0, 2, Freescale.encode(NumberAssignment(1, 1)), 3))
    assert not bo.take(4)
    bo.kill()
    bo.revive()
    assert not bo.take(5)
    bo.core.step(PacketReceived(0, 2, Freescale.encode(NumberAssignment(1, 1)), 6))
    bo.flush()
    assert bo.take(7)
    bo.kill()
    bo.revive()
    assert bo.take(8)
    assert bo.seen == [(2, 1)]


def test_after_a_crash_unacked_messages_are_redelivered_and_acked_ones_are_not(group_of: Groups) -> None:
    group = group_of(roster("depseq", 2))
    bo = group.peers[1]
    for _ in range(3):
        group.broadcast(0)
    group.peers[0].flush()
    group.carry(0, 1)
    bo.flush()
    assert bo.take(1)
    assert bo.take(2)
    bo.kill()
    bo.revive()
    assert (bo.core.application.acked, len(bo.core.application.unacked)) == (1, 1)
    assert bo.core.stability.matrix_clock[1] == [2, 0]
    bo.take(3)
    bo.ack()
    bo.kill()
    bo.revive()
    assert not bo.core.application.unacked
    assert bo.take(4)
    assert bo.seen == [(0, 1), (0, 2), (0, 3)]


def test_after_a_power_failure_possibly_delivered_messages_are_marked_redelivered(tmp_path: Path) -> None:
    """The cursor is as old as the last group commit, so the application may have seen any of the rest."""
    group = Group(roster("mbcp", 2), tmp_path, sync=True)
    ana, bo = group.peers
    for _ in range(5):
        group.broadcast(0)
        ana.flush()
    group.carry(0, 1, most=4)
    bo.flush()
    for now in range(3):
        assert bo.take(now)
    bo.kill(power=0)
    bo.revive()
    assert (bo.journal.cursor_is_exact, bo.core.application.acked, bo.core.application.uncertain_until) == (
        False,
        0,
        4,
    )
    # This also holds if the process is killed before delivering them.
    bo.kill()
    bo.revive()
    assert (bo.journal.cursor_is_exact, bo.core.application.acked, bo.core.application.uncertain_until) == (
        True,
        0,
        4,
    )
    group.sent.clear()
    group.connect_all()
    group.carry(0, 1)
    bo.flush()
    marks = []
    while bo.take(9):
        marks.append(bo.core.application.deliveries > 1)
    assert marks == [True, True, True, True, False]
    group.close()


def test_broadcasts_after_a_power_failure_depend_on_all_possibly_delivered_messages(
    tmp_path: Path,
) -> None:
    """The application may have seen and may answer any of them; all are still marked as redelivered."""
    group = Group(roster("mbcp", 2), tmp_path, own=True, sync=True)
    ana, bo = group.peers
    for _ in range(2):
        group.broadcast(0)
        ana.flush()
    group.carry(0, 1)
    bo.flush()
    for now in range(2):
        assert bo.take(now)
    bo.kill(power=0)
    bo.revive()
    group.broadcast(1)
    bo.flush()
    marks = []
    while bo.take(9):
        marks.append((bo.seen[-1], bo.core.application.deliveries > 1))
    assert marks[:2] == [((0, 1), True), ((0, 2), True)]
    assert bo.core.protocol.name == "mbcp"
    group.cut(0, 1)
    group.connect_all()
    group.settle()
    assert group.judged().order.immediate_dependencies(MessageId(1, 1)) == [(0, 2)]
    group.close()


def test_a_member_that_leaves_before_it_asks_still_marks_the_message_as_redelivered(group_of: Groups) -> None:
    group = group_of(roster("mbcp", 2))
    bo = group.peers[1]
    group.broadcast(0)
    group.peers[0].flush()
    group.carry(0, 1)
    bo.flush()
    assert bo.take(1)
    for _ in range(2):
        bo.kill()
        bo.revive()
        bo.ack()
        assert bo.journal.cursor == Cursor(0, 1)
    assert bo.take(2)
    assert bo.journal.cursor == Cursor(0, 2)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_packets_arriving_while_a_ready_is_persisted_are_not_acked_with_it(
    group_of: Groups, checkpoint: bool
) -> None:
    group = group_of(roster("mbcp", 2))
    bo = group.peers[1]
    group.broadcast(0)
    group.peers[0].flush()
    group.broadcast(0)
    group.peers[0].flush()
    group.carry(0, 1, most=1)
    bo.take_ready(checkpoint)
    group.carry(0, 1)
    bo.persist()
    assert bo.core.durably_received == {0: 0}
    assert not bo.take(1)
    bo.advance()
    assert bo.core.durably_received == {0: 1}
    group.ack(0, 1)
    assert bo.take(1)
    assert not bo.take(1)
    group.kill(1)
    group.settle()
    assert bo.seen == [(0, 1), (0, 2)]


def test_acked_packets_cannot_be_resent() -> None:
    box = Outbox()
    for number in (1, 2, 3):
        box.extend(number, [b"packet"])
    box.ack(2, box.chain[2])
    assert box.after(2, 100, 9) == [b"packet"]
    assert box.after(3, 100, 9) == []
    for number in (-1, 0, 1, 4, 1 << 62):
        with pytest.raises(RemoteError):
            box.after(number, 100, 9)
    with pytest.raises(RemoteError):
        box.ack(4, bytes(16))


def test_a_frame_takes_packets_up_to_its_byte_limit_but_at_least_one() -> None:
    box = Outbox()
    for number in (1, 2, 3):
        box.extend(number, [bytes(10)])
    assert [len(box.after(0, most, 9)) for most in (1, 10, 19, 20, 30)] == [1, 1, 1, 2, 3]
    assert len(box.after(0, 100, 2)) == 2


def test_a_message_its_dead_sender_sent_to_one_member_is_repaired_from_that_member(
    group_of: Groups,
) -> None:
    group = group_of(roster("mbcp", 3))
    message = group.broadcast(0)
    group.peers[0].flush()
    group.carry(0, 1)
    group.kill(0)
    group.settle(frozenset({0}))
    assert [peer.seen for peer in group.peers] == [[], [message], [message]]
    assert group.peers[2].core.stability.holders(MessageId(0, 1)) == [0, 1]
    assert group.peers[2].core.stability.lagging() == [0]


@pytest.mark.parametrize("restarts", [False, True])
def test_repair_of_held_messages_continues_after_a_restart(group_of: Groups, restarts: bool) -> None:
    group = group_of(roster("mbcp", 3))
    ana, bo, cleo = group.peers
    group.broadcast(0)
    ana.flush()
    group.carry(0, 1)
    bo.flush()
    assert bo.take(1)
    group.broadcast(1)
    bo.flush()
    group.carry(1, 2)
    cleo.flush(checkpoint=True)
    if restarts:
        cleo.kill()
        cleo.revive()
    links = Links(cleo.core, Counter())
    link = links.by_peer[1]
    link.is_open = True
    assert links.ask_for_held(link, 10**9) == [(0, 1, 1)]


def test_a_repair_reply_has_room_for_many_packets_of_many_messages(group_of: Groups) -> None:
    group = group_of(roster("mbcp", 2))
    for _ in range(300):
        group.broadcast(0, padding=80)
    group.peers[0].flush()
    packets = list(group.peers[0].core.outboxes[1].packets.values())
    assert len(packets) == 100
    assert group.peers[0].core.repair.reply([(0, 1, 300)]) == packets


def test_broadcasts_count_against_the_limit_before_the_round_ends() -> None:
    """Without a journal nothing is awaited between broadcasts, so only this count enforces `limit`."""
    core = Core(Mbcp(0, 3), durable=False)
    for _ in range(10):
        core.broadcast(b"x" * 1_000_000, 1)
    assert core.pending_bytes >= 10_000_000


def test_repair_of_messages_not_in_flight_starts_at_once_without_repeated_requests(
    group_of: Groups,
) -> None:
    """Ana and Cleo have no connection; Bo's answer to Ana is held at Cleo."""
    group = group_of(roster("mbcp", 3))
    ana, bo, cleo = group.peers
    group.cut(0, 2)
    group.broadcast(0)
    ana.flush()
    group.carry(0, 1)
    bo.flush()
    assert bo.take(1)
    group.broadcast(1)
    bo.flush()
    group.carry(1, 2)
    repair, second = cleo.core.repair, 1_000_000_000
    assert repair.request_held(cleo.core.last_awaited, second, 1, []) == []
    assert repair.request_held(cleo.core.last_awaited, second, 1, [0]) == [(0, 1, 1)]
    # For a while, others are not asked for the same messages, nor is Bo again if he lacked them.
    assert repair.request_held(cleo.core.last_awaited, second + 20_000_000, 1, [0]) == []
    assert repair.request_held(cleo.core.last_awaited, second + 40_000_000, 0, [0]) == []
    assert repair.request_held(cleo.core.last_awaited, 2 * second, 1, [0]) == [(0, 1, 1)]
    for data in bo.core.repair.reply([(0, 1, 1)]):
        cleo.core.step(RepairReceived(1, data, 3 * second, [(0, 1, 1)]))
    assert repair.request_held(cleo.core.last_awaited, 4 * second, 1, [0]) == []
    cleo.flush()
    assert cleo.take(1)
    assert cleo.take(1)
    assert cleo.seen == [(0, 1), (1, 1)]
