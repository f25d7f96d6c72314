"""Single members of every protocol: the wire format, saved states, and hostile packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import antecede.protocols
from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.protocols import catalog
from antecede.protocols.base import LocalError, Packet, Protocol, RemoteError
from antecede.protocols.flat import (
    ClockPacket,
    DependencyPacket,
    Flat,
    MessageBatch,
    SequencePacket,
)
from antecede.protocols.flooding import FloodPacket
from antecede.protocols.limits import MAX_AHEAD
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import GroupPacket
from antecede.protocols.vcube import Bundle
from antecede.sim.scenario import scenario

protocols = pytest.mark.parametrize("protocol", list(catalog.PROTOCOLS.values()), ids=list(catalog.PROTOCOLS))
FLAT = [name for name, protocol in catalog.PROTOCOLS.items() if issubclass(protocol, Flat)]


@protocols
def test_packets_round_trip_and_sizes_match_the_wire(protocol: type[Protocol]) -> None:
    one, other, _ = protocol.group(3)
    other.receive(0, one.broadcast(b"first", 0).sends[0].packet, 0)
    other.deliver(0)
    effects = other.broadcast(b"answer", 0)
    packet = effects.sends[0].packet
    assert effects.message == MessageId(1, 1)
    if protocol.layout is None:
        assert {peer for send in effects.sends for peer in send.to} == {0, 2}
    assert protocol.decode(protocol.encode(packet)) == packet
    assert protocol.control_bytes(packet) + len(b"answer") == len(protocol.encode(packet))


def test_packet_sizes_as_the_papers_count() -> None:
    counted = {}
    for name, protocol in catalog.PROTOCOLS.items():
        if protocol.layout is not None:
            continue
        members = protocol.group(10)
        for origin in (3, 4):
            members[0].receive(origin, members[origin].broadcast(b"", 0).sends[0].packet, 0)
            members[0].deliver(0)
        counted[name] = members[0].paper_bytes(members[0].broadcast(b"", 0).sends[0].packet)
    changed = 4 * 3
    assert counted == {
        "timestamp": 4 * 10,
        "timestamp-diff": changed,
        "mbcp": 8 * 2,
        "multigroup": 8 * 2,
        "depseq": 8 * 2,
        "flooding": 4,
        "vcube": changed,
        "vcube-agg": changed,
    }


@protocols
def test_a_group_of_one_sends_to_nobody(protocol: type[Protocol]) -> None:
    (alone,) = protocol.group(1)
    assert alone.broadcast(b"", 0).sends == ()
    assert alone.deliver(0) is None


@pytest.mark.parametrize("name", FLAT)
def test_a_rank_outside_the_group_is_a_local_error(name: str) -> None:
    with pytest.raises(LocalError):
        catalog.find_protocol(name)(3, 3)


@protocols
@given(data=st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_remote_errors(protocol: type[Protocol], data: bytes) -> None:
    member = protocol.group(3)[0]
    try:
        member.receive(1, protocol.decode(data), 0)
    except RemoteError:
        return
    member.deliver(0)


hostile = [
    DependencyPacket(b"", 9, 1, {}),
    DependencyPacket(b"", -1, 1, {}),
    DependencyPacket(b"", 1, 0, {}),
    DependencyPacket(b"", 1, MAX_AHEAD + 1, {}),
    DependencyPacket(b"", 1, 1, {7: 1}),
    DependencyPacket(b"", 1, 1, {3: 1}),
    DependencyPacket(b"", 1, 1, {-1: 1}),
    DependencyPacket(b"", 3, 1, {}),
    DependencyPacket(b"", 1, 1, {2: 0}),
    DependencyPacket(b"", 1, 1, {1: 1}),
    DependencyPacket(b"", 0, 1, {}),
    MessageBatch([b"", b""], 9, 1, {}),
    MessageBatch([b"", b""], 0, 1, {}),
    MessageBatch([b"", b""], 1, 0, {}),
    MessageBatch([b"", b""], 1, MAX_AHEAD + 1, {}),
    MessageBatch([b"", b""], 1, 1, {7: 1}),
    MessageBatch([b"", b""], 1, 1, {1: 1}),
    ClockPacket(b"", 1, [0, 1]),
    ClockPacket(b"", 1, [0, 1, -1]),
    ClockPacket(b"", 1, [0, 0, 0]),
    SequencePacket(b"", 1, 1, {2: []}),
    SequencePacket(b"", 1, 1, {2: [(3, 1)]}),
    SequencePacket(b"", 1, 1, {2: [(0, 1)]}),
    SequencePacket(b"", 1, 1, {7: [(1, 1)]}),
    SequencePacket(b"", 1, 1, {3: [(1, 1)]}),
    SequencePacket(b"", 1, 1, {-1: [(1, 1)]}),
    SequencePacket(b"", 1, 2, {1: [(1, 1)]}),
    FloodPacket(b"", 9, 1),
    FloodPacket(b"", 3, 1),
    FloodPacket(b"", -1, 1),
    FloodPacket(b"", 1, 0),
    FloodPacket(b"", 0, 1),
    FloodPacket(b"", 1, MAX_AHEAD + 1),
    Bundle([DependencyPacket(b"", 1, 1, {}), DependencyPacket(b"", 1, 2, {9: 1})]),
    GroupPacket(b"", 1, 1, 7, 0, []),
    GroupPacket(b"", 9, 1, 0, 0, []),
    GroupPacket(b"", 0, 1, 0, 0, []),
    GroupPacket(b"", 1, 1, 0, 1, []),
    GroupPacket(b"", 1, 0, 0, 0, []),
    GroupPacket(b"", 1, 1, 0, 0, [(2, 0, 0)]),
    GroupPacket(b"", 1, 1, 0, 0, [(0, 0, 1)]),
]


@pytest.mark.parametrize("packet", hostile, ids=repr)
@protocols
def test_a_packet_that_no_correct_peer_sends_is_refused(protocol: type[Protocol], packet: Packet) -> None:
    member = protocol.group(3)[0]
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(1, packet, 0)
    assert member.save() == before


@pytest.mark.parametrize(
    ("name", "packet"),
    [
        ("timestamp", ClockPacket(b"", 1, [2, 1, 0])),
        ("timestamp-diff", DependencyPacket(b"", 1, 1, {0: 2})),
        ("mbcp", DependencyPacket(b"", 1, 1, {0: 2})),
        ("mbcp", MessageBatch([b""], 1, 1, {0: 2})),
        ("depseq", SequencePacket(b"", 1, 1, {0: [(1, 2)]})),
        ("vcube", DependencyPacket(b"", 1, 1, {0: 2})),
        ("vcube-agg", Bundle([DependencyPacket(b"", 1, 1, {0: 2})])),
    ],
)
@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_packet_naming_an_unsent_message_of_this_peer_is_held_until_it_is_sent(
    name: str, packet: Packet, in_a_batch: bool
) -> None:
    """Its origin lies, but a relay cannot know that."""
    member = catalog.find_protocol(name).group(3)[0]
    member.receive(2, packet, 0)
    assert member.deliver(0) is None
    assert [wait.cause for wait in member.waiting()] == [(0, 2)]
    assert not member.awaits_own(1, 1)
    assert member.awaits_own(1, 2)
    if in_a_batch:
        member.broadcast_all([b"", b""], 0)
    else:
        member.broadcast(b"", 0)
        assert member.deliver(0) is None
        member.broadcast(b"", 0)
    delivery = member.deliver(0)
    assert delivery is not None
    assert delivery.message == (1, 1)


@pytest.mark.parametrize("name", FLAT)
def test_a_valid_packet_of_another_protocol_is_refused(name: str) -> None:
    protocol = catalog.find_protocol(name)
    valid = [ClockPacket(b"", 1, [0, 1, 0]), DependencyPacket(b"", 1, 1, {}), SequencePacket(b"", 1, 1, {})]
    for packet in [each for each in valid if not isinstance(each, protocol.packets)]:
        with pytest.raises(RemoteError):
            protocol.group(3)[0].receive(1, packet, 0)


@pytest.mark.parametrize("name", ["timestamp", "timestamp-diff", "mbcp", "depseq", "flooding"])
def test_numbers_above_the_limit_are_refused(name: str) -> None:
    protocol = catalog.find_protocol(name)
    member = protocol.group(3)[0]
    packets: dict[type[Packet], Callable[[int], Packet]] = {
        ClockPacket: lambda seq: ClockPacket(b"", 1, [0, seq, 0]),
        DependencyPacket: lambda seq: DependencyPacket(b"", 1, seq, {}),
        SequencePacket: lambda seq: SequencePacket(b"", 1, seq, {}),
        FloodPacket: lambda seq: FloodPacket(b"", 1, seq),
    }
    kind, *_ = getattr(protocol.packets, "__args__", (protocol.packets,))
    member.receive(1, packets[kind](MAX_AHEAD), 0)
    with pytest.raises(RemoteError):
        member.receive(1, packets[kind](MAX_AHEAD + 1), 0)


def test_storage_as_the_papers_count() -> None:
    one, other, _ = catalog.find_protocol("mbcp").group(3)
    assert one.paper_storage() == 4 * 3
    one.receive(1, other.broadcast(b"", 0).sends[0].packet, 0)
    one.deliver(0)
    assert one.paper_storage() == 4 * 3 + 8
    assert catalog.find_protocol("timestamp").group(3)[0].paper_storage() == 0
    assert one.role() == "member"


def test_a_clock_without_its_sender_is_refused() -> None:
    with pytest.raises(ValueError, match="no peer 3"):
        ClockPacket(b"", 3, [0, 0, 0])
    timestamp = catalog.find_protocol("timestamp")
    with pytest.raises(RemoteError, match="no peer 3"):
        timestamp.decode(msgspec.msgpack.encode([0, b"", 3, [0, 0, 0]]))


def test_a_saved_state_is_restored_by_its_own_protocol_only() -> None:
    mbcp, diff = catalog.find_protocol("mbcp"), catalog.find_protocol("timestamp-diff")
    state = mbcp(0, 3).save()
    assert mbcp.restore(state) == mbcp(0, 3)
    with pytest.raises(LocalError, match="of a mbcp"):
        diff.restore(state)
    for damaged in (b"", state[:-3], state[:9] + bytes(4)):
        with pytest.raises(LocalError):
            mbcp.restore(damaged)


def test_names_that_are_not_protocols() -> None:
    for name in ("nope", "nowhere:Thing", "antecede.protocols.base:Nothing", "antecede.errors:InputError"):
        with pytest.raises(InputError, match=name.split(":")[0]):
            catalog.find_protocol(name)
    assert catalog.find_protocol("antecede.protocols.mbcp:Mbcp").name == "mbcp"


def test_a_layout_reaches_the_members() -> None:
    made = scenario(protocol="freescale", peers=6, layout={"inside": [3, 0]})
    assert [member.role() for member in made.members()] == ["super", "super", *["internal"] * 3, "external"]
    assert made.resolved_layout().sites(6) == [0, 1, 0, 0, 0, 5]  # type: ignore[union-attr]
    assert scenario(protocol="mbcp", peers=6).resolved_layout() is None


def test_state_of_an_unknown_kind_is_neither_saved_nor_restored() -> None:
    class Odd(Mbcp):
        name = "odd"
        extra: Any = None

    with pytest.raises(TypeError, match="cannot save a complex"):
        Odd(0, 1, extra=1j).save()

    class Wrong(Mbcp):
        name = "wrong"
        extra: complex = 0j

    saved = Wrong(0, 1, extra="text").save()  # type: ignore[arg-type]
    with pytest.raises((TypeError, LocalError), match="complex"):
        Wrong.restore(saved)


def test_a_kernel_replaces_only_the_class_that_declares_it() -> None:
    class Mine(Mbcp):
        pass

    assert (Mbcp.declared_kernel(), Mine.declared_kernel()) == ("flat", "")
    without = [name for name, protocol in catalog.PROTOCOLS.items() if not protocol.declared_kernel()]
    assert without == ["multigroup"]


def test_the_public_module_has_the_interface_and_every_protocol() -> None:
    public = [getattr(antecede.protocols, name) for name in antecede.protocols.__all__]
    assert all(protocol in public for protocol in catalog.PROTOCOLS.values())
