"""Free-scale networks: messages carry exactly what is needed, and each misreading of the paper breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import BitWindow, MessageId, judge
from antecede.causality.bit_window import OffsetBitmap
from antecede.errors import InputError
from antecede.protocols.base import LocalError, Packet, RemoteError, Send
from antecede.protocols.freescale import Freescale, FreescaleLayout
from antecede.protocols.freescale.external import ExternalInbox, ExternalNumber, ExternalPeer
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    InternalAck,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.freescale.super_peer import SuperPeer
from antecede.protocols.limits import MAX_AHEAD
from antecede.sim.scenario import Scenario, scenario
from antecede.sim.verify import Histories, VerifyReport, random_scenario, verify
from printed_protocols import freescale as printed
from smallest_run import assert_passed


def final(protocol: str, runs: int, seed: int = 7) -> VerifyReport:
    found = VerifyReport(protocol)
    for found in verify(protocol, runs, seed):
        if found.failed:
            break
    return found


def across_of(sends: Sequence[Send]) -> list[ExternalPacket]:
    return [send.packet for send in sends if isinstance(send.packet, ExternalPacket)]


# What messages carry


class Named:
    """Records in a run which message each of a super peer's numbers stands for, and what packets name."""

    def __init__(self, given_scenario: Scenario, members: Sequence[Any] = ()) -> None:
        self.histories = Histories(given_scenario)
        self.members: Sequence[Any] = members or given_scenario.members()
        self.world = given_scenario.world(self.members, [self.histories])
        self.message: dict[ExternalNumber, MessageId] = {}
        self.outside: dict[MessageId, tuple[int, ExternalPacket]] = {}
        self.up: dict[MessageId, UplinkPacket] = {}
        self.down: list[tuple[int, DownlinkPacket, frozenset[MessageId]]] = []
        self.world.transmit = self.transmit  # type: ignore[method-assign]

    def transmit(self, source: int, to: Sequence[int], packet: Packet) -> None:
        if isinstance(packet, ExternalPacket):
            self.message[source, packet.number] = packet.message_ids()[0]
            self.outside[packet.message_ids()[0]] = (source, packet)
        elif isinstance(packet, UplinkPacket):
            self.up[packet.message_ids()[0]] = packet
        elif isinstance(packet, DownlinkPacket):
            self.message[source, packet.number] = packet.message_ids()[0]
            inside = [*self.members[source].peer.inside, source]
            had = [{step.message for step in self.histories.steps[peer]} for peer in inside]
            self.down.append((source, packet, frozenset.intersection(*map(frozenset, had))))
        elif isinstance(packet, NumberAssignment):
            self.message[source, packet.number] = MessageId(to[0], packet.seq)
        type(self.world).transmit(self.world, source, to, packet)


@given(seed=st.integers(0, 2**64 - 1), run=st.integers(0, 1_000_000))
def test_messages_carry_exactly_the_immediate_dependencies(seed: int, run: int) -> None:
    """Without the sender's own previous message, which sender order implies: as pairs and bits outside, as
    bits inside, where what every internal peer has already may be omitted."""
    watched = Named(random_scenario("freescale", seed, run))
    watched.world.run()
    order = judge(watched.histories.execution()).order

    def needed(message: MessageId) -> set[MessageId]:
        return set(order.immediate_dependencies(message)) - {MessageId(message.origin, message.seq - 1)}

    for message, (_, packet) in watched.outside.items():
        named = {MessageId(*pair) for pair in packet.peers.items()}
        named |= {
            watched.message[peer, number] for peer, row in packet.supers.items() for number in row.numbers()
        }
        assert named - {MessageId(message.origin, message.seq - 1)} == needed(message)
    for message, up in watched.up.items():
        relay = watched.members[message.origin].peer.super_peer
        assert {watched.message[relay, number] for number in up.causes.numbers()} == needed(message)
    for relay, down, had in watched.down:
        message = down.message_ids()[0]
        named = {watched.message[relay, number] for number in down.causes.numbers()}
        named -= {MessageId(message.origin, message.seq - 1)}
        assert named <= needed(message)
        assert needed(message) - named <= had


# Each misreading of the paper is a class of `printed_protocols` that breaks causal order


@pytest.mark.parametrize(
    "broken",
    [
        printed.TakesOutNewerPairs,
        printed.LeavesAtTheFirstMatch,
        printed.ForgetsItsOwnNumbers,
        printed.NoLastOutside,
        printed.NoLastForExternalPeers,
        printed.LastForSuperPeersToo,
        printed.NoFifoInside,
    ],
)
def test_each_misreading_breaks_order(broken: type[Freescale]) -> None:
    found = final(f"{printed.__name__}:{broken.__name__}", 4000)
    assert found.violations > 0


def test_a_member_that_waited_for_its_own_messages_would_wait_forever() -> None:
    assert final(f"{printed.__name__}:WaitsForItself", 200).stuck > 0


def test_a_member_does_not_wait_for_its_own_messages() -> None:
    assert_passed(final("freescale", 500))


# E1: when an entry of the table may be dropped


class Site:
    """One internal peer p behind s, and externals e1 and e2."""

    def __init__(self) -> None:
        self.s, self.p, self.e1, self.e2 = self.all = Freescale.with_layout(4, FreescaleLayout([1]))

    def inside(self, link: int, packet: Packet) -> Packet:
        """Through the super peer, to p."""
        sends = self.s.receive(link, packet, 0).sends
        return next(send.packet for send in sends if send.to == (1,))


def test_a_message_in_flight_may_still_name_what_p_has_delivered() -> None:
    """e1 sends m1, m2; p delivers m1, sends x, delivers m2. All inside have m2, which depends immediately
    on m1; but x, which names m1, has not reached the super peer yet."""
    for forgets in (True, False):
        site = Site()
        m1 = site.e1.broadcast(b"m1", 0).sends[0].packet
        m2 = site.e1.broadcast(b"m2", 0).sends[0].packet
        site.p.receive(0, site.inside(2, m1), 0)
        site.p.deliver(0)
        x = site.p.broadcast(b"x", 0).sends[0].packet
        site.p.receive(0, site.inside(2, m2), 0)
        site.p.deliver(0)
        if forgets:
            del site.s.peer.table[1]  # type: ignore[union-attr]
        (outside,) = across_of(site.s.receive(1, x, 0).sends)
        site.e2.receive(0, outside, 0)
        delivered = site.e2.deliver(0)
        assert (delivered is not None) is forgets
        if not forgets:
            assert outside.peers == {2: 1}
            site.e2.receive(2, m1, 0)
            first, second = site.e2.deliver(0), site.e2.deliver(0)
            assert first is not None
            assert second is not None
            assert [first.payload, second.payload] == [b"m1", b"x"]


def test_an_old_acknowledgement_does_not_undo_a_newer_one() -> None:
    """p has #1 to #3 and may name #2 of them. An older report, that it had #1 alone and would name nothing
    of it, arrives later. #2 must stay in the table."""
    site = Site()
    for _ in range(3):
        site.s.receive(2, site.e1.broadcast(b"", 0).sends[0].packet, 0)
        site.s.deliver(0)
    peer: Any = site.s.peer
    peer.application.causes.clear()
    site.s.receive(1, InternalAck(0, 3, row(2)), 0)
    site.s.receive(1, InternalAck(0, 1, NONE), 0)
    peer._clean_up()
    assert set(peer.table) == {2}
    assert peer.assigned == {(2, 2): 2}
    site.s.receive(1, InternalAck(0, 3, NONE), 0)
    peer._clean_up()
    assert peer.table == peer.assigned == {}


def test_an_acknowledgement_out_of_order_is_ignored() -> None:
    site = Site()
    site.s.receive(2, site.e1.broadcast(b"", 0).sends[0].packet, 0)
    site.s.deliver(0)
    peer: Any = site.s.peer
    site.s.receive(1, InternalAck(1, 1, NONE), 0)
    assert peer.progress == {}
    site.s.receive(1, site.p.broadcast(b"", 0).sends[0].packet, 0)
    site.s.receive(1, InternalAck(0, 1, NONE), 0)
    assert peer.progress[1].delivered_up_to == 0


def table_sizes(layout: dict[str, Any], silent: tuple[int, ...]) -> Iterator[int]:
    """The length of the super peer's table during a run in which some members never send."""
    made = scenario(
        protocol="freescale", peers=6, seconds=20, rate=20, delay="1-50ms", layout=layout, silent=silent
    )
    members: list[Any] = made.members()
    world = made.world(members, [])
    while world.step():
        yield len(members[0].peer.table)


def test_the_table_stays_small_even_if_an_internal_peer_is_silent() -> None:
    """Its length is about the number of messages in flight plus those the silent peer has not acknowledged
    yet."""
    assert max(table_sizes({"inside": [2]}, silent=())) < 40
    assert max(table_sizes({"inside": [2]}, silent=(1,))) < 100
    assert max(table_sizes({"inside": [2], "ack_every": 1_000_000}, silent=(1,))) > 1_000


def test_without_internal_peers_the_table_shrinks_as_the_super_peer_delivers() -> None:
    made = scenario(protocol="freescale", peers=3, seconds=5, delay="1-5ms", layout={"inside": [0]})
    members: list[Any] = made.members()
    made.world(members, []).run()
    assert len(members[0].peer.table) <= 3


# E2, E3: what the paper's form costs


def test_in_the_papers_form_silent_internal_peers_cost_a_bit_for_every_external_message() -> None:
    sizes = {}
    for form in ("paper", "corrected"):
        s, p, e = Freescale.with_layout(3, FreescaleLayout([1], form))
        for _ in range(800):
            s.receive(2, e.broadcast(b"", 0).sends[0].packet, 0)
            s.deliver(0)
        sends = s.receive(1, p.broadcast(b"", 0).sends[0].packet, 0).sends
        (across,) = across_of(sends)
        sizes[form] = s.paper_bytes(across), s.control_bytes(across)
        e.receive(0, across, 0)
        assert e.deliver(0) is not None
        assert e.peer.inbox.delivered_numbers[0] == BitWindow(801)  # type: ignore[union-attr]
    assert sizes["paper"][0] == 100
    assert sizes["corrected"][0] == 0
    assert sizes["corrected"][1] < 20 < 100 < sizes["paper"][1]


class WithoutLine10(SuperPeer):
    def _translate_outwards(self, down: DownlinkPacket) -> ExternalPacket:
        never_sent = set(self.never_sent)
        return msgspec.structs.replace(
            super()._translate_outwards(down), translated=OffsetBitmap.from_numbers(never_sent)
        )


class WithoutLine10OfListing14(Freescale):
    name: ClassVar[str] = "the paper's form without line 10 of Listing 14"
    super_peer: ClassVar[type[SuperPeer]] = WithoutLine10


def test_line_10_of_listing_14_is_pure_overhead() -> None:
    assert final(f"{__name__}:WithoutLine10OfListing14", 1000).passed
    bits = {}
    for kind in (Freescale, WithoutLine10OfListing14):
        made = scenario(protocol="freescale", peers=10, seconds=5, layout={"inside": [5], "form": "paper"})
        watched = Named(made, kind.with_layout(10, FreescaleLayout([5], "paper")))
        watched.world.run()
        bits[kind] = sum(packet.translated.span for _, packet in watched.outside.values())
    assert bits[WithoutLine10OfListing14] < bits[Freescale] / 3


def test_two_messages_in_a_row_are_linked_by_sender_previous_and_not_by_bits() -> None:
    """E4: Lemma 3 says that an immediate dependency is a bit of DV; the sender's own previous message is
    not."""
    site = Site()
    site.s.receive(1, site.p.broadcast(b"", 0).sends[0].packet, 0)
    second = site.p.broadcast(b"", 0).sends[0].packet
    assert isinstance(second, UplinkPacket)
    assert second.causes == OffsetBitmap()
    sends = site.s.receive(1, second, 0).sends
    (across,) = across_of(sends)
    assert (across.sender_previous, across.supers) == (1, {})


# Bad input


def test_invalid_layouts_are_refused() -> None:
    for layout, reason in (
        ({"inside": [3, 3]}, "more than the 5"),
        ({"inside": [-1]}, "fewer than 0"),
        ({"inside": [1], "ack_every": 0}, "ack_every"),
        ({"within": [1]}, "inside"),
        ({"inside": [1], "form": "new"}, "form"),
    ):
        with pytest.raises(InputError, match=reason):
            scenario(protocol="freescale", peers=5, layout=layout)
    with pytest.raises(InputError, match="all alike"):
        scenario(protocol="mbcp", peers=5, layout={"inside": [1]})


def row(*numbers: int) -> OffsetBitmap:
    return OffsetBitmap.from_numbers(set(numbers))


NONE = OffsetBitmap()
# Ranks: 0 and 1 are super peers, 2 is behind 0, 3 behind 1; 4 and 5 are external.
hostile: list[tuple[int, int, Packet]] = [
    (2, 4, DownlinkPacket(b"", 4, 1, 1, 0, NONE)),
    (2, 0, ExternalPacket(b"", 4, 1, 1, 0, 0, {}, {}, NONE)),
    (2, 0, DownlinkPacket(b"", 2, 1, 1, 0, NONE)),
    (2, 0, DownlinkPacket(b"", 4, 0, 1, 0, NONE)),
    (2, 0, DownlinkPacket(b"", 4, 1, 0, 0, NONE)),
    (2, 0, DownlinkPacket(b"", 4, 1, MAX_AHEAD + 1, 0, NONE)),
    (2, 0, DownlinkPacket(b"", 4, 1, 2, 2, NONE)),
    (2, 0, DownlinkPacket(b"", 4, 1, 2, -1, NONE)),
    (2, 0, DownlinkPacket(b"", 4, 1, 2, 0, row(2))),
    (2, 0, DownlinkPacket(b"", 4, 1, 2, 0, OffsetBitmap(0, b"\1"))),
    (2, 0, NumberAssignment(1, 1)),
    (2, 0, NumberAssignment(0, 1)),
    (0, 2, UplinkPacket(b"", 3, 1, NONE, 0)),
    (0, 2, UplinkPacket(b"", 2, 0, NONE, 0)),
    (0, 2, UplinkPacket(b"", 2, MAX_AHEAD + 1, NONE, 0)),
    (0, 2, UplinkPacket(b"", 2, 1, row(1), 0)),
    (0, 2, UplinkPacket(b"", 2, 1, NONE, 1)),
    (0, 2, UplinkPacket(b"", 2, 1, NONE, -1)),
    (0, 2, InternalAck(0, 1, NONE)),
    (0, 2, InternalAck(0, 0, row(1))),
    (0, 2, NumberAssignment(1, 1)),
    (0, 3, UplinkPacket(b"", 3, 1, NONE, 0)),
    (0, 4, UplinkPacket(b"", 4, 1, NONE, 0)),
    (4, 0, DownlinkPacket(b"", 2, 1, 1, 0, NONE)),
    (4, 2, ExternalPacket(b"", 2, 1, 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 3, 1, 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 6, 1, 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 9, 1, 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", -1, 1, 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 0, 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 0, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, MAX_AHEAD + 1, 0, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 2, 0, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 2, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, -1, {}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {}, {}, row(2))),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {5: 0}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {3: 1}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {6: 1}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {9: 1}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {-1: 1}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {4: 1}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {1: 1}, {}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {}, {5: row(1)}, NONE)),
    (4, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {}, {0: row(2)}, NONE)),
    (4, 5, ExternalPacket(b"", 5, 1, 2, 0, 0, {}, {}, NONE)),
    (5, 4, ExternalPacket(b"", 4, 1, 2, 0, 0, {}, {}, NONE)),
    (4, 5, ExternalPacket(b"", 5, 2, 2, 1, 1, {}, {}, NONE)),
    (4, 5, ExternalPacket(b"", 5, MAX_AHEAD + 1, MAX_AHEAD + 1, 0, 0, {}, {}, NONE)),
    (1, 0, ExternalPacket(b"", 2, 1, 2, 0, 0, {}, {1: row(1)}, NONE)),
    (4, 4, ExternalPacket(b"", 4, 1, 1, 0, 0, {}, {}, NONE)),
    (4, 9, ExternalPacket(b"", 9, 1, 1, 0, 0, {}, {}, NONE)),
]


@pytest.mark.parametrize(("to", "link", "packet"), hostile, ids=repr)
def test_freescale_packets_no_correct_member_sends_are_refused(to: int, link: int, packet: Packet) -> None:
    member = Freescale.with_layout(6, FreescaleLayout([1, 1]))[to]
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(link, packet, 0)
    assert member.save() == before


def test_repeated_packets_change_nothing() -> None:
    site = Site()
    up = site.p.broadcast(b"x", 0).sends[0].packet
    sends = site.s.receive(1, up, 0).sends
    before = site.s.save()
    assert site.s.receive(1, up, 0).sends == ()
    assert site.s.save() == before
    for send in sends:
        for peer in send.to:
            site.all[peer].receive(0, send.packet, 0)
            saved = site.all[peer].save()
            site.all[peer].receive(0, send.packet, 0)
            assert site.all[peer].save() == saved


def test_packet_sizes_as_the_paper_counts() -> None:
    _, p, e1, _ = Site().all
    assert p.paper_bytes(UplinkPacket(b"", 1, 1, row(5, 12), 0)) == 1
    assert p.paper_bytes(DownlinkPacket(b"", 1, 1, 20, 3, row(5, 13))) == 2
    assert p.paper_bytes(NumberAssignment(1, 1)) == 0
    across = ExternalPacket(b"", 1, 1, 20, 3, 0, {2: 7, 3: 9}, {0: row(1, 9)}, row(4))
    assert e1.paper_bytes(across) == 2 * 8 + (4 + 2) + 1


def test_a_broadcast_addresses_every_peer_once() -> None:
    s, p, *_ = Freescale.with_layout(6, FreescaleLayout([2]))
    to = [peer for send in s.broadcast(b"", 0).sends for peer in send.to]
    assert sorted(to) == [1, 2, 3, 4, 5]
    assert p.broadcast(b"", 0).sends == (Send((0,), UplinkPacket(b"", 1, 1, NONE, 0)),)


def test_long_runs_with_table_cleanup_stay_causally_ordered() -> None:
    for seed, inside in enumerate(([3, 0, 2], [5], [1, 1, 1, 1], [0, 0])):
        made = scenario(
            protocol="freescale", peers=10, seconds=8, rate=12, seed=seed, delay="wild:1us-1s",
            reply=0.02, faults=("duplicate:10%:500ms",), layout={"inside": inside, "ack_every": 4},
        )  # fmt: skip
        histories = Histories(made)
        members = made.members()
        made.world(members, [histories]).run()
        verdict = judge(histories.execution()).verdict
        assert verdict.clean
        assert verdict.deliveries > 8_000
        assert not any(member.waiting() for member in members)
        for member in members:
            assert [holder.undelivered for holder in holders(member)] == [set()] * len(holders(member))
            seen = [
                set(holder.delivered_numbers)
                for holder in holders(member)
                if isinstance(holder, ExternalInbox)
            ]
            assert all(senders <= set(range(len(inside))) for senders in seen)


def holders(member: Any) -> list[Any]:
    """The parts of a member that hold messages."""
    peer = member.peer
    if isinstance(peer, SuperPeer):
        return [peer.inbox, peer.application]
    return [peer.inbox] if isinstance(peer, ExternalPeer) else [peer]


def test_a_silent_peer_acknowledges_after_ack_every_deliveries() -> None:
    """After every `ack_every` deliveries since its last message or acknowledgement."""
    s, p, e = Freescale.with_layout(3, FreescaleLayout([1], ack_every=2))

    def deliver_one() -> list[Packet]:
        sends = s.receive(2, e.broadcast(b"", 0).sends[0].packet, 0).sends
        acks = p.receive(0, sends[0].packet, 0).sends
        p.deliver(0)
        return [send.packet for send in acks]

    assert [deliver_one() for _ in range(5)] == [
        [],
        [],
        [InternalAck(0, 2, row(2))],
        [],
        [InternalAck(0, 4, row(4))],
    ]
    p.broadcast(b"", 0)
    assert [deliver_one() for _ in range(3)] == [[], [], [InternalAck(1, 7, row(7))]]


def test_freescale_numbers_above_the_limit_are_refused() -> None:
    p = Freescale.with_layout(3, FreescaleLayout([1]))[1]
    p.broadcast(b"", 0)
    for wrong in (
        NumberAssignment(1, 0),
        NumberAssignment(1, MAX_AHEAD + 1),
        DownlinkPacket(b"", 2, 1, MAX_AHEAD + 1, 0, NONE),
    ):
        with pytest.raises(RemoteError):
            p.receive(0, wrong, 0)
    p.receive(0, DownlinkPacket(b"", 2, 1, MAX_AHEAD, 0, NONE), 0)
    p.receive(0, NumberAssignment(1, MAX_AHEAD - 1), 0)
    s = Freescale.with_layout(3, FreescaleLayout([1]))[0]
    s.receive(1, UplinkPacket(b"", 1, MAX_AHEAD, NONE, 0), 0)
    s.receive(2, ExternalPacket(b"", 2, MAX_AHEAD, MAX_AHEAD, 0, 0, {}, {}, NONE), 0)
    e = Freescale.with_layout(3, FreescaleLayout([1]))[2]
    e.receive(0, ExternalPacket(b"", 1, 1, MAX_AHEAD, 0, 0, {}, {}, NONE), 0)


def test_a_layout_larger_than_the_group_is_a_local_error() -> None:
    with pytest.raises(LocalError, match="more than the 2"):
        Freescale.with_layout(2, FreescaleLayout([5]))


def test_storage_as_the_paper_counts() -> None:
    """p has #2 and #9: RV is bits 1 to 9, of which the first is cleared, DV bits 2 to 9."""
    site = Site()
    assert [member.paper_storage() for member in site.all] == [8, 0, 8, 8]
    for number in (2, 9):
        site.p.receive(0, DownlinkPacket(b"", 2, number, number, 0, NONE), 0)
        site.p.deliver(0)
    assert site.p.paper_storage() == 2 + 1
    for member, name in zip(site.all, ("super", "internal", "external", "external"), strict=True):
        assert member.role() == name
    site.e1.receive(0, ExternalPacket(b"", 1, 1, 10, 0, 8, {}, {}, NONE), 0)
    assert site.e1.deliver(0) is not None
    assert site.e1.paper_storage() == 8 + 2 + (4 + 1)
    site.e1.receive(3, site.e2.broadcast(b"", 0).sends[0].packet, 0)
    site.e1.deliver(0)
    assert site.e1.paper_storage() == 8 + 2 + (4 + 1) + 8
    site.s.receive(3, ExternalPacket(b"", 3, 1, 1, 0, 0, {}, {}, NONE), 0)
    site.s.broadcast(b"", 0)
    assert site.s.paper_storage() == 8 + 8 + 8


def test_the_paper_form_uses_bits_where_the_corrected_form_uses_numbers() -> None:
    """p sends, then e, then p twice: its numbers are 1, 3 and 4, and 2 is never sent outside."""
    for form in ("paper", "corrected"):
        s, p, e = Freescale.with_layout(3, FreescaleLayout([1], form))
        sent = [p.broadcast(b"", 0).sends[0].packet for _ in range(3)]
        (first,) = across_of(s.receive(1, sent[0], 0).sends)
        s.receive(2, e.broadcast(b"", 0).sends[0].packet, 0)
        (second,) = across_of(s.receive(1, sent[1], 0).sends)
        (third,) = across_of(s.receive(1, sent[2], 0).sends)
        found = [
            (a.number, a.sender_previous, a.relay_previous, a.supers, a.translated)
            for a in (first, second, third)
        ]
        if form == "paper":
            assert found == [
                (1, 0, 0, {}, NONE), (3, 0, 2, {0: row(1)}, row(2)), (4, 0, 3, {0: row(3)}, NONE)
            ]  # fmt: skip
        else:
            assert found == [(1, 0, 0, {}, NONE), (3, 1, 1, {}, NONE), (4, 3, 3, {}, NONE)]


def test_the_table_is_cleaned_up_once_per_as_many_steps_as_internal_peers() -> None:
    members = Freescale.with_layout(4, FreescaleLayout([2]))
    s, p, q, e = members
    relay = s.peer
    assert isinstance(relay, SuperPeer)
    steps = []
    for _ in range(12):
        for send in s.receive(3, e.broadcast(b"", 0).sends[0].packet, 0).sends:
            for peer in send.to:
                members[peer].receive(0, send.packet, 0)
        for member in (s, p, q):
            while member.deliver(0):
                pass
        steps.append(relay.steps)
    assert steps == [1, 2, 0] * 4
    assert len(relay.table) == 12
    # The reports of internal peers suffice to drop every entry that nobody can name again.
    for peer, member in ((1, p), (2, q), (1, p), (2, q)):
        s.receive(peer, member.broadcast(b"", 0).sends[0].packet, 0)
    assert (set(relay.table), relay.cleaned_up_to) == (set(relay.table) & relay.application.causes, 12)


def test_the_first_external_peer_is_not_treated_as_a_super_peer() -> None:
    """Without internal peers it has the rank after the last super peer's."""
    _, one, other = Freescale.with_layout(3, FreescaleLayout([0]))
    with pytest.raises(RemoteError):
        other.receive(1, ExternalPacket(b"", 1, 1, 2, 0, 0, {}, {}, NONE), 0)
    with pytest.raises(RemoteError):
        other.receive(0, ExternalPacket(b"", 0, 1, 1, 0, 0, {}, {1: row(1)}, NONE), 0)
    first, second = (one.broadcast(b"", 0).sends[0].packet for _ in range(2))
    other.receive(1, second, 0)
    assert [held.cause for held in other.waiting()] == [MessageId(1, 1)]
    other.receive(1, first, 0)
    assert other.deliver(0) is not None
    answer = other.broadcast(b"", 0).sends[0].packet
    assert isinstance(answer, ExternalPacket)
    assert (answer.peers, answer.supers) == ({1: 1}, {})
