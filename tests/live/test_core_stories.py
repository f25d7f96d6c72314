"""Single stories of live members, each for one thing that went wrong once or could."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from core_group import Group, roster

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.live.settings import Member, Roster
from antecede.live.transport.outbox import Outbox
from antecede.protocols.base import RemoteError
from antecede.protocols.freescale import Freescale
from antecede.protocols.freescale.packets import DownlinkPacket, NumberAssignment


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
BEHIND_ANA = Roster.of("freescale", [Member("ana"), Member("bo", behind="ana"), Member("cleo")])
"""Only ana talks to everybody."""


def test_one_who_talks_to_everybody_is_told_of_those_who_do_not(group_of: Groups) -> None:
    group = group_of(BEHIND_ANA)
    message = group.say(1)
    group.settle()
    assert [peer.core.progress.unstable_bytes for peer in group.peers] == [0, 0, 0]
    assert group.peers[2].shown == [message]


def test_what_a_crash_can_undo_is_neither_told_nor_handed_on(group_of: Groups) -> None:
    """Or the message that gets its number would be taken for it."""
    group = group_of(roster("mbcp", 2))
    ana, bo = group.peers
    group.say(0)
    group.gossip(0, 1)
    assert bo.core.progress.known[0] == [0, 0]
    assert ana.core.progress.found([(0, 1, 1)]) == []
    ana.begin_batch(whole=True)
    ana.write_batch()
    assert not group.gossip(0, 1)
    ana.end_batch()
    group.gossip(0, 1)
    assert bo.core.progress.known[0] == [1, 0]
    assert len(ana.core.progress.found([(0, 1, 1)])) == 1


@pytest.mark.parametrize("whole", [False, True])
def test_a_number_is_given_again_if_its_message_was_not_written(group_of: Groups, whole: bool) -> None:
    group = group_of(roster("mbcp", 2))
    ana, bo = group.peers
    assert group.say(0) == (0, 1)
    ana.begin_batch(whole)
    group.kill(0)
    ana.revive()
    assert group.say(0) == (0, 1)
    group.settle()
    assert [did.body for did in bo.did] == ["2"]


def test_a_message_that_a_number_has_freed_is_not_given_before_the_number_is_written(
    group_of: Groups,
) -> None:
    """A super peer that sends them in this order is not one of ours."""
    group = group_of(BEHIND_ANA)
    bo = group.peers[1]
    group.say(1)
    bo.core.receive(
        0, 1, Freescale.encode(DownlinkPacket(b"", 2, 1, 2, 0, OffsetBitmap.from_numbers({1}))), 1
    )
    bo.flush()
    assert not bo.take(2)
    bo.core.receive(0, 2, Freescale.encode(NumberAssignment(1, 1)), 3)
    assert not bo.take(4)
    bo.kill()
    bo.revive()
    assert not bo.take(5)
    bo.core.receive(0, 2, Freescale.encode(NumberAssignment(1, 1)), 6)
    bo.flush()
    assert bo.take(7)
    bo.kill()
    bo.revive()
    assert bo.take(8)
    assert bo.shown == [(2, 1)]


def test_what_is_in_hand_comes_again_after_a_crash_and_what_is_final_does_not(group_of: Groups) -> None:
    group = group_of(roster("depseq", 2))
    bo = group.peers[1]
    for _ in range(3):
        group.say(0)
    group.peers[0].flush()
    group.carry(0, 1)
    bo.flush()
    assert bo.take(1)
    assert bo.take(2)
    bo.kill()
    bo.revive()
    assert [popped.place for popped in bo.core.hand] == [2]
    assert bo.core.progress.known[1] == [2, 0]
    bo.take(3)
    bo.finish()
    bo.kill()
    bo.revive()
    assert not bo.core.hand
    assert bo.take(4)
    assert bo.shown == [(0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("whole", [False, True])
def test_what_comes_while_a_batch_is_written_is_neither_safe_nor_given_with_it(
    group_of: Groups, whole: bool
) -> None:
    group = group_of(roster("mbcp", 2))
    bo = group.peers[1]
    group.say(0)
    group.peers[0].flush()
    group.say(0)
    group.peers[0].flush()
    group.carry(0, 1, most=1)
    bo.begin_batch(whole)
    group.carry(0, 1)
    bo.write_batch()
    assert bo.core.safe == {0: 0}
    assert not bo.take(1)
    bo.end_batch()
    assert bo.core.safe == {0: 1}
    group.confirm(0, 1)
    assert bo.take(1)
    assert not bo.take(1)
    group.kill(1)
    group.settle()
    assert bo.shown == [(0, 1), (0, 2)]


def test_packets_that_were_confirmed_cannot_be_had_again() -> None:
    box = Outbox()
    for number in (1, 2, 3):
        box.put(number, b"packet")
    box.confirm(2)
    assert box.after(2, 100) == [b"packet"]
    assert box.after(3, 100) == []
    for number in (-1, 0, 1, 4, 1 << 62):
        with pytest.raises(RemoteError):
            box.after(number, 100)
    with pytest.raises(RemoteError):
        box.confirm(4)


def test_packets_go_until_the_bytes_are_used_up_and_one_at_least() -> None:
    box = Outbox()
    for number in (1, 2, 3):
        box.put(number, bytes(10))
    assert [len(box.after(0, most)) for most in (1, 10, 19, 20, 30)] == [1, 1, 1, 2, 3]


def test_who_lacks_a_message_that_its_dead_sender_gave_to_another_gets_it_from_there(
    group_of: Groups,
) -> None:
    group = group_of(roster("mbcp", 3))
    message = group.say(0)
    group.peers[0].flush()
    group.carry(0, 1)
    group.kill(0)
    group.settle(frozenset({0}))
    assert [peer.shown for peer in group.peers] == [[], [message], [message]]
    assert group.peers[2].core.progress.holders(MessageId(0, 1)) == [0, 1]
    assert group.peers[2].core.progress.behind() == [0]


def test_an_answer_has_room_for_many_packets_of_many_messages(group_of: Groups) -> None:
    group = group_of(roster("mbcp", 2))
    for _ in range(300):
        group.say(0, padding=80)
    group.peers[0].flush()
    packets = list(group.peers[0].core.outboxes[1].packets.values())
    assert len(packets) == 100
    assert group.peers[0].core.progress.found([(0, 1, 300)]) == packets
