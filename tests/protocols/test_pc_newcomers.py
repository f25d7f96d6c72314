"""Newcomers to a group with dynamic links: why a snapshot is needed, and which packets are held until it
arrives."""

from __future__ import annotations

import pytest
from pc_network import PONG_TIMEOUT, Bounded, ManualNetwork, opened

from antecede.causality import BitWindow, Judgement, MessageId, judge
from antecede.causality.execution import Execution
from antecede.protocols.base import (
    NO_EFFECTS,
    Effects,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.flooding import FloodPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.pc import Hello, OverlayLayout, Pc, Ping, Pong, Snapshot, UnsafeLink
from antecede.sim import counter_rng
from antecede.sim.churn import link_changes
from antecede.sim.network import DirectNetwork, parse_delay
from antecede.sim.scenario import Scenario
from antecede.sim.verify import Histories
from antecede.sim.workload import Periodic
from antecede.sim.world import LinkChange, World
from antecede.units import SECOND


class Joiner(Pc):
    """Records its snapshot, and broadcasts nothing until it has it."""

    snapshot: dict[int, bytes] | None = None

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return NO_EFFECTS if self.is_joining else super().broadcast(payload, now, group)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if isinstance(packet, Snapshot):
            self.snapshot = packet.received
        return effects


class ForgetfulJoiner(Joiner):
    """A newcomer without a snapshot, as if nothing had been sent before."""

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        return super().receive(link, Snapshot({}) if isinstance(packet, Snapshot) else packet, now)


def joins(seed: int, make: type[Joiner], restoring: bool = False) -> tuple[Judgement, Joiner, set[MessageId]]:
    """A run that the member of the highest rank joins; what is in its snapshot is not addressed to it."""
    drawn = counter_rng.RandomStream(counter_rng.key(seed, 99))
    size = 3 + drawn.below(6)
    newcomer, contact = size - 1, drawn.below(size - 1)
    overlay = OverlayLayout(["hypercube", "ring", "line", "star"][drawn.below(4)])
    members: list[Protocol] = [*Pc.with_layout(newcomer, overlay), make.newcomer(newcomer, size)]
    for member in members:
        member.size = size
    standing = {(one, other) for one, others in enumerate(overlay.neighbours(newcomer)) for other in others}
    standing.add((contact, newcomer))
    until, at = SECOND // 2, drawn.below(SECOND // 2)
    churn = [
        change
        for change in link_changes(seed, size, until, 80, standing)
        if newcomer not in change[1:3] or change.time > at
    ]
    opens: set[tuple[int, int]] = set()
    links = [LinkChange(at, contact, newcomer, opens=True)]
    for time, one, other, _ in churn:  # some were omitted, so count open and closed again
        links.append(LinkChange(time, one, other, opens=(one, other) not in opens))
        opens ^= {(one, other)}
    histories = Histories(Scenario("pc", size))
    workload = Periodic(seed, SECOND // (5 + drawn.below(20)), SECOND // 10, reply=0.05)
    network = DirectNetwork(seed, parse_delay(["wild:1us-1s", "0-200ms"][drawn.below(2)]), fifo=True)
    world = World(members, network, workload, [histories], until=until, most_messages=60, link_changes=links)
    while world.step():
        if restoring:
            members[newcomer] = make.restore(members[newcomer].save())
    joined = members[newcomer]
    assert isinstance(joined, Joiner)
    assert joined.snapshot is not None
    missed = {
        MessageId(peer, seq) for peer, data in joined.snapshot.items() for seq in BitWindow.from_bytes(data)
    }
    before = dict.fromkeys(missed, frozenset(range(newcomer)))
    return judge(Execution(histories.steps, before)), joined, missed


@pytest.mark.parametrize("seed", range(40))
def test_a_newcomer_delivers_everything_that_is_not_in_its_snapshot(seed: int) -> None:
    for run in range(seed * 10, seed * 10 + 10):
        judgement, joined, missed = joins(run, Joiner, restoring=run % 10 == 0)
        assert judgement.verdict.clean, (run, next(judgement.violations()))
        assert not {message for _, message in judgement.execution.histories[joined.me]} & missed
        assert joined.waiting() == []
        assert not joined.unsafe_links


def test_a_newcomer_without_a_snapshot_delivers_old_messages_after_their_effects() -> None:
    assert any(joins(run, ForgetfulJoiner)[0].verdict.causal_late_deliveries for run in range(200))


@pytest.mark.parametrize(("joiner", "heard"), [(ForgetfulJoiner, "ba"), (Joiner, "b")])
def test_without_a_snapshot_older_messages_arrive_late_over_another_link(
    joiner: type[Joiner], heard: str
) -> None:
    """0 has sent a, slow to 1, when 2 joins through 0; 0 sends b; then a link from 1 to 2 opens."""
    network = ManualNetwork([*Pc.on_overlay([(1,), (0,)]), joiner.newcomer(2, 3)])
    for member in network.members:
        member.size = 3
    network.broadcast(0, "a")
    network.open(0, 2)
    network.flow((0, 2), (2, 0))
    network.broadcast(0, "b")
    network.flow((0, 2))
    network.open(1, 2)
    network.flow()
    assert network.delivered == ["", "ab", heard]


def newcomer() -> Pc:
    """Member 0 of four, with its hello to 1 sent and a link to 2 opened besides."""
    member = Pc.newcomer(0, 4)
    assert member.link_opened(1, 0) == Effects((Send((1,), Hello()),), wake_at=PONG_TIMEOUT)
    assert member.link_opened(2, 1) == NO_EFFECTS
    assert member.contact == 1
    return member


SNAPSHOT = Snapshot({2: BitWindow(3).to_bytes(), 1: BitWindow(1).to_bytes(), 3: BitWindow(2).to_bytes()})


def test_a_newcomer_cannot_broadcast_before_its_snapshot() -> None:
    member = newcomer()
    with pytest.raises(LocalError, match="snapshot"):
        member.broadcast(b"", 0)
    assert member.sent == 0
    member.receive(1, SNAPSHOT, 5)
    assert member.broadcast(b"", 6).message == MessageId(0, 1)


def test_a_snapshot_makes_the_contact_safe_and_pings_for_the_other_links() -> None:
    member = newcomer()
    assert member.receive(1, SNAPSHOT, 5).sends == (Send((1,), Ping(0, 2, 3)),)
    assert member.neighbours == (1,)
    assert member.received == {2: BitWindow(3), 1: BitWindow(1), 3: BitWindow(2)}
    assert list(member.unsafe_links) == [2]
    assert member.unsafe_links[2] == UnsafeLink(2, 1 + PONG_TIMEOUT, [])
    assert member.receive(2, FloodPacket(b"", 2, 3), 6) == NO_EFFECTS
    assert member.deliver(6) is None
    assert member.receive(2, FloodPacket(b"", 2, 4), 7).sends == (Send((1,), FloodPacket(b"", 2, 4)),)
    assert member.deliver(7) is not None
    before = member.save()
    with pytest.raises(RemoteError, match="not asked for"):
        member.receive(1, SNAPSHOT, 8)
    assert member.save() == before
    assert member.link_closed(1, 9) == NO_EFFECTS  # it needs no other contact


def test_packets_arriving_before_the_snapshot_are_received_after_it() -> None:
    member = newcomer()
    early = [
        FloodPacket(b"", 2, 3),
        FloodPacket(b"", 2, 4),
        FloodPacket(b"", 9, 1),
        Ping(2, 0, 1),
        FloodPacket(b"", 2, 5),
    ]
    for packet in early:
        assert member.receive(2, packet, 2) == NO_EFFECTS
        assert member.deliver(2) is None
    assert [wait.message.seq for wait in member.waiting()] == [3, 4, 1, 5]
    assert member.waiting()[0] == Waiting(MessageId(2, 3), None)
    member = Pc.restore(member.save())
    sends = member.receive(1, SNAPSHOT, 5).sends
    assert sends == (
        Send((1,), Ping(0, 2, 3)),
        Send((1,), FloodPacket(b"", 2, 4)),
        Send((2,), Pong(1)),
        Send((1,), FloodPacket(b"", 2, 5)),
    )
    delivered = [member.deliver(5), member.deliver(5)]
    assert [each and each.message for each in delivered] == [MessageId(2, 4), MessageId(2, 5)]
    assert member.waiting() == []
    assert member.early == []


def test_the_buffer_before_the_snapshot_is_bounded() -> None:
    member = Bounded.newcomer(0, 4)
    member.link_opened(1, 0)
    for number in (1, 2, 3):
        member.receive(1, FloodPacket(b"", 1, number), 0)
    before = member.save()
    with pytest.raises(RemoteError, match="too many"):
        member.receive(1, FloodPacket(b"", 1, 4), 0)
    assert member.save() == before


def test_a_newcomer_that_loses_its_contact_chooses_another() -> None:
    member = newcomer()
    contacts = [member.contact]
    for now, link in enumerate((2, 1)):
        assert member.link_closed(link, now) == NO_EFFECTS
        contacts.append(member.contact)
    assert contacts == [1, 1, None]
    assert member.link_opened(3, 4).sends == (Send((3,), Hello()),)
    member.link_opened(2, 5)
    assert member.link_closed(3, 6).sends == (Send((2,), Hello()),)
    with pytest.raises(RemoteError, match="not asked for"):
        member.receive(3, SNAPSHOT, 7)
    member.receive(2, SNAPSHOT, 8)
    assert member.neighbours == (2,)


def test_a_contact_replies_with_a_full_snapshot_and_its_link_is_safe() -> None:
    contact = opened()
    contact.receive(1, FloodPacket(b"", 3, 1), 20)
    contact.receive(1, FloodPacket(b"", 3, 3), 20)
    snapshot = Snapshot({3: BitWindow.from_numbers([1, 3]).to_bytes(), 0: BitWindow(1).to_bytes()})
    assert contact.receive(2, Hello(), 30).sends == (Send((2,), snapshot),)  # and not what was buffered
    assert (contact.neighbours, contact.unsafe_links) == ((1, 2), {})
    assert Pc.decode(Pc.encode(snapshot)) == snapshot
    assert contact.receive(2, Hello(), 40).sends == (Send((2,), snapshot),)
    assert contact.neighbours == (1, 2)


def test_a_contact_that_has_nothing_sends_an_empty_snapshot() -> None:
    contact, other = Pc.on_overlay([(), ()])
    contact.link_opened(1, 0)
    assert contact.receive(1, Hello(), 0).sends == (Send((1,), Snapshot({})),)
    with pytest.raises(RemoteError, match="not open"):
        other.receive(0, Hello(), 0)


@pytest.mark.parametrize(
    ("link", "packet"),
    [
        (2, SNAPSHOT),
        (1, Snapshot({9: b"\0"})),
        (1, Snapshot({-1: b"\0"})),
        (1, Snapshot({0: b"\0"})),
        (1, Snapshot({2: b""})),
        (1, Mbcp.group(2)[0].broadcast(b"", 0).sends[0].packet),
    ],
    ids=repr,
)
def test_packets_no_correct_peer_sends_to_a_newcomer_are_refused(link: int, packet: Packet) -> None:
    member = newcomer()
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(link, packet, 0)
    assert member.save() == before
