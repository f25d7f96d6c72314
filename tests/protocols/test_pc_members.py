"""Single members of `pc`: what they send, buffer, ping, reply to and refuse; and layouts."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest
from pc_network import LINE, PONG_TIMEOUT, Bounded, opened

from antecede.causality import BitWindow
from antecede.errors import InputError
from antecede.protocols.base import NO_EFFECTS, Effects, LocalError, Packet, RemoteError, Send
from antecede.protocols.flooding import FloodPacket
from antecede.protocols.pc import Hello, OverlayLayout, Pc, Ping, Pong, Snapshot, UnsafeLink
from antecede.sim.engines import simulate
from antecede.sim.scenario import scenario
from antecede.units import SECOND


def bounded() -> Bounded:
    member = Bounded(0, 4, (1,))
    member.broadcast(b"a", 0)
    member.link_opened(2, 10)
    return member


def flooded(*numbers: int) -> list[FloodPacket]:
    return [FloodPacket(b"", 0, number) for number in numbers]


def test_a_pong_makes_a_link_safe_and_sends_the_buffer_in_order() -> None:
    member = opened()
    assert member.broadcast(b"", 20).sends == (Send((1,), FloodPacket(b"", 0, 2)),)
    theirs = FloodPacket(b"x", 1, 1)
    assert member.receive(1, theirs, 30) == NO_EFFECTS
    assert member.receive(2, Pong(1), 40).sends == (Send((2,), flooded(2)[0]), Send((2,), theirs))
    assert (member.neighbours, member.unsafe_links) == ((1, 2), {})
    assert member.broadcast(b"", 50).sends == (Send((1, 2), FloodPacket(b"", 0, 3)),)
    assert member.receive(2, Pong(1), 60) == NO_EFFECTS
    assert member.neighbours == (1, 2)


def test_a_message_is_buffered_once_and_not_for_the_link_it_came_from() -> None:
    member = opened()
    message = FloodPacket(b"x", 2, 1)
    assert member.receive(2, message, 20).sends == (Send((1,), message),)
    assert member.receive(1, message, 30) == NO_EFFECTS
    assert member.receive(1, FloodPacket(b"y", 3, 1), 40) == NO_EFFECTS
    assert member.receive(1, FloodPacket(b"y", 3, 1), 50) == NO_EFFECTS
    assert member.unsafe_links[2].buffer == [FloodPacket(b"y", 3, 1)]


def test_a_pong_of_another_link_or_of_an_earlier_opening_is_ignored() -> None:
    member = opened()
    assert member.receive(3, Pong(1), 20) == NO_EFFECTS
    assert member.link_closed(2, 20) == NO_EFFECTS
    assert member.receive(2, Pong(1), 20) == NO_EFFECTS
    member.broadcast(b"", 30)
    assert member.link_opened(2, 40) == Effects((Send((1,), Ping(0, 2, 2)),))
    assert member.receive(2, Pong(1), 50) == NO_EFFECTS
    assert member.unsafe_links == {2: UnsafeLink(2, 40 + PONG_TIMEOUT, [])}
    assert member.receive(2, Pong(2), 60) == NO_EFFECTS
    assert member.neighbours == (1, 2)


def test_a_buffer_that_overflows_is_started_anew_with_a_ping_behind_the_message() -> None:
    member = bounded()
    for _ in range(3):
        member.broadcast(b"", 20)
    assert member.unsafe_links[2] == UnsafeLink(1, 10 + PONG_TIMEOUT, flooded(2, 3, 4))
    sends = member.broadcast(b"", 30).sends
    assert sends == (Send((1,), FloodPacket(b"", 0, 5)), Send((1,), Ping(0, 2, 2)))
    assert member.unsafe_links[2] == UnsafeLink(2, 30 + PONG_TIMEOUT, [])
    member.broadcast(b"", 40)
    assert member.receive(2, Pong(1), 50) == NO_EFFECTS
    assert member.receive(2, Pong(2), 50).sends == (Send((2,), flooded(6)[0]),)


def test_a_forwarded_message_overflows_a_buffer_too() -> None:
    member = bounded()
    for number in (1, 2, 3):
        member.receive(1, FloodPacket(b"", 3, number), 20)
    assert member.receive(1, FloodPacket(b"", 3, 4), 30).sends == (Send((1,), Ping(0, 2, 2)),)
    assert member.unsafe_links[2].buffer == []


def test_after_the_timeout_the_ping_is_repeated_and_either_pong_is_accepted() -> None:
    member = opened()
    member.broadcast(b"", 20)
    late = 10 + PONG_TIMEOUT
    assert member.wake(late) == Effects((Send((1,), Ping(0, 2, 2)),), wake_at=late + PONG_TIMEOUT)
    assert member.unsafe_links[2] == UnsafeLink(1, late + PONG_TIMEOUT, flooded(2))
    again = Pc.restore(member.save())
    for one, number in ((member, 1), (again, 2)):
        assert one.receive(2, Pong(number), late + 1).sends == (Send((2,), flooded(2)[0]),)
        assert one.wake(late + PONG_TIMEOUT) == NO_EFFECTS


def test_at_most_one_wake_up_is_pending_for_all_unsafe_links() -> None:
    member = opened()
    assert member.link_opened(3, 20) == Effects((Send((1,), Ping(0, 3, 2)),))
    first = 10 + PONG_TIMEOUT
    assert member.wake(first) == Effects((Send((1,), Ping(0, 2, 3)),), wake_at=20 + PONG_TIMEOUT)
    assert member.unsafe_links[3].first_ping == 2
    member.receive(2, Pong(3), first + 1)
    member.link_closed(3, first + 2)
    assert member.link_opened(3, first + 3).wake_at is None
    member.receive(3, Pong(4), first + 4)
    assert member.wake(20 + PONG_TIMEOUT) == NO_EFFECTS
    member.link_closed(3, 30 + PONG_TIMEOUT)
    assert member.link_opened(3, 40 + PONG_TIMEOUT).wake_at == 40 + 2 * PONG_TIMEOUT


def test_new_links_are_safe_at_once_before_any_delivery() -> None:
    alone, other = Pc.on_overlay([(), ()])
    assert alone.link_opened(1, 0) == NO_EFFECTS
    assert (alone.neighbours, alone.unsafe_links) == ((1,), {})
    other.receive(0, alone.broadcast(b"", 0).sends[0].packet, 0)
    assert other.link_opened(0, 0).wake_at == PONG_TIMEOUT  # it has delivered, and has not sent
    assert list(other.unsafe_links) == [0]
    assert alone.link_closed(1, 0) == NO_EFFECTS
    assert alone.neighbours == ()
    assert alone.link_opened(1, 0) == Effects(wake_at=PONG_TIMEOUT)  # it has sent, and not delivered


def test_a_link_that_closed_is_not_used() -> None:
    member = opened()
    member.receive(2, Pong(1), 20)
    member.link_closed(1, 30)
    assert member.neighbours == (2,)
    assert member.broadcast(b"", 40).sends == (Send((2,), FloodPacket(b"", 0, 2)),)


def test_a_ping_is_forwarded_once_over_safe_links_and_its_target_replies() -> None:
    _, one, two, three = Pc.on_overlay([(1,), (0, 2), (1, 3), (2,)])
    ping = Ping(0, 2, 1)
    assert one.receive(0, ping, 0).sends == (Send((2,), ping),)
    assert one.receive(0, ping, 0) == NO_EFFECTS
    assert one.receive(2, ping, 0) == NO_EFFECTS
    assert one.receive(0, Ping(0, 2, 2), 0).sends == (Send((2,), Ping(0, 2, 2)),)
    assert two.receive(1, ping, 0) == NO_EFFECTS  # there is no link from 2 to 0
    two.link_opened(0, 0)
    assert two.receive(1, ping, 0) == NO_EFFECTS  # it was received before; 0 will repeat it
    assert two.receive(1, Ping(0, 2, 2), 0).sends == (Send((0,), Pong(2)),)
    assert three.receive(2, ping, 0) == NO_EFFECTS  # nobody to forward it to


def test_a_target_replies_over_a_link_that_is_not_safe_on_its_side() -> None:
    member = opened()
    assert member.receive(1, Ping(2, 0, 1), 20).sends == (Send((2,), Pong(1)),)


def test_a_peers_own_ping_is_not_forwarded_again() -> None:
    member = opened()
    member.receive(2, Pong(1), 0)
    assert member.receive(1, Ping(0, 2, 1), 0) == NO_EFFECTS
    assert member.pings_received == {}
    with pytest.raises(RemoteError, match="not sent"):
        member.receive(1, Ping(0, 2, 2), 0)


class RemembersThree(Pc):
    max_recent_pings: ClassVar[int] = 3


def test_only_the_most_recent_pings_are_remembered() -> None:
    member = RemembersThree.on_overlay(LINE)[1]

    def is_new(number: int) -> bool:
        return bool(member.receive(0, Ping(0, 2, number), 0).sends)

    assert [is_new(number) for number in (2, 4)] == [True, True]
    assert member.pings_received[0] == BitWindow.from_numbers([1, 2, 4])
    assert [is_new(number) for number in (3, 1, 4, 2)] == [True, False, False, False]
    assert is_new(2**64 - 1)
    assert member.pings_received[0] == BitWindow(2**64 - 4, 0b100)
    assert [is_new(2**64 - each) for each in (4, 3, 2, 1)] == [False, True, True, False]
    assert member.pings_received[0] == BitWindow(2**64 - 1)


hostile: list[Packet] = [
    Ping(9, 2, 1),
    Ping(-1, 2, 1),
    Ping(1, 9, 1),
    Ping(1, -1, 1),
    Ping(1, 2, 0),
    Ping(0, 2, 2),
    Pong(0),
    Pong(2),
    Snapshot({}),
    FloodPacket(b"", 9, 1),
]


@pytest.mark.parametrize("packet", hostile, ids=repr)
def test_a_packet_that_no_correct_peer_sends_is_refused(packet: Packet) -> None:
    member = opened()
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(2, packet, 0)
    assert member.save() == before


def test_a_hello_over_no_link_is_refused() -> None:
    member = opened()
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(3, Hello(), 0)
    assert member.save() == before


@pytest.mark.parametrize("link", [0, -1, 4, 1, 2])
def test_opening_an_invalid_link_is_a_local_error(link: int) -> None:
    member = opened()
    before = member.save()
    with pytest.raises(LocalError, match="can be opened"):
        member.link_opened(link, 0)
    assert member.save() == before


def test_closing_a_link_that_is_not_open_is_a_local_error() -> None:
    member = opened()
    with pytest.raises(LocalError, match="is open"):
        member.link_closed(3, 0)


def test_pc_limits_have_their_documented_values() -> None:
    assert (Pc.max_buffered, Pc.pong_timeout, Pc.max_recent_pings) == (10_000, 5 * SECOND, 1_000)


# Layouts


def test_overlays_by_name() -> None:
    shapes = {name: OverlayLayout(name).neighbours(4) for name in ("hypercube", "ring", "line", "star")}
    assert shapes == {
        "hypercube": [(1, 2), (0, 3), (0, 3), (1, 2)],
        "ring": [(1, 3), (0, 2), (1, 3), (0, 2)],
        "line": [(1,), (0, 2), (1, 3), (2,)],
        "star": [(1, 2, 3), (0,), (0,), (0,)],
    }
    assert all(OverlayLayout(name).neighbours(1) == [()] for name in shapes)
    assert [OverlayLayout.random(4, lambda below, n=n: n % below).overlay for n in range(5)] == [  # type: ignore[misc]
        *shapes,
        "hypercube",
    ]
    assert [member.neighbours for member in Pc.with_layout(4, OverlayLayout.default(4))] == shapes[
        "hypercube"
    ]
    assert [member.neighbours for member in Pc.group(4)] == shapes["hypercube"]
    assert OverlayLayout().sites(3) == [0, 1, 2]


def test_an_unknown_overlay_is_named_in_the_error() -> None:
    with pytest.raises(InputError, match="layout: overlay: there is no 'torus'; there are hypercube, ring"):
        scenario(protocol="pc", peers=4, layout={"overlay": "torus"})
    with pytest.raises(InputError, match="shape"):
        scenario(protocol="pc", peers=4, layout={"shape": "ring"})
    with pytest.raises(LocalError, match="torus"):
        OverlayLayout("torus").neighbours(4)


def test_without_churn_it_is_flooding() -> None:
    runs = [
        simulate(scenario(protocol=protocol, peers=11, delay="wild:1ms-1s")).metrics
        for protocol in ("pc", "flooding")
    ]
    assert runs[0] == runs[1]


def test_control_packets_are_small_and_carry_no_message() -> None:
    packets = [Ping(3, 4, 17), Pong(17), Hello(), Snapshot({5: b"x"})]
    assert [Pc.control_bytes(packet) for packet in packets] == [5, 3, 2, 7]
    assert [packet.message_ids() for packet in packets] == [(), (), (), ()]
    tags = [msgspec.msgpack.decode(Pc.encode(packet))[0] for packet in packets]
    assert tags == [11, 12, 13, 14]
    assert [Pc.decode(Pc.encode(packet)) for packet in packets] == packets
    assert len({*packets[:3], OverlayLayout()}) == 4  # frozen, so hashable
    with pytest.raises(AttributeError, match="immutable"):
        packets[3].received = {}  # type: ignore[attr-defined]
    assert Pc.group(2)[0].paper_bytes(FloodPacket(b"", 0, 1)) == 4
